//! The arithmetic of `kernels/wagmiv67`, checked where there is no GPU: its own C++ check compares
//! layouts, descriptors, plans and an emulation of the sm_100 data path with plain statements of
//! the same facts.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::laptop::Laptop;

/// Builds one of the kernel's own checks into `out`.
fn build_check(name: &str, out: &Path) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels/wagmiv67");
    let check = out.join(name);
    let built = Command::new("c++")
        .args(["-std=c++17", "-O3", "-Wall", "-Werror", "-pthread", "-o"])
        .arg(&check)
        .arg(folder.join(format!("{name}.cpp")))
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    check
}

#[test]
fn its_layouts_plans_and_emulated_data_path_are_right_for_every_benchmark_shape() {
    let out = tempfile::tempdir().unwrap();
    let run = Command::new(build_check("check", out.path())).output().unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{said}");
    assert_eq!(said.lines().filter(|line| line.ends_with(": right")).count(), 10, "{said}");
}

#[test]
fn its_forms_of_two_blocks_are_right_on_an_emulated_gpu_and_every_fault_is_noticed() {
    let out = tempfile::tempdir().unwrap();
    let check = build_check("check_pair", out.path());
    let run = Command::new(&check).output().unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{said}");
    for form in ["pair", "aligned"] {
        let right = |line: &&str| line.starts_with(form) && line.ends_with(": right");
        assert_eq!(said.lines().filter(right).count(), 12, "{said}");
    }
    let with_fault = |fault: u32, form: &str| {
        let fault = fault.to_string();
        Command::new(&check).args(["fault", fault.as_str(), form]).output().unwrap()
    };
    // 0 is no fault. The last one is in sums that clusters hand over, which only `pair` has.
    for (form, faults) in [("pair", 19), ("aligned", 18)] {
        assert!(with_fault(0, form).status.success());
        for fault in 1..=faults {
            assert_eq!(with_fault(fault, form).status.code(), Some(1), "{form}, fault {fault}");
        }
    }
}

#[test]
fn all_its_forms_read_and_name_their_sizes() {
    let laptop = Laptop::new();
    let root = env!("CARGO_MANIFEST_DIR");
    for kernel in [
        "wagmiv67",
        "wagmiv67/full-range",
        "wagmiv67/popcorn",
        "wagmiv67/mma",
        "wagmiv67/pair",
        "wagmiv67/aligned",
        "wagmiv67-triton",
    ] {
        let shown = laptop.show(&format!("kernels show {root}/kernels/{kernel} --json"));
        for size in ["pair", "bench-4", "ragged-10"] {
            assert!(shown.contains(size), "{shown}");
        }
    }
}

#[test]
fn the_steps_of_its_tuning_are_the_same_kernel_with_another_define() {
    let laptop = Laptop::new();
    let root = env!("CARGO_MANIFEST_DIR");
    for step in 0..3 {
        let folder = format!("{root}/kernels/wagmiv67/steps/{step}");
        let shown = laptop.show(&format!("kernels show {folder} --json"));
        assert!(
            shown.contains(&format!("wagmiv67-step-{step}")) && shown.contains("bench-3"),
            "{shown}"
        );
        let text = std::fs::read_to_string(format!("{folder}/kernel.toml")).unwrap();
        assert!(
            text.contains(&format!("\"-DWAGMI_STEP={step}\""))
                && text.contains("../../wagmiv67.cu")
        );
    }
}
