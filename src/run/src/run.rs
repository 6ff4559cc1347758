//! Runs plans on hosts and turns their results into profiles: it joins tools, remotes, the store
//! and importers.
//!
//! A run consists of one or several plans. The agent judges each rung by cheap checks. This module
//! imports the artifacts, may refuse a rung without usable results, and then sends the next plan of
//! the run on the same connection. It reports through a [`Reporter`] and knows no terminal, flags
//! or environment.

mod assemble;
mod build;
mod bundle_reader;
mod cancel;
mod cargo_build;
mod collectives;
mod compare;
mod deep;
mod dsl_layouts;
mod event;
mod exec;
mod facts;
mod failed_rungs;
mod file_copies;
mod fingerprint;
mod first_exception;
mod host_listings;
mod host_tool;
mod job;
mod laptop_code;
mod lifecycle;
mod link_record;
mod listings;
mod local_build;
mod memory_pools;
mod outcome;
mod pass_planner;
mod profile;
mod profiled_time;
mod program_error;
mod programs;
mod provider_ncu;
mod publish;
mod range_results;
mod region_filter;
mod regions;
mod required_rung;
mod resume;
mod samples;
mod second_pass;
mod stages;
mod stdin_feed;

pub use build::{
    BuildOutcome, BuildRun, BuildTarget, Emit, KnownMessage, messages, publish as publish_build,
};
pub use cancel::{CancelSignal, Canceller, channel};
pub use cargo_build::{CargoBuild, CargoCache};
pub use collectives::{
    CollectiveRow, CollectivesRequest, MeasuredCollectives, measure_collectives,
};
pub use compare::{CompareRun, ComparisonOutcome};
pub use dsl_layouts::LayoutsRun;
pub use event::{JsonLines, Reporter, Reporters, RunEvent, SharedReporter};
pub use exec::{
    ExecOutcome, ExecRequest, ExecRun, ProgramExit, ProgramSource, draft as exec_draft,
};
pub use facts::{FactsCache, FailedTry};
pub use failed_rungs::FailedRungs;
pub use file_copies::FileCopies;
pub use host_listings::fetch_host_listings;
pub use host_tool::install_host_tool;
pub use job::{HostFile, JobResult, NEVER_SUBMITTED, RunContext, close, record_output};
pub use laptop_code::why_not_compiled_here;
pub use lifecycle::{RunSession, RunStart};
pub use link_record::LinkRecord;
pub use local_build::{NOT_FOR_AGENTS, arch_to_compile_here};
pub use outcome::{EXEC_STEP, MAX_CAUSE_LINES, signal, starts_program};
pub use pass_planner::first_plan;
pub use profile::{ProfileOutcome, ProfileRun};
pub use programs::{Programs, find as find_programs, set_up_compilers, triple};
pub use publish::publish_cubins;
pub use required_rung::{below_rung_failure, is_below, misses_rung, rung_names};
pub use resume::recorded_outcome;
pub use samples::write_samples;

/// Whether the remote is this machine.
fn is_local(link: &rgpu_remote::HostLink) -> bool {
    link.remote().transport() == "local"
}
