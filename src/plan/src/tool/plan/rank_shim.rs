//! Runs a tool on chosen ranks of a program (`--ranks`): a small script of the shell travels with
//! the plan, and the launcher starts it in place of the program. The script reads the number of its
//! rank and becomes the tool with the program, or the program alone.

use std::collections::BTreeMap;

use rgpu_protocol::plan::Arg;

use super::draft::BundleFile;
use super::launcher::{LauncherError, ProgramStart, program_start};
use super::message_rows::{MessageRow, RowAction};
use super::rank_selection::RankSelection;
use rgpu_model::error::shell_word;
use rgpu_model::ranks::MAX_RANKS;

/// Stands for the number of the rank in the paths that a tool's command names in the job's folder.
pub(crate) const RANK: &str = "{rank}";

/// The variable by which launchers of Python take another interpreter.
pub(super) const PYTHON_EXEC: &str = "PYTHON_EXEC";

/// Exit status of the script if it cannot start its rank.
const REFUSED: u8 = 64;

/// Meanings of the script's messages.
pub(super) static MESSAGE_ROWS: &[MessageRow] = &[
    MessageRow("rgpu ranks: the number of this rank", "rank_unknown", RowAction::Stop),
    MessageRow("rgpu ranks: there is no rank", "no_such_rank", RowAction::Stop),
];

/// The beginning of the script. A rank's number comes from the innermost launcher that sets one.
const HEAD: &str = r#"#!/bin/sh
# Made by rgpu. Starts one rank of a program: with a tool if the rank is looked at, else alone.
job=${0%/*/*}
rank=${RANK:-${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-${PMIX_RANK:-$SLURM_PROCID}}}}
ranks=${WORLD_SIZE:-${OMPI_COMM_WORLD_SIZE:-${PMI_SIZE:-$SLURM_NTASKS}}}
case $rank in
'' | *[!0-9]*)
    echo "rgpu ranks: the number of this rank is not known: none of RANK, OMPI_COMM_WORLD_RANK, PMI_RANK, PMIX_RANK and SLURM_PROCID is set" >&2
    exit 64
    ;;
esac
"#;

/// Python starts the script in place of itself. The interpreter is the user's choice, else that of
/// the launcher, which is the parent.
const PYTHON: &str = r#"python=${RGPU_PYTHON:-$(tr '\0' '\n' <"/proc/$PPID/cmdline" | head -n 1)}
if [ -n "$RGPU_PYTHON" ]; then PYTHON_EXEC=$RGPU_PYTHON; else unset PYTHON_EXEC; fi
unset RGPU_PYTHON
set -- "$python" "$@"
"#;

/// A launcher's command with the script in it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RankCommand {
    pub(super) argv: Vec<Arg>,
    /// Environment variables in addition to the program's.
    pub(super) env: BTreeMap<String, Arg>,
    /// The script that the launcher starts for each rank.
    pub(super) script: BundleFile,
}

/// Places a tool before the program on the chosen ranks. `name` tells the script from those of
/// other steps and rungs; `user_python` is the user's own `PYTHON_EXEC`.
pub(super) fn wrap_ranks(
    ranks: &RankSelection,
    tool: &[Arg],
    program: &[Arg],
    name: &str,
    user_python: Option<Arg>,
) -> Result<RankCommand, LauncherError> {
    let start = program_start(program)?;
    let path = format!("ranks/{name}");
    let mut argv = program.to_vec();
    let mut env = BTreeMap::new();
    let mut script = HEAD.to_owned();
    match start {
        ProgramStart::PythonExec => {
            script.push_str(PYTHON);
            env.insert(PYTHON_EXEC.to_owned(), Arg::in_job(&path));
            env.extend(user_python.map(|python| ("RGPU_PYTHON".to_owned(), python)));
        }
        ProgramStart::Word { at, separated } => {
            argv.splice(at - usize::from(separated)..at, [Arg::in_job(&path)]);
        }
    }
    if let RankSelection::Numbers(numbers) = ranks {
        let names: Vec<String> = numbers.iter().map(u32::to_string).collect();
        let names = names.join(" ");
        script.push_str(&format!(
            "for chosen in {names}; do\n    \
                 if [ \"$chosen\" -ge \"${{ranks:-{MAX_RANKS}}}\" ]; then\n        \
                     echo \"rgpu ranks: there is no rank $chosen: the program has $ranks\" >&2\n        \
                     exit {REFUSED}\n    \
                 fi\n\
             done\n\
             case ' {names} ' in\n\
             *\" $rank \"*) ;;\n\
             *) exec \"$@\" ;;\n\
             esac\n"
        ));
    }
    let words: Vec<String> = tool.iter().map(|word| quoted(word, (RANK, "rank"))).collect();
    script.push_str(&format!("exec {} \"$@\"\n", words.join(" ")));
    let script = BundleFile::text(path, script).executable();
    Ok(RankCommand { argv, env, script })
}

/// A word of the tool's command for a script. `number` is the mark in paths that stands for a
/// number, and the script's variable with that number; its variable `job` has the job's folder.
pub(super) fn quoted(word: &Arg, number: (&str, &str)) -> String {
    let (mark, variable) = number;
    match word {
        Arg::Text(text) => shell_word(text),
        Arg::InJob { prefix, in_job } => {
            let parts: Vec<String> = in_job.split(mark).map(shell_word).collect();
            let path = parts.join(&format!("\"${variable}\""));
            let prefix = if prefix.is_empty() { String::new() } else { shell_word(prefix) };
            if in_job.is_empty() {
                format!("{prefix}\"$job\"")
            } else {
                format!("{prefix}\"$job\"/{path}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    use super::*;
    use crate::tool::plan::draft::JobFileContent;

    fn words(line: &str) -> Vec<Arg> {
        line.split(' ').map(Arg::from).collect()
    }

    /// The tool of these tests: `env` with an argument and a path.
    fn tool() -> Vec<Arg> {
        let path = Arg::InJob { prefix: "OUT=".to_owned(), in_job: "raw/m.{rank}.log".to_owned() };
        vec!["env".into(), "TOOL=with 'quotes' $HOME".into(), path]
    }

    /// What the script of `command` prints as this rank of two, with its status. The program prints
    /// the variables that the tool sets.
    fn run(command: &RankCommand, env: &[(&str, &str)]) -> (String, Option<i32>) {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join(&command.script.path);
        std::fs::create_dir(script.parent().unwrap()).unwrap();
        let JobFileContent::Bytes(text) = &command.script.content else { panic!("a text") };
        std::fs::write(&script, text).unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        let program = ["sh", "-c", "echo \"$TOOL|${OUT##*/}|$PYTHON_EXEC\""];
        let output = Command::new(&script)
            .args(if command.env.is_empty() { &program[..] } else { &program[1..] })
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .envs(env.iter().copied())
            .output()
            .unwrap();
        let printed = [output.stdout, output.stderr].concat();
        (String::from_utf8(printed).unwrap().trim_end().to_owned(), output.status.code())
    }

    #[test]
    fn the_tool_runs_on_the_chosen_ranks_and_the_program_alone_on_the_others() {
        let ranks = RankSelection::Numbers(vec![0, 3]);
        let command = wrap_ranks(&ranks, &tool(), &words("mpirun -np 4 ./app"), "x", None).unwrap();
        assert_eq!(command.argv[3], Arg::in_job("ranks/x"));
        assert_eq!(command.argv[4], Arg::from("./app"));
        let with = |rank: &str| format!("with 'quotes' $HOME|m.{rank}.log|");
        for variable in ["RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"] {
            assert_eq!(run(&command, &[(variable, "3")]), (with("3"), Some(0)), "{variable}");
            assert_eq!(run(&command, &[(variable, "1")]), ("||".to_owned(), Some(0)));
        }
        // torchrun in a job of Slurm: the inner launcher counts.
        assert_eq!(run(&command, &[("RANK", "0"), ("SLURM_PROCID", "1")]).0, with("0"));
        let all =
            wrap_ranks(&RankSelection::All, &tool(), &words("srun ./app"), "x", None).unwrap();
        assert_eq!(run(&all, &[("SLURM_PROCID", "17")]).0, with("17"));
    }

    #[test]
    fn a_rank_that_is_not_there_or_not_known_is_told() {
        let ranks = RankSelection::Numbers(vec![2]);
        let command = wrap_ranks(&ranks, &tool(), &words("mpirun -np 2 ./app"), "x", None).unwrap();
        let (printed, status) = run(&command, &[("RANK", "0"), ("WORLD_SIZE", "2")]);
        assert_eq!(printed, "rgpu ranks: there is no rank 2: the program has 2");
        assert_eq!(status, Some(i32::from(REFUSED)));
        let (printed, status) = run(&command, &[]);
        assert!(
            printed.starts_with("rgpu ranks: the number of this rank is not known"),
            "{printed}"
        );
        assert_eq!(status, Some(i32::from(REFUSED)));
    }

    #[test]
    fn python_is_the_launchers_or_the_one_that_the_user_names() {
        let ranks = RankSelection::Numbers(vec![0]);
        let torchrun = words("torchrun --nproc-per-node 2 train.py");
        let user = Arg::from("/bin/sh");
        let command = wrap_ranks(&ranks, &tool(), &torchrun, "x", Some(user.clone())).unwrap();
        assert_eq!(command.argv, torchrun);
        assert_eq!(command.env["PYTHON_EXEC"], Arg::in_job("ranks/x"));
        assert_eq!(command.env["RGPU_PYTHON"], user);
        // The program has the user's variable again.
        let env = |rank| [("RANK", rank), ("PYTHON_EXEC", "x"), ("RGPU_PYTHON", "/bin/sh")];
        let (printed, _) = run(&command, &env("1"));
        assert_eq!(printed, "||/bin/sh");
        let (printed, _) = run(&command, &env("0"));
        assert_eq!(printed, "with 'quotes' $HOME|m.0.log|/bin/sh");
    }

    #[test]
    fn the_mark_of_a_separated_program_is_replaced() {
        let command =
            wrap_ranks(&RankSelection::All, &tool(), &words("srun -n 2 -- ./app"), "x", None)
                .unwrap();
        let expected = ["srun", "-n", "2"].map(Arg::from);
        assert_eq!(command.argv[..3], expected);
        assert_eq!(command.argv[3..], [Arg::in_job("ranks/x"), Arg::from("./app")]);
    }
}
