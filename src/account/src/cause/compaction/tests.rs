use super::find;
use crate::cause::test_view::StepScript;

#[test]
fn a_wait_for_the_size_of_a_selection_is_found() {
    let step = StepScript::new()
        .kernel("cupy_less__float_bool", 80.0)
        .kernels(3, "cupy_scan_naive", 30.0)
        .copy("DtoH", 4, 1.5, Some(true))
        .host(40.0)
        .kernel("cupy_getitem_mask", 80.0);
    let window = step.play(5);
    let found = window.look(find).unwrap();
    assert!(found.text.contains("after `cupy_scan_naive`"), "{}", found.text);
    assert!(found.hint.contains("cp.where"));
    // Half of the scans' 90 µs goes in any case, all of them at most, and the copy with them.
    assert!((45_000.0..47_000.0).contains(&window.removed_ns(&found.least)));
    assert!((90_000.0..92_000.0).contains(&window.removed_ns(&found.most)));
    assert!(window.look(super::value_read::find).is_none());
}

#[test]
fn a_plain_read_is_no_selection() {
    let step =
        StepScript::new().kernel("cupy_sum", 80.0).copy("DtoH", 4, 1.5, Some(true)).host(40.0);
    assert!(step.play(5).look(find).is_none());
}
