//! `rgpu queue list`, and how entries look as text.

use clap::Args;
use clap::builder::PossibleValuesParser;

use crate::cli::support::app::{App, Status};
use crate::cli::support::entry_text::{seconds_text, silence_text};
use rgpu_model::error::Result;
use rgpu_report::{TextTable, one_line};
use rgpu_work::queue::{Entry, EntryState, Queue, QueueDocument};

/// Which entries are listed.
#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct ListArgs {
    /// List all ended entries too
    #[arg(long)]
    pub all: bool,

    /// How many of the newest ended entries to list
    #[arg(long, short = 'n', value_name = "N", default_value_t = 20, conflicts_with = "all")]
    pub count: usize,

    /// Only entries in this state
    #[arg(long, value_name = "STATE", value_delimiter = ',', value_parser = PossibleValuesParser::new(STATES))]
    pub state: Vec<String>,

    /// Only entries with this tag
    #[arg(long, value_name = "WORD")]
    pub tag: Option<String>,
}

/// The words for `--state`.
const STATES: [&str; 8] =
    ["waiting", "running", "ok", "failed", "timeout", "cancelled", "skipped", "lost"];

impl ListArgs {
    /// The listed entries, and how many ended ones are left out.
    pub(super) fn select(&self, queue: &Queue) -> Result<(Vec<Entry>, usize)> {
        let mut entries = queue.entries()?;
        entries.retain(|entry| {
            (self.state.is_empty() || self.state.iter().any(|word| word == entry.state.as_str()))
                && self.tag.as_ref().is_none_or(|tag| entry.tags.contains(tag))
        });
        let ended = entries.iter().filter(|entry| !entry.state.is_active()).count();
        let mut surplus = if self.all { 0 } else { ended.saturating_sub(self.count) };
        let left_out = surplus;
        entries.retain(|entry| {
            let is_surplus = surplus > 0 && !entry.state.is_active();
            surplus -= usize::from(is_surplus);
            !is_surplus
        });
        Ok((entries, left_out))
    }
}

pub(super) fn run(app: &App, args: &ListArgs) -> Result<Status> {
    let queue = super::open_existing(app)?;
    let (entries, left_out) = args.select(&queue)?;
    let document = QueueDocument::for_entries(&queue, entries)?;
    if app.global.json {
        app.print_json(&document)?;
        return Ok(0);
    }
    app.print(&table(app, document.entries()));
    if left_out > 0 {
        app.print_note(&match left_out {
            1 => "1 older ended one is not listed; `--all` lists it".to_owned(),
            n => format!("{n} older ended ones are not listed; `--all` lists them"),
        });
    }
    app.print_note(&document.runner_text());
    Ok(0)
}

pub(super) fn table(app: &App, entries: &[Entry]) -> String {
    // `after` has numbers, which are named where the table is too narrow.
    let mut table =
        TextTable::new("id: | state | try: | time: | prio: | after: | needs | tags | name");
    for entry in entries {
        table.add_row([
            entry.id.to_string(),
            state_text(entry),
            if entry.attempt > 1 { entry.attempt.to_string() } else { String::new() },
            entry.seconds.map(seconds_text).unwrap_or_default(),
            if entry.priority == 0 { String::new() } else { entry.priority.to_string() },
            after_text(entry),
            needs_text(entry),
            one_line(&entry.tags.join(",")),
            one_line(&entry.name),
        ]);
    }
    table.without_empty_columns().fitted(app.columns(), 0)
}

/// The state in a few words.
pub(super) fn state_text(entry: &Entry) -> String {
    let word = entry.state.as_str();
    match (entry.state, entry.rc) {
        (EntryState::Failed, Some(rc)) => format!("{word} ({rc})"),
        _ => match silence_text(entry) {
            Some(silence) => format!("{word}, {silence}"),
            None => word.to_owned(),
        },
    }
}

/// A line about an entry: `17 nightly: failed (exit status 3) after 81.3 s`.
pub(super) fn line(entry: &Entry) -> String {
    let reason = entry.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    let time = match (entry.state, entry.seconds) {
        (EntryState::Waiting, _) | (_, None) => String::new(),
        (_, Some(seconds)) => format!(" after {}", seconds_text(seconds)),
    };
    let line = format!("{} {}: {}{reason}{time}", entry.id, entry.name, entry.state.as_str());
    one_line(&line)
}

/// The entries that have to end before one: `12, 13 (any)`.
pub(super) fn after_text(entry: &Entry) -> String {
    let one = |after: &rgpu_work::queue::Dependency| {
        if after.any { format!("{} (any)", after.entry) } else { after.entry.to_string() }
    };
    entry.after.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// The remote and GPU that an entry needs exclusively: `h200 GPU 1`.
pub(super) fn needs_text(entry: &Entry) -> String {
    let gpu = entry.gpu.as_ref().map(|gpu| format!("GPU {gpu}"));
    one_line(&entry.remote.clone().into_iter().chain(gpu).collect::<Vec<_>>().join(" "))
}
