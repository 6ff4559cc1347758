//! The lints on real recordings.

use std::path::PathBuf;

use super::*;
use rgpu_import::{ImportedArtifact, ncu, nsys, nvtx};
use rgpu_model::Sidecars;

fn fixture(path: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("tests/fixtures").join(path)
}

fn found(imported: ImportedArtifact) -> Vec<String> {
    let (mut profile, mut sidecars) = (Profile::default(), Sidecars::default());
    imported.add_to(&mut profile, &mut sidecars);
    let findings = lint(&profile, sidecars.trace.as_ref());
    assert!(findings.iter().all(|f| f.category == "nvtx" && !f.hint.is_empty()));
    findings.into_iter().map(|finding| format!("{}: {}", finding.id, finding.text)).collect()
}

fn of_nsys(case: &str) -> Vec<String> {
    let path = fixture(&format!("nsys/2025.3.1/{case}/report.sqlite"));
    found(nsys::import_sqlite(&path, "raw/report.sqlite").unwrap())
}

#[test]
fn every_fault_of_the_driver_is_found_and_nothing_else() {
    insta::assert_snapshot!(of_nsys("timeline-graph").join("\n"), @r"
    unbalanced_range: 1 range never closed: `never_closed`
    unnamed_range: 1 range without a name
    colliding_ranges: start/end ranges of one name are open at once: `crossing`
    range_without_kernels: 1 range without a kernel: `no_work`
    kernels_outside_ranges: 3 of 95 kernels were launched outside any range: `vecadd`, `tiled_matmul`
    range_closes_before_gpu: `tiny` closes before its work on the GPU ends: once, by up to 3.1 µs
    range_closes_before_gpu: `async` closes before its work on the GPU ends: once, by up to 300.6 µs
    ");
}

#[test]
fn what_the_runner_opens_and_what_it_does_not_measure_is_not_the_users() {
    let ours = |path: &[&str]| is_ours(&path.iter().map(|p| (*p).to_owned()).collect::<Vec<_>>());
    assert!(ours(&["rgpu@warmup"]) && ours(&["rgpu@warmup", "rgpu@n=1", "A"]));
    assert!(ours(&["rgpu@setup", "A"]) && ours(&["rgpu@timed", "rgpu@n=1"]));
    assert!(!ours(&["rgpu@timed", "rgpu@n=1", "A"]) && !ours(&["A"]));
}

#[test]
fn ranges_that_only_close_early_are_told_with_the_time() {
    insta::assert_snapshot!(of_nsys("regions").join("\n"), @r"
    range_closes_before_gpu: `A` closes before its work on the GPU ends: once, by up to 36.1 µs
    range_closes_before_gpu: `A::A1` closes before its work on the GPU ends: once, by up to 36.6 µs
    range_closes_before_gpu: `B` closes before its work on the GPU ends: once, by up to 101.5 µs
    ");
}

#[test]
fn a_trace_without_a_gpu_says_nothing_of_kernels() {
    assert_eq!(of_nsys("regions-nvtx-only"), Vec::<String>::new());
}

#[test]
fn a_log_of_ranges_tells_what_is_unbalanced_unnamed_and_colliding() {
    let log = r#"{"event":"opened","format":1,"pid":7,"ppid":1,"ns":100,"unix_ns":1}
{"event":"push","ns":110,"tid":7,"domain":0,"level":0,"message":"A"}
{"event":"push","ns":120,"tid":7,"domain":0,"level":1,"message":"A"}
{"event":"pop","ns":125,"tid":7,"domain":0,"level":1}
{"event":"push","ns":126,"tid":7,"domain":0,"level":1}
{"event":"pop","ns":127,"tid":7,"domain":0,"level":1}
{"event":"pop","ns":130,"tid":8,"domain":0,"level":0}
{"event":"start","ns":131,"tid":7,"domain":0,"id":1,"message":"A"}
{"event":"end","ns":140,"tid":8,"domain":0,"id":1}
"#;
    let log = rgpu_format::nvtx_log::read(log.as_bytes()).unwrap();
    insta::assert_snapshot!(found(nvtx::import(&log, "nvtx.jsonl.7")).join("\n"), @r"
    unbalanced_range: 1 range never closed: `A`
    unbalanced_range: nvtx.jsonl.7: 1 pop or end closes a range that never began
    unnamed_range: 1 range without a name
    colliding_ranges: push/pop and start/end ranges share names: `A`
    colliding_ranges: ranges lie inside ranges of their own name: `A::A`
    ");
}

#[test]
fn launches_of_ncu_outside_any_range_are_found_without_a_trace() {
    let read = |case: &str| {
        let path = fixture(&format!("ncu/2025.3.1/{case}/report.ncu-repz"));
        let limits = rgpu_format::ncu_rep::NcuReadLimits::default();
        let bytes = std::fs::read(path).unwrap();
        ncu::import(&bytes, "raw/report", &ncu::RequestedCounters::default(), &limits).unwrap()
    };
    assert!(found(read("full-vecadd")).is_empty(), "ncu was not asked for ranges");
    let mut imported = read("regions");
    imported.launches[0].region = Default::default();
    let text = "kernels_outside_ranges: 1 of 7 kernels was launched outside any range: `vecadd`";
    assert_eq!(found(imported), [text]);
}
