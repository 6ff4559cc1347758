//! `rgpu queue wait`, `cancel`, `requeue`, `pause`, `resume` and `prune`.

use std::time::Duration;

use clap::Args;

use super::list::line;
use crate::cli::support::app::{App, Status};
use crate::cli::support::cleaned::require_consent;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_model::number_form::counted;
use rgpu_work::queue::{Entry, EntryState, PruneChoice, Queue, QueueDocument, RequeueChoice};

/// How often to look for changes.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct WaitArgs {
    /// The entries' numbers [default: all that wait or run now]
    #[arg(value_name = "ID")]
    pub entries: Vec<i64>,
}

#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct CancelArgs {
    /// The numbers of the entries, as `queue list` shows them
    #[arg(value_name = "ID", required = true)]
    pub entries: Vec<i64>,
}

#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct RequeueArgs {
    /// The numbers of the entries, as `queue list` shows them
    #[arg(value_name = "ID", required_unless_present_any = ["failed", "lost", "reason"])]
    pub entries: Vec<i64>,

    /// Entries that failed or hit their time limit
    #[arg(long)]
    pub failed: bool,

    /// Entries that were lost: their end is unknown
    #[arg(long)]
    pub lost: bool,

    /// Entries whose state or reason contains this text
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

#[derive(Args, Clone, Copy, Debug)]
pub(in crate::cli) struct CleanArgs {
    /// Keep this many of the newest ended entries
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub keep: usize,

    /// Remove entries that did not end ok too
    #[arg(long)]
    pub all: bool,

    /// Remove without asking
    #[arg(long, conflicts_with = "dry_run")]
    pub yes: bool,

    /// Print what would be removed, and remove nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// Waits until entries have ended.
pub(super) fn wait(app: &App, args: &WaitArgs) -> Result<Status> {
    let queue = super::open_existing(app)?;
    // Of a command that an entry runs.
    let own = queue.own_entry();
    let ids: Vec<i64> = if args.entries.is_empty() {
        let entries = queue.entries()?;
        let active = entries.iter().filter(|entry| entry.state.is_active());
        active.map(|entry| entry.id).filter(|id| Some(*id) != own).collect()
    } else {
        args.entries.clone()
    };
    if let Some(own) = own.filter(|own| ids.contains(own)) {
        let what = format!("entry {own} cannot wait for its own end");
        return Err(Failure::new(Exit::Usage, "usage", what).hint("leave out its number"));
    }
    if let Some(own) = own {
        let held_up = queue.entries_blocked_by(own)?;
        if let Some(id) = ids.iter().find(|id| held_up.contains(id)) {
            let what =
                format!("entry {id} cannot start before entry {own} ends, which would wait for it");
            return Err(Failure::new(Exit::Usage, "usage", what)
                .hint(format!("wait for it outside of the queue, or in an entry that is added with `--after {id}:any`")));
        }
    }
    let mut is_told = false;
    let ended = wait_for_all(&queue, &ids, || {
        if !is_told && queue.runner().is_none() {
            is_told = true;
            app.print_note("the queue is not running; start it with `rgpu queue run`");
        }
    })?;
    show(app, &queue, ended.clone())?;
    Ok(if ended.iter().all(|entry| entry.state == EntryState::Ok) {
        0
    } else {
        Exit::Findings as u8
    })
}

/// Waits until none of the entries is active.
fn wait_for_all(queue: &Queue, ids: &[i64], mut meanwhile: impl FnMut()) -> Result<Vec<Entry>> {
    let mut ended = Vec::new();
    for id in ids {
        loop {
            let entry = queue.entry(*id)?;
            if !entry.state.is_active() {
                ended.push(entry);
                break;
            }
            meanwhile();
            std::thread::sleep(POLL_INTERVAL);
        }
    }
    Ok(ended)
}

/// Prints entries: each as a line, or all as a document.
fn show(app: &App, queue: &Queue, entries: Vec<Entry>) -> Result<()> {
    if app.global.json {
        return app.print_json(&QueueDocument::for_entries(queue, entries)?);
    }
    entries.iter().for_each(|entry| app.print(&format!("{}\n", line(entry))));
    Ok(())
}

/// Ends entries, and waits until their processes have ended.
pub(super) fn cancel(app: &App, args: &CancelArgs) -> Result<Status> {
    let mut queue = super::open_existing(app)?;
    for id in &args.entries {
        queue.entry(*id)?;
    }
    for id in &args.entries {
        queue.cancel(*id)?;
    }
    let mut entries = Vec::new();
    for id in &args.entries {
        let mut entry = queue.entry(*id)?;
        while entry.state == EntryState::Running {
            // The process that watches it ends it; where that was killed, this one does.
            queue.end_orphaned_attempt(*id)?;
            std::thread::sleep(POLL_INTERVAL);
            entry = queue.entry(*id)?;
        }
        entries.push(entry);
    }
    // They are cancelled all the same, and the next command adds the lines.
    if let Err(error) = queue.update_log_file() {
        app.print_error(&format!("`queue.log` misses a line: {}", error.with_causes()));
    }
    show(app, &queue, entries)?;
    Ok(0)
}

/// Puts ended entries back.
pub(super) fn requeue(app: &App, args: &RequeueArgs) -> Result<Status> {
    let mut queue = super::open_existing(app)?;
    if args.reason.as_ref().is_some_and(String::is_empty) {
        return Err(Failure::new(Exit::Usage, "usage", "`--reason` needs a text")
            .hint("for all that failed: --failed"));
    }
    let choice =
        RequeueChoice { failed: args.failed, lost: args.lost, reason: args.reason.clone() };
    let requeued = queue.requeue(&args.entries, &choice)?;
    let entries = requeued.iter().map(|id| Ok(queue.entry(*id)?)).collect::<Result<Vec<_>>>()?;
    if entries.is_empty() {
        app.print_note("no entry fits");
    }
    show(app, &queue, entries)?;
    Ok(0)
}

/// Stops or continues starting entries.
pub(super) fn set_paused(app: &App, is_paused: bool) -> Result<Status> {
    let mut queue = super::open(app)?;
    queue.set_paused(is_paused)?;
    let document = QueueDocument::for_entries(&queue, Vec::new())?;
    if app.global.json {
        app.print_json(&document)?
    } else {
        app.print_note(&document.runner_text())
    }
    Ok(0)
}

pub(super) fn clean(app: &App, args: &CleanArgs) -> Result<Status> {
    let mut queue = super::open_existing(app)?;
    let choice = PruneChoice { keep: args.keep, all: args.all, dry_run: true };
    let mut removed = queue.prune(choice)?;
    if !args.dry_run && !removed.is_empty() {
        let amount = counted(removed.len(), "entry", "entries");
        let question = format!("Remove {amount}, with their logs and scripts?");
        require_consent(app, args.yes, &amount, &question)?;
        removed = queue.prune(PruneChoice { dry_run: false, ..choice })?;
    }
    if app.global.json {
        app.print_json(&QueueDocument::for_removed(&queue, removed)?)?;
        return Ok(0);
    }
    let verb = if args.dry_run { "would remove" } else { "removed" };
    removed.iter().for_each(|id| app.print(&format!("{verb} entry {id}\n")));
    let ended = queue.entries()?.iter().filter(|entry| !entry.state.is_active()).count();
    let left = if args.dry_run { ended.saturating_sub(removed.len()) } else { ended };
    app.print_note(&format!("{verb} {}", counted(removed.len(), "entry", "entries")));
    let newest = left.min(args.keep);
    if newest > 0 {
        app.print_note(&format!("the newest {newest} that ended stay (`--keep {}`)", args.keep));
    }
    if left > newest {
        app.print_note(&format!(
            "{} older stay: others wait for them, or they did not end ok (`--all` removes those)",
            left - newest
        ));
    }
    Ok(0)
}
