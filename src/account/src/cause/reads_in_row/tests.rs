use super::find;
use crate::cause::test_view::StepScript;

fn reads(count: usize) -> StepScript {
    let mut step = StepScript::new().kernels(10, "void at::native::topk<float>(int)", 50.0);
    for _ in 0..count {
        step = step.copy("DtoH", 8, 1.5, Some(true)).wait("cudaStreamSynchronize").host(5.0);
    }
    step
}

#[test]
fn elements_read_one_by_one_are_found() {
    let window = reads(32).play(4);
    let found = window.look(find).unwrap();
    assert!(found.text.contains("32 values a step one by one"), "{}", found.text);
    assert!(found.hint.contains(".tolist()"));
    // The first of each row stays.
    assert_eq!(found.work.len(), 3 * 31);
    assert!(found.least.host_before_ns.values().sum::<u64>() > 0);
    assert_eq!(found.most.host_before_ns.values().sum::<u64>(), 0);
}

#[test]
fn one_read_a_step_is_silent() {
    assert!(reads(1).play(4).look(find).is_none());
}
