//! The files of this machine that the words of a program name: one rule for `rgpu profile` and
//! `rgpu exec`.
//!
//! The program, if it is given with a path, and the script that Python runs are sent along if they
//! are files here. A path below a folder of the system names a file of the host. A file of a mount
//! is not sent again: it has its place in the working folder. A Python program brings the local
//! modules that it imports and the files that it opens by a literal name: they keep their places
//! relative to the current folder, and the program runs in that copy.

use std::path::{Component, Path, PathBuf};

use rgpu_protocol::plan::Arg;

use super::app::App;
use super::{for_agent, missing};
use rgpu_model::error::{Exit, Failure, Result, shell_word};
use rgpu_plan::exec::{
    MAX_MOUNT_BYTES, PythonFiles, PythonSearch, PythonStart, Snapshot, WORK_FOLDER,
};
use rgpu_plan::tool::{BundleFile, python_program_word};
use rgpu_run::store::{InputDigest, digest_file};

/// Folders of the system, whose programs a host has itself.
const SYSTEM_FOLDERS: [&str; 6] = ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/opt"];

/// The words of a program on its host, and what is sent for them.
#[derive(Clone, Debug, Default)]
pub(in crate::cli) struct ProgramFiles {
    /// Program and arguments.
    pub argv: Vec<Arg>,
    /// The files to send along.
    pub files: Vec<BundleFile>,
    /// The named files on this machine, sent or not.
    pub named: Vec<PathBuf>,
    /// What the user did not say.
    pub assumptions: Vec<String>,
    /// The program's working folder inside the job's folder; empty: the program needs none.
    pub cwd: String,
}

/// A program as it was typed, with what else decides which files it brings.
#[derive(Clone, Copy, Debug)]
pub(in crate::cli) struct TypedProgram<'a> {
    /// rgpu's command, for hints.
    pub command: &'a str,
    /// The program and its arguments.
    pub words: &'a [String],
    /// The variables of `--env`.
    pub env: &'a [(String, String)],
    /// What is sent besides.
    pub mounts: &'a Snapshot,
    /// The most bytes of the files that it brings: that of `--mount-limit`, if it was given.
    pub limit: Option<u64>,
    /// Whether it runs on this machine, where its files are.
    pub is_local: bool,
}

impl ProgramFiles {
    /// The digests of the named files.
    pub(in crate::cli) fn digests(&self) -> Result<Vec<InputDigest>> {
        self.named.iter().map(|path| digest(path)).collect()
    }
}

/// The files of a program's words.
///
/// # Errors
/// A relative path that names no file, or a Python file in the place of the program. For an agent: a
/// file outside of the project.
pub(in crate::cli) fn program_files(app: &App, typed: TypedProgram<'_>) -> Result<ProgramFiles> {
    let words: Vec<&str> = typed.words.iter().map(String::as_str).collect();
    let mut found = ProgramFiles {
        argv: words.iter().copied().map(Arg::from).collect(),
        ..ProgramFiles::default()
    };
    let Some(program) = words.first() else { return Ok(found) };
    let path_of_program = Some(0).filter(|_| program.contains('/'));
    let python_word = python_program_word(&words);
    for at in path_of_program.into_iter().chain(python_word) {
        let word = words[at];
        if let Some(place) = place_in_mounts(app, word, typed.mounts) {
            found.argv[at] = Arg::in_job(place);
            continue;
        }
        if SYSTEM_FOLDERS.iter().any(|folder| Path::new(word).starts_with(folder)) {
            continue;
        }
        let local_path = app.cwd.join(word);
        if !typed.is_local {
            for_agent::check(&app.cwd, word)?;
        }
        let is_python = python_word == Some(at);
        let is_module = at > 0 && words[at - 1] == "-m";
        if is_module || !local_path.is_file() {
            if is_module && is_python {
                add_python_files(app, &typed, at, PythonStart::Module(word), &mut found)?;
            }
            // The program starts in a folder of its own, so a relative path leads nowhere there.
            if is_module || Path::new(word).is_absolute() {
                continue;
            }
            return Err(missing::file(word)
                .hint("to run a program of the host, give its absolute path or only its name"));
        }
        found.named.push(local_path.clone());
        if is_python
            && add_python_files(app, &typed, at, PythonStart::Script(&local_path), &mut found)?
        {
            continue;
        }
        if typed.is_local {
            found.argv[at] = Arg::text(local_path.display().to_string());
            continue;
        }
        let name = local_path.file_name().unwrap_or_default().to_string_lossy();
        let sent = format!("app/{name}");
        found.files.push(BundleFile::copy(sent.clone(), &local_path).executable());
        found.argv[at] = Arg::in_job(sent);
        found
            .assumptions
            .push(format!("`{word}` is the file on this machine, which is sent to the host"));
    }
    check_is_program(app, typed.command, &words)?;
    Ok(found)
}

/// Adds the files beside a Python program. Returns whether there are any; then the script, the word
/// at `at`, is placed among them. On this machine the script itself runs where it is.
fn add_python_files(
    app: &App,
    typed: &TypedProgram<'_>,
    at: usize,
    start: PythonStart<'_>,
    found: &mut ProgramFiles,
) -> Result<bool> {
    // A mounted working folder is what the user chose to send.
    if typed.mounts.root.is_some() {
        return Ok(false);
    }
    let typed_variable = |word: &String| Some(word.strip_prefix("PYTHONPATH=")?.to_owned());
    let python_path = typed.words[..at].iter().rev().find_map(typed_variable);
    let python_path = python_path.or_else(|| python_path_of(typed.env));
    let files = python_files(app, start, &python_path.unwrap_or_default(), typed.limit)?;
    if files.is_empty() {
        return Ok(false);
    }
    let mounted = |path: &str| typed.mounts.files.iter().any(|file| file.path == path);
    let word = &typed.words[at];
    if !typed.is_local {
        found.assumptions.push(sent_beside(word, start, &files));
    }
    if let (Some(script), PythonStart::Script(path)) = (files.script, start) {
        found.argv[at] = if typed.is_local {
            Arg::text(path.display().to_string())
        } else {
            Arg::in_job(script)
        };
    }
    found.named.extend(files.modules);
    found.files.extend(files.snapshot.files.into_iter().filter(|file| !mounted(&file.path)));
    found.cwd = WORK_FOLDER.to_owned();
    Ok(true)
}

/// The value of `PYTHONPATH` among variables.
pub(in crate::cli) fn python_path_of(env: &[(String, String)]) -> Option<String> {
    env.iter().rev().find(|(name, _)| name == "PYTHONPATH").map(|(_, value)| value.clone())
}

/// The files beside a Python program that starts in the current folder. Tells which of those that it
/// names are not sent. `limit`: the most bytes, if the user chose it.
pub(in crate::cli) fn python_files(
    app: &App,
    start: PythonStart<'_>,
    python_path: &str,
    limit: Option<u64>,
) -> Result<PythonFiles> {
    let limit = limit.unwrap_or(MAX_MOUNT_BYTES);
    let home = std::env::home_dir();
    let search = PythonSearch { cwd: &app.cwd, python_path, home: home.as_deref(), limit };
    let files = PythonFiles::find(start, search)?;
    note_left_out(app, &files.snapshot);
    Ok(files)
}

/// What is sent for a Python program, as an assumption.
pub(in crate::cli) fn sent_beside(
    word: &str,
    start: PythonStart<'_>,
    files: &PythonFiles,
) -> String {
    let summary = files.summary();
    match start {
        PythonStart::Script(_) => format!("`{word}` and {summary} beside it are sent to the host"),
        PythonStart::Module(_) => format!("{summary} of `{word}` are sent to the host"),
    }
}

/// Tells what of a folder is not sent.
pub(in crate::cli) fn note_left_out(app: &App, contents: &Snapshot) {
    for skipped in contents.left_out.iter().take(5) {
        app.print_note(&format!("not sent: `{}`: {}", skipped.path, skipped.why));
    }
    if let Some(more) = contents.left_out.len().checked_sub(5).filter(|n| *n > 0) {
        app.print_note(&format!("not sent: {more} more like these"));
    }
}

/// The place in the job's folder of a file that the mounts contain: by the path that it has in the
/// working folder, else by its path here.
fn place_in_mounts(app: &App, word: &str, mounts: &Snapshot) -> Option<String> {
    let mut place = WORK_FOLDER.to_owned();
    let is_inner = Path::new(word).components().all(|part| match part {
        Component::Normal(name) => {
            place.push('/');
            place.push_str(&name.to_string_lossy());
            true
        }
        Component::CurDir => true,
        _ => false,
    });
    let has = |place: &String| mounts.files.iter().any(|file| file.path == *place);
    let by_name = Some(place).filter(|place| is_inner && has(place));
    by_name.or_else(|| mounts.place_of(&app.cwd.join(word)).filter(has))
}

/// Refuses a Python file in the place of the program, which the host would not start.
fn check_is_program(app: &App, command: &str, words: &[&str]) -> Result<()> {
    let Some(program) = words.first().filter(|word| word.ends_with(".py")) else { return Ok(()) };
    let Ok(metadata) = app.cwd.join(program).metadata() else { return Ok(()) };
    let is_executable = std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o111;
    if program.contains('/') && is_executable != 0 {
        return Ok(());
    }
    let line: Vec<_> = words.iter().map(shell_word).collect();
    let what = format!("`{program}` is a Python file, which Python runs");
    Err(Failure::new(Exit::Usage, "usage", what)
        .hint(format!("rgpu {command} -- python3 {}", line.join(" "))))
}

/// The digest of a file that is sent.
pub(in crate::cli) fn digest(path: &Path) -> Result<InputDigest> {
    digest_file(path).map_err(|e| {
        Failure::new(Exit::Config, "missing_source", "a file of the kernel cannot be read")
            .file(path.display())
            .cause(e)
    })
}
