//! Long calls as tasks of the protocol (SEP-2663), for clients that declare them. The id of a task
//! is that of its run, and its state is read from the run's folder, so that no server forgets one.

use rmcp::ErrorData;
use rmcp::model::{DetailedTask, GetTaskResult, Task, TaskPayload, TaskStatus};
use serde_json::{Map, Value};

use super::McpContext;
use super::answer::Answer;
use super::call::{ServerState, answer};
use rgpu_run::store::{RunState, Runs};
use rgpu_work::own_command::CommandLine;

/// How often a client should ask.
const POLL_MS: u64 = 2000;

/// A task whose work goes on.
pub(super) fn working(run: &str) -> Task {
    let now = jiff::Timestamp::now().to_string();
    Task::new(run, TaskStatus::Working, now.clone(), now).with_poll_interval_ms(POLL_MS)
}

/// The state of a task.
pub(super) fn state(shared: &ServerState, id: &str) -> Result<GetTaskResult, ErrorData> {
    let context = &shared.context;
    let started = shared.started_commands.get(id);
    let ended = started.as_ref().and_then(rgpu_work::own_command::RunningCommand::end);
    let Ok(folder) = find(context, id) else {
        return match (started, ended) {
            (None, _) => Err(unknown(id)),
            (Some(_), None) => Ok(result(working(id), TaskPayload::Working)),
            // The command failed before it made a folder.
            (Some(_), ended) => Ok(completed(working(id), answer(context, id, ended))),
        };
    };
    let record = folder.current_record().map_err(|e| internal(&e))?;
    let mut task = working(id);
    task.created_at.clone_from(&record.started);
    Ok(match record.state {
        RunState::Running | RunState::Detached if ended.is_none() => {
            task.status_message = rgpu_run::store::live::phase(&folder);
            result(task, TaskPayload::Working)
        }
        RunState::Cancelled => result(task, TaskPayload::Cancelled),
        _ => completed(task, answer(context, id, ended)),
    })
}

/// Stops the work of a task.
pub(super) async fn cancel(shared: &ServerState, id: &str) -> Result<(), ErrorData> {
    if let Some(started) = shared.started_commands.get(id) {
        started.interrupt();
        return Ok(());
    }
    find(&shared.context, id)?;
    let name = format!("cancel {id}");
    let line = CommandLine::new(["runs", "cancel", id]);
    let started = shared.started_commands.start(&name, line, &shared.context.own_program());
    started.map(drop).map_err(|failure| ErrorData::internal_error(failure.what, None))
}

/// The run of a task. A path is no id.
fn find(context: &McpContext, id: &str) -> Result<rgpu_run::store::RunFolder, ErrorData> {
    context.check_folders().map_err(|failure| ErrorData::internal_error(failure.what, None))?;
    let runs = Runs::new(&context.runs);
    let is_id = runs.ids().is_ok_and(|ids| ids.iter().any(|known| known == id));
    if !is_id {
        return Err(unknown(id));
    }
    runs.find(id).map_err(|e| internal(&e))
}

fn unknown(id: &str) -> ErrorData {
    ErrorData::invalid_params(format!("there is no task `{id}`"), None)
}

fn internal(error: &dyn std::error::Error) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}

fn completed(task: Task, answer: rgpu_model::error::Result<Answer>) -> GetTaskResult {
    let answer = answer.unwrap_or_else(Answer::from).into_result();
    let fields = match serde_json::to_value(answer) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    result(task, TaskPayload::Completed { result: fields })
}

fn result(task: Task, payload: TaskPayload) -> GetTaskResult {
    GetTaskResult::new(DetailedTask::new(task, payload))
}
