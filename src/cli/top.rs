//! `rgpu top`: hosts, queue and loop in one view of the terminal. `rgpu queue top` and `rgpu loop
//! tui` open it at their place.

#![expect(clippy::disallowed_methods, reason = "the log of the page's process, in rgpu's cache")]

mod data;
mod screen;
mod view;

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::support::app::{App, Status};
use rgpu_model::error::{Exit, Failure, Result};

/// Show hosts, queue and loop in the terminal
///
/// Left and right choose what is shown, up and down scroll, and q ends the view. Nothing is changed
/// but the index of runs, and no host is asked: hosts are shown as they were last seen.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = examples!("rgpu top", "rgpu top queue"))]
pub(super) struct TopArgs {
    /// What to show first
    #[arg(value_enum, default_value = "hosts")]
    pub first: Tab,
}

/// A part of the view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Tab {
    /// The remotes, and what runs there
    #[default]
    Hosts,
    /// The project's queue
    Queue,
    /// The project's newest loop
    Loop,
}

pub(super) fn run(app: &App, first: Tab) -> Result<Status> {
    if app.global.json {
        let failure = Failure::new(Exit::Usage, "usage", "the terminal view has no JSON");
        return Err(failure.hint("`rgpu queue list --json` and `rgpu loop status --json` have it"));
    }
    if !app.terminal.stdout_tty || !app.is_attended() {
        let failure = Failure::new(Exit::Usage, "no_terminal", "the view needs a terminal");
        return Err(
            failure.hint("without one: `rgpu remote list`, `rgpu queue list`, `rgpu loop status`")
        );
    }
    screen::show(app, first)?;
    Ok(0)
}

/// Starts `rgpu loop start` with these arguments in the background, and opens the view of it. The
/// loop continues when the view ends.
pub(super) fn run_loop(app: &App, arguments: &[String]) -> Result<Status> {
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};
    if !arguments.is_empty() {
        if !app.terminal.stdout_tty || !app.is_attended() {
            return run(app, Tab::Loop);
        }
        let failed = |e: std::io::Error| {
            Failure::new(Exit::Disk, "spawn", "the loop cannot be started").cause(e)
        };
        let log: PathBuf = app.cache.join("loop-start.log");
        std::fs::create_dir_all(&app.cache).map_err(failed)?;
        let file = std::fs::File::create(&log).map_err(failed)?;
        let mut command = Command::new("/proc/self/exe");
        command.arg0("rgpu").args(["loop", "start"]).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file).process_group(0);
        let mut child = command.spawn().map_err(failed)?;
        // An invalid loop.toml is reported here and not by an empty view.
        std::thread::sleep(std::time::Duration::from_millis(500));
        if let Some(status) = child.try_wait().map_err(failed)?
            && !status.success()
        {
            let words = std::fs::read_to_string(&log).unwrap_or_default();
            let failure = Failure::new(Exit::Usage, "loop_ended", "the loop ended at once");
            return Err(failure.cause(words.trim()));
        }
    }
    run(app, Tab::Loop)
}
