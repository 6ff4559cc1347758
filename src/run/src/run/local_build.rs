//! Compiles a kernel on this machine if its host cannot: with NVRTC (which needs no host compiler
//! and no GPU), else with nvcc. Not for an agent: includes and messages of a compiler reach every
//! file of this machine.
//!
//! The build runs as a plan with only the build step, on this machine's agent, so logs, time limits
//! and cancelling work as on a host. Its job is dropped here once its files are in the run folder.

use std::sync::Arc;

use rgpu_protocol::HostFacts;

use super::assemble::ProfileBuilder;
use super::bundle_reader::submission;
use super::event::RunEvent;
use super::job::{self, JobResult, RunContext};
use super::laptop_code::why_not_compiled_here;
use super::lifecycle::RunSession;
use super::programs::Programs;
use super::resume;
use crate::config::is_started_by_agent;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_plan::bundle::{Bundle, DEFAULT_MAX_BYTES, Packer};
use rgpu_plan::kernel::EntryPoint;
use rgpu_plan::tool::{
    self, DraftInfo, HostBinaries, JobName, PlanError, PlanPart, PrebuiltCode, ProfileTarget,
    Request,
};
use rgpu_remote::options::NoPrompt;
use rgpu_remote::{ConnectOptions, HostLink, OnRemote, Remote, RemoteSpec, UnknownHostPolicy};

/// Why nothing is compiled on this machine for an agent, and what the user can do.
pub const NOT_FOR_AGENTS: &str = "not compiled on this machine, since an agent started this: type \
                                  the command yourself, or install a CUDA compiler on the host";

/// Compiles the request's kernel on this machine if its host cannot, and adds the files to the
/// request. Without a compiler here, and for an agent, the plan reports that the host has none.
/// `sequence` numbers the builds of one run.
pub(super) async fn compile_here(
    request: &mut Request,
    builder: &mut ProfileBuilder,
    sequence: u32,
    session: &RunSession<'_>,
    facts: &HostFacts,
    context: &mut RunContext<'_>,
) -> Result<()> {
    if super::is_local(session.link) || !lacks_compiler(request, facts) {
        return Ok(());
    }
    if is_started_by_agent() {
        context.reporter.report(&RunEvent::Note { text: NOT_FOR_AGENTS });
        return Ok(());
    }
    if let Some(why) = why_not_compiled_here(request) {
        let text = format!("not compiled on this machine: {why}");
        context.reporter.report(&RunEvent::Note { text: &text });
        return Ok(());
    }
    let arch = tool::target_arch(request, facts)?;
    if request.prebuilt.iter().any(|code| code.arch == arch) {
        return Ok(());
    }
    let built = build(request, arch.clone(), session.programs, sequence, context).await?;
    let Some((end, info)) = built else { return Ok(()) };
    let files = builder.add_local_build(context.folder, &end, &info, request)?;
    request.prebuilt.push(PrebuiltCode { arch, files });
    if end.step_ok("build") {
        return Ok(());
    }
    builder.job = Some(end);
    let failure = RemoteSpec::local().open().ok().and_then(|local| builder.failure(&*local));
    Err(failure.unwrap_or_else(|| {
        Failure::new(Exit::Kernel, "does_not_compile", "the kernel does not compile")
    }))
}

/// The architecture for which `compile_here` would compile the request's kernel for a remote host
/// with these facts, if this machine has a compiler. `None` if it compiles nothing.
pub fn arch_to_compile_here(
    request: &Request,
    facts: &HostFacts,
) -> Result<Option<String>, PlanError> {
    let is_compiled_here = !is_started_by_agent()
        && lacks_compiler(request, facts)
        && why_not_compiled_here(request).is_none();
    is_compiled_here.then(|| tool::target_arch(request, facts)).transpose()
}

/// Whether the host has no compiler for the request's kernel, and this machine could compile it.
fn lacks_compiler(request: &Request, facts: &HostFacts) -> bool {
    let ProfileTarget::Kernel { spec, .. } = &request.target else { return false };
    let has_wheels = request.build.fetch && tool::lacks_for_wheels(facts).is_empty();
    let is_retry = !request.reuse.is_empty();
    !has_wheels
        && !is_retry
        && matches!(spec.entry, EntryPoint::Device(_))
        && tool::compilers(facts, &spec.entry).is_empty()
}

/// Builds for `arch` on this machine. Returns the job's result and what we know of its plan; `None`
/// if this machine has no compiler either.
async fn build(
    request: &Request,
    arch: String,
    programs: &Programs,
    sequence: u32,
    context: &mut RunContext<'_>,
) -> Result<Option<(JobResult, DraftInfo)>> {
    let spec = RemoteSpec::local();
    let remote: Arc<dyn Remote> =
        Arc::from(spec.open().map_err(|e| e.failure(&spec.name, spec.scheme()))?);
    let options = ConnectOptions {
        agent: programs.agent.clone(),
        unknown_host_policy: UnknownHostPolicy::Refuse,
        user_prompt: Arc::new(NoPrompt),
        run: String::new(),
        host_request: Default::default(),
    };
    let mut link = HostLink::connect(Arc::clone(&remote), options).await.on(&*remote)?;
    let answers = link.facts(&tool::probes(&programs.compilers)).await.on(&*remote)?;
    let facts = tool::facts(&spec.name, remote.transport(), answers);
    let binaries = HostBinaries { runner: programs.runner.clone(), collector: None };
    let mut for_host = Request { part: PlanPart::Build, arch: Some(arch), ..request.clone() };
    for_host.build.fetch = request.build.fetch_here;
    let job = JobName { run: format!("{}.local", context.record.id), sequence };
    let draft = match tool::plan(&for_host, &facts, &binaries, &job) {
        Err(PlanError::NoCompiler { .. }) => return Ok(None),
        draft => draft?,
    };
    // Reported only once it is known that this machine has a compiler.
    let text = "the host has no CUDA compiler: compiling on this machine";
    context.reporter.report(&RunEvent::Note { text });
    let info = draft.info.clone();
    let bundle = Packer::new(DEFAULT_MAX_BYTES).pack(draft)?;
    context.folder.write_json("plan-local.json", &bundle.plan)?;
    let name = bundle.plan.job.clone();
    let end = run_or_restore(&mut link, bundle, context).await;
    // If the user stopped waiting, the job is kept and can be resumed.
    if end.is_ok() {
        link.request_job_removal(&name);
    }
    link.close().await;
    Ok(Some((end?, info)))
}

/// Runs the build, or returns its result from the run folder if it has ended before.
async fn run_or_restore(
    link: &mut HostLink,
    bundle: Bundle,
    context: &mut RunContext<'_>,
) -> Result<JobResult> {
    let name = bundle.plan.job.clone();
    let known = resume::recorded_job(context.folder, context.record, &name)?.unwrap_or_default();
    if known.ended() {
        return job::follow_to_end(link, &name, &known.events, context).await;
    }
    let submitted = job::submit(link, &submission(bundle.plan, bundle.blobs), context).await;
    if submitted.is_err() {
        // The submission failed, so there is no job to resume.
        link.request_job_removal(&name);
    }
    submitted?;
    job::follow_to_end(link, &name, &[], context).await
}
