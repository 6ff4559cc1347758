//! `rgpu profile --remote a,b,c`: one plan on several remotes side by side.
//!
//! Each is an ordinary run with a folder of its own, which `runs attach`, `runs cancel` and
//! `report` know like any other; a thread each, because each has its own connection, ladder and
//! clock. Beside them stands one folder that holds them together: `fan-out.json`. A remote that
//! fails costs the others nothing; the exit status is that of the first that failed.

mod kept;

use std::path::Path;
use std::time::Instant;

use super::{
    FinishedRun, ProfileArgs, ProfileCommand, RunStart, begin, carry_out, request, settle, show,
};
use crate::analysis;
use crate::cli::app::{App, Status};
use crate::cli::progress::ProgressRow;
use crate::cli::session;
use crate::cli::terminal::safe;
use crate::error::{Exit, Failure, Result};
use crate::model::Profile;
use crate::model::fan_out::{FanOut, FanOutRow, SCHEMA};
use crate::report::remotes_table::markdown;
use crate::store::{Cost, RunFolder, RunRecord, RunState, Runs};
use crate::tool;
pub(in crate::cli) use kept::{again, kept, kept_by, show as shown};

/// A remote with its own command line and what came of it.
struct Member {
    args: ProfileArgs,
    asked: ProfileCommand,
    folder: RunFolder,
    record: RunRecord,
}

/// Profiles on each of the remotes in a list `a,b,c`.
pub(super) fn run(app: &App, args: &ProfileArgs, remotes: &str) -> Result<Status> {
    let names = names(remotes)?;
    refuse(app, args)?;
    // All that can be wrong here is said before anything goes out anywhere.
    for name in &names {
        session::spec(app, Some(name))?;
    }
    let begun = Instant::now();
    let started = jiff::Timestamp::now();
    let (mut each, mut together) = (Vec::new(), None);
    for name in &names {
        let mut own = args.clone();
        own.place.remote = Some((*name).to_owned());
        let asked = request::resolve(app, &own)?;
        if each.is_empty() {
            asked.assumptions.iter().for_each(|text| app.say(&format!("assumed: {text}")));
        }
        tool::check(&asked.request)?;
        if args.run.dry_run {
            app.print(&format!("# on {name}\n"));
            show::dry_run(app, &own, &asked)?;
            continue;
        }
        let id = match &together {
            Some((id, _)) => id,
            None => &together.insert(folder(app, args, &asked, started)?).0,
        };
        own.run.run_id = Some(format!("{id}-{}", tail(name)));
        own.run.out = args.run.out.as_ref().map(|out| out.join(tail(name)));
        let (folder, record) = begin(app, &own, &asked, "profile")?;
        each.push(Member { args: own, asked, folder, record });
    }
    let Some((id, folder)) = together else { return Ok(0) };
    if args.run.out.is_none() {
        // What holds them together is what was last begun.
        folder.becomes_latest()?;
    }
    let Some(first) = each.first() else { return Ok(0) };
    let of = (first.record.kernel.clone(), first.record.mode.clone());
    let record = record(app, args, &id, &names, started, of);
    folder.save(&record)?;
    let ended = side_by_side(app, each, RunStart::No);
    hold(app, &folder, record, ended, begun)
}

/// Takes up what of them is not over, and holds all of them together anew.
pub(in crate::cli) fn attach(
    app: &App,
    args: &ProfileArgs,
    folder: &RunFolder,
    record: RunRecord,
) -> Result<Status> {
    let begun = Instant::now();
    let (mut over, mut open) = (Vec::new(), Vec::new());
    for own in each(app, folder, &record)? {
        let run = own.record()?;
        let ended = matches!(run.state, RunState::Done | RunState::Failed | RunState::Cancelled);
        if ended || run.jobs.is_empty() {
            over.push(as_it_ended(own, run)?);
            continue;
        }
        session::check_run(app, &run)?;
        let own = own.follow()?;
        let mut args = args.clone();
        args.place.remote = Some(run.remote.clone());
        let asked = request::resolve(app, &args)?;
        open.push(Member { args, asked, folder: own, record: run });
    }
    over.extend(side_by_side(app, open, RunStart::Yes));
    let names = names(&record.remote)?;
    over.sort_by_key(|(_, run, _)| names.iter().position(|name| *name == run.remote));
    hold(app, folder, record.clone(), over, begun)
}

/// The folders of the runs that are held together, in the order of their remotes.
pub(in crate::cli) fn each(
    app: &App,
    folder: &RunFolder,
    record: &RunRecord,
) -> Result<Vec<RunFolder>> {
    let of = |name: &&str| {
        let inner = folder.path().join(tail(name));
        match inner.is_dir() {
            true => RunFolder::open(&inner),
            false => {
                Runs::new(&app.config.runs_dir.value).find(&format!("{}-{}", record.id, tail(name)))
            }
        }
    };
    Ok(names(&record.remote)?.iter().map(of).collect::<Result<_, _>>()?)
}

/// What follows a run's id on one of several remotes.
fn tail(remote: &str) -> String {
    let word = remote.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    word.trim_matches('-').to_owned()
}

/// A run that had ended before.
fn as_it_ended(folder: RunFolder, record: RunRecord) -> Result<MemberResult> {
    let profile = match folder.path().join("profile.json").is_file() {
        true => Some(Box::new(crate::cli::report::saved(&folder)?.profile)),
        false => None,
    };
    let status = record.exit.unwrap_or(Exit::Host as u8);
    let failure = folder.failure().map(|document| document.error);
    Ok((folder, record, Ok(FinishedRun { profile, failure, status })))
}

/// Holds runs that are over together: in their common folder, and on the screen.
fn hold(
    app: &App,
    folder: &RunFolder,
    mut record: RunRecord,
    ended: Vec<MemberResult>,
    begun: Instant,
) -> Result<Status> {
    let profiles: Vec<Option<Profile>> = ended
        .iter()
        .map(|(.., settled)| settled.as_ref().ok()?.profile.as_deref().cloned())
        .collect();
    let status = status(&ended);
    let mut rows: Vec<FanOutRow> =
        ended.iter().map(|(one, record, settled)| row(folder, one, record, settled)).collect();
    let (base, summary) = analysis::compare_remotes::hold(&mut rows, &profiles);
    let states: Vec<RunState> = ended.iter().map(|(_, record, _)| record.state).collect();
    let waiting = states.iter().filter(|state| **state == RunState::Detached).count();
    record.seconds += begun.elapsed().as_secs_f64();
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
                "{n} of {} go on by themselves; `rgpu runs attach {}` brings the results",
                states.len(),
                record.id
            ),
        },
        base,
        remotes: rows,
    };
    folder.write_json(kept::FAN_OUT_FILE, &fan_out)?;
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
    record.cost = Cost::together(ended.iter().map(|(_, record, _)| &record.cost));
    folder.save(&record)?;
    shown(app, &fan_out)?;
    if !app.global.json {
        app.print(&format!("  {:<11} {}\n", "together", show::short(app, folder.path())));
    }
    Ok(status)
}

/// The names in the list.
fn names(remotes: &str) -> Result<Vec<&str>> {
    let names: Vec<&str> = remotes.split(',').map(str::trim).collect();
    let wrong = |what: String| Failure::new(Exit::Usage, "usage", what);
    if names.iter().any(|name| name.is_empty()) {
        return Err(wrong(format!("`--remote {remotes}` has an empty name in its list"))
            .hint("write the remotes with commas and nothing else between them: a,b,c"));
    }
    for (at, name) in names.iter().enumerate() {
        if names[..at].contains(name) {
            return Err(wrong(format!("`--remote {remotes}` names `{name}` twice"))
                .hint("two runs on one GPU would only wait for each other"));
        }
    }
    Ok(names)
}

/// What has no meaning for several runs at once.
fn refuse(app: &App, args: &ProfileArgs) -> Result<()> {
    let flag = match () {
        () if args.run.events.is_some() => "--events",
        () if args.run.dry_run && app.global.json => "--dry-run with `--json`",
        () => return Ok(()),
    };
    Err(Failure::new(Exit::Usage, "usage", format!("`{flag}` is of one run, not of several"))
        .hint("name one remote"))
}

/// The folder that holds them together, with its id.
fn folder(
    app: &App,
    args: &ProfileArgs,
    asked: &ProfileCommand,
    now: jiff::Timestamp,
) -> Result<(String, RunFolder)> {
    let name = format!("{}-{}", asked.name, asked.request.mode);
    let (run, out) = (args.run.run_id.as_deref(), args.run.out.as_deref());
    Ok(Runs::new(&app.config.runs_dir.value).create(run, &name, now, out)?)
}

fn record(
    app: &App,
    args: &ProfileArgs,
    id: &str,
    remotes: &[&str],
    started: jiff::Timestamp,
    (kernel, mode): (String, String),
) -> RunRecord {
    RunRecord {
        title: format!("profile {kernel} ({mode}) on several remotes"),
        mode,
        kernel,
        argv: app.argv.clone(),
        remote: remotes.join(","),
        labels: args.run.label.iter().cloned().collect(),
        note: args.run.note.clone().unwrap_or_default(),
        ..RunRecord::new(id.to_owned(), "profile", started)
    }
}

/// A run that is over.
type MemberResult = (RunFolder, RunRecord, Result<FinishedRun>);

/// Carries all of them out at once.
fn side_by_side(app: &App, each: Vec<Member>, resume: RunStart) -> Vec<MemberResult> {
    let remotes = each.iter().map(|one| one.record.remote.as_str());
    let lines = ProgressRow::each(app.terminal, app.global.quiet, remotes);
    std::thread::scope(|scope| {
        let running: Vec<_> = each
            .into_iter()
            .zip(&lines)
            .map(|(one, line)| {
                let Member { args, asked, folder, mut record } = one;
                let kept = (folder.clone(), record.clone());
                let thread = scope.spawn(move || {
                    let ended =
                        carry_out(app, &args, asked, &folder, &mut record, resume, Some(line));
                    let settled = settle(app, &args, &folder, &mut record, ended);
                    (folder, record, settled)
                });
                (thread, kept)
            })
            .collect();
        let over = running.into_iter().map(|(thread, (folder, record))| {
            thread.join().unwrap_or_else(|_| {
                let what = "a defect of rgpu stopped this run";
                (folder, record, Err(Failure::new(Exit::Bug, "bug", what)))
            })
        });
        over.collect()
    })
}

/// That of the first that failed; findings count last.
fn status(ended: &[MemberResult]) -> Status {
    let each = || {
        ended.iter().map(|(.., settled)| match settled {
            Ok(settled) => settled.status,
            Err(failure) => failure.exit as u8,
        })
    };
    let findings = Exit::Findings as u8;
    each().find(|status| *status > findings).or_else(|| each().max()).unwrap_or(0)
}

fn row(
    together: &RunFolder,
    folder: &RunFolder,
    record: &RunRecord,
    settled: &Result<FinishedRun>,
) -> FanOutRow {
    let profile = settled.as_ref().ok().and_then(|settled| settled.profile.as_deref());
    let failure = match settled {
        Ok(settled) => settled.failure.as_ref(),
        Err(failure) => Some(failure),
    };
    let why = failure.map(|failure| match &failure.cause {
        Some(cause) => format!("{}: {}", failure.what, cause.lines().next().unwrap_or_default()),
        None => failure.what.clone(),
    });
    FanOutRow {
        remote: record.remote.clone(),
        run: Some(record.id.clone()),
        profile: profile.map(|_| relative_path(together.path(), folder.path())),
        exit: match settled {
            Ok(settled) => settled.status,
            Err(failure) => failure.exit as u8,
        },
        state: record.state.as_str().to_owned(),
        failure: why.map(|why| safe(why.as_bytes())),
        code: failure.map(|failure| failure.code.clone()),
        seconds: record.seconds,
        cost_usd: record.cost.cost_usd,
        ..profile.map(analysis::compare_remotes::row).unwrap_or_default()
    }
}

/// A run's profile, from the folder that holds the runs together: in it, or beside it.
fn relative_path(together: &Path, folder: &Path) -> String {
    let way = match folder.strip_prefix(together) {
        Ok(inner) => inner.to_owned(),
        Err(_) => Path::new("..").join(folder.file_name().unwrap_or_default()),
    };
    way.join("profile.json").display().to_string()
}
