//! The start of a submission: the task's own template.

use std::path::{Path, PathBuf};

use super::super::super::{KernelError, KernelFolders, OwnFiles};
use super::task::{Task, TaskLanguage};
use super::{TASK_FILE, task_in, text_at, usual_submission};
use rgpu_model::error::shell_word;

/// The start of a submission to a task without a template.
const STARTER: &str = "from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    \"\"\"Returns what `ref_kernel` of the task's reference.py returns for the same data.\"\"\"
    raise NotImplementedError
";

/// The template of the problem at a path for the submission `file`, else for the usual one. `None`:
/// it is no GPU MODE problem.
pub(in super::super) fn template(
    problem: &Path,
    file: Option<&Path>,
) -> Option<Result<(PathBuf, String), KernelError>> {
    let extension = problem.extension().and_then(|extension| extension.to_str());
    let task_file = match extension {
        _ if problem.is_dir() => task_in(problem)?,
        Some("yml" | "yaml") => problem.to_owned(),
        _ => return None,
    };
    let task = Task::read(&task_file).transpose()?;
    Some(task.and_then(|task| {
        let file = file.map_or_else(|| usual_submission(&task), Path::to_owned);
        text_for(&task, &file).map(|text| (file, text))
    }))
}

/// The text that a submission of this name begins with. Of several templates for its extension,
/// that of plain Python or CUDA.
fn text_for(task: &Task, file: &Path) -> Result<String, KernelError> {
    let fits = |(_, source): &&(String, String)| Path::new(source).extension() == file.extension();
    let fitting = || task.templates.iter().filter(fits);
    let is_plain = |(language, _): &&(String, String)| ["Python", "CUDA"].contains(&&**language);
    let chosen = fitting().find(is_plain).or_else(|| fitting().next());
    let path = chosen.map(|(_, source)| task.folder().join(source));
    // A problem that was copied alone lacks what its set shares.
    if let Some(path) = path.filter(|path| path.is_file()) {
        // It is copied into a file that is sent, so that it may be none of the user's other files.
        OwnFiles::find(task.folder(), &KernelFolders::default())
            .check_task_file(&path, TASK_FILE)?;
        return text_at(&path);
    }
    let is_python = file.extension().is_some_and(|extension| extension == "py");
    if is_python && task.language == TaskLanguage::Python {
        return Ok(STARTER.to_owned());
    }
    Err(KernelError::Format {
        file: task.file.clone(),
        problem: format!("it has no template for `{}`", file.display()),
        hint: match task.language {
            TaskLanguage::Python => "name a file that ends with .py".to_owned(),
            TaskLanguage::Cuda => {
                let example = usual_submission(task);
                format!("write the submission yourself: {}", shell_word(example.display()))
            }
        },
    })
}
