//! How many of many files are done, on a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::cli::app::App;

/// Fewer files are done before a bar could be read.
const MIN_FILES_FOR_BAR: usize = 8;

/// A bar over files; gone when it is dropped.
pub(super) struct FilesBar(ProgressBar);

impl FilesBar {
    /// A bar for `count` files; hidden where nobody looks, under `--quiet` and under `--json`.
    pub(super) fn new(app: &App, count: usize) -> FilesBar {
        let seen = app.terminal.stderr_tty && !app.global.quiet && !app.global.json;
        let target = match seen && count >= MIN_FILES_FOR_BAR {
            true => ProgressDrawTarget::stderr_with_hz(12),
            false => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(Some(count as u64), target);
        bar.set_style(
            ProgressStyle::with_template("{spinner} {bar:24} {pos}/{len} files")
                .unwrap_or_else(|_| ProgressStyle::default_bar()),
        );
        FilesBar(bar)
    }

    /// One more is done.
    pub(super) fn done(&self) {
        self.0.inc(1);
    }
}

impl Drop for FilesBar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
