//! Profilers that a platform runs itself, on a machine of its own: what a workspace may not do for
//! itself, its provider may still do for it.

use std::path::Path;
use std::time::Duration;

use super::{RemoteError, Submission, UserPrompt};

/// Bytes of its output that are kept, from the end.
pub const MAX_OUTPUT_BYTES: usize = 1 << 20;

/// A program to be run under a profiler elsewhere.
#[derive(Clone)]
pub struct ProviderJob {
    /// The files that must lie in its folder: those of this plan.
    pub files: Submission,
    /// Folders that must be there besides.
    pub folders: Vec<String>,
    /// The program and its arguments; paths are relative to the folder.
    pub program: Vec<String>,
    /// The profiler's own arguments, without those that say where the report goes.
    pub arguments: Vec<String>,
    /// How long it may run.
    pub limit: Duration,
    /// How long it may wait for a GPU.
    pub queue: Duration,
}

/// What became of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProviderResult {
    /// The profiler's exit status, where it was told.
    pub exit: Option<i32>,
    /// What profiler and program printed, its end.
    pub output: String,
    /// Whether a report lies where it was asked to.
    pub report: bool,
    /// What else is known: which GPU of the platform's, for instance.
    pub notes: Vec<String>,
}

/// A platform's own Nsight Compute.
#[async_trait::async_trait]
pub trait ProviderNcu: Send + Sync {
    /// Whose it is, in words: "Wafer's own ncu".
    fn called(&self) -> &'static str;

    /// Runs a program under it, and puts the report to `report`. Cancel-safe here, but what was
    /// begun there may go on: the platforms known have no way to stop it.
    ///
    /// # Errors
    /// The link, or a refusal: then nothing lies at `report`.
    async fn profile(
        &self,
        job: &ProviderJob,
        report: &Path,
        talk: &dyn UserPrompt,
    ) -> Result<ProviderResult, RemoteError>;
}
