//! Installs a tool of NVIDIA on a host, as a job.

use rgpu_protocol::HostFacts;
use rgpu_protocol::probe::ToolFacts;

use super::bundle_reader::submission;
use super::job::{self, RunContext, SubmitError};
use super::lifecycle::RunSession;
use super::outcome;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_plan::bundle::{DEFAULT_MAX_BYTES, Packer};
use rgpu_plan::tool::{HOST_TOOL_STEP_ID, HostTool, JobName};

/// Installs a tool, and returns what the host then says of it.
///
/// # Errors
/// There is no such tool for the host, it cannot be fetched, it is not found afterwards, the link
/// fails, or the user cancels.
pub async fn install_host_tool(
    session: &mut RunSession<'_>,
    tool: &HostTool,
    context: &mut RunContext<'_>,
) -> Result<ToolFacts> {
    // A second try is for a host that changed since its facts were cached.
    for sequence in 1..=2 {
        let facts = session.facts(context).await?;
        let job = JobName { run: context.record.id.clone(), sequence }.job();
        let installed = install(session, tool, &job, &facts, context).await;
        // No other command uses this job.
        session.link.request_job_removal(&job);
        session.forget_facts();
        match installed {
            Err(SubmitError::FactsChanged(_)) => continue,
            installed => installed?,
        }
        let facts = session.facts(context).await?;
        let found = facts.tool(tool.name).filter(|found| !found.version.is_empty());
        return found.cloned().ok_or_else(|| {
            let what = format!("{} was installed, but does not answer", tool.name);
            let problems = facts.tool(tool.name).map(|found| found.problems.join("; "));
            Failure::new(Exit::Tool, "not_installed", what).cause(problems.unwrap_or_default())
        });
    }
    Err(outcome::facts_changed_twice())
}

/// Runs the job that installs the tool.
async fn install(
    session: &mut RunSession<'_>,
    tool: &HostTool,
    job: &str,
    facts: &HostFacts,
    context: &mut RunContext<'_>,
) -> Result<(), SubmitError> {
    let draft = tool.installation(job.to_owned(), facts).ok_or_else(|| {
        let what = format!("{} is not published for {}", tool.title, facts.agent.arch);
        Failure::new(Exit::Host, "not_installed", what)
    })?;
    let bundle = Packer::new(DEFAULT_MAX_BYTES).pack(draft).map_err(Failure::from)?;
    let submission = submission(bundle.plan, bundle.blobs);
    job::submit(session.link, &submission, context).await?;
    let end = job::follow_to_end(session.link, job, &[], context).await?;
    if end.step_ok(HOST_TOOL_STEP_ID) {
        Ok(())
    } else {
        Err(outcome::failure(session.link.remote(), &end).into())
    }
}
