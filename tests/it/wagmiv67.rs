//! The arithmetic of `kernels/wagmiv67`, checked where there is no GPU: its own C++ check compares
//! layouts, descriptors, plans and an emulation of the sm_100 data path with plain statements of
//! the same facts.

use std::path::Path;
use std::process::Command;

use crate::laptop::Laptop;

#[test]
fn its_layouts_plans_and_emulated_data_path_are_right_for_every_benchmark_shape() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels/wagmiv67");
    let out = tempfile::tempdir().unwrap();
    let check = out.path().join("check");
    let built = Command::new("c++")
        .args(["-std=c++17", "-O2", "-Wall", "-Werror", "-o"])
        .arg(&check)
        .arg(folder.join("check.cpp"))
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let run = Command::new(&check).output().unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{said}");
    assert_eq!(said.lines().filter(|line| line.ends_with(": right")).count(), 10, "{said}");
}

#[test]
fn all_its_forms_read_and_name_their_sizes() {
    let laptop = Laptop::new();
    let root = env!("CARGO_MANIFEST_DIR");
    for kernel in ["wagmiv67", "wagmiv67/full-range", "wagmiv67/popcorn", "wagmiv67-triton"] {
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
