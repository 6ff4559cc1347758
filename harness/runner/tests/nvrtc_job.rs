//! Tests `rgpu-runner nvrtc` with a real NVRTC: the library that `RGPU_NVRTC` names, or that of the
//! project's own environment. Without one, only the tests that need none run, and a message says
//! so.

#![allow(clippy::unwrap_used)]

use rgpu_case::ErrorClass;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The library, or `None` after printing which tests are skipped.
fn nvrtc() -> Option<PathBuf> {
    let named = std::env::var_os("RGPU_NVRTC").map(PathBuf::from);
    let found = named.or_else(|| in_environment(&Path::new(REPOSITORY).join(".rgpu/cuda/lib")));
    if found.is_none() {
        eprintln!("skipped: no NVRTC here (set RGPU_NVRTC, or run `cargo xtask setup`)");
    }
    found
}

/// Finds `python3*/site-packages/nvidia/*/lib/libnvrtc.so.1?`.
fn in_environment(lib: &Path) -> Option<PathBuf> {
    let children = |folder: &Path| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let pythons = children(lib).into_iter().map(|python| python.join("site-packages/nvidia"));
    let libraries = pythons.flat_map(|nvidia| children(&nvidia));
    let mut files = libraries.flat_map(|package| children(&package.join("lib")));
    files.find(|file| {
        file.file_name().is_some_and(|n| n.to_string_lossy().starts_with("libnvrtc.so."))
    })
}

fn run(folder: &Path, args: &[&str], library: Option<&Path>, flags: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rgpu-runner"));
    command.arg("nvrtc").args(args).current_dir(folder).env_remove("LD_LIBRARY_PATH");
    if let Some(library) = library {
        command.arg("--library").arg(library);
    }
    command.arg("--").args(flags).output().unwrap()
}

fn status(output: &Output) -> u8 {
    output.status.code().unwrap() as u8
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn vecadd_compiles_to_a_cubin_with_lines_and_to_ptx() {
    let Some(library) = nvrtc() else { return };
    let folder = tempfile::tempdir().unwrap();
    let source = format!("{REPOSITORY}/kernels/vecadd/vecadd.cu");
    for arch in ["sm_80", "sm_90a", "sm_100a"] {
        let args = ["--source", &source, "--arch", arch, "--cubin", "k.cubin", "--ptx", "k.ptx"];
        let output = run(folder.path(), &args, Some(&library), &["-lineinfo", "-O3"]);
        assert_eq!((status(&output), stderr(&output)), (0, String::new()), "{arch}");
        let cubin = std::fs::read(folder.path().join("k.cubin")).unwrap();
        assert!(cubin.starts_with(b"\x7fELF"));
        assert!(cubin.windows(11).any(|name| name == b".debug_line"), "{arch}");
        let ptx = std::fs::read_to_string(folder.path().join("k.ptx")).unwrap();
        assert!(ptx.contains(&format!(".target {arch}")) && ptx.contains(".entry vecadd("));
        assert!(!ptx.contains('\0'));
    }
}

#[test]
fn headers_that_nvcc_would_have_are_there_without_a_toolkit() {
    let Some(library) = nvrtc() else { return };
    let folder = tempfile::tempdir().unwrap();
    let source = "#include <cuda_runtime.h>\n#include <cstdint>\n#include <climits>\n\
        #include <cuda.h>\n#include \"beside.h\"\n\
        extern \"C\" __global__ void k(float *x, std::uint64_t n, const CUtensorMap *map) {\n\
        x[n] = BESIDE - INFINITY + INT_MAX + sizeof(*map); }\n";
    std::fs::write(folder.path().join("k.cu"), source).unwrap();
    std::fs::write(folder.path().join("beside.h"), "#define BESIDE 1\n").unwrap();
    let args = ["--source", "k.cu", "--arch", "sm_90a", "--cubin", "k.cubin"];
    let output = run(folder.path(), &args, Some(&library), &[]);
    assert_eq!((status(&output), stderr(&output)), (0, String::new()));
}

#[test]
fn code_and_flags_that_nvrtc_refuses_are_shown_in_its_own_words_and_leave_no_file() {
    let Some(library) = nvrtc() else { return };
    let folder = tempfile::tempdir().unwrap();
    let bad = "extern \"C\" __global__ void k(float *x) {\n  x[0] = y;\n}\n";
    std::fs::write(folder.path().join("bad.cu"), bad).unwrap();
    let args = ["--source", "bad.cu", "--arch", "sm_90a", "--cubin", "k.cubin"];
    for (flags, words) in [
        (&[][..], "bad.cu(2): error: identifier \"y\" is undefined\n    x[0] = y;\n"),
        (&["--no-such-flag"][..], "unrecognized option --no-such-flag"),
    ] {
        let output = run(folder.path(), &args, Some(&library), flags);
        assert_eq!(status(&output), ErrorClass::Compile.exit_code());
        assert!(stderr(&output).contains(words), "{}", stderr(&output));
    }
    assert!(!folder.path().join("k.cubin").exists());
}

#[test]
fn an_architecture_that_nvrtc_does_not_know_is_answered_with_those_it_knows() {
    let Some(library) = nvrtc() else { return };
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("k.cu"), "").unwrap();
    let args = ["--source", "k.cu", "--arch", "sm_20", "--cubin", "k.cubin"];
    let text = stderr(&run(folder.path(), &args, Some(&library), &[]));
    assert!(text.contains("`sm_20`") && text.contains("sm_90"), "{text}");
}

#[test]
fn a_host_without_nvrtc_has_an_exit_status_of_its_own_and_no_error_of_the_code() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("k.cu"), "").unwrap();
    let args = ["--source", "k.cu", "--arch", "sm_90a", "--cubin", "k.cubin"];
    let library = folder.path().join("libnvrtc.so.13");
    let output = run(folder.path(), &args, Some(&library), &[]);
    assert_eq!(status(&output), ErrorClass::NoCompiler.exit_code());
    assert!(stderr(&output).contains("error while loading shared libraries: no NVRTC"));
}

#[test]
fn a_missing_source_and_a_missing_word_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["--source", "none.cu", "--arch", "sm_90a", "--cubin", "k.cubin"];
    let output = run(folder.path(), &args, None, &[]);
    assert_eq!(status(&output), ErrorClass::MissingFile.exit_code());
    assert!(stderr(&output).contains("`none.cu`"));
    let output = run(folder.path(), &args[..2], None, &[]);
    assert_eq!(status(&output), ErrorClass::Usage.exit_code());
}
