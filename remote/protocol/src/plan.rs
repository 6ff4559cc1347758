//! A plan: steps in order, each with a ladder of rungs, as data.
//!
//! The laptop writes plans, the agent carries them out. Nothing here is a shell string: argv are
//! arrays, paths are relative to the job's own folder, secrets are names whose values travel in an
//! unlogged message ([`crate::ToAgent::Submit`]).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{BLOB_BYTES, Diagnosis, Digest, Pattern};

/// One thing to carry out on a GPU host. A run is one plan or several, in sequence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Plan {
    /// The job's name on the host: `<run id>.<sequence>`, see [`valid_job_id`].
    pub job: String,
    /// What the user sees in lists: "profile vecadd (ncu)".
    pub title: String,
    /// The facts this plan was made from ([`crate::HostFacts::key`]); a host that has changed
    /// answers `facts_changed` instead of running. `None` for plans that need no facts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub facts: Option<String>,
    /// What must lie in the job's folder before the first step.
    #[serde(default)]
    pub files: Vec<InputFile>,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// The GPU to lock from the first to the last step that needs one; `None`: no step does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuRequest>,
    /// Environment of every step, over the agent's allow-list.
    #[serde(default)]
    pub env: BTreeMap<String, Arg>,
    /// Names of secret variables of every step; values are masked wherever output is kept.
    #[serde(default)]
    pub secrets: Vec<String>,
    /// Time and size limits of the whole job.
    #[serde(default)]
    pub limits: Limits,
    /// The command that made it: the agent keeps it for a client that takes the job up without the
    /// run's folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
}

/// The command that a plan was made by, as the run's record has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Origin {
    /// The run's id.
    pub run: String,
    /// RFC 3339, UTC, by the client's clock.
    pub started: String,
    /// `profile`, `exec` …
    pub command: String,
    /// What lists of runs say: "profile vecadd (ncu)".
    pub title: String,
    /// The command line as typed, secrets removed.
    pub argv: Vec<String>,
    /// `ncu`, `nsys` …; empty for commands without modes.
    pub mode: String,
    /// The kernel's or program's name.
    pub kernel: String,
    /// The user's labels.
    pub labels: BTreeMap<String, String>,
    /// The user's note.
    pub note: String,
}

/// A file of the bundle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InputFile {
    /// Where it goes, relative to the job's folder; never absolute, no `..`.
    pub path: String,
    /// Bytes.
    pub size: u64,
    /// sha256 of the whole file.
    pub digest: Digest,
    /// sha256 of each piece; a single piece has the file's own digest.
    pub blobs: Vec<Digest>,
    /// Bytes of each piece but the last, at most [`crate::BLOB_BYTES`], which is what they were
    /// before this was said.
    #[serde(default = "blob_bytes")]
    pub piece_bytes: u64,
    /// Whether it may be executed.
    #[serde(default)]
    pub executable: bool,
}

fn blob_bytes() -> u64 {
    BLOB_BYTES
}

/// A piece of a file of the bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputPiece<'a> {
    /// sha256.
    pub digest: &'a Digest,
    /// Its first byte's place in the file.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

impl InputFile {
    /// The pieces, in order. An empty file has one empty piece, or none.
    pub fn pieces(&self) -> impl Iterator<Item = InputPiece<'_>> {
        self.blobs.iter().zip(0_u64..).map(|(digest, i)| {
            let offset = i.saturating_mul(self.piece_bytes);
            let len = self.size.saturating_sub(offset).min(self.piece_bytes);
            InputPiece { digest, offset, len }
        })
    }
}

/// One step: a ladder of at least one rung.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Step {
    /// Unique in the plan, a file-name-safe word: `build`, `verify`, `profile`. Logs are named
    /// after it.
    pub id: String,
    /// What progress shows.
    pub title: String,
    /// Whether the GPU lock must be held.
    #[serde(default)]
    pub gpu: bool,
    /// Steps that must have ended well; otherwise this one is skipped.
    #[serde(default)]
    pub needs: Vec<String>,
    /// What a failure of this step means for the steps after it.
    #[serde(default)]
    pub on_failure: OnFailure,
    /// Seconds each rung may take.
    pub timeout_s: u64,
    /// What the program reads on standard input.
    #[serde(default)]
    pub stdin: Stdin,
    /// The rungs from best to last. The first whose `needs` hold is tried first.
    pub rungs: Vec<Rung>,
}

/// What happens to the job when a step fails on its last rung.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// The job ends with this failure.
    #[default]
    Stop,
    /// Later steps go on (but for those that need this one).
    Continue,
}

/// Standard input of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stdin {
    /// Nothing.
    #[default]
    Null,
    /// What the client sends in [`crate::ToAgent::Stdin`].
    Client,
    /// The same, through a terminal of the host's that is the program's standard output and
    /// standard error too.
    Terminal {
        /// Lines it shows.
        rows: u16,
        /// Characters in a line.
        cols: u16,
    },
}

/// One way to carry out a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Rung {
    /// Stable id: `ncu.asked`, `nsys.cuda`, `host` …
    pub id: String,
    /// Files that must exist on the host (absolute) or in the job's folder (relative) for this
    /// rung to be tried at all; otherwise it is passed over with the reason `missing`.
    #[serde(default)]
    pub needs: Vec<String>,
    /// Program and arguments. The program is an absolute path, a name found on PATH, or a file of
    /// the job's folder.
    pub argv: Vec<Arg>,
    /// Further environment.
    #[serde(default)]
    pub env: BTreeMap<String, Arg>,
    /// Working folder, relative to the job's; empty: the job's own.
    #[serde(default)]
    pub cwd: String,
    /// What success looks like.
    #[serde(default)]
    pub success: Success,
    /// What the tool's words mean, searched from the first row on, whatever the exit status.
    #[serde(default)]
    pub diagnosis: Vec<Diagnosis>,
    /// Files to bring back when this rung was run, whether it succeeded or not.
    #[serde(default)]
    pub artifacts: Vec<ArtifactSpec>,
    /// What a user loses on this rung against the one above, in words; empty for the first.
    #[serde(default)]
    pub loses: String,
}

/// An argument or a variable's value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Arg {
    /// Taken as it is.
    Text(String),
    /// `prefix` and then the absolute path of a file in the job's folder.
    InJob {
        /// What stands before the path, e.g. `--out=`.
        #[serde(default)]
        prefix: String,
        /// Path relative to the job's folder; empty: the folder itself.
        in_job: String,
    },
}

impl Arg {
    /// A plain word.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// The absolute path of `path` in the job's folder.
    pub fn in_job(path: impl Into<String>) -> Self {
        Self::InJob { prefix: String::new(), in_job: path.into() }
    }

    /// The word with `folder` in the place of the job's folder.
    pub fn resolve(&self, folder: &str) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::InJob { prefix, in_job } if in_job.is_empty() => format!("{prefix}{folder}"),
            Self::InJob { prefix, in_job } => format!("{prefix}{folder}/{in_job}"),
        }
    }
}

impl From<&str> for Arg {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

impl From<String> for Arg {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// What success of a rung looks like to the agent: cheap signs only. The laptop, which imports
/// what came back, has the last word.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Success {
    /// Exit statuses that may be a success; empty: any.
    #[serde(default = "zero")]
    pub exit: Vec<i32>,
    /// Files of the job's folder that must be there and not empty; one `*` may stand in a name for
    /// what is not known before, such as a process id: then one file that fits is enough.
    #[serde(default)]
    pub files: Vec<String>,
    /// Patterns of which each must occur in the output.
    #[serde(default)]
    pub prints: Vec<Pattern>,
}

fn zero() -> Vec<i32> {
    vec![0]
}

impl Default for Success {
    fn default() -> Self {
        Self { exit: zero(), files: Vec::new(), prints: Vec::new() }
    }
}

/// Files to bring back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ArtifactSpec {
    /// A path in the job's folder; `*` stands for any characters but `/`, `**` for any.
    pub path: String,
    /// What it is: a kind that the laptop's importers know (`ncu_rep`, `nsys_sqlite`, `cubin` …).
    pub kind: String,
}

/// The kind of files that the user asked for by name (`rgpu exec --pull`): they are announced even
/// where their program was cancelled, or its supervisor died.
pub const PULLED: &str = "pulled";

/// Which GPU, and how it may be shared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GpuRequest {
    /// Which one.
    pub choice: GpuChoice,
    /// How many of those that fit, all at once.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub count: u32,
    /// Run although processes of others are on it.
    #[serde(default)]
    pub share: bool,
    /// The host's GPUs as the laptop knows them: index order, UUIDs.
    pub known: Vec<KnownGpu>,
    /// argv that lists compute processes as `uuid, pid, name, memory` lines (nvidia-smi's
    /// `--query-compute-apps` CSV); empty: foreign processes cannot be told.
    #[serde(default)]
    pub processes: Vec<String>,
}

fn one() -> u32 {
    1
}

fn is_one(count: &u32) -> bool {
    *count == 1
}

/// A GPU as [`GpuRequest`] lists it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KnownGpu {
    /// The driver's index.
    pub index: u32,
    /// `GPU-…` or `MIG-…`.
    pub uuid: String,
    /// e.g. `NVIDIA H200`.
    pub name: String,
}

/// The user's `--gpu`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GpuChoice {
    /// The first free one.
    #[default]
    Any,
    /// The driver's index.
    Index(u32),
    /// A UUID, whole or as a unique prefix.
    Uuid(String),
    /// Part of a name, case-insensitive.
    Name(String),
}

/// Limits of a whole job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Limits {
    /// Seconds to wait for the GPU.
    pub queue_s: u64,
    /// Seconds the job lives without a renewal from its client.
    pub lease_s: u64,
    /// Bytes kept of each output stream of each step.
    pub log_bytes: u64,
    /// Seconds for which the results stay on the host, or until they are fetched.
    pub keep_s: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { queue_s: 30 * 60, lease_s: 10 * 60, log_bytes: 1 << 30, keep_s: 7 * 24 * 3600 }
    }
}

/// Whether `id` may be a job's name: 1 to 120 of `a-z A-Z 0-9 . _ -`, not beginning with `.` or
/// `-`. It becomes a folder's name on the host.
pub fn valid_job_id(id: &str) -> bool {
    (1..=120).contains(&id.len())
        && !id.starts_with(['.', '-'])
        && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

/// Whether `path` stays inside the folder it is relative to: no root, no `..`, no empty or `.`
/// parts, no control characters, at most 1,024 bytes.
pub fn valid_relative_path(path: &str) -> bool {
    path.len() <= 1024
        && !path.chars().any(char::is_control)
        && !path.contains('\\')
        && path.split('/').all(|part| !matches!(part, "" | "." | "..") && part.len() <= 255)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_leave_the_folder_are_refused() {
        for good in ["a", "raw/report.ncu-rep", "a..b/c"] {
            assert!(valid_relative_path(good), "{good}");
        }
        for bad in ["", "/etc/passwd", "a/../b", "..", "./a", "a//b", "a/", "a\nb", "a\0b", "a\\b"]
        {
            assert!(!valid_relative_path(bad), "{bad:?}");
        }
    }

    #[test]
    fn job_ids_are_file_names() {
        assert!(valid_job_id("20261120-101502-vecadd-3f2a.1"));
        for bad in ["", "-x", ".x", "a/b", "a b", &"x".repeat(121)] {
            assert!(!valid_job_id(bad), "{bad:?}");
        }
    }

    #[test]
    fn words_are_plain_text_or_paths_in_the_job() {
        let words: Vec<Arg> =
            serde_json::from_str(r#"["-o", {"in_job":"raw/r"}, {"prefix":"--x=","in_job":""}]"#)
                .unwrap();
        let resolved: Vec<_> = words.iter().map(|w| w.resolve("/j")).collect();
        assert_eq!(resolved, ["-o", "/j/raw/r", "--x=/j"]);
    }
}
