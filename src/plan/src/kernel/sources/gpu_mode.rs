//! GPU MODE's problems: a folder with `task.yml`, the task's functions and a submission.
//!
//! The task's `tests` and `benchmarks` become cases. `generate_input` makes the data of a case,
//! `custom_kernel` of the submission is the kernel, and `check_implementation` judges its result,
//! by a tolerance of its own. All files stand in one folder on the host, under the names that
//! task.yml gives them.

mod cuda;
mod task;
mod template;

pub(super) use cuda::PROGRAM_FORMAT;
pub(super) use template::template;

use std::path::{Path, PathBuf};

use rgpu_case::{BoardRules, RankingBy, RunnerJob, Tolerance};

use super::super::error::TASK_FILE;
use super::super::spec::{
    DeclaredWork, EntryPoint, InputsSpec, NamedCase, PythonFunction, ReferenceSpec, Sizes, TaskSpec,
};
use super::super::{
    KernelError, KernelFolders, KernelSpec, OwnFiles, ProfileMode, name_of, python,
};
use super::{Found, FoundKernel, KernelSource, text_of};
use rgpu_model::agent_files;
use rgpu_model::error::shell_word;
use rgpu_model::ownership::may_decide;
use rgpu_model::regular_file::MAX_SOURCE_BYTES;
use task::{SUBMISSION, Task, TaskCase, TaskLanguage, read_yaml, wrong};

/// A GPU MODE problem or submission.
pub(super) const GPU_MODE: KernelSource = KernelSource { name: "a GPU MODE problem", read };

/// The names that a task's description has.
const TASK_FILES: [&str; 2] = ["task.yml", "task.yaml"];

/// The function of a submission that is the kernel.
const ENTRY: &str = "custom_kernel";

/// The function of a task that makes what is right.
const REFERENCE: &str = "ref_kernel";

/// The module of functions that all tasks of a set share.
const UTILS: &str = "utils.py";

/// How many folders above a submission may hold its task.
const MAX_FOLDERS_ABOVE: usize = 3;

/// More problems in a set are a mistake.
const MAX_PROBLEMS: usize = 500;

/// The word after the comment sign of a submission's header.
const HEADER: &str = "!POPCORN";

fn read(path: &Path) -> Option<Result<Found, KernelError>> {
    let found = match path.extension().and_then(|extension| extension.to_str()) {
        _ if path.is_dir() => {
            let file = task_in(path)?;
            problem(&file, None)
        }
        Some("yml" | "yaml") => problem(path, None),
        Some("py" | "cu" | "cuh" | "cpp") => submission(path),
        _ => return None,
    };
    match found {
        Ok(Some(found)) => Some(Ok(found)),
        Ok(None) => None,
        Err(error) => Some(Err(error)),
    }
}

/// The task.yml in a folder.
fn task_in(folder: &Path) -> Option<PathBuf> {
    TASK_FILES.iter().map(|name| folder.join(name)).find(|file| file.is_file())
}

/// A submission, with the task beside it or in a folder above it.
fn submission(path: &Path) -> Result<Option<Found>, KernelError> {
    let Some(text) = text_of(path, &["py", "cu", "cuh", "cpp"]) else { return Ok(None) };
    let board = board_of(&text);
    let is_python = path.extension().is_some_and(|extension| extension == "py");
    let defines_entry = is_python && python::definition(&text, ENTRY).is_some();
    let in_cuda = cuda::defines_entry(path, &text);
    if board.is_none() && !defines_entry && !in_cuda {
        return Ok(None);
    }
    let start = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let folders = start.ancestors().skip(1).take(MAX_FOLDERS_ABOVE + 1);
    let own_folder = start.parent().unwrap_or(Path::new(""));
    // Anyone may put a task into `/tmp`.
    let mut tasks = folders.filter_map(task_in).filter(|file| may_decide(file, own_folder));
    if let Some(file) = tasks.next() {
        // A shorter path reads better in messages.
        let file = std::env::current_dir()
            .ok()
            .and_then(|here| file.strip_prefix(here).map(Path::to_owned).ok())
            .unwrap_or(file);
        return problem(&file, Some(path));
    }
    if (board.is_none() && in_cuda) || (is_python && python::has_main(&text)) {
        return Ok(None);
    }
    // A file with its own `generate_input`, or with one in a reference.py beside it, is complete.
    let beside = text_of(&path.with_file_name("reference.py"), &["py"]).unwrap_or_default();
    let has_inputs = |text: &str| python::definition(text, "generate_input").is_some();
    if is_python && defines_entry && (has_inputs(&text) || has_inputs(&beside)) {
        return Ok(None);
    }
    let of_board = board.map(|board| format!(" to the leaderboard `{board}`")).unwrap_or_default();
    Err(KernelError::Format {
        file: path.to_owned(),
        problem: format!(
            "it is a GPU MODE submission{of_board}, but there is no task.yml beside it or above it"
        ),
        hint: format!(
            "put it into the folder of its problem, with task.yml, reference.py and what they \
             name; or run it as a program: `rgpu profile -- python3 {}`",
            shell_word(path.display())
        ),
    })
}

/// The leaderboard in a submission's header: a comment line such as `#!POPCORN leaderboard NAME`.
fn board_of(text: &str) -> Option<&str> {
    text.lines().take(100).find_map(|line| {
        let rest = line.trim_start().trim_start_matches(['#', '/']).strip_prefix(HEADER)?;
        let mut words = rest.split_whitespace();
        (words.next() == Some("leaderboard")).then(|| words.next()).flatten()
    })
}

/// A problem of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetProblem {
    /// The name, which is valid for a case.
    pub name: String,
    /// The folder, relative to that of the set's file.
    pub folder: String,
}

/// The problems of a set, `{name, problems: [{directory, name}]}`. Folders that do not exist are
/// returned as well: who runs them says so.
///
/// # Errors
/// [`KernelError`] if the file cannot be read, is no YAML, or is no set of problems.
pub fn problem_set(file: &Path) -> Result<Vec<SetProblem>, KernelError> {
    let map = read_yaml(file)?;
    let list = map.get("problems").and_then(serde_json::Value::as_array);
    let list =
        list.filter(|list| !list.is_empty() && list.len() <= MAX_PROBLEMS).ok_or_else(|| {
            wrong(file, format!("it is no set of problems: `problems` needs 1 to {MAX_PROBLEMS}"))
        })?;
    let mut problems: Vec<SetProblem> = Vec::with_capacity(list.len());
    for (at, entry) in list.iter().enumerate() {
        let text = |key: &str| entry.get(key).and_then(serde_json::Value::as_str);
        let folder = text("directory")
            .filter(|folder| !folder.is_empty())
            .ok_or_else(|| wrong(file, format!("`problems[{at}]` needs a `directory`")))?;
        let base = name_of(Path::new(&format!("{}.d", text("name").unwrap_or(folder))));
        let is_used = |name: &str| problems.iter().any(|other| other.name == name);
        let mut name = base.clone();
        if is_used(&name) {
            // Two names may become one, if characters are left out.
            name = format!("{:.70}-{at}", base);
        }
        problems.push(SetProblem { name, folder: folder.to_owned() });
    }
    Ok(problems)
}

/// The problem of a task.yml, with this submission or that of its folder.
fn problem(file: &Path, submission: Option<&Path>) -> Result<Option<Found>, KernelError> {
    let Some(task) = Task::read(file)? else {
        if submission.is_none() && read_yaml(file)?.contains_key("problems") {
            return Err(KernelError::Format {
                file: file.to_owned(),
                problem: "it is a set of GPU MODE problems".to_owned(),
                hint: format!(
                    "all of them: `rgpu bench run --file {}`",
                    shell_word(file.display())
                ),
            });
        }
        return Ok(None);
    };
    let mut assumptions = Vec::new();
    let submission = match submission {
        Some(path) => Some(path.to_owned()),
        None => own_submission(&task, &mut assumptions)?,
    };
    let language_of = |path: &PathBuf| match path.extension() {
        Some(extension) if extension == "py" => TaskLanguage::Python,
        _ => TaskLanguage::Cuda,
    };
    if let Some(submission) = submission.as_ref().filter(|path| language_of(path) != task.language)
    {
        return Err(KernelError::Format {
            file: submission.clone(),
            problem: format!("it is in another language than its task, {}", file.display()),
            hint: "a task takes submissions in its own language, `lang` of task.yml".to_owned(),
        });
    }
    match (task.language, submission) {
        (TaskLanguage::Python, submission) => {
            let found = kernel(task, submission, assumptions)?;
            Ok(Some(Found::Kernel(found)))
        }
        (TaskLanguage::Cuda, Some(submission)) => {
            let mut program = cuda::program(&task, submission)?;
            program.assumptions.splice(0..0, assumptions);
            Ok(Some(Found::Program(program)))
        }
        (TaskLanguage::Cuda, None) => Err(no_submission(&task)),
    }
}

fn no_submission(task: &Task) -> KernelError {
    let usual = usual_submission(task);
    let problem = format!("the problem has no submission: there is no `{}`", usual.display());
    let hint = "name one: `rgpu profile PATH/TO/SUBMISSION`".to_owned();
    KernelError::Format { file: task.file.clone(), problem, hint }
}

/// The kernel of a task in Python. Without a submission it is the task's own `ref_kernel`, so that
/// the problem's times can be seen before anything is written.
fn kernel(
    task: Task,
    submission: Option<PathBuf>,
    mut assumptions: Vec<String>,
) -> Result<FoundKernel, KernelError> {
    let files = placed(&task, submission.as_deref(), &mut assumptions)?;
    let (reference_file, reference_text) = reference(&task, &files)?;
    let defines = |name: &str| python::definition(&reference_text, name).is_some();
    let is_alone = submission.is_none();
    let (source, function) = match submission {
        Some(submission) => {
            check_submission(&task, &submission, &mut assumptions)?;
            (submission, ENTRY)
        }
        None if defines(REFERENCE) => {
            OwnFiles::find(task.folder(), &KernelFolders::default())
                .check_task_file(&reference_file, TASK_FILE)?;
            assumptions.push(format!(
                "there is no submission: `{REFERENCE}`, the task's own, is timed and not checked; \
                 `rgpu kernels new --like {}` begins one",
                shell_word(task.folder().display())
            ));
            (reference_file.clone(), REFERENCE)
        }
        None => return Err(no_submission(&task)),
    };
    let checker = defines("check_implementation").then(|| "check_implementation".to_owned());
    let is_checked = !is_alone && (checker.is_some() || defines(REFERENCE));
    let reference = is_checked.then(|| ReferenceSpec {
        source: reference_file.clone(),
        function: REFERENCE.to_owned(),
        tolerance: Tolerance { abs: 1e-3, rel: 1e-3, ..Tolerance::default() },
        half_tolerance: None,
        checker: checker.clone(),
        device: None,
    });
    let sizes = sizes(&task);
    if !is_alone {
        say_how(&task, &sizes, checker.is_some(), reference.is_some(), &mut assumptions);
    }
    let has_files = |name: &str| files.iter().any(|(file, _)| file == name);
    let misses_utils = task.files.iter().any(|(name, _)| name == UTILS) && !has_files(UTILS);
    let has_program = !is_alone && has_files(&task.main) && !misses_utils;
    let spec = KernelSpec {
        name: spec_name(&task, &source),
        language: "python",
        folder: task.folder().to_owned(),
        file: None,
        source,
        entry: EntryPoint::Python(PythonFunction {
            function: function.to_owned(),
            inputs: Some(InputsSpec {
                function: "generate_input".to_owned(),
                constructor: None,
                spread: false,
            }),
            ..PythonFunction::default()
        }),
        mode: Some(ProfileMode::Bench),
        arch: Vec::new(),
        flags: Vec::new(),
        args: Vec::new(),
        launch: None,
        sizes,
        reference,
        work: DeclaredWork::default(),
        extra_files: Vec::new(),
        model: None,
        task: Some(TaskSpec {
            files,
            rules: BoardRules {
                ranking_by: task.ranking_by,
                program: has_program.then(|| task.main.clone()),
                benchmarks: task.benchmarks.iter().map(|case| case.line.clone()).collect(),
                timeout_s: task.timeout_s,
            },
        }),
    };
    assumptions.extend(task.notes);
    Ok(FoundKernel { spec, assumptions })
}

/// Checks that a file is a submission, and tells of one that nobody has changed.
fn check_submission(
    task: &Task,
    submission: &Path,
    assumptions: &mut Vec<String>,
) -> Result<(), KernelError> {
    let text = text_at(submission)?;
    if python::definition(&text, ENTRY).is_none() {
        return Err(KernelError::Format {
            file: submission.to_owned(),
            problem: format!("it defines no `{ENTRY}`, which the task's program calls"),
            hint: "name the submission: `rgpu profile PATH/TO/SUBMISSION.py`".to_owned(),
        });
    }
    if is_template(task, &text) {
        assumptions.push(format!("`{}` is the task's template, unchanged", submission.display()));
    }
    Ok(())
}

/// The name of the problem; of a submission elsewhere, with that file's.
fn spec_name(task: &Task, submission: &Path) -> String {
    let folder = task.folder().canonicalize().unwrap_or_else(|_| task.folder().to_owned());
    // `name_of` leaves out an extension, and a folder has none.
    let folder = folder.file_name().unwrap_or_default().to_string_lossy();
    let name = name_of(Path::new(&format!("{folder}.d")));
    let stem = name_of(submission);
    match stem.as_str() {
        "submission" | "reference" => name,
        stem => name_of(Path::new(&format!("{name}-{stem}.py"))),
    }
}

/// The place of a submission in the task's own folder.
fn usual_submission(task: &Task) -> PathBuf {
    task.folder().join(match task.language {
        TaskLanguage::Python => "submission.py",
        TaskLanguage::Cuda => "submission.cu",
    })
}

/// The submission in the task's own folder: `submission.py`, or another file that defines the
/// kernel and is no template: of several the last by name, which is told. `None`: there is none.
fn own_submission(
    task: &Task,
    assumptions: &mut Vec<String>,
) -> Result<Option<PathBuf>, KernelError> {
    let usual = usual_submission(task);
    if usual.is_file() {
        return Ok(Some(usual));
    }
    let mut candidates = candidates(task.folder(), task.language);
    let templates: Vec<PathBuf> =
        task.templates.iter().map(|(_, file)| task.folder().join(file)).collect();
    candidates.retain(|path| !templates.contains(path));
    // What is called a submission is meant as one.
    let is_named = |path: &PathBuf| name_of(path).starts_with("submission");
    if candidates.iter().any(is_named) {
        candidates.retain(is_named);
    }
    candidates.sort_by_key(|path| natural_order(&path.to_string_lossy()));
    let Some(last) = candidates.pop() else { return Ok(None) };
    if !candidates.is_empty() {
        let others: Vec<String> = candidates.iter().map(|path| name_of(path)).collect();
        assumptions.push(format!(
            "of {} submissions the last by name, `{}`; name another: `{}`",
            candidates.len() + 1,
            last.display(),
            others.join("`, `")
        ));
    }
    Ok(Some(last))
}

/// A key by which `v9` comes before `v10`: texts, each with the number behind it.
fn natural_order(name: &str) -> Vec<(String, Option<u64>)> {
    let mut parts = vec![(String::new(), None)];
    for c in name.chars() {
        let Some((text, number)) = parts.last_mut() else { break };
        match (c.to_digit(10).map(u64::from), *number) {
            (Some(digit), before) => {
                let before: u64 = before.unwrap_or(0);
                *number = Some(before.saturating_mul(10).saturating_add(digit));
            }
            (None, None) => text.push(c),
            (None, Some(_)) => parts.push((c.to_string(), None)),
        }
    }
    parts
}

/// The files of a folder that define the kernel, sorted.
#[expect(clippy::disallowed_methods, reason = "names of the project's own sources")]
fn candidates(folder: &Path, language: TaskLanguage) -> Vec<PathBuf> {
    const MAX_ENTRIES: usize = 500;
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut found: Vec<PathBuf> = entries
        .take(MAX_ENTRIES)
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            let text = text_of(path, &["py", "cu", "cpp"]).unwrap_or_default();
            match language {
                TaskLanguage::Cuda => cuda::defines_entry(path, &text),
                TaskLanguage::Python => {
                    path.extension().is_some_and(|extension| extension == "py")
                        && python::definition(&text, ENTRY).is_some()
                }
            }
        })
        .collect();
    found.sort();
    found
}

fn text_at(path: &Path) -> Result<String, KernelError> {
    let bytes =
        agent_files::read(path, MAX_SOURCE_BYTES).map_err(KernelError::unreadable(path, None))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The task's files by name. A missing program of the board is told; any other missing file is an
/// error.
fn placed(
    task: &Task,
    submission: Option<&Path>,
    assumptions: &mut Vec<String>,
) -> Result<Vec<(String, PathBuf)>, KernelError> {
    let mut files = Vec::with_capacity(task.files.len() + 1);
    for (name, source) in &task.files {
        if source == SUBMISSION {
            files.extend(submission.map(|path| (name.clone(), path.to_owned())));
            continue;
        }
        let path = task.folder().join(source);
        if path.is_file() {
            files.push((name.clone(), path));
        } else if *name == task.main && task.language == TaskLanguage::Python {
            assumptions.push(format!(
                "`{source}`, the board's program, is missing: there is no `score.board`"
            ));
        } else if name == UTILS && task.language == TaskLanguage::Python {
            assumptions.push(format!(
                "`{source}` is missing: rgpu's own functions of these names stand in \
                 (`make_match_reference`, `verbose_allclose` …; 1e-5 relative and 1e-8 absolute \
                 unless the task says otherwise)"
            ));
        } else {
            return Err(KernelError::Format {
                file: task.file.clone(),
                problem: format!("it names `{source}` under `files`, which is missing"),
                hint: "a problem needs its neighbours: copy the whole repository, or that file"
                    .to_owned(),
            });
        }
    }
    if submission.is_some_and(|wanted| !files.iter().any(|(_, path)| path == wanted)) {
        return Err(wrong(
            &task.file,
            format!("none of its `files` has the source `{SUBMISSION}`"),
        ));
    }
    Ok(files)
}

/// Whether a submission is one of the task's templates.
fn is_template(task: &Task, submission: &str) -> bool {
    let templates = task.templates.iter().take(20).map(|(_, file)| task.folder().join(file));
    templates
        .filter_map(|path| text_of(&path, &["py"]))
        .any(|template| template.trim() == submission.trim())
}

/// The file with `generate_input`, and its text.
fn reference(task: &Task, files: &[(String, PathBuf)]) -> Result<(PathBuf, String), KernelError> {
    let python_files = files.iter().filter(|(name, _)| name.ends_with(".py"));
    for (_, path) in python_files {
        let text = text_at(path)?;
        if python::definition(&text, "generate_input").is_some() {
            return Ok((path.clone(), text));
        }
    }
    Err(KernelError::Format {
        file: task.file.clone(),
        problem: "none of its files defines `generate_input`: only the task's own program knows \
                  how its kernel is called"
            .to_owned(),
        hint: format!(
            "run that program: `rgpu profile -- python3 {}`",
            shell_word(task.folder().join(&task.main).display())
        ),
    })
}

/// The cases: the benchmark that stands for all first, the other benchmarks, the tests. A board
/// with `last` runs only the last benchmark, so that one stands for all.
fn sizes(task: &Task) -> Sizes {
    let named = |kind: &str, at: usize, case: &TaskCase, jobs: &[RunnerJob]| NamedCase {
        name: format!("{kind}.{at}"),
        groups: vec![Vec::new()],
        values: case.values.clone(),
        jobs: jobs.to_vec(),
    };
    let timed = [RunnerJob::Verify, RunnerJob::Time];
    let main = [
        RunnerJob::Verify,
        RunnerJob::Time,
        RunnerJob::Once,
        RunnerJob::Torch,
        RunnerJob::Guard,
        RunnerJob::Pair,
    ];
    let checked = [RunnerJob::Verify, RunnerJob::Cpu];
    let mut cases = Vec::with_capacity(task.benchmarks.len() + task.tests.len());
    let last = task.benchmarks.len().checked_sub(1);
    if let Some((last, case)) = last.and_then(|last| Some((last, task.benchmarks.get(last)?))) {
        cases.push(named("benchmark", last, case, &main));
        if task.ranking_by != RankingBy::Last {
            let others = task.benchmarks.iter().enumerate().take(last);
            cases.extend(others.map(|(at, case)| named("benchmark", at, case, &timed)));
        }
    }
    for (at, case) in task.tests.iter().enumerate() {
        // Without a benchmark the last test stands for all.
        let is_main = last.is_none() && at + 1 == task.tests.len();
        let jobs: &[RunnerJob] = if is_main { &[] } else { &checked };
        cases.push(named("test", at, case, jobs));
    }
    let default = last.map(|last| format!("benchmark.{last}"));
    let default = default.or_else(|| cases.last().map(|case| case.name.clone()));
    Sizes { vars: Vec::new(), groups: false, cases, default }
}

/// Says what was read of the task and how results are judged and scored.
fn say_how(
    task: &Task,
    sizes: &Sizes,
    has_checker: bool,
    has_reference: bool,
    assumptions: &mut Vec<String>,
) {
    let timed = sizes.cases.iter().filter(|case| case.jobs.contains(&RunnerJob::Time)).count();
    assumptions.push(format!(
        "{} and {} of the task are checked, and the benchmarks are timed",
        rgpu_model::number_form::counted(task.tests.len(), "test", "tests"),
        rgpu_model::number_form::counted(timed, "benchmark", "benchmarks"),
    ));
    assumptions.push(match (has_checker, has_reference) {
        (true, _) => "`check_implementation` judges each result, by its own tolerance".to_owned(),
        (false, true) => {
            "a value may differ from `ref_kernel`'s by 1e-3, absolute and relative".to_owned()
        }
        (false, false) => {
            "there is neither `check_implementation` nor `ref_kernel`: results are not checked"
                .to_owned()
        }
    });
    let of = match task.ranking_by {
        _ if timed == 0 => None,
        RankingBy::Last => Some("the last benchmark's median"),
        RankingBy::Mean => Some("the mean of the benchmarks' medians"),
        RankingBy::Geom => Some("the geometric mean of the benchmarks' medians"),
    };
    assumptions
        .extend(of.map(|of| format!("the score is {of}, with L2 overwritten before each call")));
    let is_nvidia = |gpu: &String| !gpu.to_ascii_uppercase().starts_with("MI");
    if !task.gpus.is_empty() && !task.gpus.iter().any(is_nvidia) {
        assumptions.push(format!(
            "the board runs it on AMD's `{}`; here it runs on a GPU of NVIDIA",
            task.gpus.join("`, `")
        ));
    }
}

#[cfg(test)]
mod tests;
