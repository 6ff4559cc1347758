//! `model`: predictions without a GPU.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;

use super::ToolInfo;
use super::command::{Action, actions, output, run_one_of};
use crate::mcp::answer::{self, Answer};
use crate::mcp::call::Call;
use rgpu_model::error::Result;

pub(super) const TOOL: ToolInfo = ToolInfo {
    name: "model",
    title: "Predictions",
    does: "Predicts times from datasheets and formulas: one kernel (gemm, attention, moe …), a \
           collective, a language model's server; shows a GPU's peak rates and bandwidth; \
           compares predictions with measured rows.",
    use_when: "you want a bound or an estimate: how fast could this be on a GPU",
    not_for: &[("how fast it really is", "profile"), ("where elements lie in memory", "layout")],
    read_only: true,
    destructive: false,
    starts_runs: false,
    input: answer::input::<Arguments>,
    output,
    call: |call| Box::pin(run(call)),
};

const FILES: &[&str] = &["--html", "--out"];

static ACTIONS: &[Action] = &[
    action("hw list", "the GPUs"),
    action("hw show", "all numbers of a GPU; NAME"),
    action("hw check", "check hardware files; FILE"),
    action("kernel", "OP (gemm, attention, moe, norm …) or PATH --gpu=h200 --mnk=M,N,K"),
    action("layer", "the layers of a model; CONFIG.json --gpu=NAME"),
    action("llm", "a model's server; CONFIG.json --gpu=NAME --tp=8 --concurrency=1..256:x2"),
    action("coll", "OP (allreduce …) --gpu=NAME --bytes=1GiB --gpus=8"),
    action("reconcile", "predictions and measured rows; CSV or RUN, --gpu=NAME"),
    action("compare", "a torch run's operators; RUN --gpu=NAME"),
    action("explain", "every term of a prediction saved with --json; FILE"),
    action("check", "compare predictions with known results"),
];

const fn action(name: &'static str, about: &'static str) -> Action {
    Action { name, about, refused: FILES }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    #[schemars(schema_with = "action_schema")]
    action: String,
    /// The words after the action: names, files of the project, and flags as --flag=VALUE.
    arguments: Option<Vec<String>>,
}

fn action_schema(_: &mut SchemaGenerator) -> Schema {
    actions([("", ACTIONS)]).try_into().unwrap_or_default()
}

async fn run(call: Call) -> Result<Answer> {
    let Arguments { action, arguments } = call.arguments()?;
    run_one_of(&call, "model", ACTIONS, &action, &arguments.unwrap_or_default()).await
}
