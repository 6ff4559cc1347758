//! A bare command on a host: one step, no tool, the program's own status.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::job::{self, Desk, JobEnd, cancelled};
use super::{outcome, resume};
use crate::error::Result;
use crate::remote::{BlobSource, Follow, Submission};
use rgpu_protocol::plan::{ArtifactSpec, Limits, OnFailure, Stdin, Success};
use rgpu_protocol::{Digest, Outcome, Plan, Rung, RungRecord, Step};

/// The step's name.
const STEP: &str = "exec";

/// What to execute.
#[derive(Clone, Debug)]
pub struct ExecRequest {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Environment.
    pub env: BTreeMap<String, String>,
    /// Most time it may take.
    pub timeout: Duration,
    /// Whether this process's standard input is sent.
    pub stdin: bool,
    /// Bytes kept of each stream.
    pub log_bytes: Option<u64>,
}

/// How the program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramEnd {
    /// With this status.
    Exit(i32),
    /// By this signal.
    Signal(i32),
    /// By its time limit.
    TimedOut,
}

impl ProgramEnd {
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

/// The plan of a bare command.
fn plan(request: &ExecRequest, job: String) -> Plan {
    let mut limits = Limits::default();
    if let Some(bytes) = request.log_bytes {
        limits.log_bytes = bytes;
    }
    let name = request.argv.first().map_or("", String::as_str);
    Plan {
        job,
        title: format!("exec {name}"),
        facts: None,
        files: Vec::new(),
        steps: vec![Step {
            id: STEP.to_owned(),
            title: format!("running {name}"),
            gpu: false,
            needs: Vec::new(),
            on_failure: OnFailure::Stop,
            timeout_s: request.timeout.as_secs().max(1),
            stdin: if request.stdin { Stdin::Client } else { Stdin::Null },
            rungs: vec![Rung {
                id: STEP.to_owned(),
                needs: Vec::new(),
                argv: request.argv.iter().cloned().map(Into::into).collect(),
                env: BTreeMap::new(),
                cwd: String::new(),
                // Its status is the answer, whatever it is.
                success: Success { exit: Vec::new(), ..Success::default() },
                diagnosis: Vec::new(),
                artifacts: Vec::<ArtifactSpec>::new(),
                loses: String::new(),
            }],
        }],
        gpu: None,
        env: request.env.iter().map(|(k, v)| (k.clone(), v.as_str().into())).collect(),
        secrets: Vec::new(),
        limits,
    }
}

/// A plan without files has no blobs.
struct NoBlobs;

impl BlobSource for NoBlobs {
    fn open(&self, _: &Digest) -> std::io::Result<Vec<u8>> {
        Err(std::io::ErrorKind::NotFound.into())
    }
}

/// Runs the command to its end.
///
/// # Errors
/// The link, the host, a command that could not be started, our disk, or the user cancelled.
pub async fn exec(
    follow: &mut Follow,
    request: &ExecRequest,
    desk: &mut Desk<'_>,
) -> Result<ProgramEnd> {
    let job = format!("{}.1", desk.record.id);
    let plan = plan(request, job.clone());
    desk.folder.write_json("plan-1.json", &plan)?;
    let submission = Submission { plan, blobs: Arc::new(NoBlobs), secrets: BTreeMap::new() };
    job::submit(follow, &submission, desk).await?;
    let end = job::follow_to_end(follow, &job, &[], desk).await?;
    program_end(follow, &end)
}

/// Takes up a command that was submitted before.
///
/// # Errors
/// As [`exec`].
pub async fn exec_again(follow: &mut Follow, desk: &mut Desk<'_>) -> Result<ProgramEnd> {
    let job = format!("{}.1", desk.record.id);
    let known = resume::known(desk.folder, desk.record, &job)?.unwrap_or_default();
    if !known.ended() {
        job::take_up(follow, &job, known.last_seq(), &known.had).await?;
    }
    let end = job::follow_to_end(follow, &job, &known.events, desk).await?;
    program_end(follow, &end)
}

/// How the program of an ended job ended.
fn program_end(follow: &Follow, end: &JobEnd) -> Result<ProgramEnd> {
    match (&end.outcome, end.last_rung(STEP)) {
        (Some(Outcome::Cancelled), _) => Err(cancelled()),
        (_, Some(record)) if record.code == "timeout" => Ok(ProgramEnd::TimedOut),
        (_, Some(RungRecord { exit: Some(n), .. })) => Ok(ProgramEnd::Exit(*n)),
        (_, Some(RungRecord { signal: Some(n), .. })) => Ok(ProgramEnd::Signal(*n)),
        _ => Err(outcome::failure(follow.remote(), end)),
    }
}
