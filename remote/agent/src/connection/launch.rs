//! Starts a job: creates its folder, then its supervisor.

use std::collections::BTreeSet;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rgpu_protocol::{Digest, Plan};

use crate::blob::Blobs;
use crate::control;
use crate::host_fault::{HostFault, IoContext};
use crate::job::{CreateError, FolderDraft, JobFolder, NewJob, SOCKET, missing_blobs};
use crate::setup::ConnectionSettings;
use crate::{job_state, quota};

/// The result of launching a plan.
pub(crate) enum LaunchResult {
    /// The job's supervisor runs.
    Started {
        folder: JobFolder,
        /// Connection to the supervisor.
        link: UnixStream,
    },
    /// The client must send these blobs first.
    Missing(Vec<Digest>),
    /// Another connection has created the job.
    Exists,
}

/// Starts `plan` under `root` (in `draft`, if there is one). If `relay_socket` is given, the agent
/// behind it carries out the job.
pub(crate) fn launch(
    root: &Path,
    plan: &Plan,
    blobs: &Blobs,
    setup: &ConnectionSettings,
    relay_socket: Option<&Path>,
    draft: Option<FolderDraft>,
) -> Result<LaunchResult, (&'static str, String)> {
    let missing = missing_blobs(plan, blobs);
    let draft = draft.filter(FolderDraft::is_there);
    let needed =
        needed_bytes(plan, &missing).saturating_sub(draft.as_ref().map_or(0, FolderDraft::bytes));
    quota::ensure_space(root, needed).map_err(|e| (e.code(), e.to_string()))?;
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
    let link = control::connect(folder.path(), SOCKET).context("connect to", folder.path());
    match link.and_then(|link| start_supervisor(job, setup, relay_socket).map(|()| link)) {
        Ok(link) => Ok(LaunchResult::Started { folder, link }),
        Err(e) => {
            // No client has seen this job yet.
            let _ = folder.remove();
            Err(host(e))
        }
    }
}

/// Starts relays for jobs of a server that has ended; the other agents may still run them.
pub(crate) fn restart_relays(root: &Path, relay_socket: &Path) {
    for folder in JobFolder::all(root) {
        let start_relay = || -> Result<(), HostFault> {
            let is_dead = matches!(job_state::state(&folder)?, job_state::JobState::Dead);
            let Some(lock) = folder.try_lock()?.filter(|_| is_dead) else { return Ok(()) };
            let _ = std::fs::remove_file(folder.path().join(SOCKET));
            let listener = control::listen(folder.path(), SOCKET);
            let listener = listener.context("listen in", folder.path())?;
            let job = NewJob { folder: folder.clone(), lock: lock.into(), listener };
            start_supervisor(job, &ConnectionSettings::default(), Some(relay_socket))
        };
        // A job whose relay does not start is reported as dead.
        let _ = start_relay();
    }
}

/// Returns the bytes that a plan needs before its first step: the missing blobs, and its inputs,
/// which are copied from blobs.
fn needed_bytes(plan: &Plan, missing: &[Digest]) -> u64 {
    let missing: BTreeSet<&Digest> = missing.iter().collect();
    let mut bytes = 0;
    for file in &plan.files {
        bytes += file.size;
        let awaited = file.pieces().filter(|piece| missing.contains(piece.digest));
        bytes += awaited.map(|piece| piece.len).sum::<u64>();
    }
    bytes
}

/// Starts the supervisor's process. It gets the socket and the lock and leaves our session. It logs
/// errors in the job's folder.
fn start_supervisor(
    job: NewJob,
    setup: &ConnectionSettings,
    relay_socket: Option<&Path>,
) -> Result<(), HostFault> {
    // Works even if the agent's file has been replaced by a newer one.
    let program = Path::new("/proc/self/exe");
    let child = Command::new(program)
        .arg0("rgpu-agent")
        .arg(if relay_socket.is_some() { "relay" } else { "job" })
        .arg(job.folder.path())
        .args(relay_socket)
        .current_dir("/")
        .envs(setup.for_supervisor())
        .stdin(Stdio::from(std::os::fd::OwnedFd::from(job.listener)))
        .stdout(Stdio::from(job.lock))
        .stderr(Stdio::null())
        .spawn();
    let mut child = child.context("start", program)?;
    // Reaps the child, so that no zombie stays while the connection lives. The job goes on without.
    let _ = std::thread::Builder::new().spawn(move || child.wait());
    Ok(())
}
