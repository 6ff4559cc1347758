//! `--hang`: when a program counts as hung, and what is then looked at.

use rgpu_protocol::Step;
use rgpu_protocol::plan::{ArtifactSpec, HangDetection};

use super::ladder::{PLAIN_STEP, SECOND_STEP};
use crate::tool::{ncu, nsys};

/// The file with the stacks in the job's folder, and its kind.
const FILE: &str = "raw/hang.txt";
const KIND: &str = "hang";

/// Variables that hold the rank, the innermost launcher's first.
const RANK_VARIABLES: &[&str] =
    &["RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"];

/// The names of compute-sanitizer's processes, cut to 15 bytes, as the kernel does.
const SANITIZER_PROCESSES: &[&str] = &["compute-sanitiz", "TreeLauncherSub"];

/// Commands that print the stack of a process. gdb stops the process meanwhile.
const STACKS: &[&[&str]] = &[
    &["py-spy", "dump", "--nonblocking", "--pid", HangDetection::PID],
    &["gdb", "-p", HangDetection::PID, "-batch", "-nx", "-ex", "thread apply all backtrace 30"],
];

/// Lower-case words that mark a communication call in a stack (torch, NCCL, MPI, JAX).
const CALLS: &[&str] = &[
    "all_reduce",
    "allreduce",
    "all_gather",
    "allgather",
    "reduce_scatter",
    "reducescatter",
    "all_to_all",
    "alltoall",
    "broadcast",
    "barrier",
    "send",
    "recv",
    "nccl",
];

/// The hang detection for a program that is silent for `quiet_s` seconds.
pub(super) fn hang_detection(quiet_s: u64) -> HangDetection {
    let text = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let tools = [nsys::PROCESSES, ncu::PROCESSES, SANITIZER_PROCESSES];
    HangDetection {
        quiet_s,
        spare: tools.iter().flat_map(|names| text(names)).collect(),
        file: FILE.to_owned(),
        rank_variables: text(RANK_VARIABLES),
        stacks: STACKS.iter().map(|command| text(command)).collect(),
        calls: text(CALLS),
    }
}

/// Adds hang detection to every rung of the steps that run the program.
pub fn add_hang_detection(steps: &mut [Step], quiet_s: u64, is_program: impl Fn(&str) -> bool) {
    for rung in steps.iter_mut().filter(|step| is_program(&step.id)).flat_map(|s| &mut s.rungs) {
        rung.hang = Some(hang_detection(quiet_s));
        rung.artifacts.push(ArtifactSpec { path: FILE.to_owned(), kind: KIND.to_owned() });
    }
}

/// Whether a step of a profile runs the program.
pub(super) fn runs_program(step: &str) -> bool {
    [PLAIN_STEP, SECOND_STEP].contains(&step)
        || ["survey", "profile", "sanitizer-"].iter().any(|name| step.starts_with(name))
}
