//! `rgpu remote`: the user's hosts, and mistakes with their names.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::documents::printed_keeps;
use crate::exec::on_a_terminal;
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
fn a_remote_that_is_added_at_a_terminal_ends_with_what_works_there() {
    let laptop = Laptop::new();
    let host = FakeHost::new(&laptop);
    host.mischief("ncu counters-refused\n");
    let Some(seen) = on_a_terminal(&laptop, "remote add h200 local", &[]) else { return };
    let line = seen.lines().find(|line| line.contains("works on `h200`: "));
    let line = line.unwrap_or_else(|| panic!("{seen}"));
    assert!(line.contains("ncu (nsys.cuda)") && line.contains("bench (events)"), "{line}");
    assert!(seen.contains("`rgpu doctor h200` says why not more"), "{seen}");
    // What cannot be reached is added all the same.
    let seen = on_a_terminal(&laptop, "remote add gone ssh://u@127.0.0.1:1", &[]).unwrap();
    assert!(seen.contains("its tools were not tried: "), "{seen}");
    assert!(seen.contains("help: ") && seen.contains("next: rgpu doctor gone"), "{seen}");
    let other = "commands without `--remote` use `local`; to change that: rgpu remote default gone";
    assert!(seen.split_whitespace().collect::<Vec<_>>().join(" ").contains(other), "{seen}");
    let seen = on_a_terminal(&laptop, "remote add it local --no-doctor --default", &[]).unwrap();
    assert!(!seen.contains("commands without"), "{seen}");
    let seen = on_a_terminal(&laptop, "remote add h200 local --no-doctor", &[]).unwrap();
    assert!(seen.contains("next: rgpu remote check h200") && !seen.contains("works on"), "{seen}");
    assert_eq!(laptop.show("remote list").matches("gone").count(), 1);
}

#[test]
fn a_remote_without_a_gpu_is_added_without_trying_modes() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop).mischief("nvidia-smi no-devices\n");
    let Some(seen) = on_a_terminal(&laptop, "remote add h200 local", &[]) else { return };
    assert!(seen.contains("no mode was tried: the host has no NVIDIA driver"), "{seen}");
    assert!(!seen.contains("trying ncu"), "{seen}");
    assert_eq!(laptop.show("remote list").matches("h200").count(), 1);
}

#[test]
fn rgpu_alone_names_three_things_to_do_next() {
    let laptop = Laptop::new();
    let steps = || {
        let output = laptop.rgpu::<&str>([]).output().unwrap();
        assert_eq!((status(&output), output.stdout.len()), (2, 0));
        let text = String::from_utf8(output.stderr).unwrap();
        let steps = text.lines().filter_map(|line| line.strip_prefix("  ")).map(str::to_owned);
        steps.collect::<Vec<String>>()
    };
    let first = steps();
    assert!(first.len() == 3 && first[0].starts_with("rgpu remote add "), "{first:?}");
    FakeHost::new(&laptop);
    let then = steps();
    assert!(then.len() == 3 && then[0].starts_with("rgpu doctor "), "{then:?}");
}

#[test]
fn under_json_every_change_and_question_is_answered_by_one_document() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let printed = |line: &str, schema: &str| {
        let output = laptop.run(line);
        assert_eq!(status(&output), 0, "{}", laptop.shown(line, &output));
        let document = serde_json::from_slice(&output.stdout).unwrap();
        printed_keeps(schema, &document);
        document
    };
    let names = |document: &serde_json::Value| {
        let remotes = document["remotes"].as_array().unwrap();
        remotes.iter().map(|r| r["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let added = printed("remote add box ssh://u@h --price-per-hour 2.5 --json", "remotes");
    assert_eq!(
        (names(&added), &added["default_remote"]),
        (vec!["box".to_owned(), "h200".to_owned(), "local".to_owned()], &"local".into())
    );
    assert_eq!(added["remotes"][0]["price_per_hour"], 2.5);
    let set = printed("remote default h200 --json", "remotes");
    assert_eq!(
        (&set["default_remote"], &set["remotes"][1]["default"]),
        (&"h200".into(), &true.into())
    );
    let host = printed("remote check --json", "host");
    assert_eq!(host["gpus"][0]["name"], "NVIDIA H200");
    let left = printed("remote remove box --json", "remotes");
    assert_eq!(left, printed("remote list --json", "remotes"));
    assert_eq!(names(&left), ["h200", "local"]);
    assert_eq!(left["remotes"][0]["host"]["gpus"][0]["name"], "NVIDIA H200");
    printed("runs list --json", "runs");
    printed("runs list --remote h200 --json", "jobs");
    printed("doctor --json", "doctor");
}

#[test]
fn a_default_that_does_not_hold_here_is_told() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    laptop.write("rgpu.toml", "default_remote = \"local\"\n");
    insta::assert_snapshot!(laptop.show("remote default h200"));
    insta::assert_snapshot!(laptop.show("remote remove h20"));
}

#[test]
fn names_and_paths_stay_whole_however_narrow_the_terminal_is() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let url = "ssh://someone@a-host-with-a-long-name.example.org:2222";
    assert_eq!(status(&laptop.run(&format!("remote add long-name {url}"))), 0);
    for columns in [60, 200] {
        for line in ["remote check h200", "remote list"] {
            let width = columns.to_string();
            let more = [("COLUMNS", width.as_str()), ("NO_COLOR", "1")];
            let Some(text) = on_a_terminal(&laptop, &format!("{line} -q"), &more) else { return };
            let whole = if line == "remote list" { url } else { "bin/nvidia-smi" };
            assert!(text.contains(whole), "{text}");
            let wide = |row: &&str| row.contains(' ') && row.chars().count() > columns;
            let wide: Vec<&str> = text.lines().map(str::trim_end).filter(wide).collect();
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
fn a_slip_in_what_a_remote_is_names_the_command_that_was_meant() {
    let laptop = Laptop::new();
    fs::create_dir(laptop.path("home/.ssh")).unwrap();
    fs::write(laptop.path("home/.ssh/config"), "Host modak\n  User me\n").unwrap();
    let mut story = String::new();
    for line in [
        "remote add x waffer",
        "remote add x Wafer --workspace w",
        "remote add x wafer",
        "remote add x wafer --url https://a.modal.run",
        "remote add x modal",
        "remote add x modal --workspace w --gpu H100",
        "remote add x modal --gpu H100",
        "remote add x ssh://host --gpu H100",
        "remote add x ssh://host --url https://a",
        "remote add x htps://gpu-box",
        "remote add x 127.0.0.1:8790 --token-file T",
        "remote add x gpu-box:8790 --token-env T",
        "remote add x http://127.0.0.1:8790 --token-file T",
        "remote add x modak",
        "remote add m modal --url https://a.modal.run",
        "remote up x",
        "remote down x",
        "remote down m",
    ] {
        story += &laptop.show(line);
    }
    insta::assert_snapshot!(story);
}

#[test]
fn a_token_that_is_not_there_yet_is_told_when_its_place_is_named() {
    let laptop = Laptop::new();
    let token = laptop.write("token", "0123456789abcdef\n");
    fs::set_permissions(&token, fs::Permissions::from_mode(0o644)).unwrap();
    let add = "remote add box http://127.0.0.1:8790";
    let mut story = String::new();
    for flags in ["--token-file token", "--token-file no-such", "--ca-file no-such --token-env T"] {
        story += &laptop.show(&format!("{add} {flags}"));
    }
    assert!(!laptop.path("config/config.toml").exists());
    story += &laptop.show(&format!("{add} --token-env BOX_TOKEN"));
    // Another kind of remote has no use for it.
    story += &laptop.show("remote add box ssh://u@h");
    insta::assert_snapshot!(story);
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

#[test]
fn remotes_that_are_added_at_once_are_all_kept() {
    let laptop = Laptop::new();
    let adding: Vec<_> =
        (0..12).map(|n| laptop.start(&format!("remote add r{n} ssh://h{n}"))).collect();
    for child in adding {
        let output = child.wait_with_output().unwrap();
        assert_eq!(status(&output), 0, "{}", laptop.shown("remote add", &output));
    }
    let settings = fs::read_to_string(laptop.path("config/config.toml")).unwrap();
    assert_eq!(settings.matches("url = ").count(), 12, "{settings}");
}

#[test]
fn settings_behind_links_stay_where_they_are() {
    let laptop = Laptop::new();
    let (link, file) = (laptop.path("config/config.toml"), laptop.path("dotfiles/rgpu.toml"));
    std::os::unix::fs::symlink("further.toml", &link).unwrap();
    std::os::unix::fs::symlink("../dotfiles/rgpu.toml", laptop.path("config/further.toml"))
        .unwrap();
    // The first has nothing yet that the links lead to.
    for name in ["first", "second"] {
        let output = laptop.run(&format!("remote add {name} ssh://{name}"));
        assert_eq!(status(&output), 0, "{}", laptop.shown("remote add", &output));
        assert!(link.is_symlink());
        assert!(fs::read_to_string(&file).unwrap().contains(name));
    }
}

#[test]
fn what_a_remote_keeps_when_its_address_changes_is_told() {
    let laptop = Laptop::new();
    laptop.run("remote add box ssh://u@old --env A=1 --path /opt/tools --jump bastion");
    let shown = laptop.show("remote add box ssh://u@new --jump other");
    let told = "it keeps its earlier settings: env, path; to start over: rgpu remote remove box";
    assert!(shown.contains(told), "{shown}");
    let shown = laptop.show("remote add box ssh://u@new --env B=2");
    assert!(!shown.contains("it keeps"), "{shown}");
}

#[test]
fn a_remote_that_is_added_again_is_told_from_one_that_changes() {
    let laptop = Laptop::new();
    let mut story = String::new();
    for line in [
        "remote add gpubox ssh://u@box",
        "remote add gpubox ssh://u@box",
        "remote add gpubox ssh://u@other --default",
        "remote add foo bar",
    ] {
        story += &laptop.show(line);
    }
    insta::assert_snapshot!(story);
}

#[test]
fn the_flags_for_a_host_of_ssh_come_before_those_of_services() {
    let laptop = Laptop::new();
    let help = laptop.show("remote add --help");
    let place = |words: &str| help.find(words).unwrap_or_else(|| panic!("{words}: {help}"));
    assert!(place("--identity") < place("A worker, or Modal:"), "{help}");
    assert!(place("A worker, or Modal:") < place("--token-file <FILE>"), "{help}");
    assert!(place("--no-doctor") < place("A Slurm cluster:"), "{help}");
    assert!(place("A Slurm cluster:") < place("A Wafer workspace:"), "{help}");
}
