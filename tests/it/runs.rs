//! `rgpu runs`: what was run, and our own disk.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::laptop::{Laptop, status};

#[test]
fn runs_are_listed_shown_and_cleaned() {
    let laptop = Laptop::new();
    let mut story = laptop.show("runs list");
    for id in ["one", "two", "three"] {
        assert_eq!(status(&laptop.run(&format!("exec --run-id {id} -- echo {id}"))), 0);
    }
    assert_eq!(status(&laptop.run("exec --run-id four -- false")), 1);
    for line in [
        "runs list",
        "runs show",
        "runs show latest~1",
        "runs show tw",
        "runs show t",
        "runs show latest~9",
        "runs attach two",
        "runs cancel two",
        "runs clean --keep 2 --dry-run",
        "runs clean --keep 2",
        "runs list",
    ] {
        story += &laptop.show(line);
    }
    // Columns are as wide as times and sizes are long.
    let story = regex::Regex::new(" {2,}").unwrap().replace_all(&story, "  ");
    insta::assert_snapshot!(story);
    let ids: serde_json::Value =
        serde_json::from_slice(&laptop.run("runs list --json").stdout).unwrap();
    assert_eq!((&ids[0]["id"], &ids[1]["id"]), (&"four".into(), &"three".into()));
}

#[test]
fn an_id_is_taken_once_and_a_folder_must_be_empty() {
    let laptop = Laptop::new();
    let mut story = laptop.show("exec --run-id mine -- true");
    story += &laptop.show("exec --run-id mine -- touch never-run");
    story += &laptop.show("exec --run-id ../mine -- true");
    laptop.write("out/precious.txt", "kept");
    story += &laptop.show("exec --out out -- true");
    story += &laptop.show("exec --out fresh -- true");
    insta::assert_snapshot!(story);
    assert_eq!(fs::read_to_string(laptop.project("out/precious.txt")).unwrap(), "kept");
    assert!(laptop.project("fresh/run.json").is_file());
}

#[test]
fn runs_lie_in_a_folder_that_git_ignores() {
    let laptop = Laptop::new();
    laptop.run("exec -- true");
    assert_eq!(
        fs::read_to_string(laptop.project("artifacts/runs/.gitignore")).unwrap().trim(),
        "*"
    );
    let mut command = laptop.rgpu(["exec", "--", "true"]);
    assert!(command.env("RGPU_RUNS_DIR", laptop.path("elsewhere")).status().unwrap().success());
    assert!(laptop.path("elsewhere/latest").is_file());
}

#[test]
fn a_folder_that_cannot_be_written_is_our_own_disks_failure() {
    let laptop = Laptop::new();
    // Root writes everywhere, but not below a file.
    laptop.write("artifacts", "a file");
    insta::assert_snapshot!(laptop.show("exec -- true"));
    if !rustix::process::geteuid().is_root() {
        fs::remove_file(laptop.project("artifacts")).unwrap();
        fs::create_dir(laptop.project("artifacts")).unwrap();
        let read_only = fs::Permissions::from_mode(0o500);
        fs::set_permissions(laptop.project("artifacts"), read_only).unwrap();
        assert_eq!(status(&laptop.run("exec -- true")), 125);
    }
    insta::assert_snapshot!(laptop.show("profile --kernel vecadd --json"));
    laptop.wait_until_quiet();
}
