//! The data that `rgpu` and the harness exchange: the runner's input and its report.
//!
//! A [`RunnerInput`] is data: what to allocate, how to fill it, what to launch and how to check it.
//! It lists the [`Case`]s: the problem sizes, each with its data. The laptop evaluates every
//! expression of `kernel.toml` before it writes the input, so the input holds numbers only and the
//! GPU host never parses a formula. The runner (`rgpu-runner`) reads it and answers with one
//! [`RunnerReport`].
//!
//! [`stats`] holds the statistics of timing samples that both sides use.
//!
//! The crate depends on serde alone, because it is compiled into `rgpu` and into the runner for old
//! hosts, and mirrored by the Python templates.
//!
//! Unknown JSON fields are skipped, so that an older runner can read a newer input. A change that
//! must not be ignored changes [`CASE_ABI`].

mod case;
mod codec;
mod dtype;
mod input;
mod pair;
mod report;
pub mod stats;

pub use case::{Arg, Case, Group, Init, LaunchShape, Number, Role};
pub use codec::Value;
pub use dtype::{Dtype, UnknownDtype};
pub use input::{
    Baseline, BoardRules, CASE_ABI, ClockPolicy, EntryPoint, HostFunction, Policies, PythonEntry,
    PythonInputs, RankingBy, Reference, RunnerInput, Setting, TimingPlan, Tolerance,
};
pub use pair::PairedTiming;
pub use report::{
    BaselineTime, BoardReport, CaseReport, ClockReading, Cooling, Correctness, DeviceFacts,
    ErrorClass, GraphTiming, GuardFinding, GuardKind, GuardReport, HostWarning, Mismatch,
    ModelReport, OutputCheck, Phase, RunnerError, RunnerJob, RunnerReport, Timing, TimingSource,
    Trust, WarningKind,
};
