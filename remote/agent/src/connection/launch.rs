//! Starting a job: its folder, then its supervisor.

use std::collections::BTreeSet;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rgpu_protocol::{Digest, Plan};

use crate::blob::Blobs;
use crate::control;
use crate::host_fault::{DoingContext, HostFault};
use crate::job::{CreateError, FolderDraft, JobFolder, NewJob, SOCKET, missing_blobs};
use crate::setup::Setup;
use crate::{job_state, quota};

/// What became of a plan.
pub(crate) enum LaunchResult {
    /// Its supervisor runs.
    Started {
        /// The job's folder.
        folder: JobFolder,
        /// The way to its supervisor.
        link: UnixStream,
    },
    /// Blobs must come first.
    Missing(Vec<Digest>),
    /// Another connection was faster.
    Exists,
}

/// Starts `plan` under `root`, of the `draft` if one was begun; with `way`, another agent behind that
/// socket carries it out.
///
/// # Errors
/// Code and text of a refusal.
pub(crate) fn launch(
    root: &Path,
    plan: &Plan,
    blobs: &Blobs,
    setup: &Setup,
    way: Option<&Path>,
    draft: Option<FolderDraft>,
) -> Result<LaunchResult, (&'static str, String)> {
    let missing = missing_blobs(plan, blobs);
    let draft = draft.filter(FolderDraft::is_there);
    let wanted =
        bytes_of(plan, &missing).saturating_sub(draft.as_ref().map_or(0, FolderDraft::bytes));
    quota::room_for(root, wanted).map_err(|e| (e.code(), e.to_string()))?;
    if !missing.is_empty() {
        return Ok(LaunchResult::Missing(missing));
    }
    let host = |e: HostFault| (e.code(), e.to_string());
    let draft = draft.map_or_else(|| FolderDraft::new(root), Ok).map_err(host)?;
    let job = match draft.finish(root, plan, blobs) {
        Ok(job) => job,
        Err(CreateError::Exists) => return Ok(LaunchResult::Exists),
        Err(e @ CreateError::Blobs { .. }) => return Err(("bad_plan", e.to_string())),
        Err(CreateError::Host(e)) => return Err(host(e)),
    };
    let folder = job.folder.clone();
    let link = control::connect(folder.path(), SOCKET).doing("connect to", folder.path());
    match link.and_then(|link| start_supervisor(job, setup, way).map(|()| link)) {
        Ok(link) => Ok(LaunchResult::Started { folder, link }),
        Err(e) => {
            // Nobody has seen it run.
            let _ = folder.remove();
            Err(host(e))
        }
    }
}

/// Starts relays for jobs of a server that is gone: their other agents go on, or have ended.
pub(crate) fn take_up(root: &Path, way: &Path) {
    for folder in JobFolder::all(root) {
        let begin = || -> Result<(), HostFault> {
            let settled = matches!(job_state::state(&folder)?, job_state::JobState::Dead);
            let Some(lock) = folder.try_lock()?.filter(|_| settled) else { return Ok(()) };
            let _ = std::fs::remove_file(folder.path().join(SOCKET));
            let listener = control::listen(folder.path(), SOCKET);
            let listener = listener.doing("listen in", folder.path())?;
            let job = NewJob { folder: folder.clone(), lock: lock.into(), listener };
            start_supervisor(job, &Setup::default(), Some(way))
        };
        // What cannot be taken up is told as dead to whoever asks.
        let _ = begin();
    }
}

/// Bytes that a plan takes before its first step: the blobs that are to come, and its inputs, which
/// are copied out of blobs.
fn bytes_of(plan: &Plan, missing: &[Digest]) -> u64 {
    let missing: BTreeSet<&Digest> = missing.iter().collect();
    let mut bytes = 0;
    for file in &plan.files {
        bytes += file.size;
        let coming = file.pieces().filter(|piece| missing.contains(piece.digest));
        bytes += coming.map(|piece| piece.len).sum::<u64>();
    }
    bytes
}

/// Starts the supervisor's process: it gets the socket and the lock, and leaves our session. What it
/// has to say of itself it writes into the job's folder.
fn start_supervisor(job: NewJob, setup: &Setup, way: Option<&Path>) -> Result<(), HostFault> {
    // Also right when the agent's file was replaced by a newer one meanwhile.
    let program = Path::new("/proc/self/exe");
    let child = Command::new(program)
        .arg0("rgpu-agent")
        .arg(if way.is_some() { "relay" } else { "job" })
        .arg(job.folder.path())
        .args(way)
        .current_dir("/")
        .envs(setup.for_supervisor())
        .stdin(Stdio::from(std::os::fd::OwnedFd::from(job.listener)))
        .stdout(Stdio::from(job.lock))
        .stderr(Stdio::null())
        .spawn();
    let mut child = child.doing("start", program)?;
    std::thread::spawn(move || {
        // Only so that no zombie stays while the connection lives.
        let _ = child.wait();
    });
    Ok(())
}
