use super::find;
use crate::cause::test_view::StepScript;

/// Four streams whose kernels a small one on stream 7 keeps apart: each waits for all before.
fn serialised() -> crate::cause::test_view::TestWindow {
    let mut step = StepScript::new();
    for number in 0..8 {
        step = step.on_stream(13 + number % 4).kernel("relax(float*)", 80.0);
        step = step.on_stream(7).kernel("drift(float*)", 2.0);
    }
    let mut window = step.play(5);
    // What the default stream does: work waits for all work that was launched before it.
    let mut end_ns = 0;
    for work in &mut window.trace.work {
        work.start_ns = work.start_ns.max(end_ns + 4_000);
        end_ns = work.start_ns + work.duration_ns;
    }
    for at in 0..window.steps.all.len() {
        let first = window.steps.all[at].work[0] as usize;
        window.steps.all[at].start_ns = window.trace.work[first].start_ns;
        if at > 0 {
            window.steps.all[at - 1].end_ns = window.steps.all[at].start_ns;
        }
    }
    window
}

#[test]
fn work_on_the_default_stream_between_others_is_found() {
    let found = serialised().look(find).unwrap();
    assert!(found.text.contains("8 pieces of work a step (first `drift`) run on stream 7"));
    assert!(found.is_bound);
    assert_eq!(found.most.no_event.len(), 4 * 16);
}

#[test]
fn streams_that_run_side_by_side_are_silent() {
    let mut step = StepScript::new();
    for number in 0..8 {
        step = step.on_stream(13 + number % 4).kernel("relax(float*)", 80.0);
        step = step.kernel("drift(float*)", 2.0);
    }
    assert!(step.play(5).look(find).is_none());
}
