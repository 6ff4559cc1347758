//! The program of `[program]` in the project's rgpu.toml, where the user types none.

use std::path::Path;

use super::app::App;
use super::file_args::FileArgs;
use rgpu_model::error::shell_word;
use rgpu_plan::tool::python_program_word;
use rgpu_run::config::ProjectProgram;

/// The program in words where it needs the user's consent.
pub(in crate::cli) const FOREIGN: &str = "the program of the project's rgpu.toml";

/// Takes the project's program, with the folder to send and its variables, if `words` is empty. A
/// folder and variables that were typed stay. Returns what was assumed; `None`: the project
/// describes no program, or the user typed one.
pub(in crate::cli) fn take(
    app: &App,
    words: &mut Vec<String>,
    files: &mut FileArgs,
) -> Option<String> {
    let program = app.config.program.as_ref().filter(|_| words.is_empty())?;
    *words = placed_words(program, &app.cwd);
    if files.mount.is_empty() {
        files.mount.extend(program.folder.iter().map(|folder| folder.display().to_string()));
    }
    let is_typed = |name: &String| files.env.iter().any(|(typed, _)| typed == name);
    let own: Vec<(String, String)> =
        program.environment.clone().into_iter().filter(|(name, _)| !is_typed(name)).collect();
    files.env.extend(own);
    let command = program.command.iter().map(shell_word).collect::<Vec<_>>().join(" ");
    Some(format!("`{command}` is run, the program of {}", app.short(&program.file)))
}

/// The words of the project's program. Its own file and its script are named by their whole paths
/// if the user stands in another folder.
fn placed_words(program: &ProjectProgram, cwd: &Path) -> Vec<String> {
    let mut words = program.command.clone();
    let base = program.base();
    if base == cwd {
        return words;
    }
    let script = python_program_word(&words.iter().map(String::as_str).collect::<Vec<_>>());
    let own_file = words.first().is_some_and(|word| word.contains('/')).then_some(0);
    for at in own_file.into_iter().chain(script) {
        let path = base.join(&words[at]);
        if path.is_file() {
            words[at] = path.display().to_string();
        }
    }
    words
}
