//! `rgpu schema`: prints the JSON Schemas of rgpu's documents, and checks a file against one.

#![expect(clippy::disallowed_methods, reason = "the document that the user named")]

mod check;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde::Serialize;
use serde_json::Value;

use super::support::app::{App, Status};
use super::support::missing;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_model::regular_file::{self, MAX_TOML_BYTES};
use rgpu_model::toml_error;

/// Print the JSON Schema of a document that rgpu writes, or check a file against it
///
/// The schemas of kernel.toml, rgpu.toml, bench.toml and loop.toml are for editors: a first line
/// `#:schema FILE|URL` names one.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = examples!(
    "rgpu schema profile",
    "rgpu schema profile --check profile.json",
    "rgpu schema kernel-toml --check kernel.toml",
))]
pub(super) struct SchemaArgs {
    /// Which document
    #[arg(value_enum)]
    pub name: SchemaName,

    /// Check this file instead: prints one line per violation and exits with 7 if there are any;
    /// with --json they are the cause of the failure
    #[arg(long, value_name = "FILE")]
    pub check: Option<PathBuf>,
}

/// Each schema is a file in `schemas/` of this name. `cargo xtask schemas` makes the files from the
/// types of the documents (`documents.rs`).
macro_rules! schemas {
    ($($(#[$meaning:meta])* $variant:ident = $name:literal,)+) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
        pub(super) enum SchemaName {
            $($(#[$meaning])* #[value(name = $name)] $variant,)+
        }

        impl SchemaName {
            /// The name on the command line and of the file.
            pub(super) fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// The JSON Schema as text.
            pub(super) fn text(self) -> &'static str {
                match self {
                    $(Self::$variant => {
                        include_str!(concat!("../../schemas/", $name, ".json"))
                    })+
                }
            }
        }
    };
}

schemas! {
    /// profile.json
    Profile = "profile",
    /// run.json
    Run = "run",
    /// env.json
    Env = "env",
    /// inputs.json
    Inputs = "inputs",
    /// hotspots.json
    Hotspots = "hotspots",
    /// trace.json
    Trace = "trace",
    /// compare.json
    Compare = "compare",
    /// fan-out.json: the result of `profile` on several remotes
    FanOut = "fan-out",
    /// regions/report.json and regions/<region>/region.json
    Regions = "regions",
    /// plan-N.json
    Plan = "plan",
    /// summary.json of disasm
    Disasm = "disasm",
    /// Output of disasm --view --json
    Code = "code",
    /// Output of disasm --diff --json
    DisasmDiff = "disasm-diff",
    /// summary.json of build
    Build = "build",
    /// Output of layout … --json
    Layout = "layout",
    /// Output of layout dump --json, and layouts.json
    LayoutDump = "layout-dump",
    /// A snapshot of layouts
    LayoutSnapshot = "layout-snapshot",
    /// Output of exec --json
    Exec = "exec",
    /// Output of remote list, add, default and remove with --json
    Remotes = "remotes",
    /// Output of remote check --json
    Host = "host",
    /// Output of doctor --json
    Doctor = "doctor",
    /// Output of doctor --collectives --json
    Collectives = "collectives",
    /// Output of remote up and down with --json
    Rental = "rental",
    /// Output of remote login --json
    Login = "login",
    /// Output of kernels list --json
    Kernels = "kernels",
    /// Output of kernels show --json
    Kernel = "kernel",
    /// Output of runs list --json
    Runs = "runs",
    /// Output of runs list --remote --json
    Jobs = "jobs",
    /// Output of cache show --json
    Cache = "cache",
    /// Output of runs clean --json
    Cleaned = "cleaned",
    /// Output of runs export --json
    Exported = "exported",
    /// suite.json: the result of a suite
    Suite = "suite",
    /// Output of bench compare --json
    SuiteCompare = "suite-compare",
    /// Output of bench list --json
    Targets = "targets",
    /// Output of bench history --json
    History = "history",
    /// Output of bench audit --json
    Audit = "audit",
    /// expectations/<gpu>.json
    Expectations = "expectations",
    /// Output of runs reindex --json
    Reindexed = "reindexed",
    /// Output of queue … --json, except show and log
    Queue = "queue",
    /// Output of queue show and log with --json
    QueueEntry = "queue-entry",
    /// Output of loop start, resume, stop, status, best and report with --json, and control.json
    Loop = "loop",
    /// worker_result.json of a loop
    LoopWorker = "loop-worker",
    /// reviewer_verdict.json of a loop
    LoopReviewer = "loop-reviewer",
    /// Output of loop report-time --json
    LoopProgress = "loop-progress",
    /// Output of loop validate --json
    LoopCheck = "loop-check",
    /// Output of loop clean --json
    LoopPruned = "loop-pruned",
    /// Output of model hw list --json
    ModelGpus = "model-gpus",
    /// Output of model hw show --json
    ModelGpu = "model-gpu",
    /// Output of model hw check and model check --json
    ModelCheck = "model-check",
    /// Output of model kernel --json
    ModelKernel = "model-kernel",
    /// Output of model layer and llm --json
    ModelLlm = "model-llm",
    /// Output of model layer and llm --compare --json
    ModelComparison = "model-comparison",
    /// Output of model coll --json
    ModelCollective = "model-collective",
    /// Output of model import hf --json
    ModelConfig = "model-config",
    /// Output of model import --json; its rows are those of the CSV
    ModelImport = "model-import",
    /// Output of model fit --json
    ModelFit = "model-fit",
    /// Output of model reconcile --json
    ModelOperators = "model-operators",
    ModelReconcile = "model-reconcile",
    /// Output of model explain --json
    ModelTerms = "model-terms",
    /// Output of model import card --json
    ModelCard = "model-card",
    /// Output of dashboard export --json
    DashboardExport = "dashboard-export",
    /// Output of skill install --json
    Skill = "skill",
    /// kernel.toml
    KernelToml = "kernel-toml",
    /// A project's rgpu.toml
    RgpuToml = "rgpu-toml",
    /// bench.toml
    BenchToml = "bench-toml",
    /// loop.toml
    LoopToml = "loop-toml",
    /// A failure with --json
    Error = "error",
}

/// How many violations are shown.
const MAX_SHOWN_VIOLATIONS: usize = 50;

/// Prints a schema, or checks a file.
pub(super) fn run(app: &App, args: &SchemaArgs) -> Result<Status> {
    match &args.check {
        Some(path) => keeps(app, args.name, path),
        None => {
            app.print(args.name.text());
            Ok(0)
        }
    }
}

fn keeps(app: &App, name: SchemaName, path: &Path) -> Result<Status> {
    let is_toml = path.extension().is_some_and(|extension| extension == "toml");
    let max_bytes = if is_toml { MAX_TOML_BYTES } else { regular_file::MAX_FILE_BYTES };
    // It may be a pipe.
    let file = std::fs::File::open(path);
    let bytes = file.and_then(|file| regular_file::read_from(file, max_bytes));
    let bytes = bytes.map_err(|e| {
        let failure = Failure::new(Exit::Artifact, "unreadable", "the file cannot be read");
        missing::file_or(path, &e, failure)
    })?;
    let document: Value = (if is_toml {
        from_toml(&bytes).map_err(|cause| ("not_toml", "the file is not TOML", cause))
    } else {
        rgpu_run::saved_json::any_from_slice(&bytes)
            .map_err(|e| ("not_json", "the file is not JSON", e.to_string()))
    })
    .map_err(|(code, what, cause)| {
        Failure::new(Exit::Artifact, code, what).file(path.display()).cause(cause)
    })?;
    let schema: Value = serde_json::from_str(name.text()).map_err(|e| {
        Failure::new(Exit::Bug, "bug", "one of rgpu's schemas is not JSON").cause(e)
    })?;
    let found = check::violations(&schema, &document).map_err(|what| {
        let problem = "one of rgpu's schemas has a keyword that the checker does not know";
        Failure::new(Exit::Bug, "bug", problem).cause(what)
    })?;
    let unknown = check::unknown_keys(&schema, &document);
    if !unknown.is_empty() {
        let keys: Vec<String> = unknown.iter().map(|k| format!("`{k}`")).collect();
        app.print_note(&format!("not in the schema, and allowed: {}", keys.join(", ")));
    }
    let broken: Vec<String> =
        found.iter().map(|v| format!("{}: {}", pointer(&v.pointer), v.text)).collect();
    let id = name.name();
    if broken.is_empty() {
        app.print_note(&format!("{} matches the schema", path.display()));
        if app.global.json {
            let file = path.display().to_string();
            app.print_json(&CheckPassed { document: id, file, unknown_keys: unknown })?;
        }
        return Ok(0);
    }
    let shown: Vec<String> =
        broken.iter().take(MAX_SHOWN_VIOLATIONS).map(|l| l.replace('\n', " ")).collect();
    let (n, s) = (broken.len(), if broken.len() == 1 { "" } else { "s" });
    let failure = Failure::new(
        Exit::Artifact,
        "schema",
        format!("the file violates the schema `{id}` in {n} place{s}"),
    )
    .file(path.display());
    // The violations are the result, so they go to stdout; `--json` prints a single document.
    Err(if app.global.json {
        failure.cause(shown.join("\n"))
    } else {
        shown.iter().for_each(|line| app.print(&format!("{line}\n")));
        failure
    })
}

/// A TOML file as JSON.
fn from_toml(bytes: &[u8]) -> std::result::Result<Value, String> {
    let text = std::str::from_utf8(bytes).map_err(|e| e.to_string())?;
    let table: toml::Table =
        text.parse().map_err(|e: toml::de::Error| toml_error::short(&e.to_string()))?;
    serde_json::to_value(table).map_err(|e| e.to_string())
}

/// The document of `--json` for a valid file.
#[derive(Debug, Serialize)]
struct CheckPassed {
    /// The name of the schema that the file was checked with.
    document: &'static str,
    /// The file as typed.
    file: String,
    /// Top-level keys that the schema does not name. Later versions add some.
    unknown_keys: BTreeSet<String>,
}

/// A JSON pointer for people: the whole document is `/`.
fn pointer(path: &str) -> &str {
    if path.is_empty() { "/" } else { path }
}
