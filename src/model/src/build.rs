//! `summary.json` of `rgpu build` (`rgpu.build/1`): the source, the compiler, the files it produced
//! and, if it failed, the likely cause. Paths are relative to the run folder.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::disasm::{self, Input};
use super::profile::{Artifact, CodeLanguage};

/// The schema name that every summary carries.
pub const SCHEMA: &str = "rgpu.build/1";

/// The result of one build.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Build {
    /// Name and version of this schema: `rgpu.build/1`.
    pub schema: String,
    /// The version of rgpu.
    pub rgpu: String,
    /// The id of the run.
    pub run: String,
    /// Name of the kernel, or the file name without its extension.
    pub kernel: String,
    /// Language of the source: `cuda`, `cute` or `triton`.
    pub language: CodeLanguage,
    /// Path of the source that was found.
    pub source: String,
    /// Architecture that the code was compiled for.
    pub arch: String,
    /// Whether the build succeeded.
    pub status: BuildStatus,
    /// Name of the compiler, with its version if known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub compiler: String,
    /// Compiler options in order: those of kernel.toml, then those of the command line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// Every compile command that was tried, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<Vec<String>>,
    /// Settings of the DSL's own log; absent for CUDA.
    pub log: Option<LogSettings>,
    /// PTX file of the first kernel.
    pub main_ptx: Option<String>,
    /// Files that the compiler produced.
    pub files: Vec<Artifact>,
    /// GPU code in these files: kernels with registers, stack and spills.
    pub code: Vec<Input>,
    /// Notes for the user.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The error; absent if the build succeeded.
    pub error: Option<BuildError>,
    /// Time that the compiler ran, in seconds.
    pub seconds: f64,
}

impl Build {
    /// Whether the compiled files were read, and hold no kernel.
    pub fn has_no_kernels(&self) -> bool {
        let mut images = self.code.iter().flat_map(|input| &input.images);
        !self.code.is_empty()
            && self.code.iter().all(|input| input.status == disasm::ReadStatus::Ok)
            && images.all(|image| image.kernels.is_empty() && image.entries.is_empty())
    }

    /// Whether nvcc was taken from NVIDIA's wheels, fetched for the build.
    pub fn by_wheels(&self) -> bool {
        self.commands.iter().flatten().any(|word| word.ends_with("/wheel_tool.py"))
    }

    /// Whether NVRTC compiled it, so that the host has no nvcc.
    pub fn by_nvrtc(&self) -> bool {
        self.commands.iter().any(|words| words.get(1).is_some_and(|word| word == "nvrtc"))
    }
}

/// Whether a build succeeded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BuildStatus {
    /// All parts were compiled.
    #[default]
    Done,
    /// Something was not compiled.
    Failed,
}

/// Settings of a DSL's own log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogSettings {
    /// Log level as in Python's `logging` (10: everything); absent if it was not changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<u32>,
    /// Whether the DSL printed its IR.
    pub print_ir: bool,
}

/// Why a build failed.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BuildError {
    /// Stable code of the failure, e.g. `does_not_compile`.
    pub code: String,
    /// Class of the exception; absent for compilers without exceptions.
    pub class: Option<String>,
    /// The compiler's own message.
    pub message: String,
    /// The exceptions that led to it, the first cause first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chain: Vec<ErrorLink>,
    /// The file with the full traceback.
    pub traceback: Option<String>,
    /// Known messages found in the log, each with its meaning.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub diagnoses: Vec<Diagnosis>,
}

/// One exception in a chain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorLink {
    /// Class of the exception.
    pub class: String,
    /// Message of the exception.
    pub message: String,
}

/// A known message in the log, with its meaning.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Diagnosis {
    /// Source of the message: `cute`, `triton`, `mlir`, `ptxas`, `nvcc`, `python`.
    pub who: String,
    /// The log line that contains it.
    pub line: String,
    /// The likely cause of the message.
    pub cause: String,
    /// The next step for the user.
    pub next: String,
}
