use super::*;
use crate::cause::test_view::{StepScript, TestWindow, names};

/// A gain of the first cause, of steps whose busiest stream works `left_ns` after the change.
fn gain(low: f64, high: f64, left_ns: f64, found: Found) -> Gain<'static> {
    Gain { cause: &CAUSES[0], found, low, high, left_ns, instead: Vec::new() }
}

/// Looks at the replays of a window, as the account makes them without a time of the profiler.
fn replayed<T>(window: &TestWindow, look: impl FnOnce(&Replays<'_>, &[u32]) -> T) -> T {
    let work: Vec<u32> = window.steps.all.iter().flat_map(|step| step.work.clone()).collect();
    let mut boundaries = vec![0];
    for step in &window.steps.all {
        boundaries.push(boundaries[boundaries.len() - 1] + step.work.len() as u32);
    }
    boundaries.pop();
    let graph = Graph::new(&window.trace, &work);
    look(&Replays::new(&graph, &boundaries, [ToolTime::default(); 2]).unwrap(), &work)
}

#[test]
fn no_step_is_promised_that_is_shorter_than_its_work() {
    let (low, high) = gain(0.3, 0.35, 650.0, Found::default()).promised(1_000.0);
    assert!(low < 0.3 && (high - 0.3825).abs() < 1e-9, "{low} {high}");
    // What the replay gives is never cut: work of one stream may overlap.
    let (_, high) = gain(0.3, 0.35, 900.0, Found::default()).promised(1_000.0);
    assert!((high - 0.35).abs() < 1e-9, "{high}");
}

#[test]
fn work_that_leaves_its_stream_is_no_longer_its_streams() {
    let step = StepScript::new().copy("HtoD", 1 << 24, 30.0, Some(false)).kernel("mine(int)", 50.0);
    let window = step.play(4);
    let (before, after) = window.look(|view| {
        let mut edits = Edits::default();
        let copies = view.work().filter(|(_, work)| work.bytes.is_some()).map(|(at, _)| at);
        edits.own_stream.extend(copies.map(|at| (at, None)));
        (work_left_ns(view, &Edits::default()), work_left_ns(view, &edits))
    });
    assert!((before - 80_000.0).abs() < 1.0 && (after - 50_000.0).abs() < 1.0, "{before} {after}");
}

#[test]
fn a_profiler_makes_steps_of_python_longer_by_what_was_seen() {
    let window = StepScript::new().kernels(40, names::ADD, 1.0).host(20.0).play(8);
    let facts = GpuFacts { tool_ns: Some((1_000, 5_000)), ..window.facts };
    replayed(&window, |replays, work| {
        let step_ns = replays.base_ns();
        let tools = tool_times(replays.graph, work, replays.boundaries, &facts);
        let replays = Replays::new(replays.graph, replays.boundaries, tools).unwrap();
        for (base, multiple) in replays.bases.iter().zip(PYTHON_SLOWDOWN) {
            let seen = step_ns / base.step_ns;
            assert!((seen - multiple).abs() < 0.05, "{seen} is not {multiple}");
        }
    });
}

/// Half of the host's time is half of what is left of it without the profiler, until the GPU is the
/// limit.
#[test]
fn a_change_of_the_hosts_time_holds_without_the_profiler() {
    let window = StepScript::new().kernels(40, names::ADD, 1.0).host(20.0).play(8);
    let halved = window.look(|view| {
        let mut edits = Edits::default();
        for call in &view.host().all {
            edits.host_before_ns.insert(call.at, call.before_ns / 2);
            edits.call_ns.insert(call.at, call.duration_ns() / 2);
        }
        edits
    });
    let facts = GpuFacts { tool_ns: Some((1_000, 5_000)), ..window.facts };
    replayed(&window, |replays, work| {
        let tools = tool_times(replays.graph, work, replays.boundaries, &facts);
        let replays = Replays::new(replays.graph, replays.boundaries, tools).unwrap();
        let (low, high) = replays.gains(&halved);
        assert!(low > 0.3 && high < 0.6, "{low} {high}");
    });
}

#[test]
fn a_finding_names_what_else_gives_back_its_time() {
    let window = StepScript::new().kernels(4, names::MUL, 30.0).play(6);
    replayed(&window, |replays, work| {
        let faster = |ns: u64, change: &str| {
            let mut most = Edits::default();
            most.work_ns.extend(work.iter().map(|at| (*at, ns)));
            let share = replays.gains(&most).1;
            gain(share, share, 0.0, Found { change: change.to_owned(), most, ..Found::default() })
        };
        let kept = drop_told(vec![faster(10_000, "fuse"), faster(12_000, "tune")], replays);
        assert_eq!(kept.len(), 1);
        assert_eq!(kept[0].instead, ["tune"]);
        assert!(kept[0].hint().ends_with("in place of it or as a part: tune"));
    });
}
