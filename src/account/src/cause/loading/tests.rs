use super::find;
use crate::cause::test_view::{StepScript, play};

#[test]
fn modules_loaded_in_the_loop_are_found() {
    let step = StepScript::new()
        .kernel("a(int)", 20.0)
        .host(2000.0)
        .call("cuModuleLoadData", 500.0)
        .kernel("b(int)", 20.0);
    let found = step.play(5).look(find).unwrap();
    assert!(found.text.contains("4 calls that load"), "{}", found.text);
}

#[test]
fn pauses_before_new_kernels_are_found() {
    let step = |number: usize| {
        let name = format!("triton_poi_fused_{number}");
        StepScript::new().kernel("a(int)", 20.0).host(3000.0).kernel(&name, 20.0)
    };
    let found = play(&(0..6).map(step).collect::<Vec<_>>()).look(find).unwrap();
    assert!(found.text.contains("5 pauses before kernels that ran never before"));
}

#[test]
fn pauses_before_known_kernels_are_silent() {
    let step = StepScript::new().kernel("a(int)", 20.0).host(3000.0).kernel("b(int)", 20.0);
    assert!(step.play(6).look(find).is_none());
}
