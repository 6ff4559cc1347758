//! Reads the source that the command line names, from files and standard input, once.

#![expect(clippy::disallowed_methods, reason = "the mode of a program that the user named")]

use std::collections::BTreeMap;
use std::io::{IsTerminal, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::ExecArgs;
use crate::cli::support::app::App;
use crate::cli::support::missing;
use crate::cli::support::program_files::{
    ProgramFiles, TypedProgram, program_files, python_files, python_path_of, sent_beside,
};
use crate::cli::support::{pulled_files, session};
use rgpu_model::error::{Exit, Failure, Result, shell_word};
use rgpu_plan::exec::{
    ExecError, Package, PythonStart, Snapshot, Snippet, SnippetInput, WORK_FOLDER, read_env_file,
};
use rgpu_plan::tool::{GpuSelection, Program};
use rgpu_protocol::plan::Stdin;
use rustix::fs::FileType;

/// Everything read on this machine, before the host is asked.
pub(super) struct ExecSource {
    /// The file or code; `None` for a bare command.
    pub(super) snippet: Option<Snippet>,
    /// The package that cargo compiles from it.
    pub(super) package: Option<Package>,
    /// The files of the mounts.
    pub(super) mounts: Snapshot,
    /// Variables whose values must not appear anywhere.
    pub(super) secrets: BTreeMap<String, String>,
    /// Whether standard input is free for the program.
    pub(super) stdin: bool,
    /// The words of a bare command, with the files that they name.
    pub(super) command_files: ProgramFiles,
}

impl ExecSource {
    /// Reads all of it.
    ///
    /// # Errors
    /// A usage error unless exactly one of file, code, standard input and command is given. Files
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
            return Err(Failure::new(Exit::Usage, "usage", "`--lang` has no effect for a command")
                .hint("with code: rgpu exec --lang py --code 'print(1)'"));
        }
        for pattern in &args.files.pull {
            pulled_files::check(pattern)?;
        }
        let stdin = !matches!(input, Some(SnippetInput::Stdin(_)));
        let mut snippet = None;
        if let Some(input) = input {
            let read = Snippet::read(input, args.lang.as_deref(), &app.cwd);
            snippet = Some(read.map_err(|error| with_command_hint(error, args))?);
        }
        let package = match &snippet {
            Some(snippet) => snippet.language.package(snippet)?,
            None => None,
        };
        let mut secrets = BTreeMap::new();
        for file in &args.env_file {
            let path = app.cwd.join(file);
            secrets.extend(read_env_file(&path)?);
            warn_if_others_can_read(app, &path);
        }
        let mut mounts = args.files.mounts(app)?;
        let command_files = if let Some(snippet) = &snippet {
            let mut found = ProgramFiles::default();
            let of_env = &snippet.script_env.assumptions;
            if args.files.mount.is_empty() {
                (mounts, found.assumptions) = files_beside(app, args, snippet)?;
            }
            found.assumptions.extend(of_env.iter().cloned());
            found
        } else {
            let spec = session::spec(app, args.place.remote.as_deref());
            let is_local = spec.is_ok_and(|spec| session::is_local(&spec));
            let typed = TypedProgram {
                command: "exec",
                words: &args.command,
                env: &args.files.env,
                mounts: &mounts,
                limit: args.files.mount_limit,
                is_local,
            };
            program_files(app, typed)?
        };
        Ok(Self { snippet, package, mounts, secrets, stdin, command_files })
    }

    /// Where the program's standard input comes from.
    pub(super) fn stdin(&self, detach: bool) -> Stdin {
        if self.has_input(detach) { Stdin::Client } else { Stdin::Null }
    }

    /// Whether our standard input is sent to the program. Not when detached, since nobody is there
    /// to send it, and not from the null device, whose end would cost a request.
    pub(super) fn has_input(&self, detach: bool) -> bool {
        self.stdin && !detach && !is_null(rustix::stdio::stdin())
    }

    /// Checks standard input for `--detach`, where nobody is there to send it. A pipe may be empty,
    /// so it gets a warning; bytes in a file are surely meant.
    pub(super) fn check_detached_input(&self, app: &App) -> Result<()> {
        if !self.stdin {
            return Ok(());
        }
        match pending_input(rustix::stdio::stdin()) {
            SourceInput::Nothing => Ok(()),
            SourceInput::Perhaps => {
                app.print_note("warning: standard input is not sent with `--detach`");
                Ok(())
            }
            SourceInput::Bytes => Err(Failure::new(
                Exit::Usage,
                "usage",
                "with `--detach` a program has no standard input, but here standard input is a \
                 file",
            )
            .hint("send the file and read it there: `--mount FILE`")
            .hint("or leave it out: `< /dev/null`")),
        }
    }

    /// Whether the source has kernels but no program to run.
    pub(super) fn is_library(&self) -> bool {
        self.snippet.as_ref().is_some_and(|snippet| snippet.language.is_library(snippet))
    }

    /// Whether the program depends on facts about the host.
    pub(super) fn needs_facts(&self, args: &ExecArgs) -> bool {
        args.gpus.as_ref().is_some_and(|gpus| *gpus != GpuSelection::Number(0))
            || self.snippet.as_ref().is_some_and(|snippet| snippet.language.needs_facts())
    }

    /// The name of the run: that of the snippet, file or command.
    pub(super) fn name(&self, args: &ExecArgs) -> String {
        match &self.snippet {
            Some(snippet) => snippet.name.clone(),
            None => {
                args.command.first().map_or("", |c| c.rsplit('/').next().unwrap_or(c)).to_owned()
            }
        }
    }

    /// The bare command as a program.
    pub(super) fn command(&self, args: &ExecArgs) -> Program {
        let uses_work_folder = !self.mounts.files.is_empty() || !args.files.pull.is_empty();
        Program {
            name: self.name(args),
            argv: self.command_files.argv.clone(),
            files: self.command_files.files.clone(),
            // Without a mount or a pull, the files it leaves there are not needed.
            cwd: if uses_work_folder {
                WORK_FOLDER.to_owned()
            } else {
                self.command_files.cwd.clone()
            },
            ..Program::default()
        }
    }
}

/// Adds a hint if the missing file has a name like a command.
fn with_command_hint(error: ExecError, args: &ExecArgs) -> Failure {
    let unreadable = matches!(&error, ExecError::Unreadable { .. });
    let not_there = matches!(&error, ExecError::Unreadable { source, .. }
        if source.kind() == std::io::ErrorKind::NotFound);
    let mut failure = Failure::from(error);
    if let (true, Some(file)) = (not_there, &args.file) {
        failure = missing::hinted(failure, file);
    }
    match &args.file {
        Some(word) if not_there && args.command.is_empty() && is_shell_line(word) => {
            failure.hint(shell_hint(word))
        }
        Some(word) if unreadable && !word.contains(['.', '/']) && args.lang.is_none() => {
            let rest = args.command.iter().map(String::as_str);
            let words: Vec<&str> = std::iter::once(word.as_str()).chain(rest).collect();
            let line = shlex::try_join(words).unwrap_or_else(|_| word.clone());
            failure.hint(format!("write a command after `--`: rgpu exec -- {line}"))
        }
        _ => failure,
    }
}

/// Whether a word is a whole line for a shell: `echo hi`, `a; b`. A file (`my kernel.py`) may have
/// spaces, too.
pub(super) fn is_shell_line(word: &str) -> bool {
    let is_file_name = std::path::Path::new(word).extension().is_some();
    let has_space = word.contains(char::is_whitespace) && !is_file_name;
    has_space || word.contains(|c: char| "|&;<>()$`\"'*".contains(c))
}

/// What to type for a line that only a shell understands.
pub(super) fn shell_hint(line: &str) -> String {
    format!("commands run without a shell: rgpu exec -- sh -c {}", shell_word(line))
}

/// The files beside a Python file, as a mount, and what is told of them.
fn files_beside(app: &App, args: &ExecArgs, snippet: &Snippet) -> Result<(Snapshot, Vec<String>)> {
    let path = snippet.absolute_path.as_deref().filter(|_| snippet.language.name() == "Python");
    let Some(path) = path else { return Ok((Snapshot::default(), Vec::new())) };
    let start = PythonStart::Script(path);
    let python_path = python_path_of(&args.files.env).unwrap_or_default();
    let files = python_files(app, start, &python_path, args.files.mount_limit)?;
    if files.is_empty() {
        return Ok((Snapshot::default(), Vec::new()));
    }
    let told = sent_beside(&snippet.name, start, &files);
    Ok((files.snapshot, vec![told]))
}

/// Reads standard input to its end.
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

/// Whether standard input has bytes to read.
enum SourceInput {
    /// Standard input has nothing that the program could need.
    Nothing,
    /// Unknown: it depends on the writer.
    Perhaps,
    /// Unread bytes of a file.
    Bytes,
}

fn pending_input(file: impl AsFd) -> SourceInput {
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

/// A file of variables may hold no secret, so it is not refused.
fn warn_if_others_can_read(app: &App, path: &Path) {
    let mode = std::fs::metadata(path).map_or(0, |metadata| metadata.permissions().mode());
    if mode & 0o077 != 0 {
        let shown = app.short(path);
        app.print_note(&format!(
            "warning: `{shown}` can be read by others (mode {:o}); if it holds secrets: chmod 600 {}",
            mode & 0o7777,
            shell_word(&shown)
        ));
    }
}
