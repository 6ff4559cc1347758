//! `rgpu profile --remote a,b,c`: runs one plan on several remotes side by side.
//!
//! Each is an ordinary run with its own folder, usable with `runs attach`, `runs cancel` and
//! `report`, and runs on its own thread, because each has its own connection, ladder and clock. A
//! common folder holds `fan-out.json`, which joins the results. A failing remote does not stop the
//! others; the exit status is that of the first that failed.

use std::path::Path;
use std::time::Instant;

use super::{begin, carry_out, show};
use crate::cli::support::app::{App, Status};
use crate::cli::support::followed_run::FollowedRun;
use crate::cli::support::profile_args::ProfileArgs;
use crate::cli::support::profile_request::ProfileCommand;
use crate::cli::support::profile_result::{FinishedRun, write_result};
use crate::cli::support::progress::ProgressRow;
use crate::cli::support::saved_fan_out::{FAN_OUT_FILE, remote_names, run_folders};
use crate::cli::support::terminal::escape_controls;
use crate::cli::support::{open_profile, profile_request, saved_fan_out, session, started_here};
use rgpu_analysis as analysis;
use rgpu_model::Profile;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_model::fan_out::{FanOut, FanOutRow, SCHEMA};
use rgpu_model::number_form::by_number;
use rgpu_plan::tool;
use rgpu_report::remotes_table::markdown;
use rgpu_run::store::{Cost, RunFolder, RunRecord, RunState, remote_suffix};

/// The run on one remote, before it is carried out.
struct Member {
    args: ProfileArgs,
    profile_command: ProfileCommand,
    run: FollowedRun,
}

/// Profiles on each of the remotes in a list `a,b,c`.
pub(super) fn run(app: &App, args: &ProfileArgs, remotes: &str) -> Result<Status> {
    let names = remote_names(remotes)?;
    refuse_single_run_flags(app, args)?;
    // Check every remote before anything is sent to any of them.
    for name in &names {
        session::spec(app, Some(name))?;
    }
    let started_at = Instant::now();
    let started = jiff::Timestamp::now();
    let (mut members, mut common) = (Vec::new(), None);
    for name in &names {
        let mut member_args = args.clone();
        member_args.place.remote = Some((*name).to_owned());
        let profile_command = profile_request::resolve(app, &member_args)?;
        if members.is_empty() {
            profile_command
                .assumptions
                .iter()
                .for_each(|text| app.print_note(&format!("assumed: {text}")));
        }
        tool::check(&profile_command.request)?;
        if args.run.dry_run {
            app.print(&format!("# on {name}\n"));
            show::dry_run(app, &member_args, &profile_command)?;
            continue;
        }
        let id = match &common {
            Some((id, _)) => id,
            None => &common.insert(folder(app, args, &profile_command, started)?).0,
        };
        member_args.run.run_id = Some(format!("{id}-{}", remote_suffix(name)));
        member_args.run.out = args.run.out.as_ref().map(|out| out.join(remote_suffix(name)));
        let run = begin(app, &member_args, &profile_command, "profile")?;
        members.push(Member { args: member_args, profile_command, run });
    }
    let Some((id, folder)) = common else { return Ok(0) };
    if args.run.out.is_none() {
        // `latest` is the common folder.
        folder.becomes_latest()?;
    }
    let Some(first) = members.first() else { return Ok(0) };
    let kernel_and_mode = (first.run.record.kernel.clone(), first.run.record.mode.clone());
    let record = record(app, args, &id, &names, started, kernel_and_mode);
    folder.save(&record)?;
    let ended = run_all(app, members);
    join_results(app, &folder, record, ended, started_at)
}

/// Resumes the runs that are not over, and writes the common result again.
pub(in crate::cli) fn attach(
    app: &App,
    args: &ProfileArgs,
    folder: &RunFolder,
    record: RunRecord,
    agreed: bool,
) -> Result<Status> {
    let started_at = Instant::now();
    let (mut finished, mut open) = (Vec::new(), Vec::new());
    for run_folder in run_folders(app, folder, &record)? {
        let run = run_folder.record()?;
        let ended = matches!(run.state, RunState::Done | RunState::Failed | RunState::Cancelled);
        if ended || run.jobs.is_empty() {
            finished.push(earlier_result(run_folder, run)?);
            continue;
        }
        session::check_run(app, &run)?;
        started_here::check(app, &run, agreed)?;
        let run = FollowedRun::resume(run_folder.follow()?, run);
        let mut args = args.clone();
        args.place.remote = Some(run.record.remote.clone());
        let profile_command = profile_request::resolve(app, &args)?;
        open.push(Member { args, profile_command, run });
    }
    finished.extend(run_all(app, open));
    let names = remote_names(&record.remote)?;
    finished.sort_by_key(|(_, run, _)| names.iter().position(|name| *name == run.remote));
    join_results(app, folder, record.clone(), finished, started_at)
}

/// The result of a run that had ended before.
fn earlier_result(folder: RunFolder, record: RunRecord) -> Result<MemberResult> {
    let profile = if folder.path().join("profile.json").is_file() {
        Some(Box::new(open_profile::open_run(&folder)?.profile))
    } else {
        None
    };
    let status = record.exit.unwrap_or(Exit::Host as u8);
    let failure = folder.failure().map(|document| document.error);
    Ok((folder, record, Ok(FinishedRun { profile, failure, program_failure: None, status })))
}

/// Joins the results of finished runs: in their common folder and on the screen.
fn join_results(
    app: &App,
    folder: &RunFolder,
    mut record: RunRecord,
    results: Vec<MemberResult>,
    started_at: Instant,
) -> Result<Status> {
    let profiles: Vec<Option<Profile>> = results
        .iter()
        .map(|(.., result)| result.as_ref().ok()?.profile.as_deref().cloned())
        .collect();
    let status = status(&results);
    let mut rows: Vec<FanOutRow> =
        results.iter().map(|(one, record, result)| row(folder, one, record, result)).collect();
    let (base, summary) = analysis::compare_remotes::compare_with_first(&mut rows, &profiles);
    let states: Vec<RunState> = results.iter().map(|(_, record, _)| record.state).collect();
    let waiting = states.iter().filter(|state| **state == RunState::Detached).count();
    record.seconds += started_at.elapsed().as_secs_f64();
    let fan_out = FanOut {
        schema: SCHEMA.to_owned(),
        id: record.id.clone(),
        kernel: record.kernel.clone(),
        mode: record.mode.clone(),
        started: record.started.clone(),
        seconds: record.seconds,
        summary: match waiting {
            0 => summary,
            n => format!(
                "{n} of {} {}; `rgpu runs attach {}` fetches the results",
                states.len(),
                by_number(n, "continues on its host", "continue on their hosts"),
                record.id
            ),
        },
        base,
        remotes: rows,
    };
    folder.write_json(FAN_OUT_FILE, &fan_out)?;
    folder.write("fan-out.md", markdown(&fan_out).as_bytes())?;
    record.state = if waiting > 0 {
        RunState::Detached
    } else if states.contains(&RunState::Running) {
        RunState::Running
    } else if states.contains(&RunState::Cancelled) {
        RunState::Cancelled
    } else if status == 0 {
        RunState::Done
    } else {
        RunState::Failed
    };
    record.exit = Some(status);
    record.cost = Cost::total(results.iter().map(|(_, record, _)| &record.cost));
    folder.save(&record)?;
    saved_fan_out::show(app, &fan_out)?;
    if !app.global.json {
        app.print(&format!("  {:<11} {}\n", "together", app.short(folder.path())));
    }
    Ok(status)
}

/// Refuses flags that make no sense for several runs at once.
fn refuse_single_run_flags(app: &App, args: &ProfileArgs) -> Result<()> {
    let flag = match () {
        () if args.run.events.is_some() => "--events",
        () if !args.files.pull.is_empty() => "--pull",
        () if args.run.dry_run && app.global.json => "--dry-run with `--json`",
        () => return Ok(()),
    };
    Err(Failure::new(Exit::Usage, "usage", format!("`{flag}` is for one run, not for several"))
        .hint("name one remote"))
}

/// Creates the common folder. Returns its id and the folder.
fn folder(
    app: &App,
    args: &ProfileArgs,
    profile_command: &ProfileCommand,
    now: jiff::Timestamp,
) -> Result<(String, RunFolder)> {
    let name = format!("{}-{}", profile_command.name, profile_command.request.mode);
    let (run, out) = (args.run.run_id.as_deref(), args.run.out.as_deref());
    Ok(app.runs().create(run, &name, now, out)?)
}

fn record(
    app: &App,
    args: &ProfileArgs,
    id: &str,
    remotes: &[&str],
    started: jiff::Timestamp,
    (kernel, mode): (String, String),
) -> RunRecord {
    let record = RunRecord {
        title: format!("profile {kernel} ({mode}) on several remotes"),
        mode,
        kernel,
        argv: app.argv.clone(),
        parent: app.parent.clone(),
        remote: remotes.join(","),
        labels: args.run.label.iter().cloned().collect(),
        note: args.run.note.clone().unwrap_or_default(),
        ..RunRecord::new(id.to_owned(), "profile", started)
    };
    started_here::remember(app, &record);
    record
}

/// The run of one remote, with its end.
type MemberResult = (RunFolder, RunRecord, Result<FinishedRun>);

/// Carries out all runs at the same time.
fn run_all(app: &App, members: Vec<Member>) -> Vec<MemberResult> {
    let remotes = members.iter().map(|member| member.run.record.remote.as_str());
    let lines = ProgressRow::each(app.terminal, app.global.quiet, remotes);
    std::thread::scope(|scope| {
        let running: Vec<_> = members
            .into_iter()
            .zip(&lines)
            .map(|(member, line)| {
                let Member { args, profile_command, mut run } = member;
                let saved = (run.folder.clone(), run.record.clone());
                let thread = scope.spawn(move || {
                    let ended = carry_out(
                        app,
                        &args,
                        profile_command,
                        &mut run,
                        Some(line),
                        &mut Vec::new(),
                    );
                    let at_least = args.run.at_least.as_ref();
                    let result = write_result(app, at_least, args.unmeasured, &mut run, ended);
                    (run.folder, run.record, result)
                });
                (thread, saved)
            })
            .collect();
        let results = running.into_iter().map(|(thread, (folder, record))| {
            thread.join().unwrap_or_else(|_| {
                let message = "a bug in rgpu stopped this run";
                (folder, record, Err(Failure::new(Exit::Bug, "bug", message)))
            })
        });
        results.collect()
    })
}

/// The status of the first run that failed. Findings count only if nothing failed.
fn status(results: &[MemberResult]) -> Status {
    let each = || {
        results.iter().map(|(.., result)| match result {
            Ok(result) => result.status,
            Err(failure) => failure.exit as u8,
        })
    };
    let findings = Exit::Findings as u8;
    each().find(|status| *status > findings).or_else(|| each().max()).unwrap_or(0)
}

fn row(
    common: &RunFolder,
    folder: &RunFolder,
    record: &RunRecord,
    result: &Result<FinishedRun>,
) -> FanOutRow {
    let profile = result.as_ref().ok().and_then(|result| result.profile.as_deref());
    let failure = match result {
        Ok(result) => result.failure.as_ref(),
        Err(failure) => Some(failure),
    };
    let why = failure.map(|failure| match &failure.cause {
        Some(cause) => format!("{}: {}", failure.what, cause.lines().next().unwrap_or_default()),
        None => failure.what.clone(),
    });
    FanOutRow {
        remote: record.remote.clone(),
        run: Some(record.id.clone()),
        profile: profile.map(|_| relative_path(common.path(), folder.path())),
        exit: match result {
            Ok(result) => result.status,
            Err(failure) => failure.exit as u8,
        },
        state: record.state.as_str().into(),
        failure: why.map(|why| escape_controls(why.as_bytes())),
        code: failure.map(|failure| failure.code.clone()),
        seconds: record.seconds,
        cost_usd: record.cost.cost_usd,
        ..profile.map(analysis::compare_remotes::row).unwrap_or_default()
    }
}

/// Path of a run's profile relative to the common folder: inside it or beside it.
fn relative_path(common: &Path, folder: &Path) -> String {
    let path = match folder.strip_prefix(common) {
        Ok(inner) => inner.to_owned(),
        Err(_) => Path::new("..").join(folder.file_name().unwrap_or_default()),
    };
    path.join("profile.json").display().to_string()
}
