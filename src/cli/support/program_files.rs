//! The files of this machine that the words of a program name: one rule for `rgpu profile` and
//! `rgpu exec`.
//!
//! The program, if it is given with a path, and the script that Python runs are sent along if they
//! are files here. A path below a folder of the system names a file of the host. A file of a mount
//! is not sent again: it has its place in the working folder.

use std::path::{Component, Path, PathBuf};

use rgpu_protocol::plan::Arg;

use super::app::App;
use super::{for_agent, missing};
use rgpu_model::error::{Exit, Failure, Result, shell_word};
use rgpu_plan::exec::{Snapshot, WORK_FOLDER};
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
}

impl ProgramFiles {
    /// The digests of the named files.
    pub(in crate::cli) fn digests(&self) -> Result<Vec<InputDigest>> {
        self.named.iter().map(|path| digest(path)).collect()
    }
}

/// The files of a program's words. `mounts` are sent besides; `is_local`: the program runs on this
/// machine, where its files are. `command` is rgpu's command, for hints.
///
/// # Errors
/// A relative path that names no file, or a Python file in the place of the program. For an agent: a
/// file outside of the project.
pub(in crate::cli) fn program_files(
    app: &App,
    command: &str,
    words: &[String],
    mounts: &Snapshot,
    is_local: bool,
) -> Result<ProgramFiles> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut found = ProgramFiles {
        argv: words.iter().copied().map(Arg::from).collect(),
        ..ProgramFiles::default()
    };
    let Some(program) = words.first() else { return Ok(found) };
    let path_of_program = Some(0).filter(|_| program.contains('/'));
    for at in path_of_program.into_iter().chain(python_program_word(&words)) {
        let word = words[at];
        if let Some(place) = place_in_mounts(app, word, mounts) {
            found.argv[at] = Arg::in_job(place);
            continue;
        }
        if SYSTEM_FOLDERS.iter().any(|folder| Path::new(word).starts_with(folder)) {
            continue;
        }
        let local_path = app.cwd.join(word);
        if !is_local {
            for_agent::check(&app.cwd, word)?;
        }
        if !local_path.is_file() {
            // The program starts in a folder of its own, so a relative path leads nowhere there.
            let is_module = at > 0 && words[at - 1] == "-m";
            if is_module || Path::new(word).is_absolute() {
                continue;
            }
            return Err(missing::file(word)
                .hint("to run a program of the host, give its absolute path or only its name"));
        }
        found.named.push(local_path.clone());
        if is_local {
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
    check_is_program(app, command, &words)?;
    Ok(found)
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
