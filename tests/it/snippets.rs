//! `rgpu exec` of files, code and folders: in each language, over a real OpenSSH server where that
//! makes a difference.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::laptop::{Laptop, status, wait_for, words};
use crate::over_ssh::add_remote_to_config;
use crate::sshd::Sshd;

/// The folder of the compiler that built this test.
fn toolchain() -> PathBuf {
    Path::new(env!("CARGO")).parent().unwrap().to_owned()
}

/// `rgpu` for a user who has Rust.
pub(crate) fn with_rust(laptop: &Laptop, line: &str) -> Command {
    let mut command = laptop.rgpu(words(line));
    command.env("PATH", format!("{}:/usr/bin:/bin", toolchain().display()));
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What a run printed, when it ended well.
fn said(output: &Output) -> String {
    assert_eq!(status(output), 0, "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn a_rust_file_is_compiled_here_once_and_runs_there_with_its_arguments_and_status() {
    let laptop = Laptop::new();
    let sshd = Sshd::start();
    add_remote_to_config(&laptop, &sshd, sshd.port);
    laptop.write(
        "count.rs",
        "fn main() {\n    let n = std::env::args().count() - 1;\n    println!(\"{n} {}\", include_str!(\"word.txt\"));\n    std::process::exit(n as i32);\n}\n",
    );
    laptop.write("word.txt", "words");
    let line = "exec count.rs --remote box --accept-new -- a 'b c' --json";
    let output = with_rust(&laptop, line).output().unwrap();
    assert_eq!((status(&output), text(&output.stdout).as_str()), (3, "3 words\n"));
    assert!(fs::read_to_string(laptop.latest().join("source/count.rs")).unwrap().contains("main"));
    // No compiler is at hand any more: nothing has changed, so none is needed.
    let again = laptop.run("exec count.rs --remote box -- x");
    assert_eq!((status(&again), text(&again.stdout).as_str()), (1, "1 words\n"));
    // What it includes is part of it.
    laptop.write("word.txt", "others");
    let changed = with_rust(&laptop, "exec count.rs --remote box").output().unwrap();
    assert_eq!(said(&changed), "0 others\n");
}

/// Changes what the laptop remembers of its hosts.
fn change_facts(laptop: &Laptop, field: &str, to: &str) {
    for entry in fs::read_dir(laptop.path("home/.cache/rgpu/facts")).unwrap().flatten() {
        let mut kept: serde_json::Value =
            serde_json::from_slice(&fs::read(entry.path()).unwrap()).unwrap();
        kept["facts"]["agent"][field] = to.into();
        fs::write(entry.path(), kept.to_string()).unwrap();
    }
}

#[test]
fn a_host_that_was_booted_anew_is_asked_anew() {
    let laptop = Laptop::new();
    laptop.write("a.rs", "fn main() {\n    println!(\"ran\");\n}\n");
    said(&with_rust(&laptop, "exec a.rs").output().unwrap());
    change_facts(&laptop, "boot_id", "another");
    assert_eq!(said(&laptop.run("exec a.rs")), "ran\n");
}

#[test]
fn a_rust_file_for_a_host_with_an_older_glibc_is_compiled_there_once() {
    let laptop = Laptop::new();
    let sshd = Sshd::start();
    add_remote_to_config(&laptop, &sshd, sshd.port);
    // The host has Rust too.
    fs::create_dir_all(laptop.path("h200/bin")).unwrap();
    for tool in ["cargo", "rustc"] {
        std::os::unix::fs::symlink(toolchain().join(tool), laptop.path("h200/bin").join(tool))
            .unwrap();
    }
    laptop.write("a.rs", "fn main() {\n    println!(\"ran\");\n}\n");
    said(&with_rust(&laptop, "exec a.rs --remote box --accept-new").output().unwrap());
    assert!(laptop.latest_json("plan-1.json")["steps"].as_array().unwrap().len() == 1);
    change_facts(&laptop, "glibc", "2.17");
    for _ in 0..2 {
        assert_eq!(said(&laptop.run("exec a.rs --remote box")), "ran\n");
        let plan = laptop.latest_json("plan-1.json");
        assert_eq!(plan["steps"][0]["rungs"][0]["id"], "build.cargo");
    }
    // What does not compile there says so in the same words.
    laptop.write("a.rs", "fn main() {\n    missing();\n}\n");
    change_facts(&laptop, "arch", "aarch64");
    let output = laptop.run("exec a.rs --remote box");
    assert_eq!(status(&output), 125);
    let words = text(&output.stderr);
    assert!(words.contains("a.rs:2:5") && words.contains("missing"), "{words}");
}

#[test]
fn a_rust_file_that_does_not_compile_shows_rustcs_own_words_with_its_lines() {
    let laptop = Laptop::new();
    laptop.write(
        "bad.rs",
        "---\n[profile.dev]\nopt-level = 0\n---\nfn main() {\n    missing();\n}\n",
    );
    let output = with_rust(&laptop, "exec bad.rs").output().unwrap();
    assert_eq!(status(&output), 125);
    let words = text(&output.stderr);
    assert!(words.contains("--> bad.rs:6:5"), "{words}");
    assert!(words.contains("error: `bad.rs` does not compile"), "{words}");
    assert_eq!(text(&output.stdout), "");
    let log = laptop.latest().join("log/build.stderr");
    assert!(fs::read_to_string(log).unwrap().contains("cannot find function `missing`"));
    assert_eq!(laptop.latest_json("run.json")["state"], "failed");
}

#[test]
fn a_rust_file_where_nothing_can_compile_it_says_what_is_missing_where() {
    let laptop = Laptop::new();
    laptop.write("a.rs", "fn main() {}\n");
    insta::assert_snapshot!(laptop.show("exec a.rs"));
}

#[test]
fn python_comes_as_a_file_as_code_and_through_a_pipe() {
    let laptop = Laptop::new();
    laptop.write("p.py", "import sys\nprint(sys.argv[1:], sys.stdin.read())\nsys.exit(4)\n");
    let output = laptop.run_with_input("exec p.py -- 1 --two", b"in");
    assert_eq!((status(&output), text(&output.stdout).as_str()), (4, "['1', '--two'] in\n"));
    let code = laptop.run("exec --lang py --code 'print(6 * 7)'");
    assert_eq!(said(&code), "42\n");
    let piped = laptop.run_with_input("exec - -- x", b"import sys\nprint(sys.argv[1])");
    assert_eq!(said(&piped), "x\n");
    let shell = laptop.run_with_input("exec - --lang sh -- x", b"echo $1; exit 9");
    assert_eq!((status(&shell), text(&shell.stdout).as_str()), (9, "x\n"));
}

#[test]
fn the_first_mount_is_the_working_folder_and_leads_the_modules() {
    let laptop = Laptop::new();
    laptop.write("repo/mine.py", "WORD = 'from the repository'\n");
    laptop.write("repo/.rgpuignore", "big/\n");
    laptop.write("repo/big/file", "x");
    laptop.write("lib/more.txt", "more\n");
    laptop.write(
        "try.py",
        "import os, sys\nimport mine\nprint(mine.WORD, sorted(os.listdir('.')), open('lib/more.txt').read())\nprint(sys.path[0] == os.getcwd())\n",
    );
    let output = laptop.run("exec try.py --mount repo --mount lib");
    let expected = "from the repository ['.rgpuignore', 'lib', 'mine.py'] more\n\nTrue\n";
    assert_eq!(said(&output), expected);
    // A file of the mount runs where it lies.
    laptop.write(
        "repo/in/main.py",
        "import mine, os\nprint(__file__.endswith('here/in/main.py'), mine.WORD)\n",
    );
    let inside = laptop.run("exec repo/in/main.py --mount repo");
    assert_eq!(said(&inside), "True from the repository\n");
}

#[test]
fn a_mount_is_seen_at_a_place_of_the_hosts_own_while_the_program_runs() {
    let laptop = Laptop::new();
    laptop.write("repo/a", "");
    laptop.write("data/x.txt", "seen\n");
    let place = laptop.path("tmp/seen/data");
    let line = format!("exec --mount repo --mount data:{} -- sh -c ", place.display());
    let output = laptop.run(&format!("{line} 'cat {}/x.txt; ls; exit 3'", place.display()));
    assert_eq!(status(&output), 3, "{}", text(&output.stderr));
    assert!(text(&output.stdout).starts_with("seen\na\n"), "{}", text(&output.stdout));
    assert!(fs::symlink_metadata(&place).is_err());
    // Stopped by its time limit, it leaves nothing either; what is there already stays.
    let line = format!("exec --timeout 1s --mount repo --mount data:{} -- ", place.display());
    assert_eq!(status(&laptop.run(&format!("{line} sleep 1000"))), 124);
    assert!(fs::symlink_metadata(&place).is_err());
    fs::create_dir(&place).unwrap();
    let taken = laptop.run(&format!("{line} true"));
    assert_eq!(status(&taken), 125);
    assert!(text(&taken.stderr).contains("on the host already"), "{}", text(&taken.stderr));
    assert!(place.is_dir());
}

#[test]
fn a_task_that_the_file_imports_and_nobody_has_is_stood_in_for() {
    let laptop = Laptop::new();
    laptop.write(
        "k.py",
        "from task import input_t, output_t\ndef f(x: input_t) -> output_t: ...\nprint('ok')\n",
    );
    assert_eq!(said(&laptop.run("exec k.py")), "ok\n");
    laptop.write("repo/task.py", "input_t = output_t = int\nprint('mine')\n");
    assert_eq!(said(&laptop.run("exec k.py --mount repo")), "mine\nok\n");
    laptop.write("other/x", "");
    assert_eq!(said(&laptop.run("exec k.py --mount other")), "ok\n");
}

/// A wheel of one module, made here: no index is asked.
const WHEEL: &str = r#"
import sys, zipfile
with zipfile.ZipFile(sys.argv[1] + "/little-1.0-py3-none-any.whl", "w") as z:
    z.writestr("little.py", "WORD = 'installed'\n")
    z.writestr("little-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: little\nVersion: 1.0\n")
    z.writestr("little-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    z.writestr("little-1.0.dist-info/RECORD", "")
"#;

#[test]
fn what_a_python_file_depends_on_is_installed_once_on_the_host() {
    let laptop = Laptop::new();
    let sshd = Sshd::start();
    add_remote_to_config(&laptop, &sshd, sshd.port);
    let folder = laptop.path("tmp");
    let made = Command::new("python3").args(["-c", WHEEL]).arg(&folder).status().unwrap();
    assert!(made.success());
    laptop.write(
        "dep.py",
        &format!(
            "# /// script\n# dependencies = [\"little @ file://{}/little-1.0-py3-none-any.whl\"]\n# ///\nimport little\nprint(little.WORD)\n",
            folder.display()
        ),
    );
    let first = laptop.run("exec dep.py --remote box --accept-new");
    assert_eq!(said(&first), "installed\n");
    let told = text(&first.stderr);
    assert!(told.contains("installing little @ file:") && !told.contains(" GB"), "{told}");
    // Neither pip's nor uv's account of what goes well.
    assert!(!told.contains("Processing") && !told.contains("Installed"), "{told}");
    // The wheel is gone; the environment is not.
    fs::remove_file(folder.join("little-1.0-py3-none-any.whl")).unwrap();
    let second = laptop.run("exec -q dep.py --remote box");
    assert_eq!((said(&second).as_str(), text(&second.stderr).as_str()), ("installed\n", ""));
    // Another environment cannot be made from what is not there.
    laptop.write("gone.py", "# /// script\n# dependencies = [\"gone @ file:///nowhere/gone-1-py3-none-any.whl\"]\n# ///\n");
    let third = laptop.run("exec gone.py --remote box");
    assert_eq!(status(&third), 125);
    assert!(text(&third.stderr).contains("step `python`"), "{}", text(&third.stderr));
}

/// An installer that only says what uv does.
const UV: &str = r#"#!/bin/sh
case "$1" in
venv) for last; do :; done; exec python3 -m venv --without-pip "$last" ;;
esac
cat >&2 <<'END'
Using Python 3.12.3 environment at: /h/env
Resolved 3 packages in 1ms
Downloading torch (846.9MiB)
Downloading tiny (12.0KiB)
 Downloaded torch
warning: an odd index
Prepared 3 packages in 1s
 + torch==2.9.0
END
"#;

#[test]
fn a_large_download_is_told_before_it_begins() {
    let laptop = Laptop::new();
    let uv = laptop.path("bin/uv");
    fs::create_dir_all(uv.parent().unwrap()).unwrap();
    fs::write(&uv, UV).unwrap();
    fs::set_permissions(&uv, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", laptop.path("bin").display(), std::env::var("PATH").unwrap());
    let told = |requirement: &str| {
        let script = format!("# /// script\n# dependencies = [\"{requirement}\"]\n# ///\n");
        laptop.write("large.py", &script);
        let mut command = laptop.rgpu(words("exec large.py"));
        let output = command.env("PATH", &path).output().unwrap();
        assert_eq!(status(&output), 0, "{}", text(&output.stderr));
        text(&output.stderr)
    };
    let large = told("Torch >= 9999");
    let lines: Vec<&str> = large.lines().collect();
    let begun = lines.iter().position(|line| line.starts_with("python_env: ")).unwrap();
    assert_eq!(
        lines[begun..begun + 3],
        [
            "python_env: installing Torch >= 9999: about 5 GB with CUDA's libraries, which takes \
             minutes, once on this host",
            "python_env: downloading torch (846.9MiB)",
            "warning: an odd index",
        ],
        "{large}"
    );
    for chatter in ["Resolved", "tiny", "Downloaded", "Prepared", "==2.9.0"] {
        assert!(!large.contains(chatter), "{large}");
    }
    let small = told("einops-of-nobody");
    assert!(small.contains("installing einops-of-nobody\n"), "{small}");
}

#[test]
fn secret_variables_reach_the_program_and_nothing_else() {
    let laptop = Laptop::new();
    laptop.write(".env.gpu", "TOKEN='s3cret-value'\nN=3\n");
    let line = "exec --env-file .env.gpu -- sh -c 'echo $TOKEN $N; cat /proc/$$/cmdline | tr \"\\0\" \" \"'";
    let mode = |mode| fs::Permissions::from_mode(mode);
    fs::set_permissions(laptop.project(".env.gpu"), mode(0o644)).unwrap();
    let warned = laptop.run(line);
    let warning = "warning: `.env.gpu` can be read by others (mode 644)";
    assert!(text(&warned.stderr).contains(warning), "{}", text(&warned.stderr));
    fs::set_permissions(laptop.project(".env.gpu"), mode(0o600)).unwrap();
    let output = laptop.run(line);
    assert!(!text(&output.stderr).contains("warning"), "{}", text(&output.stderr));
    let said = said(&output);
    assert!(said.starts_with("*** 3\n") && !said.contains("s3cret"), "{said}");
    for entry in walkdir::WalkDir::new(laptop.latest()).into_iter().flatten() {
        if entry.file_type().is_file() {
            let bytes = fs::read(entry.path()).unwrap();
            assert!(!text(&bytes).contains("s3cret"), "{}", entry.path().display());
        }
    }
    let plan = laptop.latest_json("plan-1.json");
    assert_eq!(plan["secrets"], serde_json::json!(["N", "TOKEN"]));
}

#[test]
fn what_is_new_or_changed_comes_back_and_what_was_sent_does_not() {
    let laptop = Laptop::new();
    let sshd = Sshd::start();
    add_remote_to_config(&laptop, &sshd, sshd.port);
    laptop.write("repo/out/old.txt", "old\n");
    laptop.write("repo/out/kept.txt", "kept\n");
    let script = "mkdir -p out/deep; echo new > out/old.txt; printf '\\377\\000' > out/deep/b; echo no > other; ln -s /etc/passwd out/link";
    let line =
        format!("exec --remote box --accept-new --mount repo --pull 'out/**' -- sh -c {script:?}");
    let output = laptop.run(&line);
    said(&output);
    assert_eq!(fs::read_to_string(laptop.project("repo/out/old.txt")).unwrap(), "new\n");
    assert_eq!(fs::read(laptop.project("repo/out/deep/b")).unwrap(), b"\xff\0");
    assert!(!laptop.project("repo/other").exists() && !laptop.project("repo/out/link").exists());
    let pulled = laptop.latest().join("pulled/out");
    assert!(pulled.join("deep/b").exists() && !pulled.join("kept.txt").exists());
    assert!(
        text(&output.stderr).contains("pulled out/deep/b, out/old.txt"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn unchanged_files_are_not_sent_again() {
    let laptop = Laptop::new();
    let sshd = Sshd::start();
    add_remote_to_config(&laptop, &sshd, sshd.port);
    let big: String = (0..200_000).map(|n| format!("{n} ")).collect();
    laptop.write("repo/big.txt", &big);
    let line = "exec --remote box --accept-new --mount repo --events e.jsonl -- wc -c big.txt";
    let uploads = || {
        said(&laptop.run(line));
        fs::read_to_string(laptop.project("e.jsonl")).unwrap().matches("\"uploading\"").count()
    };
    assert!(uploads() > 0);
    assert_eq!(uploads(), 0);
}

/// An nvcc that copies a script: what counts here is when it is asked, and for what.
const NVCC: &str = r#"#!/bin/sh
case "$*" in *--version*) echo "Cuda compilation tools, release 13.0, V13.0.88"; exit;; esac
echo x >> "$(dirname "$0")/asked"
while [ $# -gt 1 ]; do [ "$1" = -o ] && out=$2; shift; done
if grep -q broken "$1"; then echo "$1(2): error: identifier \"broken\" is undefined" >&2; exit 1; fi
printf '#!/bin/sh\necho "ran $*"; exit 6\n' > "$out"; chmod +x "$out"
"#;

#[test]
fn a_cuda_file_is_compiled_on_the_host_once() {
    let laptop = Laptop::new();
    let sshd = Sshd::start();
    add_remote_to_config(&laptop, &sshd, sshd.port);
    laptop.write("../h200/bin/nvcc", NVCC);
    let chmod = Command::new("chmod").arg("+x").arg(laptop.path("h200/bin/nvcc")).status().unwrap();
    assert!(chmod.success());
    laptop.write("probe.cu", "#include <cstdio>\nint main() { return 6; }\n");
    for _ in 0..2 {
        let output = laptop.run("exec probe.cu --remote box --accept-new -- a b");
        assert_eq!(
            (status(&output), text(&output.stdout).as_str()),
            (6, "ran a b\n"),
            "{}",
            text(&output.stderr)
        );
    }
    let asked = || fs::read_to_string(laptop.path("h200/bin/asked")).unwrap();
    assert_eq!(asked(), "x\n");
    laptop.write("probe.cu", "int main() {\n  broken();\n}\n");
    let output = laptop.run("exec probe.cu --remote box");
    assert_eq!(status(&output), 125);
    let words = text(&output.stderr);
    assert!(words.contains("probe.cu(2): error: identifier \"broken\""), "{words}");
    assert!(words.contains("the source does not compile"), "{words}");
    // Without a `main` there is nothing that could take arguments, and nobody is asked.
    laptop.write("kernels.cu", "__global__ void k() {}\n");
    insta::assert_snapshot!(laptop.show("exec -q kernels.cu --remote box -- 3"));
    assert_eq!(asked(), "x\nx\n");
}

#[test]
fn a_cuda_file_needs_nvcc_on_the_host() {
    let laptop = Laptop::new();
    laptop.write("probe.cu", "int main() {}\n");
    insta::assert_snapshot!(laptop.show("exec probe.cu"));
}

#[test]
fn with_a_terminal_the_program_sees_one_and_its_size() {
    let laptop = Laptop::new();
    let sshd = Sshd::start();
    add_remote_to_config(&laptop, &sshd, sshd.port);
    let script = "test -t 0 && test -t 1 && test -t 2 && stty size && echo done >&2; exit 5";
    let line = format!("exec -t --remote box --accept-new -- sh -c '{script}'");
    let output = laptop.run(&line);
    assert_eq!(
        (status(&output), text(&output.stdout).as_str()),
        (5, "24 80\r\ndone\r\n"),
        "{}",
        text(&output.stderr)
    );
    // Keys reach it, and Ctrl-C is its own affair.
    let script =
        "read x; trap 'echo caught; exit 8' INT; echo \"got $x\"; while :; do sleep 0.1; done";
    let mut child = laptop
        .rgpu(["exec", "-t", "--timeout", "60s", "--", "sh", "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut keys = child.stdin.take().unwrap();
    keys.write_all(b"word\n").unwrap();
    wait_for("its answer", || {
        let id = fs::read_to_string(laptop.project("artifacts/runs/.latest")).ok()?;
        let log = laptop.project("artifacts/runs").join(id.trim()).join("log/exec.stdout");
        fs::read_to_string(log).ok()?.contains("got word").then_some(())
    });
    keys.write_all(b"\x03").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(status(&output), 8, "{}", text(&output.stdout));
    assert!(text(&output.stdout).contains("caught"), "{}", text(&output.stdout));
    laptop.wait_until_quiet();
}

#[test]
fn packages_of_a_python_that_is_itself_an_environment_are_visible() {
    let laptop = Laptop::new();
    let host = laptop.path("venv");
    let python = host.join("bin/python3");
    let made = Command::new("python3").args(["-m", "venv", "--without-pip"]).arg(&host).status();
    assert!(made.unwrap().success());
    let mut asked = Command::new(&python);
    asked.args(["-c", "import site; print(site.getsitepackages()[0])"]);
    let packages = PathBuf::from(said(&asked.output().unwrap()).trim());
    fs::write(packages.join("of_the_host.py"), "word = 'seen'\n").unwrap();
    fs::create_dir(packages.join("of_the_host-1.0.dist-info")).unwrap();
    let about = "Metadata-Version: 2.1\nName: of-the-host\nVersion: 1.0\n";
    fs::write(packages.join("of_the_host-1.0.dist-info/METADATA"), about).unwrap();
    laptop.write(
        "a.py",
        "# /// script\n# dependencies = [\"of-the-host\"]\n# ///\nimport of_the_host\nprint(of_the_host.word)\n",
    );
    let mut command = laptop.rgpu(words("exec a.py --env PIP_NO_INDEX=1"));
    command.env("PATH", format!("{}:/usr/bin:/bin", host.join("bin").display()));
    assert_eq!(said(&command.output().unwrap()), "seen\n");
}
