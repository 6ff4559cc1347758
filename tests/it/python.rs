//! The Python package (`python/`): its own tests against the built program.

mod published;

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fake_host::FakeHost;
use crate::laptop::Laptop;

/// A path of the repository's folder `python`.
fn folder(inner: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("python").join(inner)
}

/// A Python in the laptop's project, as its user, that imports the package from the repository.
pub(crate) fn python(laptop: &Laptop, program: impl AsRef<Path>) -> Command {
    let rgpu = laptop.rgpu([] as [&str; 0]);
    let mut command = Command::new(program.as_ref());
    command.current_dir(laptop.path("project")).env_clear();
    for (name, value) in rgpu.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    command.env("RGPU", rgpu.get_program()).env("PYTHONPATH", folder(""));
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// Runs a command, which must succeed; what it printed.
fn succeeds(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}\n{text}\n{messages}");
    text
}

#[test]
fn the_package_passes_its_tests() {
    let laptop = Laptop::new();
    let mut tests = python(&laptop, "python3");
    succeeds(tests.arg(folder("tests/test_package.py")));
    laptop.wait_until_quiet();
}

#[test]
fn launches_of_a_host_have_metrics_in_python() {
    let laptop = Laptop::new();
    // Its tools take the place of this machine's own, which the other tests need.
    FakeHost::new(&laptop);
    let mut tests = python(&laptop, "python3");
    tests.arg(folder("tests/test_package.py")).args(["-k", "test_launches_have_metrics"]);
    let said = tests.env("RGPU_TEST_HOST", "h200").output().unwrap();
    let messages = String::from_utf8_lossy(&said.stderr);
    assert!(said.status.success() && messages.contains("Ran 1 test"), "{messages}");
    assert!(!messages.contains("skipped"), "{messages}");
    laptop.wait_until_quiet();
}
