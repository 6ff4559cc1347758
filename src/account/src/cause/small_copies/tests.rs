use super::find;
use crate::cause::test_view::StepScript;

fn step(copies: usize) -> StepScript {
    let mut step = StepScript::new();
    for _ in 0..copies {
        step = step.copy("HtoD", 256, 1.0, Some(false));
    }
    step.kernels(4, "relax(float*)", 20.0)
}

#[test]
fn many_small_copies_are_found() {
    let window = step(40).play(5);
    let found = window.look(find).unwrap();
    assert!(found.text.contains("40 copies HtoD a step"), "{}", found.text);
    // One a step stays.
    assert_eq!(found.most.work_ns.len(), 4 * 39);
}

#[test]
fn a_few_small_copies_are_silent() {
    assert!(step(4).play(5).look(find).is_none());
}
