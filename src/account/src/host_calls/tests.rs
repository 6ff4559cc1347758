use super::{CallKind, Framework, median};
use crate::cause::test_view::StepScript;

#[test]
fn calls_know_what_they_do() {
    let cases = [
        ("cudaLaunchKernel_v7000", CallKind::Launch),
        ("cudaLaunchKernelExC_v11060", CallKind::Launch),
        ("cuLaunchKernelEx", CallKind::Launch),
        ("cudaMemcpyAsync_v3020", CallKind::Copy),
        ("cudaMemsetAsync", CallKind::Fill),
        ("cudaStreamSynchronize_v3020", CallKind::Wait),
        ("cuCtxSynchronize", CallKind::Wait),
        ("cudaEventQuery", CallKind::Query),
        ("cudaEventRecordWithFlags", CallKind::Record),
        ("cudaStreamWaitEvent", CallKind::StreamWait),
        ("cudaMalloc_v3020", CallKind::Allocate),
        ("cudaMallocAsync_v11020", CallKind::Allocate),
        ("cudaMallocHost_v3020", CallKind::Pin),
        ("cudaHostUnregister", CallKind::Pin),
        ("cuMemHostAlloc", CallKind::Pin),
        ("cuMemSetAccess", CallKind::Allocate),
        ("cudaFree", CallKind::Free),
        ("cudaFreeHost", CallKind::Pin),
        ("cudaGraphLaunch_v10000", CallKind::GraphLaunch),
        ("cudaStreamBeginCapture", CallKind::BeginCapture),
        ("cudaGraphInstantiateWithFlags", CallKind::GraphMake),
        ("cudaGraphExecDestroy", CallKind::GraphDestroy),
        ("cuGraphExecUpdate_v2", CallKind::GraphMake),
        ("cuLibraryLoadData", CallKind::Load),
        ("cudaGetDevice", CallKind::Other),
    ];
    for (name, kind) in cases {
        assert_eq!(CallKind::of(name), kind, "{name}");
    }
}

#[test]
fn calls_have_their_steps_and_the_time_before() {
    let step = StepScript::new().kernel("a(int)", 10.0).host(30.0).kernel("b(int)", 10.0);
    let window = step.play(4);
    window.look(|view| {
        let host = view.host();
        // Three steps of the window, and the launch that begins the fourth.
        assert_eq!(host.all.len(), 7);
        let steps: Vec<u32> = host.all.iter().map(|call| call.step).collect();
        assert_eq!(steps, [0, 0, 1, 1, 2, 2, 3]);
        assert_eq!(host.all[1].before_ns, 31_000);
        assert_eq!(host.all[0].before_ns, 0);
        assert_eq!(host.framework, Framework::Cuda);
        assert!(host.call(host.all[1].at).is_some());
        assert!(host.call(u32::MAX).is_none());
    });
}

#[test]
fn a_nested_call_belongs_to_the_outer_one() {
    let mut window = StepScript::new().kernels(2, "a(int)", 10.0).play(3);
    // The first call is around the second.
    window.trace.calls[0].duration_ns = 9_500;
    window.look(|view| {
        let host = view.host();
        // Two of the first step's calls are one.
        assert_eq!(host.all.len(), 4);
        assert_eq!(host.all[0].work_count, 2);
    });
}

#[test]
fn the_language_is_known_by_kernels() {
    let framework = |name: &str| {
        StepScript::new().kernel(name, 10.0).play(3).look(|view| view.host().framework)
    };
    assert_eq!(framework("void at::native::add<float>(int)"), Framework::Torch);
    assert_eq!(framework("loop_add_fusion_3"), Framework::Jax);
    assert_eq!(framework("cupy_scan_naive"), Framework::Cupy);
    assert_eq!(framework("my_fusion<int>(float*)"), Framework::Cuda);
}

#[test]
fn a_median_is_the_middle() {
    assert_eq!(median(vec![]), 0);
    assert_eq!(median(vec![5, 1, 9]), 5);
}
