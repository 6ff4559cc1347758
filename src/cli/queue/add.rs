//! `rgpu queue add`: adds a command or script to the queue of the project.

use std::ffi::OsString;
use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::cli::support::app::{App, Status};
use crate::cli::support::missing;
use rgpu_model::duration::duration;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_model::regular_file::{self, MAX_FILE_BYTES};
use rgpu_work::queue::{
    Dependency, NewCommand, NewEntry, QueueDocument, Resource, SnapshotMode, environment,
    interpreter_of,
};

/// A longer command is cut in lists.
const MAX_NAME_CHARS: usize = 60;

/// Add a command or a script
///
/// Give exactly one of: a command after `--`, `--file`, or `--stdin`. A script is kept byte for
/// byte, and runs from a file of its own. The command runs in the current folder, without standard
/// input, with PATH, HOME, LANG and the like as they are now, and no other variables than those
/// named with `--env`. Prints the entry's number.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(in crate::cli) struct AddArgs {
    /// The script to run
    #[arg(long, value_name = "FILE", conflicts_with_all = ["stdin", "command"])]
    pub file: Option<PathBuf>,

    /// Read the script from standard input
    #[arg(long, conflicts_with = "command")]
    pub stdin: bool,

    /// The script's language, if its first line (`#!`) and its name do not tell: sh, bash, zsh, py
    #[arg(long, value_name = "LANG")]
    pub lang: Option<String>,

    /// The name in lists [default: the command or the script's name]
    #[arg(long)]
    pub name: Option<String>,

    /// Run it after this entry has ended ok; `ID:any`: however it ended
    #[arg(long, value_name = "ID[:any]", value_delimiter = ',', value_parser = dependency)]
    pub after: Vec<Dependency>,

    /// Time limit of each attempt, e.g. 90s, 2h; then all its processes are ended
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub timeout: Option<Duration>,

    /// How many more attempts it gets if it fails, hits its time limit or is lost
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub retries: u32,

    /// A word to find it by
    #[arg(long, value_name = "WORD", value_delimiter = ',')]
    pub tag: Vec<String>,

    /// Entries with a higher one run first
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    pub priority: i64,

    /// An environment variable: with a value it is stored, without one it comes from the runner
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub env: Vec<String>,

    /// The GPUs that it needs for itself, as indices or UUIDs; without them it needs all
    #[arg(long, value_name = "GPU[,GPU]")]
    pub gpu: Option<String>,

    /// The remote that it needs for itself, or several (a,b), instead of this machine
    #[arg(long, short, value_name = "REMOTE")]
    pub remote: Option<String>,

    /// Keep the project's files as they are now: patch needs git, copy does not
    #[arg(long, value_name = "none|patch|copy", default_value = "none", value_parser = snapshot)]
    pub snapshot: SnapshotMode,

    /// The command with its arguments
    #[arg(last = true, value_name = "COMMAND", num_args = 1..)]
    pub command: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples:
  rgpu queue add -- rgpu profile --kernel vecadd --mode ncu
  rgpu queue add --file nightly.sh --timeout 2h --retries 1
  cat job.py | rgpu queue add --stdin --lang py --name job --after 12
  rgpu queue add --gpu 1 --snapshot patch -- python3 train.py";

fn dependency(text: &str) -> std::result::Result<Dependency, String> {
    let (number, any) = match text.split_once(':') {
        Some((number, "any")) => (number, true),
        Some((number, "ok")) => (number, false),
        Some(_) => return Err("write ID, ID:ok or ID:any".to_owned()),
        None => (text, false),
    };
    let entry = number.parse().map_err(|_| "write the number of an entry".to_owned())?;
    Ok(Dependency { entry, any })
}

fn snapshot(text: &str) -> std::result::Result<SnapshotMode, String> {
    match text {
        "none" => Ok(SnapshotMode::None),
        "patch" => Ok(SnapshotMode::Patch),
        "copy" => Ok(SnapshotMode::Copy),
        _ => Err("write none, patch or copy".to_owned()),
    }
}

pub(super) fn run(app: &App, args: &AddArgs) -> Result<Status> {
    let (command, default_name) = command(args)?;
    let mut env = environment::recorded(std::env::vars_os());
    if args.snapshot != SnapshotMode::None {
        // Runs belong to the project, not to a copy of its files.
        env.insert("RGPU_RUNS_DIR".into(), app.config.runs_dir.value.clone().into());
    }
    let mut env_from_runner = Vec::new();
    for variable in &args.env {
        let (name, value) =
            variable.split_once('=').map_or((variable.as_str(), None), |(n, v)| (n, Some(v)));
        if !is_variable(name) || variable.contains('\0') {
            return Err(refused(format!("`--env {variable}` does not name a variable"))
                .hint("write --env NAME=VALUE or --env NAME"));
        }
        match value {
            Some(value) => drop(env.insert(name.into(), value.into())),
            None => {
                env.remove(std::ffi::OsStr::new(name));
                env_from_runner.push(name.to_owned());
            }
        }
    }
    if args.name.as_ref().is_some_and(|name| name.trim().is_empty()) {
        return Err(refused("`--name` is empty").hint("without it, the command is the name"));
    }
    if let Some(tag) = args.tag.iter().find(|tag| !is_word(tag)) {
        return Err(refused(format!("`--tag {tag}` is not a word"))
            .hint("a tag is a word without blanks; commas separate several"));
    }
    let resource = Resource::parse(args.remote.as_deref(), args.gpu.as_deref())
        .map_err(|what| refused(what).hint("write --gpu 1, --gpu 0,1 or --remote h200"))?;
    let is_new = !super::has_queue(app);
    let new = NewEntry {
        name: args.name.clone().unwrap_or(default_name),
        command,
        cwd: app.cwd.clone(),
        project: super::project(app).to_owned(),
        env,
        env_from_runner,
        priority: args.priority,
        after: each_once(&args.after),
        resource,
        timeout: args.timeout,
        retries: args.retries,
        tags: args.tag.clone(),
        snapshot: args.snapshot,
    };
    let mut queue = super::open(app)?;
    let id = queue.add(&new)?;
    if let Some(above) = super::queue_above(app).filter(|_| is_new) {
        let (own, above) = (super::project(app).display(), above.display());
        app.print_note(&format!("this is a new queue, in `{own}`; `{above}` has one too"));
    }
    if app.global.json {
        app.print_json(&QueueDocument::for_entries(&queue, vec![queue.entry(id)?])?)?;
        return Ok(0);
    }
    app.print(&format!("{id}\n"));
    if queue.runner().is_none() {
        app.print_note(
            "the queue is not running; start it with `rgpu queue run` or `rgpu queue run --detach`",
        );
    }
    Ok(0)
}

fn refused(what: impl Into<String>) -> Failure {
    Failure::new(Exit::Usage, "usage", what)
}

/// Whether a shell would take it as the name of a variable.
fn is_variable(name: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    name.starts_with(is_letter) && name.chars().all(|c| is_letter(c) || c.is_ascii_digit())
}

fn is_word(tag: &str) -> bool {
    !tag.is_empty() && !tag.contains(|c: char| c.is_whitespace() || c.is_control())
}

/// Each entry once; of two different wishes, the one for an end that is ok includes the other.
fn each_once(after: &[Dependency]) -> Vec<Dependency> {
    let mut once: Vec<Dependency> = Vec::new();
    for dependency in after {
        match once.iter_mut().find(|known| known.entry == dependency.entry) {
            Some(known) => known.any &= dependency.any,
            None => once.push(*dependency),
        }
    }
    once
}

/// What is run, and what it is called without `--name`.
fn command(args: &AddArgs) -> Result<(NewCommand, String)> {
    let (bytes, name, extension) = match (&args.file, args.stdin) {
        (Some(file), _) => {
            let bytes = regular_file::read(file, MAX_FILE_BYTES).map_err(|e| {
                let failure = Failure::new(Exit::Config, "unreadable", "the script cannot be read");
                missing::file_or(file, &e, failure)
            })?;
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            (bytes, name, file.extension().and_then(|extension| extension.to_str()))
        }
        (None, true) => {
            let mut bytes = Vec::new();
            std::io::stdin().lock().read_to_end(&mut bytes).map_err(|e| {
                Failure::new(Exit::Config, "unreadable", "standard input cannot be read").cause(e)
            })?;
            (bytes, "stdin".to_owned(), None)
        }
        (None, false) => return argv(args),
    };
    if bytes.trim_ascii().is_empty() {
        return Err(refused(format!("the script `{name}` is empty"))
            .hint("rgpu queue add --file FILE, or give it on standard input with --stdin"));
    }
    let interpreter = interpreter_of(&bytes, args.lang.as_deref(), extension);
    let Some(interpreter) = interpreter else {
        let what = match &args.lang {
            Some(lang) => format!("there is no language `{lang}` for scripts"),
            None => format!("the interpreter of `{name}` is unknown"),
        };
        return Err(Failure::new(Exit::Usage, "unknown_language", what)
            .hint(
                "begin it with a line such as `#!/bin/bash`, or name it: --lang sh, bash, zsh, py",
            )
            .hint("rgpu itself runs Rust and CUDA: rgpu queue add -- rgpu exec FILE"));
    };
    Ok((NewCommand::Script { bytes, interpreter }, name))
}

fn argv(args: &AddArgs) -> Result<(NewCommand, String)> {
    if args.command.first().is_none_or(|program| program.is_empty()) {
        return Err(Failure::new(Exit::Usage, "usage", "nothing to run is given")
            .hint("rgpu queue add -- COMMAND, --file FILE, or --stdin --lang LANG"));
    }
    if args.lang.is_some() {
        return Err(Failure::new(Exit::Usage, "usage", "`--lang` is for scripts")
            .hint("give the script with --file or --stdin"));
    }
    let words: Vec<_> = args.command.iter().map(|word| word.to_string_lossy()).collect();
    let line = shlex::try_join(words.iter().map(AsRef::as_ref)).unwrap_or_default();
    let mut name: String = line.chars().take(MAX_NAME_CHARS).collect();
    if name.len() < line.len() {
        name.push('…');
    }
    Ok((NewCommand::Argv(args.command.clone()), name))
}
