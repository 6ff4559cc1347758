//! One call of an MCP tool: its arguments, the request that it answers, and how long it may wait.
//!
//! A long command is started and waited for briefly. Then the call answers, and the command
//! continues. Its run folder has the result; the same call again also returns it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rmcp::RoleServer;
use rmcp::model::{ProgressNotificationParam, ProgressToken, RequestId};
use rmcp::service::Peer;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::McpContext;
use super::answer::Answer;
use super::arguments::{argument_error, read};
use super::consent::OpenQuestions;
use super::run_result::{CANCELLED, RunResult};
use super::tool::ToolInfo;
use super::{compare_result, hint, run_result};
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_run::store::Runs;
use rgpu_work::own_command::{CommandLine, CommandRegistry, CommandResult, RunningCommand};

/// How long a call waits for a long command, if the client does not say.
const SHORT_WAIT: Duration = Duration::from_secs(4);

/// The longest wait of a call. Some clients give up after 60 seconds.
const MAX_WAIT_S: u64 = 45;

/// The limit of a command that is expected to be short.
const SHORT_LIMIT: Duration = Duration::from_secs(50);

/// How many short commands run at once.
const MAX_SHORT_COMMANDS: usize = 8;

/// Between two messages about progress.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// What all calls of a server share.
#[derive(Debug)]
pub(super) struct ServerState {
    pub(super) context: McpContext,
    pub(super) started_commands: CommandRegistry,
    pub(super) questions: OpenQuestions,
    permits: Arc<Semaphore>,
    /// Counts calls, to tell their commands apart.
    calls: AtomicU64,
}

impl ServerState {
    pub(super) fn new(context: McpContext) -> Self {
        let permits = Arc::new(Semaphore::new(MAX_SHORT_COMMANDS));
        Self {
            context,
            started_commands: CommandRegistry::default(),
            questions: OpenQuestions::default(),
            permits,
            calls: AtomicU64::new(0),
        }
    }
}

/// The calls that a connection waits for, to stop those that its client cancels.
#[derive(Clone, Debug, Default)]
pub(super) struct InFlight(Arc<Mutex<HashMap<RequestId, OpenCall>>>);

/// A call that is not answered yet.
#[derive(Debug, Default)]
struct OpenCall {
    /// The command that continues after the answer, once one was started.
    command: Option<RunningCommand>,
    cancel: CancellationToken,
}

impl InFlight {
    /// Adds a request until [`Self::end`]. The returned token is cancelled with the request.
    pub(super) fn begin(&self, request: &RequestId) -> CancellationToken {
        let call = OpenCall::default();
        let cancel = call.cancel.clone();
        self.lock().insert(request.clone(), call);
        cancel
    }

    /// Cancels a request, and interrupts the command that it follows.
    pub(super) fn cancel(&self, request: &RequestId) {
        if let Some(call) = self.lock().get(request) {
            call.cancel.cancel();
            if let Some(command) = &call.command {
                command.interrupt();
            }
        }
    }

    /// Whether the request follows a command that continues without it.
    pub(super) fn follows_command(&self, request: &RequestId) -> bool {
        self.lock().get(request).is_some_and(|call| call.command.is_some())
    }

    /// The request waits for this command.
    fn follow(&self, request: &RequestId, command: &RunningCommand) {
        let mut calls = self.lock();
        let call = calls.entry(request.clone()).or_default();
        if call.cancel.is_cancelled() {
            command.interrupt();
        }
        call.command = Some(command.clone());
    }

    /// The command of the request has ended, and it may start another.
    pub(super) fn unfollow(&self, request: &RequestId) {
        if let Some(call) = self.lock().get_mut(request) {
            call.command = None;
        }
    }

    /// Forgets a request that was answered.
    pub(super) fn end(&self, request: &RequestId) {
        self.lock().remove(request);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RequestId, OpenCall>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where messages about a call's progress go.
pub(super) struct McpProgressSink {
    pub(super) token: ProgressToken,
    pub(super) peer: Peer<RoleServer>,
}

/// A call.
pub(super) struct Call {
    pub(super) shared: Arc<ServerState>,
    pub(super) tool: &'static ToolInfo,
    /// The arguments as the client wrote them.
    pub(super) fields: Map<String, Value>,
    pub(super) request: RequestId,
    pub(super) in_flight: InFlight,
    pub(super) progress: Option<McpProgressSink>,
}

impl Call {
    /// Reads the arguments.
    pub(super) fn arguments<T: DeserializeOwned>(&self) -> Result<T> {
        read(self.fields.clone(), &(self.tool.input)())
    }

    /// The same call, with the longest wait, as a next step.
    pub(super) fn same_call_hint(&self) -> String {
        let mut fields = self.fields.clone();
        fields.insert("wait_s".to_owned(), MAX_WAIT_S.into());
        format!("{} {}", self.tool.name, Value::Object(fields))
    }

    pub(super) fn context(&self) -> &McpContext {
        &self.shared.context
    }

    /// Runs a short command. Its document; the exit status of what it found is no failure. If the
    /// call is dropped, the command is stopped, and counts until it has ended.
    pub(super) async fn document(&self, line: CommandLine) -> Result<Value> {
        let failed = |e| Failure::new(Exit::Bug, "bug", "no command can be started").cause(e);
        let permit = Arc::clone(&self.shared.permits).acquire_owned().await.map_err(failed)?;
        let own = self.context().own_program();
        let argv = line.args();
        let document = line.run_with_permit(&own, SHORT_LIMIT, permit).await?.into_document();
        document.map_err(|failure| hint::for_agent(failure, &argv))
    }

    /// Does work that reads files.
    pub(super) async fn reads<T: Send + 'static>(
        &self,
        work: impl FnOnce(&McpContext) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let context = self.context().clone();
        let work = move || context.check_folders().and_then(|()| work(&context));
        let done = tokio::task::spawn_blocking(work).await;
        done.unwrap_or_else(|e| Err(Failure::new(Exit::Bug, "bug", "a call failed").cause(e)))
    }

    /// Starts the command of a run, and waits a little. The state of the run.
    pub(super) async fn run(
        &self,
        run: String,
        mut line: CommandLine,
        wait_s: Option<u64>,
    ) -> Result<Answer> {
        let limit = wait(wait_s)?;
        line.makes_run = true;
        let started =
            self.shared.started_commands.start(&run, line, &self.context().own_program())?;
        self.follow(run, started, limit).await
    }

    /// Waits for the command of a run. The state of the run.
    pub(super) async fn follow(
        &self,
        run: String,
        mut started: RunningCommand,
        limit: Duration,
    ) -> Result<Answer> {
        let ended = self.wait(&mut started, limit, Some(&run)).await;
        self.reads(move |context| answer(context, &run, ended)).await
    }

    /// Starts a command that makes no run, or finds it if it runs, and waits a little. Its end;
    /// `None` if it still runs.
    pub(super) async fn command(
        &self,
        line: CommandLine,
        wait_s: Option<u64>,
    ) -> Result<Option<CommandResult>> {
        let limit = wait(wait_s)?;
        let commands = &self.shared.started_commands;
        let name = format!("{:?}", line.argv);
        // Only what an earlier call left running is found again: two calls at once are two
        // commands.
        let (key, mut started) = match commands.get(&name) {
            Some(started) => (name.clone(), started),
            None => {
                let key = format!("{name} {}", self.shared.calls.fetch_add(1, Ordering::Relaxed));
                let started = commands.start(&key, line, &self.context().own_program())?;
                (key, started)
            }
        };
        let ended = self.wait(&mut started, limit, None).await;
        match ended {
            Some(_) => commands.forget(&key),
            None => commands.rename(&key, name),
        }
        Ok(ended)
    }

    /// Waits for a command, tells of its progress, and lets the client cancel it.
    async fn wait(
        &self,
        started: &mut RunningCommand,
        limit: Duration,
        run: Option<&str>,
    ) -> Option<CommandResult> {
        self.in_flight.follow(&self.request, started);
        let begun = Instant::now();
        loop {
            let left = limit.saturating_sub(begun.elapsed());
            if let Some(ended) = started.wait(left.min(PROGRESS_EVERY)).await {
                return Some(ended);
            }
            if begun.elapsed() >= limit {
                return None;
            }
            self.tell(begun.elapsed(), run).await;
        }
    }

    async fn tell(&self, elapsed: Duration, run: Option<&str>) {
        let Some(McpProgressSink { token, peer }) = &self.progress else { return };
        let mut progress = ProgressNotificationParam::new(token.clone(), elapsed.as_secs_f64());
        if let Some(run) = run {
            let run = run.to_owned();
            let phase = self.reads(move |context| Ok(run_result::phase_of(context, &run))).await;
            progress.message = phase.ok().flatten();
        }
        let _ = peer.notify_progress(progress).await;
    }
}

/// How long a call waits.
pub(super) fn wait(seconds: Option<u64>) -> Result<Duration> {
    match seconds {
        None => Ok(SHORT_WAIT),
        Some(seconds) if seconds <= MAX_WAIT_S => Ok(Duration::from_secs(seconds)),
        Some(_) => Err(argument_error(format!("`wait_s`: at most {MAX_WAIT_S}"))),
    }
}

/// The state of a run from its folder. `ended` is the end of its command, if that is known.
pub(super) fn answer(
    context: &McpContext,
    run: &str,
    ended: Option<CommandResult>,
) -> Result<Answer> {
    let folder = Runs::new(&context.runs).find(run);
    match (folder, ended) {
        (Ok(folder), ended) => {
            let record = folder.current_record()?;
            let is_own = ended.is_some() || context.started.has(&record);
            if record.command == "compare" {
                return compare_result::run_answer(&folder, &record, is_own);
            }
            let mut result = RunResult::from_folder(&folder, &record, is_own)?;
            if result.error.is_none() {
                let failure = ended.and_then(|ended| failure_of(&ended));
                let failure = failure.filter(|failure| failure.code != CANCELLED);
                result.error = failure.map(Into::into);
            }
            let is_error = result.error.is_some();
            Answer::with(&result, is_error)
        }
        (Err(_), Some(ended)) => {
            let failure = failure_of(&ended).unwrap_or_else(|| {
                rgpu_work::own_command::no_document(ended.status, ended.messages)
            });
            if failure.code == CANCELLED {
                Answer::from_result(&RunResult::cancelled(run))
            } else {
                Err(failure)
            }
        }
        (Err(_), None) => Answer::from_result(&RunResult::starting(run)),
    }
}

/// The failure of a command, for an agent.
pub(super) fn failure_of(ended: &CommandResult) -> Option<Failure> {
    ended.failure().map(|failure| hint::for_agent(failure, &ended.argv))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::*;

    fn call(program: &Path, folder: &Path) -> Call {
        let context = McpContext {
            program: program.to_owned(),
            project: folder.to_owned(),
            project_folder: rgpu_model::beneath::Folder::open(folder).unwrap(),
            runs: folder.join("runs"),
            scratch: folder.join("scratch"),
            started: rgpu_run::store::StartedRuns::in_cache(folder),
        };
        Call {
            shared: Arc::new(ServerState::new(context)),
            tool: super::super::tool::find("report").unwrap(),
            fields: Map::new(),
            request: RequestId::Number(1),
            in_flight: InFlight::default(),
            progress: None,
        }
    }

    #[tokio::test]
    async fn a_dropped_call_counts_until_its_command_has_ended() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("rgpu");
        // It ends some time after it was asked to.
        let script = "#!/bin/sh\ntrap 'while [ ! -e go ]; do sleep 0.02; done; touch ended; exit 0' INT\n\
                      touch started\nwhile :; do sleep 0.02; done\n";
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let call = call(&program, dir.path());
        let permits = || call.shared.permits.available_permits();
        {
            let running = call.document(CommandLine::new(["report"]));
            tokio::pin!(running);
            while !dir.path().join("started").exists() {
                let waited = tokio::time::timeout(Duration::from_millis(10), &mut running).await;
                assert!(waited.is_err(), "it ended by itself");
            }
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(permits(), MAX_SHORT_COMMANDS - 1, "its command still runs");
        std::fs::write(dir.path().join("go"), "").unwrap();
        let freed = Arc::clone(&call.shared.permits).acquire_many_owned(MAX_SHORT_COMMANDS as u32);
        assert!(tokio::time::timeout(Duration::from_secs(20), freed).await.is_ok());
        assert!(dir.path().join("ended").exists());
    }
}
