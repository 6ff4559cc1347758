//! `rgpu runs attach`: resumes following a run whose command has gone, and ends as that command
//! would have.

use clap::{CommandFactory, Parser};

use super::args::{Cli, Command};
use super::support::app::{App, Status};
use super::support::exec_status::show_own_failure;
use super::support::followed_run::FollowedRun;
use super::support::{session, started_here};
use super::{build, compare, exec, profile};
use rgpu_model::error::{ErrorDocument, Exit, Failure, Result};
use rgpu_run::store::{RunFolder, RunRecord, RunState};

/// Attaches to a run. `agreed`: also if it was not started on this machine.
pub(super) fn run(
    app: &App,
    folder: &RunFolder,
    events: Option<&str>,
    agreed: bool,
) -> Result<Status> {
    if let Some(status) = show_if_done(app, folder)? {
        return Ok(status);
    }
    // The folder may have come with a project: nothing is written there before this.
    check(app, &folder.record()?, agreed)?;
    let folder = folder.clone().follow()?;
    // The command that followed it may have finished just now.
    if let Some(status) = show_if_done(app, &folder)? {
        return Ok(status);
    }
    let record = folder.current_record()?;
    let is_fan_out = record.is_fan_out();
    if record.jobs.is_empty() && !is_fan_out {
        let failure = never_submitted(&record).hint(super::runs::rerun_hint(&record));
        if record.state == RunState::NeverSubmitted {
            let document = ErrorDocument::new(failure.clone(), failure.exit as u8);
            folder.end(&record, Some(&document))?;
        }
        return Err(failure);
    }
    let argv: Vec<std::ffi::OsString> = record.argv.iter().map(Into::into).collect();
    let argv = profile::expand_preset(&argv, Cli::command())?;
    let cli = Cli::try_parse_from(&argv).map_err(|e| {
        Failure::new(
            Exit::Artifact,
            "bad_record",
            format!("the command of `{}` cannot be parsed any more", record.id),
        )
        .cause(e)
    })?;
    let events = events.map(str::to_owned);
    match cli.command {
        Command::Profile(mut args) if is_fan_out => {
            args.adopt_positional_kernel();
            profile::several_remotes::attach(app, &args, &folder, record, agreed)
        }
        Command::Profile(mut args) => {
            args.adopt_positional_kernel();
            args.run.events = events;
            profile::attach(app, &args, FollowedRun::resume(folder, record))
        }
        Command::Build(mut args) => {
            args.events = events;
            build::attach(app, &args, FollowedRun::resume(folder, record))
        }
        Command::Compare(mut args) => {
            args.run.events = events;
            compare::attach(app, &args, FollowedRun::resume(folder, record))
        }
        Command::Exec(mut args) => {
            args.run.events = events;
            exec::attach(app, &args, FollowedRun::resume(folder, record))
                .or_else(|failure| show_own_failure(failure, app.global.json))
        }
        Command::Bench(_) => {
            let what = format!("`{}` belongs to a suite", record.id);
            let suite = record.parent.as_ref().and_then(|parent| parent.suite.as_ref());
            let suite = suite.unwrap_or(&record.id);
            Err(Failure::new(Exit::Usage, "not_attachable", what)
                .hint(format!("`rgpu bench resume {suite}` continues it")))
        }
        _ => Err(Failure::new(
            Exit::Usage,
            "not_attachable",
            format!("cannot attach to `{}`", record.id),
        )),
    }
}

/// Refuses a run that this machine has not started, or that is on a host the user does not know.
/// Consent counts only for a run that has something to go on with.
fn check(app: &App, record: &RunRecord, agreed: bool) -> Result<()> {
    let is_fan_out = record.is_fan_out();
    if record.jobs.is_empty() && !is_fan_out {
        return if started_here::is_known(app, record) {
            Ok(())
        } else {
            Err(never_submitted(record))
        };
    }
    // The runs of a fan-out that was started here are checked one by one.
    if !is_fan_out || !started_here::is_known(app, record) {
        session::check_run(app, record)?;
    }
    started_here::check(app, record, agreed)
}

/// The failure of a run whose command ended before it submitted a job.
fn never_submitted(record: &RunRecord) -> Failure {
    let message = format!("`{}` was never submitted: its command ended before that", record.id);
    Failure::new(Exit::Usage, "never_submitted", message)
}

/// Shows the result of a finished run. `None` if the run is in progress, or if a power cut lost
/// some of its files: then they are fetched again from the host, which kept them.
fn show_if_done(app: &App, folder: &RunFolder) -> Result<Option<Status>> {
    let record = folder.record()?;
    if record.state != RunState::Done || !folder.has_all_unsynced_files(&record) {
        return Ok(None);
    }
    app.print_note(&format!("`{}` has ended; this is its result", record.id));
    let shown = super::runs::show(app, folder)?;
    Ok(Some(record.exit.unwrap_or(shown)))
}
