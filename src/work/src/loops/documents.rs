//! The two files that workers and reviewers write, and the worker's progress. They come from
//! outside: each is read with a size limit and checked before anything in it counts.

use std::path::Path;
use std::time::Duration;

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::LoopError;
use super::error::io_error;
use rgpu_model::beneath::Folder;

/// The largest file of a worker or reviewer.
const MAX_BYTES: u64 = 1 << 20;

/// A file that is not whole may be one that is being written, for this long.
const WRITE_TIME: Duration = Duration::from_secs(2);

/// The number of errors that a progress file keeps.
const MAX_ERRORS: usize = 20;

/// The worker's decision about its change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Decision {
    /// Measure it, and keep it if it is faster.
    Keep,
    /// Take it back.
    Revert,
}

/// `worker_result.json`: what a worker did in an iteration. Its numbers are claims.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkerResult {
    /// The iteration of the prompt.
    pub iteration: u32,
    /// The nonce of the prompt. A result with another one is not accepted.
    pub nonce: String,
    /// The kernel that was changed.
    #[serde(default)]
    pub kernel_path: String,
    /// Whether the worker's own tests passed.
    #[serde(default)]
    pub tests_passed: bool,
    /// Whether the worker's own benchmark ran.
    #[serde(default)]
    pub benchmark_passed: bool,
    /// The metric that the worker measured.
    pub metric_name: Option<String>,
    /// The value of that metric.
    pub metric_value: Option<f64>,
    /// `KEEP` to have the change measured, `REVERT` to take it back.
    pub decision: Decision,
    /// Files that the worker made.
    #[serde(default)]
    pub artifacts: Vec<String>,
    /// What went wrong; each entry is one error.
    #[serde(default)]
    pub errors: Vec<String>,
    /// What was changed, in a sentence.
    pub note: Option<String>,
}

/// The reviewer's decision about the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Verdict {
    /// Go on with the next iteration.
    Continue,
    /// Stop: the target is reached. Whether it is, rgpu's own measurements say.
    StopTargetReached,
    /// Stop: nothing gets better any more.
    StopNoProgress,
    /// Stop: something must be done by a person.
    StopBlocked,
}

/// How sure a reviewer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// Hardly sure.
    Low,
    /// Somewhat sure.
    Medium,
    /// Very sure.
    High,
}

/// `reviewer_verdict.json`: what a reviewer says about an iteration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReviewerVerdict {
    /// The iteration of the prompt.
    pub iteration: u32,
    /// The nonce of the prompt. A verdict with another one is not accepted.
    pub nonce: String,
    /// Whether the loop continues.
    pub verdict: Verdict,
    /// How sure the reviewer is.
    pub confidence: Confidence,
    /// The reason for the verdict.
    pub reason: String,
    /// What the worker should try next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_change_hint: Option<String>,
    /// Whether the change must be taken back, even if it is faster.
    #[serde(default)]
    pub requires_revert: bool,
}

/// A file that carries the iteration and nonce of its prompt.
pub(super) trait SignedDocument: serde::de::DeserializeOwned {
    /// The iteration and the nonce.
    fn signature(&self) -> (u32, &str);
}

impl SignedDocument for WorkerResult {
    fn signature(&self) -> (u32, &str) {
        (self.iteration, &self.nonce)
    }
}

impl SignedDocument for ReviewerVerdict {
    fn signature(&self) -> (u32, &str) {
        (self.iteration, &self.nonce)
    }
}

/// Reads a file of this prompt. `None` if there is none; an error in words if there is one that
/// does not count.
pub(super) fn read_signed<T: SignedDocument>(
    files: &Folder,
    path: &Path,
    iteration: u32,
    nonce: &str,
) -> Option<Result<T, String>> {
    let bytes = match files.read(path, MAX_BYTES) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return None,
        Err(e) => return Some(Err(format!("it cannot be read: {e}"))),
    };
    let document: T = match serde_json::from_slice(&bytes) {
        Ok(document) => document,
        // Somebody may still be writing it.
        Err(e) if e.is_eof() && is_recent(files, path) => return None,
        Err(e) => return Some(Err(e.to_string())),
    };
    let (its_iteration, its_nonce) = document.signature();
    if its_iteration != iteration {
        return Some(Err(format!("it is of iteration {its_iteration}, and this is {iteration}")));
    }
    if its_nonce != nonce {
        return Some(Err("its nonce is not that of the prompt".to_owned()));
    }
    Some(Ok(document))
}

/// Whether a file was written a moment ago.
fn is_recent(files: &Folder, path: &Path) -> bool {
    let written = files.modified(path);
    written.is_some_and(|time| time.elapsed().is_ok_and(|age| age < WRITE_TIME))
}

/// A kind of file that `rgpu loop validate` checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DocumentKind {
    /// The file that a worker writes: [`WorkerResult`].
    #[value(help = "worker_result.json")]
    Worker,
    /// The file that a reviewer writes: [`ReviewerVerdict`].
    #[value(help = "reviewer_verdict.json")]
    Reviewer,
}

impl DocumentKind {
    /// The kind that a document seems to be of.
    pub fn guess(text: &[u8]) -> Self {
        let value: serde_json::Value = serde_json::from_slice(text).unwrap_or_default();
        match value.get("verdict") {
            Some(_) => Self::Reviewer,
            None => Self::Worker,
        }
    }

    /// The JSON Schema of this kind of file, as prompts and `rgpu loop schema` show it.
    pub fn schema(self) -> schemars::Schema {
        match self {
            Self::Worker => schemars::schema_for!(WorkerResult),
            Self::Reviewer => schemars::schema_for!(ReviewerVerdict),
        }
    }

    /// What is wrong with a document; `None` if nothing is.
    pub fn fault(self, text: &[u8]) -> Option<String> {
        match self {
            Self::Worker => serde_json::from_slice::<WorkerResult>(text).err(),
            Self::Reviewer => serde_json::from_slice::<ReviewerVerdict>(text).err(),
        }
        .map(|e| e.to_string())
    }
}

/// `worker_progress.json`: what a worker has reported during an iteration.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerProgress {
    /// The iteration that the reports belong to.
    pub iteration: u32,
    /// The shortest reported time in microseconds.
    pub best_time_us: Option<f64>,
    /// The last reported time in microseconds.
    pub last_time_us: Option<f64>,
    /// The artifact of the shortest time.
    pub best_artifact: Option<String>,
    /// The worker's own word for what it does.
    pub status: Option<String>,
    /// The last note.
    pub note: Option<String>,
    /// The last errors, at most 20.
    #[serde(default)]
    pub errors: Vec<String>,
    /// The number of reports.
    #[serde(default)]
    pub updates: u64,
}

/// One report of a worker.
#[derive(Clone, Debug, Default)]
pub struct ProgressReport {
    /// A measured time in microseconds.
    pub time_us: Option<f64>,
    /// The artifact of that time.
    pub artifact: Option<String>,
    /// The worker's own word for what it does.
    pub status: Option<String>,
    /// The worker's note; it replaces the last one.
    pub note: Option<String>,
    /// Something that went wrong.
    pub error: Option<String>,
}

/// Adds a report to a progress file. Several processes may report at once.
pub(super) fn add_progress(
    files: &Folder,
    path: &Path,
    iteration: u32,
    report: &ProgressReport,
) -> Result<WorkerProgress, LoopError> {
    let _lock = files.lock_parent_of(path).map_err(io_error("lock", path))?;
    let known = files.read(path, MAX_BYTES).unwrap_or_default();
    let mut progress: WorkerProgress = serde_json::from_slice(&known).unwrap_or_default();
    progress.iteration = iteration;
    progress.updates += 1;
    if let Some(time) = report.time_us {
        progress.last_time_us = Some(time);
        if progress.best_time_us.is_none_or(|best| time < best) {
            progress.best_time_us = Some(time);
            progress.best_artifact = report.artifact.clone();
        }
    }
    progress.status = report.status.clone().or(progress.status);
    progress.note = report.note.clone().or(progress.note);
    progress.errors.extend(report.error.clone());
    let surplus = progress.errors.len().saturating_sub(MAX_ERRORS);
    progress.errors.drain(..surplus);
    write_json(files, path, &progress)?;
    Ok(progress)
}

/// Writes a JSON file whole.
pub(super) fn write_json(
    files: &Folder,
    path: &Path,
    value: &impl Serialize,
) -> Result<(), LoopError> {
    let text = serde_json::to_vec_pretty(value).unwrap_or_default();
    write_text(files, path, &text)
}

/// Writes a file whole.
pub(super) fn write_text(files: &Folder, path: &Path, text: &[u8]) -> Result<(), LoopError> {
    files.write(path, text).map_err(io_error("write", path))
}

/// Moves a file that does not count out of the way, and returns its new name.
pub(super) fn reject(files: &Folder, path: &Path) -> Option<String> {
    let stem = path.file_stem()?.to_string_lossy().into_owned();
    (1..1000).find_map(|number| {
        let name = format!("{stem}.rejected-{number}.json");
        let free = path.with_file_name(&name);
        let is_free = files.stat(&free).is_ok_and(|found| found.is_none());
        (is_free && files.rename(path, &free).is_ok()).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_result_counts_only_with_its_iteration_and_nonce() {
        let dir = tempfile::tempdir().unwrap();
        let files = Folder::open(dir.path()).unwrap();
        let path = dir.path().join("worker_result.json");
        let read = || read_signed::<WorkerResult>(&files, &path, 4, "n1");
        assert!(read().is_none());
        let good = r#"{"iteration": 4, "nonce": "n1", "decision": "KEEP"}"#;
        for (text, why) in [
            (good.replace('4', "3"), "of iteration 3"),
            (good.replace("n1", "n0"), "nonce"),
            (good.replace("KEEP", "MAYBE"), "unknown variant"),
            (good.replace('}', ", \"x\": 1}"), "unknown field"),
            (good[..20].to_owned(), "EOF"),
            ("null".to_owned(), "invalid type"),
        ] {
            fs::write(&path, &text).unwrap();
            if why == "EOF" {
                assert!(read().is_none(), "it may be being written");
                let before = std::time::SystemTime::now() - Duration::from_secs(10);
                let file = fs::File::options().append(true).open(&path).unwrap();
                file.set_modified(before).unwrap();
            }
            let error = read().unwrap().unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        fs::write(&path, good).unwrap();
        assert_eq!(read().unwrap().unwrap().decision, Decision::Keep);
        assert_eq!(reject(&files, &path).as_deref(), Some("worker_result.rejected-1.json"));
        assert!(read().is_none());
    }

    #[test]
    fn reports_of_many_writers_are_all_counted() {
        let dir = tempfile::tempdir().unwrap();
        let files = &Folder::open(dir.path()).unwrap();
        let path = dir.path().join("worker_progress.json");
        std::thread::scope(|scope| {
            for time in 1..=30 {
                let path = &path;
                scope.spawn(move || {
                    let report = ProgressReport {
                        time_us: Some(f64::from(time)),
                        artifact: Some(format!("run-{time}")),
                        error: Some(format!("error {time}")),
                        ..ProgressReport::default()
                    };
                    add_progress(files, path, 4, &report).unwrap();
                });
            }
        });
        let progress: WorkerProgress = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        assert_eq!((progress.updates, progress.best_time_us), (30, Some(1.0)));
        assert_eq!(progress.best_artifact.as_deref(), Some("run-1"));
        assert_eq!(progress.errors.len(), 20);
    }

    #[test]
    fn a_document_tells_its_kind_and_its_fault() {
        let verdict = br#"{"iteration": 1, "nonce": "x", "verdict": "CONTINUE", "confidence": "low", "reason": ""}"#;
        assert_eq!(DocumentKind::guess(verdict), DocumentKind::Reviewer);
        assert_eq!(DocumentKind::Reviewer.fault(verdict), None);
        assert!(DocumentKind::Worker.fault(verdict).is_some());
    }
}
