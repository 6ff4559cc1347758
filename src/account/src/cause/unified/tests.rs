use super::{find, overlap_ns, union};
use crate::cause::test_view::StepScript;

#[test]
fn a_kernel_that_waits_for_pages_is_found() {
    let step = StepScript::new()
        .kernel("relax(float*)", 500.0)
        .on_stream(99)
        .copy("unified HtoD", 2_000_000, 300.0, None)
        .on_stream(7)
        .kernel("relax(float*)", 100.0)
        .wait("cudaDeviceSynchronize");
    let window = step.play(5);
    let found = window.look(find).unwrap();
    assert!(found.text.contains("1 migrations of unified memory a step move 2.00 MB"));
    // Without the pages 200 µs are left; fetched over 50 GB/s they take 40 µs more.
    assert!(found.most.work_ns.values().all(|ns| *ns == 200_000));
    assert!(found.least.work_ns.values().all(|ns| *ns == 240_000));
}

#[test]
fn plain_copies_are_silent() {
    let step = StepScript::new().kernel("relax(float*)", 500.0).on_stream(99).copy(
        "HtoD",
        2_000_000,
        300.0,
        Some(false),
    );
    assert!(step.play(5).look(find).is_none());
}

#[test]
fn overlaps_are_counted_once() {
    let spans = union(&[]);
    assert_eq!(overlap_ns(&spans, 0, 100), 0);
    let spans = [(10, 20), (30, 50)];
    assert_eq!(overlap_ns(&spans, 15, 40), 15);
    assert_eq!(overlap_ns(&spans, 20, 30), 0);
    assert_eq!(overlap_ns(&spans, 0, u64::MAX), 30);
}
