//! Programs that are built on the host from their source or folder, and profiled as they are.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::fake_host::FakeHost;
use crate::laptop::{Laptop, status};

/// An nvcc whose programs print their arguments. It notes how it was called.
const NVCC: &str = r#"#!/bin/sh
case "$*" in *--version*) echo "Cuda compilation tools, release 13.0, V13.0.88"; exit;; esac
echo "$*" >> "$(dirname "$0")/asked"
for word in "$@"; do
    case $word in *.cu) [ -e "$word" ] && grep -n missing.h "$word" >/dev/null && {
        echo "$word:1:10: fatal error: missing.h: No such file or directory" >&2; exit 1; } ;; esac
done
while [ $# -gt 1 ]; do [ "$1" = -o ] && out=$2; shift; done
cp /bin/echo "$out"
"#;

/// A laptop and a host with the tools of NVIDIA, and this nvcc.
fn laptop() -> Laptop {
    let laptop = Laptop::new();
    FakeHost::with(&laptop, &["nsys", "ncu", "nvidia-smi"]);
    let nvcc = laptop.write("../h200/bin/nvcc", NVCC);
    fs::set_permissions(nvcc, fs::Permissions::from_mode(0o755)).unwrap();
    laptop
}

/// How nvcc was called, one call a line.
fn asked(laptop: &Laptop) -> Vec<String> {
    let text = fs::read_to_string(laptop.path("h200/bin/asked")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

const SOURCE: &str = "// nvcc -O2 -lcublas app.cu -o app\n#include \"part.h\"\n\
    __global__ void vecadd(float *x) {}\nint main() { vecadd<<<1, 1>>>(0); }\n";

/// Runs a line and returns its status and what it showed.
fn run(laptop: &Laptop, line: &str) -> (i32, String) {
    let output = laptop.run(line);
    (status(&output), laptop.shown(line, &output))
}

#[test]
fn a_cuda_program_is_compiled_on_the_host_and_profiled_with_its_arguments() {
    let laptop = laptop();
    laptop.write("app.cu", SOURCE);
    laptop.write("part.h", "");
    let (status, shown) = run(&laptop, "profile app.cu --remote h200 -- one vecadd");
    assert_eq!(status, 0, "{shown}");
    assert!(
        shown.contains("one vecadd") && shown.contains("compiled with `-O2 -lcublas`"),
        "{shown}"
    );
    let run_record = laptop.latest_json("run.json");
    assert_eq!((&run_record["mode"], &run_record["kernel"]), (&"nsys".into(), &"app".into()));
    let calls = asked(&laptop);
    let [call] = calls.as_slice() else { panic!("{calls:?}") };
    assert!(call.contains("-arch=sm_90a") && call.ends_with("app.cu -O2 -lcublas"), "{call}");
    // Nothing has changed, so nothing is compiled; a flag of ncu chooses its mode.
    let (status, shown) =
        run(&laptop, "profile app.cu --kernel-name vecadd --remote h200 -- vecadd");
    assert_eq!((status, asked(&laptop).len()), (0, 1), "{shown}");
    assert_eq!(laptop.latest_json("run.json")["mode"], "ncu");
    // With this mode and no name, its own kernels are the ones.
    let (_, shown) = run(&laptop, "profile app.cu --mode ncu --remote h200 --dry-run");
    assert!(shown.contains("--kernel-name vecadd"), "{shown}");
}

#[test]
fn a_folder_is_built_by_its_makefile_for_the_gpu_that_there_is() {
    let laptop = laptop();
    laptop.write("app/app.cu", SOURCE);
    laptop.write("app/part.h", "");
    laptop.write(
        "app/Makefile",
        "all: first second\nfirst second: app.cu\n\tnvcc -arch=sm_70 -o $@ app.cu\n",
    );
    let (status, shown) = run(&laptop, "profile app --remote h200 -- vecadd");
    assert_eq!(status, 0, "{shown}");
    let told = "runs 'first' of the programs that it makes: first second; --target NAME";
    assert!(shown.contains(told), "{shown}");
    let line = "profile app --target second --remote h200 -- vecadd";
    let (status, shown) = run(&laptop, line);
    assert_eq!(status, 0, "{shown}");
    assert!(shown.contains("`Makefile`: the copy on the host compiles for sm_90"), "{shown}");
    let calls = asked(&laptop);
    assert_eq!(calls.last().unwrap(), "-arch=sm_90 -o second app.cu");
    // What is left here of an earlier build does not keep make from building.
    laptop.write("app/second", "\x7fELF old");
    fs::set_permissions(laptop.project("app/second"), fs::Permissions::from_mode(0o755)).unwrap();
    let (status, shown) = run(&laptop, line);
    assert_eq!((status, asked(&laptop).len()), (0, calls.len() + 1), "{shown}");
}

#[test]
fn a_build_that_fails_or_makes_nothing_is_told_once() {
    let laptop = laptop();
    laptop.write("a.cu", "#include <missing.h>\nint main() {}\n");
    insta::assert_snapshot!("missing_header", laptop.show("profile -q a.cu --remote h200"));
    laptop.write("app/app.cu", SOURCE);
    laptop.write("app/Makefile", "all:\n\ttrue nvcc\n");
    insta::assert_snapshot!("nothing_built", laptop.show("profile -q app --remote h200"));
    laptop.write("app/Makefile", "all:\n\tnvcc_is_gone app.cu\n");
    insta::assert_snapshot!("make_fails", laptop.show("profile -q app --remote h200"));
}

#[test]
fn what_a_program_is_can_be_shown_and_kernels_refuse_its_arguments() {
    let laptop = laptop();
    laptop.write("app/app.cu", SOURCE);
    laptop.write("app/part.h", "");
    laptop.write("app/CMakeLists.txt", "project(app LANGUAGES CUDA)\n");
    insta::assert_snapshot!("show_file", laptop.show("kernels show app/app.cu"));
    insta::assert_snapshot!("show_folder", laptop.show("kernels show app"));
    insta::assert_snapshot!("show_json", laptop.show("kernels show app --json"));
    insta::assert_snapshot!("kernel_with_arguments", laptop.show("profile vecadd -- 1"));
    insta::assert_snapshot!("kernel_with_target", laptop.show("profile vecadd --target x"));
    insta::assert_snapshot!("file_with_target", laptop.show("profile app/app.cu --target x"));
}
