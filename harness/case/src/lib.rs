//! The data that `rgpu` and the harness exchange: the Case to run and the report of the run.
//!
//! A [`RunnerInput`] is data: what to allocate, how to fill it, what to launch and how to check it.
//! The laptop evaluates every expression of `kernel.toml` before it writes the Case, so the Case
//! holds numbers only and the GPU host never parses a formula. The runner (`rgpu-runner`) reads it
//! and answers with one [`RunnerReport`].
//!
//! [`stats`] holds the statistics of timing samples that both sides use.
//!
//! The crate depends on serde alone, because it is compiled into the plain CLI and into the runner
//! for old hosts, and mirrored by the Python templates.
//!
//! Unknown JSON fields are skipped, so that an older runner can read a newer Case. A change that
//! must not be ignored changes [`CASE_ABI`].

mod case;
mod codec;
mod data;
mod dtype;
mod pair;
mod report;
pub mod stats;

pub use case::{
    CASE_ABI, ClockPolicy, Entry, HostFunction, Policies, PythonEntry, Reference, RunnerInput,
    Setting, TimingPlan, Tolerance,
};
pub use codec::Value;
pub use data::{Arg, Case, Group, Init, Launch, Number, Role};
pub use dtype::{Dtype, UnknownDtype};
pub use pair::PairedTiming;
pub use report::{
    CaseReport, ClockReading, Correctness, DeviceFacts, ErrorClass, GuardFinding, GuardKind,
    GuardReport, HostWarning, Job, Mismatch, ModelReport, OutputCheck, Phase, RunError,
    RunnerReport, Timing, TimingSource, WarningKind,
};
