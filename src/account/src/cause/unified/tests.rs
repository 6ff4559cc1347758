use super::find;
use crate::cause::common::{overlap_ns, union};
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
    let mut window = step.play(5);
    window.call_from("cudaLaunchKernel", 12);
    let found = window.look(find).unwrap();
    let places = window.look(|view| view.places(&found.work, &found.calls));
    assert_eq!(places.first().and_then(|place| place.line), Some(12));
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
    let spans = union([]);
    assert_eq!(overlap_ns(&spans, 0, 100), 0);
    let spans = [(10, 20), (30, 50)];
    assert_eq!(overlap_ns(&spans, 15, 40), 15);
    assert_eq!(overlap_ns(&spans, 20, 30), 0);
    assert_eq!(overlap_ns(&spans, 0, u64::MAX), 30);
}

#[test]
fn equal_launches_without_moves_tell_what_a_kernel_takes_and_faults_of_the_host_add_up() {
    let faults = |step: StepScript| {
        (0..8).fold(step.on_stream(99), |step, _| {
            step.copy("unified DtoH", 4096, 2.0, None).host(100.0)
        })
    };
    let relax = |us| StepScript::new().shaped(4).kernel("relax(float*)", us);
    let held = StepScript::new()
        .on_stream(99)
        .copy("unified HtoD", 65_536, 10.0, None)
        .on_stream(7)
        .then(relax(900.0));
    let step = held.then(relax(60.0)).then(relax(60.0)).wait("cudaDeviceSynchronize");
    let window = faults(step).on_stream(7).play(6);
    let found = window.look(find).unwrap();
    assert!(found.most.work_ns.values().all(|ns| *ns <= 60_000), "{:?}", found.most.work_ns);
    assert!(found.text.contains("(most in `relax`)"), "{}", found.text);
    let saved: u64 = found.most.host_before_ns.len() as u64;
    assert!(saved >= 6, "{saved}");
}
