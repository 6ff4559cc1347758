use super::find;
use crate::cause::test_view::{StepScript, play};

#[test]
fn a_step_of_short_kernels_is_found() {
    let step = StepScript::new().kernels(50, "void at::native::add<float>(int)", 1.0).host(10.0);
    let window = step.play(5);
    let found = window.look(find).unwrap();
    assert!(found.text.contains("50 kernels, copies and fills a step (1.00 µs in the median)"));
    assert!(found.hint.contains("torch.compile"));
    // All but the first launch of each step.
    assert_eq!(found.most.in_graph.len(), 4 * 49);
    assert_eq!(found.most.host_before_ns.values().sum::<u64>(), 0);
    assert!(found.least.host_before_ns.values().sum::<u64>() > 0);
}

/// The host launches while the GPU works: its time on the path is more than the GPU's idle time.
#[test]
fn wait_and_work_together_are_no_longer_than_the_step() {
    let window = StepScript::new().kernels(50, "relax(float*)", 3.0).host(10.0).play(5);
    let (text, step_ns) = window.look(|view| (find(view).unwrap().text, view.step_ns()));
    let micros = |before: &str| {
        let rest = text.split(before).nth(1).unwrap();
        rest.split_whitespace().next().unwrap().parse::<f64>().unwrap()
    };
    let (waits, works) = (micros("runs: for "), micros("work takes "));
    assert!(waits > 50.0 && works > 140.0, "{text}");
    assert!(waits + works <= step_ns / 1e3 + 0.2, "{text}");
}

#[test]
fn a_step_of_long_kernels_is_silent() {
    let step = StepScript::new().kernels(50, "relax(float*)", 100.0);
    assert!(step.play(5).look(find).is_none());
}

#[test]
fn a_step_that_changes_is_silent() {
    let steps: Vec<StepScript> =
        (0..6).map(|step| StepScript::new().kernels(30 + 4 * step, "a(int)", 1.0)).collect();
    assert!(play(&steps).look(find).is_none());
}
