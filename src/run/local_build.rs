//! A kernel compiled on this machine because its host cannot: by NVRTC (which needs no host
//! compiler and no GPU), else by nvcc.
//!
//! This machine is a remote like any other here: the same agent carries out a plan with the build
//! step alone, so logs, time limits and cancelling are the same.

use std::sync::Arc;

use rgpu_protocol::HostFacts;

use super::blobs::submission;
use super::job::{self, Desk, JobEnd};

use super::programs::Programs;
use super::said::Said;
use crate::bundle::{DEFAULT_LIMIT, Packer};
use crate::error::{Failure, Result};
use crate::remote::options::Mute;
use crate::remote::{ConnectOptions, FirstUse, Follow, OnRemote, Remote, RemoteSpec};
use crate::tool::{self, Expectations, JobName, Part, Request, Toolbox};

/// Builds the `sequence`th kernel of a run; how that ended, and what was expected of it.
///
/// # Errors
/// No compiler here either, or this machine's agent does not start.
pub(super) async fn build(
    request: &Request,
    host: &HostFacts,
    programs: &Programs,
    desk: &mut Desk<'_>,
    sequence: u32,
) -> Result<(JobEnd, Expectations)> {
    let spec = RemoteSpec::local();
    let remote: Arc<dyn Remote> =
        Arc::from(spec.open().map_err(|e| e.failure(&spec.name, spec.scheme()))?);
    let options = ConnectOptions {
        agent: programs.agent.clone(),
        first_use: FirstUse::Refuse,
        talk: Arc::new(Mute),
    };
    let mut follow = Follow::connect(Arc::clone(&remote), options).await.on(&*remote)?;
    let answers = follow.facts(&tool::probes(&programs.compilers)).await.on(&*remote)?;
    let facts = tool::facts(&spec.name, remote.transport(), answers);
    let toolbox = Toolbox { runner: programs.runner.clone(), collector: None };
    let arch = tool::target_arch(request, host)?;
    let mut for_host = Request { part: Part::Build, arch: Some(arch), ..request.clone() };
    for_host.build.fetch = request.build.fetch_here;
    let job = JobName { run: format!("{}.local", desk.record.id), sequence };
    let draft = tool::plan(&for_host, &facts, &toolbox, &job).map_err(Failure::from)?;
    // Said once it is known that this machine can.
    let text = "the host has no CUDA compiler: compiling on this machine";
    desk.reporter.say(&Said::Note { text });
    let expect = draft.expect.clone();
    let bundle = Packer::new(DEFAULT_LIMIT).pack(draft)?;
    let plan = &bundle.plan;
    desk.folder.write_json("plan-local.json", plan)?;
    let name = plan.job.clone();
    job::submit(&mut follow, &submission(bundle.plan, bundle.blobs), desk).await?;
    let end = job::follow_to_end(&mut follow, &name, &[], desk).await?;
    follow.close().await;
    Ok((end, expect))
}
