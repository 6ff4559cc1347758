//! `runs`: what ran and runs.

use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ToolInfo;
use crate::mcp::McpContext;
use crate::mcp::answer::{self, Answer};
use crate::mcp::arguments::{argument_error, check_inside_project};
use crate::mcp::call::{Call, answer, wait};
use crate::mcp::compare_result::CompareResult;
use crate::mcp::limit::page;
use crate::mcp::run_result::RunResult;
use rgpu_model::error::Result;
use rgpu_run::store::{RunRecord, RunState, Runs};
use rgpu_work::own_command::CommandLine;

pub(super) const TOOL: ToolInfo = ToolInfo {
    name: "runs",
    title: "Runs",
    does: "Lists the runs that were done in the project, shows the state and result of one, waits \
           for one that is still going, or cancels (stops) it on its host.",
    use_when: "a call returned state `running`, you look for an earlier run, or a job was started \
               by mistake",
    not_for: &[
        ("details of a result, such as metrics by name", "report"),
        ("which hosts there are", "hosts"),
        ("entries of the queue, suites and loops", "campaign"),
    ],
    read_only: false,
    destructive: true,
    starts_runs: false,
    input: answer::input::<Arguments>,
    output: || {
        let run = answer::schema::<RunResult>;
        answer::output(&[run, answer::schema::<CompareResult>, answer::schema::<RunsResult>])
    },
    call: |call| Box::pin(run(call)),
};

/// The list in a result, in bytes.
const LIST_BYTES: usize = 6500;

/// How long a cancel may take.
const CANCEL_LIMIT: Duration = Duration::from_secs(45);

/// How often the folder of a run is looked at.
const WATCH_EVERY: Duration = Duration::from_millis(250);

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// What to do. Without it: list.
    #[serde(default)]
    action: Action,
    /// The run: an id, a unique beginning, `latest` or `latest~1`. Not for list.
    run: Option<String>,
    /// For list: the most runs, newest first: 20.
    count: Option<usize>,
    /// For list: how many to skip.
    offset: Option<usize>,
    /// For list: only runs that failed.
    failed: Option<bool>,
    /// For wait: seconds to wait, at most 45: 45.
    wait_s: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Action {
    /// The runs of the project, newest first.
    #[default]
    List,
    /// The state or result of a run.
    Show,
    /// Wait for the end of a run; its result.
    Wait,
    /// Stop a run on its host.
    Cancel,
}

/// Runs of the project.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct RunsResult {
    /// Name and version of this schema: `rgpu.mcp-runs/1`.
    schema: String,
    /// The runs, newest first.
    runs: Vec<RunLine>,
    /// How many there are in all.
    all: usize,
    /// Where to go on, as `offset`; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next_offset: Option<usize>,
}

/// A run.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
struct RunLine {
    /// Its id, which the other tools take as RUN.
    run: String,
    /// What was run, e.g. `profile vecadd (ncu)`.
    title: String,
    /// `running`, `detached`, `done`, `failed`, `cancelled` or `never_submitted`.
    state: String,
    /// The name of the remote.
    remote: String,
    /// When it began, UTC.
    started: String,
    /// Seconds on the wall clock; absent while it runs.
    seconds: Option<f64>,
    /// The exit status of its command.
    exit: Option<u8>,
}

impl From<RunRecord> for RunLine {
    fn from(record: RunRecord) -> Self {
        Self {
            run: record.id,
            title: record.title,
            state: record.state.as_str().to_owned(),
            remote: record.remote,
            started: record.started,
            seconds: (!record.state.is_active()).then_some(record.seconds),
            exit: record.exit,
        }
    }
}

async fn run(call: Call) -> Result<Answer> {
    let arguments: Arguments = call.arguments()?;
    if arguments.action == Action::List {
        return call.reads(move |context| list(&Runs::new(&context.runs), &arguments)).await;
    }
    let name = arguments
        .run
        .ok_or_else(|| argument_error("`run` is missing").hint("runs {\"action\": \"list\"}"))?;
    check_inside_project(call.context(), "run", &name)?;
    // A run whose command has just begun has no folder yet.
    let id = match call.shared.started_commands.get(&name) {
        Some(_) => name,
        None => {
            let find =
                move |context: &McpContext| Ok(Runs::new(&context.runs).find(&name)?.record()?.id);
            call.reads(find).await?
        }
    };
    let started = call.shared.started_commands.get(&id);
    match arguments.action {
        Action::Wait => {
            let limit = wait(Some(arguments.wait_s.unwrap_or(45)))?;
            match started {
                Some(started) => call.follow(id, started, limit).await,
                None => watch(&call, id, limit).await,
            }
        }
        Action::Cancel => {
            if let Some(started) = started.filter(|started| !started.has_ended()) {
                started.interrupt();
                return call.follow(id, started, CANCEL_LIMIT).await;
            }
            call.document(CommandLine::new(["runs", "cancel", &id])).await?;
            call.reads(move |context| answer(context, &id, None)).await
        }
        Action::Show | Action::List => {
            let ended = started.and_then(|started| started.end());
            call.reads(move |context| answer(context, &id, ended)).await
        }
    }
}

/// Waits for the end of a run that this server did not start. If no process follows it, one is
/// started that does.
async fn watch(call: &Call, id: String, limit: Duration) -> Result<Answer> {
    let begun = Instant::now();
    loop {
        let name = id.clone();
        let (is_active, is_followed) = call
            .reads(move |context| {
                let folder = Runs::new(&context.runs).find(&name)?;
                let state = folder.current_record()?.state;
                let is_active = state.is_active();
                Ok((is_active, folder.followed_by().is_some()))
            })
            .await?;
        let left = limit.saturating_sub(begun.elapsed());
        if !is_active || left.is_zero() {
            return call.reads(move |context| answer(context, &id, None)).await;
        }
        if !is_followed {
            let line = CommandLine::new(["runs", "attach", &id]);
            return call.run(id, line, Some(left.as_secs())).await;
        }
        tokio::time::sleep(left.min(WATCH_EVERY)).await;
    }
}

fn list(runs: &Runs, arguments: &Arguments) -> Result<Answer> {
    let records = runs.records()?.into_iter();
    let only_failed = arguments.failed == Some(true);
    let lines: Vec<RunLine> = records
        .filter(|record| !only_failed || record.state == RunState::Failed)
        .map(RunLine::from)
        .collect();
    let offset = arguments.offset.unwrap_or(0);
    let listed = page(&lines, offset, arguments.count.unwrap_or(20), LIST_BYTES);
    Answer::from_result(&RunsResult {
        schema: "rgpu.mcp-runs/1".to_owned(),
        all: lines.len(),
        next_offset: (listed.end < lines.len()).then_some(listed.end),
        runs: lines[listed].to_vec(),
    })
}
