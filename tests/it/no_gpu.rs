//! A machine without a GPU: the kernel is really compiled, its reference really runs, and the first
//! line says so.

use std::path::{Path, PathBuf};

use rgpu::model::Profile;

use crate::laptop::{Laptop, built, status};

/// A compiler for CUDA on this machine: a toolkit, or what `cargo xtask setup` brings.
fn compiler() -> Option<PathBuf> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
    let places = [
        PathBuf::from("/usr/local/cuda/bin/nvcc"),
        repository.join(".rgpu/cuda/lib/libnvrtc.so.13"),
        repository.join(".rgpu/cuda/bin/nvcc"),
    ];
    places.into_iter().find(|path| path.exists())
}

#[test]
fn without_a_gpu_the_kernel_is_compiled_and_the_reference_runs_on_the_cpu() {
    let Some(compiler) = compiler() else {
        eprintln!("skipped: no CUDA compiler here; `cargo xtask setup` brings one");
        return;
    };
    if std::path::Path::new("/dev/nvidia0").exists() {
        eprintln!("skipped: this machine has a GPU");
        return;
    }
    let laptop = Laptop::new();
    std::os::unix::fs::symlink(built("rgpu-runner"), laptop.path("libexec/rgpu-runner")).unwrap();
    let line = "profile --kernel vecadd --problem-sizes n=100000";
    let mut command = laptop.rgpu(crate::laptop::words(line));
    // As `cargo xtask run` would: the project is the repository, the runs are not.
    let output = command
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("RGPU_RUNS_DIR", laptop.project("artifacts/runs"))
        .output()
        .unwrap();
    let shown = laptop.shown(line, &output);
    assert_eq!(status(&output), 0, "with {}:\n{shown}", compiler.display());
    let first = String::from_utf8(output.stdout).unwrap();
    assert!(first.lines().next().is_some_and(|l| l.to_lowercase().contains("no gpu")), "{shown}");
    let profile: Profile = serde_json::from_value(laptop.latest_json("profile.json")).unwrap();
    // The collector is used where it was built.
    assert!(matches!(profile.rung.as_str(), "nvtx" | "cpu"), "{}", profile.rung);
    assert_eq!(profile.cases[0].timing.as_ref().unwrap().clock, "cpu_reference");
    assert!(profile.launches.is_empty());
    let kinds: Vec<&str> = profile.artifacts.iter().map(|a| a.kind.as_str()).collect();
    assert!(kinds.contains(&"cubin") && kinds.contains(&"ptx"), "{kinds:?}");
    laptop.wait_until_quiet();
}
