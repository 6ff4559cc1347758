//! `rgpu profile`: runs a kernel or a program under a profiler, on a GPU host or on this machine.

mod preset;
pub(super) mod several_remotes;
mod show;

pub(super) use preset::expand as expand_preset;

use super::support::app::{App, Status, show_failure};
use super::support::fetch_consent::allow_agreed_nvcc;
use super::support::followed_run::{FollowedRun, NewRun};
use super::support::profile_args::ProfileArgs;
use super::support::profile_request::{self, ProfileCommand};
use super::support::profile_result::{FinishedRun, write_result};
use super::support::progress::{LiveOutput, ProgressRow};
use super::support::session::{self, OutputOptions};
use super::support::{local_consent, not_sent, nvdisasm, pulled_files};
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_plan::tool::{self, GpuSelection};
use rgpu_remote::HostRequest;
use rgpu_run::run::{FileCopies, HostFile, ProfileOutcome, ProfileRun};
use rgpu_run::store::{RunRecord, RunState};

pub(super) fn run(app: &App, args: &ProfileArgs) -> Result<Status> {
    if let Some(remotes) = args.place.remote.as_deref().filter(|r| r.contains(',')) {
        return several_remotes::run(app, args, remotes);
    }
    let profile_command = profile_request::resolve(app, args)?;
    run_resolved(app, args, profile_command, "profile")
}

/// Runs a resolved profile on behalf of the command named `command`.
pub(super) fn run_resolved(
    app: &App,
    args: &ProfileArgs,
    profile_command: ProfileCommand,
    command: &str,
) -> Result<Status> {
    for assumption in &profile_command.assumptions {
        app.print_note(&format!("assumed: {assumption}"));
    }
    tool::check(&profile_command.request)?;
    if args.run.dry_run {
        return show::dry_run(app, args, &profile_command);
    }
    if let Some(foreign) = &profile_command.foreign {
        local_consent::require(app, args.place.remote.as_deref(), foreign)?;
    }
    let run = begin(app, args, &profile_command, command)?;
    follow(app, args, profile_command, run)
}

/// Creates the run's folder with everything that is known before anything is sent.
fn begin(
    app: &App,
    args: &ProfileArgs,
    profile_command: &ProfileCommand,
    command: &str,
) -> Result<FollowedRun> {
    let mode = profile_command.request.mode;
    let spec = session::spec(app, args.place.remote.as_deref())?;
    let new = NewRun {
        command,
        name: &format!("{}-{mode}", profile_command.name),
        run_id: args.run.run_id.as_deref(),
        out: args.run.out.as_deref(),
        detach: args.run.detach,
    };
    FollowedRun::begin(app, &spec, &new, &profile_command.inputs, |record| RunRecord {
        title: format!("{command} {} ({mode})", profile_command.name),
        mode: mode.name().to_owned(),
        kernel: profile_command.name.clone(),
        labels: args.run.label.iter().cloned().collect(),
        note: args.run.note.clone().unwrap_or_default(),
        ..record
    })
}

/// Resumes a run from its own command line.
pub(super) fn attach(app: &App, args: &ProfileArgs, run: FollowedRun) -> Result<Status> {
    // The command may have named several remotes; this run has one.
    let mut args = args.clone();
    args.place.remote = Some(run.record.remote.clone());
    let profile_command = profile_request::resolve(app, &args)?;
    follow(app, &args, profile_command, run)
}

/// Follows a run to its end, and shows the result.
pub(super) fn follow(
    app: &App,
    args: &ProfileArgs,
    profile_command: ProfileCommand,
    mut run: FollowedRun,
) -> Result<Status> {
    let mut pulled = Vec::new();
    let outcome = carry_out(app, args, profile_command, &mut run, None, &mut pulled);
    if !matches!(outcome, Ok(ProfileOutcome::Detached)) {
        put_in_place(app, args, &run, &pulled);
    }
    finish(app, args, run, outcome)
}

/// Puts the files for `--pull` into the user's folder. The run folder has those that cannot be
/// written there, so that this is only told.
fn put_in_place(app: &App, args: &ProfileArgs, run: &FollowedRun, pulled: &[HostFile]) {
    let run_files = (&run.folder, &run.record);
    let copies = &mut FileCopies::default();
    match pulled_files::write_pulled_files(app, &args.files, run_files, pulled, copies) {
        Ok(_) if pulled.is_empty() => pulled_files::warn_of_none(app, &args.files),
        Ok(_) => {}
        Err(failure) => app.print_note(&failure.to_string()),
    }
}

/// Runs the profile. `row`: its progress line if several runs are followed at once. `pulled` gets
/// the files for `--pull`.
fn carry_out(
    app: &App,
    args: &ProfileArgs,
    mut profile_command: ProfileCommand,
    run: &mut FollowedRun,
    row: Option<&ProgressRow>,
    pulled: &mut Vec<HostFile>,
) -> Result<ProfileOutcome> {
    let spec = session::spec(app, Some(&run.record.remote))?;
    let request = &mut profile_command.request;
    allow_agreed_nvcc(app, &spec, &mut request.build);
    let events = args.run.events.as_deref();
    let mut output_options = OutputOptions {
        host: HostRequest {
            nodes: profile_command.request.nodes,
            ..HostRequest::with_queue_timeout(args.run.queue_timeout)
                .with_gpus(args.gpus.as_ref().and_then(GpuSelection::count_of_any))
        },
        ..OutputOptions::with_progress_bar(app, events, args.place.accept_new)
    };
    if row.is_some() {
        // With several runs, each shows only its line; the output is in its log.
        output_options = OutputOptions { live: LiveOutput::Hidden, row, ..output_options };
    }
    let profile_run = ProfileRun {
        request: profile_command.request,
        project: &app.config.project,
        thresholds: &app.config.thresholds.value,
        source_folder: &profile_command.folder,
        local_nvdisasm: &nvdisasm::search(app),
        required_rung: args.run.at_least.as_ref(),
        retry_failed_rungs: false,
        pulled,
    };
    let status = |outcome: &Result<ProfileOutcome>| match outcome {
        Ok(ProfileOutcome::Profile { failure: Some(failure), .. }) | Err(failure) => {
            failure.exit as u8
        }
        Ok(_) => 0,
    };
    let facts = profile_command.facts;
    run.connect_and_run(app, &spec, output_options, status, async |run_session, context| {
        if let Some(facts) = facts {
            run_session.start_with_facts(facts);
        }
        profile_run.run(run_session, context).await
    })
}

/// Writes the result into the run folder and shows it.
fn finish(
    app: &App,
    args: &ProfileArgs,
    mut run: FollowedRun,
    outcome: Result<ProfileOutcome>,
) -> Result<Status> {
    let at_least = args.run.at_least.as_ref();
    let outcome = with_unsent_files(app, args, outcome);
    let FinishedRun { profile, failure, program_failure, status } =
        write_result(app, at_least, args.unmeasured, &mut run, outcome)?;
    if run.record.state == RunState::Detached {
        return run.show_detached(app);
    }
    if let (Some(profile), true) = (&profile, failure.is_none() || !app.global.json) {
        show::result(app, args, profile, &run.folder);
    }
    // At a terminal the user has seen the program's own messages.
    if let (Some(failure), None, true) = (&program_failure, &profile, app.global.json) {
        show_failure(failure, status, true);
    }
    // What the program printed stands above the profile, and its end is easily missed there.
    if failure.is_none() && profile.is_some() && !app.global.json {
        let ended = program_failure.or_else(|| failed_program(&run.record));
        if let Some(ended) = ended {
            show_failure(&without_shown_traceback(ended), status, false);
        }
    }
    // Live output was shown as it came, but for JSON and `-q`.
    let was_shown = !app.global.json && !app.global.quiet;
    match failure {
        Some(failure) if was_shown => Err(without_shown_traceback(failure)),
        failure => failure.map_or(Ok(status), Err),
    }
}

/// Adds the flag that sends a file which the program did not find, if it is here.
fn with_unsent_files(
    app: &App,
    args: &ProfileArgs,
    outcome: Result<ProfileOutcome>,
) -> Result<ProfileOutcome> {
    let hinted = |failure: Failure| {
        let is_programs = failure.code == "program_failed";
        let printed = failure.cause.as_deref().filter(|_| is_programs).unwrap_or_default();
        let script = args.kernel.as_deref();
        let of_file = not_sent::hint(app, printed, &args.program, script, &args.files.mount);
        let of_arguments = || {
            let named = script.filter(|_| args.program.is_empty())?;
            not_sent::arguments_hint(printed, named)
        };
        match of_file.or_else(|| not_sent::package_hint(printed)).or_else(of_arguments) {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    };
    match outcome {
        Ok(ProfileOutcome::Profile { profile, sidecars, failure, built }) => {
            let failure = failure.map(hinted);
            Ok(ProfileOutcome::Profile { profile, sidecars, failure, built })
        }
        outcome => outcome.map_err(hinted),
    }
}

/// The failure of a program of `exec` that ended with a status other than 0. `None` if it ended well
/// or is none of `exec`.
fn failed_program(record: &RunRecord) -> Option<Failure> {
    let status = record.program_exit.filter(|status| *status != 0 && record.command == "exec")?;
    let what = format!("the program `{}` ended with status {status}", record.kernel);
    Some(Failure::new(Exit::Kernel, "program_failed", what))
}

/// The failure of a program whose output was shown: of Python's traceback only the exception.
fn without_shown_traceback(mut failure: Failure) -> Failure {
    if failure.code != "program_failed" {
        return failure;
    }
    if let Some(cause) = &mut failure.cause
        && cause.lines().any(|line| line.starts_with("  File \""))
        && let Some(last) = cause.lines().rfind(|line| line.starts_with("  "))
        && let Some((_, exception)) = cause.rsplit_once(&format!("{last}\n"))
    {
        // Which of several ranks it was stands before the traceback.
        let rank = cause.lines().next().filter(|line| line.ends_with(" failed first:"));
        *cause = match rank {
            Some(rank) => format!("{rank}\n{exception}"),
            None => exception.to_owned(),
        };
    }
    failure
}
