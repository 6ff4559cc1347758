use super::find;
use crate::cause::test_view::StepScript;

fn step(queries: usize) -> StepScript {
    let mut step = StepScript::new().kernel("relax(float*)", 20.0);
    for _ in 0..queries {
        step = step.call("cudaEventQuery", 2.0);
    }
    step.kernel("relax(float*)", 20.0)
}

#[test]
fn many_questions_in_a_row_are_found() {
    let found = step(30).play(5).look(find).unwrap();
    assert!(found.text.contains("30 times a step"), "{}", found.text);
    assert_eq!(found.least.no_wait.len(), 4);
}

#[test]
fn a_few_questions_are_silent() {
    assert!(step(3).play(5).look(find).is_none());
}
