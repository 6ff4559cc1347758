//! `summary.json` of `rgpu build` (`rgpu.build/1`): what was compiled, with what, what came of it,
//! and where it failed, what that most likely means. Paths are relative to the run folder.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::disasm::Input;
use super::profile::Artifact;

/// The schema's name.
pub const SCHEMA: &str = "rgpu.build/1";

/// One build.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Build {
    /// `rgpu.build/1`.
    pub schema: String,
    /// Version of rgpu.
    pub rgpu: String,
    /// The run's id.
    pub run: String,
    /// The kernel's name, or the file's without its extension.
    pub kernel: String,
    /// `cuda`, `cute` or `triton`.
    pub language: String,
    /// The source, as found.
    pub source: String,
    /// The architecture compiled for.
    pub arch: String,
    /// How it ended.
    pub status: Status,
    /// Which compiler, with its version where that is known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub compiler: String,
    /// Options of the compiler, in order: kernel.toml's and the command line's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// Every command that was tried, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<Vec<String>>,
    /// How the DSL's own log was set; absent for CUDA.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<LogSettings>,
    /// The PTX of the (first) kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub main_ptx: Option<String>,
    /// Files that the compiler left.
    pub files: Vec<Artifact>,
    /// What they hold: kernels with registers, stack and spills.
    pub code: Vec<Input>,
    /// What the user should know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<BuildError>,
    /// Seconds the compiler ran.
    pub seconds: f64,
}

impl Build {
    /// Whether nvcc was fetched for it.
    pub fn by_wheels(&self) -> bool {
        self.commands.iter().flatten().any(|word| word.ends_with("/wheel_tool.py"))
    }
}

/// How a build ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Everything was compiled.
    #[default]
    Done,
    /// Something was not.
    Failed,
}

/// How a DSL's own log was set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogSettings {
    /// The level, as Python counts them (10: all); absent where it was left alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<u32>,
    /// The DSL printed its IR.
    pub print_ir: bool,
}

/// A failed build.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BuildError {
    /// The stable code of the failure, e.g. `does_not_compile`.
    pub code: String,
    /// The class of the exception; absent for compilers that have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// The compiler's own words.
    pub message: String,
    /// The exceptions behind it, the first cause first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chain: Vec<ErrorLink>,
    /// The file with the whole traceback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceback: Option<String>,
    /// What a known message means.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub diagnoses: Vec<Diagnosis>,
}

/// One exception of a chain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorLink {
    /// Its class.
    pub class: String,
    /// Its words.
    pub message: String,
}

/// A known message and what it means.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Diagnosis {
    /// Who says it: `cute`, `triton`, `mlir`, `ptxas`, `nvcc`, `python`.
    pub who: String,
    /// The line of the log it was found in.
    pub line: String,
    /// The likely cause.
    pub cause: String,
    /// The next step.
    pub next: String,
}
