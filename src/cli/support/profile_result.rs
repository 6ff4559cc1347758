//! Writes the result of a profile into its run folder, and derives the exit status.

use super::app::{App, Status};
use super::exec_status::status_of_failure;
use super::followed_run::FollowedRun;
use super::unmeasured::{UnmeasuredArgs, not_measured};
use super::verification::unverified;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_model::sanitizer::SanitizerVerdict;
use rgpu_model::{Profile, RungId};
use rgpu_run::run::{ProfileOutcome, below_rung_failure, misses_rung, write_samples};
use rgpu_run::store::RunRecord;

/// The result of a run, after everything is written into its folder.
pub(in crate::cli) struct FinishedRun {
    pub(in crate::cli) profile: Option<Box<Profile>>,
    pub(in crate::cli) failure: Option<Failure>,
    /// How the program of `exec` failed, if it did. The command ends with the program's status
    /// then.
    pub(in crate::cli) program_failure: Option<Failure>,
    /// The command's exit status.
    pub(in crate::cli) status: Status,
}

/// Writes the result into the run folder. `at_least`: the lowest rung that counts as success;
/// `unmeasured`: whether a result without a number from a GPU does.
pub(in crate::cli) fn write_result(
    app: &App,
    at_least: Option<&RungId>,
    unmeasured: UnmeasuredArgs,
    run: &mut FollowedRun,
    outcome: Result<ProfileOutcome>,
) -> Result<FinishedRun> {
    let FollowedRun { folder, record, .. } = &*run;
    let (profile, failure) = match outcome {
        Ok(ProfileOutcome::Detached) => {
            run.record_detached()?;
            return Ok(FinishedRun {
                profile: None,
                failure: None,
                program_failure: None,
                status: 0,
            });
        }
        Ok(ProfileOutcome::Profile { mut profile, sidecars, failure, .. }) => {
            profile.run.seconds = record.seconds;
            profile.run.cost_usd = record.cost.cost_usd;
            profile.run.cost_from = record.cost.source().map(Into::into);
            if let Some(hotspots) = &sidecars.hotspots {
                folder.write_json("hotspots.json", hotspots)?;
            }
            if let Some(trace) = &sidecars.trace {
                folder.write_json("trace.json", trace)?;
            }
            // Write the reports now, so that they can be read without rgpu.
            let subject = rgpu_report::ReportInput::new(&profile, &sidecars);
            for report in ["markdown", "html"].into_iter().filter_map(rgpu_report::report) {
                for document in (report.render)(&subject, &rgpu_report::Style::default()) {
                    folder.write(document.name, &document.into_bytes())?;
                }
            }
            (Some(profile), failure)
        }
        Err(failure) => (None, Some(failure)),
    };
    let is_exec = record.command == "exec";
    let is_the_programs = |failure: &Failure| is_exec && failure.code == "program_failed";
    let (program_failure, failure) = match failure {
        Some(failure) if is_the_programs(&failure) => (Some(failure), None),
        failure => (None, failure),
    };
    let failure = failure
        .or_else(|| profile.as_ref().and_then(|p| below_required_rung(p, at_least)))
        .or_else(|| profile.as_deref().and_then(unverified))
        .or_else(|| {
            // A program of `exec` that failed ends with its own status.
            let has_failed = is_exec && (program_failure.is_some() || program_status(record) != 0);
            let profile = profile.as_deref().filter(|_| !has_failed)?;
            not_measured(app, profile, at_least, unmeasured)
        })
        .map(|failure| match failure.place.log {
            None if folder.path().join("log").is_dir() => {
                failure.log(app.short(&folder.path().join("log")))
            }
            _ => failure,
        });
    let has_findings =
        profile.iter().flat_map(|p| &p.sanitizer).any(|s| s.verdict == SanitizerVerdict::Found);
    let status = match &failure {
        Some(failure) if is_exec => status_of_failure(failure),
        Some(failure) => failure.exit as u8,
        None if has_findings => Exit::Findings as u8,
        None if is_exec => program_status(record),
        None => 0,
    };
    if let Some(profile) = &profile {
        folder.write_json("profile.json", profile)?;
        write_samples(folder)?;
        for file in rgpu_report::regions::files(profile) {
            folder.write(&file.path, file.text.as_bytes())?;
        }
        rgpu_run::run::publish_cubins(profile, folder, &app.config.runs_dir.value).map_err(
            |e| Failure::new(Exit::Disk, "disk", "cannot write the compiled kernel").cause(e),
        )?;
    }
    run.record_end(failure.as_ref(), status)?;
    Ok(FinishedRun { profile, failure, program_failure, status })
}

/// The program's own exit status.
fn program_status(record: &RunRecord) -> u8 {
    record.program_exit.map_or(0, |status| (status & 0xff) as u8)
}

/// The failure of a run that ended below `--at-least`.
fn below_required_rung(profile: &Profile, at_least: Option<&RungId>) -> Option<Failure> {
    let required_rung = at_least?;
    let message = format!("the run ended on rung `{}`, below `{required_rung}`", profile.rung);
    misses_rung(&profile.rung, required_rung, profile.gpu.is_none())
        .then(|| below_rung_failure(message, &profile.ladder))
}
