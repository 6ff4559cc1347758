//! The modes of `rgpu profile`, in one table: [`MODES`].
//!
//! A mode tries its rungs, the ways to collect its data, from the best to the poorest; that list is
//! its ladder. A plan is the list of commands that one pass sends to the host.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use rgpu_model::RungId;

/// A mode of `rgpu profile`, which decides the tool and the data collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProfileMode {
    /// Hardware counters, by Nsight Compute.
    Ncu,
    /// A timeline, by Nsight Systems.
    Nsys,
    /// Memory errors, races and wrong barriers, by Compute Sanitizer.
    Sanitizer,
    /// Times only, without a profiling tool.
    Bench,
    /// NVTX ranges alone, by our collector.
    Nvtx,
    /// Only the check against the reference.
    Verify,
    /// First a timeline, then hardware counters of the kernels with the most time.
    Deep,
    /// Operators and kernels of a Python kernel or program, by torch's own profiler.
    Torch,
}

/// The steps of a mode, on a host with a GPU, after the build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModeStep {
    /// Compares the kernel with its reference. Skipped for programs.
    Verify,
    /// Measures the kernel without a tool. Skipped for programs.
    Time,
    /// Finds the kernels with the most time, for the next pass.
    Survey,
    /// Runs the mode's ladder.
    Profile,
    /// Runs each tool of Compute Sanitizer.
    Sanitize,
}

impl ModeStep {
    /// The name in plans; for a step per tool, its first part.
    pub fn name(self) -> &'static str {
        match self {
            Self::Verify => "verify",
            Self::Time => "time",
            Self::Survey => "survey",
            Self::Profile => "profile",
            Self::Sanitize => "sanitizer",
        }
    }
}

/// A group of flags that only certain modes take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlagGroup {
    /// The flags of ncu, such as `--section`.
    Ncu,
    /// The flags of nsys, such as `--trace`.
    Nsys,
    /// The flag `--capture-range`: which part of the program is recorded.
    CaptureRange,
    /// The flag `--regions`: results for each NVTX region.
    Regions,
    /// Flags of Compute Sanitizer.
    Sanitizer,
    /// Flags of mode `deep`.
    Deep,
    /// `--after TIME`: starts to measure this long after the start.
    After,
    /// `--for TIME`: measures for this long.
    For,
    /// The flag `--ranks`: the ranks that a tool records.
    Ranks,
    /// The flag `--nodes`: a program on each of several nodes of a cluster.
    Nodes,
}

/// A mode with everything that depends on it.
#[derive(Debug)]
pub struct ModeInfo {
    /// The mode that the entry describes.
    pub mode: ProfileMode,
    /// The name on the command line and in kernel.toml.
    pub name: &'static str,
    /// The result of the mode, for help and documentation.
    pub gives: &'static str,
    /// Its steps on a host with a GPU.
    pub steps: &'static [ModeStep],
    /// The rungs of its main step on a host with a GPU, in the order in which they are tried.
    pub rungs: &'static [RungId],
    /// The flags that it takes.
    pub flags: &'static [FlagGroup],
    /// Whether it can only run kernels, no programs.
    pub needs_kernel: bool,
    /// Whether a host without a GPU is an error: the result is a verdict on the kernel, and what
    /// the CPU computes is none.
    pub is_verdict: bool,
    /// Whether `rgpu doctor` tries it.
    pub in_doctor: bool,
}

/// The rungs of the first pass of mode `deep`, which records the timeline.
pub static KERNEL_SURVEY: &[RungId] =
    &[RungId::NsysFull, RungId::NsysCuda, RungId::Cupti, RungId::NcuTimes];

/// The rungs of the first pass of mode `ncu` with `--regions`, which finds the regions.
pub static REGION_SURVEY: &[RungId] = &[RungId::Nvtx, RungId::NsysNvtx];

/// Every mode, with one entry each.
pub static MODES: &[ModeInfo] = &[
    ModeInfo {
        mode: ProfileMode::Ncu,
        name: "ncu",
        gives: "Nsight Compute: counters of each launch",
        steps: &[ModeStep::Verify, ModeStep::Time, ModeStep::Profile],
        rungs: &[
            RungId::NcuRequested,
            RungId::NcuAppRange,
            RungId::NcuKernel,
            RungId::NcuBasic,
            RungId::NcuSudo,
            RungId::NcuLaunch,
            RungId::NsysCuda,
            RungId::Torch,
            RungId::Cupti,
            RungId::Nvtx,
            RungId::CudaEvents,
            RungId::HostClock,
        ],
        flags: &[FlagGroup::Ncu, FlagGroup::Regions, FlagGroup::For, FlagGroup::Ranks],
        needs_kernel: false,
        is_verdict: false,
        in_doctor: true,
    },
    ModeInfo {
        mode: ProfileMode::Nsys,
        name: "nsys",
        gives: "Nsight Systems: the timeline and NVTX regions",
        steps: &[ModeStep::Verify, ModeStep::Time, ModeStep::Profile],
        rungs: &[
            RungId::NsysFull,
            RungId::NsysCuda,
            RungId::Torch,
            // CUPTI comes before `nsys.nvtx`: it records ranges as well.
            RungId::Cupti,
            RungId::NsysNvtx,
            RungId::Nvtx,
            RungId::CudaEvents,
            RungId::HostClock,
        ],
        flags: &[
            FlagGroup::Nsys,
            FlagGroup::CaptureRange,
            FlagGroup::Regions,
            FlagGroup::After,
            FlagGroup::For,
            FlagGroup::Ranks,
            FlagGroup::Nodes,
        ],
        needs_kernel: false,
        is_verdict: false,
        in_doctor: true,
    },
    ModeInfo {
        mode: ProfileMode::Sanitizer,
        name: "sanitizer",
        gives: "compute-sanitizer: memory errors, races, uninitialised reads, barriers",
        steps: &[ModeStep::Sanitize],
        rungs: &[RungId::Sanitizer, RungId::Guard],
        flags: &[FlagGroup::Sanitizer, FlagGroup::Ranks],
        needs_kernel: false,
        is_verdict: true,
        in_doctor: true,
    },
    ModeInfo {
        mode: ProfileMode::Bench,
        name: "bench",
        gives: "Times only, without a profiling tool",
        steps: &[ModeStep::Verify, ModeStep::Time],
        rungs: &[RungId::CudaEvents, RungId::HostClock],
        flags: &[],
        needs_kernel: true,
        is_verdict: false,
        in_doctor: true,
    },
    ModeInfo {
        mode: ProfileMode::Nvtx,
        name: "nvtx",
        gives: "NVTX ranges only",
        steps: &[ModeStep::Verify, ModeStep::Time, ModeStep::Profile],
        rungs: &[RungId::Nvtx, RungId::CudaEvents, RungId::HostClock],
        flags: &[FlagGroup::Regions],
        needs_kernel: false,
        is_verdict: false,
        in_doctor: true,
    },
    ModeInfo {
        mode: ProfileMode::Verify,
        name: "verify",
        gives: "The check against the reference only, on every named size",
        steps: &[ModeStep::Verify],
        rungs: &[RungId::Verify],
        flags: &[],
        needs_kernel: true,
        is_verdict: true,
        in_doctor: false,
    },
    ModeInfo {
        mode: ProfileMode::Deep,
        name: "deep",
        gives: "Nsight Systems first, then Nsight Compute on the kernels with the most GPU time",
        steps: &[ModeStep::Verify, ModeStep::Time, ModeStep::Survey, ModeStep::Profile],
        // The survey has recorded the timeline already.
        rungs: &[
            RungId::NcuRequested,
            RungId::NcuAppRange,
            RungId::NcuKernel,
            RungId::NcuBasic,
            RungId::NcuSudo,
            RungId::NcuLaunch,
        ],
        flags: &[
            FlagGroup::Ncu,
            FlagGroup::Nsys,
            FlagGroup::CaptureRange,
            FlagGroup::Regions,
            FlagGroup::Deep,
            FlagGroup::Ranks,
        ],
        needs_kernel: false,
        is_verdict: false,
        in_doctor: false,
    },
    ModeInfo {
        mode: ProfileMode::Torch,
        name: "torch",
        gives: "torch's own profiler, for Python: operators and their kernels",
        steps: &[ModeStep::Verify, ModeStep::Time, ModeStep::Profile],
        rungs: &[
            RungId::Torch,
            RungId::NsysCuda,
            RungId::Cupti,
            RungId::Nvtx,
            RungId::CudaEvents,
            RungId::HostClock,
        ],
        flags: &[FlagGroup::CaptureRange, FlagGroup::After, FlagGroup::For],
        needs_kernel: false,
        is_verdict: false,
        in_doctor: false,
    },
];

impl ProfileMode {
    /// The mode's row of [`MODES`].
    pub fn info(self) -> &'static ModeInfo {
        // The rows are in the order of the variants; a test holds that.
        &MODES[self as usize]
    }

    /// The name on the command line and in kernel.toml.
    pub fn name(self) -> &'static str {
        self.info().name
    }

    /// The mode with this name.
    pub fn named(name: &str) -> Option<Self> {
        MODES.iter().find(|info| info.name == name).map(|info| info.mode)
    }

    /// Whether the mode collects hardware counters.
    pub fn collects_counters(self) -> bool {
        self.info().flags.contains(&FlagGroup::Ncu)
    }

    /// The rung that the mode begins with on a GPU.
    pub fn best_rung(self) -> RungId {
        let info = self.info();
        let first = if info.steps.contains(&ModeStep::Survey) {
            KERNEL_SURVEY.first()
        } else {
            info.rungs.first()
        };
        first.cloned().unwrap_or(RungId::None)
    }

    /// The modes that take the flags of a group.
    pub fn with_flags(group: FlagGroup) -> impl Iterator<Item = Self> {
        MODES.iter().filter(move |info| info.flags.contains(&group)).map(|info| info.mode)
    }
}

impl fmt::Display for ProfileMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A word that is not a mode.
#[derive(Debug, thiserror::Error)]
#[error("unknown mode `{0}`; there are {names}", names = names())]
pub struct UnknownMode(pub String);

fn names() -> String {
    MODES.iter().map(|info| format!("`{}`", info.name)).collect::<Vec<_>>().join(", ")
}

impl FromStr for ProfileMode {
    type Err = UnknownMode;

    fn from_str(text: &str) -> Result<Self, UnknownMode> {
        Self::named(text).ok_or_else(|| UnknownMode(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_in_variant_order() {
        for (at, info) in MODES.iter().enumerate() {
            assert_eq!(info.mode as usize, at);
            assert_eq!(serde_json::to_value(info.mode).unwrap(), info.name);
        }
        assert_eq!(MODES.last().map(|info| info.mode), Some(ProfileMode::Torch));
    }
}
