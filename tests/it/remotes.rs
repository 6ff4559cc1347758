//! `rgpu remote`: the user's hosts, and mistakes with their names.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::fake_host::FakeHost;
use crate::laptop::{Laptop, status};

#[test]
fn remotes_are_added_listed_made_default_and_removed() {
    let laptop = Laptop::new();
    let mut story = String::new();
    for line in [
        "remote list",
        "remote add h200 ssh://root@gpu-box:2222 --default",
        "remote add box gpu-box --jump bastion --path /opt/tools --env CUDA_VISIBLE_DEVICES=0",
        "remote list",
        "remote default box",
        "remote list",
        "remote remove h200",
        "remote remove h200",
        "remote default nowhere",
    ] {
        story += &laptop.show(line);
    }
    insta::assert_snapshot!(story);
    let file = laptop.path("config/config.toml");
    insta::assert_snapshot!(fs::read_to_string(&file).unwrap());
    assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn names_and_paths_stay_whole_however_narrow_the_terminal_is() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let url = "ssh://someone@a-host-with-a-long-name.example.org:2222";
    assert_eq!(status(&laptop.run(&format!("remote add long-name {url}"))), 0);
    for columns in [60, 200] {
        for line in ["remote check h200", "remote list"] {
            let mut command = laptop.rgpu(crate::laptop::words(line));
            let output = command.env("COLUMNS", columns.to_string()).output().unwrap();
            let text = laptop.shown(line, &output);
            let whole = if line == "remote list" { url } else { "bin/nvidia-smi" };
            assert!(text.contains(whole), "{text}");
            let wide = |row: &&str| row.contains(' ') && row.chars().count() > columns;
            let rows = String::from_utf8_lossy(&output.stdout).into_owned();
            let wide: Vec<&str> = rows.lines().filter(wide).collect();
            assert!(wide.iter().all(|row| row.trim().split(' ').count() == 1), "{wide:?}");
        }
    }
}

#[test]
fn comments_in_the_settings_survive_an_edit() {
    let laptop = Laptop::new();
    let file = laptop.path("config/config.toml");
    fs::write(&file, "# mine\nruns_dir = \"elsewhere\" # too\n").unwrap();
    laptop.run("remote add a ssh://u@h");
    let text = fs::read_to_string(file).unwrap();
    assert!(text.starts_with("# mine\nruns_dir = \"elsewhere\" # too\n"), "{text}");
}

#[test]
fn addresses_that_cannot_be_right_are_refused_before_they_are_kept() {
    let laptop = Laptop::new();
    let mut story = String::new();
    for line in [
        "remote add x ftp://host",
        "remote add x ssh://-oProxyCommand=evil",
        "remote add x ssh://user@ho$(st)",
        "remote add -- -x ssh://u@h",
        "remote add local ssh://u@h",
        "remote add x ssh://u@h --identity no-such-key",
        "remote add x http://127.0.0.1:8790",
        "remote add x https://gpu-box",
    ] {
        story += &laptop.show(line);
    }
    insta::assert_snapshot!(story);
    assert!(!laptop.path("config/config.toml").exists());
}

#[test]
fn an_unknown_remote_names_the_nearest_and_the_line_to_type() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    insta::assert_snapshot!(laptop.show("profile --kernel vecadd --remote h20"));
    insta::assert_snapshot!(laptop.show("profile --kernel vecadd --remote h20 --json"));
}

#[test]
fn a_project_may_name_a_remote_and_never_define_one() {
    let laptop = Laptop::new();
    laptop.write("rgpu.toml", "default_remote = \"theirs\"\n");
    insta::assert_snapshot!(laptop.show("exec -- true"));
    laptop.write("rgpu.toml", "[remote.evil]\nurl = \"ssh://u@h\"\nvia = [\"sh\"]\n");
    insta::assert_snapshot!(laptop.show("remote list"));
}

#[test]
fn checking_a_remote_says_what_the_host_has() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let shown = laptop.show("remote check h200");
    assert!(shown.ends_with("status 0\n"), "{shown}");
    for word in ["NVIDIA H200", "580.159.04", "ncu", "2025.3.1"] {
        assert!(shown.contains(word), "`{word}` is missing:\n{shown}");
    }
}

#[test]
fn a_secret_typed_where_a_variables_name_belongs_is_neither_kept_nor_shown() {
    let laptop = Laptop::new();
    for line in [
        "remote add a https://box.example --token-env ak-1secret",
        "remote add b modal --url https://x.modal.run --key-env ak-1secret",
        "remote add c modal --url https://x.modal.run --secret-env 1secret",
    ] {
        let output = laptop.run(line);
        assert_eq!(status(&output), 2, "{}", laptop.shown(line, &output));
        let said = [output.stdout, output.stderr].concat();
        assert!(!String::from_utf8_lossy(&said).contains("1secret"), "{line}");
    }
    let kept = std::fs::read_to_string(laptop.path("config/config.toml")).unwrap_or_default();
    assert!(!kept.contains("1secret"), "{kept}");
}
