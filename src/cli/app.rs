//! Runs one command line: parses it, loads the settings, dispatches, and turns a failure into an
//! exit status.

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{CommandFactory, FromArgMatches};
use etcetera::BaseStrategy;
use serde::Serialize;

use super::args::{Cli, Command, GlobalArgs};
use super::terminal::{Terminal, safe, unwritten, write_out, written};
use super::{
    build, compare, completions, disasm, doctor, exec, kernels, open_files, profile, remote,
    report, runs, schema, setup, worker,
};
use crate::config::{Config, Environment};
use crate::error::{ErrorDocument, Exit, Failure, Result, inset};

/// Worker threads besides the command's own: one for the connection, one for what it waits for.
const WORKER_THREADS: usize = 2;

/// The settings, flags, terminal and folders that every command uses.
pub(super) struct App {
    pub(super) config: Config,
    pub(super) global: GlobalArgs,
    pub(super) terminal: Terminal,
    /// The command line as typed.
    pub(super) argv: Vec<String>,
    /// The user's cache folder for rgpu.
    pub(super) cache: PathBuf,
    /// The user's data folder for rgpu: tools fetched with the user's consent.
    pub(super) data: PathBuf,
    /// The user's settings folder, for all programs.
    config_dir: PathBuf,
    pub(super) cwd: PathBuf,
}

/// Whether this process's command line has `--json`.
static JSON: AtomicBool = AtomicBool::new(false);

/// Whether a failure is also printed as a document on stdout.
pub(super) fn wants_json() -> bool {
    JSON.load(Ordering::Relaxed)
}

/// The exit status of a command that did not fail.
pub(super) type Status = u8;

/// Runs the command line `args` and returns the process's exit status.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let argv: Vec<OsString> = args.into_iter().collect();
    let json = argv.iter().take_while(|a| *a != "--").any(|a| a == "--json");
    JSON.store(json, Ordering::Relaxed);
    std::panic::set_hook(Box::new(|info| {
        let place =
            info.location().map(|l| format!("{}:{}", l.file(), l.line())).unwrap_or_default();
        say(&format!("rgpu met a defect of its own at {place}\n"));
    }));
    let outcome = std::panic::catch_unwind(|| start(&argv)).unwrap_or_else(|panic| {
        let words = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()))
            .unwrap_or_default();
        Err(Failure::new(Exit::Bug, "bug", "a defect of rgpu stopped this command")
            .cause(words)
            .hint("please report it with the command and the text above"))
    });
    match outcome {
        Ok(status) => ExitCode::from(status),
        Err(failure) => {
            show_failure(&failure, failure.exit as u8, json);
            ExitCode::from(failure.exit as u8)
        }
    }
}

fn start(argv: &[OsString]) -> Result<Status> {
    let expanded = profile::expand_preset(argv)?;
    let cli = match parse_cli(&expanded) {
        Ok(cli) => cli,
        Err(error) => return handle_clap_error(&error, argv, &expanded),
    };
    if cli.global.json && cli.command.events() == Some("-") {
        return Err(stdout_is_taken());
    }
    let cwd = std::env::current_dir().map_err(|e| {
        Failure::new(Exit::Config, "no_folder", "the current folder cannot be read").cause(e)
    })?;
    let base = etcetera::choose_base_strategy().map_err(|e| {
        Failure::new(Exit::Config, "no_home", "your home folder is not known").cause(e)
    })?;
    let config_dir = base.config_dir();
    let config = match Config::load(&cwd, &config_dir, &Environment::read()) {
        Err(failure) if matches!(cli.command, Command::Exec(_)) => {
            return exec::own_failure(failure, cli.global.json);
        }
        config => config?,
    };
    let app = App {
        config,
        global: cli.global,
        terminal: Terminal::detect(),
        argv: argv.iter().map(|a| a.to_string_lossy().into_owned()).collect(),
        cache: base.cache_dir().join("rgpu"),
        data: base.data_dir().join("rgpu"),
        config_dir,
        cwd,
    };
    let status = match cli.command {
        Command::Profile(args) => prune_runs(&app, profile::run(&app, &args)),
        // `exec` checks for failed writes itself.
        Command::Exec(args) => return prune_runs(&app, exec::run(&app, &args)),
        Command::Build(args) => prune_runs(&app, build::run(&app, &args)),
        Command::Remote(command) => remote::run(&app, &command),
        Command::Doctor(args) => doctor::run(&app, &args),
        Command::Kernels(command) => kernels::run(&app, &command),
        Command::Runs(command) => runs::run(&app, &command),
        Command::Disasm(args) => disasm::run(&app, &args),
        Command::Report(args) => report::run(&app, &args),
        Command::Compare(args) => prune_runs(&app, compare::run(&app, &args)),
        Command::Schema(args) => schema::run(&app, &args),
        Command::Setup(command) => setup::run(&app, &command),
        Command::Worker(args) => worker::run(&app, &args),
        Command::Completions { shell } => completions::run(&app, shell),
        Command::Names { what } => completions::names(&app, what),
        Command::Man { folder } => {
            clap_mangen::generate_to(Cli::command(), &folder).map_err(|e| {
                Failure::new(Exit::Disk, "disk", "cannot write the man pages")
                    .file(folder.display())
                    .cause(e)
            })?;
            Ok(0)
        }
    }?;
    written().map(|()| status)
}

/// The error for `--events -` with `--json`: both need stdout.
pub(super) fn stdout_is_taken() -> Failure {
    Failure::new(Exit::Usage, "usage", "stdout is taken by the result")
        .hint("write the events to a file: `--events FILE`")
}

fn parse_cli(argv: &[OsString]) -> clap::error::Result<Cli> {
    let mut command = Cli::command();
    let cli = command
        .try_get_matches_from_mut(argv)
        .and_then(|mut matches| Cli::from_arg_matches_mut(&mut matches));
    let cli = cli.map_err(|error| error.format(&mut command));
    // Not worth freeing: it is built once and the process ends soon.
    std::mem::forget(command);
    cli
}

/// Deletes runs beyond the limit, since a run has just ended, well or not.
fn prune_runs<T>(app: &App, ended: T) -> T {
    runs::prune(app);
    ended
}

/// Prints `--help` and `--version`; turns any other message of clap into a usage error.
fn handle_clap_error(
    error: &clap::Error,
    argv: &[OsString],
    expanded: &[OsString],
) -> Result<Status> {
    use clap::error::ErrorKind;
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let _ = error.print().inspect_err(unwritten);
            written().map(|()| 0)
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            Ok(Exit::Usage as u8)
        }
        // Clap's own message would list hidden commands too.
        ErrorKind::MissingSubcommand => {
            let words = argv.iter().skip(1).filter_map(|word| word.to_str());
            let typed: Vec<&str> = words.filter(|word| !word.starts_with('-')).collect();
            let help_command = [&["rgpu"], typed.as_slice(), &["--help"]].concat().join(" ");
            Err(Failure::new(Exit::Usage, "usage", "a command is missing")
                .hint(format!("`{help_command}` lists the commands")))
        }
        _ => {
            let text = error.to_string();
            let mut lines = text.trim_end().splitn(2, '\n');
            let mut message =
                lines.next().unwrap_or_default().trim_start_matches("error: ").to_owned();
            // Clap lists what is missing below, one per line.
            let mut rest = lines.next().unwrap_or_default();
            if message.ends_with(':') {
                let (missing, other) = rest.split_once("\n\n").unwrap_or((rest, ""));
                let missing: Vec<&str> = missing.lines().map(str::trim).collect();
                message = format!("{message} {}", missing.join(", "));
                rest = other;
            }
            let mut failure = Failure::new(Exit::Usage, "usage", message);
            let typed = |word: &str| argv.get(1).is_some_and(|a| a == word);
            for hint in rest.split("\n\n").map(str::trim).filter(|h| !h.is_empty()) {
                let hint = hint.trim_start_matches("tip: ");
                // After `--` a flag would be taken for the command.
                if typed("exec") && hint.starts_with("to pass '") {
                    continue;
                }
                failure = failure.hint(hint.to_owned());
            }
            let preset = argv.len() != expanded.len();
            if preset {
                failure = failure.hint("flags that you did not type come from the preset");
            }
            // Hints for the most common first mistakes.
            if error.kind() == ErrorKind::UnknownArgument && typed("profile") && !preset {
                failure = failure
                    .hint("a kernel is named by `--kernel NAME`, a program stands after `--`");
            } else if error.kind() == ErrorKind::UnknownArgument
                && typed("exec")
                && argv.iter().take_while(|a| *a != "--").any(|a| a == "-c" || a == "-e")
            {
                failure = failure.hint("code: rgpu exec --lang py --code 'print(1)'").hint(
                    "a command with such a flag stands after `--`: rgpu exec -- sh -c 'ls | wc -l'",
                );
            } else if typed("completions") {
                failure = failure.hint("rgpu completions bash > FILE; also zsh, fish, elvish");
            } else if error.kind() == ErrorKind::UnknownArgument && typed("exec") {
                failure =
                    failure.hint("arguments and commands stand after `--`: rgpu exec -- ls -la");
            }
            Err(failure)
        }
    }
}

impl App {
    /// Writes data to stdout. A reader that went away (`| head`) is no error; any other failure is
    /// returned when the command ends.
    pub(super) fn print(&self, text: &str) {
        self.print_bytes(text.as_bytes());
    }

    /// Like [`App::print`], for bytes.
    pub(super) fn print_bytes(&self, text: &[u8]) {
        write_out(text);
    }

    /// Prints a value as indented JSON.
    pub(super) fn print_json(&self, value: &impl Serialize) -> Result<()> {
        let text = super::json::pretty(value).map_err(|e| {
            Failure::new(Exit::Bug, "bug", "a result cannot be written as JSON").cause(e)
        })?;
        self.print(&text);
        Ok(())
    }

    /// Loads the settings again, after a command has changed them.
    pub(super) fn settings(&self) -> Result<Config> {
        Config::load(&self.cwd, &self.config_dir, &Environment::read())
    }

    /// Prints a line on stderr, unless `--quiet`.
    pub(super) fn say(&self, text: &str) {
        if !self.global.quiet {
            say(&format!("{text}\n"));
        }
    }

    /// Prints an error about part of the work on stderr, even with `--quiet`.
    pub(super) fn complain(&self, text: &str) {
        say(&safe(format!("error: {}\n", inset(text, 7)).as_bytes()));
    }

    /// Whether somebody can answer a question at the terminal.
    pub(super) fn attended(&self) -> bool {
        std::io::stdin().is_terminal() && self.terminal.stderr_tty
    }

    /// The hint on how to get nvdisasm. A script has to pass `--yes`.
    pub(super) fn setup_nvdisasm(&self) -> &'static str {
        match self.attended() {
            true => "`rgpu setup nvdisasm` fetches it (5 MB)",
            false => "`rgpu setup nvdisasm --yes` fetches it (5 MB)",
        }
    }

    /// The width and colours of reports on this terminal.
    pub(super) fn style(&self) -> crate::report::Style {
        let width = match (self.terminal.columns, self.terminal.stdout_tty) {
            (None, false) => 80,
            _ => self.terminal.width.min(120),
        };
        crate::report::Style { width, color: self.terminal.stdout_color, ..Default::default() }
    }

    /// Columns for tables of names and paths: those of `COLUMNS` or the terminal. In a pipe there
    /// is no limit, so that every row stays one line.
    pub(super) fn columns(&self) -> usize {
        match (self.terminal.columns, self.terminal.stdout_tty) {
            (Some(columns), _) => columns,
            (None, true) => self.terminal.width.min(120),
            (None, false) => usize::from(u16::MAX),
        }
    }

    /// Runs `future` on this thread. The connection runs on a worker thread, so that decryption
    /// does not hold up this one.
    pub(super) fn block_on<T>(&self, future: impl Future<Output = Result<T>>) -> Result<T> {
        open_files::enough()?;
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(WORKER_THREADS).enable_all().build();
        let runtime = runtime
            .map_err(|e| open_files::cannot_start("runtime", "the event loop cannot start", &e))?;
        let result = runtime.block_on(future);
        // Do not wait for threads that are blocked on stdin.
        runtime.shutdown_background();
        result
    }
}

fn say(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// Prints a failure on stderr, and with `--json` also on stdout as `rgpu.error/1`.
pub(super) fn show_failure(failure: &Failure, exit: u8, json: bool) {
    let terminal = Terminal::detect();
    let text = safe(failure.to_string().as_bytes());
    let text = match (terminal.stderr_color, text.strip_prefix("error:")) {
        (true, Some(rest)) => format!("\u{1b}[1;31merror:\u{1b}[0m{rest}"),
        _ => text,
    };
    say(&format!("{text}\n"));
    if json {
        let value = ErrorDocument::new(failure.clone(), exit);
        if let Ok(mut line) = serde_json::to_string_pretty(&value) {
            line.push('\n');
            write_out(line.as_bytes());
        }
    }
}
