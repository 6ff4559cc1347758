use super::*;
use rgpu_format::nsys_row::NativeStack;

fn call(start_ns: u64, thread: u64) -> CallEvent {
    CallEvent { name: 0, start_ns, duration_ns: 10, thread, waits: false, rank: None }
}

fn frame(function: i64, line: u32) -> PythonFrame {
    PythonFrame { function, file: function + 100, line: Some(line) }
}

/// Stacks of Python on a thread: start, and frames innermost first.
fn timed(stacks: &[(i64, u64, &[PythonFrame])], strings: &Strings) -> TimedStacks {
    let mut reader = Reader::new(strings);
    for (start_ns, thread, frames) in stacks {
        let entry = reader.python(frames).0.unwrap();
        let (start_ns, end_ns) = (*start_ns, *start_ns + 15);
        let stack = TimedStack { thread: *thread, start_ns, end_ns, entry };
        reader.found.timed.push(stack);
    }
    reader.finish()
}

fn strings() -> Strings {
    let all = [
        (1, "&lt;module&gt;"),
        (101, "train.py"),
        (2, "step"),
        (102, "lib/net.py"),
        (3, "backward"),
        (103, "/v/site-packages/torch/autograd/__init__.py"),
    ];
    all.map(|(id, text)| (id, text.to_owned())).into_iter().collect()
}

/// Function and line of each call's innermost frame.
fn innermost(stacks: &Stacks, calls: usize) -> Vec<String> {
    let text = |call: u32| {
        let frame = stacks.frames().get(stacks.of_call(call).next()? as usize)?;
        Some(format!("{}:{}", frame.function, frame.line?))
    };
    (0..calls as u32).map(|call| text(call).unwrap_or_default()).collect()
}

#[test]
fn a_stack_belongs_to_the_call_that_begins_in_its_time() {
    let strings = strings();
    let stacks: &[(i64, u64, &[PythonFrame])] = &[
        (1095, 7, &[frame(2, 5), frame(1, 9)]),
        (1195, 8, &[frame(1, 3)]),
        // No call begins in the 15 ns of this one.
        (1600, 7, &[frame(1, 4)]),
    ];
    let calls = [call(100, 7), call(150, 8), call(200, 8), call(300, 9), call(700, 7)];
    let found = timed(stacks, &strings).of_calls(&calls, 1000);
    assert_eq!(innermost(&found, 5), ["step:5", "", "<module>:3", "", ""]);
    assert_eq!(found.of_call(0).count(), 2);
}

#[test]
fn a_call_between_two_stacks_has_what_they_have_in_common() {
    let strings = strings();
    let main = frame(1, 9);
    let (a, b) = ([frame(2, 5), frame(2, 2), main], [frame(2, 6), frame(2, 2), main]);
    let far = [frame(2, 6), frame(2, 3), main];
    let stacks: &[(i64, u64, &[PythonFrame])] = &[(95, 7, &a), (295, 7, &b), (495, 7, &far)];
    let calls: Vec<CallEvent> = (1..=6).map(|at| call(100 * at, 7)).collect();
    let found = timed(stacks, &strings).of_calls(&calls, 0);
    // The program's outermost frame alone says nothing, and after the last stack nothing is known.
    assert_eq!(innermost(&found, 6), ["step:5", "step:2", "step:6", "", "step:6", ""]);
}

#[test]
fn threads_of_the_backward_pass_have_the_place_of_its_call() {
    let strings = strings();
    let backward = [frame(3, 300), frame(1, 12)];
    let stacks: &[(i64, u64, &[PythonFrame])] =
        &[(95, 7, &[frame(2, 5), frame(1, 9)]), (295, 7, &backward), (595, 7, &[frame(1, 13)])];
    let calls =
        [call(100, 7), call(200, 8), call(300, 7), call(400, 8), call(500, 8), call(600, 7)];
    let calls: Vec<CallEvent> = calls.into_iter().chain([call(700, 8)]).collect();
    let found = timed(stacks, &strings).of_calls(&calls, 0);
    let expected =
        ["step:5", "", "backward:300", "backward:300", "backward:300", "<module>:13", ""];
    assert_eq!(innermost(&found, 7), expected);
}

#[test]
fn native_frames_lose_addresses() {
    let strings: Strings = [(1, "main"), (2, "0x7ff9"), (3, "/w/hops")]
        .map(|(id, s)| (id, s.to_owned()))
        .into_iter()
        .collect();
    let mut reader = Reader::new(&strings);
    let frame = |symbol, is_resolved| NativeFrame { symbol, module: 3, is_resolved };
    let stack = NativeStack { frames: vec![frame(2, false), frame(1, true)], ..Default::default() };
    let (entry, new) = reader.native(&stack.frames);
    assert_eq!((entry.is_some(), new), (true, 2));
    assert_eq!(reader.native(&stack.frames), (entry, 0));
    let functions: Vec<String> =
        reader.finish().stacks.frames().iter().map(|frame| frame.function.to_string()).collect();
    assert_eq!(functions, ["main", ""]);
}

/// The trace of a fixture's report.
fn recorded(name: &str) -> rgpu_model::Trace {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/nsys/2025.3.1");
    let bytes = std::fs::read(format!("{root}/{name}/report.nsys-rep")).unwrap();
    let imported = crate::nsys::import_report(&bytes, "raw/report.nsys-rep").unwrap();
    imported.sidecars.trace.unwrap()
}

/// For each line of `file` the number of kernels and copies whose calls have such a frame.
fn lines(trace: &rgpu_model::Trace, file: &str) -> BTreeMap<u32, usize> {
    let mut lines = BTreeMap::new();
    for call in trace.work.iter().filter_map(|work| work.call) {
        let of_call = trace.stacks.of_call(call);
        let frames = of_call.filter_map(|at| trace.stacks.frames().get(at as usize));
        let line = frames.filter(|frame| frame.file.ends_with(file)).find_map(|frame| frame.line);
        if let Some(line) = line {
            *lines.entry(line).or_default() += 1;
        }
    }
    lines
}

#[test]
fn a_recording_of_a_training_has_the_lines_of_its_source() {
    let trace = recorded("frames-stacks");
    // 15 steps with three layers: a copy and its wait, the forward pass, the backward pass with
    // its thread, the optimizer, and the read of the loss.
    let main = lines(&trace, "/host.py");
    let net = lines(&trace, "/lib/model.py");
    for line in [21, 22, 23, 24, 8] {
        assert!(main.get(&line).is_some_and(|calls| *calls >= 15), "host.py:{line}: {main:?}");
    }
    assert!(main[&23] >= 15 * 10, "the thread of the backward pass: {main:?}");
    for line in [6, 7, 19, 20] {
        assert!(net.get(&line).is_some_and(|calls| *calls >= 15), "model.py:{line}: {net:?}");
    }
    assert!(trace.stacks.frames().iter().any(|frame| &*frame.function == "<module>"));
}

#[test]
fn calls_of_a_first_recording_get_the_lines_of_a_second_one() {
    let (mut first, second) = (recorded("frames-first"), recorded("frames-stacks"));
    assert!(first.stacks.is_empty());
    let found = crate::join::second_pass::add_stacks(&mut first, &second);
    let (first, second) = (lines(&first, "/lib/model.py"), lines(&second, "/lib/model.py"));
    assert!(found > 500, "{found}");
    for line in [6, 7, 19, 20] {
        let [of_first, of_second] = [&first, &second].map(|lines| lines[&line] as f64);
        assert!((of_first / of_second - 1.0).abs() < 0.1, "{line}: {first:?} {second:?}");
    }
}

#[test]
fn a_recording_of_a_native_program_has_its_functions_in_both_formats() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/nsys/2025.3.1");
    let export = format!("{root}/frames-native/report.sqlite");
    let export = crate::nsys::import_sqlite(std::path::Path::new(&export), "raw/r.sqlite").unwrap();
    let (native, export) = (recorded("frames-native"), export.sidecars.trace.unwrap());
    let frames = |trace: &rgpu_model::Trace| {
        let of_call = |call| {
            let frames = trace.stacks.of_call(call);
            frames.map(|at| trace.stacks.frames()[at as usize].clone()).collect::<Vec<_>>()
        };
        (0..trace.calls.len() as u32).map(of_call).collect::<Vec<_>>()
    };
    assert_eq!(native.calls, export.calls);
    assert_eq!(frames(&native), frames(&export));
    let sends = frames(&native)
        .iter()
        .filter(|frames| frames.iter().any(|frame| frame.function.starts_with("Feed::send(")))
        .count();
    // 17 steps: a copy and a wait each, and what lies between two such calls.
    assert!(sends >= 34, "{sends}");
}

#[test]
fn graphs_of_a_first_recording_get_the_kernels_of_a_second_one() {
    let (mut first, second) = (recorded("graphs-whole"), recorded("graphs-nodes"));
    let graphs = |trace: &rgpu_model::Trace| {
        let kind = rgpu_model::trace::TraceWorkKind::Graph;
        trace.work.iter().filter(|work| work.kind == kind).count()
    };
    let ends: Vec<u64> = first.work.iter().map(|work| work.end_ns()).collect();
    let before = graphs(&first);
    let replaced = crate::join::second_pass::add_graph_nodes(&mut first, &second);
    assert_eq!((before, replaced, graphs(&first)), (15, 15, 0));
    // 20 hops and a norm in each graph; the times of the first recording stay.
    let kernels =
        first.work.iter().filter(|work| first.names[work.name as usize].starts_with("hop("));
    assert_eq!(kernels.count(), 15 * 20);
    let last = |work: &[rgpu_model::trace::TraceWork]| work.iter().map(|work| work.end_ns()).max();
    assert_eq!(last(&first.work), ends.into_iter().max());
    assert!(first.work.is_sorted_by_key(|work| work.start_ns));
}
