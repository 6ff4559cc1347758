use std::sync::Arc;

use rgpu_model::trace::{CallEvent, CodeFrame, HostEvent, StackMaker, TraceWork};

use super::*;

fn python(file: &str, line: u32, function: &str) -> CodeFrame {
    CodeFrame { file: file.into(), line: Some(line), function: function.into(), is_python: true }
}

fn native(file: &str, function: &str) -> CodeFrame {
    CodeFrame { file: file.into(), line: None, function: function.into(), is_python: false }
}

/// A trace whose calls have these stacks, innermost frame first. Each call lasts 10 ns.
fn trace(stacks: Vec<Vec<CodeFrame>>) -> Trace {
    let mut trace = Trace { names: vec!["hop(float *)".into()], ..Trace::default() };
    let mut maker = StackMaker::default();
    let mut entries = Vec::new();
    for (stack, call) in stacks.into_iter().zip(0_u32..) {
        let start_ns = u64::from(call) * 100;
        trace.calls.push(CallEvent {
            name: 0,
            start_ns,
            duration_ns: 10,
            thread: 1,
            waits: false,
            rank: None,
        });
        trace.work.push(TraceWork { call: Some(call), ..TraceWork::default() });
        entries.extend(maker.stack(stack).map(|entry| (call, entry)));
    }
    trace.stacks = maker.finish();
    trace.stacks.set_calls(entries);
    trace
}

fn told(trace: &Trace, calls: &[(u32, f64)]) -> Vec<String> {
    let places = OwnCode::new(trace).places(calls.iter().copied());
    let text = |place: CodePlace| {
        let line = place.line.map_or(String::new(), |line| format!(":{line}"));
        let function = place.function.unwrap_or_default();
        format!("{}{line} {function} {:.2}", place.file, place.share)
    };
    places.into_iter().map(text).collect()
}

#[test]
fn the_innermost_frame_outside_of_packages_is_the_place() {
    let linear = "/opt/venv/lib/python3.12/site-packages/torch/nn/modules/linear.py";
    let main = python("/w/job/train.py", 40, "<module>");
    let forward = python("/w/job/lib/model.py", 6, "forward");
    let trace = trace(vec![
        vec![python(linear, 134, "forward"), forward.clone(), main.clone()],
        vec![forward, main.clone()],
        vec![python(linear, 134, "forward"), main],
        // A thread of a package alone.
        vec![python(linear, 134, "forward")],
        vec![],
    ]);
    let calls = [(0, 30.0), (1, 30.0), (2, 20.0), (3, 10.0), (4, 10.0), (99, 0.0)];
    let expected = ["lib/model.py:6 forward 0.60", "train.py:40 <module> 0.20"];
    assert_eq!(told(&trace, &calls), expected);
    assert!(told(&trace, &[]).is_empty());
    assert!(told(&trace, &[(3, 1.0)]).is_empty());
}

#[test]
fn a_native_program_is_told_by_the_function_that_launches() {
    let program = "/w/job/hops";
    let stack = vec![
        native("/usr/lib/libcuda.so.1", "cuLaunchKernel"),
        native(program, "cudaLaunchKernel"),
        native(program, "hop(float *)"),
        native(program, "record(Chain const&)"),
        native(program, "main"),
        native("/usr/lib/libc.so.6", "__libc_start_main"),
    ];
    let mut trace = trace(vec![stack]);
    assert_eq!(told(&trace, &[(0, 5.0)]), ["hops record 1.00"]);
    // Frames of Python go before those of a native library, however deep they are.
    let entry = |frames: Vec<CodeFrame>| {
        let mut maker = StackMaker::default();
        let entry = maker.stack(frames).unwrap();
        let mut stacks = maker.finish();
        stacks.set_calls(vec![(0, entry)]);
        stacks
    };
    let both = vec![native("/w/job/ext.so", "solve()"), python("/w/job/run.py", 3, "step")];
    trace.stacks = entry(both);
    assert_eq!(told(&trace, &[(0, 5.0)]), ["run.py:3 step 1.00"]);
}

#[test]
fn small_places_are_left_out_and_at_most_three_are_told() {
    let stacks = (0..40).map(|line| vec![python("/w/job/run.py", line, "step")]).collect();
    let trace = trace(stacks);
    let mut calls: Vec<(u32, f64)> = (4..40).map(|call| (call, 1.0)).collect();
    calls.extend([(0, 100.0), (1, 90.0), (2, 80.0), (3, 70.0)]);
    let lines = ["run.py:0 step 0.27", "run.py:1 step 0.24", "run.py:2 step 0.21"];
    assert_eq!(told(&trace, &calls), lines);
    assert!(told(&trace, &[(4, f64::NAN), (5, -1.0)]).is_empty());
}

#[test]
fn without_stacks_the_functions_of_a_frameworks_trace_tell() {
    let mut trace = trace(vec![vec![], vec![]]);
    trace.host = vec![HostEvent {
        operator: Some(Arc::from("aten::mm")),
        function: Some(Arc::from("net.py(9): forward")),
        start_ns: 0,
        duration_ns: 50,
        thread: 1,
    }];
    assert_eq!(told(&trace, &[(0, 1.0), (1, 1.0)]), ["net.py:9 forward 0.50"]);
}
