//! Finds runners that did not do their job although they ended with status 0.
//!
//! A kernel shares a process with the runner or the harness, and may end it with any status. So the
//! status of a step says nothing about the kernel: only the report that is written last does. It
//! must be there, without an error and with a result of every case.

use rgpu_case::{CaseReport, ErrorClass, RunnerJob, RunnerReport};

use super::ProfileBuilder;
use crate::run::job::JobResult;
use crate::store::RunFolder;
use rgpu_import::case_report::RunnerFailure;
use rgpu_model::RungId;
use rgpu_model::sanitizer::SanitizerVerdict;
use rgpu_plan::tool::{ExpectedReport, Request};

/// Reason code of a rung whose runner did not do its job.
const UNFINISHED: &str = "unfinished";

impl ProfileBuilder {
    /// Whether a runner ended well by its status without having done its job.
    pub(in crate::run) fn is_unfinished(&self) -> bool {
        self.unfinished.is_some()
    }

    /// Looks for the first step of an ended job whose runner did not do its job.
    pub(super) fn find_unfinished(
        &mut self,
        folder: &RunFolder,
        end: &JobResult,
        request: &Request,
    ) {
        let expected = std::mem::take(&mut self.draft_info.reports);
        for report in &expected {
            let record = end.rungs.iter().rev().find(|r| r.step == report.step);
            let is_stopped = record.is_some_and(|r| request.window.stopped(r.seconds));
            if end.rung_of(&report.step).as_ref() != Some(&report.rung) || is_stopped {
                continue;
            }
            let Some(failure) = unfinished(folder, end, report) else { continue };
            if let Some(tool) = report.step.strip_prefix("sanitizer-") {
                self.withdraw_verdict(tool, &failure.text);
                // A fault that a tool of the sanitizer has found explains the end.
                if self.has_findings() {
                    continue;
                }
            }
            self.mark_refused(&report.rung, UNFINISHED, &failure.text);
            self.unfinished = Some((report.step.clone(), failure));
            break;
        }
        self.draft_info.reports = expected;
    }

    /// A tool of the sanitizer that saw only a part of the run has not found the kernel clean.
    fn withdraw_verdict(&mut self, tool: &str, text: &str) {
        for result in &mut self.profile.sanitizer {
            if result.tool == *tool && result.verdict == SanitizerVerdict::Clean {
                result.verdict = SanitizerVerdict::Unknown;
                text.clone_into(&mut result.note);
            }
        }
    }
}

/// Why the report does not say that its job was done; `None` if it does.
fn unfinished(
    folder: &RunFolder,
    end: &JobResult,
    expected: &ExpectedReport,
) -> Option<RunnerFailure> {
    let failure = |text: String| Some(RunnerFailure { class: ErrorClass::Crash, text });
    let artifacts = end.files.iter().filter(|file| file.host_path == expected.path);
    let Some(artifact) =
        artifacts.map(|file| &file.artifact).find(|artifact| artifact.step == expected.step)
    else {
        return failure("the process ended with status 0 without a report".to_owned());
    };
    let read = folder.read(&artifact.path).map_err(|error| error.to_string());
    let parsed = read.and_then(|bytes| {
        crate::saved_json::from_slice::<RunnerReport>(&bytes).map_err(|error| error.to_string())
    });
    let report = match parsed {
        Ok(report) => report,
        Err(error) => {
            return failure(format!("the report `{}` cannot be read: {error}", artifact.path));
        }
    };
    if let Some(error) = &report.error {
        // The guarded run ends with a status of its own if it finds something.
        let is_finding = error.class == ErrorClass::GuardFound && expected.rung == RungId::Guard;
        return (!is_finding).then(|| RunnerFailure::from(error));
    }
    let is_done = |name: &String| {
        let case = report.cases.iter().find(|case| case.name == *name);
        case.is_some_and(|case| has_result(case, report.job))
    };
    let missing = expected.cases.iter().find(|name| !is_done(name))?;
    failure(format!(
        "the process ended with status 0, but its report has no result of `{}` (case `{missing}`)",
        report.job.name()
    ))
}

/// Whether a case has what the job was to find out.
fn has_result(case: &CaseReport, job: RunnerJob) -> bool {
    match job {
        RunnerJob::Verify => case.correctness.is_some(),
        RunnerJob::Time => case.timing.is_some(),
        RunnerJob::Pair => case.paired.is_some() || case.timing.is_some(),
        RunnerJob::Cpu => case.reference_ns.is_some() || case.timing.is_some(),
        RunnerJob::Guard => case.guard.is_some(),
        RunnerJob::Once | RunnerJob::Torch | RunnerJob::Board => true,
    }
}
