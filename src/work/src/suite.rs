//! Suites: many cases of kernels and programs, run one after the other, with expected times and a
//! history.
//!
//! ```text
//! bench.toml ─▶ SuiteFile ─▶ cases ─▶ RunningSuite ─▶ suite.json ─▶ verdicts, history, reports
//!   (file)       (target)    (case)  (running_suite)              (expectations, index)
//! ```
//!
//! A case becomes an ordinary run with its own folder; the command line carries it out by
//! [`rgpu_run::run`]. Everything here takes values and returns values, but for the files of
//! expectations and the index of runs in `.rgpu/state.db`.

pub mod audit;
mod case;
mod change_points;
mod compare;
pub mod expectations;
mod file;
mod history;
mod index;
mod lone_session;
mod matrix;
mod missing_tool;
mod running_suite;
mod select;
mod target;
mod target_problem;
mod times;

pub use case::SuiteCase;
pub use change_points::change_points;
pub use compare::{KnownSpread, TimeKind, compare};
pub use file::{MAX_CASES, SuiteFile};
pub use history::history;
pub use index::{PointsByKey, RunIndex, TimeQuery, sessions};
pub use lone_session::LoneSession;
pub use matrix::{Axis, AxisKind, Matrix, sweep_values};
pub use missing_tool::missing_tools;
pub use running_suite::{
    CaseEnd, MAX_SUITE_ID_CHARS, RunKind, RunningSuite, grown_sizes, is_reason, is_too_close,
};
pub use select::{left_out_targets, matches, select};
pub use target::{CaseSettings, SizeGrowth, TargetKind, TargetSpec, kernel_path, program_path};
pub use target_problem::{TargetProblem, target_problems};
pub use times::{SideSource, inputs_digest, metrics, side_times};
