use super::{find_both_ways, find_one_way};
use crate::cause::test_view::StepScript;

#[test]
fn a_pinned_copy_between_kernels_is_found() {
    let step = StepScript::new().copy("HtoD", 10_000_000, 200.0, Some(false)).kernels(
        4,
        "relax(float*)",
        100.0,
    );
    let window = step.play(5);
    let found = window.look(find_one_way).unwrap();
    assert!(found.text.contains("1 copies a step to the GPU (10.0 MB)"), "{}", found.text);
    // The kernel after a copy waits for it.
    let consumer = found.most.own_stream.iter().next().unwrap();
    assert_eq!(*consumer.1, Some(consumer.0 + 1));
    assert!(window.look(find_both_ways).is_none());
}

#[test]
fn copies_both_ways_are_one_cause() {
    let step = StepScript::new()
        .copy("HtoD", 10_000_000, 200.0, Some(false))
        .kernels(4, "relax(float*)", 100.0)
        .copy("DtoH", 10_000_000, 200.0, Some(false));
    let window = step.play(5);
    assert!(window.look(find_one_way).is_none());
    let found = window.look(find_both_ways).unwrap();
    assert_eq!(found.work.len(), 8);
}

#[test]
fn copies_on_a_stream_of_their_own_are_silent() {
    let step = StepScript::new()
        .on_stream(13)
        .copy("HtoD", 10_000_000, 200.0, Some(false))
        .on_stream(7)
        .kernels(4, "relax(float*)", 100.0);
    let window = step.play(5);
    assert!(window.look(find_one_way).is_none());
    assert!(window.look(find_both_ways).is_none());
}
