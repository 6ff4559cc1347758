//! Findings of launches, from profiles made here and from recorded counters.

use super::*;
use crate::analyze;
use rgpu_model::Selection;
use rgpu_model::selection::{GeometrySum, KernelChoice};
use rgpu_model::timeline::{KernelSum, Timeline};

const SM: &str = "sm__throughput.avg.pct_of_peak_sustained_elapsed";
const MEMORY: &str = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed";
const DRAM: &str = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed";
const TENSOR: &str = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed";
const WAVES: &str = "launch__waves_per_multiprocessor";

fn launch(kernel: &str, us: f64, metrics: &[(&str, f64)]) -> Launch {
    Launch {
        kernel: kernel.to_owned(),
        duration_ns: Some(us * 1e3),
        grid: [256, 1, 1],
        ..Launch::from_numbers(metrics)
    }
}

fn analyzed(launches: Vec<Launch>) -> Profile {
    let mut profile =
        Profile { device: Some("NVIDIA H200".to_owned()), launches, ..Profile::default() };
    for (id, launch) in (0..).zip(&mut profile.launches) {
        launch.id = id;
        let ns = launch.duration_ns.unwrap() as u64;
        match profile.kernels.iter_mut().find(|sum| sum.kernel == launch.kernel) {
            Some(sum) => (sum.launches, sum.total_ns) = (sum.launches + 1, sum.total_ns + ns),
            None => profile.kernels.push(KernelSum {
                kernel: launch.kernel.clone(),
                launches: 1,
                total_ns: ns,
                ..KernelSum::default()
            }),
        }
    }
    analyze(&mut profile);
    profile
}

/// cuBLAS' product of 8192³ in BF16 and a thin one, as ncu's set `basic` recorded them.
#[test]
fn a_library_gemm_at_its_peak_is_not_told_to_use_tensor_cores() {
    let large = launch(
        "nvjet_sm90_tst_320x128_64x3_1x2_h_bz_coopB_NNT",
        1424.7,
        &[
            (SM, 93.53),
            (MEMORY, 94.7),
            (DRAM, 18.6),
            (TENSOR, 93.53),
            (WAVES, 1.0),
            ("l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed", 94.7),
            ("launch__sm_count", 132.0),
            ("sm__cycles_elapsed.avg", 2_208_143.2),
            ("sm__maximum_warps_per_active_cycle_pct", 18.75),
            ("device__attribute_compute_capability_major", 9.0),
            ("device__attribute_compute_capability_minor", 0.0),
        ],
    );
    let thin = launch(
        "nvjet_sm90_tst_64x80_64x11_1x4_h_bz_NNT",
        37.9,
        &[(SM, 23.81), (MEMORY, 75.6), (DRAM, 75.6), (TENSOR, 23.81), (WAVES, 0.97)],
    );
    let profile = analyzed(vec![large, thin]);
    let first = &profile.findings[0];
    assert_eq!(first.id, "tensor_bound");
    assert_eq!(
        first.text,
        "at 94 % of the tensor peak at its clock, about 784 TFLOP/s executed, padding included; little is left"
    );
    assert!(first.hint.starts_with("leave the kernel as it is"), "{}", first.hint);
    let told = |word: &str| profile.findings.iter().any(|f| f.hint.contains(word));
    assert!(!told("tensor cores where") && !told("use the tensor cores"));
    assert!(profile.findings.iter().all(|f| f.id != "occupancy_limited"));
    let verdicts: Vec<_> =
        profile.launches.iter().map(|l| &*l.classification.as_ref().unwrap().primary).collect();
    assert_eq!(verdicts, ["tensor_bound", "memory_bound"]);
    assert_eq!(profile.kernel_verdicts.len(), 1, "the thin one has 2.6 % of the time");
}

#[test]
fn a_gemm_below_its_peak_or_without_tensor_counters_is_not_told_that_little_is_left() {
    const ACTIVE: &str = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active";
    let name = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_execute_kernel";
    let told = |metrics: &[(&str, f64)]| {
        let first = analyzed(vec![launch(name, 500.0, metrics)]).findings.remove(0);
        assert!(!first.hint.contains("use the tensor cores"), "{}", first.hint);
        assert!(!first.hint.contains("tensor cores where"), "{}", first.hint);
        first.text
    };
    let busy = [(SM, 70.0), (MEMORY, 40.0), (TENSOR, 70.0)];
    assert_eq!(told(&busy), "the tensor cores are busy for 70 % of the time");
    // Busy on the SMs that run, of which a tail leaves many idle.
    let tail = [(SM, 75.0), (MEMORY, 40.0), (ACTIVE, 95.0), (TENSOR, 65.0)];
    assert_eq!(told(&tail), "the tensor cores are busy for 65 % of the time");
    let full = [(SM, 90.0), (MEMORY, 40.0), (ACTIVE, 92.0), (TENSOR, 88.0)];
    assert_eq!(told(&full), "at 88 % of the tensor peak at its clock; little is left");
    assert_eq!(told(&[(SM, 90.0), (MEMORY, 40.0)]), "the SMs run at 90 % of their peak");
}

#[test]
fn a_kernel_has_one_finding_of_a_verdict_with_the_advice_of_the_most_at_stake() {
    let name = "nvjet_sm90_tst_320x128_64x3_1x2_h_bz_coopB_NNT";
    let of = |us, tensor| launch(name, us, &[(SM, tensor), (MEMORY, 40.0), (TENSOR, tensor)]);
    let told = |launches: Vec<Launch>| {
        let mut findings = analyzed(launches).findings;
        findings.retain(|finding| finding.id == "tensor_bound");
        assert_eq!(findings.len(), 1, "{findings:#?}");
        let first = findings.remove(0);
        (first.text, first.hint.starts_with("leave"), first.covers[0].launches)
    };
    let below = "the tensor cores are busy for 70 % of the time".to_owned();
    assert_eq!(told(vec![of(900.0, 90.0), of(400.0, 70.0)]), (below, false, 2));
    let near = "at 90 % of the tensor peak at its clock; little is left".to_owned();
    assert_eq!(told(vec![of(900.0, 90.0), of(100.0, 70.0)]), (near, true, 2));
}

#[test]
fn an_fp32_gemm_of_a_library_is_told_of_tf32_whatever_its_throughput() {
    let name = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas";
    let counted = launch(name, 686.8, &[(SM, 86.15), (MEMORY, 66.9), (TENSOR, 0.0)]);
    let timed = launch(name, 686.8, &[]);
    for launch in [counted, timed] {
        let profile = analyzed(vec![launch]);
        let first = &profile.findings[0];
        assert_eq!(first.id, "fp32_gemm");
        assert!(first.hint.contains("TF32"), "{}", first.hint);
        assert_eq!(first.stake.as_ref().unwrap().ns, 515_100);
    }
}

#[test]
fn short_launches_of_many_kernels_are_one_finding_with_their_sum() {
    let mut launches: Vec<Launch> =
        (0..30).map(|n| launch(&format!("k{}", n % 3), 2.0, &[])).collect();
    launches.push(launch("long", 60.0, &[]));
    let profile = analyzed(launches);
    assert_eq!(profile.findings.len(), 1);
    let only = &profile.findings[0];
    assert_eq!(
        only.text,
        "30 launches of 3 kernels run for less than 4 µs, about as long as a launch takes: 97 % \
         of the launches, 50 % of the GPU time"
    );
    let stake = only.stake.as_ref().unwrap();
    assert_eq!((stake.ns, stake.of.as_str(), stake.share), (60_000, "kernel", 0.5));
    let covers: Vec<_> = only.covers.iter().map(|c| (c.launches, c.total_ns)).collect();
    assert_eq!(covers, [(10, 20_000); 3]);
    let why = |kernel: &str| {
        let verdict = profile.kernel_verdicts.iter().find(|v| v.kernel == kernel).unwrap();
        (verdict.verdict.clone(), verdict.text.clone())
    };
    assert_eq!(why("k0").0.as_deref(), Some("launch_bound"));
    assert!(why("long").0.is_none() && why("long").1.contains("no counters were measured"));
}

#[test]
fn short_launches_of_several_gpus_are_set_against_the_time_of_one() {
    use rgpu_model::timeline::DeviceTime;
    let launches: Vec<Launch> = (0..40).map(|n| launch(&format!("k{}", n % 2), 2.0, &[])).collect();
    let mut profile = analyzed(launches);
    let gpu = |device| DeviceTime { device, span_ns: 25_000, ..DeviceTime::default() };
    let devices = (0..4).map(gpu).collect();
    profile.timeline = Some(Timeline { devices, ..Timeline::default() });
    profile.findings.clear();
    analyze(&mut profile);
    // 80 µs of the 100 µs that the four GPUs have together.
    let only = &profile.findings[0];
    let end = "80 % of the time from the first kernel to the last (the mean of 4 GPUs)";
    assert!(only.text.ends_with(end), "{}", only.text);
    let stake = only.stake.as_ref().unwrap();
    assert_eq!((stake.ns, stake.of.as_str(), stake.share), (20_000, "program", 0.8));
    // The span of the first events is no measure of all launches.
    profile.timeline.as_mut().unwrap().partial = true;
    profile.findings.clear();
    analyze(&mut profile);
    assert!(profile.findings[0].text.ends_with("100 % of the GPU time"));
}

#[test]
fn launches_of_a_cuda_graph_are_not_told_to_use_one() {
    let told = |kernel: &str, sums: Vec<KernelSum>| {
        let launches = vec![launch(kernel, 2.0, &[])];
        let mut profile = Profile { launches, kernels: sums, ..Profile::default() };
        analyze(&mut profile);
        profile.findings[0].hint.clone()
    };
    let graphs = KernelSum { kernel: WHOLE_GRAPHS.to_owned(), ..KernelSum::default() };
    assert!(told("a", Vec::new()).contains("capture"));
    assert!(told("a", vec![graphs]).contains("outside of them"));
    assert!(told("CUDA graph of a, b", Vec::new()).contains("in a CUDA graph already"));
}

#[test]
fn a_cause_is_worth_the_time_of_all_launches_that_the_profiled_ones_stand_for() {
    let profiled = launch("k", 10.0, &[(SM, 40.0), (MEMORY, 20.0)]);
    let mut profile = Profile { launches: vec![profiled], ..Profile::default() };
    profile.kernels = vec![KernelSum {
        kernel: "k".to_owned(),
        launches: 100,
        total_ns: 1_000_000,
        ..KernelSum::default()
    }];
    analyze(&mut profile);
    assert_eq!(profile.findings[0].id, "latency_bound");
    let stake = profile.findings[0].stake.as_ref().unwrap();
    assert_eq!((stake.ns, stake.share), (600_000, 0.6));
    let covered = &profile.findings[0].covers[0];
    assert_eq!((covered.launches, covered.total_ns), (100, 1_000_000));
}

/// CuPy's copies for `roll`: 80 short ones of a row and 40 of the rest of the grid, of which the
/// recorded run profiled only short ones.
#[test]
fn profiled_launches_stand_for_those_of_their_geometry() {
    let geometry = |blocks, launches, total_ns| GeometrySum {
        grid: [blocks, 1, 1],
        block: [128, 1, 1],
        shared_bytes: None,
        launches,
        total_ns,
    };
    let copies = |profiled: &[(u32, f64)]| {
        let busy = &[(SM, 10.0), (MEMORY, 90.0)][..];
        let copy = |&(blocks, us): &(u32, f64)| Launch {
            grid: [blocks, 1, 1],
            block: [128, 1, 1],
            ..launch("cupy_copy", us, if us > 4.0 { busy } else { &[(WAVES, 30.0)] })
        };
        let mut launches: Vec<Launch> = profiled.iter().map(copy).collect();
        (0..).zip(&mut launches).for_each(|(id, launch)| launch.id = id);
        let choice = KernelChoice {
            kernel: "cupy_copy".to_owned(),
            launches: 120,
            total_ns: 3_366_895,
            geometries: vec![geometry(32, 80, 129_000), geometry(131_040, 40, 3_237_895)],
            ..KernelChoice::default()
        };
        let kernel = KernelSum {
            kernel: "cupy_copy".to_owned(),
            launches: 120,
            total_ns: 3_366_895,
            ..KernelSum::default()
        };
        let selection = Selection { kernels: vec![choice], ..Selection::default() };
        let mut profile = Profile {
            launches,
            kernels: vec![kernel],
            selection: Some(selection),
            ..Profile::default()
        };
        analyze(&mut profile);
        profile
    };
    let short = copies(&[(32, 2.304), (32, 2.4), (32, 2.912), (32, 2.176)]);
    let first = &short.findings[0];
    assert_eq!(first.id, "launch_bound");
    assert_eq!(
        first.text,
        "in 80 of its 120 launches the kernel runs for 2.4 µs under ncu, about as long as a \
         launch takes"
    );
    let stake = first.stake.as_ref().unwrap();
    assert_eq!((stake.ns, first.covers[0].launches), (129_000, 80));
    let verdict = &short.kernel_verdicts[0].text;
    assert!(verdict.ends_with("; its profiled launches stand for 4 % of its time"), "{verdict}");
    assert!(verdict.contains("2.4 µs"), "{verdict}");
    // Of a geometry that the survey did not see.
    let other = &copies(&[(96, 2.304)]).kernel_verdicts[0];
    assert_eq!(other.verdict, None);
    assert!(other.text.starts_with("only launches that are no part"), "{}", other.text);
    // With a long one, which holds the time.
    let both = copies(&[(32, 2.304), (32, 2.4), (32, 2.912), (131_040, 81.0)]);
    let verdict = &both.kernel_verdicts[0];
    assert_eq!(verdict.verdict.as_deref(), Some("memory_bound"));
    assert!(!verdict.text.contains("profiled launches"), "{}", verdict.text);
    let bound = both.findings.iter().find(|f| f.id == "memory_bound").unwrap();
    let covered = &bound.covers[0];
    assert_eq!((covered.launches, covered.total_ns), (40, 3_237_895));
}

#[test]
fn torchs_own_kernels_are_fused_by_the_caller_and_users_kernels_are_changed() {
    let busy = &[(SM, 37.0), (MEMORY, 8.0)][..];
    let torch = |name: &str| launch(&format!("void at::native::{name}<float>(int)"), 20.0, busy);
    let profile = analyzed(vec![torch("a"), torch("b"), launch("mine", 30.0, busy)]);
    let told: Vec<_> = profile
        .findings
        .iter()
        .map(|f| (f.covers.len(), f.hint.contains("torch.compile"), f.text.as_str()))
        .collect();
    assert_eq!(
        told,
        [
            (
                2,
                true,
                "2 launches of 2 kernels wait: neither compute nor memory comes near its peak: 67 % \
                 of the launches, 57 % of the GPU time"
            ),
            (1, false, "compute runs at 37 % and memory at 8 % of their peaks: warps wait"),
        ]
    );
}

#[test]
fn launches_that_only_make_random_numbers_are_a_programs_set_up() {
    let random = launch(
        "void at::native::<unnamed>::distribution_elementwise_grid_stride_kernel<float>(int)",
        42.8,
        &[(SM, 73.0), (MEMORY, 15.0)],
    );
    let scaled = launch("void at::native::scale(int)", 17.1, &[(SM, 16.0), (MEMORY, 56.0)]);
    let profile = analyzed(vec![random.clone(), scaled.clone()]);
    assert_eq!(profile.findings[0].id, "only_set_up");
    let profile = analyzed(vec![random, scaled.clone(), scaled.clone(), scaled]);
    assert!(profile.findings.iter().all(|f| f.id != "only_set_up"));
}

/// `model.half()` before a CUDA graph, as ncu's first launches.
#[test]
fn weights_that_are_cast_first_are_set_up() {
    let cast = "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(\
         at::TensorIteratorBase&)::{lambda()#3}, X>(int)";
    let cast = launch(cast, 10.0, &[(SM, 20.0), (MEMORY, 30.0)]);
    let gemm = launch("nvjet_sm90_hsh_64x8", 5.0, &[(SM, 20.0), (MEMORY, 30.0)]);
    let of = |launches: Vec<Launch>| analyzed(launches).findings.remove(0);
    let first = of(vec![cast.clone(), cast.clone(), gemm.clone()]);
    assert_eq!(first.id, "only_set_up");
    // Their launches are short, with more of the time than the casts alone.
    let short = launch(&cast.kernel, 2.5, &[(SM, 2.0), (MEMORY, 8.0)]);
    let small = launch("void at::native::clamp(int)", 2.4, &[(SM, 2.0), (MEMORY, 8.0)]);
    let profile =
        analyzed(vec![short.clone(), short.clone(), short.clone(), short, small, gemm.clone()]);
    assert_eq!(profile.findings[0].id, "only_set_up");
    let covers = profile.findings[1..].iter().flat_map(|finding| &finding.covers);
    assert!(covers.clone().all(|covered| covered.kernel != cast.kernel), "{covers:?}");
    assert!(
        first
            .text
            .contains("set-up: filling, copying and converting tensors (2 of the 3 launches)"),
        "{first:?}"
    );
    // In the middle of the work, or nothing else.
    assert_ne!(of(vec![gemm, cast.clone(), cast.clone()]).id, "only_set_up");
    assert_ne!(of(vec![cast.clone(), cast]).id, "only_set_up");
}

#[test]
fn xlas_autotuning_is_set_up_and_no_limit() {
    let delay = launch(
        "stream_executor::gpu::<unnamed>::DelayKernel(volatile int *, int)",
        101_000.0,
        &[(SM, 0.0), (MEMORY, 0.0), (WAVES, 2.37e-4)],
    );
    let gemm = launch("gemm_fusion_dot_1", 46.1, &[(SM, 8.8), (MEMORY, 80.6)]);
    let profile = analyzed(vec![delay, gemm]);
    let first = &profile.findings[0];
    assert_eq!(first.id, "only_set_up");
    assert!(first.text.contains("set-up: autotuning of XLA"), "{}", first.text);
    assert!(profile.findings[1..].iter().all(|f| !f.text.contains("DelayKernel")));
    assert!(profile.findings.iter().all(|f| f.id != "small_grid"));
    assert_eq!(profile.kernel_verdicts[0].text, "it is set-up: autotuning of XLA");
}

#[test]
fn a_programs_kernels_are_listed_where_tuning_takes_most_of_the_time() {
    let idle = &[(SM, 1.0), (MEMORY, 1.0)][..];
    let busy = &[(SM, 8.8), (MEMORY, 80.6)][..];
    let of = "stream_executor::gpu::";
    let profile = analyzed(vec![
        launch(&format!("{of}<unnamed>::DelayKernel(volatile int *, int)"), 101_000.0, idle),
        launch("gemm_fusion_dot_2", 50.0, busy),
        launch(&format!("{of}RedzoneAllocatorKernelImpl(unsigned char *, long)"), 20.0, idle),
        launch("gemm_fusion_dot_1", 46.1, busy),
    ]);
    let verdicts = profile.kernel_verdicts.iter();
    let own = verdicts.clone().find(|v| v.kernel == "gemm_fusion_dot_1").unwrap();
    assert_eq!(own.verdict.as_deref(), Some("memory_bound"));
    assert!(own.percent < 0.1, "{}", own.percent);
    assert_eq!(verdicts.count(), 2, "and the delay");
}

#[test]
fn the_limits_of_kernels_are_those_that_the_findings_say() {
    let clamp = launch("clamp", 2.6, &[(SM, 1.0), (MEMORY, 1.0), (WAVES, 0.01)]);
    let other = launch("other", 30.0, &[(SM, 90.0), (MEMORY, 10.0)]);
    let profile = analyzed(vec![clamp.clone(), clamp, other]);
    let verdict_on = |profile: &Profile, kernel: &str| {
        let mut all = profile.kernel_verdicts.iter();
        all.find(|verdict| verdict.kernel == kernel).unwrap().clone()
    };
    assert_eq!(verdict_on(&profile, "clamp").verdict.as_deref(), Some("launch_bound"));
    // A product of two shapes, of which the shorter has more time at stake.
    let of = |blocks, us| Launch {
        grid: [blocks, 1, 1],
        ..launch("nvjet_sm90_tst_64x8_64x16_4x1_v_bz_NNT", us, &[])
    };
    let profile = analyzed(vec![of(32, 7.0), of(96, 8.0), launch("other", 30.0, &[])]);
    let finding = profile.findings.iter().find(|f| f.id == "small_grid").unwrap();
    assert_eq!(finding.text, "the grid of 32 blocks leaves 100 of the GPU's 132 SMs empty");
    let verdict = verdict_on(&profile, "nvjet_sm90_tst_64x8_64x16_4x1_v_bz_NNT");
    assert_eq!((verdict.text.as_str(), verdict.launch), (finding.text.as_str(), finding.launch));
}

/// A program of JAX, which ends with a segmentation fault under ncu.
#[test]
fn where_ncu_fails_mode_deep_is_not_told_to_use_mode_deep() {
    let launches = vec![launch("gemm", 30.0, &[]), launch("other", 20.0, &[])];
    let mut profile = analyzed(launches);
    let choice = KernelChoice { kernel: "gemm".to_owned(), ..KernelChoice::default() };
    profile.selection = Some(Selection { kernels: vec![choice], ..Selection::default() });
    profile.findings.clear();
    analyze(&mut profile);
    let texts: Vec<_> = profile.kernel_verdicts.iter().map(|v| v.text.as_str()).collect();
    assert_eq!(texts, ["ncu left no counters of its launches", "not profiled"]);
}

/// The first forty launches of a compiled program were mostly Triton's benchmarks.
#[test]
fn benchmarks_are_launches_too() {
    const FILL: &str = "void at::native::vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<int>, std::array<char *, (unsigned long)1>>(int, T2, T3)";
    let busy = &[(SM, 10.0), (MEMORY, 90.0)][..];
    let benchmark = [FILL, FILL, "triton_poi_fused_gelu_view_6"].map(|k| launch(k, 15.0, busy));
    let mut launches: Vec<Launch> = (0..6).flat_map(|_| benchmark.clone()).collect();
    launches.extend(["a", "b", "a", "b"].map(|kernel| launch(kernel, 2.0, busy)));
    let profile = analyzed(launches);
    let short = profile.findings.iter().find(|f| f.id == "launch_bound").unwrap();
    assert!(short.text.contains(": 18 % of the launches, "), "{}", short.text);
}

/// Divergent launches: at best the queue to the units is next, at worst a unit at 60 % of its peak.
#[test]
fn a_finding_of_several_launches_has_the_sum_of_their_intervals() {
    let divergent = |us| {
        launch(
            "age",
            us,
            &[
                (SM, 89.7),
                (MEMORY, 2.3),
                (DRAM, 1.9),
                ("sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_elapsed", 89.7),
                ("smsp__thread_inst_executed_pred_on_per_inst_executed.ratio", 7.32),
            ],
        )
    };
    let profile = analyzed(vec![divergent(400.0), divergent(600.0)]);
    let told = profile.findings.iter().find(|finding| finding.id == "divergence").unwrap();
    let stake = told.stake.as_ref().unwrap();
    assert_eq!((stake.low_ns, stake.high_ns), (Some(658_019), Some(794_811)));
    assert_eq!((stake.ns, stake.kind.as_str()), (794_811, "bound"));
}
