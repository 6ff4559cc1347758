//! Checks the system packages that the build and the tests need. As root on Debian and Ubuntu they
//! are installed, after asking or with `--yes`; elsewhere the command to type is printed.

use crate::command::{self, CommandError};
use std::io::{IsTerminal, stdin};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

/// A missing package that we cannot install.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PackageError {
    /// Only the user can install it.
    #[error(
        "missing: {what}\n  help: run `{command}`, then this again; as root on Debian and Ubuntu `--yes` installs it"
    )]
    Missing { what: String, command: String },
    /// apt-get ended with an error.
    #[error("system packages could not be installed")]
    Install(#[source] CommandError),
}

/// A program or library that must be on the machine.
struct Need {
    what: &'static str,
    debian: &'static str,
    is_there: fn() -> bool,
}

/// Packages required to build.
const BUILD: &[Need] = &[
    Need { what: "a C compiler", debian: "build-essential", is_there: has_compiler },
    Need { what: "libclang (nvtx's bindings)", debian: "libclang-dev", is_there: has_libclang },
];

/// Required to run the tests.
const TEST: &[Need] = &[
    Need { what: "an OpenSSH server", debian: "openssh-server", is_there: has_sshd },
    Need { what: "an OpenSSH client", debian: "openssh-client", is_there: has_ssh },
    Need { what: "Chromium, to open pages in", debian: "chromium", is_there: has_browser },
];

/// Required to install NVIDIA's compiler from wheels.
const WHEELS: &[Need] = &[Need {
    what: "Python with venv, or uv",
    debian: "python3-venv",
    is_there: makes_environments,
}];

/// Whether `--yes` was given: packages are then installed without asking.
static CONSENT: AtomicBool = AtomicBool::new(false);

/// Records that the user gave `--yes`.
pub(crate) fn give_consent() {
    CONSENT.store(true, Ordering::Relaxed);
}

/// Ensures that this workspace can be built.
pub(crate) fn for_build() -> Result<(), PackageError> {
    provide(BUILD)
}

/// Ensures that the tests can run.
pub(crate) fn for_tests() -> Result<(), PackageError> {
    provide(TEST)
}

/// Ensures that wheels can be installed.
pub(crate) fn for_wheels() -> Result<(), PackageError> {
    provide(WHEELS)
}

fn provide(needs: &[Need]) -> Result<(), PackageError> {
    let missing: Vec<&Need> = needs.iter().filter(|need| !(need.is_there)()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let packages: Vec<&str> = missing.iter().map(|need| need.debian).collect();
    let can_install = is_root() && command::answers("apt-get", "--version");
    if can_install && consents(&packages) {
        eprintln!("installing {}", packages.join(" "));
        let apt = |arguments: &[&str]| {
            let mut apt = Command::new("apt-get");
            apt.env("DEBIAN_FRONTEND", "noninteractive");
            apt.args(["-qq", "-o=Dpkg::Use-Pty=0"]).args(arguments);
            command::run(&mut apt).map_err(PackageError::Install)
        };
        apt(&["update"])?;
        apt(&[&["install", "-y", "--no-install-recommends"], &packages[..]].concat())?;
    }
    let missing: Vec<&str> =
        missing.iter().filter(|need| !(need.is_there)()).map(|need| need.what).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(PackageError::Missing {
        what: missing.join(", "),
        command: command_to_type(&packages, can_install),
    })
}

/// What installs the packages.
fn command_to_type(packages: &[&str], is_root: bool) -> String {
    let sudo = if is_root { "" } else { "sudo " };
    format!("{sudo}apt-get install {}", packages.join(" "))
}

/// Whether the user lets us install packages: by `--yes`, or as the answer at the terminal.
fn consents(packages: &[&str]) -> bool {
    if CONSENT.load(Ordering::Relaxed) {
        return true;
    }
    if !stdin().is_terminal() {
        return false;
    }
    eprint!("{}\nInstall these packages? [y/N] ", command_to_type(packages, true));
    let mut answer = String::new();
    stdin().read_line(&mut answer).is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
}

fn is_root() -> bool {
    command::output(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0")
}

fn has_compiler() -> bool {
    command::answers("cc", "--version")
}

/// Checks the places where bindgen looks: its own variable, the linker's list, LLVM's folders.
fn has_libclang() -> bool {
    let listed = || {
        ["ldconfig", "/sbin/ldconfig"].into_iter().any(|ldconfig| {
            command::output(Command::new(ldconfig).arg("-p"))
                .is_ok_and(|list| lists_libclang(&list))
        })
    };
    let in_llvm = || {
        let folders = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten();
        let llvm = folders.filter(|entry| entry.file_name().to_string_lossy().starts_with("llvm-"));
        llvm.into_iter().any(|entry| entry.path().join("lib/libclang.so").exists())
    };
    std::env::var_os("LIBCLANG_PATH").is_some() || listed() || in_llvm()
}

/// Whether the linker's list has it under a name that bindgen accepts. `libclang-cpp`, which comes
/// with LLVM's own tools, is another library.
fn lists_libclang(list: &str) -> bool {
    list.split_whitespace().any(|word| {
        ["libclang.so", "libclang-"].iter().any(|name| word.starts_with(name))
            && !word.starts_with("libclang-cpp")
    })
}

fn has_sshd() -> bool {
    Path::new("/usr/sbin/sshd").exists()
}

/// Looks for the names that `tests/it/browser.rs` accepts.
fn has_browser() -> bool {
    let names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
    std::env::var_os("RGPU_TEST_BROWSER").is_some()
        || names.iter().any(|name| command::answers(name, "--version"))
}

fn has_ssh() -> bool {
    command::answers("ssh", "-V")
}

fn makes_environments() -> bool {
    has_venv() || command::answers("uv", "--version")
}

/// Without its package `venv` is present but cannot create an environment.
pub(crate) fn has_venv() -> bool {
    let mut python = Command::new("python3");
    python.args(["-c", "import venv, ensurepip"]);
    python.output().is_ok_and(|output| output.status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_of_llvms_tools_is_not_taken_for_libclang() {
        let tools = "\tlibclang-cpp.so.14 (libc6,x86-64) => /lib/libclang-cpp.so.14\n";
        assert!(!lists_libclang(tools));
        for name in ["libclang-14.so.1", "libclang.so.1", "libclang-14.so.14.0.6"] {
            assert!(lists_libclang(&format!("{tools}\t{name} (libc6,x86-64) => /lib/{name}\n")));
        }
    }
}
