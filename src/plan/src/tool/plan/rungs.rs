//! Every rung in one table, best first: its tool, its command, its result and what is missing in
//! it.
//!
//! The ladders of the modes ([`crate::kernel::MODES`]) name rungs of this table. The order of
//! `--at-least` and the table in `docs/ladders.md` come from it.

use super::message_rows::{MessageRow, RowAction};
use super::torch_hook;
use crate::kernel::ProfileMode;
use crate::tool::ncu::{self, NcuCollection};
use crate::tool::nsys::{self, NsysTraces};
use crate::tool::sanitizer;
use rgpu_model::RungId;

/// One way to get a result: a tool, its command and what the result contains. The ladder of a mode
/// lists its rungs; if one fails, the next is tried.
#[derive(Debug)]
pub struct RungInfo {
    /// The id in plans and records.
    pub id: RungId,
    /// The question it answers.
    pub purpose: RungPurpose,
    /// The tool. A failure of a tool can end all its rungs.
    pub tool: RungTool,
    /// The result, for docs and reports.
    pub gives: &'static str,
    /// The data that better rungs have and this one lacks; empty if none.
    pub loses: &'static str,
    /// Replaces `loses` in mode `ncu`.
    pub loses_in_ncu_mode: Option<&'static str>,
    /// How its command is made.
    pub(super) command: RungCommand,
}

/// The kind of question that a rung answers. Only rungs with the same purpose are ranked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RungPurpose {
    /// How fast the code is, and why.
    Performance,
    /// Memory errors and races.
    Faults,
    /// Whether results are right.
    Correctness,
}

/// The tool that a rung runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RungTool {
    /// Nsight Compute (`ncu`).
    Ncu,
    /// Nsight Systems (`nsys`).
    Nsys,
    /// torch's own profiler, started by our hook.
    Torch,
    /// Our collector with NVIDIA's libcupti.
    Cupti,
    /// Our collector, without libcupti.
    Collector,
    /// Our runner or harness; for a program, no tool.
    Runner,
    /// Compute Sanitizer (`compute-sanitizer`).
    Sanitizer,
}

impl RungTool {
    /// Name of the tool in the host's facts; `None` for our own programs.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::Ncu => Some("ncu"),
            Self::Nsys => Some("nsys"),
            Self::Torch => Some("torch"),
            Self::Cupti => Some("cupti"),
            Self::Sanitizer => Some("compute-sanitizer"),
            Self::Collector | Self::Runner => None,
        }
    }

    /// Whether it is a profiler or checker that may disturb the program, rather than the runner.
    pub fn is_outside(self) -> bool {
        self != Self::Runner
    }

    /// The tool's messages with their meanings.
    pub(super) fn messages(self) -> &'static [MessageRow] {
        match self {
            Self::Ncu => ncu::MESSAGE_ROWS,
            Self::Nsys => nsys::MESSAGE_ROWS,
            Self::Sanitizer => sanitizer::MESSAGE_ROWS,
            Self::Torch => torch_hook::MESSAGE_ROWS,
            Self::Runner => &VERDICTS,
            Self::Cupti | Self::Collector => &[],
        }
    }
}

/// What a judge says of a kernel. Another clock would not change it.
const VERDICTS: [MessageRow; 4] = [
    MessageRow("error: clocks disagree on ", "clocks_disagree", RowAction::StopKernel),
    MessageRow("error: not credible: ", "not_credible", RowAction::StopKernel),
    MessageRow("error: a timed call on ", "wrong_result", RowAction::StopKernel),
    MessageRow("error: the kernel's process ", "crash", RowAction::StopKernel),
];

/// How the command of a rung is made.
#[derive(Debug)]
pub(super) enum RungCommand {
    /// ncu before the program.
    Ncu {
        /// The data to collect.
        collect: NcuCollection,
        /// How ncu repeats the work for its passes.
        replay: Replay,
        /// Whether it runs as root.
        sudo: bool,
    },
    /// The rental provider's ncu service, with the ncu options of this rung.
    Provider(RungId),
    /// nsys before the program.
    Nsys(NsysTraces),
    /// The harness of a Python kernel, or a Python program, under torch's profiler.
    Torch,
    /// The program under our collector with CUPTI.
    Cupti,
    /// The program under our collector.
    Collector,
    /// The runner's job `time` with these flags.
    Time(&'static [&'static str]),
    /// The reference on the CPU.
    Cpu,
    /// Compute Sanitizer before the program; one step for each of its tools.
    Sanitizer,
    /// The runner's job `guard`.
    Guard,
    /// The runner's job `verify`.
    Verify,
}

/// How ncu replays what it measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Replay {
    /// The user's `--replay-mode` with the user's sections; ncu's default otherwise.
    Requested,
    /// `app-range`; fallback for a requested range replay.
    AppRange,
    /// Kernel replay; fallback for a requested range or app-range replay.
    Kernel,
}

impl RungInfo {
    /// The rung with this id; `None` for an id of another version.
    pub fn find(id: &RungId) -> Option<&'static Self> {
        RUNGS.iter().find(|info| info.id == *id)
    }

    /// The data that it lacks in this mode.
    pub fn loses_in(&self, mode: ProfileMode) -> &'static str {
        match (mode, self.loses_in_ncu_mode) {
            (ProfileMode::Ncu, Some(loses)) => loses,
            _ => self.loses,
        }
    }

    /// Whether it is ncu as root, or ncu for launch data only: these work when the driver refuses
    /// counters to the user.
    pub(super) fn is_ncu_without_user_counters(&self) -> bool {
        matches!(
            self.command,
            RungCommand::Ncu { sudo: true, .. }
                | RungCommand::Ncu { collect: NcuCollection::Launch, .. }
        )
    }

    /// Whether it runs under our collector.
    pub(super) fn needs_collector(&self) -> bool {
        matches!(self.tool, RungTool::Cupti | RungTool::Collector)
    }
}

/// Every rung of a mode, best first among those with the same purpose.
pub static RUNGS: &[RungInfo] = &[
    RungInfo {
        id: RungId::Sanitizer,
        purpose: RungPurpose::Faults,
        tool: RungTool::Sanitizer,
        gives: "the tool's findings, or `clean`",
        loses: "",
        loses_in_ncu_mode: None,
        command: RungCommand::Sanitizer,
    },
    RungInfo {
        id: RungId::Guard,
        purpose: RungPurpose::Faults,
        tool: RungTool::Runner,
        gives: "faults found by canaries and poisoned outputs",
        loses: "certainty (a guarded run can find faults, but cannot prove that there are none)",
        loses_in_ncu_mode: None,
        command: RungCommand::Guard,
    },
    RungInfo {
        id: RungId::Verify,
        purpose: RungPurpose::Correctness,
        tool: RungTool::Runner,
        gives: "the check against the reference",
        loses: "",
        loses_in_ncu_mode: None,
        command: RungCommand::Verify,
    },
    RungInfo {
        id: RungId::NcuSudo,
        purpose: RungPurpose::Performance,
        tool: RungTool::Ncu,
        gives: "the same as `ncu.asked`, as root (`--sudo`)",
        loses: "",
        loses_in_ncu_mode: None,
        command: RungCommand::Ncu {
            collect: NcuCollection::Requested,
            replay: Replay::Requested,
            sudo: true,
        },
    },
    RungInfo {
        id: RungId::NcuRequested,
        purpose: RungPurpose::Performance,
        tool: RungTool::Ncu,
        gives: "the sections and metrics that you asked for",
        loses: "",
        loses_in_ncu_mode: None,
        command: RungCommand::Ncu {
            collect: NcuCollection::Requested,
            replay: Replay::Requested,
            sudo: false,
        },
    },
    RungInfo {
        id: RungId::NcuAppRange,
        purpose: RungPurpose::Performance,
        tool: RungTool::Ncu,
        gives: "the requested sections and metrics of each range; the program runs once per pass",
        loses: "a single run (each pass measures another run)",
        loses_in_ncu_mode: None,
        command: RungCommand::Ncu {
            collect: NcuCollection::Requested,
            replay: Replay::AppRange,
            sudo: false,
        },
    },
    RungInfo {
        id: RungId::NcuKernel,
        purpose: RungPurpose::Performance,
        tool: RungTool::Ncu,
        gives: "the requested sections and metrics of each kernel in a range",
        loses: "numbers of the range as a whole (each kernel has its own)",
        loses_in_ncu_mode: None,
        command: RungCommand::Ncu {
            collect: NcuCollection::Requested,
            replay: Replay::Kernel,
            sudo: false,
        },
    },
    RungInfo {
        id: RungId::NcuService,
        purpose: RungPurpose::Performance,
        tool: RungTool::Ncu,
        gives: "the same from the provider's own ncu (Wafer)",
        loses: "control over the machine (the provider's ncu ran on one that the provider chose)",
        loses_in_ncu_mode: None,
        command: RungCommand::Provider(RungId::NcuRequested),
    },
    RungInfo {
        id: RungId::NcuBasic,
        purpose: RungPurpose::Performance,
        tool: RungTool::Ncu,
        gives: "ncu's basic sections",
        loses: "all sections except the basic ones",
        loses_in_ncu_mode: None,
        command: RungCommand::Ncu {
            collect: NcuCollection::Basic,
            replay: Replay::Requested,
            sudo: false,
        },
    },
    RungInfo {
        id: RungId::NcuLaunch,
        purpose: RungPurpose::Performance,
        tool: RungTool::Ncu,
        gives: "the launch: grid, registers, shared memory",
        loses: "every hardware counter (only launch facts)",
        loses_in_ncu_mode: None,
        command: RungCommand::Ncu {
            collect: NcuCollection::Launch,
            replay: Replay::Requested,
            sudo: false,
        },
    },
    RungInfo {
        id: RungId::NcuServiceLaunch,
        purpose: RungPurpose::Performance,
        tool: RungTool::Ncu,
        gives: "the launch, from the provider's own ncu",
        loses: "every hardware counter (the provider's own ncu reports only launch facts)",
        loses_in_ncu_mode: None,
        command: RungCommand::Provider(RungId::NcuLaunch),
    },
    RungInfo {
        id: RungId::NsysFull,
        purpose: RungPurpose::Performance,
        tool: RungTool::Nsys,
        gives: "timeline of CUDA, NVTX and the other requested traces",
        loses: "",
        loses_in_ncu_mode: None,
        command: RungCommand::Nsys(NsysTraces::Full),
    },
    RungInfo {
        id: RungId::NsysCuda,
        purpose: RungPurpose::Performance,
        tool: RungTool::Nsys,
        gives: "timeline of CUDA and NVTX, with NSYS CuptiUseRawGpuTimestamps=false",
        loses: "traces other than CUDA and NVTX, and CPU sampling",
        loses_in_ncu_mode: Some("hardware counters (only times of kernels, copies and ranges)"),
        command: RungCommand::Nsys(NsysTraces::Cuda),
    },
    RungInfo {
        id: RungId::Torch,
        purpose: RungPurpose::Performance,
        tool: RungTool::Torch,
        gives: "PyTorch operators and the GPU kernels they launch",
        loses: "calls outside PyTorch",
        loses_in_ncu_mode: Some("hardware counters (only operators and times of kernels)"),
        command: RungCommand::Torch,
    },
    RungInfo {
        id: RungId::Cupti,
        purpose: RungPurpose::Performance,
        tool: RungTool::Cupti,
        gives: "timeline of CUDA and NVTX, without Nsight",
        loses: "traces other than CUDA and NVTX, and CPU sampling",
        loses_in_ncu_mode: Some("hardware counters (only times of kernels, copies and ranges)"),
        command: RungCommand::Cupti,
    },
    RungInfo {
        id: RungId::NsysNvtx,
        purpose: RungPurpose::Performance,
        tool: RungTool::Nsys,
        gives: "NVTX ranges in host time",
        loses: "all GPU activity (only NVTX ranges, in host time)",
        loses_in_ncu_mode: None,
        command: RungCommand::Nsys(NsysTraces::Nvtx),
    },
    RungInfo {
        id: RungId::NcuTimes,
        purpose: RungPurpose::Performance,
        tool: RungTool::Ncu,
        gives: "the time of each launch, for the choice of kernels in mode `deep`",
        loses: "the timeline (only the time of each launch)",
        loses_in_ncu_mode: None,
        command: RungCommand::Ncu {
            collect: NcuCollection::Times,
            replay: Replay::Requested,
            sudo: false,
        },
    },
    RungInfo {
        id: RungId::Nvtx,
        purpose: RungPurpose::Performance,
        tool: RungTool::Collector,
        gives: "NVTX ranges without Nsight; without a GPU, the ranges of the reference on the CPU",
        loses: "all GPU activity (only NVTX ranges, in host time)",
        loses_in_ncu_mode: None,
        command: RungCommand::Collector,
    },
    RungInfo {
        id: RungId::CudaEvents,
        purpose: RungPurpose::Performance,
        tool: RungTool::Runner,
        gives: "the kernel's time by CUDA events",
        loses: "all data but the kernel's time",
        loses_in_ncu_mode: None,
        command: RungCommand::Time(&[]),
    },
    RungInfo {
        id: RungId::HostClock,
        purpose: RungPurpose::Performance,
        tool: RungTool::Runner,
        gives: "the kernel's time by the host's clock; a program's own time",
        loses: "all data but the kernel's time",
        loses_in_ncu_mode: None,
        command: RungCommand::Time(&["--host-clock"]),
    },
    RungInfo {
        id: RungId::Cpu,
        purpose: RungPurpose::Performance,
        tool: RungTool::Runner,
        gives: "the reference on the CPU, and the compiled code",
        loses: "all GPU data",
        loses_in_ncu_mode: None,
        command: RungCommand::Cpu,
    },
];
