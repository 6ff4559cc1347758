//! `rgpu model`: what is possible on a GPU, what to expect, and how far measurements are from it.
//! Needs no host: the numbers come from the catalogue, from files, and from `rgpu-predict`.

mod check;
mod coll;
mod compare;
mod explain;
mod fit;
mod gpu;
mod hw;
mod import;
mod input;
mod kernel;
mod llm;
mod llm_text;
mod operators;
mod own_kernel;
mod page;
mod reconcile;
mod rows;
mod steps;

use clap::Subcommand;
use rgpu_predict::hw::Hardware;

use super::support::app::{App, Status};
use rgpu_model::error::Result;

#[cfg(test)]
pub(super) use compare::ComparisonDocument;
#[cfg(test)]
pub(super) use fit::FitResult;
#[cfg(test)]
pub(super) use import::ImportResult;
#[cfg(test)]
pub(super) use operators::OperatorComparison;
#[cfg(test)]
pub(super) use reconcile::ReconcileResult;

/// Predict kernels, collectives and language models on a GPU, and compare with measurements
#[derive(Subcommand, Clone, Debug)]
pub(super) enum ModelCommand {
    /// List, show, add and check GPUs
    #[command(subcommand)]
    Hw(hw::HwCommand),
    /// Predict one kernel: its bound, its time and every term
    #[command(after_long_help = examples!(
        "rgpu model kernel gemm --mnk 80,4096,7168 --dtype nvfp4 --gpu b200",
        "rgpu model kernel kernels/vecadd --gpu h200 --problem-sizes all",
    ))]
    Kernel(Box<kernel::KernelArgs>),
    /// Predict the layers of a model, kernel by kernel
    #[command(after_long_help = examples!("rgpu model layer config.json --gpu h200 --tp 4"))]
    Layer(Box<llm::LlmArgs>),
    /// Predict a model's server: time to first token, time per token, throughput, memory
    #[command(after_long_help = examples!(
        "rgpu model llm config.json --gpu h200 --tp 4 --concurrency 1..64:x4",
    ))]
    Llm(Box<llm::LlmArgs>),
    /// Predict a collective by message size
    #[command(after_long_help = examples!(
        "rgpu model coll allreduce --bytes 64M --gpus 8 --gpu h200",
    ))]
    Coll(coll::CollArgs),
    /// Read configs and results of other tools
    #[command(after_long_help = examples!(
        "rgpu model import vllm result.json --gpu h200 --tp 2 --out rows.csv",
    ))]
    Import(import::ImportArgs),
    /// Fit efficiencies to measured rows
    #[command(after_long_help = examples!("rgpu model fit rows.csv --gpu h200 --out calib.toml"))]
    Fit(fit::FitArgs),
    /// Compare predictions with measured rows
    #[command(after_long_help = examples!(
        "rgpu model reconcile rows.csv --gpu h200 --calib calib.toml",
    ))]
    Reconcile(reconcile::ReconcileArgs),
    /// Predict the operators of a recorded torch program one by one, on its GPU and on another
    #[command(after_long_help = examples!("rgpu model compare latest --gpu b200"))]
    Compare(operators::OperatorArgs),
    /// Show every term of a prediction that was saved with --json, with formula and source
    #[command(after_long_help = examples!("rgpu model explain prediction.json"))]
    Explain(explain::ExplainArgs),
    /// Check GPUs and configs, and compare the predictions with known results
    #[command(after_long_help = examples!("rgpu model check"))]
    Check(check::CheckArgs),
}

/// The GPUs that can be named: of the catalogue, and those that the user added.
pub(super) fn known_gpus(app: &App) -> Vec<Hardware> {
    gpu::all(app).into_iter().map(|(hardware, _)| hardware).collect()
}

pub(super) fn run(app: &App, command: &ModelCommand) -> Result<Status> {
    match command {
        ModelCommand::Hw(command) => hw::run(app, command),
        ModelCommand::Kernel(args) => kernel::run(app, args),
        ModelCommand::Layer(args) => llm::run(app, args, llm::Detail::Layers),
        ModelCommand::Llm(args) => llm::run(app, args, llm::Detail::Server),
        ModelCommand::Coll(args) => coll::run(app, args),
        ModelCommand::Import(args) => import::run(app, args),
        ModelCommand::Fit(args) => fit::run(app, args),
        ModelCommand::Reconcile(args) => reconcile::run(app, args),
        ModelCommand::Compare(args) => operators::run(app, args),
        ModelCommand::Explain(args) => explain::run(app, args),
        ModelCommand::Check(args) => check::run(app, args),
    }
}
