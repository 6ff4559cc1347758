//! Starting a job: its folder, then its supervisor.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rgpu_protocol::{Digest, Plan};

use crate::blob::{Blobs, piece_sizes};
use crate::control;
use crate::fault::{Doing, HostFault};
use crate::job::{CreateError, JobFolder, NewJob, SOCKET, missing_blobs};
use crate::quota;
use crate::setup::Setup;

/// What became of a plan.
pub(crate) enum Launched {
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

/// Starts `plan` under `root`.
///
/// # Errors
/// Code and text of a refusal.
pub(crate) fn launch(
    root: &Path,
    plan: &Plan,
    blobs: &Blobs,
    setup: &Setup,
) -> Result<Launched, (&'static str, String)> {
    let missing = missing_blobs(plan, blobs);
    quota::room_for(root, bytes_of(plan, &missing)).map_err(|e| ("quota", e.to_string()))?;
    if !missing.is_empty() {
        return Ok(Launched::Missing(missing));
    }
    let host = |e: HostFault| (e.code(), e.to_string());
    let job = match JobFolder::create(root, plan, blobs) {
        Ok(job) => job,
        Err(CreateError::Exists) => return Ok(Launched::Exists),
        Err(e @ CreateError::Blobs { .. }) => return Err(("bad_plan", e.to_string())),
        Err(CreateError::Host(e)) => return Err(host(e)),
    };
    let folder = job.folder.clone();
    let link = control::connect(folder.path(), SOCKET).doing("connect to", folder.path());
    match link.and_then(|link| start_supervisor(job, setup).map(|()| link)) {
        Ok(link) => Ok(Launched::Started { folder, link }),
        Err(e) => {
            // Nobody has seen it run.
            let _ = folder.remove();
            Err(host(e))
        }
    }
}

/// Bytes that a plan takes before its first step: the blobs that are to come, and its inputs, which
/// are copied out of blobs.
fn bytes_of(plan: &Plan, missing: &[Digest]) -> u64 {
    let missing: BTreeSet<&Digest> = missing.iter().collect();
    let mut bytes = 0;
    for file in &plan.files {
        bytes += file.size;
        let pieces = file.blobs.iter().zip(piece_sizes(file.size, file.blobs.len()));
        bytes +=
            pieces.filter(|(blob, _)| missing.contains(blob)).map(|(_, size)| size).sum::<u64>();
    }
    bytes
}

/// Starts the supervisor's process: it gets the socket and the lock, and leaves our session.
fn start_supervisor(job: NewJob, setup: &Setup) -> Result<(), HostFault> {
    let log = job.folder.supervisor_log();
    let log = File::create(&log).doing("make", &log)?;
    // Also right when the agent's file was replaced by a newer one meanwhile.
    let program = Path::new("/proc/self/exe");
    let child = Command::new(program)
        .arg0("rgpu-agent")
        .arg("job")
        .arg(job.folder.path())
        .current_dir("/")
        .envs(setup.for_supervisor())
        .stdin(Stdio::from(std::os::fd::OwnedFd::from(job.listener)))
        .stdout(Stdio::from(job.lock))
        .stderr(log)
        .spawn();
    let mut child = child.doing("start", program)?;
    std::thread::spawn(move || {
        // Only so that no zombie stays while the connection lives.
        let _ = child.wait();
    });
    Ok(())
}
