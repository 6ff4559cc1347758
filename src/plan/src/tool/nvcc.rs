//! `nvcc`: the CUDA compiler, which also builds host entries.

use rgpu_protocol::probe::AgentFacts;
use rgpu_protocol::{HostFacts, Probe};

use super::Tool;
use super::plan::facts::{run, tool, version_after};
use super::plan::message_rows::{MessageRow, RowAction};

pub(super) struct Nvcc;

impl Tool for Nvcc {
    fn name(&self) -> &'static str {
        "nvcc"
    }

    fn probes(&self) -> Vec<Probe> {
        let find = [
            "nvcc",
            "/usr/local/cuda/bin/nvcc",
            "/usr/local/cuda-*/bin/nvcc",
            "/opt/cuda/bin/nvcc",
        ];
        vec![run("nvcc", &find, &["--version"])]
    }

    fn read(&self, agent: &AgentFacts, facts: &mut HostFacts) {
        facts.tools.extend(tool(agent, "nvcc", |text| version_after(text, "release ")));
    }
}

/// Meanings of compiler messages; NVRTC's messages about the source are the same. Warnings quote
/// lines of the source, which may hold any text, so these rows apply only after a failure.
pub(super) static MESSAGE_ROWS: &[MessageRow] = &[
    MessageRow("Unsupported gpu architecture", "arch_unsupported", RowAction::FailedNext),
    MessageRow(
        "is not defined for option 'gpu-architecture'",
        "arch_unsupported",
        RowAction::FailedNext,
    ),
    MessageRow("invalid value for --gpu-architecture", "arch_unsupported", RowAction::FailedNext),
    MessageRow("Cannot find compiler", "no_host_compiler", RowAction::FailedNext),
    MessageRow("unsupported GNU version", "no_host_compiler", RowAction::FailedNext),
    MessageRow("unsupported clang version", "no_host_compiler", RowAction::FailedNext),
    MessageRow("error while loading shared libraries", "compiler_broken", RowAction::FailedNext),
    MessageRow("failed to open libnvrtc-builtins", "compiler_broken", RowAction::FailedNext),
    MessageRow("error:", "does_not_compile", RowAction::FailedStop),
    MessageRow("error   :", "does_not_compile", RowAction::FailedStop),
    MessageRow("error #", "does_not_compile", RowAction::FailedStop),
    MessageRow("undefined reference to", "does_not_compile", RowAction::FailedStop),
];
