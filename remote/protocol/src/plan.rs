//! Plans: ordered steps, each with a ladder of rungs, as data.
//!
//! The laptop writes plans and the agent carries them out. Nothing here is a shell string: argv is
//! an array, paths are relative to the job's own folder, and secrets are names whose values travel
//! in an unlogged message ([`crate::ToAgent::Submit`]).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{BLOB_BYTES, DiagnosisRule, Digest, Pattern};

/// One job for a GPU host. A run is one plan or several, in sequence.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Plan {
    /// The job's name on the host, `<run id>.<sequence>`; see [`valid_job_id`].
    pub job: String,
    /// Title for lists of jobs: "profile vecadd (ncu)".
    pub title: String,
    /// Key of the facts this plan was made from ([`crate::HostFacts::key`]). If the host has
    /// changed, it answers `facts_changed` instead of running. `None` for plans that need no facts.
    pub facts: Option<String>,
    /// Input files that must be in the job's folder before the first step.
    #[serde(default)]
    pub files: Vec<InputFile>,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// The GPU to lock from the first to the last step that needs one. `None` if no step does.
    pub gpu: Option<GpuRequest>,
    /// Environment of every step, on top of the variables that the agent passes on.
    #[serde(default)]
    pub env: BTreeMap<String, Arg>,
    /// Names of the secret variables of every step. Their values are masked wherever output is
    /// kept.
    #[serde(default)]
    pub secrets: Vec<String>,
    /// Time and size limits of the whole job.
    #[serde(default)]
    pub limits: Limits,
    /// The command that made the plan. The agent keeps it for clients that attach without the run's
    /// folder.
    pub origin: Option<Origin>,
}

/// The command that a plan was made from, as in the run's record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Origin {
    /// The id of the run.
    pub run: String,
    /// Start of the run by the client's clock, RFC 3339, UTC.
    pub started: String,
    /// The subcommand: `profile`, `exec` …
    pub command: String,
    /// The run's title in lists: "profile vecadd (ncu)".
    pub title: String,
    /// The command line as typed, secrets removed.
    pub argv: Vec<String>,
    /// `ncu`, `nsys` …; empty for commands without modes.
    pub mode: String,
    /// The kernel's or program's name.
    pub kernel: String,
    /// Labels of `--label KEY=VALUE`, by key.
    pub labels: BTreeMap<String, String>,
    /// The text of `--note`.
    pub note: String,
}

/// An input file of the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InputFile {
    /// Path relative to the job's folder; never absolute, no `..`.
    pub path: String,
    /// Size in bytes.
    pub size: u64,
    /// sha256 of the whole file.
    pub digest: Digest,
    /// sha256 of each piece. The digest of a single piece is the file's own.
    pub blobs: Vec<Digest>,
    /// Bytes of each piece but the last, at most [`crate::BLOB_BYTES`]. Plans from before this
    /// field use [`crate::BLOB_BYTES`].
    #[serde(default = "blob_bytes")]
    pub piece_bytes: u64,
    /// Whether the file is made executable.
    #[serde(default)]
    pub executable: bool,
}

fn blob_bytes() -> u64 {
    BLOB_BYTES
}

/// A piece of an input file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputPiece<'a> {
    /// sha256 of the piece.
    pub digest: &'a Digest,
    /// Offset of its first byte in the file.
    pub offset: u64,
    /// Length of the piece in bytes.
    pub len: u64,
}

impl InputFile {
    /// Returns the pieces, in order. An empty file has one empty piece, or none.
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
    /// Unique in the plan and safe as a file name: `build`, `verify`, `profile`. Logs are named
    /// after it.
    pub id: String,
    /// Title for progress displays.
    pub title: String,
    /// Whether the step runs under the GPU lock.
    #[serde(default)]
    pub gpu: bool,
    /// Steps that must have succeeded; otherwise this one is skipped.
    #[serde(default)]
    pub needs: Vec<String>,
    /// The effect on the job when this step fails.
    #[serde(default)]
    pub on_failure: OnFailure,
    /// Time limit of each rung, in seconds.
    pub timeout_s: u64,
    /// Most bytes that the programs of this step may print to each stream. One that prints more is
    /// ended, and the step fails with the code `too_much_output`. Absent: output beyond the plan's
    /// limit is dropped, and the program goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_bytes: Option<u64>,
    /// Where the program's standard input comes from.
    #[serde(default)]
    pub stdin: Stdin,
    /// The rungs from best to last. The first whose `needs` are met is tried first.
    pub rungs: Vec<Rung>,
}

impl Step {
    /// The code of a step whose program printed more than [`Step::max_output_bytes`].
    pub const TOO_MUCH_OUTPUT: &str = "too_much_output";
    /// Most bytes of each stream of a helper: a compiler, an installer, a disassembler.
    pub const MAX_HELPER_OUTPUT_BYTES: u64 = 64 << 20;
}

/// The effect on the job when a step fails on its last rung.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// The job ends with this failure.
    #[default]
    Stop,
    /// Later steps still run, except those that need this one.
    Continue,
}

/// Source of a step's standard input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stdin {
    /// Standard input is empty.
    #[default]
    Null,
    /// Bytes from the client, sent with [`crate::ToAgent::Stdin`].
    Client,
    /// As `Client`, but through a pseudoterminal on the host, which is the program's standard
    /// output and standard error too.
    Terminal {
        /// Height in lines.
        rows: u16,
        /// Width in characters.
        cols: u16,
    },
}

/// One way to carry out a step.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Rung {
    /// Stable id: `ncu.asked`, `nsys.cuda`, `host` …
    pub id: String,
    /// Files that must exist on the host (absolute) or in the job's folder (relative). If one is
    /// missing, the rung is skipped with the reason `missing`.
    #[serde(default)]
    pub needs: Vec<String>,
    /// Program and arguments. The program is an absolute path, a name found on PATH, or a file in
    /// the job's folder.
    pub argv: Vec<Arg>,
    /// Environment of this rung; it overrides the plan's.
    #[serde(default)]
    pub env: BTreeMap<String, Arg>,
    /// Working folder, relative to the job's folder; empty: the job's folder itself.
    #[serde(default)]
    pub cwd: String,
    /// The agent's test for success.
    #[serde(default)]
    pub success: Success,
    /// Known messages of the tool. The first matching row counts, whatever the exit status.
    #[serde(default)]
    pub diagnosis: Vec<DiagnosisRule>,
    /// Files to fetch after this rung has run, whether it succeeded or not.
    #[serde(default)]
    pub artifacts: Vec<ArtifactSpec>,
    /// The data that better rungs have and this one lacks, in words; empty if none.
    #[serde(default)]
    pub loses: String,
    /// When the program is stopped, if it does not end before.
    pub stop: Option<Stop>,
    /// When the program counts as hung, and what is then looked at.
    pub hang: Option<HangDetection>,
}

/// When the program of a rung counts as hung: it has printed nothing for a time. Its ranks and
/// their stacks are written to a file and it is stopped as by Ctrl-C, while the tool around it
/// continues. No lower rung is tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HangDetection {
    /// Seconds without output of the program or the tool.
    pub quiet_s: u64,
    /// Names of the tool's own processes, as the kernel cuts them (15 bytes); all others are
    /// stopped.
    #[serde(default)]
    pub spare: Vec<String>,
    /// The file with the stacks, in the job's folder.
    pub file: String,
    /// Environment variables with the number of a process's rank; the first that is set counts.
    #[serde(default)]
    pub rank_variables: Vec<String>,
    /// Commands that print the stack of a process, best first; the first that succeeds counts.
    /// [`HangDetection::PID`] stands for the process id.
    #[serde(default)]
    pub stacks: Vec<Vec<String>>,
    /// Words of a line of a stack that names what the process last called, in lower case. The first
    /// such line is in the warning.
    #[serde(default)]
    pub calls: Vec<String>,
}

impl HangDetection {
    /// Stands for the process id.
    pub const PID: &str = "{pid}";
    /// The code of the warning, the note and the failure.
    pub const CODE: &str = "hung";
}

/// When the program of a rung is stopped as by Ctrl-C. The tool around it continues until its
/// report is written, and the rung is judged without its exit status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Stop {
    /// Seconds after the start of the rung.
    pub after_s: u64,
    /// Names of the tool's own processes, as the kernel cuts them (15 bytes); all others are
    /// stopped.
    #[serde(default)]
    pub spare: Vec<String>,
}

/// An argument, or the value of an environment variable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Arg {
    /// Literal text.
    Text(String),
    /// `prefix` followed by the absolute path of a file in the job's folder.
    InJob {
        /// Text before the path, e.g. `--out=`.
        #[serde(default)]
        prefix: String,
        /// Path relative to the job's folder; empty: the folder itself.
        in_job: String,
    },
}

impl Arg {
    /// An argument that is passed as it is.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// The absolute path of `path` in the job's folder.
    pub fn in_job(path: impl Into<String>) -> Self {
        Self::InJob { prefix: String::new(), in_job: path.into() }
    }

    /// Returns the argument's text, with `folder` as the job's folder.
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

/// When the agent counts a rung as a success. These are cheap checks; the laptop makes the final
/// decision after it has imported the results.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Success {
    /// Exit statuses that count as success; empty: any.
    #[serde(default = "zero")]
    pub exit: Vec<i32>,
    /// Files in the job's folder that must exist and not be empty. A name may hold one `*` for an
    /// unknown part, such as a process id; then one matching file is enough.
    #[serde(default)]
    pub files: Vec<String>,
    /// Patterns that must all occur in the output.
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

/// The files of a step to fetch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ArtifactSpec {
    /// Path in the job's folder; `*` matches any characters but `/`, `**` matches any.
    pub path: String,
    /// The artifact's kind, which the laptop's importers know: `ncu_rep`, `nsys_sqlite`, `cubin` …
    pub kind: String,
}

/// The kind of files that the user named with `rgpu exec --pull`. They are announced even if their
/// program was cancelled or its supervisor died.
pub const PULLED: &str = "pulled";

/// Which GPUs a plan needs, and whether it may share them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GpuRequest {
    /// The GPUs that qualify.
    pub choice: GpuChoice,
    /// How many of them to lock, all at once.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub count: u32,
    /// Whether to run even if other users' processes are on the GPU.
    #[serde(default)]
    pub share: bool,
    /// The host's GPUs as the laptop knows them, in index order.
    pub known: Vec<KnownGpu>,
    /// argv of a command that lists compute processes as `uuid, pid, name, memory` lines
    /// (nvidia-smi's `--query-compute-apps` CSV). Empty: other users' processes cannot be detected.
    #[serde(default)]
    pub processes: Vec<String>,
    /// A change of each locked GPU while the job holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setting: Option<GpuSetting>,
}

/// A change of each locked GPU, from before the first step that uses it until the GPU is given
/// back. [`GpuSetting::UUID`] in a word stands for the GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GpuSetting {
    /// argv of the command that makes the change. If it fails, no step runs on the GPU.
    pub apply: Vec<String>,
    /// argv of the command that undoes it, however the job ends.
    pub undo: Vec<String>,
}

impl GpuSetting {
    /// Stands for the UUID of the GPU in a command.
    pub const UUID: &'static str = "{uuid}";

    /// The code of a job that ended because [`GpuSetting::apply`] failed.
    pub const REFUSED: &'static str = "gpu_setting_refused";
}

fn one() -> u32 {
    1
}

fn is_one(count: &u32) -> bool {
    *count == 1
}

/// A GPU in [`GpuRequest::known`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KnownGpu {
    /// Index in `nvidia-smi`, from 0.
    pub index: u32,
    /// `GPU-…` or `MIG-…`.
    pub uuid: String,
    /// Product name, e.g. `NVIDIA H200`.
    pub name: String,
}

/// The GPU that the user asked for with `--gpu`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GpuChoice {
    /// The first free GPU.
    #[default]
    Any,
    /// Index in `nvidia-smi`, from 0.
    Index(u32),
    /// A full UUID or a unique prefix of one.
    Uuid(String),
    /// Part of a name, case-insensitive.
    Name(String),
}

impl GpuChoice {
    /// Whether a GPU with this index, UUID and name qualifies.
    pub fn allows(&self, index: u32, uuid: &str, name: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Index(asked) => index == *asked,
            Self::Uuid(start) => uuid.starts_with(start.as_str()),
            Self::Name(part) => name.to_lowercase().contains(&part.to_lowercase()),
        }
    }
}

/// Limits of a whole job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Limits {
    /// Longest wait for the GPU, in seconds.
    pub queue_s: u64,
    /// How long the job runs without a renewal from its client, in seconds.
    pub lease_s: u64,
    /// Bytes kept of each output stream of each step.
    pub log_bytes: u64,
    /// How long the results stay on the host if nobody fetches them, in seconds.
    pub keep_s: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { queue_s: 30 * 60, lease_s: 10 * 60, log_bytes: 1 << 30, keep_s: 7 * 24 * 3600 }
    }
}

/// Returns whether `id` is a valid job name: 1 to 120 of `a-z A-Z 0-9 . _ -`, not beginning with
/// `.` or `-`. It becomes a folder name on the host.
pub fn valid_job_id(id: &str) -> bool {
    (1..=120).contains(&id.len())
        && !id.starts_with(['.', '-'])
        && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

/// Returns whether `path` stays inside the folder it is relative to: no root, no `..`, no empty or
/// `.` parts, no control characters, at most 1,024 bytes.
pub fn valid_relative_path(path: &str) -> bool {
    path.len() <= 1024
        && !path.chars().any(|c| c.is_control() || reorders_text(c))
        && !path.contains('\\')
        && path.split('/').all(|part| !matches!(part, "" | "." | "..") && part.len() <= 255)
}

/// Returns whether a character begins or ends an embedding, override or isolate of text direction:
/// it reorders the text after it, so that a name looks like another one.
pub fn reorders_text(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
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
        assert!(!valid_relative_path("a\u{202e}gpj.exe") && valid_relative_path("\u{200f}\u{5d0}"));
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
