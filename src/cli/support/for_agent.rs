//! What a command may read that a coding agent started.

use std::path::Path;

use super::app::App;
use super::kernel_folders::kernel_folders;
use rgpu_model::agent_files::{self, AgentFolders};
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_plan::kernel::{CALLS_FOLDER, is_private};
use rgpu_run::config::{Origin, project_of_agent};

/// Flags whose values are texts, which may look like paths.
const TEXT_FLAGS: &[&str] =
    &["--code", "--note", "--label", "--reason", "--compile-options", "--env"];

/// Lets a command that an agent started read files of its project, its runs and its call only, and
/// checks the words that name files. The process that reads the files checks them, whatever was
/// checked when its command line was written: the files may have changed since.
pub(in crate::cli) fn confine(app: &App) -> Result<()> {
    let Some(project) = project_of_agent(&app.config.project) else { return Ok(()) };
    let mut folders = AgentFolders { project, ..AgentFolders::default() };
    folders.own.push(app.cache.join(CALLS_FOLDER));
    let runs = app.cwd.join(&app.config.runs_dir.value);
    // Those in the project are its files, and what lies above them may be a link.
    if !runs.starts_with(&folders.project) && !runs.starts_with(&app.config.project) {
        folders.own.push(runs);
    }
    folders.trusted.extend(kernel_folders(app).shipped);
    if matches!(app.config.kernel_path.origin, Origin::User(_)) {
        folders.trusted.extend(app.config.kernel_path.value.iter().cloned());
    }
    agent_files::confine(folders);
    // The words of a program are checked where it is chosen which of its files are sent.
    let words = app.argv.iter().skip(1).take_while(|word| *word != "--");
    words.flat_map(|word| values(word)).try_for_each(|value| check(&app.cwd, value))
}

/// The parts of a word that may name a file.
fn values(word: &str) -> Vec<&str> {
    let flag = word.split('=').next().unwrap_or_default();
    if TEXT_FLAGS.contains(&flag) {
        return Vec::new();
    }
    let whole = (!word.starts_with('-')).then_some(word);
    let values = word.match_indices('=').map(|(at, _)| &word[at + 1..]);
    whole.into_iter().chain(values).filter(|value| !value.is_empty()).collect()
}

/// Refuses a word that names a file elsewhere, or a private one. Without an agent nothing is
/// refused.
pub(super) fn check(cwd: &Path, value: &str) -> Result<()> {
    // What does not exist names no file.
    let Ok(real) = cwd.join(value).canonicalize() else { return Ok(()) };
    let refused = |why: &str| {
        let what = format!("`{value}` {why}, and an agent started this command");
        Err(Failure::new(Exit::Usage, "wrong_argument", what)
            .hint("name a file of the project, or type the command yourself"))
    };
    if agent_files::check(&real).is_err() {
        return refused("is outside of the project");
    }
    if agent_files::inner(&real).is_some_and(|inner| is_private(&inner)) {
        return refused("looks like a private file");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_values_of_flags_may_name_files() {
        assert_eq!(values("in.py"), ["in.py"]);
        assert_eq!(values("--kernel=../k"), ["../k"]);
        assert_eq!(values("kernel_path=a=b"), ["kernel_path=a=b", "a=b", "b"]);
        assert_eq!(values("--quiet"), [""; 0]);
        assert_eq!(values("--code=x = '/etc'"), [""; 0]);
        assert_eq!(values("--env=PATH=/usr/bin"), [""; 0]);
    }
}
