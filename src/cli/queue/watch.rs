//! `rgpu queue watch`.

use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::document::QueueDocument;
use super::list::{ListArgs, table};
use crate::cli::support::app::{App, Status};
use crate::cli::support::terminal::safe;
use crate::error::Result;

/// How often to look for changes.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Show the entries, again after each change
///
/// On a terminal the table stays in place, and Ctrl-C ends it. Elsewhere, and with `--json`, each
/// change is printed, until no entry waits or runs.
#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct WatchArgs {
    #[command(flatten)]
    pub list: ListArgs,
}

/// Shows the entries again and again.
pub(super) fn run(app: &App, args: &WatchArgs) -> Result<Status> {
    let queue = super::open_existing(app)?;
    let is_live = app.terminal.stdout_tty && app.terminal.stderr_tty && !app.global.json;
    let bar = ProgressBar::with_draw_target(
        None,
        match is_live {
            true => ProgressDrawTarget::stderr_with_hz(10),
            false => ProgressDrawTarget::hidden(),
        },
    );
    bar.set_style(
        ProgressStyle::with_template("{msg}").unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    let mut shown: Option<QueueDocument> = None;
    loop {
        let document = QueueDocument::of(&queue, args.list.select(&queue)?.0)?;
        if is_live {
            let text = table(app, document.entries()) + &document.runner_text();
            bar.set_message(safe(text.as_bytes()));
            bar.tick();
        } else if !shown.as_ref().is_some_and(|shown| shown.is_like(&document)) {
            match app.global.json {
                true => app.print_json(&document)?,
                false => app.print(&format!("{}\n", table(app, document.entries()))),
            }
        }
        let is_active = document.entries().iter().any(|entry| entry.state.is_active());
        if !is_live && !is_active {
            return Ok(0);
        }
        shown = Some(document);
        std::thread::sleep(LOOK_INTERVAL);
    }
}
