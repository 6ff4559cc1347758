//! Completions in the shells themselves, as far as they are installed: bash always is.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::laptop::{Laptop, status};

/// A laptop with two remotes, a host of ssh's, and kernels in its project, one of a hostile name.
fn laptop() -> Laptop {
    let laptop = Laptop::new();
    for name in ["h100", "h200"] {
        assert_eq!(status(&laptop.run(&format!("remote add {name} ssh://u@{name}"))), 0);
    }
    fs::create_dir(laptop.path("home/.ssh")).unwrap();
    fs::write(laptop.path("home/.ssh/config"), "Host hal *.lab\n  User me\n").unwrap();
    laptop.write("kernels/heat/kernel.toml", "");
    laptop.write("kernels/h$(touch ruined)/kernel.toml", "");
    laptop
}

#[test]
fn names_are_told_one_a_line_and_only_those_that_are_plain_words() {
    let laptop = laptop();
    let told = |what: &str| String::from_utf8(laptop.run(what).stdout).unwrap();
    assert_eq!(told("__names remotes"), "h100\nh200\nhal\nlocal\n");
    let kernels = told("__names kernels");
    assert!(kernels.lines().any(|name| name == "heat"), "{kernels}");
    assert!(kernels.lines().any(|name| name == "vecadd"), "{kernels}");
    assert!(!kernels.contains('$'), "{kernels}");
}

#[test]
fn bash_completes_kernels_and_remotes() {
    let laptop = laptop();
    let script = laptop.write("rgpu.bash", "");
    fs::write(&script, laptop.run("completions bash").stdout).unwrap();
    let rgpu = env!("CARGO_BIN_EXE_rgpu");
    let completed = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let (last, before) = (words.len() - 1, words[words.len() - 2]);
        let text = format!(
            "source rgpu.bash\nCOMP_WORDS=({rgpu} {})\nCOMP_CWORD={}\n_rgpu {rgpu} '{}' '{before}'\n\
             printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            words.join(" "),
            last + 1,
            words[last],
        );
        let as_user = laptop.rgpu(["--version"]);
        let mut command = Command::new("bash");
        command.args(["--norc", "-c", &text]).current_dir(laptop.project(""));
        command.env_clear();
        command.envs(as_user.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let output = command.output().unwrap();
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(completed("profile --remote h"), "h100\nh200\nhal\n");
    assert_eq!(completed("exec -r h2"), "h200\n");
    assert_eq!(completed("profile --kernel hea"), "heat\n");
    assert_eq!(completed("build -K veca"), "vecadd\n");
    assert!(!Path::new(&laptop.project("ruined")).exists());
}
