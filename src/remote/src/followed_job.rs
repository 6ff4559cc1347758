//! The state of a followed job over all its links: the number of its last event and the bytes
//! received of each output stream. Repeated data is skipped. Data beyond the plan's limits, or
//! beyond what any agent sends, is an error.

use std::collections::BTreeMap;

use rgpu_protocol::message::ReceivedOutput;
use rgpu_protocol::plan::{Limits, valid_job_id};
use rgpu_protocol::{Event, EventBody, Stream};
use tokio::time::Instant;

use super::{JobMessage, RemoteError};

/// Output streams that a job may have, two for each step.
const MAX_STREAMS: usize = 4096;

/// Memory that a job's events may take in bytes, since the run keeps them; events that name output
/// do not count. 100,000 artifacts, an agent's limit per rung, need less.
const MAX_EVENT_MEMORY_BYTES: usize = 52 << 20;

/// Memory that an artifact takes besides its JSON and a second copy of its path: each of its texts
/// is an allocation.
const ARTIFACT_BYTES: usize = 256;

/// How often the text of any other event is held: while it is parsed, recorded and kept.
const EVENT_COPIES: usize = 3;

/// The estimated memory of an event in bytes.
fn memory_bytes(event: &Event) -> usize {
    let json_bytes = serde_json::to_vec(event).map_or(0, |json| json.len());
    match event.body {
        EventBody::Artifact { ref path, .. } => json_bytes + path.len() + ARTIFACT_BYTES,
        _ => json_bytes * EVENT_COPIES,
    }
}

/// The progress of the followed job.
#[derive(Clone, Debug)]
pub(super) struct FollowedJob {
    pub(super) id: String,
    /// The number of the last event.
    pub(super) seq: u64,
    streams: BTreeMap<(String, Stream), OutputProgress>,
    /// The limit on each output stream in bytes.
    log_bytes: u64,
    event_bytes: usize,
    pub(super) ended: bool,
    /// When it was first cancelled.
    pub(super) cancelled: Option<Instant>,
    /// How often the agent has given up following since the last message.
    pub(super) failed_follows: u32,
}

/// The progress of one output stream.
#[derive(Clone, Copy, Debug, Default)]
struct OutputProgress {
    /// Number of bytes received so far.
    received: u64,
    /// The end of the output that events have named.
    named_end: u64,
}

impl FollowedJob {
    /// A job of which nothing has arrived yet, whose plan has these `limits`.
    pub(super) fn new(id: &str, limits: &Limits) -> Self {
        Self {
            id: id.to_owned(),
            seq: 0,
            streams: BTreeMap::new(),
            log_bytes: limits.log_bytes,
            event_bytes: 0,
            ended: false,
            cancelled: None,
            failed_follows: 0,
        }
    }

    /// Continues from event `from_seq` and these amounts of output.
    pub(super) fn resume_at(mut self, from_seq: u64, had: &[ReceivedOutput]) -> Self {
        self.seq = from_seq.saturating_sub(1);
        let end = |had: u64| OutputProgress { received: had, named_end: 0 };
        self.streams = had.iter().map(|h| ((h.step.clone(), h.stream), end(h.bytes))).collect();
        self
    }

    /// The bytes received of each output stream.
    pub(super) fn received_output(&self) -> Vec<ReceivedOutput> {
        let had = |((step, stream), end): (&(String, Stream), &OutputProgress)| ReceivedOutput {
            step: step.clone(),
            stream: *stream,
            bytes: end.received,
        };
        self.streams.iter().map(had).collect()
    }

    /// Returns the message without its repeated part; `None`: all of it is a repetition.
    ///
    /// # Errors
    /// [`RemoteError::MissingData`]: data is missing before it. [`RemoteError::ProtocolViolation`]:
    /// it exceeds a limit.
    pub(super) fn accept(
        &mut self,
        message: JobMessage,
    ) -> Result<Option<JobMessage>, RemoteError> {
        match message {
            JobMessage::Event(event) => self.accept_event(event),
            JobMessage::Output { step, stream, offset, bytes } => {
                self.accept_output(step, stream, offset, bytes)
            }
        }
    }

    fn accept_output(
        &mut self,
        step: String,
        stream: Stream,
        offset: u64,
        mut bytes: Vec<u8>,
    ) -> Result<Option<JobMessage>, RemoteError> {
        let key = (step.clone(), stream);
        if !self.streams.contains_key(&key)
            && (self.streams.len() >= MAX_STREAMS || !valid_job_id(&step))
        {
            let step_name = step.chars().take(200).collect::<String>();
            let what = format!("output of a step `{step_name}`, which is not in the plan");
            return Err(RemoteError::ProtocolViolation { what });
        }
        let end = self.streams.entry(key).or_default();
        let (had, name) = (end.received, stream.as_str());
        // The agent cuts the output there too, and only counts the rest.
        let room = self.log_bytes.saturating_sub(had);
        if room == 0 && offset.saturating_add(bytes.len() as u64) > had {
            return Err(RemoteError::ProtocolViolation {
                what: format!(
                    "{name} of step `{step}` continues after the {} bytes that `--log-limit` \
                     allows",
                    self.log_bytes
                ),
            });
        }
        if offset > had {
            return Err(RemoteError::MissingData {
                what: format!(
                    "{name} of step `{step}` continues at byte {offset}, but {had} \
                               bytes were received"
                ),
            });
        }
        let repeated = (had - offset).min(bytes.len() as u64);
        bytes.drain(..repeated as usize);
        if bytes.is_empty() {
            return Ok(None);
        }
        bytes.truncate(usize::try_from(room).unwrap_or(usize::MAX));
        end.received += bytes.len() as u64;
        Ok(Some(JobMessage::Output { step, stream, offset: offset + repeated, bytes }))
    }

    fn accept_event(&mut self, event: Event) -> Result<Option<JobMessage>, RemoteError> {
        if event.seq <= self.seq {
            return Ok(None);
        }
        if event.seq > self.seq + 1 {
            return Err(RemoteError::MissingData {
                what: format!("event {} comes after event {}", event.seq, self.seq),
            });
        }
        if !self.record_named_output(&event.body) {
            self.event_bytes += memory_bytes(&event);
            if self.event_bytes > MAX_EVENT_MEMORY_BYTES {
                let what =
                    format!("events of one job that take more than {MAX_EVENT_MEMORY_BYTES} bytes");
                return Err(RemoteError::ProtocolViolation { what });
            }
        }
        self.seq = event.seq;
        self.ended = matches!(event.body, EventBody::Ended { .. });
        Ok(Some(JobMessage::Event(event)))
    }

    /// Whether an event is the first to name output that has arrived. The number of such events is
    /// bounded by the output itself.
    fn record_named_output(&mut self, body: &EventBody) -> bool {
        let EventBody::Output { step, stream, offset, len } = body else { return false };
        let Some(end) = self.streams.get_mut(&(step.clone(), *stream)) else { return false };
        let to = offset.saturating_add(*len);
        let new = to > end.named_end && to <= end.received;
        if new {
            end.named_end = to;
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(log_bytes: u64) -> FollowedJob {
        FollowedJob::new("run.1", &Limits { log_bytes, ..Limits::default() })
    }

    fn output(step: &str, offset: u64, len: usize) -> JobMessage {
        let (step, stream) = (step.to_owned(), Stream::Stdout);
        JobMessage::Output { step, stream, offset, bytes: vec![b'x'; len] }
    }

    fn violation(result: Result<Option<JobMessage>, RemoteError>) -> String {
        match result {
            Err(RemoteError::ProtocolViolation { what }) => what,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn output_beyond_the_plans_limit_is_cut_there_and_ends_the_following() {
        let mut job = job(1000);
        assert_eq!(job.accept(output("run", 0, 900)).unwrap(), Some(output("run", 0, 900)));
        assert_eq!(job.accept(output("run", 900, 300)).unwrap(), Some(output("run", 900, 100)));
        // Repeated output is not an error.
        assert_eq!(job.accept(output("run", 0, 1000)).unwrap(), None);
        violation(job.accept(output("run", 1200, 1)));
        let what = violation(job.accept(output("run", 1000, 1)));
        assert!(what.contains("stdout of step `run`") && what.contains("1000 bytes"), "{what}");
        assert!(what.contains("--log-limit"), "{what}");
        // Each stream has its own limit.
        assert!(job.accept(output("build", 0, 1000)).unwrap().is_some());
        let had = ReceivedOutput { step: "run".into(), stream: Stream::Stdout, bytes: 1000 };
        assert!(job.received_output().contains(&had));
        let limits = Limits { log_bytes: 1000, ..Limits::default() };
        let mut resumed = FollowedJob::new("run.1", &limits).resume_at(1, &[had]);
        violation(resumed.accept(output("run", 1000, 1)));
    }

    #[test]
    fn streams_are_bounded_in_number_and_by_their_names() {
        let mut job = job(10);
        violation(job.accept(output(&"x".repeat(1000), 0, 1)));
        violation(job.accept(output("../x", 0, 1)));
        for step in 0..MAX_STREAMS {
            job.accept(output(&format!("s{step}"), 0, 1)).unwrap();
        }
        violation(job.accept(output("more", 0, 1)));
    }

    #[test]
    fn events_are_bounded_in_bytes_but_for_those_that_name_new_output() {
        let event = |seq: u64, body: EventBody| JobMessage::Event(Event { seq, at_ms: 0, body });
        let named = |len: u64| EventBody::Output {
            step: "run".into(),
            stream: Stream::Stdout,
            offset: 0,
            len,
        };
        let mut known = job(1 << 20);
        for seq in 1..=1000 {
            known.accept(output("run", seq - 1, 1)).unwrap();
            known.accept(event(seq, named(seq))).unwrap();
        }
        assert_eq!(known.event_bytes, 0);
        // Output that was named before, and output that never arrived, count.
        for (seq, len) in [(1001, 1000), (1002, 5000)] {
            let before = known.event_bytes;
            known.accept(event(seq, named(len))).unwrap();
            assert!(known.event_bytes > before);
        }
        let mut known = job(10);
        let text = "x".repeat(100_000);
        let warning = || EventBody::Warning { code: String::new(), text: text.clone() };
        let accepted = (1..).map_while(|seq| known.accept(event(seq, warning())).ok()).count();
        let expected = MAX_EVENT_MEMORY_BYTES / EVENT_COPIES / text.len();
        assert!((expected - 1..=expected).contains(&accepted), "{accepted}");
        violation(known.accept(event(accepted as u64 + 1, warning())));
        // As many artifacts as an agent announces for a rung fit, with paths and both digests.
        let mut known = job(10);
        let digest = rgpu_protocol::Digest::sha256(b"");
        for seq in 1..=100_000 {
            let artifact = EventBody::Artifact {
                step: "exec".into(),
                path: format!("here/results/of/a/sweep/{seq:06}.csv"),
                kind: "pulled".into(),
                size: 1_000_000,
                digest: digest.clone(),
                composite: None,
            };
            assert!(known.accept(event(seq, artifact)).unwrap().is_some());
        }
    }
}
