//! `rgpu queue show`: prints one entry with its attempts and the runs that it started.

use clap::Args;

use super::list::{after_text, needs_text, state_text};
use crate::cli::support::app::{App, Status};
use crate::cli::support::entry_text::seconds_text;
use rgpu_model::error::{Result, indent_continuation};
use rgpu_plan::bundle::quoted;
use rgpu_report::{one_line, timestamp};
use rgpu_work::queue::{EntryRun, QueueEntryDocument, SnapshotMode};

#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct ShowArgs {
    /// The number of the entry, as `queue list` shows it
    #[arg(value_name = "ID")]
    pub entry: i64,
}

pub(super) fn run(app: &App, args: &ShowArgs) -> Result<Status> {
    let queue = super::open_existing(app)?;
    let entry = queue.entry(args.entry)?;
    let runs = runs_of(app, entry.id);
    if app.global.json {
        app.print_json(&QueueEntryDocument::for_entry(&queue, entry, runs, None)?)?;
        return Ok(0);
    }
    let mut text = format!("{} {}\n", entry.id, one_line(&entry.name));
    let mut row = |name: &str, value: String| {
        if !value.is_empty() {
            let lines: Vec<String> = value.lines().map(one_line).collect();
            text += &format!("  {name:<10}{}\n", indent_continuation(&lines.join("\n"), 12));
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
    let needs = Some(needs_text(&entry)).filter(|needs| !needs.is_empty());
    row("needs", needs.unwrap_or_else(|| "all of this machine".to_owned()));
    row("priority", entry.priority.to_string());
    row("limit", entry.timeout_s.map(seconds_text).unwrap_or_default());
    row(
        "retries",
        match entry.retries_left {
            0 => String::new(),
            left => format!("{left} left"),
        },
    );
    row("tags", entry.tags.join(", "));
    let (recorded, from_runner) = queue.variables(entry.id)?;
    row("variables", recorded.join(" "));
    row("of runner", from_runner.join(" "));
    row("log", entry.log.clone().unwrap_or_default());
    let shown = runs.iter().map(|run| format!("{} ({})", run.id, run.state.as_str()));
    row("runs", shown.collect::<Vec<_>>().join("\n"));
    for event in queue.events(entry.id)? {
        let attempt = match event.attempt {
            0 => String::new(),
            attempt => format!(", attempt {attempt}"),
        };
        let reason = event.reason.map(|reason| format!(": {reason}")).unwrap_or_default();
        let line = format!("{}{attempt}{reason}", event.to);
        text += &format!("  {}  {}\n", timestamp(&event.at), one_line(&line));
    }
    app.print(&text);
    Ok(0)
}

/// The runs whose records name the entry as what started them, newest first.
fn runs_of(app: &App, entry: i64) -> Vec<EntryRun> {
    let runs = app.runs().records().unwrap_or_default();
    runs.into_iter()
        .filter(|run| run.parent.as_ref().is_some_and(|parent| parent.queue == Some(entry)))
        .map(|run| EntryRun { id: run.id, state: run.state })
        .collect()
}
