//! How far the reading of a large report has come, on a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::cli::app::App;
use crate::cli::terminal::safe;
use crate::import::ReadProgress;

/// A bar that shows itself with the first rows that are told, and is gone when it is dropped: files
/// that are read in no time show none.
#[derive(Debug)]
pub(super) struct ReadingBar {
    bar: ProgressBar,
    /// Whether somebody looks.
    seen: bool,
}

impl ReadingBar {
    /// A bar for `what`; hidden where nobody looks, under `--quiet` and under `--json`.
    pub(super) fn new(app: &App, what: &str) -> ReadingBar {
        let seen = app.terminal.stderr_tty && !app.global.quiet && !app.global.json;
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        let style = "{spinner} reading {msg} {bar:24} {human_pos}/{human_len} rows";
        bar.set_style(
            ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()),
        );
        bar.set_message(safe(what.as_bytes()));
        ReadingBar { bar, seen }
    }
}

impl ReadProgress for ReadingBar {
    fn read(&self, done: u64, all: u64) {
        if self.seen && self.bar.length() != Some(all) {
            self.bar.set_length(all);
            self.bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(12));
            self.bar.enable_steady_tick(Duration::from_millis(120));
        }
        self.bar.set_position(done);
    }
}

impl Drop for ReadingBar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
