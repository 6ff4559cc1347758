use super::find;
use crate::cause::test_view::{StepScript, play};

#[test]
fn rare_slow_steps_are_found_without_edits() {
    let usual = StepScript::new().kernels(4, "relax(float*)", 100.0);
    let slow = usual.clone().host(5000.0).kernel("relax(float*)", 100.0);
    let mut steps = vec![usual; 20];
    steps[7] = slow.clone();
    steps[14] = slow;
    let found = play(&steps).look(find).unwrap();
    assert!(found.text.starts_with("2 of 18 steps"), "{}", found.text);
    assert!(found.most.is_empty() && found.least.is_empty());
}

#[test]
fn a_slow_first_step_is_silent() {
    let usual = StepScript::new().kernels(4, "relax(float*)", 100.0);
    let mut steps = vec![usual.clone(); 20];
    steps[0] = usual.host(5000.0).kernel("relax(float*)", 100.0);
    assert!(play(&steps).look(find).is_none());
}

#[test]
fn equal_steps_are_silent() {
    let step = StepScript::new().kernels(4, "relax(float*)", 100.0);
    assert!(step.play(20).look(find).is_none());
}
