use super::find;
use crate::cause::test_view::StepScript;

fn step(us: f64) -> StepScript {
    StepScript::new()
        .kernel("void at::native::gather<float>(int)", 20.0)
        .kernels(10, "void at::native::add<float>(int)", 20.0)
        .host(us)
        .kernel("void at::native::gather<float>(int)", 20.0)
}

#[test]
fn a_long_pause_at_the_same_place_is_found() {
    let found = step(2000.0).play(5).look(find).unwrap();
    assert!(found.text.contains("before kernel `gather`"), "{}", found.text);
    assert!(found.text.contains("for 2.00 ms"), "{}", found.text);
    // Nothing is brought to the GPU after it.
    assert!(found.hint.contains("no input"), "{}", found.hint);
    assert!(found.decides.is_some());
    assert_eq!(found.most.host_before_ns.len(), 4);
}

#[test]
fn a_pause_before_input_is_one_of_a_loader() {
    let loading = StepScript::new().host(2000.0).copy("HtoD", 1 << 20, 20.0, Some(false)).kernels(
        10,
        "void at::native::add<float>(int)",
        20.0,
    );
    assert!(loading.play(5).look(find).unwrap().hint.contains("DataLoader"));
}

#[test]
fn host_time_that_the_gpu_hides_is_silent() {
    let step =
        StepScript::new().kernels(10, "void at::native::add<float>(int)", 500.0).host(2000.0);
    assert!(step.play(5).look(find).is_none());
}

#[test]
fn short_host_time_is_silent() {
    assert!(step(30.0).play(5).look(find).is_none());
}
