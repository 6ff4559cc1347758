use super::find;
use crate::cause::test_view::StepScript;

fn step(pageable: bool) -> StepScript {
    StepScript::new()
        .kernels(4, "void at::native::add<float>(int)", 20.0)
        .copy("HtoD", 512, 1.0, Some(pageable))
        .kernels(4, "void at::native::add<float>(int)", 20.0)
}

#[test]
fn a_small_array_copied_in_each_step_is_found() {
    let found = step(true).play(5).look(find).unwrap();
    assert!(found.text.contains("from pageable memory to the GPU once a step (512 B in all)"));
    assert!(found.hint.contains("device=\"cuda\""));
    assert_eq!(found.least.no_wait.len(), 4);
}

#[test]
fn a_small_pinned_copy_is_silent() {
    assert!(step(false).play(5).look(find).is_none());
}
