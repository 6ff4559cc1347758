//! What holds for every cause.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::test_view::{StepScript, TestWindow, names, play};
use super::*;

#[test]
fn ids_are_snake_case_and_come_once() {
    let ids: BTreeSet<&str> = CAUSES.iter().map(|cause| cause.id).collect();
    assert_eq!(ids.len(), CAUSES.len());
    let is_snake =
        |id: &&str| id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    assert!(ids.iter().all(is_snake));
}

#[test]
fn a_step_without_a_fault_has_no_finding() {
    let step = StepScript::new()
        .kernel(names::PRODUCT, 400.0)
        .kernel(names::FLASH, 300.0)
        .kernel("triton_per_fused_add_native_layer_norm_1", 50.0)
        .kernel(names::PRODUCT, 400.0);
    let window = step.play(6);
    for cause in CAUSES {
        let found = window.look(cause.find);
        assert!(found.is_none(), "{}: {}", cause.id, found.unwrap().text);
    }
}

/// A step of any of these, in any order.
fn any_step() -> impl Strategy<Value = StepScript> {
    const KERNELS: &[&str] = &[
        names::PRODUCT,
        names::CONVOLUTION,
        names::FLASH,
        names::FLASH_BACKWARD,
        names::ADD,
        names::MUL,
        names::FILL,
        names::CAST,
        names::COPY,
        names::CAT,
        names::SOFTMAX,
        names::SOFTMAX_BACKWARD,
        names::MEAN,
        "void at::native::vectorized_elementwise_kernel<(int)4, at::native::rsqrt_kernel_cuda(X)>(int)",
        "void <unnamed>::indexing_backward_kernel_small_stride<float>(const long *)",
        "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1>(T1::Params)",
        "void multi_bluestein_fft<(unsigned int)81>(X)",
        "input_scatter_fusion",
        "cupy_getitem_mask",
        "cupy_add__float64_float64_float64",
        "",
    ];
    let item = (0..KERNELS.len() + 4, 0_u32..400);
    prop::collection::vec(item, 1..60).prop_map(|items| {
        items.into_iter().fold(StepScript::new(), |step, (kind, us)| {
            let us = f64::from(us);
            match kind.checked_sub(KERNELS.len()) {
                None => step.kernel(KERNELS[kind], us),
                Some(0) => step.copy("DtoH", 4, us, Some(true)),
                Some(1) => step.wait("cudaStreamSynchronize"),
                Some(2) => step.call("cudaEventRecord", us),
                Some(_) => step.on_stream(13).set(64, us).on_stream(7),
            }
        })
    })
}

/// What edits of any cause keep to.
fn assert_edits_fit(window: &TestWindow, id: &str, edits: &Edits) {
    let (work, calls) = (window.trace.work.len(), window.trace.calls.len());
    assert!(edits.work_ns.keys().all(|at| (*at as usize) < work), "{id}");
    let all_calls = edits.call_ns.keys().chain(edits.host_before_ns.keys()).chain(&edits.no_wait);
    assert!(all_calls.into_iter().all(|at| (*at as usize) < calls), "{id}");
    let steps = window.steps.all.get(window.steps.window.clone()).unwrap_or_default();
    let in_window: BTreeSet<u32> = steps.iter().flat_map(|step| step.work.clone()).collect();
    assert!(edits.work_ns.keys().all(|at| in_window.contains(at)), "{id}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn causes_edit_only_the_window_and_break_on_nothing(
        scripts in prop::collection::vec(any_step(), 1..3),
        repeats in 1..6_usize,
        broken in any::<Option<u64>>(),
    ) {
        let steps: Vec<StepScript> =
            std::iter::repeat_n(scripts, repeats).flatten().collect();
        let mut window = play(&steps);
        if let Some(seed) = broken {
            break_trace(&mut window, seed);
        }
        for cause in CAUSES {
            let Some(found) = window.look(cause.find) else { continue };
            if broken.is_none() {
                assert_edits_fit(&window, cause.id, &found.least);
                assert_edits_fit(&window, cause.id, &found.most);
            }
            prop_assert!(!found.text.is_empty() && !found.text.ends_with('.'));
            prop_assert!(!found.hint.is_empty(), "{}", cause.id);
        }
    }
}

/// Numbers that no tool should write.
fn break_trace(window: &mut TestWindow, seed: u64) {
    let count = window.trace.work.len() as u64;
    let at = (seed % count.max(1)) as usize;
    if let Some(work) = window.trace.work.get_mut(at) {
        work.name = u32::MAX;
        work.duration_ns = u64::MAX;
        work.call = Some(u32::MAX);
    }
    let at = (seed / 7 % count.max(1)) as usize;
    if let Some(work) = window.trace.work.get_mut(at) {
        work.start_ns = u64::MAX - 5;
        work.call = None;
    }
    if let Some(call) = window.trace.calls.last_mut() {
        call.duration_ns = u64::MAX;
        call.name = u32::MAX;
    }
    if let Some(step) = window.steps.all.first_mut() {
        step.work.push(u32::MAX);
        step.end_ns = 0;
    }
}
