//! Answers a client's requests to list the user's jobs on this host and to remove an ended one.

use rgpu_protocol::message::JobLine;
use rgpu_protocol::{EventBody, FromAgent};

use crate::host_fault::HostFault;
use crate::job::{JobFolder, RemovedFolder};
use crate::job_state::{JobState, last_events, settle};
use crate::journal::{JournalReader, now_ms};
use crate::quota;
use crate::root::Roots;
use crate::service::Refusal;

/// Most jobs in a list; more do not fit in a message.
const MAX_LISTED_JOBS: usize = 1000;

/// Returns this user's jobs on this host, newest first.
fn list(roots: &Roots) -> Vec<JobLine> {
    let mut jobs: Vec<JobLine> =
        roots.all().flat_map(JobFolder::all).filter_map(|folder| line(&folder)).collect();
    jobs.sort_by(|a, b| b.started_ms.cmp(&a.started_ms).then_with(|| b.job.cmp(&a.job)));
    jobs.truncate(MAX_LISTED_JOBS);
    jobs
}

/// Returns the jobs and their disk use as a message.
pub(crate) fn answer(roots: &Roots) -> FromAgent {
    FromAgent::Jobs {
        jobs: list(roots),
        now_ms: now_ms(),
        used_bytes: roots.all().map(quota::tree_bytes).sum(),
        quota_bytes: quota::limit(),
    }
}

/// Returns a job's line; `None` if its files cannot be read.
fn line(folder: &JobFolder) -> Option<JobLine> {
    let title = folder.plan().ok()?.title;
    let (ended, ended_ms) = match settle(folder).ok()? {
        JobState::Ended { outcome, at_ms } => (Some(outcome), Some(at_ms)),
        JobState::Running | JobState::Dead => (None, None),
    };
    let mut reader = JournalReader::open(&folder.events_path()).ok()?;
    let first = reader.read_new().ok()?.into_iter().next();
    let last = last_events(&folder.events_path()).ok()?;
    let queued = match last.last().map(|e| &e.body) {
        Some(EventBody::Queued { position, .. }) => Some(*position),
        _ => None,
    };
    let step = last.into_iter().rev().find_map(|e| match e.body {
        EventBody::StepStarted { step, .. }
        | EventBody::RungStarted { step, .. }
        | EventBody::Output { step, .. }
        | EventBody::StepEnded { step, .. } => Some(step),
        _ => None,
    });
    Some(JobLine {
        job: folder.id().to_owned(),
        title,
        started_ms: first.map_or(0, |e| e.at_ms),
        ended,
        ended_ms,
        queued,
        step: step.unwrap_or_default(),
        bytes: quota::tree_bytes(folder.path()),
    })
}

/// Moves an ended job out of the list of jobs, for later removal.
pub(crate) fn set_aside(folder: &JobFolder) -> Result<RemovedFolder, Refusal> {
    let host = |e: HostFault| Refusal::new("forget", e.code(), e.to_string());
    match settle(folder).map_err(host)? {
        JobState::Ended { .. } => folder.set_aside().map_err(host),
        JobState::Running | JobState::Dead => {
            Err(Refusal::new("forget", "running", "the job has not ended"))
        }
    }
}
