//! `rgpu setup`: what is fetched, with pip and a host's curl played. The hash check of what curl
//! brings is tested beside the script's plan.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::laptop::{Laptop, status, words};
use crate::over_ssh::add_remote_to_config;
use crate::sshd::Sshd;

/// A pip that brings an nvdisasm of this version, or fails.
fn pip(laptop: &Laptop, version: &str) {
    let script = format!(
        r#"#!/bin/sh
echo "$@" >> '{log}'
echo "$PYTHONSAFEPATH $(pwd)" >> '{log}.folders'
[ "$3" = --version ] && exec echo 'pip 23.2'
while [ $# -gt 1 ]; do [ "$1" = -r ] && list=$2; [ "$1" = --target ] && target=$2; shift; done
[ '{version}' = none ] && {{ echo 'ERROR: No matching distribution found' >&2; exit 1; }}
grep -q 'nvidia-cuda-nvdisasm==13.5.37' "$list" && grep -q -- '--hash=sha256:' "$list" || exit 2
[ "$(grep -c == "$list")" = 1 ] || exit 3
mkdir -p "$target/nvidia/cu13/bin"
echo 'Downloading (5.2 MB)'
printf '#!/bin/sh\necho "release 13.5, V{version}"\n' > "$target/nvidia/cu13/bin/nvdisasm"
chmod +x "$target/nvidia/cu13/bin/nvdisasm"
"#,
        log = laptop.path("pip").display(),
    );
    let path = laptop.path("bin/python3");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn run(laptop: &Laptop, line: &str) -> std::process::Output {
    let path = format!("{}:/usr/bin:/bin", laptop.path("bin").display());
    laptop.rgpu(words(line)).env("PATH", path).output().unwrap()
}

#[test]
fn nvdisasm_is_fetched_on_the_users_word_alone_and_found_from_then_on() {
    let laptop = Laptop::new();
    pip(&laptop, "13.5.37");
    let line = "setup nvdisasm";
    insta::assert_snapshot!(laptop.shown(line, &run(&laptop, line)));
    let calls = fs::read_to_string(laptop.path("pip")).unwrap();
    assert!(calls.lines().all(|call| call.ends_with("--version")), "{calls}");
    let line = "setup nvdisasm --yes";
    insta::assert_snapshot!(laptop.shown(line, &run(&laptop, line)));
    let again = run(&laptop, "setup nvdisasm --json");
    let done: serde_json::Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!((&done["version"], &done["fetched"]), (&"13.5.37".into(), &false.into()));
    let calls = fs::read_to_string(laptop.path("pip")).unwrap();
    assert_eq!(calls.matches("--require-hashes").count(), 1, "{calls}");
    // Python imports from the current folder first: never from the project, which may have a
    // pip.py.
    let folders = fs::read_to_string(laptop.path("pip.folders")).unwrap();
    assert!(folders.lines().count() > 1 && folders.lines().all(|at| at == "1 /"), "{folders}");
    let folder = laptop.path("home/.local/share/rgpu");
    let names: Vec<_> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["nvdisasm"]);
    let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/cubin/13.5/facts");
    let line = format!("disasm {fixtures}/sm_80.cubin --tool nvdisasm --json");
    let output = laptop.run(&line);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["inputs"][0]["images"][0]["tool"], "nvdisasm 13.5.37");
}

#[test]
fn another_nvdisasm_is_kept_unless_forced() {
    let laptop = Laptop::new();
    pip(&laptop, "13.5.37");
    let path = laptop.path("bin/nvdisasm");
    fs::write(&path, "#!/bin/sh\necho 'release 12.8, V12.8.55'\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let output = run(&laptop, "setup nvdisasm --yes");
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert_eq!(text, format!("nvdisasm 12.8.55 is installed: {}\n", path.display()));
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(text, "nvdisasm 12.8.55 is used; `--force` fetches 13.5.37\n");
    assert!(!laptop.path("pip").exists());
    let output = run(&laptop, "setup nvdisasm --yes --force --json");
    let done: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&done["version"], &done["fetched"]), (&"13.5.37".into(), &true.into()));
}

#[test]
fn uv_fetches_where_no_python_has_pip() {
    let laptop = Laptop::new();
    pip(&laptop, "13.5.37");
    let bin = laptop.path("bin");
    fs::rename(bin.join("python3"), bin.join("uv")).unwrap();
    for name in ["python3", "python"] {
        fs::copy("/bin/false", bin.join(name)).unwrap();
    }
    let output = run(&laptop, "setup nvdisasm --yes --json");
    let done: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(done["fetched"], true, "{done}");
    let call = fs::read_to_string(laptop.path("pip")).unwrap();
    let exactly = "pip install --no-deps --only-binary=:all: --require-hashes -r ";
    assert!(call.starts_with(exactly) && call.contains(" --target "), "{call}");
    // uv reads settings from the current folder: never from the project.
    assert_eq!(fs::read_to_string(laptop.path("pip.folders")).unwrap(), " /\n");
    // Neither is there.
    fs::remove_dir_all(laptop.path("home/.local/share/rgpu")).unwrap();
    fs::remove_file(bin.join("uv")).unwrap();
    for line in ["setup nvdisasm --yes -q", "setup nvdisasm"] {
        let output = run(&laptop, line);
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains("there is neither a Python with pip nor uv here"), "{text}");
        assert!(!text.contains("consent"), "{text}");
    }
}

#[test]
fn what_pip_cannot_fetch_leaves_the_folder_as_it_was() {
    let laptop = Laptop::new();
    let line = "setup nvdisasm --yes -q";
    pip(&laptop, "none");
    insta::assert_snapshot!(laptop.shown(line, &run(&laptop, line)));
    // Not the version that was pinned: the index gave something else.
    pip(&laptop, "13.4.1");
    let output = run(&laptop, line);
    assert_eq!(status(&output), 5, "{}", laptop.shown(line, &output));
    let folder = laptop.path("home/.local/share/rgpu");
    assert_eq!(fs::read_dir(folder).unwrap().count(), 0);
}

/// A host with a curl that brings an archive of NVIDIA in small, or refuses, and a sha256sum that
/// knows its hash. Both log what they are asked.
fn host_without_tools(laptop: &Laptop, sshd: &Sshd) {
    let bin = laptop.path("h200/bin");
    fs::create_dir_all(&bin).unwrap();
    let log = laptop.path("calls");
    let play = |name: &str, script: String| {
        let path = bin.join(name);
        fs::write(&path, format!("#!/bin/sh\necho {name} \"$@\" >> '{}'\n{script}", log.display()))
            .unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    let curl = r#"for url; do :; done
while [ $# -gt 1 ]; do [ "$1" = -o ] && out=$2; shift; done
case $url in */nsight_compute/*) ;; *) echo 'curl: (6) Could not resolve host' >&2; exit 6 ;; esac
cd "$(dirname "$out")" && mkdir -p a/nsight-compute/2025.3.1
printf '#!/bin/sh\necho Version 2025.3.1.0\n' > a/nsight-compute/2025.3.1/ncu
chmod +x a/nsight-compute/2025.3.1/ncu && tar -cJf archive a && rm -r a
"#;
    play("curl", curl.to_owned());
    play("sha256sum", "grep -qE '^[0-9a-f]{64}  /.*/archive$'\n".to_owned());
    add_remote_to_config(laptop, sshd, sshd.port);
}

#[test]
fn a_profiler_is_installed_on_a_host_over_ssh_on_the_users_word_and_found_from_then_on() {
    let (laptop, sshd) = (Laptop::new(), Sshd::start());
    host_without_tools(&laptop, &sshd);
    let line = "setup ncu --remote box --accept-new";
    let output = laptop.run(line);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(status(&output), 2, "{}", laptop.shown(line, &output));
    assert!(said.contains("`rgpu setup ncu --remote box --yes` gives your consent"), "{said}");
    assert!(said.contains("nsight_compute/LICENSE.txt") && said.contains("(323 MB)"), "{said}");
    assert!(!laptop.path("calls").exists());
    // The host is this machine.
    let has_gpu = std::path::Path::new("/dev/nvidia0").exists();
    assert_eq!(!said.contains("warning: `box` has no GPU"), has_gpu, "{said}");

    let line = "setup ncu --remote box --yes --json";
    for fetched in [true, false] {
        let output = laptop.run(line);
        assert_eq!(status(&output), 0, "{}", laptop.shown(line, &output));
        let done: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let inner = ".local/share/rgpu/tools/nsight_compute-2025.3.1.4/nsight-compute/2025.3.1/ncu";
        let path = sshd.path("home").join(inner);
        assert_eq!(done["schema"], "rgpu.setup/1");
        assert_eq!(done["version"], "2025.3.1.0");
        assert_eq!((&done["tool"], &done["fetched"]), (&"ncu".into(), &fetched.into()));
        assert_eq!(done["path"].as_str(), path.to_str());
    }
    let calls = fs::read_to_string(laptop.path("calls")).unwrap();
    assert_eq!(calls.matches("curl ").count(), 1, "{calls}");
    assert!(calls.contains("-linux-x86_64-2025.3.1.4-archive.tar.xz"), "{calls}");

    // An archive that the host cannot fetch.
    let line = "setup sanitizer --remote box --yes -q";
    let output = laptop.run(line);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(status(&output), 4, "{}", laptop.shown(line, &output));
    assert!(said.contains("error: the host cannot fetch the archive"), "{said}");
    assert!(said.contains("Could not resolve host"), "{said}");
    let tools = fs::read_dir(sshd.path("home/.local/share/rgpu/tools")).unwrap();
    assert_eq!(tools.count(), 1);
}

#[test]
fn a_tool_that_setup_does_not_know_is_answered_with_those_that_it_does() {
    let laptop = Laptop::new();
    let shown = laptop.show("setup bogus");
    assert!(
        shown.contains("help: there are `nvdisasm`, `nvcc`, `ncu`, `nsys`, `sanitizer`\n"),
        "{shown}"
    );
    assert!(shown.ends_with("status 2\n"), "{shown}");
    // Of all commands there are too many.
    assert!(!laptop.show("bogus").contains("there are `"));
}
