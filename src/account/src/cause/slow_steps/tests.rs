use super::find;
use crate::cause::test_view::{StepScript, play};

fn usual() -> StepScript {
    StepScript::new().kernels(4, "relax(float*)", 100.0)
}

/// The same work with a pause of the host.
fn slow() -> StepScript {
    StepScript::new().kernels(3, "relax(float*)", 100.0).host(5000.0).kernel("relax(float*)", 100.0)
}

/// Thirty steps, of which `at` are `script`.
fn with(at: &[usize], script: &StepScript) -> Vec<StepScript> {
    let mut steps = vec![usual(); 30];
    for at in at {
        steps[*at] = script.clone();
    }
    steps
}

#[test]
fn rare_slow_steps_are_found_without_edits() {
    let found = play(&with(&[7, 14, 21], &slow())).look(find).unwrap();
    assert!(found.text.starts_with("3 of 25 steps"), "{}", found.text);
    assert!(found.most.is_empty() && found.least.is_empty());
}

#[test]
fn warm_up_the_end_and_a_change_of_phase_are_silent() {
    assert!(play(&with(&[0, 1, 2], &slow())).look(find).is_none());
    assert!(play(&with(&[0, 28, 29], &slow())).look(find).is_none());
    // A stretch of slow steps is one event.
    assert!(play(&with(&[12, 13, 14, 15], &slow())).look(find).is_none());
    // An evaluation: a pause, and launches of its own.
    let evaluation = slow().kernels(8, "grade(float*)", 100.0);
    assert!(play(&with(&[7, 14, 21], &evaluation)).look(find).is_none());
}

#[test]
fn equal_steps_are_silent() {
    assert!(play(&with(&[], &slow())).look(find).is_none());
}
