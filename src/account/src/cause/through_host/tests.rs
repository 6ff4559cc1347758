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

#[test]
fn a_computation_on_the_host_is_told_apart_from_a_reduction() {
    let step = StepScript::new()
        .kernels(10, "void at::native::add<float>(int)", 100.0)
        .copy("DtoH", 4_000_000, 400.0, Some(true))
        .host(800.0)
        .call("cudaStreamIsCapturing", 0.5)
        .copy("HtoD", 4_000_000, 400.0, Some(true));
    let window = step.play(4);
    let found = window.look(find).unwrap();
    assert!(found.text.contains("the host works on them in between"), "{}", found.text);
    assert!(found.hint.contains(".cpu()"));
    assert!(found.decides.is_some());
    // The host's time between is that before the query.
    assert!(found.most.host_before_ns.values().all(|ns| *ns == 0));
    assert!(found.least.host_before_ns.values().any(|ns| (115_000..125_000).contains(ns)));
}
