//! `layout`: layout algebra with proofs.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;

use super::ToolInfo;
use super::command::{Action, actions, output, run_one_of};
use crate::mcp::answer::{self, Answer};
use crate::mcp::call::Call;
use rgpu_model::error::Result;

pub(super) const TOOL: ToolInfo = ToolInfo {
    name: "layout",
    title: "Layouts",
    does: "Computes with CuTe layouts and proves it: composition, complement, bank conflicts and \
           sectors of accesses, scale factors of NVFP4, tensor memory, descriptors, epilogues.",
    use_when: "you reason about where elements lie: shapes and strides, swizzles, bank conflicts, \
               tiles of threads and values",
    not_for: &[("how long a kernel or model takes", "model")],
    read_only: true,
    destructive: false,
    starts_runs: false,
    input: answer::input::<Arguments>,
    output,
    call: |call| Box::pin(run(call)),
};

const FILES: &[&str] = &["--svg", "--format", "--out", "--html"];

static ACTIONS: &[Action] = &[
    action("eval", "what a layout is; LAYOUT, --at=COORDINATE, --table"),
    action("compose", "A∘B; A B"),
    action("complement", "what a layout leaves out; LAYOUT SIZE"),
    action("divide", "tiles and the rest; LAYOUT TILER"),
    action("product", "repeat; LAYOUT LAYOUT"),
    action("inverse", "--left or --right; LAYOUT"),
    action("coalesce", "fewest modes; LAYOUT"),
    action("filter", "without modes of stride 0; LAYOUT"),
    action("recast", "elements of another width; LAYOUT --from=BITS --to=BITS"),
    action("equal", "proved, or the first difference; LAYOUT LAYOUT"),
    action("check", "conflicts and sectors; LAYOUT --elem-bytes=4 --access=smem|gmem"),
    action("sf", "scale factors; --mn=384 --k=512 --file=dump.bin --expect=plain.bin"),
    action("tmem", "whether it fits tensor memory; --tile=128x128x256"),
    action("epilogue", "cost of its stores; --tile=128x128 --elem-bytes=2 --ldc=4096"),
    action("cta", "which tile a block computes; --groups='80,4096' --tile=128x128"),
    action("insights", "what stands out in dumped layouts; FILE"),
    action("diff", "two snapshots; FILE FILE"),
];

const fn action(name: &'static str, about: &'static str) -> Action {
    Action { name, about, refused: FILES }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    #[schemars(schema_with = "action_schema")]
    action: String,
    /// The words after the action: layouts as CuTe prints them, `((32,4),8):((16,4),1)`, and flags.
    arguments: Option<Vec<String>>,
}

fn action_schema(_: &mut SchemaGenerator) -> Schema {
    actions([("", ACTIONS)]).try_into().unwrap_or_default()
}

async fn run(call: Call) -> Result<Answer> {
    let Arguments { action, arguments } = call.arguments()?;
    run_one_of(&call, "layout", ACTIONS, &action, &arguments.unwrap_or_default()).await
}
