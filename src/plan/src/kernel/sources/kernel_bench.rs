//! KernelBench's problems and answers: a problem defines `Model`, `get_inputs` and
//! `get_init_inputs`; an answer defines `ModelNew`, with the same constructor.
//!
//! The answer is the kernel, and its reference is the problem's `Model` with the same weights. Both
//! may be in one file. An answer alone looks for its problem in its own folder, and by level and
//! number in the collection above it.

#![expect(clippy::disallowed_methods, reason = "names of the project's own sources")]

use std::path::{Path, PathBuf};

use rgpu_case::{Baseline, Tolerance};

use super::super::spec::{
    DeclaredWork, EntryPoint, InputsSpec, PythonFunction, ReferenceSpec, Sizes,
};
use super::super::{KernelError, KernelSpec, ProfileMode, name_of, python};
use super::{Found, FoundKernel, KernelSource, text_of};
use rgpu_model::error::shell_word;
use rgpu_model::ownership::may_decide;

/// A KernelBench problem, or an answer to one.
pub(super) const KERNEL_BENCH: KernelSource = KernelSource { name: "a KernelBench problem", read };

const PROBLEM: &str = "Model";
const ANSWER: &str = "ModelNew";
const INPUTS: &str = "get_inputs";
const CONSTRUCTOR: &str = "get_init_inputs";

/// The folders of an answer's extension, beside the answer itself.
const EXTENSION_FOLDERS: [&str; 5] = ["", "kernels", "csrc", "src", "cuda"];

/// KernelBench's tolerance, absolute and relative, for 32 bits and for 16.
const TOLERANCE: f64 = 1e-4;
const HALF_TOLERANCE: f64 = 1e-2;

/// More files of a folder are not looked at.
const MAX_FILES: usize = 300;

/// How many folders above an answer may hold the collection of problems.
const MAX_FOLDERS_ABOVE: usize = 3;

fn read(path: &Path) -> Option<Result<Found, KernelError>> {
    if path.is_dir() {
        let files: Vec<(PathBuf, Parts)> =
            python_files(path).into_iter().map(|file| (file.clone(), Parts::of(&file))).collect();
        let mut answers = files.iter().filter(|(_, parts)| parts.answer);
        let mut problems = files.iter().filter(|(_, parts)| parts.is_problem());
        // A folder of many answers or problems is no kernel.
        let found = match (answers.next(), answers.next()) {
            (Some(only), None) => Some(only),
            (None, _) => problems.next().filter(|_| problems.next().is_none()),
            _ => None,
        };
        return found.and_then(|(file, _)| read(file));
    }
    let parts = Parts::of(path);
    let found = match (parts.answer, parts.is_problem()) {
        (true, true) => Ok(kernel(path, Some(path))),
        (true, false) => problem_of(path, parts).map(|problem| kernel(path, problem.as_deref())),
        (false, true) => Ok(problem_alone(path)),
        (false, false) => return None,
    };
    Some(found.map(Found::Kernel))
}

/// What a file defines of a problem and its answer.
#[derive(Clone, Copy, Debug, Default)]
struct Parts {
    model: bool,
    answer: bool,
    inputs: bool,
}

impl Parts {
    fn of(file: &Path) -> Self {
        let Some(text) = text_of(file, &["py"]) else { return Self::default() };
        let is_class = |name| python::definition(&text, name) == Some(python::Definition::Class);
        let is_function =
            |name| python::definition(&text, name) == Some(python::Definition::Function);
        Self {
            model: is_class(PROBLEM),
            answer: is_class(ANSWER),
            inputs: is_function(INPUTS) && is_function(CONSTRUCTOR),
        }
    }

    fn is_problem(self) -> bool {
        self.model && self.inputs
    }
}

/// The Python files of a folder, sorted.
fn python_files(folder: &Path) -> Vec<PathBuf> {
    files_of(folder, &["py"])
}

/// The files of a folder with these extensions, sorted.
fn files_of(folder: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut files: Vec<PathBuf> = entries
        .take(MAX_FILES)
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            let extension = path.extension().and_then(|extension| extension.to_str());
            extension.is_some_and(|extension| extensions.contains(&extension))
        })
        .collect();
    files.sort();
    files
}

/// The problem of an answer. `Ok(None)`: there is none, and the answer makes its own inputs.
fn problem_of(answer: &Path, parts: Parts) -> Result<Option<PathBuf>, KernelError> {
    if let Some(problem) = in_collection(answer) {
        return Ok(Some(problem));
    }
    let folder = answer.parent().unwrap_or(Path::new(""));
    let mut problems: Vec<PathBuf> =
        python_files(folder).into_iter().filter(|file| is_own_problem(file, folder)).collect();
    if problems.len() > 1 {
        let wanted = core_of(answer);
        let named: Vec<PathBuf> =
            problems.iter().filter(|problem| core_of(problem) == wanted).cloned().collect();
        if named.len() == 1 {
            problems = named;
        }
    }
    let hint = "put it beside the answer, under the same name but for `new`, or both into one file";
    match problems.as_slice() {
        [only] => Ok(Some(only.clone())),
        [] if parts.inputs => Ok(None),
        [] => Err(KernelError::Format {
            file: answer.to_owned(),
            problem: format!(
                "it is an answer to a KernelBench problem (`{ANSWER}`), but the problem with \
                 `{PROBLEM}`, `{INPUTS}` and `{CONSTRUCTOR}` is not beside it"
            ),
            hint: hint.to_owned(),
        }),
        several => {
            let names: Vec<String> = several.iter().map(|p| p.display().to_string()).collect();
            Err(KernelError::Format {
                file: answer.to_owned(),
                problem: format!(
                    "it is an answer to a KernelBench problem, and it may be any of {}",
                    names.join(", ")
                ),
                hint: hint.to_owned(),
            })
        }
    }
}

/// The part of a file's name that problem and answer share: `model_new_ex_add` and `model_ex_add`
/// become `ex add`.
fn core_of(file: &Path) -> Vec<String> {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy().to_lowercase();
    let words = stem.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let marks = ["model", "modelnew", "new", "problem", "answer", "solution", "ref", "reference"];
    words.filter(|word| !marks.contains(word)).map(str::to_owned).collect()
}

/// The problem of an answer named as KernelBench's scripts do, such as
/// `level_1_problem_23_sample_0_kernel.py`, in `level1/23_….py` of a folder above.
fn in_collection(answer: &Path) -> Option<PathBuf> {
    let stem = answer.file_stem()?.to_str()?.to_lowercase();
    let number_after = |mark: &str| {
        let rest = stem.split_once(mark)?.1.trim_start_matches('_');
        let digits: String = rest.chars().take_while(char::is_ascii_digit).take(4).collect();
        (!digits.is_empty()).then_some(digits)
    };
    let (level, id) = (number_after("level")?, number_after("problem")?);
    let start = std::path::absolute(answer).ok()?;
    let above = start.ancestors().skip(1).take(MAX_FOLDERS_ABOVE + 1);
    let folders = above.flat_map(|folder| {
        [folder.join(format!("level{level}")), folder.join(format!("KernelBench/level{level}"))]
    });
    let prefix = format!("{id}_");
    folders.filter(|folder| folder.is_dir()).flat_map(|folder| python_files(&folder)).find(|file| {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(&prefix) && is_own_problem(file, answer.parent().unwrap_or(Path::new("")))
    })
}

/// The start of an answer to the problem in this file: the problem's own model under the name that
/// answers have. `None`: it is no problem.
pub(super) fn template(
    problem: &Path,
    file: Option<&Path>,
) -> Option<Result<(PathBuf, String), KernelError>> {
    let is_answer = |name: &str| name != PROBLEM;
    let text = text_of(problem, &["py"]).filter(|_| Parts::of(problem).is_problem())?;
    let text: String =
        words(&text).map(|word| if is_answer(word) { word } else { ANSWER }).collect();
    let stem = problem.file_stem().unwrap_or_default().to_string_lossy();
    let usual = || problem.with_file_name(format!("{stem}_new.py"));
    Some(Ok((file.map_or_else(usual, Path::to_owned), text)))
}

/// A text as words, each a name or one other character; a name behind a dot keeps the dot.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let mut rest = text;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let begin = first.len_utf8();
        let is_word = is_name(first) || first == '.';
        let inner = rest[begin..].find(|c| !is_name(c)).unwrap_or(rest.len() - begin);
        let (word, after) = rest.split_at(if is_word { begin + inner } else { begin });
        rest = after;
        Some(word)
    })
}

/// Whether a file beside or above an answer is a problem, and not somebody else's.
fn is_own_problem(file: &Path, folder: &Path) -> bool {
    may_decide(file, folder) && Parts::of(file).is_problem()
}

/// An answer with its problem.
fn kernel(answer: &Path, problem: Option<&Path>) -> FoundKernel {
    let mut spec = spec(answer, ANSWER, vec![Baseline::Eager, Baseline::Compile]);
    let mut assumptions = vec![of_file(answer, ANSWER)];
    if let Some((name, sources)) = extension(answer) {
        assumptions.push(format!(
            "the host builds the torch extension `{name}`, which it imports, from {} beside it",
            rgpu_model::number_form::counted(sources.len(), "source", "sources")
        ));
        spec.extra_files = sources;
    }
    let Some(problem) = problem else {
        spec.entry = entry(ANSWER, Vec::new());
        let text = format!(
            "there is no `{PROBLEM}` to compare with: results are not checked, and there is no \
             speed-up"
        );
        assumptions.push(text);
        return FoundKernel { spec, assumptions };
    };
    spec.reference = Some(ReferenceSpec {
        source: problem.to_owned(),
        function: PROBLEM.to_owned(),
        tolerance: tolerance(TOLERANCE),
        half_tolerance: Some(tolerance(HALF_TOLERANCE)),
        checker: None,
        device: None,
    });
    let problem = if problem == answer {
        "the same file".to_owned()
    } else {
        format!("`{}`", problem.display())
    };
    assumptions.extend([
        format!("the reference is `{PROBLEM}` of {problem}, with the same weights"),
        format!(
            "a value may be off by {TOLERANCE:e}, absolute and relative; by {HALF_TOLERANCE:e} in \
             formats of 16 bits"
        ),
        "inputs keep their types; they and the weights are moved to the GPU".to_owned(),
    ]);
    FoundKernel { spec, assumptions }
}

/// A torch extension that an answer imports and whose sources lie beside it, with the module's name.
/// The host builds it: people compile it with a script of their own before they import it.
fn extension(answer: &Path) -> Option<(String, Vec<PathBuf>)> {
    let folder = answer.parent().unwrap_or(Path::new(""));
    let imports = python::imports(&text_of(answer, &["py"])?);
    let folders = EXTENSION_FOLDERS.map(|name| folder.join(name));
    let sources: Vec<PathBuf> =
        folders.iter().flat_map(|folder| files_of(folder, &["cu", "cpp", "cc"])).collect();
    let texts: Vec<String> =
        sources.iter().filter_map(|file| text_of(file, &["cu", "cpp", "cc"])).collect();
    let is_defined = |name: &&str| {
        let definition = format!("PYBIND11_MODULE({name},");
        !name.is_empty() && texts.iter().any(|text| text.contains(&definition))
    };
    let name = imports.iter().map(|import| import.top_level()).find(is_defined)?;
    Some((name.to_owned(), sources))
}

/// A problem without an answer: `Model` itself is the kernel.
fn problem_alone(problem: &Path) -> FoundKernel {
    let file = shell_word(problem.display());
    FoundKernel {
        spec: spec(problem, PROBLEM, vec![Baseline::Compile]),
        assumptions: vec![
            of_file(problem, PROBLEM),
            format!(
                "it is the problem itself, so there is nothing to check; an answer with `{ANSWER}` \
                 beside {file} is checked against it: `rgpu profile ANSWER.py`"
            ),
        ],
    }
}

fn of_file(file: &Path, class: &str) -> String {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    format!("`{class}(*{CONSTRUCTOR}())` of {name} is the kernel, called with `*{INPUTS}()`")
}

fn tolerance(both: f64) -> Tolerance {
    Tolerance { abs: both, rel: both, ..Tolerance::default() }
}

fn entry(class: &str, baselines: Vec<Baseline>) -> EntryPoint {
    EntryPoint::Python(PythonFunction {
        function: class.to_owned(),
        inputs: Some(InputsSpec {
            function: INPUTS.to_owned(),
            constructor: Some(CONSTRUCTOR.to_owned()),
            spread: true,
        }),
        baselines,
        ..PythonFunction::default()
    })
}

fn spec(file: &Path, class: &str, baselines: Vec<Baseline>) -> KernelSpec {
    KernelSpec {
        name: name_of(file),
        language: "python",
        folder: file.parent().unwrap_or(Path::new("")).to_owned(),
        file: None,
        source: file.to_owned(),
        entry: entry(class, baselines),
        mode: Some(ProfileMode::Bench),
        arch: Vec::new(),
        flags: Vec::new(),
        args: Vec::new(),
        launch: None,
        sizes: Sizes::default(),
        reference: None,
        work: DeclaredWork::default(),
        extra_files: Vec::new(),
        model: None,
        task: None,
    }
}

#[cfg(test)]
mod tests;
