//! Runs one command line: parses it, loads the settings, dispatches, and turns a failure into an
//! exit status.

#![expect(
    clippy::disallowed_methods,
    reason = "the folder that the user named for the manual pages"
)]

use std::any::Any;
use std::ffi::OsString;
use std::process::ExitCode;

use clap::{ColorChoice, CommandFactory, FromArgMatches, ValueEnum};
use etcetera::BaseStrategy;

use super::args::{Cli, Command};
use super::support::app::{App, GlobalArgs, Status, set_json_mode, show_failure, stdout_is_taken};
use super::support::exec_status::{show_own_failure, status_of_failure};
use super::support::for_agent;
use super::support::log;
use super::support::open_files::thread_failure;
use super::support::signals;
use super::support::terminal::{
    Terminal, check_output_written, choose_color, restore_mode, write_out, write_stderr,
};
use super::{
    arguments, attach, bench, build, cache, compare, completions, dashboard, disasm, doctor, exec,
    help, kernels, layout, loops, mcp, model, profile, queue, remote, report, runs, schema, setup,
    skill, top, worker,
};
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_plan::kernel::SEVERAL_ARCHITECTURES;
use rgpu_report::{KernelNames, mark_own_colors};
use rgpu_run::config::{Config, Environment};
use rgpu_run::process_tree;
use rgpu_run::store::RunParent;
use rgpu_work::loops::loop_id_from_env;
use rgpu_work::queue::own_entry;

/// The words of a panic.
fn words_of(payload: &(dyn Any + Send)) -> Option<&str> {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied())
}

/// Runs the command line `args` and returns the process's exit status.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let argv: Vec<OsString> = args.into_iter().collect();
    let json = argv.iter().take_while(|a| *a != "--").any(|a| a == "--json");
    set_json_mode(json);
    choose_color(typed_color(&argv));
    let is_exec = argv.iter().skip(1).find(|a| !a.to_string_lossy().starts_with('-'));
    let is_exec = is_exec.is_some_and(|command| command == "exec");
    std::panic::set_hook(Box::new(move |info| {
        // Another thread may wait for this one without end.
        if let Some(failure) = words_of(info.payload()).and_then(thread_failure) {
            let status = if is_exec { status_of_failure(&failure) } else { failure.exit as u8 };
            restore_mode();
            show_failure(&failure, status, json);
            std::process::exit(i32::from(status));
        }
        let place =
            info.location().map(|l| format!("{}:{}", l.file(), l.line())).unwrap_or_default();
        write_stderr(&format!("rgpu has a bug at {place}\n"));
    }));
    signals::outlive_file_size_limit();
    let outcome = std::panic::catch_unwind(|| start(&argv)).unwrap_or_else(|panic| {
        let words = words_of(&*panic).unwrap_or_default().to_owned();
        Err(Failure::new(Exit::Bug, "bug", "a bug in rgpu stopped this command")
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
    if completions::answer_shell(argv)? {
        return Ok(0);
    }
    if let Some(page) = help::page(argv) {
        write_out(page.as_bytes());
        return check_output_written().map(|()| 0);
    }
    let expanded = profile::expand_preset(argv, Cli::command())?;
    let mut cli = match parse_cli(&expanded) {
        Ok(cli) => cli,
        Err(error) => return handle_clap_error(&error, argv, &expanded),
    };
    if let Command::Profile(args) = &mut cli.command {
        args.adopt_positional_kernel();
    }
    check_given_once(argv, &cli.command)?;
    // A preset may have changed it.
    choose_color(cli.global.color);
    log::start(if cli.global.quiet { 0 } else { cli.global.verbose })?;
    if cli.global.json && cli.command.events() == Some("-") {
        return Err(stdout_is_taken());
    }
    if !process_tree::IS_SUPPORTED && matches!(cli.command, Command::Queue(_) | Command::Loop(_)) {
        return Err(no_process_trees());
    }
    if let Command::Queue(command) = &cli.command
        && let Some(ended) = queue::run_without_settings(command)
    {
        return ended;
    }
    let app = match app(cli.global, cli.command.kernel_names(), argv) {
        Err(failure) if matches!(cli.command, Command::Exec(_)) => {
            return show_own_failure(failure, cli.global.json);
        }
        app => app?,
    };
    for folder in [&app.cache, &app.data] {
        // Without a home that can be written, each use reports its own error.
        let _ = rgpu_run::store::atomic::make_private_folder(folder);
    }
    for_agent::confine(&app)?;
    if let Some(file) = &app.config.ignored {
        app.print_note(&format!("warning: `{}` is ignored: another user made it", file.display()));
    }
    let status = match cli.command {
        Command::Profile(args) if !args.sweep.is_empty() => {
            prune_runs(&app, bench::sweep(&app, &args))
        }
        Command::Profile(args) => prune_runs(&app, profile::run(&app, &args)),
        // `exec` checks for failed writes itself.
        Command::Exec(args) => {
            return prune_runs(&app, exec::run(&app, &args));
        }
        Command::Build(args) => prune_runs(&app, build::run(&app, &args)),
        Command::Remote(command) => remote::run(&app, &command),
        Command::Doctor(args) => doctor::run(&app, &args),
        Command::Kernels(command) => kernels::run(&app, &command),
        Command::Runs(command) => runs::run(&app, &command, attach::run),
        Command::Layout(command) => layout::run(&app, &command),
        Command::Disasm(args) => disasm::run(&app, &args),
        Command::Report(args) => report::run(&app, &args),
        Command::Compare(args) => prune_runs(&app, compare::run(&app, &args)),
        Command::Bench(args) => prune_runs(&app, bench::run(&app, &args)),
        Command::Queue(command) => queue::run(&app, &command),
        Command::Loop(command) => loops::run(&app, &command),
        Command::Top(args) => top::run(&app, args.first),
        Command::Dashboard(args) => dashboard::run(&app, &args),
        Command::Model(command) => model::run(&app, &command),
        Command::Schema(args) => schema::run(&app, &args),
        Command::Setup(command) => setup::run(&app, &command),
        Command::Worker(args) => worker::run(&app, &args),
        Command::Mcp(args) => mcp::run(&app, &args),
        Command::Cache(command) => cache::run(&app, &command),
        Command::Skill(command) => skill::run(&app, &command),
        Command::Completions { shell } => completions::run(&app, shell),
        Command::Version => {
            app.print(concat!("rgpu ", env!("RGPU_VERSION"), "\n"));
            Ok(0)
        }
        Command::Arguments => arguments::print(&app),
        Command::Man { folder } => {
            std::fs::create_dir_all(&folder)
                .and_then(|()| clap_mangen::generate_to(Cli::command(), &folder))
                .map_err(|e| {
                    Failure::new(Exit::Disk, "disk", "cannot write the man pages")
                        .file(folder.display())
                        .cause(e)
                })?;
            Ok(0)
        }
    }?;
    check_output_written().map(|()| status)
}

/// The settings and folders of this process.
fn app(global: GlobalArgs, names: KernelNames, argv: &[OsString]) -> Result<App> {
    let cwd = std::env::current_dir().map_err(|e| {
        Failure::new(Exit::Config, "no_folder", "the current folder cannot be read").cause(e)
    })?;
    let base = etcetera::choose_base_strategy().map_err(|e| {
        Failure::new(Exit::Config, "no_home", "your home folder is unknown").cause(e)
    })?;
    let config_dir = base.config_dir();
    Ok(App {
        config: Config::load(&cwd, &config_dir, &Environment::read())?,
        global,
        names,
        terminal: Terminal::detect(),
        argv: argv.iter().map(|a| a.to_string_lossy().into_owned()).collect(),
        cache: base.cache_dir().join("rgpu"),
        data: base.data_dir().join("rgpu"),
        config_dir,
        cwd,
        parent: parent(),
    })
}

/// The settings and folders that a shell's completion reads names from.
pub(super) fn app_for_names() -> Result<App> {
    let app = app(GlobalArgs::default(), KernelNames::default(), &[])?;
    for_agent::confine(&app)?;
    Ok(app)
}

/// Refuses a second `--arch` or `--kernel` where a command takes one: the last alone would count.
fn check_given_once(argv: &[OsString], command: &Command) -> Result<()> {
    let takes_one_arch = matches!(command, Command::Profile(_) | Command::Compare(_));
    let takes_one_kernel = matches!(command, Command::Profile(_) | Command::Build(_));
    let words = argv.iter().take_while(|word| *word != "--").filter_map(|word| word.to_str());
    let words: Vec<&str> = words.collect();
    let is_twice = |flag: &str, short: &str| {
        let is_flag = |word: &&&str| {
            let rest = word.strip_prefix(flag);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
                || (!short.is_empty() && word.starts_with(short))
        };
        words.iter().filter(is_flag).count() > 1
    };
    let refused = |what: &str, hint: &str| Err(Failure::new(Exit::Usage, "usage", what).hint(hint));
    if takes_one_arch && is_twice("--arch", "") {
        let what = "`--arch` is there twice, and this command compiles for one architecture";
        return refused(what, SEVERAL_ARCHITECTURES);
    }
    if takes_one_kernel && is_twice("--kernel", "-K") {
        let what = "`--kernel` is there twice, and this command takes one kernel";
        return refused(what, "give one command for each; `rgpu bench run` measures several");
    }
    Ok(())
}

/// Refuses `queue` and `loop` where they could not end what they start.
fn no_process_trees() -> Failure {
    let what = "`rgpu queue` and `rgpu loop` run on Linux only";
    Failure::new(Exit::Config, "needs_linux", what)
        .cause("they end whole trees of processes, which only Linux lets them find")
        .hint("run them on a Linux machine; all other commands work here")
}

/// The queue entry and the loop that started this process.
fn parent() -> Option<RunParent> {
    let parent = RunParent { queue: own_entry(), loop_id: loop_id_from_env(), suite: None };
    (parent != RunParent::default()).then_some(parent)
}

/// The value of `--color` as typed: for help and errors, which clap gives instead of flags.
fn typed_color(argv: &[OsString]) -> ColorChoice {
    let mut words = argv.iter().take_while(|a| *a != "--").filter_map(|a| a.to_str());
    let mut choice = ColorChoice::Auto;
    while let Some(word) = words.next() {
        let value = match word.strip_prefix("--color=") {
            None if word == "--color" => words.next(),
            value => value,
        };
        choice = value.and_then(|v| ColorChoice::from_str(v, false).ok()).unwrap_or(choice);
    }
    choice
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
    cache::enforce_limit(app);
    ended
}

/// The output of `rgpu` without arguments: three things to do next.
fn next_steps() -> String {
    const ADD: &str = "  rgpu remote add NAME ssh://USER@HOST --default    name a GPU host\n";
    const DOCTOR: &str = "  rgpu doctor                                       what works there\n";
    const PROFILE: &str = "  rgpu profile --kernel vecadd --mode ncu           profile a kernel\n";
    const REPORT: &str =
        "  rgpu report latest --format html --open           see the last run as a page\n";
    let folders = etcetera::choose_base_strategy().ok().zip(std::env::current_dir().ok());
    let config = folders
        .and_then(|(base, cwd)| Config::load(&cwd, &base.config_dir(), &Environment::read()).ok());
    let steps = if config.is_some_and(|config| !config.remotes.is_empty()) {
        [DOCTOR, PROFILE, REPORT]
    } else {
        [ADD, DOCTOR, PROFILE]
    };
    let steps = steps.concat();
    format!(
        "rgpu profiles, checks and runs GPU kernels on a remote NVIDIA GPU. What to do next:\n\n\
         {steps}\nrgpu --help lists all commands.\n"
    )
}

/// A message of clap, such as a help page.
fn rendered(error: &clap::Error, color: bool) -> String {
    styled(&error.render(), color)
}

/// A text of clap, with its colours if they are shown.
fn styled(text: &clap::builder::StyledStr, color: bool) -> String {
    if color { mark_own_colors(&text.ansi().to_string()) } else { text.to_string() }
}

/// A message names at most this many commands.
const MAX_NAMED_COMMANDS: usize = 12;

/// The subcommands of the command that was typed, such as those of `rgpu setup`. `None` if there
/// are none, or too many for a message.
fn subcommand_names(argv: &[OsString]) -> Option<Vec<String>> {
    let mut root = Cli::command();
    root.build();
    let mut command = &root;
    for word in argv.iter().skip(1).filter_map(|word| word.to_str()) {
        match command.find_subcommand(word) {
            Some(inner) => command = inner,
            None if word.starts_with('-') => {}
            None => break,
        }
    }
    let shown = command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help");
    let names: Vec<String> = shown.map(|c| c.get_name().to_owned()).collect();
    (1..=MAX_NAMED_COMMANDS).contains(&names.len()).then_some(names)
}

/// A message names at most this many possible values.
const MAX_NAMED_VALUES: usize = 30;

/// A hint of clap in the style of rgpu's own.
fn plain_hint(hint: &str, argv: &[OsString]) -> String {
    let similar = ["argument", "value", "subcommand"].into_iter().find_map(|kind| {
        hint.strip_prefix(&format!("a similar {kind} exists: '"))?.strip_suffix('\'')
    });
    if let Some(name) = similar {
        return format!("did you mean `{name}`?");
    }
    if hint.starts_with("[possible values: ") && hint.matches(", ").count() >= MAX_NAMED_VALUES {
        let command = argv.get(1).map(|word| word.to_string_lossy()).unwrap_or_default();
        return format!("`rgpu {command} --help` lists the possible values");
    }
    hint.to_owned()
}

/// Prints the page of `--help` that was asked for.
fn show_help(argv: &[OsString]) -> Result<Status> {
    let mut root = Cli::command();
    root.build();
    let text = help::help_page(&root, argv).map_err(|topics| {
        let what = format!("there is no topic `{}`", help::asked_topic(argv).unwrap_or_default());
        Failure::new(Exit::Usage, "usage", what).hint(format!("there are {}", topics.join(", ")))
    })?;
    let color = Terminal::detect().stdout_color;
    write_out(styled(&text, color).as_bytes());
    check_output_written().map(|()| 0)
}

/// The failure of a command line with an argument that is no UTF-8.
fn not_utf8(argv: &[OsString]) -> Failure {
    let mut arguments = argv.iter().enumerate().skip(1);
    let what = match arguments.find(|(_, word)| word.to_str().is_none()) {
        Some((number, word)) => {
            format!("argument {number} is not UTF-8: `{}`", word.as_encoded_bytes().escape_ascii())
        }
        None => "an argument is not UTF-8".to_owned(),
    };
    Failure::new(Exit::Usage, "usage", what).hint(
        "rgpu passes on text in UTF-8 only; a shell on the host can write other bytes: \
               rgpu exec -- sh -c 'PROGRAM \"$(printf \"\\351\")\"'",
    )
}

/// Prints `--help` and `--version`; turns any other message of clap into a usage error.
fn handle_clap_error(
    error: &clap::Error,
    argv: &[OsString],
    expanded: &[OsString],
) -> Result<Status> {
    use clap::error::ErrorKind;
    match error.kind() {
        ErrorKind::DisplayHelp => show_help(argv),
        ErrorKind::TooManyValues if help::asked_topic(argv).is_some() => show_help(argv),
        ErrorKind::DisplayVersion => {
            write_out(rendered(error, Terminal::detect().stdout_color).as_bytes());
            check_output_written().map(|()| 0)
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand if argv.len() <= 1 => {
            write_stderr(&next_steps());
            Ok(Exit::Usage as u8)
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            write_stderr(&rendered(error, Terminal::detect().stderr_color));
            Ok(Exit::Usage as u8)
        }
        ErrorKind::InvalidUtf8 => Err(not_utf8(argv)),
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
                // A mistyped flag is seldom a value, and after `--` it would be taken for a
                // command.
                let lines = hint.lines().map(|line| line.trim().trim_start_matches("tip: "));
                let lines: Vec<&str> = lines.filter(|l| !l.starts_with("to pass '")).collect();
                if lines.is_empty() {
                    continue;
                }
                let hint = lines.join("\n");
                failure = failure.hint(plain_hint(&hint, argv));
            }
            if error.kind() == ErrorKind::InvalidSubcommand
                && let Some(names) = subcommand_names(argv)
            {
                failure.hints.insert(0, format!("there are `{}`", names.join("`, `")));
            }
            if error.kind() == ErrorKind::InvalidSubcommand
                && let Some(hint) = help::nearest_page(argv)
            {
                failure.hints.insert(0, hint);
            }
            let preset = argv.len() != expanded.len();
            if preset {
                failure = failure.hint("flags that you did not type come from the preset");
            }
            // Hints for the most common first mistakes.
            if error.kind() == ErrorKind::UnknownArgument && typed("profile") && !preset {
                failure =
                    failure.hint("give a kernel with `--kernel NAME`, and a program after `--`");
            } else if error.kind() == ErrorKind::UnknownArgument
                && typed("exec")
                && argv.iter().take_while(|a| *a != "--").any(|a| a == "-c" || a == "-e")
            {
                failure = failure.hint("code: rgpu exec --lang py --code 'print(1)'").hint(
                    "write a command with such a flag after `--`: rgpu exec -- sh -c 'ls | wc -l'",
                );
            } else if error.kind() == ErrorKind::MissingRequiredArgument && typed("loop") {
                failure = failure.hint("`rgpu help loop` has a loop.toml to begin with");
            } else if typed("completions") {
                failure = failure.hint("rgpu completions bash > FILE; also zsh, fish, elvish");
            } else if error.kind() == ErrorKind::UnknownArgument && typed("exec") {
                failure =
                    failure.hint("write arguments and commands after `--`: rgpu exec -- ls -la");
            }
            Err(failure)
        }
    }
}
