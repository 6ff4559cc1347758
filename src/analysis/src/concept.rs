//! Metric names grouped by meaning, the preferred one first. The first name that a launch has is
//! used, and the evidence names it.
//!
//! Names change with the architecture and the version of ncu; comments say which architecture a
//! name belongs to. Names for Blackwell come from NVIDIA's documentation; we have no recording with
//! them.

use rgpu_model::metric;

pub(super) const SM_THROUGHPUT: &[&str] = metric::SM_THROUGHPUT.ids;
pub(super) const MEMORY_THROUGHPUT: &[&str] = metric::MEMORY_THROUGHPUT.ids;
pub(super) const DRAM_THROUGHPUT: &[&str] = metric::DRAM_THROUGHPUT.ids;
pub(super) const L2_THROUGHPUT: &[&str] = &["lts__throughput.avg.pct_of_peak_sustained_elapsed"];
pub(super) const L1_THROUGHPUT: &[&str] = &[
    "l1tex__throughput.avg.pct_of_peak_sustained_elapsed",
    "l1tex__throughput.avg.pct_of_peak_sustained_active",
];
pub(super) const OCCUPANCY_ACHIEVED: &[&str] = metric::OCCUPANCY.ids;
pub(super) const OCCUPANCY_THEORETICAL: &[&str] = &["sm__maximum_warps_per_active_cycle_pct"];
pub(super) const ISSUE_ACTIVE: &[&str] = &[
    "smsp__issue_active.avg.per_cycle_active",
    "smsp__inst_issued.avg.per_cycle_active",
    "smsp__inst_executed.avg.per_cycle_active",
];
pub(super) const WARPS_ELIGIBLE: &[&str] = &["smsp__warps_eligible.avg.per_cycle_active"];
pub(super) const SMS: &[&str] = &["launch__sm_count", "device__attribute_multiprocessor_count"];
pub(super) const WAVES: &[&str] = &["launch__waves_per_multiprocessor"];
pub(super) const SHARED_WAVEFRONTS_BUSY: &[&str] = &[
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.avg.pct_of_peak_sustained_elapsed",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum.pct_of_peak_sustained_elapsed",
    "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed",
];
pub(super) const INSTRUCTIONS: &[&str] =
    &["smsp__inst_executed.sum", "sm__inst_executed.sum", "inst_executed"];

/// How busy the tensor cores are.
pub(super) const TENSOR_ACTIVE: &[&str] = &[
    // Blackwell 10.x: tcgen05 is a unit apart from the SM's own pipes.
    "sm__pipe_tc_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__pipe_tc_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "sm__pipe_tensor_subpipe_hmma_cycles_active.avg.pct_of_peak_sustained_active",
    // Ampere to Hopper.
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active",
    // Ada.
    "sm__pipe_tensor_op_hmma_cycles_active_v2.avg.pct_of_peak_sustained_active",
    // Volta and Turing.
    "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "sm__inst_executed_pipe_tensor_op_hmma.avg.pct_of_peak_sustained_active",
    // The only one of ncu's set `basic`.
    TENSOR_ELAPSED[0],
];
pub(super) const TENSOR_ELAPSED: &[&str] =
    &["sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"];
pub(super) const SM_CYCLES: &[&str] = &["sm__cycles_elapsed.avg", "sm__cycles_elapsed.max"];
/// Warp-wide matrix instructions (`mma.sync`) of 16-bit types, which every architecture has.
pub(super) const MMA_SYNC: &[&str] = &[
    "sm__inst_executed_pipe_tensor_op_hmma.avg.pct_of_peak_sustained_active",
    "sm__pipe_tensor_subpipe_hmma_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_tensor_op_hmma.sum",
];
/// Pipes and instructions that only matrix products use, never moves of constants.
pub(super) const MATRIX_ONLY: &[&str] = &[
    "sm__inst_executed_pipe_tensor_op_gmma.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_tensor_op_imma.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_tensor_op_dmma.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_tc.avg.pct_of_peak_sustained_active",
    "sm__pipe_tc_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__pipe_tc_cycles_active.avg.pct_of_peak_sustained_elapsed",
];
/// Prefix of the counters of matrix operations, one metric per type.
pub(super) const TENSOR_OPERATIONS: &str = "sm__ops_path_tensor_";
/// Warpgroup-wide matrix instructions (`wgmma`): Hopper.
pub(super) const WGMMA: &[&str] = &[
    "sm__inst_executed_pipe_tensor_op_gmma.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_tensor_op_gmma.sum",
    "smsp__sass_inst_executed_op_shared_gmma.sum",
];
/// Matrix instructions of the fifth generation (`tcgen05`): Blackwell 10.x.
pub(super) const TCGEN05: &[&str] = &[
    "sm__inst_executed_pipe_tc.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_tc.sum",
    "sm__pipe_tc_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__pipe_tc_cycles_active.avg.pct_of_peak_sustained_elapsed",
];
/// Tensor memory (TMEM): Blackwell 10.x.
pub(super) const TMEM_ACTIVE: &[&str] = &[
    "sm__mem_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__mem_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
];
/// Bulk copies by the tensor memory accelerator (TMA): Hopper on.
pub(super) const TMA: &[&str] = &[
    "sm__inst_executed_pipe_tma.avg.pct_of_peak_sustained_active",
    "sm__pipe_tma_cycles_active.avg.pct_of_peak_sustained_active",
    "smsp__inst_executed_op_tma_ld.sum",
];
pub(super) const CLUSTER: &[&str] = &["launch__cluster_size"];
pub(super) const FMA_PIPE: &[&str] = &[
    "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active",
];
pub(super) const FP64_PIPE: &[&str] = &[
    "sm__pipe_fp64_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_fp64.avg.pct_of_peak_sustained_active",
];
/// FP32 operations in the time of one FP64 operation, a device attribute.
pub(super) const FP64_RATIO: &[&str] = &["device__attribute_single_to_double_precision_perf_ratio"];
pub(super) const L2_HIT_RATE: &[&str] =
    &["lts__t_sector_hit_rate.pct", "lts__t_sectors_lookup_hit_rate.pct"];
pub(super) const L2_BYTES: &[&str] = &["device__attribute_l2_cache_size"];
pub(super) const DRAM_READ: &[&str] =
    &["dram__bytes_read.sum", "dram__bytes_op_read.sum", "fbpa__dram_read_bytes.sum"];
pub(super) const ICACHE_HIT_RATE: &[&str] =
    &["sm__icc_request_hit_rate.pct", "sm__icc_requests_lookup_hit_rate.pct"];
/// Requests and sectors of atomics on global memory: reductions (no return value), then atomics
/// that return a value.
pub(super) const ATOMICS: &[(&str, &str)] = &[
    (
        "l1tex__t_requests_pipe_lsu_mem_global_op_red.sum",
        "l1tex__t_sectors_pipe_lsu_mem_global_op_red.sum",
    ),
    (
        "l1tex__t_requests_pipe_lsu_mem_global_op_atom.sum",
        "l1tex__t_sectors_pipe_lsu_mem_global_op_atom.sum",
    ),
];
/// Load and store instructions on local memory.
pub(super) const LOCAL: &[(&str, &str)] = &[
    ("sass__inst_executed_local_loads", "sass__inst_executed_local_stores"),
    ("smsp__sass_inst_executed_op_local_ld.sum", "smsp__sass_inst_executed_op_local_st.sum"),
    ("smsp__inst_executed_op_local_ld.sum", "smsp__inst_executed_op_local_st.sum"),
];
pub(super) const SPILLING: &str = "sass__inst_executed_register_spilling";
