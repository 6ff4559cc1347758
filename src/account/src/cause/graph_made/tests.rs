use super::find;
use crate::cause::test_view::StepScript;

#[test]
fn a_graph_made_in_each_step_is_found() {
    let mut step = StepScript::new()
        .kernel("prepare(float*)", 20.0)
        .wait("cudaDeviceSynchronize")
        .call("cudaStreamBeginCapture", 5.0);
    for _ in 0..50 {
        step = step.call("cudaLaunchKernel", 3.0);
    }
    let step = step
        .call("cudaStreamEndCapture", 5.0)
        .call("cudaGraphInstantiateWithFlags", 300.0)
        .call("cudaGraphLaunch", 6.0)
        .call("cudaGraphExecDestroy", 5.0)
        .kernel("finish(float*)", 20.0);
    let window = step.play(5);
    let found = window.look(find).unwrap();
    assert!(found.text.contains("once a step (50 launches captured each)"), "{}", found.text);
    // The wait before the capture, the capture with its launches, the instantiation, the end.
    assert_eq!(found.most.call_ns.len(), 4 * 55);
}

#[test]
fn a_graph_that_is_kept_is_silent() {
    let step = StepScript::new()
        .kernel("prepare(float*)", 20.0)
        .call("cudaGraphLaunch", 6.0)
        .kernel("finish(float*)", 20.0)
        .wait("cudaDeviceSynchronize");
    assert!(step.play(5).look(find).is_none());
}
