//! The text of `rgpu --version`: with the commit if this is an optimised build of a clone. A debug
//! build has none, because each commit would compile everything again. It is also linked to start
//! faster.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let version = variable("CARGO_PKG_VERSION");
    let commit = if variable("PROFILE") == "release" { commit() } else { None };
    let version = commit.map_or(version.clone(), |commit| format!("{version} ({commit})"));
    println!("cargo::rustc-env=RGPU_VERSION={version}");
    // Without optimisation a start relocates 360,000 addresses, which takes 5 ms of a short
    // command's 8 ms. The tests start thousands of these programs.
    let target = ["OS", "ENV"].map(|key| variable(&format!("CARGO_CFG_TARGET_{key}")));
    if variable("PROFILE") == "debug" && target == ["linux", "gnu"] {
        println!("cargo::rustc-link-arg=-no-pie");
    }
}

/// The commit of this folder's clone. A published crate has none, even inside another clone.
fn commit() -> Option<String> {
    let root = std::env::var("CARGO_MANIFEST_DIR").ok()?;
    let top = git(&["rev-parse", "--show-toplevel"])?;
    if Path::new(&top).canonicalize().ok()? != Path::new(&root).canonicalize().ok()? {
        return None;
    }
    // It changes with every commit and checkout. Cargo runs this each time if it is missing.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    println!("cargo::rerun-if-changed={log}");
    git(&["show", "--no-patch", "--format=%h %cs", "HEAD"])
}

fn git(words: &[&str]) -> Option<String> {
    let output = Command::new("git").args(words).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
