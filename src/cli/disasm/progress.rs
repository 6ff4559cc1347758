//! Progress over many files, on a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::cli::support::app::App;

/// With fewer files no bar is shown: they are done before it could be read.
const MIN_FILES_FOR_BAR: usize = 8;

/// A bar over files, removed when dropped.
pub(super) struct FilesBar(ProgressBar);

impl FilesBar {
    /// A bar for `count` files. Hidden off a terminal, with `--quiet` and with `--json`.
    pub(super) fn new(app: &App, count: usize) -> FilesBar {
        let is_visible = app.terminal.has_bars && !app.global.quiet && !app.global.json;
        let target = if is_visible && count >= MIN_FILES_FOR_BAR {
            ProgressDrawTarget::stderr_with_hz(12)
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(Some(count as u64), target);
        bar.set_style(
            ProgressStyle::with_template("{spinner} {bar:24} {pos}/{len} files")
                .unwrap_or_else(|_| ProgressStyle::default_bar()),
        );
        FilesBar(bar)
    }

    /// Counts one more file.
    pub(super) fn done(&self) {
        self.0.inc(1);
    }
}

impl Drop for FilesBar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
