use super::{find_to_gpu, find_to_host};
use crate::cause::test_view::StepScript;

/// 10 MB take 1 ms from pageable memory, and 0.2 ms at the 50 GB/s of the test's GPU.
fn step(kind: &str, pageable: bool) -> StepScript {
    StepScript::new().copy(kind, 10_000_000, 1000.0, Some(pageable)).kernels(
        4,
        "void at::native::add<float>(int)",
        200.0,
    )
}

#[test]
fn copies_from_pageable_memory_are_found() {
    let window = step("HtoD", true).play(5);
    let found = window.look(find_to_gpu).unwrap();
    assert!(found.text.contains("from pageable memory at 10.0 GB/s"), "{}", found.text);
    assert!(found.hint.contains("pin_memory"));
    assert!(found.most.work_ns.values().all(|ns| *ns == 200_000));
    assert!(found.least.work_ns.values().all(|ns| *ns == 220_000));
    assert!(found.least.own_stream.is_empty());
    assert!(found.most.call_ns.values().all(|ns| *ns <= 6_000));
    assert!(window.look(find_to_host).is_none());
}

#[test]
fn copies_to_pageable_memory_are_found() {
    let window = step("DtoH", true).play(5);
    assert!(window.look(find_to_host).unwrap().text.contains("to pageable memory"));
}

#[test]
fn copies_from_pinned_memory_are_silent() {
    assert!(step("HtoD", false).play(5).look(find_to_gpu).is_none());
}
