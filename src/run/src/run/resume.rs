//! Reads from the run folder how far a job has been recorded, so that it can be resumed.

use rgpu_protocol::event::Stream;
use rgpu_protocol::message::ReceivedOutput;
use rgpu_protocol::{Event, EventBody, Outcome};
use serde::Deserialize;

use crate::store::{RunFolder, RunRecord};
use rgpu_model::error::Result;

/// The recorded part of a job.
#[derive(Debug, Default)]
pub(super) struct RecordedJob {
    /// The recorded events, without gaps from 1 on.
    pub events: Vec<Event>,
    /// How much of each output stream is recorded.
    pub received: Vec<ReceivedOutput>,
}

impl RecordedJob {
    /// Number of the last recorded event; 0 if there is none.
    pub(super) fn last_seq(&self) -> u64 {
        self.events.last().map_or(0, |e| e.seq)
    }

    /// Whether the terminal event is recorded.
    pub(super) fn ended(&self) -> bool {
        self.events.last().is_some_and(|e| matches!(e.body, EventBody::Ended { .. }))
    }
}

/// The recorded outcome of `job`, from `events.jsonl`: that file may be ahead of `run.json`.
pub fn recorded_outcome(
    folder: &RunFolder,
    record: &RunRecord,
    job: &str,
) -> Result<Option<Outcome>> {
    let events = recorded_job(folder, record, job)?.unwrap_or_default().events;
    Ok(match events.into_iter().next_back() {
        Some(Event { body: EventBody::Ended { outcome }, .. }) => Some(outcome),
        _ => None,
    })
}

#[derive(Deserialize)]
struct EventLine {
    job: String,
    #[serde(flatten)]
    event: Event,
}

/// The recorded part of `job`; `None` if the run's record does not list it.
pub(super) fn recorded_job(
    folder: &RunFolder,
    record: &RunRecord,
    job: &str,
) -> Result<Option<RecordedJob>> {
    if !record.jobs.iter().any(|j| j.job == job) {
        return Ok(None);
    }
    let mut known = RecordedJob::default();
    let text = if folder.has("events.jsonl") { folder.read("events.jsonl")? } else { Vec::new() };
    for line in text.split(|b| *b == b'\n') {
        // A line that a crash cut short is skipped; the host sends that event again.
        let Ok(line) = serde_json::from_slice::<EventLine>(line) else { continue };
        if line.job == job && line.event.seq == known.last_seq() + 1 {
            known.events.push(line.event);
        }
    }
    let steps: std::collections::BTreeSet<&str> = known
        .events
        .iter()
        .filter_map(|e| match &e.body {
            EventBody::StepStarted { step, .. } => Some(step.as_str()),
            _ => None,
        })
        .collect();
    for step in steps {
        for stream in [Stream::Stdout, Stream::Stderr] {
            let log = folder.files().open_file(RunFolder::log_name(step, stream));
            let bytes = log.and_then(|log| log.metadata()).map_or(0, |m| m.len());
            if bytes > 0 {
                known.received.push(ReceivedOutput { step: step.to_owned(), stream, bytes });
            }
        }
    }
    Ok(Some(known))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::JobRecord;

    #[test]
    fn a_cut_last_line_is_asked_for_again() {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(dir.path(), "r", None).unwrap();
        let mut record = RunRecord::new("r".into(), "profile", jiff::Timestamp::UNIX_EPOCH);
        assert!(recorded_job(&folder, &record, "r.1").unwrap().is_none());
        record.jobs.push(JobRecord {
            job: "r.1".into(),
            remote: "x".into(),
            last_seq: 0,
            outcome: None,
            unsynced: Vec::new(),
        });
        let mut recorder = folder.recorder().unwrap();
        let started = EventBody::StepStarted { step: "build".into(), title: "t".into() };
        recorder.event("r.1", &Event { seq: 1, at_ms: 0, body: started }).unwrap();
        recorder
            .event("r.1", &Event { seq: 2, at_ms: 0, body: EventBody::GpuReleased {} })
            .unwrap();
        recorder.output("build", Stream::Stderr, b"abc").unwrap();
        let mut text = folder.read("events.jsonl").unwrap();
        text.extend(b"{\"job\":\"r.1\",\"seq\":3,\"at_");
        folder.write("events.jsonl", &text).unwrap();
        let known = recorded_job(&folder, &record, "r.1").unwrap().unwrap();
        assert_eq!(known.last_seq(), 2);
        assert!(!known.ended());
        assert_eq!(
            known.received,
            [ReceivedOutput { step: "build".into(), stream: Stream::Stderr, bytes: 3 }]
        );
        assert_eq!(recorded_outcome(&folder, &record, "r.1").unwrap(), None);
    }

    #[test]
    fn an_end_is_known_before_the_record_has_it() {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(dir.path(), "r", None).unwrap();
        let mut record = RunRecord::new("r".into(), "exec", jiff::Timestamp::UNIX_EPOCH);
        record.jobs.push(JobRecord {
            job: "r.1".into(),
            remote: "x".into(),
            last_seq: 0,
            outcome: None,
            unsynced: Vec::new(),
        });
        let ended = EventBody::Ended { outcome: Outcome::Cancelled };
        folder.recorder().unwrap().event("r.1", &Event { seq: 1, at_ms: 0, body: ended }).unwrap();
        let outcome = recorded_outcome(&folder, &record, "r.1").unwrap();
        assert_eq!(outcome, Some(Outcome::Cancelled));
        assert_eq!(recorded_outcome(&folder, &record, "r.2").unwrap(), None);
    }
}
