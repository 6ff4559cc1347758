//! `rgpu setup`: what is fetched, with pip played.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::laptop::{Laptop, status, words};

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
    assert!(!laptop.path("pip").exists());
    let line = "setup nvdisasm --yes";
    insta::assert_snapshot!(laptop.shown(line, &run(&laptop, line)));
    let again = run(&laptop, "setup nvdisasm --json");
    let done: serde_json::Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!((&done["version"], &done["fetched"]), (&"13.5.37".into(), &false.into()));
    let calls = fs::read_to_string(laptop.path("pip")).unwrap();
    assert_eq!(calls.matches("--require-hashes").count(), 1, "{calls}");
    // Python imports from the current folder first: never from the project, which may have a pip.py.
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
    let output = run(&laptop, "setup nvdisasm --yes -q");
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("there is neither a Python with pip nor uv here"), "{text}");
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
