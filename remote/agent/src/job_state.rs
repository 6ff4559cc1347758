//! The state of a job, and the terminal event for a job whose supervisor died without one (killed,
//! or the host went down). The first process that notices kills the remaining processes and writes
//! that event.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rgpu_protocol::{Event, EventBody, Outcome};

use crate::gpu_setting;
use crate::host_fault::{HostFault, IoContext};
use crate::job::JobFolder;
use crate::journal::Journal;
use crate::process::kill_marked;
use crate::supervisor::{left_behind, marker};

/// Bytes at the end of the log that are searched for the last event.
const TAIL_BYTES: u64 = 256 << 10;

/// Set on a host that carries out no jobs, and sees those of others in a shared folder: the run
/// whose jobs have surely ended, `all`, or nothing. A lock in a shared folder alone does not tell
/// that a supervisor on another host has died.
const RESULTS_VARIABLE: &str = "RGPU_AGENT_RESULTS";

/// Whether this host only hands out the results of jobs that other hosts carried out.
pub(crate) fn has_results_only() -> bool {
    std::env::var_os(RESULTS_VARIABLE).is_some()
}

/// Whether the lock tells if the job's supervisor lives.
fn lock_tells(folder: &JobFolder) -> bool {
    let Some(ended_run) = std::env::var_os(RESULTS_VARIABLE) else { return true };
    let run = folder.id().rsplit_once('.').map_or(folder.id(), |(run, _)| run);
    ended_run == "all" || ended_run == run
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum JobState {
    /// Its supervisor is alive.
    Running,
    Ended {
        outcome: Outcome,
        /// Time of the end, by the host's clock.
        at_ms: u64,
    },
    /// Its supervisor has died without a terminal event.
    Dead,
}

/// Returns the state of the job in `folder`.
pub(crate) fn state(folder: &JobFolder) -> Result<JobState, HostFault> {
    if let Some(ended) = ended(folder)? {
        return Ok(ended);
    }
    if !lock_tells(folder) || folder.try_lock()?.is_none() {
        return Ok(JobState::Running);
    }
    // It may have ended between the two checks.
    Ok(ended(folder)?.unwrap_or(JobState::Dead))
}

/// Returns the state of the job, after writing the terminal event for a dead supervisor.
pub(crate) fn settle(folder: &JobFolder) -> Result<JobState, HostFault> {
    let JobState::Dead = state(folder)? else { return state(folder) };
    // Held until the event is written, so that no other process writes it too.
    let Some(_lock) = folder.try_lock()? else { return Ok(JobState::Running) };
    let (mut journal, last) = Journal::open(&folder.events_path())?;
    if matches!(last, Some(Event { body: EventBody::Ended { .. }, .. })) {
        return ended_state(folder);
    }
    let left = kill_marked(&marker(folder));
    let mut text =
        "the job's supervisor died (killed, out of memory, or the host went down)".to_owned();
    if !left.is_empty() {
        text.push_str(&format!("; {} of its processes cannot be killed", left.len()));
    }
    if let Err(failure) = gpu_setting::undo(folder) {
        // If this fails, the commands stay in the job's folder, and are lost with it.
        let _ = gpu_setting::keep_after_end(folder);
        text.push_str(&format!("; {}", gpu_setting::not_restored(&failure)));
    }
    // The log holds a panic's message, or why the event log could not be written.
    let supervisor_log = std::fs::read_to_string(folder.supervisor_log()).unwrap_or_default();
    if let Some(line) = supervisor_log.lines().rev().find(|line| !line.trim().is_empty()) {
        text.push_str(&format!("; it said: {line}"));
    }
    // Announce the files that the user named. If the disk is full, the terminal event matters more.
    if let Ok(plan) = folder.plan() {
        let work = folder.work();
        let mut artifacts = left_behind(&plan, &work);
        while let Some(Ok(())) = artifacts.next().map(|event| journal.append(event)) {}
    }
    let outcome = Outcome::HostError { code: "supervisor_died".into(), text };
    journal.append(EventBody::Ended { outcome })?;
    journal.close();
    ended_state(folder)
}

fn ended_state(folder: &JobFolder) -> Result<JobState, HostFault> {
    Ok(ended(folder)?.unwrap_or(JobState::Dead))
}

fn ended(folder: &JobFolder) -> Result<Option<JobState>, HostFault> {
    let path = folder.events_path();
    let last = last_events(&path).context("read", &path)?.into_iter().next_back();
    Ok(match last {
        Some(Event { at_ms, body: EventBody::Ended { outcome }, .. }) => {
            Some(JobState::Ended { outcome, at_ms })
        }
        _ => None,
    })
}

/// Returns the events at the end of a log.
pub(crate) fn last_events(path: &Path) -> io::Result<Vec<Event>> {
    let file = File::open(path)?;
    let len = file.metadata()?.len();
    let start = len.saturating_sub(TAIL_BYTES);
    let mut bytes = vec![0; (len - start) as usize];
    // The file only grows, except that a partial line is cut off.
    let mut n = 0;
    while n < bytes.len() {
        match file.read_at(&mut bytes[n..], start + n as u64)? {
            0 => break,
            more => n += more,
        }
    }
    bytes.truncate(n);
    let end = bytes.iter().rposition(|b| *b == b'\n').unwrap_or(0);
    let lines = bytes[..end].split(|b| *b == b'\n');
    Ok(lines.filter_map(|line| serde_json::from_slice(line).ok()).collect())
}
