use super::find;
use crate::cause::test_view::StepScript;

#[test]
fn gradients_reduced_on_the_host_are_found() {
    let mut step = StepScript::new().kernels(10, "void at::native::add<float>(int)", 100.0);
    for megabytes in [25, 26, 27] {
        let bytes = megabytes * 1_000_000;
        step = step
            .copy("DtoH", bytes, 500.0, Some(false))
            .wait("cudaStreamSynchronize")
            .host(300.0)
            .copy("HtoD", bytes, 500.0, Some(false));
    }
    let window = step.play(4);
    let found = window.look(find).unwrap();
    assert!(found.text.contains("3 copies") || found.text.contains("6 copies"), "{}", found.text);
    assert!(found.hint.contains("nccl"));
    assert!(found.decides.is_none());
    assert_eq!(window.removed_ns(&found.most), 3_000_000.0);
    assert_eq!(window.removed_ns(&found.least), 0.85 * 3_000_000.0);
}

#[test]
fn results_that_stay_on_the_host_are_silent() {
    let step = StepScript::new()
        .copy("HtoD", 5_000_000, 100.0, Some(false))
        .kernels(10, "relax(float*)", 100.0)
        .copy("DtoH", 20_000_000, 400.0, Some(false));
    assert!(step.play(4).look(find).is_none());
}
