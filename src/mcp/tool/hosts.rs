//! `hosts`: the GPU hosts, and what works there.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;

use super::ToolInfo;
use super::command::{Action, actions, output, run as run_command};
use crate::mcp::answer::{self, Answer};
use crate::mcp::arguments::argument_error;
use crate::mcp::call::Call;
use rgpu_model::error::Result;
use rgpu_work::own_command::check_argument;

pub(super) const TOOL: ToolInfo = ToolInfo {
    name: "hosts",
    title: "GPU hosts",
    does: "Lists the GPU machines that you can use (remotes, hosts), or checks one: its GPUs, \
           driver, and with a tiny kernel which tools work there (Nsight Compute, Nsight Systems \
           …) and why others do not.",
    use_when: "you need the name of a remote, or a host cannot be connected to, or a tool fails \
               there",
    not_for: &[("what ran or runs there", "runs")],
    read_only: false,
    destructive: false,
    starts_runs: false,
    input: answer::input::<Arguments>,
    output,
    call: |call| Box::pin(run(call)),
};

static LIST: Action = Action { name: "list", about: "the remotes", refused: &[] };
static DOCTOR: Action = Action { name: "doctor", about: "what works on `remote`", refused: &[] };

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    #[schemars(schema_with = "action_schema")]
    #[serde(default = "list")]
    action: String,
    /// For doctor: the remote. Without it: the default one.
    remote: Option<String>,
    /// For doctor: seconds to wait before the call returns with state `running`: 30, at most 45.
    /// The same call again waits on.
    wait_s: Option<u64>,
}

/// How long a call waits for doctor, which runs a kernel on the host.
const DOCTOR_WAIT_S: u64 = 30;

fn list() -> String {
    LIST.name.to_owned()
}

fn action_schema(_: &mut SchemaGenerator) -> Schema {
    let both = [("", std::slice::from_ref(&LIST)), ("", std::slice::from_ref(&DOCTOR))];
    actions(both).try_into().unwrap_or_default()
}

async fn run(call: Call) -> Result<Answer> {
    let arguments: Arguments = call.arguments()?;
    match &*arguments.action {
        "list" => run_command(&call, &["remote"], &LIST, &[], Some(45)).await,
        "doctor" => {
            let remote = arguments.remote.into_iter().collect::<Vec<String>>();
            remote.iter().try_for_each(|remote| check_argument("remote", remote))?;
            run_command(&call, &[], &DOCTOR, &remote, arguments.wait_s.or(Some(DOCTOR_WAIT_S)))
                .await
        }
        other => Err(argument_error(format!("`action`: `{other}` is none of list, doctor"))),
    }
}
