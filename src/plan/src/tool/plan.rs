//! Makes the plan for a request from the facts of a host.
//!
//! For a kernel the steps are `build`, `reference`, `verify`, `time`, then those of the mode. Every
//! mode but `sanitizer` measures without a tool first, so that no tool disturbs the profile's time.
//! For a program there is only `profile`. The job's folder:
//!
//! | path | contents |
//! |---|---|
//! | `case.json`, `case-plain.json`, `case-sanitizer.json` | runner inputs: with the reference, without, and without warm-up |
//! | `src/…`, `include/rgpu.h`, `data/…` | sources, our header, input files |
//! | `harness.py` | replaces the inputs and the runner for a Python kernel |
//! | `hook/` | starts torch's profiler in a program |
//! | `bin/` | the runner and the collector |
//! | `ranks/` | scripts that start one rank of a program |
//! | `nodes/` | scripts that start a program on each of several nodes |
//! | `build/` | compiled files |
//! | `raw/` | results of tools and runner: `report.ncu-rep`, `report.nsys-rep`, `report.sqlite`, `verify.json`, `time.json`, `once.json`, `memcheck.xml`, `nvtx.jsonl.<pid>` … |

use rgpu_protocol::HostFacts;
use rgpu_protocol::plan::Arg;

use crate::kernel::ProfileMode;

pub(crate) mod arch;
pub(crate) mod build;
pub(crate) mod compile_cache;
pub(crate) mod draft;
pub(crate) mod dsl;
pub(crate) mod dsl_layouts;
pub(crate) mod facts;
pub(crate) mod filter;
pub(crate) mod gpu_selection;
pub(crate) mod hang;
pub(crate) mod harness;
pub(crate) mod host_tool;
pub(crate) mod ladder;
pub(crate) mod launcher;
pub(crate) mod message_rows;
pub(crate) mod nodes;
pub(crate) mod options;
pub(crate) mod pair;
pub(crate) mod pattern;
mod planner;
pub(crate) mod price;
pub(crate) mod program_build;
pub(crate) mod provider_rungs;
pub(crate) mod python_env;
pub(crate) mod rank_selection;
pub(crate) mod rank_shim;
pub(crate) mod reason;
pub(crate) mod region;
pub(crate) mod request;
pub(crate) mod rungs;
mod runner_input;
mod sanitizer_steps;
pub(crate) mod sections;
mod torch_hook;
pub(crate) mod wheels;

use draft::{Draft, PlanError};
use launcher::LauncherError;
use planner::{KernelTarget, Planner};
use request::{HostBinaries, JobName, ProfileTarget, Request};

use super::{ncu, nsys, sanitizer, slurm};

/// The header that host entries include.
const HEADER: &[u8] = rgpu_harness::RGPU_H.as_bytes();

const RUNNER: &str = "bin/rgpu-runner";
const COLLECTOR: &str = "bin/librgpu_collector.so";
const RUNNER_INPUT: &str = "case.json";
const RUNNER_INPUT_PLAIN: &str = "case-plain.json";
const RUNNER_INPUT_SANITIZER: &str = "case-sanitizer.json";
const RAW: &str = "raw";

/// Checks what the laptop can check of a request before it asks a host.
pub fn check(request: &Request) -> Result<(), PlanError> {
    if request.mode == ProfileMode::Torch
        && matches!(&request.target, ProfileTarget::Kernel { spec, .. } if !spec.is_python())
    {
        return Err(PlanError::TorchNeedsPython);
    }
    if request.mode == ProfileMode::Torch {
        torch_hook::check(request)?;
    }
    ncu::check(request)?;
    nsys::check(request)?;
    sanitizer::check(request)
}

/// Checks that a tool can be placed before the program that a launcher starts.
pub fn check_launcher(argv: &[Arg]) -> Result<(), LauncherError> {
    launcher::program_start(argv).map(drop)
}

/// Makes the plan for a request.
pub fn plan(
    request: &Request,
    facts: &HostFacts,
    binaries: &HostBinaries,
    job: &JobName,
) -> Result<Draft, PlanError> {
    check(request)?;
    if slurm::is_login_node(facts) {
        return Err(PlanError::LoginNode { remote: facts.remote.clone() });
    }
    let chosen = arch::chosen_gpu(request, facts)?;
    if let ProfileTarget::Program(program) = &request.target
        && program.build.is_some()
    {
        let (program, notes) = program_build::with_build_steps(program, request, facts, chosen)?;
        let target = ProfileTarget::Program(program);
        let mut draft = plan(&Request { target, ..request.clone() }, facts, binaries, job)?;
        draft.info.notes.extend(notes);
        return Ok(draft);
    }
    let gpu = chosen.is_some();
    let mut draft = match &request.target {
        ProfileTarget::Program(program) => {
            let name = program.name.clone();
            let mut draft = Planner::new(request, facts, binaries, gpu).program(program)?;
            draft.plan.title = format!("profile {name} ({})", request.mode);
            draft.files.extend(program.files.iter().cloned());
            if let Some(quiet_s) = request.window.hang_s {
                hang::add_hang_detection(&mut draft.plan.steps, quiet_s, hang::runs_program);
            }
            draft
        }
        ProfileTarget::Kernel { spec, sources, cases, seed } => {
            let small = spec
                .small_cases()
                .map_err(|error| PlanError::SmallCase { problem: error.to_string() })?;
            let target = KernelTarget {
                spec,
                sources,
                input: runner_input::runner_input(
                    request,
                    spec,
                    sources,
                    cases.clone(),
                    small,
                    *seed,
                ),
                // Python compiles for the GPU that it runs on.
                arch: if spec.is_python() {
                    String::new()
                } else {
                    arch::target_arch(request, facts)?
                },
            };
            harness::check(request, facts)?;
            Planner::new(request, facts, binaries, gpu).kernel(&target)?
        }
    };
    draft.plan.job = job.job();
    Ok(draft)
}

#[cfg(test)]
mod tests;
