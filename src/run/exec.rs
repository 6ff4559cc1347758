//! A program on a host: what prepares it, then one step, no tool, the program's own status.

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

/// The step's name.
pub const EXEC_STEP: &str = "exec";

/// What to execute.
#[derive(Clone, Debug, Default)]
pub struct ExecRequest {
    /// The program, its files, and the steps before it.
    pub program: Program,
    /// Environment of all steps.
    pub env: BTreeMap<String, String>,
    /// The same, for values that nobody may see.
    pub secrets: BTreeMap<String, String>,
    /// Most time it may take.
    pub timeout: Duration,
    /// What it reads on standard input.
    pub stdin: Stdin,
    /// Bytes kept of each stream.
    pub log_bytes: Option<u64>,
    /// Files of its working folder to bring back.
    pub pull: Vec<String>,
    /// The GPUs to hold while it runs.
    pub gpu: Option<GpuRequest>,
    /// Time to wait for them.
    pub queue: Option<Duration>,
    /// The facts that the program was made from.
    pub facts: Option<String>,
    /// What is known of the host, for the run's record.
    pub known: Option<HostFacts>,
    /// Go away once it is submitted.
    pub detach: bool,
}

/// How the program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramExit {
    /// With this status.
    Exit(i32),
    /// By this signal.
    Signal(i32),
    /// By its time limit.
    TimedOut,
}

impl ProgramExit {
    /// The status that `rgpu exec` ends with: the program's own, 124 for the time limit, 128+n for
    /// a signal.
    pub fn status(self) -> u8 {
        match self {
            Self::Exit(n) => (n & 0xff) as u8,
            Self::Signal(n) => (128 + (n & 0x7f)) as u8,
            Self::TimedOut => 124,
        }
    }
}

/// What came of it.
#[derive(Debug)]
pub struct ExecOutcome {
    /// How the program ended, or why it has no status of its own though it is over: it was
    /// cancelled, or its host failed it. `None`: it was left to itself.
    pub end: Option<Result<ProgramExit>>,
    /// What was pulled, also of a program without a status.
    pub pulled: Vec<HostFile>,
    /// Copies of it that were made on the way.
    pub copies: FileCopies,
}

/// The plan with the files that go with it.
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
            // Its status is the answer, whatever it is.
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

/// Runs the program to its end; what is pulled goes where `copies` says, too.
///
/// # Errors
/// The link, the host's refusal, our disk, or the user cancelled and nothing has run.
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
    let kept = |bundle: Bundle, context: &RunContext<'_>| {
        context.folder.write_json("plan-1.json", &bundle.plan)?;
        commands = Some(bundle::commands(&bundle.plan));
        files = sent(&bundle.plan.files);
        let mut submission = submission(bundle.plan, bundle.blobs);
        submission.secrets.clone_from(&request.secrets);
        Ok(submission)
    };
    let submitted = job::pack_and_submit(link, packer, &draft, context, kept).await;
    // What nobody needs to take the job up is written while the host works.
    let env = EnvRecord::without_repository(request.known.clone());
    let written = context.folder.write_json("env.json", &env).and_then(|()| {
        commands.map_or(Ok(()), |text| context.folder.write("commands.sh", text.as_bytes()))
    });
    submitted?;
    written?;
    if request.detach {
        link.detach().await.on(link.remote())?;
        return Ok(ExecOutcome { end: None, pulled: Vec::new(), copies });
    }
    let choose = choose(&request.pull, files);
    let end = job::follow_choosing(link, &job, &[], context, &choose, &mut copies).await?;
    Ok(over(link, end, context.record, copies))
}

/// Takes up a program that was submitted before, by a command with these `--pull` patterns.
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
    let known = resume::known(context.folder, context.record, &job)?.unwrap_or_default();
    if !known.ended() {
        job::take_up(link, &job, &known, context).await?;
    }
    let plan: Option<Plan> = serde_json::from_slice(&context.folder.read("plan-1.json")?).ok();
    let choose = choose(pull, sent(&plan.map(|plan| plan.files).unwrap_or_default()));
    let end =
        job::follow_choosing(link, &job, &known.events, context, &choose, &mut copies).await?;
    Ok(over(link, end, context.record, copies))
}

/// A job that is over, and all of it here: its output need not lie there too, unless a power cut
/// could still take what is here.
fn over(
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

/// What the agent is asked to bring, by the patterns of `--pull`.
fn pull_specs(patterns: &[String]) -> Vec<ArtifactSpec> {
    let spec = |pattern: &String| ArtifactSpec {
        path: format!("{WORK_FOLDER}/{}", pattern.trim_start_matches("./")),
        kind: PULLED.to_owned(),
    };
    patterns.iter().map(spec).collect()
}

/// Takes the files that are not as they were `sent`, and refuses a host that names a pulled file which
/// no pattern asked for. The patterns are the command's own: a plan may have come from the host.
fn choose(
    patterns: &[String],
    sent: BTreeSet<(String, rgpu_protocol::Digest)>,
) -> impl Fn(&str, &RemoteFile) -> Result<bool> + Sync {
    let specs = pull_specs(patterns);
    move |kind, file| {
        let asked = || specs.iter().any(|spec| glob::matches(&spec.path, &file.path));
        if kind == PULLED && !asked() {
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

/// What the host was sent: a pattern may fit it, and it need not come back.
fn sent(files: &[InputFile]) -> BTreeSet<(String, rgpu_protocol::Digest)> {
    files.iter().map(|file| (file.path.clone(), file.digest.clone())).collect()
}

fn pulled(end: JobResult) -> Vec<HostFile> {
    end.files.into_iter().filter(|file| file.artifact.kind == PULLED).collect()
}

/// How the program of an ended job ended.
fn program_end(link: &HostLink, end: &JobResult) -> Result<ProgramExit> {
    match (&end.outcome, end.last_rung(EXEC_STEP)) {
        (Some(Outcome::Cancelled), _) => Err(cancelled()),
        (_, Some(record)) if record.code == "timeout" => Ok(ProgramExit::TimedOut),
        (_, Some(RungRecord { exit: Some(n), .. })) => Ok(ProgramExit::Exit(*n)),
        (_, Some(RungRecord { signal: Some(n), .. })) => Ok(ProgramExit::Signal(*n)),
        _ => Err(outcome::failure(link.remote(), end)),
    }
}
