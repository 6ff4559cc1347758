//! How a job stands, and the last words for one whose supervisor died without any (killed, or the
//! host went down): written once, by whoever looks first, after ending what it left behind.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rgpu_protocol::{Event, EventBody, Outcome};

use crate::host_fault::{DoingContext, HostFault};
use crate::job::JobFolder;
use crate::journal::Journal;
use crate::process::kill_marked;
use crate::supervisor::{left_behind, marker};

/// Bytes of the log's end in which the last event is looked for.
const TAIL_BYTES: u64 = 256 << 10;

/// How a job stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum JobState {
    /// Its supervisor lives.
    Running,
    /// It ended.
    Ended {
        /// How.
        outcome: Outcome,
        /// When, by the host's clock.
        at_ms: u64,
    },
    /// Its supervisor is gone and has not said how it ended.
    Dead,
}

/// How the job in `folder` stands.
///
/// # Errors
/// When its files cannot be read.
pub(crate) fn state(folder: &JobFolder) -> Result<JobState, HostFault> {
    if let Some(ended) = ended(folder)? {
        return Ok(ended);
    }
    if folder.try_lock()?.is_none() {
        return Ok(JobState::Running);
    }
    // It may have ended between the two looks.
    Ok(ended(folder)?.unwrap_or(JobState::Dead))
}

/// How the job stands, after the last words for a dead supervisor.
///
/// # Errors
/// When they cannot be written.
pub(crate) fn settle(folder: &JobFolder) -> Result<JobState, HostFault> {
    let JobState::Dead = state(folder)? else { return state(folder) };
    // Held until the words are written: nobody else writes them too.
    let Some(_lock) = folder.try_lock()? else { return Ok(JobState::Running) };
    let (mut journal, last) = Journal::open(&folder.events_path())?;
    if matches!(last, Some(Event { body: EventBody::Ended { .. }, .. })) {
        return state_of_ended(folder);
    }
    let left = kill_marked(&marker(folder));
    let mut text =
        "the job's supervisor died (killed, out of memory, or the host went down)".to_owned();
    if !left.is_empty() {
        text.push_str(&format!("; {} of its processes do not die", left.len()));
    }
    // A defect's trace, or why the event log could not be written.
    let own_words = std::fs::read_to_string(folder.supervisor_log()).unwrap_or_default();
    if let Some(line) = own_words.lines().rev().find(|line| !line.trim().is_empty()) {
        text.push_str(&format!("; it said: {line}"));
    }
    // What was made of what the user asked for by name; where there is no room to say so, the last
    // words count for more.
    if let Ok(plan) = folder.plan() {
        let work = folder.work();
        let mut made = left_behind(&plan, &work);
        while let Some(Ok(())) = made.next().map(|event| journal.append(event)) {}
    }
    let outcome = Outcome::HostError { code: "supervisor_died".into(), text };
    journal.append(EventBody::Ended { outcome })?;
    journal.close();
    state_of_ended(folder)
}

fn state_of_ended(folder: &JobFolder) -> Result<JobState, HostFault> {
    Ok(ended(folder)?.unwrap_or(JobState::Dead))
}

fn ended(folder: &JobFolder) -> Result<Option<JobState>, HostFault> {
    let path = folder.events_path();
    let last = last_events(&path).doing("read", &path)?.into_iter().next_back();
    Ok(match last {
        Some(Event { at_ms, body: EventBody::Ended { outcome }, .. }) => {
            Some(JobState::Ended { outcome, at_ms })
        }
        _ => None,
    })
}

/// The events at the end of a log.
pub(crate) fn last_events(path: &Path) -> io::Result<Vec<Event>> {
    let file = File::open(path)?;
    let len = file.metadata()?.len();
    let start = len.saturating_sub(TAIL_BYTES);
    let mut bytes = vec![0; (len - start) as usize];
    // The file only grows, but for a half line that is cut away.
    let mut n = 0;
    while n < bytes.len() {
        match file.read_at(&mut bytes[n..], start + n as u64)? {
            0 => break,
            more => n += more,
        }
    }
    bytes.truncate(n);
    let whole = bytes.iter().rposition(|b| *b == b'\n').unwrap_or(0);
    let lines = bytes[..whole].split(|b| *b == b'\n');
    Ok(lines.filter_map(|line| serde_json::from_slice(line).ok()).collect())
}
