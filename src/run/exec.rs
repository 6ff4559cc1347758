//! Runs a program on a host for `rgpu exec`: preparation steps, then one step without a tool, whose
//! exit status is the result.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::bundle_reader::submission;
use super::file_copies::FileCopies;
use super::job::{self, HostFile, JobResult, RunContext, cancelled};
use super::provenance::EnvRecord;
use super::{outcome, resume};
use crate::bundle::{self, Bundle, Packer};
use crate::error::{Exit, Failure, Result};
use crate::exec::WORK_FOLDER;
use crate::remote::{HostLink, OnRemote, RemoteFile};
use crate::store::RunRecord;
use crate::tool::{Draft, Expectations, Program};
use rgpu_protocol::plan::{
    Arg, ArtifactSpec, GpuRequest, InputFile, Limits, OnFailure, PULLED, Stdin, Success,
};
use rgpu_protocol::{HostFacts, Outcome, Plan, Rung, RungRecord, Step, glob};

/// Id of the program's step.
pub const EXEC_STEP: &str = "exec";

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
    /// What the program reads on standard input.
    pub stdin: Stdin,
    /// Bytes of each output stream to keep; `None` for the default.
    pub log_bytes: Option<u64>,
    /// Patterns of files in the working folder to fetch (`--pull`).
    pub pull: Vec<String>,
    /// The GPUs to hold while the program runs.
    pub gpu: Option<GpuRequest>,
    /// Longest wait for the GPUs; `None` for the default.
    pub queue: Option<Duration>,
    /// Digest of the facts that the program was planned with.
    pub facts: Option<String>,
    /// The host's facts, for the run's record.
    pub known: Option<HostFacts>,
    /// Whether to return once the job is submitted.
    pub detach: bool,
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
}

impl ProgramExit {
    /// The exit status of `rgpu exec`: the program's own, 124 at the time limit, 128+n for signal
    /// n.
    pub fn status(self) -> u8 {
        match self {
            Self::Exit(n) => (n & 0xff) as u8,
            Self::Signal(n) => (128 + (n & 0x7f)) as u8,
            Self::TimedOut => 124,
        }
    }
}

/// The result of `rgpu exec`.
#[derive(Debug)]
pub struct ExecOutcome {
    /// How the program ended. An error if it was cancelled or its host failed it; `None` if it runs
    /// on detached.
    pub end: Option<Result<ProgramExit>>,
    /// The pulled files; also fetched if the program has no exit status.
    pub pulled: Vec<HostFile>,
    /// The copies of pulled files that were made while fetching.
    pub copies: FileCopies,
}

/// Drafts the plan, with the files to send.
pub fn draft(request: &ExecRequest, job: String) -> Draft {
    let mut limits = Limits::default();
    if let Some(bytes) = request.log_bytes {
        limits.log_bytes = bytes;
    }
    if let Some(queue) = request.queue {
        limits.queue_s = queue.as_secs();
    }
    let program = &request.program;
    let step = Step {
        id: EXEC_STEP.to_owned(),
        title: format!("running {}", program.name),
        gpu: request.gpu.is_some(),
        needs: Vec::new(),
        on_failure: OnFailure::Stop,
        timeout_s: request.timeout.as_secs().max(1),
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
            artifacts: pull_specs(&request.pull),
            loses: String::new(),
        }],
    };
    let plan = Plan {
        job,
        title: format!("exec {}", program.name),
        facts: request.facts.clone(),
        files: Vec::new(),
        steps: program.prepare.iter().cloned().chain([step]).collect(),
        gpu: request.gpu.clone(),
        env: request.env.iter().map(|(k, v)| (k.clone(), Arg::text(v.as_str()))).collect(),
        secrets: request.secrets.keys().cloned().collect(),
        origin: None,
        limits,
    };
    Draft { plan, files: program.files.clone(), expect: Expectations::default() }
}

/// Runs the program to its end. Pulled files are also written to `copies`.
///
/// # Errors
/// The link fails, the host refuses the plan, the run folder cannot be written, or the user
/// cancelled before anything ran.
pub async fn exec(
    link: &mut HostLink,
    request: &ExecRequest,
    packer: &mut Packer,
    context: &mut RunContext<'_>,
    mut copies: FileCopies,
) -> Result<ExecOutcome> {
    let job = format!("{}.1", context.record.id);
    let draft = draft(request, job.clone());
    let (mut files, mut commands) = (BTreeSet::new(), None);
    let write_plan = |bundle: Bundle, context: &RunContext<'_>| {
        context.folder.write_json("plan-1.json", &bundle.plan)?;
        commands = Some(bundle::commands(&bundle.plan));
        files = inputs_of(&bundle.plan.files);
        let mut submission = submission(bundle.plan, bundle.blobs);
        submission.secrets.clone_from(&request.secrets);
        Ok(submission)
    };
    let submitted = job::pack_and_submit(link, packer, &draft, context, write_plan).await;
    // These files are not needed to resume the job, so they are written while the host works.
    let env = EnvRecord::without_repository(request.known.clone());
    let written = context.folder.write_json("env.json", &env).and_then(|()| {
        commands.map_or(Ok(()), |text| context.folder.write("commands.sh", text.as_bytes()))
    });
    submitted?;
    written?;
    if request.detach {
        tokio::select! {
            left = link.detach() => left,
            () = context.cancel.beyond(0) => {
                let goes_on = format!("the job goes on: `rgpu runs cancel {}` stops it", context.record.id);
                return Err(cancelled().hint(goes_on));
            }
        }
        .on(link.remote())?;
        return Ok(ExecOutcome { end: None, pulled: Vec::new(), copies });
    }
    let choose = choose(&request.pull, files);
    let end = job::follow_choosing(link, &job, &[], context, &choose, &mut copies).await?;
    Ok(finish_job(link, end, context.record, copies))
}

/// Resumes a program that was submitted before. `pull` holds the `--pull` patterns of the current
/// command.
///
/// # Errors
/// As [`exec`].
pub async fn exec_again(
    link: &mut HostLink,
    pull: &[String],
    context: &mut RunContext<'_>,
    mut copies: FileCopies,
) -> Result<ExecOutcome> {
    let job = format!("{}.1", context.record.id);
    let known = resume::recorded_job(context.folder, context.record, &job)?.unwrap_or_default();
    if !known.ended() {
        job::take_up(link, &job, &known, context).await?;
    }
    let plan: Option<Plan> = serde_json::from_slice(&context.folder.read("plan-1.json")?).ok();
    let choose = choose(pull, inputs_of(&plan.map(|plan| plan.files).unwrap_or_default()));
    let end =
        job::follow_choosing(link, &job, &known.events, context, &choose, &mut copies).await?;
    Ok(finish_job(link, end, context.record, copies))
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
        link.drop_job(&end.job);
    }
    ExecOutcome { end: Some(program_end(link, &end)), pulled: pulled(end), copies }
}

/// The artifacts that the agent should announce, by the `--pull` patterns.
fn pull_specs(patterns: &[String]) -> Vec<ArtifactSpec> {
    let spec = |pattern: &String| ArtifactSpec {
        path: format!("{WORK_FOLDER}/{}", pattern.trim_start_matches("./")),
        kind: PULLED.to_owned(),
    };
    patterns.iter().map(spec).collect()
}

/// Accepts files that differ from the `sent` inputs, and refuses a host that announces a pulled
/// file matching no pattern. The patterns must be the command's own, since a plan may have come
/// from the host.
fn choose(
    patterns: &[String],
    sent: BTreeSet<(String, rgpu_protocol::Digest)>,
) -> impl Fn(&str, &RemoteFile) -> Result<bool> + Sync {
    let specs = pull_specs(patterns);
    move |kind, file| {
        let matches_pattern = || specs.iter().any(|spec| glob::matches(&spec.path, &file.path));
        if kind == PULLED && !matches_pattern() {
            return Err(not_asked_for(&file.path));
        }
        Ok(!sent.contains(&(file.path.clone(), file.digest.clone())))
    }
}

fn not_asked_for(path: &str) -> Failure {
    let what = format!("the host sent `{}`, which no `--pull` asked for", path.escape_debug());
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
        (_, Some(record)) if record.code == "timeout" => Ok(ProgramExit::TimedOut),
        (_, Some(RungRecord { exit: Some(n), .. })) => Ok(ProgramExit::Exit(*n)),
        (_, Some(RungRecord { signal: Some(n), .. })) => Ok(ProgramExit::Signal(*n)),
        _ => Err(outcome::failure(link.remote(), end)),
    }
}
