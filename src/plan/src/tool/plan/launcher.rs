//! The launchers that start the ranks of a program, and where each starts the program.
//!
//! `torchrun` and `accelerate` start a script with the Python that `PYTHON_EXEC` names, so their
//! command line need not be understood (torch/distributed/run.py, `config_from_args`). `mpirun` and
//! `srun` start the first word that is not an option of theirs.

use rgpu_protocol::plan::Arg;

/// How a launcher starts the program of its ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProgramStart {
    /// With the interpreter that the environment variable `PYTHON_EXEC` names.
    PythonExec,
    /// As the rest of the launcher's command: from this word on. With `separated`, the word before
    /// it is a `--` that the launcher must not see.
    Word { at: usize, separated: bool },
}

/// Why the program of a launcher cannot be found in its command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LauncherError {
    /// The command is none of a launcher.
    #[error(
        "`--ranks` needs a launcher that rgpu knows: torchrun, `python -m torch.distributed.run`, \
         `accelerate launch`, mpirun, mpiexec or srun. rgpu cannot choose \
         among the ranks that a program starts by itself"
    )]
    Unknown,
    /// An option of the launcher that may have a value or not.
    #[error(
        "rgpu does not know whether `{option}` of `{launcher}` takes a value: write `--` before the \
         program"
    )]
    Option {
        /// Name of the launcher.
        launcher: String,
        /// The option, as in the command.
        option: String,
    },
    /// The launcher starts something that no tool can be placed before.
    #[error("`--ranks` cannot be used with {0}")]
    Refused(&'static str),
    /// The launcher has no program.
    #[error("`{0}` has no program to start")]
    NoProgram(String),
}

/// The options of a launcher of processes: names without dashes, with spaces between them.
struct Options {
    /// Options without a value.
    flags: &'static str,
    /// Options with a value, if it is not behind a `=`.
    valued: &'static str,
    /// Options with two values.
    paired: &'static str,
    /// Whether the value of an option with one letter may follow it in the same word.
    has_joined_values: bool,
}

/// Open MPI 4 and 5, MPICH and Intel MPI.
const MPI: Options = Options {
    flags: "allow-run-as-root oversubscribe nooversubscribe nolocal pernode bynode byslot \
             bysocket bind-to-core bind-to-socket bind-to-none report-bindings display-map \
             display-allocation tag-output timestamp-output use-hwthread-cpus \
             overload-allowed q quiet v verbose l prepend-rank genvall envall genvnone \
             envnone localonly enable-recovery continuous",
    valued: "np n c N npernode npersocket ppn perhost host hosts H hostfile machinefile f x \
             bind-to map-by rank-by wdir wd prefix path cpus-per-proc cpus-per-rank cpu-set \
             cpu-list rankfile rf output output-filename display timeout tune launcher \
             bootstrap iface genvlist envlist personality rmk",
    paired: "mca gmca omca prtemca pmixmca genv env",
    has_joined_values: false,
};

/// Slurm 22 to 25.
const SRUN: Options = Options {
    flags: "l label u unbuffered overlap exact O overcommit K kill-on-bad-exit Q quiet v \
             verbose s oversubscribe exclusive pty E preserve-env k no-kill Z no-allocate H \
             hold X disable-status contiguous spread-job use-min-nodes whole",
    valued: "n ntasks N nodes c cpus-per-task G gpus gres gpus-per-task gpus-per-node \
             ntasks-per-node ntasks-per-gpu p partition A account J job-name t time w \
             nodelist x exclude o output e error i input D chdir C constraint q qos W wait m \
             distribution mpi export cpu-bind gpu-bind mem-bind mem mem-per-cpu mem-per-gpu \
             jobid reservation container-image container-mounts container-workdir \
             container-name",
    paired: "",
    has_joined_values: true,
};

/// Options of `torchrun` and `accelerate launch` without a value. All others have one.
const PYTHON_FLAGS: &str = "standalone no-python no_python run-path run_path m module use-env use_env \
         virtual-local-rank virtual_local_rank cpu multi-gpu multi_gpu tpu use-xpu use_xpu \
         use-deepspeed use_deepspeed use-fsdp use_fsdp use-megatron-lm use_megatron_lm \
         enable-cpu-affinity enable_cpu_affinity quiet q debug same-network same_network";

/// Options of Python itself with a value in the next word.
const PYTHON_VALUED: &[&str] = &["-W", "-X", "--check-hash-based-pycs"];

/// Modules of Python that are launchers.
const MODULES: &[&str] =
    &["torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch"];

/// Where the launcher of a command starts the program.
pub(crate) fn program_start(argv: &[Arg]) -> Result<ProgramStart, LauncherError> {
    let words: Vec<&str> = argv.iter().map(text).collect();
    let at = first_program(&words);
    let Some(word) = words.get(at) else { return Err(LauncherError::Unknown) };
    if let Some((launcher, options)) = python_launcher(&words, at) {
        return python_start(&words, options, launcher);
    }
    match name(word) {
        launcher @ ("mpirun" | "mpiexec" | "mpiexec.hydra" | "orterun" | "prterun") => {
            word_start(&words, at + 1, launcher, &MPI)
        }
        launcher @ "srun" => word_start(&words, at + 1, launcher, &SRUN),
        _ => Err(LauncherError::Unknown),
    }
}

/// The index of the script, or of the module's name, that Python runs in a command: directly,
/// through `torchrun` or through `accelerate launch`. `None` if the command starts no Python, or
/// Python runs neither (`python3 -c …`).
pub fn python_program_word(words: &[&str]) -> Option<usize> {
    let at = first_program(words);
    let program = match python_launcher(words, at) {
        Some((_, options)) => {
            let end = options_end(words, options);
            end + usize::from(words.get(end) == Some(&"--"))
        }
        None if is_python(name(words.get(at)?)) => python_argument(words, at + 1)?,
        None => return None,
    };
    (program < words.len()).then_some(program)
}

/// The index of the first word behind `env NAME=VALUE` and `uv run`, which pass on what follows
/// them.
fn first_program(words: &[&str]) -> usize {
    let mut at = 0;
    while let Some(word) = words.get(at) {
        let is_assignment = word.find('=').is_some_and(|end| is_name(&word[..end]));
        match (name(word), words.get(at + 1)) {
            ("env", _) => at += 1,
            ("uv", Some(&"run")) => at += 2,
            _ if is_assignment => at += 1,
            _ => break,
        }
    }
    at
}

/// The launcher of Python programs that the word at `at` starts, and the index of its first option.
fn python_launcher<'w>(words: &[&'w str], at: usize) -> Option<(&'w str, usize)> {
    match name(words.get(at)?) {
        "torchrun" => Some(("torchrun", at + 1)),
        "accelerate" if words.get(at + 1) == Some(&"launch") => Some(("accelerate launch", at + 2)),
        program if is_python(program) => {
            let module = python_argument(words, at + 1)?;
            let is_launcher = words[module - 1] == "-m" && MODULES.contains(words.get(module)?);
            is_launcher.then(|| (words[module], module + 1))
        }
        _ => None,
    }
}

fn is_python(program: &str) -> bool {
    program.starts_with("python") && !program.contains("config")
}

/// The index of the script, or of the module's name behind `-m`, after Python's own options.
fn python_argument(words: &[&str], first: usize) -> Option<usize> {
    let mut at = first;
    loop {
        match *words.get(at)? {
            "-m" => return Some(at + 1),
            "-c" | "-" => return None,
            option if PYTHON_VALUED.contains(&option) => at += 2,
            option if option.starts_with('-') => at += 1,
            _ => return Some(at),
        }
    }
}

/// The index behind the options of `torchrun` or `accelerate launch`.
fn options_end(words: &[&str], first: usize) -> usize {
    let mut at = first;
    while let Some(name) = words.get(at).and_then(|word| option_name(word)) {
        let has_value = !lists(PYTHON_FLAGS, name) && !words[at].contains('=');
        at += 1 + usize::from(has_value);
    }
    at
}

/// The text of an argument. A file of the job is no option and no launcher.
fn text(arg: &Arg) -> &str {
    match arg {
        Arg::Text(text) => text,
        Arg::InJob { .. } => "",
    }
}

/// The name of a program, without its folder.
fn name(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// The name of an option, without its dashes and its value. `None` if the word is no option.
fn option_name(word: &str) -> Option<&str> {
    let name = word.trim_start_matches('-');
    (name.len() < word.len() && !name.is_empty()).then(|| name.split('=').next().unwrap_or(name))
}

/// Whether a list of names with spaces between them has this one.
fn lists(names: &str, name: &str) -> bool {
    names.split_whitespace().any(|other| other == name)
}

fn python_start(
    words: &[&str],
    first: usize,
    launcher: &str,
) -> Result<ProgramStart, LauncherError> {
    let at = options_end(words, first);
    let mut options = words[first..at.min(words.len())].iter().filter_map(|word| option_name(word));
    if options.clone().any(|name| matches!(name, "run-path" | "run_path")) {
        return Err(LauncherError::Refused("`--run-path`, which starts no program for each rank"));
    }
    let is_program = options.any(|name| matches!(name, "no-python" | "no_python"));
    let separated = words.get(at) == Some(&"--");
    let at = at + usize::from(separated);
    match words.get(at) {
        None => Err(LauncherError::NoProgram(launcher.to_owned())),
        Some(_) if is_program => Ok(ProgramStart::Word { at, separated }),
        Some(_) => Ok(ProgramStart::PythonExec),
    }
}

fn word_start(
    words: &[&str],
    first: usize,
    launcher: &str,
    options: &Options,
) -> Result<ProgramStart, LauncherError> {
    let mut at = first;
    while let Some(name) = words.get(at).and_then(|word| option_name(word)) {
        let word = words[at];
        let is_joined = options.has_joined_values
            && !word.starts_with("--")
            && name.len() > 1
            && name.get(..1).is_some_and(|letter| {
                lists(options.valued, letter) || lists(options.flags, letter)
            });
        at += 1 + if lists(options.flags, name) || word.contains('=') || is_joined {
            0
        } else if lists(options.valued, name) {
            1
        } else if lists(options.paired, name) {
            2
        } else {
            match words[at..].iter().position(|word| *word == "--") {
                Some(end) => end - 1,
                None => {
                    let (launcher, option) = (launcher.to_owned(), word.to_owned());
                    return Err(LauncherError::Option { launcher, option });
                }
            }
        };
    }
    let separated = words.get(at) == Some(&"--");
    let at = at + usize::from(separated);
    if words.get(at).is_none() {
        return Err(LauncherError::NoProgram(launcher.to_owned()));
    }
    if words[at..].contains(&":") {
        return Err(LauncherError::Refused("several programs, which `:` separates"));
    }
    Ok(ProgramStart::Word { at, separated })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(line: &str) -> Result<ProgramStart, LauncherError> {
        program_start(&line.split(' ').map(Arg::from).collect::<Vec<Arg>>())
    }

    #[test]
    fn launchers_of_python_take_the_interpreter_from_the_environment() {
        for line in [
            "torchrun --nproc-per-node 2 train.py --lr 1",
            "/opt/venv/bin/torchrun --standalone --nproc_per_node=2 -m pkg.train",
            "python3 -u -m torch.distributed.run --nproc-per-node 2 train.py",
            "python -m torch.distributed.launch --nproc-per-node 2 train.py",
            "accelerate launch --multi_gpu --num_processes 2 train.py",
            "env A=1 torchrun --nproc-per-node 2 train.py",
            "uv run torchrun --nproc-per-node 2 -- train.py",
            "python3 -X dev -m torch.distributed.run --nproc-per-node 2 train.py",
        ] {
            assert_eq!(start(line), Ok(ProgramStart::PythonExec), "{line}");
        }
        let program = ProgramStart::Word { at: 4, separated: false };
        assert_eq!(start("torchrun --nproc-per-node 2 --no-python ./app --no-python"), Ok(program));
    }

    #[test]
    fn the_script_or_module_that_python_runs_is_found() {
        for (line, program) in [
            ("python3 /work/hf.py --steps 3", Some("/work/hf.py")),
            ("/opt/py/bin/python3.12 -u -X dev train.py", Some("train.py")),
            ("python -m pkg.mod --x", Some("pkg.mod")),
            ("torchrun --nproc-per-node 2 --standalone programs/ddp.py", Some("programs/ddp.py")),
            ("torchrun --nproc-per-node=2 -m pkg.ddp", Some("pkg.ddp")),
            ("torchrun --nproc-per-node 2 -- ddp.py", Some("ddp.py")),
            ("python3 -m torch.distributed.run --nproc_per_node 2 ddp.py", Some("ddp.py")),
            ("accelerate launch --num_processes 2 hf.py", Some("hf.py")),
            ("accelerate launch --same_network hf.py", Some("hf.py")),
            ("env A=1 uv run python3 train.py", Some("train.py")),
            ("accelerate config", None),
            ("python3 -c pass", None),
            ("python3", None),
            ("torchrun --nproc-per-node", None),
            ("./app x.py", None),
            ("python3-config x", None),
        ] {
            let words: Vec<&str> = line.split(' ').collect();
            assert_eq!(python_program_word(&words).map(|at| words[at]), program, "{line}");
        }
    }

    #[test]
    fn launchers_of_processes_start_the_first_word_that_is_no_option() {
        for (line, at, separated) in [
            ("mpirun -np 2 ./app --its args", 3, false),
            (
                "mpirun --allow-run-as-root --mca btl self -x PATH --bind-to none -n 2 ./app",
                11,
                false,
            ),
            ("mpiexec -n 2 -genv A 1 -ppn 2 python3 train.py", 8, false),
            ("srun -n2 -lu --gpus-per-task=1 --mpi pmix ./app", 6, false),
            ("srun --ntasks 2 -- ./app -- more", 4, true),
            ("mpirun --new-option 3 -np 2 -- ./app", 6, true),
            ("/usr/bin/mpirun ./app : arg", 1, false),
        ] {
            let expected = if line.contains(" : ") {
                Err(LauncherError::Refused("several programs, which `:` separates"))
            } else {
                Ok(ProgramStart::Word { at, separated })
            };
            assert_eq!(start(line), expected, "{line}");
        }
    }

    #[test]
    fn what_cannot_be_intercepted_is_refused_with_its_reason() {
        for line in ["python train.py", "./app", "bash train.sh", "python -m train torchrun", "env"]
        {
            assert_eq!(start(line), Err(LauncherError::Unknown), "{line}");
        }
        let unknown = start("mpirun --new-option 3 ./app").unwrap_err();
        assert!(unknown.to_string().contains("`--new-option` of `mpirun`"), "{unknown}");
        let path = start("torchrun --run-path train.py").unwrap_err();
        assert!(path.to_string().contains("--run-path"), "{path}");
        assert_eq!(start("srun -n 2"), Err(LauncherError::NoProgram("srun".to_owned())));
        assert_eq!(
            start("torchrun --nproc-per-node 2"),
            Err(LauncherError::NoProgram("torchrun".to_owned()))
        );
    }
}
