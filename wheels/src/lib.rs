//! Wheels that are fetched when the user agrees: the list with pinned hashes, and the command of
//! pip or uv. Shared by `rgpu setup` and by the set-up of this workspace.
//!
//! pip or uv does the rest: the index, its mirrors, certificates and proxies are the user's own
//! settings.

use std::path::Path;
use std::process::Command;

/// The wheels that compile and disassemble kernels without a CUDA toolkit, as a requirements file.
/// Each wheel has its hashes for x86_64 and aarch64.
pub static CUDA: &str = include_str!("cuda.txt");

/// Flags of pip and uv; the list follows.
const EXACT_WHEELS: [&str; 4] = ["--no-deps", "--only-binary=:all:", "--require-hashes", "-r"];

/// One wheel of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// The version that the list pins.
    pub version: String,
    /// A requirements file with only this wheel.
    pub text: String,
}

/// The wheel `package` of a requirements file such as [`CUDA`]; `None` if it is not listed.
pub fn requirement(list: &str, package: &str) -> Option<Requirement> {
    let mut lines = list
        .lines()
        .skip_while(|line| line.split_once("==").is_none_or(|(name, _)| name.trim() != package));
    let first = lines.next()?;
    let (_, rest) = first.split_once("==")?;
    let version = rest.split([' ', '\\']).next().unwrap_or_default().to_owned();
    let hashes = lines.take_while(|line| line.trim_start().starts_with("--hash"));
    let text = std::iter::once(first).chain(hashes).collect::<Vec<_>>().join("\n");
    Some(Requirement { version, text: format!("{}\n", text.trim_end_matches([' ', '\\'])) })
}

/// A Python's pip. Python imports modules from its current folder first, which may be a cloned
/// project with a `pip.py`, so it runs in the root folder. All paths must be absolute.
pub fn pip(python: &Path) -> Command {
    let mut pip = Command::new(python);
    pip.args(["-m", "pip"]).current_dir("/").env("PYTHONSAFEPATH", "1");
    pip
}

/// The command that installs a requirements file with a Python's pip: only wheels, exactly these by
/// their hashes, and no dependencies.
pub fn install(python: &Path, list: &Path) -> Command {
    let mut pip = pip(python);
    pip.args(["install", "--disable-pip-version-check"]).args(EXACT_WHEELS).arg(list);
    pip
}

/// The same with uv, which reads a project's settings from the current folder. The caller says
/// where to: `--target`, or `--python` of an environment.
pub fn install_with_uv(uv: &Path, list: &Path) -> Command {
    let mut command = Command::new(uv);
    command.args(["pip", "install"]).args(EXACT_WHEELS).arg(list).current_dir("/");
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wheel_is_pinned_by_two_hashes_and_no_index_is_named() {
        let wheels: String = CUDA.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(wheels.matches("--hash=sha256:").count(), 2 * wheels.matches("==").count());
        assert!(!wheels.contains("://"), "an index belongs to the user's pip configuration");
    }

    #[test]
    fn one_wheel_of_a_list_keeps_its_hashes() {
        let list = "# why\na==1.0 \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\nb==2.0 \\\n    --hash=sha256:cc\n";
        let a = requirement(list, "a").map(|r| (r.version, r.text));
        let text = "a==1.0 \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\n";
        assert_eq!(a, Some(("1.0".to_owned(), text.to_owned())));
        assert_eq!(requirement(list, "b").map(|r| r.version), Some("2.0".to_owned()));
        assert_eq!(requirement(list, "c"), None);
    }
}
