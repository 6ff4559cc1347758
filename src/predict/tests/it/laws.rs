//! Laws that hold for all sizes: more work is never faster, faster hardware is never slower, and
//! nothing is faster than its speed-of-light bound.

use proptest::prelude::*;
use rgpu_predict::Dtype;
use rgpu_predict::collective::{self, Op, Topology};
use rgpu_predict::dtype::MathKind;
use rgpu_predict::hw::Gpu;
use rgpu_predict::kernel::{Attention, Context, Experts, Gemm, LaunchMode};

use super::gpu;

const GPUS: &[&str] = &["a100", "h100", "h200", "b200", "b300", "gb200", "gb300", "mi300x"];

fn any_gpu() -> impl Strategy<Value = &'static str> {
    prop::sample::select(GPUS)
}

fn any_dtype() -> impl Strategy<Value = Dtype> {
    prop::sample::select(vec![Dtype::Bf16, Dtype::Fp8, Dtype::Nvfp4, Dtype::Mxfp4, Dtype::Int4])
}

fn any_launch() -> impl Strategy<Value = LaunchMode> {
    prop::sample::select(vec![LaunchMode::Graph, LaunchMode::Stream, LaunchMode::Synchronous])
}

fn size() -> impl Strategy<Value = f64> {
    (0_u32..16, 1_u32..256)
        .prop_map(|(power, odd)| f64::from(odd) * f64::from(1_u32 << power) / 8.0)
        .prop_map(|size| size.ceil().clamp(1.0, 1e6))
}

proptest! {
    #[test]
    fn no_product_is_faster_than_light(name in any_gpu(), dtype in any_dtype(), m in size(), n in size(), k in size()) {
        let gpu = gpu(name);
        let time = Gemm::new(m, n, k, dtype).time(&Context::new(&gpu));
        prop_assert!(time.time_ns() >= time.bound_ns());
        prop_assert!(time.bound_ns() > 0.0 && time.time_ns().is_finite());
        prop_assert!(time.work.padded_flops >= time.work.flops && time.work.wave_factor >= 1.0);
    }

    #[test]
    fn more_bandwidth_or_peak_is_never_slower(name in any_gpu(), m in size(), n in size(), k in size(), by in 1.0_f64..8.0, launch in any_launch()) {
        let slow = gpu(name);
        let mut fast = slow;
        fast.hbm *= by;
        let gemm = Gemm::new(m, n, k, Dtype::Bf16);
        let time_ns = |gpu: &Gpu| gemm.time(&Context { launch, ..Context::new(gpu) }).time_ns();
        let (before, after) = (time_ns(&slow), time_ns(&fast));
        prop_assert!(after <= before * (1.0 + 1e-9));
        let bound = |gpu: &Gpu| gemm.time(&Context::new(gpu)).bound_ns();
        prop_assert!(bound(&fast) <= bound(&slow));
        fast.peaks[MathKind::Half.index()] *= by;
        prop_assert!(time_ns(&fast) <= after * (1.0 + 1e-9));
    }

    #[test]
    fn a_larger_product_has_no_smaller_bound(name in any_gpu(), dtype in any_dtype(), m in size(), n in size(), k in size(), more in 1.0_f64..64.0) {
        let gpu = gpu(name);
        let context = Context::new(&gpu);
        let small = Gemm::new(m, n, k, dtype).time(&context).bound_ns();
        prop_assert!(Gemm::new(m + more.ceil(), n, k, dtype).time(&context).bound_ns() >= small);
        prop_assert!(Gemm::new(m, n + more.ceil(), k, dtype).time(&context).bound_ns() >= small);
        prop_assert!(Gemm::new(m, n, k + more.ceil(), dtype).time(&context).bound_ns() >= small);
    }

    #[test]
    fn attention_grows_with_its_context(name in any_gpu(), queries in 1_u32..4096, more in 0_u32..4096, window in prop::option::of(1_u32..4096)) {
        let gpu = gpu(name);
        let mut attention = Attention::new(32.0, 8.0, 128.0, Dtype::Bf16);
        attention.queries = f64::from(queries);
        attention.keys = f64::from(queries);
        attention.window = window.map(f64::from);
        let short = attention.time(&Context::new(&gpu));
        attention.keys += f64::from(more);
        let long = attention.time(&Context::new(&gpu));
        prop_assert!(long.bound_ns() >= short.bound_ns());
        prop_assert!(long.time_ns() >= long.bound_ns());
        let pairs = attention.pairs();
        prop_assert!(pairs <= attention.queries * attention.keys && pairs > 0.0);
    }

    #[test]
    fn experts_touched_are_between_those_chosen_and_all(experts in 2_u32..512, chosen in 1_u32..16, tokens in 1_u32..100_000) {
        let chosen = chosen.min(experts);
        let layer = Experts {
            experts: f64::from(experts), chosen: f64::from(chosen), hidden: 1024.0, inner: 512.0,
            expert_ranks: 1.0, a: Dtype::Bf16, b: Dtype::Bf16,
        };
        let touched = layer.touched(f64::from(tokens));
        prop_assert!(touched >= f64::from(chosen) - 1e-6 && touched <= f64::from(experts) + 1e-9);
    }

    #[test]
    fn collectives_grow_with_size_and_stay_below_light(name in any_gpu(), ranks in 2_u32..64, bytes in 1_u64..1 << 32, op in prop::sample::select(Op::ALL)) {
        let gpu = gpu(name);
        let Some(topology) = Topology::for_gpu(&gpu) else { return Ok(()) };
        prop_assume!(topology.joins(f64::from(ranks)));
        let time = |bytes: f64| collective::predict(op.0, bytes, f64::from(ranks), &topology, None);
        let (small, large) = (time(bytes as f64), time(2.0 * bytes as f64));
        prop_assert!(large.time_ns() >= small.time_ns());
        prop_assert!(small.time_ns() >= small.bound_ns, "{:?}", small);
    }
}
