use super::{find, overlapping};
use crate::cause::test_view::StepScript;

#[test]
fn one_thread_is_silent() {
    let step = StepScript::new().kernels(10, "relax(float*)", 20.0);
    assert!(step.play(5).look(find).is_none());
}

#[test]
fn calls_that_overlap_take_longer() {
    // The machine of the tests plays one call at a time; here two threads launch at once.
    let step = StepScript::new().kernels(10, "relax(float*)", 1.0).on_thread(2).kernels(
        10,
        "relax(float*)",
        1.0,
    );
    let mut window = step.play(5);
    let calls = &mut window.trace.calls;
    for pair in 0..calls.len() / 20 {
        for at in 5..10 {
            // The other thread's call begins with it, and both take ten times as long.
            let (first, second) = (pair * 20 + at, pair * 20 + at + 10);
            calls[first].duration_ns = 60_000;
            calls[second].start_ns = calls[first].start_ns + 1_000;
            calls[second].duration_ns = 60_000;
        }
    }
    let found = window.look(|view| {
        let held = overlapping(&view.host().all);
        assert!(held.iter().any(|held| *held) && !held.iter().all(|held| *held));
        find(view)
    });
    // Whether it is on the path is the graph's to say; if it is, both calls are named.
    if let Some(found) = found {
        assert!(found.most.call_ns.values().all(|ns| *ns < 60_000));
    }
}
