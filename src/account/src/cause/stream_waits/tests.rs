use super::find;
use crate::cause::test_view::StepScript;

fn step(waits: bool) -> StepScript {
    let mut step = StepScript::new();
    for number in 0..10 {
        step = step.on_stream(13 + number % 2).kernel("relax(float*)", 2.0);
        if waits {
            step = step.call("cudaEventRecord", 2.0).call("cudaStreamWaitEvent", 2.0);
        }
    }
    step
}

#[test]
fn a_wait_of_streams_for_each_launch_is_found() {
    let found = step(true).play(5).look(find).unwrap();
    assert!(found.text.contains("10 times a step for 10 pieces of work"), "{}", found.text);
    assert_eq!(found.least.call_ns.len() * 2, found.most.call_ns.len());
}

#[test]
fn streams_that_do_not_wait_are_silent() {
    assert!(step(false).play(5).look(find).is_none());
}
