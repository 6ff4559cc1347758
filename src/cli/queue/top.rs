//! `rgpu queue top`: shows the queue and prints it again after each change.

use std::time::Duration;

use clap::Args;

use super::list::{ListArgs, table};
use crate::cli::support::app::{App, Status};
use crate::cli::top;
use rgpu_model::error::Result;
use rgpu_work::queue::QueueDocument;

/// How often to look for changes.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Show the entries and print the list again after each change
///
/// On a terminal this opens `rgpu top queue`, which ignores the filters. Elsewhere, and with
/// `--json`, the whole list is printed again after each change, until none of its entries waits or
/// runs.
#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct TopArgs {
    #[command(flatten)]
    pub list: ListArgs,
}

/// Shows the entries: in the view of the terminal, or again after each change.
pub(super) fn run(app: &App, args: &TopArgs) -> Result<Status> {
    let queue = super::open_existing(app)?;
    if app.terminal.stdout_tty && app.is_attended() && !app.global.json {
        return top::run(app, top::Tab::Queue);
    }
    let mut shown: Option<QueueDocument> = None;
    loop {
        let document = QueueDocument::for_entries(&queue, args.list.select(&queue)?.0)?;
        if !shown.as_ref().is_some_and(|shown| shown.has_same_state(&document)) {
            if app.global.json {
                app.print_json(&document)?
            } else {
                app.print(&format!("{}\n", table(app, document.entries())))
            }
        }
        if !document.entries().iter().any(|entry| entry.state.is_active()) {
            return Ok(0);
        }
        shown = Some(document);
        std::thread::sleep(POLL_INTERVAL);
    }
}
