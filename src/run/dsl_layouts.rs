//! Asks the CuTe DSL for the layouts of a kernel: one plan, whose report is the result.

use std::path::Path;

use rgpu_protocol::Outcome;

use super::job::{JobResult, RunContext};
use super::lifecycle::{Plans, RunError, RunHost};
use super::outcome;
use super::pass_planner::NextStep;
use crate::error::{Exit, Failure, Result};
use crate::tool::{Draft, DslLayouts, JobName};

/// A run that prints layouts.
#[derive(Debug)]
pub struct LayoutsRun {
    /// What to ask for.
    pub wanted: DslLayouts,
}

impl LayoutsRun {
    /// Asks, and returns the script's report.
    ///
    /// # Errors
    /// The environment cannot be made, the script ended without a report, the link, the host or the run
    /// folder fails, or the user cancels.
    pub async fn run(
        self,
        host: &mut RunHost<'_>,
        context: &mut RunContext<'_>,
    ) -> Result<Vec<u8>> {
        let mut plans = LayoutsPlans { run: &self, end: None };
        host.run_plans(&mut plans, context).await?;
        let Some(end) = plans.end else {
            return Err(Failure::new(Exit::Bug, "bug", "the job was not followed to its end"));
        };
        host.link.drop_job(&end.job);
        if end.outcome != Some(Outcome::Done) {
            return Err(outcome::failure(host.link.remote(), &end));
        }
        let report = end.files.iter().find(|file| file.host_path.ends_with("layouts.json"));
        let report = report.ok_or_else(|| {
            Failure::new(Exit::Host, "no_report", "the report of the layouts did not arrive")
        })?;
        Ok(context.folder.read(&report.artifact.path)?)
    }
}

struct LayoutsPlans<'a> {
    run: &'a LayoutsRun,
    end: Option<JobResult>,
}

impl Plans for LayoutsPlans<'_> {
    fn source_folder(&self) -> Option<&Path> {
        Some(self.run.wanted.file.parent().unwrap_or(Path::new("")))
    }

    async fn draft(
        &mut self,
        job: &JobName,
        _: &mut RunHost<'_>,
        _: &mut RunContext<'_>,
    ) -> Result<Option<Draft>, RunError> {
        Ok(Some(self.run.wanted.plan(job)))
    }

    fn take(
        &mut self,
        end: JobResult,
        _: &mut RunHost<'_>,
        _: &mut RunContext<'_>,
    ) -> Result<NextStep> {
        self.end = Some(end);
        Ok(NextStep::End)
    }
}
