//! Completions in the shells themselves, as far as they are installed: bash always is.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::laptop::{Laptop, status};

/// A suite without cases.
const SUITE: &str = r#"{"schema": "rgpu.suite/1", "id": "night", "started": "2026-11-28T10:31:34Z",
    "seconds": 57.5, "state": "done", "clean": true, "rgpu": "0.1.0", "options": {}, "rows": []}"#;

/// A laptop with two remotes, a host of ssh's, and kernels in its project, one of a hostile name.
fn laptop() -> Laptop {
    let laptop = Laptop::new();
    for name in ["h100", "h200"] {
        assert_eq!(status(&laptop.run(&format!("remote add {name} ssh://u@{name}"))), 0);
    }
    fs::create_dir(laptop.path("home/.ssh")).unwrap();
    fs::write(laptop.path("home/.ssh/config"), "Host hal *.lab\n  User me\n").unwrap();
    laptop.write("kernels/heat/kernel.toml", "");
    assert_eq!(status(&laptop.run("exec --run-id one -- true")), 0);
    laptop.write("artifacts/runs/night/suite.json", SUITE);
    let run = |id: &str| laptop.project(format!("artifacts/runs/{id}/run.json"));
    fs::copy(run("one"), run("night")).unwrap();
    laptop.write("one.cubin", "");
    laptop.write("kernels/h$(touch ruined)/kernel.toml", "");
    laptop
}

#[test]
fn a_script_is_not_asked_for_in_json() {
    let laptop = Laptop::new();
    insta::assert_snapshot!(laptop.show("completions bash --json") + &laptop.show("completions"));
}

#[test]
fn bash_completes_kernels_remotes_and_runs() {
    let laptop = laptop();
    let script = laptop.write("rgpu.bash", "");
    let text = String::from_utf8(laptop.run("completions bash").stdout).unwrap();
    assert!(text.contains("-o default "), "{text}");
    fs::write(&script, text).unwrap();
    let rgpu = Path::new(env!("CARGO_BIN_EXE_rgpu"));
    let completed = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let (last, before) = (words.len() - 1, words[words.len() - 2]);
        let text = format!(
            "PATH={}:$PATH\nsource rgpu.bash\nCOMP_WORDS=(rgpu {})\nCOMP_CWORD={}\n\
             _clap_complete_rgpu rgpu '{}' '{before}'\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"",
            rgpu.parent().unwrap().display(),
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
    assert_eq!(completed("profile veca"), "vecadd\n");
    assert_eq!(completed("build veca"), "vecadd\n");
    assert_eq!(completed("profile one."), "one.cubin\n");
    // A name that bash would execute is left to bash, which quotes it.
    laptop.write("two$(touch ruined).cubin", "");
    laptop.write("two;touch ruined.cubin", "");
    for line in ["profile two", "disasm two", "profile --out two", "exec -- ls two"] {
        assert_eq!(completed(line), "\n", "{line}");
    }
    // Files where there are no names, and after `--`.
    assert_eq!(completed("profile --out one."), "one.cubin\n");
    assert_eq!(completed("exec -- ls one."), "one.cubin\n");
    assert_eq!(completed("profile --accept-n"), "--accept-new\n");
    assert_eq!(completed("help reading"), "reading-a-profile\n");
    assert_eq!(completed("help prof"), "profile\n");
    assert_eq!(completed("profile --remote h100,h2"), "h100,h200\n");
    for line in ["remote check h", "remote up h", "remote remove h", "doctor h"] {
        assert_eq!(completed(line), "h100\nh200\nhal\n", "{line}");
    }
    assert_eq!(completed("remote check --acc"), "--accept-new\n");
    assert_eq!(completed("runs show on"), "one\n");
    // The suite may be left out, so flags follow its names.
    assert!(completed("bench run --failed ").starts_with("latest\nnight\n--"));
    assert_eq!(completed("bench run --failed n"), "night\n");
    assert_eq!(completed("runs attach l"), "latest\n");
    assert_eq!(completed("runs list --remote h1"), "h100\n");
    assert_eq!(completed("report one."), "one.cubin\n");
    assert!(completed("report on").lines().any(|name| name == "one"));
    // Names come from a project, so what a shell takes for more than a word is not offered.
    assert!(!completed("profile --kernel h").contains('$'));
    assert!(!Path::new(&laptop.project("ruined")).exists());
}
