//! Runs a program on a host for `rgpu exec`: preparation steps, then one step without a tool, whose
//! exit status is the result.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::file_copies::FileCopies;
use super::job::{self, HOST_TAKEN, HostFile, JobResult, RunContext, cancelled};
use super::lifecycle::{PlanDriver, RunError, RunSession};
use super::outcome::{self, EXEC_STEP};
use super::pass_planner::NextStep;
use super::program_error::has_hung;
use crate::store::RunRecord;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_plan::tool::{Draft, DraftInfo, JobName, Program, add_hang_detection, pulled_artifacts};
use rgpu_protocol::plan::{Arg, GpuRequest, InputFile, Limits, OnFailure, PULLED, Stdin, Success};
use rgpu_protocol::{Event, HostFacts, Outcome, Plan, Rung, RungRecord, Step, glob};
use rgpu_remote::{HostLink, RemoteFile};

/// A program to run, with its limits.
#[derive(Clone, Debug, Default)]
pub struct ExecRequest {
    /// The program, its files, and its preparation steps.
    pub program: Program,
    /// Environment of all steps.
    pub env: BTreeMap<String, String>,
    /// Environment with secret values, which are never logged.
    pub secrets: BTreeMap<String, String>,
    /// Time limit of the program.
    pub timeout: Duration,
    /// The standard input of the program.
    pub stdin: Stdin,
    /// Seconds without output after which the program counts as hung; `None`: no limit.
    pub hang_s: Option<u64>,
    /// Bytes of each output stream to keep; `None` for the default.
    pub log_bytes: Option<u64>,
    /// Patterns of files in the working folder to fetch (`--pull`).
    pub pull: Vec<String>,
    /// The GPUs to hold while the program runs.
    pub gpu: Option<GpuRequest>,
    /// Longest wait for the GPUs; `None` for the default.
    pub queue_timeout: Option<Duration>,
    /// Digest of the facts that the program was planned with.
    pub facts_digest: Option<String>,
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramExit {
    /// With this exit status.
    Exit(i32),
    /// Killed by this signal.
    Signal(i32),
    /// Killed at its time limit.
    TimedOut,
    /// Stopped because it printed nothing for too long.
    Hung,
}

impl ProgramExit {
    /// The exit status of `rgpu exec`: the program's own, 124 at the time limit or if it hung,
    /// 128+n for signal n.
    pub fn status(self) -> u8 {
        match self {
            Self::Exit(n) => (n & 0xff) as u8,
            Self::Signal(n) => (128 + (n & 0x7f)) as u8,
            Self::TimedOut | Self::Hung => 124,
        }
    }
}

/// The result of `rgpu exec`.
#[derive(Debug)]
pub struct ExecOutcome {
    /// How the program ended. `Err` if it was cancelled or the host failed; `None` if it runs on
    /// detached.
    pub end: Option<Result<ProgramExit>>,
    /// The pulled files; also fetched if the program has no exit status.
    pub pulled: Vec<HostFile>,
    /// Local destinations that pulled files were written to while they were fetched.
    pub copies: FileCopies,
}

/// Drafts the plan, with the files to send.
pub fn draft(request: &ExecRequest, job: String) -> Draft {
    let mut limits = Limits::default();
    if let Some(bytes) = request.log_bytes {
        limits.log_bytes = bytes;
    }
    if let Some(timeout) = request.queue_timeout {
        limits.queue_s = timeout.as_secs();
    }
    let program = &request.program;
    let step = Step {
        id: EXEC_STEP.to_owned(),
        title: format!("running {}", program.name),
        gpu: request.gpu.is_some(),
        needs: Vec::new(),
        on_failure: OnFailure::Stop,
        timeout_s: request.timeout.as_secs().max(1),
        max_output_bytes: None,
        stdin: request.stdin,
        rungs: vec![Rung {
            id: EXEC_STEP.to_owned(),
            needs: Vec::new(),
            argv: program.argv.clone(),
            env: program.env.clone(),
            cwd: program.cwd.clone(),
            // Every status of the program counts as success: it is the result.
            success: Success { exit: Vec::new(), ..Success::default() },
            diagnosis: Vec::new(),
            artifacts: pulled_artifacts(&request.pull),
            loses: String::new(),
            stop: None,
            hang: None,
        }],
    };
    let mut steps: Vec<Step> = program.prepare.iter().cloned().chain([step]).collect();
    if let Some(quiet_s) = request.hang_s {
        add_hang_detection(&mut steps, quiet_s, |id| id == EXEC_STEP);
    }
    let plan = Plan {
        job,
        title: format!("exec {}", program.name),
        facts: request.facts_digest.clone(),
        files: Vec::new(),
        steps,
        gpu: request.gpu.clone(),
        env: request.env.iter().map(|(k, v)| (k.clone(), Arg::text(v.as_str()))).collect(),
        secrets: request.secrets.keys().cloned().collect(),
        origin: None,
        limits,
    };
    Draft { plan, files: program.files.clone(), info: DraftInfo::default() }
}

/// Builds the request. The facts are `None` if the program does not need them.
pub type ProgramSource<'a> = dyn Fn(Option<&HostFacts>) -> Result<ExecRequest> + 'a;

/// The inputs of `rgpu exec`.
pub struct ExecRun<'a> {
    /// The program. `None` if its run is resumed: the run folder has its plan.
    pub program: Option<&'a ProgramSource<'a>>,
    /// Whether the program depends on the host's facts.
    pub needs_facts: bool,
    /// Patterns of files in the working folder to fetch (`--pull` of the current command).
    pub pull: &'a [String],
    /// Local destinations that pulled files are written to while they are fetched.
    pub copies: FileCopies,
}

impl ExecRun<'_> {
    /// Runs the program to its end.
    ///
    /// # Errors
    /// The link fails, the host refuses the plan, the run folder cannot be written, or the user
    /// cancelled before anything ran.
    pub async fn run(
        self,
        session: &mut RunSession<'_>,
        context: &mut RunContext<'_>,
    ) -> Result<ExecOutcome> {
        let mut plans = ExecDriver { run: self, result: None };
        session.run_plans(&mut plans, context).await?;
        let ExecDriver { run: ExecRun { copies, .. }, result } = plans;
        Ok(match result {
            Some(result) => finish_job(session.link, result, context.record, copies),
            None => ExecOutcome { end: None, pulled: Vec::new(), copies },
        })
    }
}

/// Drafts the single plan of `rgpu exec`.
struct ExecDriver<'a> {
    run: ExecRun<'a>,
    result: Option<JobResult>,
}

impl PlanDriver for ExecDriver<'_> {
    async fn draft(
        &mut self,
        job: &JobName,
        session: &mut RunSession<'_>,
        context: &mut RunContext<'_>,
    ) -> Result<Option<Draft>, RunError> {
        let Some(program) = self.run.program else {
            // A placeholder: a resumed run follows its recorded job and submits nothing. `runs
            // attach` refuses a run that records no job.
            return Ok(Some(draft(&ExecRequest::default(), job.job())));
        };
        let facts = if self.run.needs_facts { Some(session.facts(context).await?) } else { None };
        let request = program(facts.as_ref())?;
        session.secrets.clone_from(&request.secrets);
        Ok(Some(draft(&request, job.job())))
    }

    async fn follow(
        &mut self,
        job: &str,
        before: &[Event],
        session: &mut RunSession<'_>,
        context: &mut RunContext<'_>,
    ) -> Result<JobResult> {
        let ExecRun { pull, copies, .. } = &mut self.run;
        follow_pulling(pull, copies, session.link, job, before, context).await
    }

    fn handle_result(
        &mut self,
        result: JobResult,
        _: &mut RunSession<'_>,
        _: &mut RunContext<'_>,
    ) -> Result<NextStep> {
        self.result = Some(result);
        Ok(NextStep::End)
    }
}

/// Turns an ended job into the outcome. Drops the job on the host, unless a fetched file is not
/// synced yet.
fn finish_job(
    link: &mut HostLink,
    end: JobResult,
    record: &RunRecord,
    copies: FileCopies,
) -> ExecOutcome {
    if !record.jobs.iter().any(|line| line.job == end.job && !line.unsynced.is_empty()) {
        link.request_job_removal(&end.job);
    }
    ExecOutcome { end: Some(program_end(link, &end)), pulled: pulled(end), copies }
}

/// Follows a job, and fetches of its working folder what matches `patterns` and was not sent as it
/// is.
pub(super) async fn follow_pulling(
    patterns: &[String],
    copies: &mut FileCopies,
    link: &mut HostLink,
    job: &str,
    before: &[Event],
    context: &mut RunContext<'_>,
) -> Result<JobResult> {
    let inputs =
        inputs_of(&job::plan(context.folder, job).map(|plan| plan.files).unwrap_or_default());
    let accept = pull_filter(patterns, inputs);
    job::follow_with_filter(link, job, before, context, &accept, copies).await
}

/// Accepts files that differ from the `sent` inputs, and refuses a host that announces a pulled
/// file matching no pattern. The patterns must be the command's own, since a plan may have come
/// from the host.
fn pull_filter(
    patterns: &[String],
    sent: BTreeSet<(String, rgpu_protocol::Digest)>,
) -> impl Fn(&str, &RemoteFile) -> Result<bool> + Sync {
    let specs = pulled_artifacts(patterns);
    move |kind, file| {
        let matches_pattern = || specs.iter().any(|spec| glob::matches(&spec.path, &file.path));
        if kind == PULLED && !matches_pattern() {
            return Err(unrequested_file(&file.path));
        }
        Ok(!sent.contains(&(file.path.clone(), file.digest.clone())))
    }
}

fn unrequested_file(path: &str) -> Failure {
    let what = format!("the host sent `{}`, which no `--pull` requested", path.escape_debug());
    Failure::new(Exit::Host, "hostile_name", what).hint(
        "nothing was put into your folder; check who controls this host before you use it again",
    )
}

/// The inputs that were sent: a pattern may match them, but they need no fetching back.
fn inputs_of(files: &[InputFile]) -> BTreeSet<(String, rgpu_protocol::Digest)> {
    files.iter().map(|file| (file.path.clone(), file.digest.clone())).collect()
}

fn pulled(end: JobResult) -> Vec<HostFile> {
    end.files.into_iter().filter(|file| file.artifact.kind == PULLED).collect()
}

fn program_end(link: &HostLink, end: &JobResult) -> Result<ProgramExit> {
    match (&end.outcome, end.last_rung(EXEC_STEP)) {
        (Some(Outcome::Cancelled), _) => Err(cancelled()),
        (Some(Outcome::HostError { code, .. }), _) if code == HOST_TAKEN => {
            Err(outcome::failure(link.remote(), end))
        }
        (_, Some(record)) if record.code == "timeout" => Ok(ProgramExit::TimedOut),
        (_, Some(record)) if has_hung(record) => Ok(ProgramExit::Hung),
        (_, Some(RungRecord { exit: Some(n), .. })) => Ok(ProgramExit::Exit(*n)),
        (_, Some(RungRecord { signal: Some(n), .. })) => Ok(ProgramExit::Signal(*n)),
        _ => Err(outcome::failure(link.remote(), end)),
    }
}
