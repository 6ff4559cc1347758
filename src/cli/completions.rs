//! `rgpu completions`: what a shell needs to complete our command line, with the names that only
//! this machine knows: kernels and remotes.
//!
//! clap writes the scripts; it leaves every value to file names. So the places of `--kernel` and
//! `--remote`, and those of the arguments called `remote`, `run` and `what`, are changed in what it
//! wrote: the shell asks `rgpu __names`. Of a list as `--remote a,b` the last name is completed. Names that a shell could
//! take for more than a word are left out there, since bash expands the words it is offered, and
//! the kernels of a project are anybody's.

use clap::{Command, CommandFactory, ValueEnum};
use clap_complete::Shell;

use super::app::{App, Status};
use super::args::Cli;
use super::{kernels, session};
use crate::config::LOCAL;
use crate::error::{Exit, Failure, Result};
use crate::kernel::find;
use crate::store::Runs;

/// The newest run.
const LATEST: &str = "latest";

/// What has names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum NameKind {
    /// What `--kernel` takes.
    Kernels,
    /// What `--remote` takes.
    Remotes,
    /// What `runs show` takes.
    Runs,
}

/// Prints the script of a shell.
pub(super) fn run(app: &App, shell: Shell) -> Result<Status> {
    if app.global.json {
        let what = "completions are a shell's script, which has no form in JSON";
        return Err(Failure::new(Exit::Usage, "usage", what)
            .hint(format!("rgpu completions {shell} > FILE")));
    }
    app.print(&script(shell));
    Ok(0)
}

/// Prints names, one a line.
pub(super) fn names(app: &App, named: NameKind) -> Result<Status> {
    let mut names: Vec<String> = match named {
        NameKind::Kernels => {
            find::list(&kernels::places(app)).into_iter().map(|kernel| kernel.name).collect()
        }
        NameKind::Remotes => {
            let own = app.config.remotes.keys().cloned();
            own.chain([LOCAL.to_owned()]).chain(session::ssh_aliases()).collect()
        }
        NameKind::Runs => {
            let ids = Runs::new(&app.config.runs_dir.value).ids()?;
            ids.into_iter().chain([LATEST.to_owned()]).collect()
        }
    };
    names.retain(|name| is_plain(name));
    names.sort();
    names.dedup();
    names.iter().for_each(|name| app.print(&format!("{name}\n")));
    Ok(0)
}

/// Whether every shell takes the name as the word it is.
fn is_plain(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    !name.is_empty() && !name.starts_with('-') && name.bytes().all(plain)
}

/// An argument by its place that has names.
struct NamedArgument {
    /// The commands above it, `rgpu` left out.
    path: Vec<String>,
    /// What stands there.
    named: &'static str,
    /// Whether a file may stand there too.
    file: bool,
}

/// The names of such arguments, what they take, and whether they may be files.
const NAMED_ARGUMENTS: &[(&str, &str, bool)] =
    &[("remote", "remotes", false), ("run", "runs", false), ("what", "runs", true)];

/// Every argument by its place that has names, below this command.
fn places(command: &Command, path: &[String], found: &mut Vec<NamedArgument>) {
    // What `__names` itself takes is no run.
    let hidden = command.is_hide_set() || command.get_name() == "help";
    let first = command.get_positionals().next().map(|arg| arg.get_id().as_str());
    let known = NAMED_ARGUMENTS.iter().find(|(id, ..)| first == Some(*id) && !hidden);
    if let Some(&(_, named, file)) = known {
        found.push(NamedArgument { path: path.to_vec(), named, file });
    }
    for below in command.get_subcommands().filter(|_| !hidden) {
        places(below, &[path, &[below.get_name().to_owned()]].concat(), found);
    }
}

fn script(shell: Shell) -> String {
    let mut bytes = Vec::new();
    let mut command = Cli::command();
    clap_complete::generate(shell, &mut command, "rgpu", &mut bytes);
    let mut found = Vec::new();
    places(&command, &[], &mut found);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    match shell {
        Shell::Bash => bash(&text, &found),
        Shell::Zsh => zsh(&text),
        Shell::Fish => fish(&text, &found),
        _ => text,
    }
}

/// The arms of flags: the line after the flag's says what is offered. The arms of commands: what
/// is offered for an argument by its place stands behind that for the values of flags.
fn bash(text: &str, places: &[NamedArgument]) -> String {
    const FILES: &str = "COMPREPLY=($(compgen -f \"${cur}\"))";
    const FLAGS: &str = "COMPREPLY=( $(compgen -W \"${opts}\" -- \"${cur}\") )";
    const AT: &str = "if [[ ${cur} == -* || ${COMP_CWORD} -eq ";
    let asked = |named: &str| format!("$(\"$1\" __names {named} 2>/dev/null)");
    let offered = |named: &str, files: &str| {
        let names = asked(named);
        format!("COMPREPLY=($(compgen -W \"{names}\" {files}-- \"${{cur}}\"))")
    };
    // The names before the last comma stay as they are.
    let names = asked("remotes");
    let listed = format!(
        "COMPREPLY=($(compgen -P \"${{cur%\"${{cur##*,}}\"}}\" -W \"{names}\" -- \"${{cur##*,}}\"))"
    );
    let label = |place: &NamedArgument| format!("rgpu__subcmd__{})", place.path.join("__subcmd__"));
    let labels: Vec<(String, &NamedArgument)> = places.iter().map(|p| (label(p), p)).collect();
    let mut flag = "";
    let mut here: Option<&NamedArgument> = None;
    let mut behind = false;
    let line = |line: &str| {
        let word = line.trim();
        if let Some((_, place)) = labels.iter().find(|(label, _)| label == word) {
            (here, behind) = (Some(*place), false);
        } else if word.starts_with("rgpu__") && word.ends_with(')') {
            here = None;
        }
        behind |= word == "esac";
        let offer = match flag {
            "--kernel)" | "-K)" => Some(offered("kernels", "-f ")),
            "--remote)" | "-r)" => Some(listed.clone()),
            _ => None,
        };
        let changed = match (offer, here) {
            (Some(offer), _) if word == FILES => Some(line.replace(FILES, &offer)),
            (_, Some(_)) if word.starts_with(AT) => {
                let end = line.find(" || ").unwrap_or(line.len());
                Some(format!("{} ]] ; then", &line[..end]))
            }
            (_, Some(place)) if behind && word == FLAGS => {
                let offer = offered(place.named, if place.file { "-f " } else { "" });
                Some(line.replace(FLAGS, &offer))
            }
            _ => None,
        };
        flag = match word {
            "--kernel)" => "--kernel)",
            "-K)" => "-K)",
            "--remote)" => "--remote)",
            "-r)" => "-r)",
            _ => "",
        };
        changed.unwrap_or_else(|| line.to_owned()) + "\n"
    };
    text.lines().map(line).collect()
}

/// The value's name stands between what a flag does and what is offered; the name of an argument by
/// its place before what it is.
fn zsh(text: &str) -> String {
    const FUNCTIONS: &str = r#"_rgpu_kernels() {
    compadd -- ${(f)"$(rgpu __names kernels 2>/dev/null)"}
    _files
}

_rgpu_remotes() {
    compset -P '*,'
    compadd -- ${(f)"$(rgpu __names remotes 2>/dev/null)"}
}

_rgpu_runs() {
    compadd -- ${(f)"$(rgpu __names runs 2>/dev/null)"}
}

_rgpu_runs_files() {
    _rgpu_runs
    _files
}

"#;
    const FILES: &str = ":_default' \\";
    let line = |line: &str| {
        let begins = |id: &str| {
            ["'", "'*"].iter().any(|quote| {
                let rest = line.strip_prefix(quote).map(|rest| rest.trim_start_matches(':'));
                rest.is_some_and(|rest| rest.starts_with(&format!("{id} -- ")))
            })
        };
        let place = NAMED_ARGUMENTS.iter().find(|(id, ..)| begins(id));
        let changed = place.and_then(|(_, named, file)| {
            let files = if *file { "_files" } else { "" };
            Some(format!("{}:_rgpu_{named}{files}' \\", line.strip_suffix(FILES)?))
        });
        changed.unwrap_or_else(|| line.to_owned()) + "\n"
    };
    let text: String = text.lines().map(line).collect();
    let text = text
        .replace(":NAME|PATH:_default'", ":NAME|PATH:_rgpu_kernels'")
        .replace(":REMOTE:_default'", ":REMOTE:_rgpu_remotes'");
    // Before the file calls what it defined.
    let at = text.rfind("if [ \"$funcstack[1]\"").unwrap_or(text.len());
    format!("{}{FUNCTIONS}{}", &text[..at], &text[at..])
}

/// A line a flag, with `-r` at the end of those that take a value; and one more for each argument
/// by its place.
fn fish(text: &str, places: &[NamedArgument]) -> String {
    let remotes = "'(__fish_complete_list , \"rgpu __names remotes 2>/dev/null\")'";
    let line = |line: &str| match line {
        _ if !line.ends_with(" -r") => format!("{line}\n"),
        _ if line.contains(" -l kernel ") => {
            format!("{line} -a '(rgpu __names kernels 2>/dev/null)'\n")
        }
        _ if line.contains(" -l remote ") => format!("{line} -f -a {remotes}\n"),
        _ => format!("{line}\n"),
    };
    let place = |place: &NamedArgument| {
        let seen = match place.path.as_slice() {
            [command] => format!("__fish_rgpu_using_subcommand {command}"),
            [command, below @ ..] => format!(
                "__fish_rgpu_using_subcommand {command}; and __fish_seen_subcommand_from {}",
                below.join(" ")
            ),
            [] => return String::new(),
        };
        let files = if place.file { "" } else { "-f " };
        let named = place.named;
        format!("complete -c rgpu -n \"{seen}\" {files}-a '(rgpu __names {named} 2>/dev/null)'\n")
    };
    text.lines().map(line).chain(places.iter().map(place)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_asks_for_kernels_and_remotes_wherever_they_can_be_named() {
        let asks = |shell, named: &str| script(shell).matches(named).count();
        // As many as there are flags `--kernel` and `--remote`, twice where short ones stand apart,
        // and as there are arguments by their place: `remote check`, `doctor`, `runs show` …
        assert_eq!(asks(Shell::Bash, "__names kernels"), 2 * 3);
        assert_eq!(asks(Shell::Zsh, ":_rgpu_kernels'"), 2 * 3);
        assert_eq!(asks(Shell::Fish, "__names kernels"), 3);
        let flags = asks(Shell::Fish, "__fish_complete_list ,");
        let remotes = asks(Shell::Fish, "'(rgpu __names remotes");
        assert!(flags >= 6 && remotes == 6, "{flags} {remotes}");
        assert_eq!(asks(Shell::Bash, "__names remotes"), 2 * flags + remotes);
        assert_eq!(asks(Shell::Zsh, ":_rgpu_remotes'"), 2 * flags + remotes);
        let runs = asks(Shell::Fish, "__names runs");
        assert_eq!(runs, 8);
        assert_eq!(asks(Shell::Bash, "__names runs"), runs);
        assert_eq!(asks(Shell::Zsh, ":_rgpu_runs'") + asks(Shell::Zsh, ":_rgpu_runs_files'"), runs);
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            assert!(!script(shell).contains("__names'"), "it offers what is for shells alone");
        }
    }

    #[test]
    fn names_that_a_shell_takes_for_more_than_a_word_are_left_out() {
        assert!(is_plain("tiled-matmul") && is_plain("b200.x_1"));
        for name in ["$(id)", "a b", "`id`", "-x", "", "a;b", "*"] {
            assert!(!is_plain(name), "{name}");
        }
    }
}
