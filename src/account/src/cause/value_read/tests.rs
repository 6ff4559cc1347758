use super::find;
use crate::cause::test_view::StepScript;

/// A step that reads its loss, of 40 µs of kernels and as much host time.
fn training() -> StepScript {
    StepScript::new().kernels(10, "void at::native::add<float>(int)", 20.0)
}

#[test]
fn a_value_read_in_each_step_is_found() {
    let step = training().copy("DtoH", 4, 1.5, Some(true)).wait("cudaStreamSynchronize").host(80.0);
    let window = step.play(6);
    let found = window.look(find).unwrap();
    assert!(found.text.contains("at most 4 B from the GPU once a step"), "{}", found.text);
    assert!(found.hint.contains(".item()"));
    // Both the copy call and the wait after it go, at least in every second step.
    assert_eq!(found.most.no_wait.len(), 2 * found.least.no_wait.len() - 2);
    assert_eq!(found.work.len(), found.most.work_ns.len());
}

#[test]
fn a_step_that_reads_nothing_is_silent() {
    assert!(training().host(80.0).play(6).look(find).is_none());
}

#[test]
fn a_read_in_one_step_of_many_is_silent() {
    let plain = training().host(80.0);
    let reading = training().copy("DtoH", 4, 1.5, Some(true)).host(80.0);
    let mut steps = vec![plain; 8];
    steps[3] = reading;
    assert!(crate::cause::test_view::play(&steps).look(find).is_none());
}

#[test]
fn a_check_that_is_read_is_told_as_such() {
    let all = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<bool, at::native::func_wrapper_t<bool, at::native::and_kernel_cuda(at::TensorIterator &)::[lambda(bool, bool)]>>>(T3)";
    let step = training().kernel(all, 3.0).copy("DtoH", 1, 1.5, Some(true)).host(80.0);
    let found = step.play(6).look(find).unwrap();
    assert!(found.hint.contains("validate_args=False"), "{}", found.hint);
    let plain = training().copy("DtoH", 1, 1.5, Some(true)).host(80.0);
    assert!(!plain.play(6).look(find).unwrap().hint.contains("validate_args"));
}
