use super::{find_exposed, find_small, find_waiting};
use crate::cause::test_view::{StepScript, play};

const REDUCE: &str = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)";

#[test]
fn many_small_collectives_are_found() {
    let step = StepScript::new()
        .kernels(4, "void at::native::add<float>(int)", 50.0)
        .kernels(16, REDUCE, 20.0);
    let window = step.play(5);
    let found = window.look(find_small).unwrap();
    assert!(found.text.contains("16 collectives a step"), "{}", found.text);
    assert!(window.removed_ns(&found.most) > window.removed_ns(&found.least));
    assert!(window.look(find_waiting).is_none());
}

#[test]
fn collectives_that_wait_for_a_rank_are_found() {
    let step = |us: f64| {
        StepScript::new().kernels(4, "void at::native::add<float>(int)", 50.0).kernel(REDUCE, us)
    };
    let window = play(&[step(100.0), step(500.0), step(100.0), step(500.0), step(100.0)]);
    let found = window.look(find_waiting).unwrap();
    assert!(found.most.work_ns.values().all(|ns| *ns == 100_000));
    assert!(found.least.work_ns.values().all(|ns| *ns == 300_000));
    assert!(found.decides.is_some());
}

#[test]
fn exposed_collectives_are_found_but_the_last() {
    let step = StepScript::new()
        .kernels(4, "void at::native::add<float>(int)", 50.0)
        .kernels(4, REDUCE, 100.0);
    let window = step.play(5);
    let found = window.look(find_exposed).unwrap();
    assert!(found.is_bound);
    // A quarter of each is left: the time of one.
    assert!(found.most.work_ns.values().all(|ns| (20_000..30_000).contains(ns)));
}

#[test]
fn programs_on_one_gpu_are_silent() {
    let window = StepScript::new().kernels(4, "void at::native::add<float>(int)", 50.0).play(5);
    assert!(window.look(find_small).is_none());
    assert!(window.look(find_waiting).is_none());
    assert!(window.look(find_exposed).is_none());
}
