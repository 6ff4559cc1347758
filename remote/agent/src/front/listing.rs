//! Listing and forgetting jobs.

use rgpu_protocol::EventBody;
use rgpu_protocol::message::JobLine;

use crate::fault::HostFault;
use crate::job::JobFolder;
use crate::journal::JournalReader;
use crate::quota::tree_bytes;
use crate::root::Roots;
use crate::service::Refusal;
use crate::settle::{State, last_events, settle};

/// More jobs than this do not fit in a message.
const MOST_JOBS: usize = 1000;

/// The jobs of this user on this host, newest first.
pub(crate) fn list(roots: &Roots) -> Vec<JobLine> {
    let mut lines: Vec<JobLine> =
        roots.all().flat_map(JobFolder::all).filter_map(|folder| line(&folder)).collect();
    lines.sort_by(|a, b| b.started_ms.cmp(&a.started_ms).then_with(|| b.job.cmp(&a.job)));
    lines.truncate(MOST_JOBS);
    lines
}

/// A job's line; `None`: its files cannot be read.
pub(crate) fn line(folder: &JobFolder) -> Option<JobLine> {
    let title = folder.plan().ok()?.title;
    let ended = match settle(folder).ok()? {
        State::Ended { outcome, .. } => Some(outcome),
        State::Running | State::Dead => None,
    };
    let mut reader = JournalReader::open(&folder.events_path()).ok()?;
    let first = reader.read_new().ok()?.into_iter().next();
    let step =
        last_events(&folder.events_path()).ok()?.into_iter().rev().find_map(|e| match e.body {
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
        step: step.unwrap_or_default(),
        bytes: tree_bytes(folder.path()),
    })
}

/// Removes an ended job.
pub(crate) fn forget(folder: &JobFolder) -> Result<(), Refusal> {
    let host = |e: HostFault| Refusal::new("forget", e.code(), e.to_string());
    match settle(folder).map_err(host)? {
        State::Ended { .. } => folder.remove().map_err(host),
        State::Running | State::Dead => {
            Err(Refusal::new("forget", "running", "the job has not ended"))
        }
    }
}
