use super::{find_empty_cache, find_in_loop, find_page_locking};
use crate::cause::test_view::StepScript;

#[test]
fn allocation_in_the_loop_is_found() {
    let step = StepScript::new()
        .call("cudaMalloc_v3020", 150.0)
        .kernels(4, "relax(float*)", 20.0)
        .wait("cudaFree_v3020");
    let window = step.play(5);
    let found = window.look(find_in_loop).unwrap();
    assert!(found.text.contains("2 times a step (`cudaMalloc` with most time)"), "{}", found.text);
    assert!(found.hint.contains("allocate once before the loop"));
    // The first call of the window's calls is a launch: the first allocation came before.
    assert!(found.most.call_ns.values().all(|ns| *ns == 0));
    assert_eq!(found.least.call_ns.values().max(), Some(&22_500));
    assert!(window.look(find_page_locking).is_none());
}

#[test]
fn a_pool_that_gives_its_memory_back_is_named() {
    let step = StepScript::new()
        .call("cudaMallocAsync_v11020", 400.0)
        .kernels(4, "relax(float*)", 20.0)
        .call("cudaFreeAsync_v11020", 2.0)
        .wait("cudaStreamSynchronize");
    let found = step.play(5).look(find_in_loop).unwrap();
    assert!(found.hint.contains("cudaMemPoolAttrReleaseThreshold"), "{}", found.hint);
}

#[test]
fn the_cache_of_torch_is_named() {
    let step = StepScript::new()
        .call("cudaMalloc", 150.0)
        .kernels(4, "void at::native::add<float>(int)", 20.0)
        .wait("cudaFree");
    let window = step.play(5);
    assert!(window.look(find_in_loop).is_none());
    let found = window.look(find_empty_cache).unwrap();
    assert!(found.hint.contains("empty_cache"));
}

#[test]
fn page_locking_is_found() {
    let step = StepScript::new()
        .call("cudaHostRegister", 900.0)
        .copy("HtoD", 16_000_000, 300.0, Some(false))
        .wait("cudaStreamSynchronize")
        .call("cudaHostUnregister", 300.0);
    let found = step.play(5).look(find_page_locking).unwrap();
    assert!(found.text.contains("cudaHostRegister"), "{}", found.text);
}

#[test]
fn allocation_before_the_loop_is_silent() {
    let window = StepScript::new().kernels(8, "relax(float*)", 20.0).play(5);
    assert!(window.look(find_in_loop).is_none());
    assert!(window.look(find_page_locking).is_none());
}
