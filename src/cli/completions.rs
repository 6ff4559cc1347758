//! `rgpu completions`: what a shell needs to complete our command line, with the names that only
//! this machine knows: kernels and remotes.
//!
//! clap writes the scripts; it leaves every value to file names. So the places of `--kernel` and
//! `--remote` are changed in what it wrote: the shell asks `rgpu __names`. Names that a shell could
//! take for more than a word are left out there, since bash expands the words it is offered, and
//! the kernels of a project are anybody's.

use clap::{CommandFactory, ValueEnum};
use clap_complete::Shell;

use super::app::{App, Status};
use super::args::Cli;
use super::{kernels, session};
use crate::config::LOCAL;
use crate::error::Result;
use crate::kernel::find;

/// What has names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Named {
    /// What `--kernel` takes.
    Kernels,
    /// What `--remote` takes.
    Remotes,
}

/// Prints the script of a shell.
pub(super) fn run(app: &App, shell: Shell) -> Status {
    app.print(&script(shell));
    0
}

/// Prints names, one a line.
pub(super) fn names(app: &App, named: Named) -> Result<Status> {
    let mut names: Vec<String> = match named {
        Named::Kernels => {
            find::list(&kernels::places(app)).into_iter().map(|kernel| kernel.name).collect()
        }
        Named::Remotes => {
            let own = app.config.remotes.keys().cloned();
            own.chain([LOCAL.to_owned()]).chain(session::ssh_aliases()).collect()
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

fn script(shell: Shell) -> String {
    let mut bytes = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "rgpu", &mut bytes);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    match shell {
        Shell::Bash => bash(&text),
        Shell::Zsh => zsh(&text),
        Shell::Fish => fish(&text),
        _ => text,
    }
}

/// The arms of flags: the line after the flag's says what is offered.
fn bash(text: &str) -> String {
    const FILES: &str = "COMPREPLY=($(compgen -f \"${cur}\"))";
    let mut flag = "";
    let line = |line: &str| {
        let word = line.trim();
        let offered = match flag {
            "--kernel)" | "-K)" => Some(("kernels", "-f ")),
            "--remote)" | "-r)" => Some(("remotes", "")),
            _ => None,
        };
        let changed = offered.filter(|_| word == FILES).map(|(named, files)| {
            let names =
                format!("-W \"$(\"$1\" __names {named} 2>/dev/null)\" {files}-- \"${{cur}}\"");
            line.replace(FILES, &format!("COMPREPLY=($(compgen {names}))"))
        });
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

/// The value's name stands between what a flag does and what is offered.
fn zsh(text: &str) -> String {
    const FUNCTIONS: &str = r#"_rgpu_kernels() {
    compadd -- ${(f)"$(rgpu __names kernels 2>/dev/null)"}
    _files
}

_rgpu_remotes() {
    compadd -- ${(f)"$(rgpu __names remotes 2>/dev/null)"}
}

"#;
    let text = text
        .replace(":NAME|PATH:_default'", ":NAME|PATH:_rgpu_kernels'")
        .replace(":REMOTE:_default'", ":REMOTE:_rgpu_remotes'");
    // Before the file calls what it defined.
    let at = text.rfind("if [ \"$funcstack[1]\"").unwrap_or(text.len());
    format!("{}{FUNCTIONS}{}", &text[..at], &text[at..])
}

/// A line a flag, with `-r` at the end of those that take a value.
fn fish(text: &str) -> String {
    let line = |line: &str| {
        let more = match line {
            _ if !line.ends_with(" -r") => "",
            _ if line.contains(" -l kernel ") => " -a '(rgpu __names kernels 2>/dev/null)'",
            _ if line.contains(" -l remote ") => " -f -a '(rgpu __names remotes 2>/dev/null)'",
            _ => "",
        };
        format!("{line}{more}\n")
    };
    text.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_asks_for_kernels_and_remotes_wherever_they_can_be_named() {
        let asks = |shell, named: &str| script(shell).matches(named).count();
        // As many as there are flags `--kernel` and `--remote`, twice where short ones stand apart.
        assert_eq!(asks(Shell::Bash, "__names kernels"), 2 * 3);
        assert_eq!(asks(Shell::Zsh, ":_rgpu_kernels'"), 2 * 3);
        assert_eq!(asks(Shell::Fish, "__names kernels"), 3);
        let remotes = asks(Shell::Fish, "__names remotes");
        assert!(remotes >= 6, "{remotes}");
        assert_eq!(asks(Shell::Bash, "__names remotes"), 2 * remotes);
        assert_eq!(asks(Shell::Zsh, ":_rgpu_remotes'"), 2 * remotes);
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
