//! Asks the CuTe DSL for the layouts of a kernel: one plan, whose report is the result.

use std::path::Path;

use rgpu_protocol::Outcome;

use super::job::{JobResult, RunContext};
use super::lifecycle::{PlanDriver, RunError, RunSession};
use super::outcome;
use super::pass_planner::NextStep;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_plan::tool::{Draft, DslLayouts, JobName};

/// A run that prints layouts.
#[derive(Debug)]
pub struct LayoutsRun {
    /// Which layouts of which kernel the DSL prints.
    pub request: DslLayouts,
}

impl LayoutsRun {
    /// Asks, and returns the script's report.
    ///
    /// # Errors
    /// The environment cannot be made, the script ended without a report, the link, the host or the
    /// run folder fails, or the user cancels.
    pub async fn run(
        self,
        session: &mut RunSession<'_>,
        context: &mut RunContext<'_>,
    ) -> Result<Vec<u8>> {
        let mut driver = LayoutsDriver { run: &self, result: None };
        session.run_plans(&mut driver, context).await?;
        let Some(result) = driver.result else {
            return Err(Failure::new(Exit::Bug, "bug", "the job was not followed to its end"));
        };
        session.link.request_job_removal(&result.job);
        if result.outcome != Some(Outcome::Done) {
            return Err(outcome::failure(session.link.remote(), &result));
        }
        let report = result.files.iter().find(|file| file.host_path.ends_with("layouts.json"));
        let report = report.ok_or_else(|| {
            Failure::new(Exit::Host, "no_report", "the report of the layouts did not arrive")
        })?;
        Ok(context.folder.read(&report.artifact.path)?)
    }
}

struct LayoutsDriver<'a> {
    run: &'a LayoutsRun,
    result: Option<JobResult>,
}

impl PlanDriver for LayoutsDriver<'_> {
    fn source_folder(&self) -> Option<&Path> {
        Some(self.run.request.file.parent().unwrap_or(Path::new("")))
    }

    async fn draft(
        &mut self,
        job: &JobName,
        _: &mut RunSession<'_>,
        _: &mut RunContext<'_>,
    ) -> Result<Option<Draft>, RunError> {
        Ok(Some(self.run.request.plan(job).map_err(Failure::from)?))
    }

    fn handle_result(
        &mut self,
        result: JobResult,
        _: &mut RunSession<'_>,
        _: &mut RunContext<'_>,
    ) -> Result<NextStep> {
        self.result = Some(result);
        Ok(NextStep::End)
    }
}
