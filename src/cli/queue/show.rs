//! `rgpu queue show`.

use clap::Args;

use super::document::QueueEntryDocument;
use super::list::{after_text, needs_text, seconds_text, state_text};
use crate::bundle::quoted;
use crate::cli::support::app::{App, Status};
use crate::error::{Result, inset};
use crate::queue::{Entry, SnapshotMode};
use crate::report::moment;
use crate::store::{RunRecord, Runs};

/// `queue show`.
#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct ShowArgs {
    /// The entry's number
    #[arg(value_name = "ID")]
    pub entry: i64,
}

/// Shows an entry.
pub(super) fn run(app: &App, args: &ShowArgs) -> Result<Status> {
    let queue = super::open_existing(app)?;
    let entry = queue.entry(args.entry)?;
    let run = run_of(app, &entry);
    if app.global.json {
        app.print_json(&QueueEntryDocument::of(&queue, entry, run, None)?)?;
        return Ok(0);
    }
    let mut text = format!("{} {}\n", entry.id, inset(&entry.name, 4));
    let mut row = |name: &str, value: String| {
        if !value.is_empty() {
            text += &format!("  {name:<10}{}\n", inset(&value, 12));
        }
    };
    row("state", state_text(&entry));
    row("reason", entry.reason.clone().unwrap_or_default());
    row("time", entry.seconds.map(seconds_text).unwrap_or_default());
    let script = entry.script.as_ref().map(|script| {
        format!(
            " SCRIPT ({} bytes, sha256 {})",
            script.bytes,
            &script.sha256[..12.min(script.sha256.len())]
        )
    });
    row("command", quoted(&entry.command) + &script.unwrap_or_default());
    row("folder", entry.cwd.clone());
    row(
        "snapshot",
        match entry.snapshot {
            SnapshotMode::None => String::new(),
            SnapshotMode::Patch => "patch".to_owned(),
            SnapshotMode::Copy => "copy".to_owned(),
        },
    );
    row("after", after_text(&entry));
    row("needs", needs_text(&entry));
    row("limit", entry.timeout_s.map(seconds_text).unwrap_or_default());
    row(
        "retries",
        match entry.retries_left {
            0 => String::new(),
            left => format!("{left} left"),
        },
    );
    row("tags", entry.tags.join(", "));
    row("log", entry.log.clone().unwrap_or_default());
    row(
        "run",
        run.as_ref().map(|run| format!("{} ({})", run.id, run.state.as_str())).unwrap_or_default(),
    );
    for event in queue.events(entry.id)? {
        let attempt = match event.attempt {
            0 => String::new(),
            attempt => format!(", attempt {attempt}"),
        };
        let reason = event.reason.map(|reason| format!(": {reason}")).unwrap_or_default();
        let line = format!("{}{attempt}{reason}", event.to);
        text += &format!("  {}  {}\n", moment(&event.at), inset(&line, 24));
    }
    app.print(&text);
    Ok(0)
}

/// The run that the entry's last attempt made: the one with its command line that started in its
/// time. `None` if the entry runs another program, or made no run.
fn run_of(app: &App, entry: &Entry) -> Option<RunRecord> {
    let (program, arguments) = entry.command.split_first()?;
    let is_rgpu = std::path::Path::new(program).file_name().is_some_and(|name| name == "rgpu");
    let started: jiff::Timestamp = entry.started.as_ref().filter(|_| is_rgpu)?.parse().ok()?;
    let ended: Option<jiff::Timestamp> = entry.ended.as_ref().and_then(|time| time.parse().ok());
    let runs = Runs::new(&app.config.runs_dir.value).list().ok()?;
    let is_its = |run: &RunRecord| {
        let at: Option<jiff::Timestamp> = run.started.parse().ok();
        // The database keeps whole milliseconds.
        let fits = at.is_some_and(|at| {
            at.as_millisecond() >= started.as_millisecond()
                && ended.is_none_or(|ended| at.as_millisecond() <= ended.as_millisecond())
        });
        fits && run.argv.get(1..) == Some(arguments)
    };
    runs.into_iter().map(|line| line.record).find(is_its)
}
