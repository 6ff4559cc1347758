//! `rgpu completions`: completion scripts for shells, including names that only this machine knows:
//! kernels and remotes.
//!
//! Clap writes the scripts and completes every value with file names. This module changes the
//! values of `--kernel`, `--remote` and `--failed SUITE`, and the arguments called `remote`, `run`
//! and `what`, so that the shell asks `rgpu __names`. Of a list such as `--remote a,b` the last name is completed.
//! Names that are not a plain word in every shell are left out, because bash expands the words it
//! is offered and anybody can write a project's kernels.
//!
//! Clap's own dynamic completion (`clap_complete::env`) would replace this, but it is not stable yet
//! (`unstable-dynamic`), and in bash it completes no file names after `--`, as in `rgpu exec -- ls`.

use clap::{Command, CommandFactory, ValueEnum};
use clap_complete::Shell;

use super::args::Cli;
use super::help;
use super::support::app::{App, Status};
use super::support::kernel_folders::kernel_folders;
use super::support::session;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_plan::kernel::find;
use rgpu_run::config::LOCAL;

/// The name of the newest run.
const LATEST: &str = "latest";

/// The kinds of names that are completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum NameKind {
    /// Names for `--kernel`.
    Kernels,
    /// Names for `--remote`.
    Remotes,
    /// Arguments of `runs show`.
    Runs,
    /// Names for `bench run --failed`.
    Suites,
}

/// Prints the script for a shell.
pub(super) fn run(app: &App, shell: Option<Shell>) -> Result<Status> {
    let shell = shell.or_else(Shell::from_env).ok_or_else(|| {
        Failure::new(Exit::Usage, "usage", "which shell? `$SHELL` names none that is known")
            .hint("rgpu completions bash > FILE; also zsh, fish, elvish")
    })?;
    if app.global.json {
        let what = "completions are a shell script, which has no JSON form";
        return Err(Failure::new(Exit::Usage, "usage", what)
            .hint(format!("rgpu completions {shell} > FILE")));
    }
    app.print(&script(shell));
    Ok(0)
}

/// Prints names, one per line.
pub(super) fn names(app: &App, kind: NameKind) -> Result<Status> {
    let mut names: Vec<String> = match kind {
        NameKind::Kernels => {
            find::list(&kernel_folders(app)).into_iter().map(|kernel| kernel.name).collect()
        }
        NameKind::Remotes => {
            let own = app.config.remotes.keys().cloned();
            own.chain([LOCAL.to_owned()]).chain(session::ssh_aliases()).collect()
        }
        NameKind::Runs => {
            let ids = app.runs().ids()?;
            ids.into_iter().chain([LATEST.to_owned()]).collect()
        }
        NameKind::Suites => {
            let ids = app.runs().suite_ids()?;
            ids.into_iter().chain([LATEST.to_owned()]).collect()
        }
    };
    names.retain(|name| is_plain(name));
    names.sort();
    names.dedup();
    names.iter().for_each(|name| app.print(&format!("{name}\n")));
    Ok(0)
}

/// Whether every shell takes the name as one plain word.
fn is_plain(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    !name.is_empty() && !name.starts_with('-') && name.bytes().all(plain)
}

/// A positional argument that is completed with names.
struct NamedArgument {
    /// The commands above it, without `rgpu`.
    path: Vec<String>,
    /// The kind of names.
    kind: &'static str,
    /// Whether a file may be given too.
    file: bool,
}

/// The ids of such arguments, the command if only its argument is meant, the kind of their names, and
/// whether they may be files.
const NAMED_ARGUMENTS: &[(&str, Option<&str>, &str, bool)] = &[
    ("remote", None, "remotes", false),
    ("run", None, "runs", false),
    ("what", None, "runs", true),
    ("target", Some("profile"), "kernels", true),
    ("file", Some("build"), "kernels", true),
];

/// Collects every such positional argument below this command.
fn collect_named_arguments(command: &Command, path: &[String], found: &mut Vec<NamedArgument>) {
    // The argument of `__names` itself is not a run.
    let hidden = command.is_hide_set() || command.get_name() == "help";
    let first = command.get_positionals().next().map(|arg| arg.get_id().as_str());
    let is_meant = |only: &Option<&str>| only.is_none_or(|command| *path == [command]);
    let known = NAMED_ARGUMENTS
        .iter()
        .find(|(id, only, ..)| first == Some(*id) && is_meant(only) && !hidden);
    if let Some(&(_, _, kind, file)) = known {
        found.push(NamedArgument { path: path.to_vec(), kind, file });
    }
    for below in command.get_subcommands().filter(|_| !hidden) {
        collect_named_arguments(below, &[path, &[below.get_name().to_owned()]].concat(), found);
    }
}

fn script(shell: Shell) -> String {
    let mut bytes = Vec::new();
    let mut command = Cli::command();
    clap_complete::generate(shell, &mut command, "rgpu", &mut bytes);
    let mut found = Vec::new();
    collect_named_arguments(&command, &[], &mut found);
    let text = with_help_pages(&String::from_utf8_lossy(&bytes), shell);
    match shell {
        Shell::Bash => bash(&text, &found),
        Shell::Zsh => zsh(&text),
        Shell::Fish => fish(&text, &found),
        _ => text,
    }
}

/// Adds the documents that `rgpu help PAGE` prints to the commands that `rgpu help` completes.
fn with_help_pages(text: &str, shell: Shell) -> String {
    let pages: Vec<&str> = help::page_names().collect();
    let begin = match shell {
        Shell::Bash => "        rgpu__subcmd__help)\n            opts=\"",
        Shell::Zsh => "\n_rgpu__subcmd__help_commands() {\n    local commands; commands=(\n",
        Shell::Fish => {
            let seen = "__fish_rgpu_using_subcommand help";
            let line = format!("complete -c rgpu -n \"{seen}\" -f -a \"{}\"\n", pages.join(" "));
            return format!("{text}{line}");
        }
        _ => return text.to_owned(),
    };
    let added = match shell {
        Shell::Bash => pages.join(" ") + " ",
        _ => pages.iter().map(|page| format!("'{page}:A document' \\\n")).collect(),
    };
    text.replacen(begin, &format!("{begin}{added}"), 1)
}

/// Changes a bash script. In an arm for a flag, the line after the flag's lists the candidates. In
/// an arm for a command, the candidates of a positional argument follow those of flag values.
fn bash(text: &str, arguments: &[NamedArgument]) -> String {
    const FILES: &str = "COMPREPLY=($(compgen -f \"${cur}\"))";
    const FLAGS: &str = "COMPREPLY=( $(compgen -W \"${opts}\" -- \"${cur}\") )";
    const AT: &str = "if [[ ${cur} == -* || ${COMP_CWORD} -eq ";
    let names_command = |kind: &str| format!("$(\"$1\" __names {kind} 2>/dev/null)");
    let completion_reply = |kind: &str, files: &str| {
        let names = names_command(kind);
        format!("COMPREPLY=($(compgen -W \"{names}\" {files}-- \"${{cur}}\"))")
    };
    // The names before the last comma stay unchanged.
    let names = names_command("remotes");
    let listed = format!(
        "COMPREPLY=($(compgen -P \"${{cur%\"${{cur##*,}}\"}}\" -W \"{names}\" -- \"${{cur##*,}}\"))"
    );
    let label = |place: &NamedArgument| format!("rgpu__subcmd__{})", place.path.join("__subcmd__"));
    let labels: Vec<(String, &NamedArgument)> = arguments.iter().map(|p| (label(p), p)).collect();
    let mut flag = "";
    let mut current: Option<&NamedArgument> = None;
    let mut after_flags = false;
    let line = |line: &str| {
        let word = line.trim();
        if let Some((_, place)) = labels.iter().find(|(label, _)| label == word) {
            (current, after_flags) = (Some(*place), false);
        } else if word.starts_with("rgpu__") && word.ends_with(')') {
            current = None;
        }
        after_flags |= word == "esac";
        let offer = match flag {
            "--kernel)" | "-K)" => Some(completion_reply("kernels", "-f ")),
            "--remote)" | "-r)" => Some(listed.clone()),
            "--failed)" => Some(completion_reply("suites", "")),
            _ => None,
        };
        let changed = match (offer, current) {
            (Some(offer), _) if word == FILES => Some(line.replace(FILES, &offer)),
            (_, Some(_)) if word.starts_with(AT) => {
                let end = line.find(" || ").unwrap_or(line.len());
                Some(format!("{} ]] ; then", &line[..end]))
            }
            (_, Some(place)) if after_flags && word == FLAGS => {
                let offer = completion_reply(place.kind, if place.file { "-f " } else { "" });
                Some(line.replace(FLAGS, &offer))
            }
            _ => None,
        };
        flag = match word {
            "--kernel)" => "--kernel)",
            "-K)" => "-K)",
            "--remote)" => "--remote)",
            "-r)" => "-r)",
            "--failed)" => "--failed)",
            _ => "",
        };
        changed.unwrap_or_else(|| line.to_owned()) + "\n"
    };
    text.lines().map(line).collect()
}

/// Changes a zsh script. The value's name is between a flag's description and its candidates; a
/// positional argument's name comes before its description.
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

_rgpu_suites() {
    compadd -- ${(f)"$(rgpu __names suites 2>/dev/null)"}
}

_rgpu_runs_files() {
    _rgpu_runs
    _files
}

"#;
    let mut command = "";
    let mut changed = String::new();
    for line in text.lines() {
        // An arm of a `case` has the lines of one command.
        if let Some(name) =
            line.trim_start().strip_prefix('(').and_then(|rest| rest.strip_suffix(')'))
        {
            command = name;
        }
        let begins = |id: &str| {
            ["'", "'*"].iter().any(|quote| {
                let rest = line.strip_prefix(quote).map(|rest| rest.trim_start_matches(':'));
                rest.is_some_and(|rest| rest.starts_with(&format!("{id} -- ")))
            })
        };
        let place = NAMED_ARGUMENTS
            .iter()
            .find(|(id, only, ..)| begins(id) && only.is_none_or(|only| only == command));
        let offer = place.and_then(|(_, _, kind, file)| {
            // Kernels may always be files.
            let files = if *file && *kind != "kernels" { "_files" } else { "" };
            let ends = [":_default' \\", ":_files' \\"];
            let line = ends.iter().find_map(|end| line.strip_suffix(end))?;
            Some(format!("{line}:_rgpu_{kind}{files}' \\"))
        });
        changed += &offer.unwrap_or_else(|| line.to_owned());
        changed.push('\n');
    }
    let text = changed;
    let text = text
        .replace(":NAME|PATH:_default'", ":NAME|PATH:_rgpu_kernels'")
        .replace(":REMOTE:_default'", ":REMOTE:_rgpu_remotes'")
        .replace(":SUITE:_default'", ":SUITE:_rgpu_suites'");
    // Before the file calls the functions it defines.
    let at = text.rfind("if [ \"$funcstack[1]\"").unwrap_or(text.len());
    format!("{}{FUNCTIONS}{}", &text[..at], &text[at..])
}

/// Changes a fish script: one line per flag, ending in `-r` if the flag takes a value, and one more
/// line per positional argument.
fn fish(text: &str, arguments: &[NamedArgument]) -> String {
    let remotes = "'(__fish_complete_list , \"rgpu __names remotes 2>/dev/null\")'";
    let line = |line: &str| match line {
        _ if !line.ends_with(" -r") => format!("{line}\n"),
        _ if line.contains(" -l kernel ") => {
            format!("{line} -a '(rgpu __names kernels 2>/dev/null)'\n")
        }
        _ if line.contains(" -l failed ") => {
            format!("{line} -f -a '(rgpu __names suites 2>/dev/null)'\n")
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
        let kind = place.kind;
        format!("complete -c rgpu -n \"{seen}\" {files}-a '(rgpu __names {kind} 2>/dev/null)'\n")
    };
    text.lines().map(line).chain(arguments.iter().map(place)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_asks_for_kernels_and_remotes_wherever_they_can_be_named() {
        let asks = |shell, kind: &str| script(shell).matches(kind).count();
        // One for each flag `--kernel` and `--remote`, twice where the short form is separate, and
        // one for each positional argument: `profile vecadd`, `build vecadd`, `remote check` …
        assert_eq!(asks(Shell::Bash, "__names kernels"), 2 * 3 + 2);
        assert_eq!(asks(Shell::Zsh, ":_rgpu_kernels'"), 2 * 3 + 2);
        assert_eq!(asks(Shell::Fish, "__names kernels"), 3 + 2);
        let flags = asks(Shell::Fish, "__fish_complete_list ,");
        let remotes = asks(Shell::Fish, "'(rgpu __names remotes");
        assert!(flags >= 6 && remotes == 6, "{flags} {remotes}");
        assert_eq!(asks(Shell::Bash, "__names remotes"), 2 * flags + remotes);
        assert_eq!(asks(Shell::Zsh, ":_rgpu_remotes'"), 2 * flags + remotes);
        let runs = asks(Shell::Fish, "__names runs");
        assert_eq!(runs, 10);
        assert_eq!(asks(Shell::Bash, "__names runs"), runs);
        assert_eq!(asks(Shell::Zsh, ":_rgpu_runs'") + asks(Shell::Zsh, ":_rgpu_runs_files'"), runs);
        // `bench run --failed SUITE` alone: `--failed` of `runs list` takes no value.
        assert_eq!(asks(Shell::Bash, "__names suites"), 1);
        assert_eq!(asks(Shell::Zsh, ":_rgpu_suites'"), 1);
        assert_eq!(asks(Shell::Fish, "__names suites"), 1);
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            assert!(!script(shell).contains("__names'"), "it offers what is for shells alone");
            assert!(script(shell).contains("reading-a-profile"), "`rgpu help` offers no documents");
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
