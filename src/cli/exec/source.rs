//! What the command line asks to execute, read from files and standard input once.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Read};
use std::os::fd::AsFd;

use super::{ExecArgs, pull};
use crate::cli::app::App;
use crate::cli::missing;
use crate::error::{Exit, Failure, Result};
use crate::exec::{
    ExecError, MAX_MOUNT_BYTES, Mount, Package, Snapshot, Snippet, SnippetInput, WORK_FOLDER,
    read_env_file, snapshot,
};
use crate::tool::Program;
use rgpu_protocol::plan::Stdin;
use rustix::fs::FileType;

/// Everything that is here, and nothing of the host yet.
pub(super) struct ExecSource {
    /// The file or code; `None`: a bare command.
    pub(super) snippet: Option<Snippet>,
    /// What cargo compiles of it.
    pub(super) package: Option<Package>,
    /// What the mounts hold.
    pub(super) mounts: Snapshot,
    /// Variables whose values nobody may see.
    pub(super) secrets: BTreeMap<String, String>,
    /// Whether standard input is the program's.
    pub(super) stdin: bool,
}

impl ExecSource {
    /// Reads all of it.
    ///
    /// # Errors
    /// A usage error unless it is exactly one of file, code, standard input and command; files
    /// that cannot be read or understood.
    pub(super) fn read(app: &App, args: &ExecArgs) -> Result<Self> {
        let input = match (&args.file, &args.code) {
            (Some(file), _) if file == "-" => Some(SnippetInput::Stdin(standard_input()?)),
            (Some(file), _) => Some(SnippetInput::File(file.into())),
            (None, Some(code)) => Some(SnippetInput::Code(code.clone())),
            (None, None) if args.command.is_empty() => {
                return Err(Failure::new(Exit::Usage, "usage", "nothing to execute")
                    .hint("a file: rgpu exec snippet.py")
                    .hint("a command, after `--`: rgpu exec -- nvidia-smi -L")
                    .hint("code: rgpu exec --lang py --code 'print(1)', or - for standard input"));
            }
            (None, None) => None,
        };
        if input.is_none() && args.lang.is_some() {
            return Err(Failure::new(
                Exit::Usage,
                "usage",
                "`--lang` means nothing for a bare command",
            )
            .hint("with code: rgpu exec --lang py --code 'print(1)'"));
        }
        for pattern in &args.pull {
            pull::check(pattern)?;
        }
        let stdin = !matches!(input, Some(SnippetInput::Stdin(_)));
        let mut snippet = None;
        if let Some(input) = input {
            let read = Snippet::read(input, args.lang.as_deref(), &app.cwd);
            snippet = Some(read.map_err(|error| bare_command(error, args))?);
        }
        let package = match &snippet {
            Some(snippet) => snippet.language.package(snippet)?,
            None => None,
        };
        let mut secrets = BTreeMap::new();
        for file in &args.env_file {
            secrets.extend(read_env_file(&app.cwd.join(file))?);
        }
        Ok(Self { snippet, package, mounts: mounts(app, args)?, secrets, stdin })
    }

    /// What the program reads on standard input.
    pub(super) fn stdin(&self, detach: bool) -> Stdin {
        if self.has_input(detach) { Stdin::Client } else { Stdin::Null }
    }

    /// Whether there is anything to send to it: not where nobody will be there to do so, nor where
    /// ours is the null device, whose end would be a request of its own.
    pub(super) fn has_input(&self, detach: bool) -> bool {
        self.stdin && !detach && !is_null(rustix::stdio::stdin())
    }

    /// Says what a program that is let go does not get: nobody will be there to send it our input. A
    /// pipe may be one that nobody writes to; a file's bytes are surely meant.
    ///
    /// # Errors
    /// A usage error where standard input is a file with bytes left in it.
    pub(super) fn let_go(&self, app: &App) -> Result<()> {
        if !self.stdin {
            return Ok(());
        }
        match unread(rustix::stdio::stdin()) {
            SourceInput::Nothing => Ok(()),
            SourceInput::Perhaps => {
                app.say("warning: standard input is not sent with `--detach`");
                Ok(())
            }
            SourceInput::Bytes => Err(Failure::new(
                Exit::Usage,
                "usage",
                "with `--detach` a program has no standard input, and here it is a file",
            )
            .hint("send the file along and read it there: `--mount FILE`")
            .hint("or leave it out: `< /dev/null`")),
        }
    }

    /// Whether there is nothing in it to run.
    pub(super) fn is_library(&self) -> bool {
        self.snippet.as_ref().is_some_and(|snippet| snippet.language.is_library(snippet))
    }

    /// Whether the program depends on the host.
    pub(super) fn asks(&self, args: &ExecArgs) -> bool {
        args.gpus.is_some_and(|n| n > 0)
            || self.snippet.as_ref().is_some_and(|snippet| snippet.language.asks())
    }

    /// What the run is called.
    pub(super) fn name(&self, args: &ExecArgs) -> String {
        match &self.snippet {
            Some(snippet) => snippet.name.clone(),
            None => {
                args.command.first().map_or("", |c| c.rsplit('/').next().unwrap_or(c)).to_owned()
            }
        }
    }

    /// A bare command as a program.
    pub(super) fn command(&self, args: &ExecArgs) -> Program {
        let here = !self.mounts.files.is_empty() || !args.pull.is_empty();
        Program {
            name: self.name(args),
            argv: args.command.iter().cloned().map(Into::into).collect(),
            // Without a mount or a pull, what it leaves there is nobody's business.
            cwd: if here { WORK_FOLDER.to_owned() } else { String::new() },
            ..Program::default()
        }
    }
}

/// With a word on commands, where the file that is not there is named as a command would be.
fn bare_command(error: ExecError, args: &ExecArgs) -> Failure {
    let missing = matches!(&error, ExecError::Unreadable { .. });
    let not_there = matches!(&error, ExecError::Unreadable { source, .. }
        if source.kind() == std::io::ErrorKind::NotFound);
    let mut failure = Failure::from(error);
    if let (true, Some(file)) = (not_there, &args.file) {
        failure = missing::hinted(failure, file);
    }
    match &args.file {
        Some(word) if missing && !word.contains(['.', '/']) && args.lang.is_none() => {
            let rest = args.command.iter().map(String::as_str);
            let words: Vec<&str> = std::iter::once(word.as_str()).chain(rest).collect();
            let line = shlex::try_join(words).unwrap_or_else(|_| word.clone());
            failure.hint(format!("a command stands after `--`: rgpu exec -- {line}"))
        }
        _ => failure,
    }
}

fn mounts(app: &App, args: &ExecArgs) -> Result<Snapshot> {
    if args.mount.is_empty() {
        return Ok(Snapshot::default());
    }
    let mut mounts = Vec::new();
    for (at, text) in args.mount.iter().enumerate() {
        mounts.push(Mount::parse(text, at == 0, &app.cwd)?);
    }
    let taken = snapshot(&mounts, args.mount_limit.unwrap_or(MAX_MOUNT_BYTES))?;
    for left in taken.left_out.iter().take(5) {
        app.say(&format!("not sent: `{}`: {}", left.path, left.why));
    }
    if let Some(more) = taken.left_out.len().checked_sub(5).filter(|n| *n > 0) {
        app.say(&format!("not sent: {more} more like these"));
    }
    if taken.files.is_empty() {
        let text = args.mount.join(" ");
        return Err(ExecError::Mount {
            text,
            problem: "there is nothing in it to send".to_owned(),
        }
        .into());
    }
    Ok(taken)
}

/// All of standard input.
fn standard_input() -> Result<Vec<u8>> {
    let mut input = std::io::stdin().lock();
    if input.is_terminal() {
        return Err(Failure::new(Exit::Usage, "usage", "standard input is a terminal")
            .hint("pipe the code into it: cat x.py | rgpu exec -"));
    }
    let mut bytes = Vec::new();
    input.read_to_end(&mut bytes).map_err(|e| {
        Failure::new(Exit::Config, "missing_source", "standard input cannot be read").cause(e)
    })?;
    Ok(bytes)
}

/// What there is to read.
enum SourceInput {
    /// Nothing that anybody would miss.
    Nothing,
    /// Whatever its writer writes.
    Perhaps,
    /// Bytes of a file.
    Bytes,
}

fn unread(file: impl AsFd) -> SourceInput {
    let Ok(stat) = rustix::fs::fstat(&file) else { return SourceInput::Nothing };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Fifo | FileType::Socket => SourceInput::Perhaps,
        FileType::RegularFile => {
            let read = rustix::fs::tell(&file).unwrap_or(0);
            let bytes = u64::try_from(stat.st_size).unwrap_or(0);
            if bytes > read { SourceInput::Bytes } else { SourceInput::Nothing }
        }
        _ => SourceInput::Nothing,
    }
}

/// Whether it is the null device.
fn is_null(file: impl AsFd) -> bool {
    rustix::fs::fstat(file).is_ok_and(|stat| {
        FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice
            && stat.st_rdev == rustix::fs::makedev(1, 3)
    })
}
