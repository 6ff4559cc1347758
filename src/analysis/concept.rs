//! Metric names by what they mean, newest first: the first that a launch has is used, and the
//! evidence names it.

pub(super) const SM_THROUGHPUT: &[&str] = &["sm__throughput.avg.pct_of_peak_sustained_elapsed"];
pub(super) const MEMORY_THROUGHPUT: &[&str] =
    &["gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"];
pub(super) const DRAM_THROUGHPUT: &[&str] = &[
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
];
pub(super) const L2_THROUGHPUT: &[&str] = &["lts__throughput.avg.pct_of_peak_sustained_elapsed"];
pub(super) const L1_THROUGHPUT: &[&str] = &[
    "l1tex__throughput.avg.pct_of_peak_sustained_elapsed",
    "l1tex__throughput.avg.pct_of_peak_sustained_active",
];
pub(super) const OCCUPANCY_ACHIEVED: &[&str] =
    &["sm__warps_active.avg.pct_of_peak_sustained_active"];
pub(super) const OCCUPANCY_THEORETICAL: &[&str] = &["sm__maximum_warps_per_active_cycle_pct"];
pub(super) const ISSUE_ACTIVE: &[&str] = &["smsp__issue_active.avg.per_cycle_active"];
pub(super) const WAVES: &[&str] = &["launch__waves_per_multiprocessor"];
pub(super) const SHARED_WAVEFRONTS_BUSY: &[&str] = &[
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.avg.pct_of_peak_sustained_elapsed",
    "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed",
];
