//! A kernel compiled on this machine because its host cannot: by NVRTC (which needs no host
//! compiler and no GPU), else by nvcc.
//!
//! This machine is a remote like any other here: the same agent carries out a plan with the build
//! step alone, so logs, time limits and cancelling are the same. Its job is the run's own affair: what
//! has come into the run folder is dropped here, whatever becomes of the run.

use std::sync::Arc;

use rgpu_protocol::HostFacts;

use super::bundle_reader::submission;
use super::event::RunEvent;
use super::job::{self, JobResult, RunContext};
use super::programs::Programs;
use super::resume;
use crate::bundle::{Bundle, DEFAULT_MAX_BYTES, Packer};
use crate::error::{Failure, Result};
use crate::remote::options::NoPrompt;
use crate::remote::{ConnectOptions, FirstUse, HostLink, OnRemote, Remote, RemoteSpec};
use crate::tool::{self, Expectations, JobName, PlanPart, Request, Toolbox};

/// Builds; how that ended, and what was expected of it. `sequence` numbers the builds of one run.
///
/// # Errors
/// No compiler here either, or this machine's agent does not start.
pub(super) async fn build(
    request: &Request,
    host: &HostFacts,
    programs: &Programs,
    sequence: u32,
    context: &mut RunContext<'_>,
) -> Result<(JobResult, Expectations)> {
    let spec = RemoteSpec::local();
    let remote: Arc<dyn Remote> =
        Arc::from(spec.open().map_err(|e| e.failure(&spec.name, spec.scheme()))?);
    let options = ConnectOptions {
        agent: programs.agent.clone(),
        first_use: FirstUse::Refuse,
        talk: Arc::new(NoPrompt),
    };
    let mut link = HostLink::connect(Arc::clone(&remote), options).await.on(&*remote)?;
    let answers = link.facts(&tool::probes(&programs.compilers)).await.on(&*remote)?;
    let facts = tool::facts(&spec.name, remote.transport(), answers);
    let toolbox = Toolbox { runner: programs.runner.clone(), collector: None };
    let arch = tool::target_arch(request, host)?;
    let mut for_host = Request { part: PlanPart::Build, arch: Some(arch), ..request.clone() };
    for_host.build.fetch = request.build.fetch_here;
    let job = JobName { run: format!("{}.local", context.record.id), sequence };
    let draft = tool::plan(&for_host, &facts, &toolbox, &job).map_err(Failure::from)?;
    // Said once it is known that this machine can.
    let text = "the host has no CUDA compiler: compiling on this machine";
    context.reporter.say(&RunEvent::Note { text });
    let expect = draft.expect.clone();
    let bundle = Packer::new(DEFAULT_MAX_BYTES).pack(draft)?;
    context.folder.write_json("plan-local.json", &bundle.plan)?;
    let name = bundle.plan.job.clone();
    let end = carry(&mut link, bundle, context).await;
    // Where waiting stopped it is kept: it can be taken up.
    if end.is_ok() {
        link.drop_job(&name);
    }
    link.close().await;
    Ok((end?, expect))
}

/// Carries the build out, or takes from the run folder what it came to before.
async fn carry(
    link: &mut HostLink,
    bundle: Bundle,
    context: &mut RunContext<'_>,
) -> Result<JobResult> {
    let name = bundle.plan.job.clone();
    let known = resume::known(context.folder, context.record, &name)?.unwrap_or_default();
    if known.ended() {
        return job::follow_to_end(link, &name, &known.events, context).await;
    }
    let submitted = job::submit(link, &submission(bundle.plan, bundle.blobs), context).await;
    if submitted.is_err() {
        // Stopped before a word of it was heard: there is nothing to take up.
        link.drop_job(&name);
    }
    submitted?;
    job::follow_to_end(link, &name, &[], context).await
}
