use super::find;
use crate::cause::test_view::StepScript;

fn scan(iterations: usize) -> StepScript {
    let mut step = StepScript::new().kernel("wrapped_broadcast", 5.0);
    for _ in 0..iterations {
        step = step.kernel("loop_multiply_fusion", 1.5).kernel("loop_add_fusion", 1.5);
    }
    step.kernel("input_reduce_fusion", 20.0)
}

#[test]
fn a_loop_of_tiny_kernels_is_found() {
    let window = scan(200).play(4);
    let found = window.look(find).unwrap();
    assert!(found.text.contains("2 kernels"), "{}", found.text);
    assert!(found.text.contains("200 times a step"), "{}", found.text);
    assert!(found.hint.contains("associative_scan"));
    assert_eq!(found.work.len(), 3 * 400);
}

#[test]
fn a_short_loop_is_silent() {
    assert!(scan(10).play(4).look(find).is_none());
}

#[test]
fn a_loop_over_rows_is_found_and_one_that_only_fills_is_silent() {
    let rows = |count: usize, name: &str| {
        (0..count).fold(StepScript::new(), |all, _| {
            all.kernel(name, 2.0).kernel("void cub::DeviceReduceKernel<float>(int)", 2.0)
        })
    };
    let window = rows(30, "gemvx_kernel").kernel("mix(float*)", 9.0).play(4);
    assert!(window.look(find).unwrap().text.contains("30 times a step"));
    let fills = (0..60).fold(StepScript::new(), |all, _| all.set(1 << 20, 2.0));
    assert!(fills.kernel("mix(float*)", 9.0).play(4).look(find).is_none());
}
