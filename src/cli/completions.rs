//! `rgpu completions`: a script that lets a shell ask rgpu itself what can be typed next.
//!
//! The script starts rgpu with [`VARIABLE`] set, and clap's completion answers with flags, values
//! and files. This module adds names that only this machine knows: kernels, remotes, runs and
//! suites. Of a list such as `--remote a,b` the last name is completed. Names and files that are
//! not a plain word in every shell are left out: bash puts them on the command line as they are, and
//! anybody can write a project's kernels and files. Where nothing is left, bash completes files
//! itself, and quotes them.

use std::ffi::{OsStr, OsString};

use clap::{Arg, Command, CommandFactory};
use clap_complete::Shell;
use clap_complete::engine::{
    ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use clap_complete::env::{CompleteEnv, Shells};

use super::args::Cli;
use super::support::app::{App, Status};
use super::support::kernel_folders::kernel_folders;
use super::support::session;
use super::{dispatch, help};
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_plan::kernel::find;
use rgpu_run::config::LOCAL;

/// The variable with which the script asks for completions; its value is the name of the shell.
const VARIABLE: &str = "RGPU_COMPLETE";

/// The name of the newest run.
const LATEST: &str = "latest";

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
    let mut script = Vec::new();
    if let Some(adapter) = Shells::builtins().completer(&shell.to_string()) {
        adapter.write_registration(VARIABLE, "rgpu", "rgpu", "rgpu", &mut script).map_err(|e| {
            Failure::new(Exit::Bug, "bug", "the completion script cannot be written").cause(e)
        })?;
    }
    // Where rgpu completes nothing, bash shall complete files.
    let script =
        String::from_utf8_lossy(&script).replace("-o bashdefault", "-o bashdefault -o default");
    app.print(&script);
    Ok(0)
}

/// Whether a shell asked for completions; then they were printed.
pub(super) fn answer_shell(argv: &[OsString]) -> Result<bool> {
    let cwd = std::env::current_dir().ok();
    CompleteEnv::with_factory(completed_command)
        .var(VARIABLE)
        .try_complete(argv, cwd.as_deref())
        .map_err(|e| Failure::new(Exit::Usage, "usage", "nothing can be completed").cause(e))
}

/// The command line with completers for all values.
fn completed_command() -> Command {
    let mut command = Cli::command();
    // Flags of a command are made when it is built.
    command.build();
    let pages = help::page_names().map(|page| Command::new(page).about("A document"));
    add_completers(command.mut_subcommand("help", |help| help.subcommands(pages)))
}

fn add_completers(command: Command) -> Command {
    let name = command.get_name().to_owned();
    command.mut_args(|arg| add_completer(&name, arg)).mut_subcommands(add_completers)
}

/// Completes names where the argument takes some, and files anywhere else.
fn add_completer(command: &str, arg: Arg) -> Arg {
    use NameKind::{Kernels, Remotes, Runs, Suites};
    let takes_values = arg.get_num_args().is_some_and(|values| values.takes_values());
    if !takes_values || !arg.get_possible_values().is_empty() {
        return arg;
    }
    let (kind, with_files) = match (arg.get_long(), arg.get_id().as_str(), command) {
        (Some("kernel"), ..) | (None, "target", "profile") | (None, "file", "build") => {
            (Some(Kernels), true)
        }
        (Some("remote"), ..) | (None, "remote", _) => (Some(Remotes), false),
        (Some("failed"), ..) => (Some(Suites), false),
        (None, "run", _) => (Some(Runs), false),
        (None, "what", _) => (Some(Runs), true),
        _ => (None, true),
    };
    arg.add(ArgValueCompleter::new(NameCompleter { kind, with_files }))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum NameKind {
    Kernels,
    Remotes,
    Runs,
    Suites,
}

/// Completes the names of one kind, and files if the argument may be one.
struct NameCompleter {
    kind: Option<NameKind>,
    with_files: bool,
}

impl ValueCompleter for NameCompleter {
    fn complete(&self, typed: &OsStr) -> Vec<CompletionCandidate> {
        let text = typed.to_string_lossy();
        let is_list = self.kind == Some(NameKind::Remotes);
        let last = if is_list { text.rfind(',').map_or(0, |comma| comma + 1) } else { 0 };
        let (kept, begun) = text.split_at(last);
        // Without settings that can be read there are no names.
        let mut names = self.kind.map(names).and_then(Result::ok).unwrap_or_default();
        names.retain(|name| name.starts_with(begun) && is_plain(name));
        names.sort();
        names.dedup();
        let mut candidates: Vec<CompletionCandidate> =
            names.iter().map(|name| CompletionCandidate::new(format!("{kept}{name}"))).collect();
        if self.with_files {
            let files = PathCompleter::any().complete(typed);
            candidates.extend(
                files.into_iter().filter(|file| file.get_value().to_str().is_some_and(is_plain)),
            );
        }
        candidates
    }
}

fn names(kind: NameKind) -> Result<Vec<String>> {
    let app = dispatch::app_for_names()?;
    Ok(match kind {
        NameKind::Kernels => {
            find::list(&kernel_folders(&app)).into_iter().map(|kernel| kernel.name).collect()
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
    })
}

/// Whether every shell takes the name or path as one plain word, and rgpu as no flag.
fn is_plain(name: &str) -> bool {
    let plain = |c: char| c.is_alphanumeric() || "._-/+,:@=".contains(c);
    !name.is_empty() && !name.starts_with(['-', '=']) && name.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_a_shell_takes_for_more_than_a_word_are_left_out() {
        for name in ["tiled-matmul", "b200.x_1", "../naïve/a+b.cu"] {
            assert!(is_plain(name), "{name}");
        }
        for name in ["$(id)", "a b", "`id`", "-x", "", "a;b", "*", "~x", "=x", "a\nb", "a\u{202e}b"]
        {
            assert!(!is_plain(name), "{name}");
        }
    }

    #[test]
    fn every_shell_asks_rgpu() {
        for shell in <Shell as clap::ValueEnum>::value_variants() {
            assert!(Shells::builtins().completer(&shell.to_string()).is_some(), "{shell}");
        }
    }
}
