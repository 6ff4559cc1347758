//! Reads `task.yml`, the description of a GPU MODE problem. Facts from the schema of its server
//! (gpu-mode/kernelbot, 2026): keys, defaults, and what its case parser makes of YAML's values.

use std::path::{Path, PathBuf};

use rgpu_case::{Number, RankingBy, Setting};
use serde_json::{Map, Value};

use super::super::super::KernelError;
use rgpu_model::agent_files;
use rgpu_model::regular_file::MAX_TOML_BYTES;

/// More cases or files than this are a mistake, or an attack on memory.
const MAX_CASES: usize = 1_000;
const MAX_FILES: usize = 200;

/// Seconds that the server gives a run if the task says nothing.
const DEFAULT_TIMEOUT_S: u64 = 180;

/// The longest limit of a run that we take from a task, in seconds.
const MAX_TIMEOUT_S: u64 = 3_600;

/// The text in place of a source that stands for the user's file.
pub(super) const SUBMISSION: &str = "@SUBMISSION@";

/// The keys that the server knows, and those that old tasks have.
const KEYS: [&str; 16] = [
    "lang",
    "files",
    "config",
    "tests",
    "benchmarks",
    "description",
    "templates",
    "test_timeout",
    "benchmark_timeout",
    "ranked_timeout",
    "ranking_by",
    "gpus",
    "multi_gpu",
    "seed",
    "libraries",
    "name",
];

/// The language of a task and of its submissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TaskLanguage {
    /// `py`: functions that we call.
    Python,
    /// `cu`: a program in C++.
    Cuda,
}

/// A task as its file describes it.
#[derive(Debug)]
pub(super) struct Task {
    /// Its task.yml.
    pub(super) file: PathBuf,
    pub(super) language: TaskLanguage,
    /// The sources of a task in C++ that are compiled; empty: all of them.
    pub(super) sources: Vec<String>,
    /// Each file by its name for the task's programs, with its source as written.
    pub(super) files: Vec<(String, String)>,
    /// The program that the board runs.
    pub(super) main: String,
    /// The cases that are checked.
    pub(super) tests: Vec<TaskCase>,
    /// The cases that are timed.
    pub(super) benchmarks: Vec<TaskCase>,
    /// The templates: the name of the language, and the file as written.
    pub(super) templates: Vec<(String, String)>,
    pub(super) ranking_by: RankingBy,
    /// Seconds that the board gives a ranked run.
    pub(super) timeout_s: u64,
    /// The names of the board's GPUs, if the task lists them.
    pub(super) gpus: Vec<String>,
    /// What is odd about it, to be told.
    pub(super) notes: Vec<String>,
}

/// One case of a task.
#[derive(Debug)]
pub(super) struct TaskCase {
    /// The parameters as the board's own parser gives them to the task's functions.
    pub(super) values: Vec<(String, Setting)>,
    /// The line for the board's program.
    pub(super) line: String,
}

/// The mapping that a YAML file holds. Its size is limited, and so is what its aliases expand to.
pub(super) fn read_yaml(file: &Path) -> Result<Map<String, Value>, KernelError> {
    let text = agent_files::read_to_string(file, MAX_TOML_BYTES)
        .map_err(KernelError::unreadable(file, None))?;
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: 50_000,
            max_aliases: 200,
            max_depth: 32,
            max_total_scalar_bytes: 1 << 20,
        },
        with_snippet: false,
    };
    let value: Value = serde_saphyr::from_str_with_options(&text, options)
        .map_err(|error| wrong(file, format!("not YAML that can be read: {error}")))?;
    match value {
        Value::Object(map) => Ok(map),
        _ => Err(wrong(file, "it is a list or a text, and no mapping of keys".to_owned())),
    }
}

pub(super) fn wrong(file: &Path, problem: String) -> KernelError {
    KernelError::Format {
        file: file.to_owned(),
        problem,
        hint: "`rgpu help problems` says what is read of a GPU MODE problem".to_owned(),
    }
}

impl Task {
    /// Reads a task. `Ok(None)`: the file describes something else.
    pub(super) fn read(file: &Path) -> Result<Option<Self>, KernelError> {
        let map = read_yaml(file)?;
        if !map.contains_key("files") || !(map.contains_key("tests") || map.contains_key("config"))
        {
            return Ok(None);
        }
        let mut notes = Vec::new();
        let unknown: Vec<&str> =
            map.keys().map(String::as_str).filter(|key| !KEYS.contains(key)).collect();
        if !unknown.is_empty() {
            notes.push(format!(
                "unknown keys of task.yml have no effect: `{}`",
                unknown.join("`, `")
            ));
        }
        let text = |key: &str| map.get(key).and_then(Value::as_str);
        let language = match text("lang").unwrap_or("py") {
            "py" => TaskLanguage::Python,
            "cu" => TaskLanguage::Cuda,
            other => {
                return Err(wrong(
                    file,
                    format!("`lang: {other}` is unknown; there are `py`, `cu`"),
                ));
            }
        };
        if map.get("multi_gpu").and_then(Value::as_bool) == Some(true) {
            return Err(KernelError::Format {
                file: file.to_owned(),
                problem: "its cases run on several GPUs (`multi_gpu`), which only its own program \
                          can start"
                    .to_owned(),
                hint: "run that program with its ranks: `rgpu exec -- python3 eval.py …`"
                    .to_owned(),
            });
        }
        let ranking_by = match text("ranking_by").unwrap_or("last") {
            "last" => RankingBy::Last,
            "mean" => RankingBy::Mean,
            "geom" => RankingBy::Geom,
            other => {
                let known = "there are `last`, `mean`, `geom`";
                return Err(wrong(file, format!("`ranking_by: {other}` is unknown; {known}")));
            }
        };
        let config = map.get("config").and_then(Value::as_object);
        let main = config.and_then(|config| config.get("main")).and_then(Value::as_str);
        let sources = config.and_then(|config| config.get("sources")).and_then(Value::as_array);
        let mut has_flags = false;
        let mut cases = |key| cases(file, &map, key, &mut has_flags);
        let (tests, benchmarks) = (cases("tests")?, cases("benchmarks")?);
        if tests.is_empty() && benchmarks.is_empty() {
            return Err(wrong(file, "it has neither `tests` nor `benchmarks`".to_owned()));
        }
        if has_flags {
            notes.push(
                "`true` and `false` reach `generate_input` as the texts `True` and `False`, as on \
                 the board; both count as true"
                    .to_owned(),
            );
        }
        let timeout = map.get("ranked_timeout").and_then(Value::as_u64);
        let templates = map.get("templates").and_then(Value::as_object);
        Ok(Some(Self {
            file: file.to_owned(),
            language,
            sources: sources.into_iter().flatten().filter_map(owned).collect(),
            files: files(file, &map)?,
            main: main.unwrap_or("eval.py").to_owned(),
            tests,
            benchmarks,
            templates: templates
                .into_iter()
                .flatten()
                .filter_map(|(language, file)| Some((language.clone(), owned(file)?)))
                .collect(),
            ranking_by,
            timeout_s: timeout
                .filter(|seconds| (1..=MAX_TIMEOUT_S).contains(seconds))
                .unwrap_or(DEFAULT_TIMEOUT_S),
            gpus: map
                .get("gpus")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(owned)
                .collect(),
            notes,
        }))
    }

    /// The folder that its sources are relative to.
    pub(super) fn folder(&self) -> &Path {
        self.file.parent().unwrap_or(Path::new(""))
    }
}

fn owned(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

/// The files of a task, by their names for its programs.
fn files(file: &Path, map: &Map<String, Value>) -> Result<Vec<(String, String)>, KernelError> {
    let list = map.get("files").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if list.len() > MAX_FILES {
        return Err(wrong(file, format!("it names {} files; {MAX_FILES} are read", list.len())));
    }
    let mut files: Vec<(String, String)> = Vec::new();
    for (at, entry) in list.iter().enumerate() {
        let text = |key: &str| entry.get(key).and_then(Value::as_str);
        let (Some(name), Some(source)) = (text("name"), text("source")) else {
            return Err(wrong(file, format!("`files[{at}]` needs the texts `name` and `source`")));
        };
        let is_plain = !name.is_empty()
            && name.len() <= 255
            && !name.contains('\\')
            && !name.chars().any(char::is_control)
            && name.split('/').all(|part| !matches!(part, "" | "." | ".."));
        if !is_plain {
            let text =
                format!("`{name}` of `files[{at}]` cannot be the name of a file in a folder");
            return Err(wrong(file, text));
        }
        if files.iter().any(|(other, _)| other == name) {
            return Err(wrong(file, format!("`files` has the name `{name}` twice")));
        }
        files.push((name.to_owned(), source.to_owned()));
    }
    Ok(files)
}

/// The cases under `key`. Sets `has_flags` if one has a truth value.
fn cases(
    file: &Path,
    map: &Map<String, Value>,
    key: &str,
    has_flags: &mut bool,
) -> Result<Vec<TaskCase>, KernelError> {
    let list = match map.get(key) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(list)) => list,
        Some(_) => return Err(wrong(file, format!("`{key}` is no list of cases"))),
    };
    if list.len() > MAX_CASES {
        return Err(wrong(file, format!("`{key}` has {} cases; {MAX_CASES} are read", list.len())));
    }
    let mut cases = Vec::with_capacity(list.len());
    for (at, entry) in list.iter().enumerate() {
        let Value::Object(entry) = entry else {
            return Err(wrong(file, format!("`{key}[{at}]` has no parameters by name")));
        };
        let mut values = Vec::with_capacity(entry.len());
        let mut line = Vec::with_capacity(entry.len());
        for (name, value) in entry {
            let place = format!("`{name}` of `{key}[{at}]`");
            if !super::super::super::is_identifier(name) {
                return Err(wrong(file, format!("{place} is no name of a parameter")));
            }
            *has_flags |= value.is_boolean();
            let setting = setting(value, 0).ok_or_else(|| {
                let text = "needs a number, a word, true, false, or a list of these";
                wrong(file, format!("{place} {text}"))
            })?;
            if name == "seed" && !matches!(setting, Setting::Number(Number::Int(_))) {
                return Err(wrong(file, format!("{place} is no whole number")));
            }
            line.push(format!("{name}: {}", setting));
            values.push((name.clone(), setting));
        }
        cases.push(TaskCase { values, line: line.join("; ") });
    }
    Ok(cases)
}

/// A value as the board's parser gives it to the task's functions: digits become a number, a list
/// a tuple, and everything else stays text.
fn setting(value: &Value, depth: usize) -> Option<Setting> {
    match value {
        Value::Bool(true) => Some(Setting::Text("True".to_owned())),
        Value::Bool(false) => Some(Setting::Text("False".to_owned())),
        Value::Number(number) => Some(Setting::Number(match number.as_i64() {
            Some(whole) => Number::Int(whole),
            None if number.is_u64() => return None,
            None => Number::Float(number.as_f64().filter(|number| number.is_finite())?),
        })),
        Value::String(text) if text.len() <= 1_000 && !text.contains([';', '\n']) => {
            Some(match text.parse::<i64>() {
                Ok(number) => Setting::Number(Number::Int(number)),
                Err(_) => Setting::Text(text.clone()),
            })
        }
        Value::Array(items) if depth < 3 && items.len() <= MAX_CASES => items
            .iter()
            .map(|item| setting(item, depth + 1))
            .collect::<Option<_>>()
            .map(Setting::List),
        _ => None,
    }
}
