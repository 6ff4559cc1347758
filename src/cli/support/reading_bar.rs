//! Progress of reading a large report, on a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::app::App;
use super::terminal::escape_controls;
use rgpu_import::ReadProgress;

/// A bar that appears with the first reported rows and is removed when dropped. A file that is read
/// quickly shows none.
#[derive(Debug)]
pub(in crate::cli) struct ReadingBar {
    bar: ProgressBar,
    /// Whether the bar can be seen.
    is_visible: bool,
}

impl ReadingBar {
    /// A bar labelled `what`. Hidden off a terminal, with `--quiet` and with `--json`.
    pub(in crate::cli) fn new(app: &App, what: &str) -> ReadingBar {
        let is_visible = app.terminal.stderr_tty && !app.global.quiet && !app.global.json;
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        let style = "{spinner} reading {msg} {bar:24} {human_pos}/{human_len} rows";
        bar.set_style(
            ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()),
        );
        bar.set_message(escape_controls(what.as_bytes()));
        ReadingBar { bar, is_visible }
    }
}

impl ReadProgress for ReadingBar {
    fn read(&self, done: u64, all: u64) {
        if self.is_visible && self.bar.length() != Some(all) {
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
