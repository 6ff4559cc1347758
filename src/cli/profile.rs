//! `rgpu profile`: runs a kernel or a program under a profiler, on a GPU host or on this machine.

mod args;
mod mode_flags;
mod preset;
mod request;
pub(super) mod several_remotes;
mod show;

use std::time::Instant;

pub(super) use args::{
    DeepArgs, NcuArgs, NsysArgs, PlaceArgs, ProfileArgs, RunArgs, SanitizerArgs, bytes, duration,
    mode_parser,
};
pub(super) use preset::expand as expand_preset;

use super::app::{App, Status};
use super::build;
use super::disasm;
use super::exec;
use super::progress::{LiveOutput, ProgressRow};
use super::session::{self, OutputOptions};
use crate::bundle::{DEFAULT_MAX_BYTES, Packer};
use crate::error::{ANOTHER_HOST, ErrorDocument, Exit, Failure, Result};
use crate::model::Profile;
use crate::model::profile::CheckVerdict;
use crate::model::sanitizer::SanitizerVerdict;
use crate::remote::RemoteSpec;
use crate::run::{
    ProfileOutcome, ProfileRun, Reporter, RunContext, RunEvent, below_rung, close, falls_short,
};
use crate::store::{RunFolder, RunRecord, RunState, Runs};
use crate::tool;
pub(super) use mode_flags::first_given;
pub(super) use request::{ProfileCommand, gpu_choice, of_program, resolve};
pub(super) use show::planned;

pub(super) fn run(app: &App, args: &ProfileArgs) -> Result<Status> {
    if let Some(remotes) = args.place.remote.as_deref().filter(|r| r.contains(',')) {
        return several_remotes::run(app, args, remotes);
    }
    let profile_command = request::resolve(app, args)?;
    run_asked(app, args, profile_command, "profile")
}

/// Runs a resolved profile on behalf of the command named `command`.
pub(super) fn run_asked(
    app: &App,
    args: &ProfileArgs,
    profile_command: ProfileCommand,
    command: &str,
) -> Result<Status> {
    for assumption in &profile_command.assumptions {
        app.say(&format!("assumed: {assumption}"));
    }
    tool::check(&profile_command.request)?;
    if args.run.dry_run {
        return show::dry_run(app, args, &profile_command);
    }
    let (folder, mut record) = begin(app, args, &profile_command, command)?;
    let outcome = carry_out(app, args, profile_command, &folder, &mut record, RunStart::No, None);
    finish(app, args, &folder, record, outcome)
}

/// Creates the run's folder with everything that is known before anything is sent.
fn begin(
    app: &App,
    args: &ProfileArgs,
    profile_command: &ProfileCommand,
    command: &str,
) -> Result<(RunFolder, RunRecord)> {
    let now = jiff::Timestamp::now();
    let mode = profile_command.request.mode;
    let spec = session::spec(app, args.place.remote.as_deref())?;
    let (run, out) = (args.run.run_id.as_deref(), args.run.out.as_deref());
    let runs = Runs::new(&app.config.runs_dir.value);
    let (id, folder) = runs.create(run, &format!("{}-{mode}", profile_command.name), now, out)?;
    let record = RunRecord {
        title: format!("{command} {} ({mode})", profile_command.name),
        mode: mode.name().to_owned(),
        kernel: profile_command.name.clone(),
        labels: args.run.label.iter().cloned().collect(),
        note: args.run.note.clone().unwrap_or_default(),
        ..session::record(app, &spec, id, command, now)
    };
    folder.save(&record)?;
    folder.write_json("inputs.json", &profile_command.inputs)?;
    folder.write("config.toml", app.config.record(&spec).as_bytes())?;
    Ok((folder, record))
}

/// Whether a run starts or is resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunStart {
    /// It starts.
    No,
    /// It is resumed where its command left it.
    Yes,
}

/// Resumes a run from its own command line.
pub(super) fn attach(
    app: &App,
    args: &ProfileArgs,
    folder: RunFolder,
    record: RunRecord,
) -> Result<Status> {
    // The command may have named several remotes; this run has one.
    let mut args = args.clone();
    args.place.remote = Some(record.remote.clone());
    let profile_command = request::resolve(app, &args)?;
    attach_asked(app, &args, profile_command, folder, record)
}

/// Resumes a run whose command line is resolved already.
pub(super) fn attach_asked(
    app: &App,
    args: &ProfileArgs,
    profile_command: ProfileCommand,
    folder: RunFolder,
    mut record: RunRecord,
) -> Result<Status> {
    let outcome = carry_out(app, args, profile_command, &folder, &mut record, RunStart::Yes, None);
    finish(app, args, &folder, record, outcome)
}

/// Runs the profile. `row`: its progress line if several runs go on at once.
fn carry_out(
    app: &App,
    args: &ProfileArgs,
    mut profile_command: ProfileCommand,
    folder: &RunFolder,
    record: &mut RunRecord,
    resume: RunStart,
    row: Option<&ProgressRow>,
) -> Result<ProfileOutcome> {
    let started_at = Instant::now();
    let spec = session::spec(app, Some(&record.remote))?;
    profile_command.request.build.fetch |= build::wants_nvcc(app, &spec);
    profile_command.request.build.fetch_here = build::wants_nvcc(app, &RemoteSpec::local());
    // With several runs, each shows only its line; the output is in its log.
    let hidden = app.global.quiet || app.global.json || row.is_some();
    let id = record.id.clone();
    let output_options = OutputOptions {
        live: if hidden { LiveOutput::Hidden } else { LiveOutput::Beside },
        events: args.run.events.as_deref(),
        accept_new: args.place.accept_new,
        run: &id,
        row,
    };
    let source_folder = profile_command.folder.clone();
    let outcome = app.block_on(async {
        let open = session::open(app, spec.clone(), output_options).await?;
        let session::OpenRemote { mut link, mut reporter, cancel, programs, .. } = open;
        let mut context =
            RunContext { folder, record, reporter: &mut reporter, cancel, input: None };
        let run = ProfileRun {
            request: profile_command.request,
            spec: &spec,
            cache: session::facts_cache(app, &spec),
            programs: &programs,
            project: &app.config.project,
            thresholds: &app.config.thresholds.value,
            source_folder: &source_folder,
            nvdisasm: &disasm::nvdisasm(app),
            at_least: args.run.at_least.as_ref(),
            now_s: jiff::Timestamp::now().as_second(),
            try_failed: false,
            detach: args.run.detach && resume == RunStart::No,
            resume: resume == RunStart::Yes,
            packer: Packer::new(DEFAULT_MAX_BYTES),
            built: Default::default(),
        };
        let outcome = run.run(&mut link, &mut context).await;
        let exit = match &outcome {
            Ok(ProfileOutcome::Profile(.., Some(failure))) | Err(failure) => failure.exit as u8,
            Ok(_) => 0,
        };
        reporter.say(&RunEvent::Finished { exit });
        close(link, record).await;
        outcome
    });
    record.lasted(started_at.elapsed().as_secs_f64());
    record.at_least(folder.job_time());
    outcome
}

/// The result of a run, after everything is written into its folder.
struct FinishedRun {
    profile: Option<Box<Profile>>,
    failure: Option<Failure>,
    /// The command's exit status.
    status: Status,
}

/// Writes the result into the run folder and shows it.
fn finish(
    app: &App,
    args: &ProfileArgs,
    folder: &RunFolder,
    mut record: RunRecord,
    outcome: Result<ProfileOutcome>,
) -> Result<Status> {
    let FinishedRun { profile, failure, status } =
        write_result(app, args, folder, &mut record, outcome)?;
    if record.state == RunState::Detached {
        app.say(&format!(
            "`{}` goes on by itself; `rgpu runs attach {}` brings the results",
            record.id, record.id
        ));
        if app.global.json {
            app.print_json(&record)?;
        }
        return Ok(status);
    }
    match failure {
        None => {
            if let Some(profile) = &profile {
                show::result(app, args, profile, folder);
            }
            Ok(status)
        }
        Some(failure) => {
            if let (Some(profile), false) = (&profile, app.global.json) {
                show::result(app, args, profile, folder);
            }
            Err(failure)
        }
    }
}

/// Writes the result into the run folder.
fn write_result(
    app: &App,
    args: &ProfileArgs,
    folder: &RunFolder,
    record: &mut RunRecord,
    outcome: Result<ProfileOutcome>,
) -> Result<FinishedRun> {
    let (profile, failure) = match outcome {
        Ok(ProfileOutcome::Detached) => {
            record.state = RunState::Detached;
            folder.save(record)?;
            return Ok(FinishedRun { profile: None, failure: None, status: 0 });
        }
        Ok(ProfileOutcome::Profile(mut profile, sidecars, failure)) => {
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
            let subject = crate::report::Subject::new(&profile, &sidecars);
            for report in ["markdown", "html"].into_iter().filter_map(crate::report::report) {
                for document in (report.render)(&subject, &crate::report::Style::default()) {
                    folder.write(document.name, &document.bytes)?;
                }
            }
            (Some(profile), failure)
        }
        Err(failure) => (None, Some(failure)),
    };
    let failure = failure
        .or_else(|| profile.as_ref().and_then(|p| below_required_rung(p, args)))
        .or_else(|| profile.as_deref().and_then(unlooked))
        .map(|failure| match failure.place.log {
            None if folder.path().join("log").is_dir() => {
                failure.log(show::short(app, &folder.path().join("log")))
            }
            _ => failure,
        });
    let has_findings =
        profile.iter().flat_map(|p| &p.sanitizer).any(|s| s.verdict == SanitizerVerdict::Found);
    let status = match &failure {
        Some(failure) if record.command == "exec" => exec::status_of_failure(failure),
        Some(failure) => failure.exit as u8,
        None if has_findings => Exit::Findings as u8,
        // `exec` ends with the program's own status.
        None if record.command == "exec" => {
            record.program_exit.map_or(0, |status| (status & 0xff) as u8)
        }
        None => 0,
    };
    record.state = match &failure {
        Some(f) if f.exit == Exit::Cancelled && record.jobs.iter().all(|j| j.outcome.is_some()) => {
            RunState::Cancelled
        }
        // The link was lost or the user stopped waiting: the job may go on and can be resumed.
        Some(f)
            if matches!(f.exit, Exit::Cancelled | Exit::Host)
                && record.jobs.iter().any(|j| j.outcome.is_none()) =>
        {
            RunState::Running
        }
        Some(_) => RunState::Failed,
        None => RunState::Done,
    };
    record.exit = Some(status);
    let failed = failure.as_ref().map(|f| ErrorDocument::new(f.clone(), status));
    if let Some(profile) = &profile {
        folder.write_json("profile.json", profile)?;
        for file in crate::report::regions::files(profile) {
            folder.write(&file.path, file.text.as_bytes())?;
        }
        crate::run::publish_cubins(profile, folder.path(), &app.config.runs_dir.value).map_err(
            |e| Failure::new(Exit::Disk, "disk", "cannot write the compiled kernel").cause(e),
        )?;
    }
    folder.end(record, failed.as_ref())?;
    Ok(FinishedRun { profile, failure, status })
}

/// The failure of a run that ended below `--at-least`.
fn below_required_rung(profile: &Profile, args: &ProfileArgs) -> Option<Failure> {
    let required_rung = args.run.at_least.as_ref()?;
    let message = format!("the run ended on rung `{}`, below `{required_rung}`", profile.rung);
    falls_short(&profile.rung, required_rung, profile.gpu.is_none())
        .then(|| below_rung(message, &profile.ladder))
}

/// The failure of a run that had to check results on a GPU and found none: an unchecked result is
/// not a correct one.
pub(super) fn unlooked(profile: &Profile) -> Option<Failure> {
    let checks = profile.cases.iter().filter_map(|case| case.correctness.as_ref());
    let is_unchecked = match profile.run.mode.as_str() {
        "verify" => checks.into_iter().all(|c| c.verdict == CheckVerdict::Unchecked),
        "sanitizer" => profile.sanitizer.iter().all(|s| s.verdict == SanitizerVerdict::Unknown),
        _ => false,
    };
    (is_unchecked && profile.gpu.is_none()).then(|| {
        let message = "nothing was verified: the host has no GPU that works";
        Failure::new(Exit::Host, "no_gpu", message).hint(ANOTHER_HOST)
    })
}
