//! The context of every command: settings, flags, terminal and folders; printing and failing.

use std::io::{self, BufRead, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{Args, ColorChoice};
use serde::Serialize;

use super::terminal::{
    BufferedStdout, Terminal, escape_controls, record_write_error, write_out, write_stderr,
};
use super::{open_files, release};
use rgpu_model::error::{ErrorDocument, Exit, Failure, Result, indent_continuation};
use rgpu_report::{BAD, DOUBTFUL, KernelNames, Style, json};
use rgpu_run::config::{Config, Environment};
use rgpu_run::store::{MadeFolders, RunParent, Runs};

/// Worker threads besides the command's own: one for the connection, one for what it waits for.
const WORKER_THREADS: usize = 2;

/// The settings, flags, terminal and folders that every command uses.
pub(in crate::cli) struct App {
    pub(in crate::cli) config: Config,
    pub(in crate::cli) global: GlobalArgs,
    pub(in crate::cli) terminal: Terminal,
    /// How tables name kernels.
    pub(in crate::cli) names: KernelNames,
    /// The command line as typed.
    pub(in crate::cli) argv: Vec<String>,
    /// The user's cache folder for rgpu.
    pub(in crate::cli) cache: PathBuf,
    /// The user's data folder for rgpu: tools fetched with the user's consent.
    pub(in crate::cli) data: PathBuf,
    /// The user's settings folder, for all programs.
    pub(in crate::cli) config_dir: PathBuf,
    pub(in crate::cli) cwd: PathBuf,
    /// The queue entry, loop or suite that started this process; absent if the user did.
    pub(in crate::cli) parent: Option<RunParent>,
}

/// Whether this process's command line has `--json`. The signal thread has no [`App`].
static JSON: AtomicBool = AtomicBool::new(false);

/// Sets whether the command line has `--json`.
pub(in crate::cli) fn set_json_mode(json: bool) {
    JSON.store(json, Ordering::Relaxed);
}

/// Whether a failure is also printed as a document on stdout.
pub(in crate::cli) fn wants_json() -> bool {
    JSON.load(Ordering::Relaxed)
}

/// The exit status of a command that did not fail.
pub(in crate::cli) type Status = u8;

/// Flags of every command.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(in crate::cli) struct GlobalArgs {
    /// Print the result as JSON on stdout, and nothing else there
    #[arg(long, global = true, display_order = 900)]
    pub json: bool,

    /// Print only errors on stderr
    #[arg(long, short, global = true, display_order = 901)]
    pub quiet: bool,

    /// Print more; -vv also logs what connections and runs do (as `RGPU_LOG=rgpu=debug`)
    #[arg(long, short, global = true, action = clap::ArgAction::Count, display_order = 902)]
    pub verbose: u8,

    /// Colour the output and the messages
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", display_order = 903)]
    pub color: ColorChoice,
}

impl App {
    /// The file with the ids of this user's state databases.
    pub(in crate::cli) fn state_ids_file(&self) -> PathBuf {
        self.data.join("state-ids")
    }

    /// The runs of the project. Those that it makes are recorded as this user's.
    pub(in crate::cli) fn runs(&self) -> Runs {
        let made = MadeFolders::in_data(&self.data);
        Runs::new(&self.config.runs_dir.value).recorded_in(made)
    }

    /// Writes data to stdout. A reader that went away (`| head`) is no error; any other failure is
    /// returned when the command ends.
    pub(in crate::cli) fn print(&self, text: &str) {
        self.print_bytes(text.as_bytes());
    }

    /// Like [`App::print`], for bytes.
    pub(in crate::cli) fn print_bytes(&self, text: &[u8]) {
        write_out(text);
    }

    /// Prints a value as indented JSON.
    pub(in crate::cli) fn print_json(&self, value: &impl Serialize) -> Result<()> {
        self.print_pieces(&|out| json::write(out, value))
    }

    /// Prints what `fill` writes while it is made: a large document is never in memory as a whole.
    pub(in crate::cli) fn print_pieces(
        &self,
        fill: &dyn Fn(&mut BufferedStdout) -> io::Result<()>,
    ) -> Result<()> {
        let mut out = BufferedStdout::default();
        let written = fill(&mut out).and_then(|()| out.finish());
        match written {
            Err(e) if e.kind() == io::ErrorKind::InvalidData => {
                Err(Failure::new(Exit::Bug, "bug", "a result cannot be written as JSON").cause(e))
            }
            Err(e) => {
                record_write_error(&e);
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Loads the settings again, after a command has changed them.
    pub(in crate::cli) fn reload_settings(&self) -> Result<Config> {
        Config::load(&self.cwd, &self.config_dir, &Environment::read())
    }

    /// Prints a line on stderr, unless `--quiet`.
    pub(in crate::cli) fn print_note(&self, text: &str) {
        if !self.global.quiet {
            let text = with_painted_lead(text, self.terminal.stderr_color);
            write_stderr(&format!("{text}\n"));
        }
    }

    /// Prints an error about part of the work on stderr, even with `--quiet`.
    pub(in crate::cli) fn print_error(&self, text: &str) {
        let text = format!("error: {}", indent_continuation(text, 7));
        let text = with_painted_lead(&text, self.terminal.stderr_color);
        write_stderr(&format!("{text}\n"));
    }

    /// The path relative to the current folder, if it is inside.
    pub(in crate::cli) fn short(&self, path: &Path) -> String {
        path.strip_prefix(&self.cwd).unwrap_or(path).display().to_string()
    }

    /// Refuses `--json` beside another `--format`.
    pub(in crate::cli) fn check_one_format(&self, format: Option<&str>) -> Result<()> {
        let Some(other) = format.filter(|format| self.global.json && *format != "json") else {
            return Ok(());
        };
        let words = format!("`--json` and `--format {other}` ask for two formats of one report");
        Err(Failure::new(Exit::Usage, "usage", words).hint("leave one of them out"))
    }

    /// Whether somebody can answer a question at the terminal.
    pub(in crate::cli) fn is_attended(&self) -> bool {
        std::io::stdin().is_terminal() && self.terminal.stderr_tty
    }

    /// Whether a question can reach the user.
    pub(in crate::cli) fn may_ask(&self) -> bool {
        !self.global.json && self.is_attended()
    }

    /// Asks a question at the terminal that ends with `[y/N]`. Nobody answers under `--json` or
    /// without a terminal: that is a no.
    pub(in crate::cli) fn agrees(&self, question: &str) -> bool {
        if !self.may_ask() {
            return false;
        }
        write_stderr(&format!("{question} [y/N] "));
        let mut answer = String::new();
        let read = std::io::stdin().lock().read_line(&mut answer);
        read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
    }

    /// The hint on how to get nvdisasm. A script has to pass `--yes`.
    pub(in crate::cli) fn setup_nvdisasm(&self) -> &'static str {
        if self.is_attended() {
            "`rgpu setup nvdisasm` fetches it (5 MB)"
        } else {
            "`rgpu setup nvdisasm --yes` fetches it (5 MB)"
        }
    }

    /// The width and colours of reports on this terminal, and the names of kernels.
    pub(in crate::cli) fn style(&self) -> Style {
        let width = if self.terminal.stdout_tty { self.terminal.width.min(120) } else { 80 };
        Style {
            width,
            table_width: self.columns(),
            color: self.terminal.stdout_color,
            names: self.names,
            ..Style::default()
        }
    }

    /// Columns for tables of names and paths: those of `COLUMNS` or the terminal. In a pipe there
    /// is no limit, so that every row stays one line.
    pub(in crate::cli) fn columns(&self) -> usize {
        match (self.terminal.columns, self.terminal.stdout_tty) {
            (Some(columns), _) => columns,
            (None, true) => self.terminal.width.min(120),
            (None, false) => usize::from(u16::MAX),
        }
    }

    /// Runs `future` on this thread. The connection runs on a worker thread, so that decryption
    /// does not hold up this one.
    pub(in crate::cli) fn block_on<T>(&self, future: impl Future<Output = Result<T>>) -> Result<T> {
        open_files::check_open_file_limit()?;
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(WORKER_THREADS).enable_all().build();
        let runtime = runtime
            .map_err(|e| open_files::cannot_start("runtime", "the event loop cannot start", &e))?;
        let result = runtime.block_on(async {
            let result = future.await;
            release::release_hosts().await;
            result
        });
        // Do not wait for threads that are blocked on stdin.
        runtime.shutdown_background();
        result
    }
}

/// The error for `--events -` with `--json`: both need stdout.
pub(in crate::cli) fn stdout_is_taken() -> Failure {
    Failure::new(Exit::Usage, "usage", "stdout is used for the result")
        .hint("write the events to a file: `--events FILE`")
}

/// A message with its first word in colour, if that is `error:` or `warning:`.
fn with_painted_lead(text: &str, has_color: bool) -> String {
    let style = Style { color: has_color, ..Style::default() };
    for (lead, sgr) in [("error:", BAD), ("warning:", DOUBTFUL)] {
        if let Some(rest) = text.strip_prefix(lead) {
            return style.paint(sgr, lead) + rest;
        }
    }
    text.to_owned()
}

/// Prints a failure on stderr, and with `--json` also on stdout as `rgpu.error/1`.
pub(in crate::cli) fn show_failure(failure: &Failure, exit: u8, json: bool) {
    let terminal = Terminal::detect();
    let text = escape_controls(failure.to_string().as_bytes());
    let text = with_painted_lead(&text, terminal.stderr_color);
    write_stderr(&format!("{text}\n"));
    if json {
        let value = ErrorDocument::new(failure.clone(), exit);
        if let Ok(mut line) = serde_json::to_string_pretty(&value) {
            line.push('\n');
            write_out(line.as_bytes());
        }
    }
}
