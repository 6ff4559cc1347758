//! Profilers that a provider runs on its own machines, for counters that a workspace may not read
//! itself.

use std::path::Path;
use std::time::Duration;

use super::{RemoteError, Submission, UserPrompt};

/// Bytes of the output that are kept, from its end.
pub const MAX_OUTPUT_BYTES: usize = 1 << 20;

/// A program that the provider profiles.
#[derive(Clone)]
pub struct ProviderJob {
    /// The plan whose files must be in the working folder.
    pub files: Submission,
    /// Further folders that must exist there.
    pub folders: Vec<String>,
    /// The program and its arguments; paths are relative to the working folder.
    pub program: Vec<String>,
    /// The profiler's own arguments, except those for the report's path.
    pub arguments: Vec<String>,
    /// The limit on its running time.
    pub limit: Duration,
    /// The limit on its wait for a GPU.
    pub queue: Duration,
}

/// The result of a provider's run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProviderResult {
    /// The profiler's exit status, if the provider reported it.
    pub exit: Option<i32>,
    /// The end of the output of the profiler and the program.
    pub output: String,
    /// Whether the report was written to the requested path.
    pub report: bool,
    /// Further notes, e.g. the GPU that the provider used.
    pub notes: Vec<String>,
}

/// A platform's own Nsight Compute.
#[async_trait::async_trait]
pub trait ProviderNcu: Send + Sync {
    /// A display name: "Wafer's own ncu".
    fn called(&self) -> &'static str;

    /// Profiles a program and writes the report to `report`. Cancel-safe on this side, but the run
    /// may continue: no known provider can stop it.
    ///
    /// # Errors
    /// The link fails, or the provider refuses; then there is no file at `report`.
    async fn profile(
        &self,
        job: &ProviderJob,
        report: &Path,
        user_prompt: &dyn UserPrompt,
    ) -> Result<ProviderResult, RemoteError>;
}
