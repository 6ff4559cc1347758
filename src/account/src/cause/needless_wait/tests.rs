use super::find;
use crate::cause::test_view::StepScript;

#[test]
fn waits_after_each_launch_are_found() {
    let mut step = StepScript::new();
    for _ in 0..5 {
        step = step.kernel("relax(float*)", 20.0).wait("cudaDeviceSynchronize");
    }
    let window = step.play(5);
    let found = window.look(find).unwrap();
    assert!(found.text.contains("5 times a step (cudaDeviceSynchronize)"), "{}", found.text);
    assert!(!found.is_bound);
    // One a step stays at least.
    assert_eq!(found.most.no_wait.len(), 4 * 5);
    assert_eq!(found.least.no_wait.len(), 4 * 4);
}

#[test]
fn a_wait_for_a_copy_to_the_host_is_silent() {
    let step = StepScript::new()
        .kernel("relax(float*)", 20.0)
        .copy("DtoH", 1_000_000, 20.0, Some(false))
        .wait("cudaStreamSynchronize");
    assert!(step.play(5).look(find).is_none());
}

#[test]
fn a_wait_before_memory_is_freed_is_silent() {
    let step = StepScript::new()
        .kernel("relax(float*)", 20.0)
        .wait("cudaDeviceSynchronize")
        .call("cudaFree", 100.0);
    assert!(step.play(5).look(find).is_none());
}

#[test]
fn a_wait_before_the_host_touches_pages_of_the_gpu_is_silent() {
    let step = StepScript::new()
        .kernel("relax(float*)", 20.0)
        .wait("cudaDeviceSynchronize")
        .on_stream(99)
        .copy("unified DtoH", 4_096, 20.0, None)
        .on_stream(7);
    assert!(step.play(5).look(find).is_none());
    let waits = StepScript::new().kernel("relax(float*)", 20.0).wait("cudaDeviceSynchronize");
    assert!(waits.play(5).look(find).is_some());
}
