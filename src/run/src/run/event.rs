//! The events of a run, for progress bars, `--events` and logs.
//!
//! Events of the host ([`rgpu_protocol::Event`]) pass through unchanged, between events of the
//! laptop's own phases. Reporting has no effect on the run: a reporter may ignore every event.

use std::sync::{Arc, Mutex, PoisonError};

use rgpu_protocol::Event;
use rgpu_protocol::event::Stream;
use serde::Serialize;

use crate::store::LogPosition;

/// An event of a run, for progress bars, `--events` and logs.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "said", rename_all = "snake_case")]
pub enum RunEvent<'a> {
    /// Where the run goes; the first event.
    Where {
        /// The id of the run.
        run: &'a str,
        /// The name of the remote.
        remote: &'a str,
        /// The remote's address, for display.
        address: &'a str,
    },
    /// Connecting to the host.
    Connecting {},
    /// The host is being started, which takes a while.
    Starting {
        /// The host, as the user knows it.
        what: &'a str,
    },
    /// The connection is open.
    Connected {
        /// Milliseconds it took to connect.
        ms: u64,
    },
    /// Asking the host for its facts.
    Asking {},
    /// Compiling on this machine.
    Compiling {
        /// The name of what is compiled.
        what: &'a str,
    },
    /// Disassembling with nvdisasm, on the host or on this machine.
    Disassembling {
        /// Calls of nvdisasm on the host that ended, or cubins that this machine has read.
        done: usize,
        /// The total number of calls or cubins.
        total: usize,
    },
    /// A plan is about to be submitted.
    Planned {
        /// The name of the job.
        job: &'a str,
        /// The titles of its steps, in order.
        steps: Vec<&'a str>,
    },
    /// Blobs are being sent.
    Uploading {
        /// Number of bytes sent so far.
        sent: u64,
        /// Number of bytes to send in total.
        total: u64,
    },
    /// An event that the host sent.
    Job {
        /// The name of the job.
        job: &'a str,
        /// The event as the agent sent it.
        #[serde(flatten)]
        event: &'a Event,
    },
    /// Output of the program or tool.
    Output {
        /// The step that printed it.
        step: &'a str,
        /// Standard output or standard error.
        stream: Stream,
        /// Number of bytes; the bytes themselves are in the log, not in `--events`.
        len: usize,
        /// The bytes that were printed.
        #[serde(skip)]
        bytes: &'a [u8],
        /// Where the output is in the run folder.
        #[serde(skip)]
        recorded: LogPosition<'a>,
    },
    /// The connection broke and is being restored.
    LinkLost {
        /// Why the connection was lost.
        why: String,
        /// Seconds until the first attempt to restore it. Each later attempt waits longer.
        retry_s: u64,
    },
    /// The connection is restored.
    LinkBack {},
    /// Files are being fetched.
    Fetching {
        /// The file's path on the host.
        path: &'a str,
        /// Bytes fetched so far, of all files.
        got: u64,
        /// Total bytes of all files.
        total: u64,
    },
    /// A rung's result was rejected on the laptop; the next rung follows.
    Refused {
        /// The id of the rung.
        rung: &'a str,
        /// The reason as a code, for programs.
        code: &'a str,
        /// The reason as text.
        text: &'a str,
    },
    /// A message for the user.
    Note {
        /// The message for users.
        text: &'a str,
    },
    /// The run has ended.
    Finished {
        /// Exit status of the command.
        exit: u8,
    },
}

/// Consumes the events of a run.
pub trait Reporter: Send {
    /// Handles one event; they come in the order in which they happen.
    fn report(&mut self, event: &RunEvent<'_>);
}

/// Passes each event to several reporters, in order.
#[derive(Default)]
pub struct Reporters(pub Vec<Box<dyn Reporter>>);

impl Reporter for Reporters {
    fn report(&mut self, event: &RunEvent<'_>) {
        for reporter in &mut self.0 {
            reporter.report(event);
        }
    }
}

/// A reporter that several owners share: the run and its connection.
#[derive(Clone)]
pub struct SharedReporter(Arc<Mutex<Reporters>>);

impl SharedReporter {
    /// Wraps reporters so that several tasks can use them.
    pub fn new(reporters: Reporters) -> Self {
        Self(Arc::new(Mutex::new(reporters)))
    }
}

impl Reporter for SharedReporter {
    fn report(&mut self, event: &RunEvent<'_>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).report(event);
    }
}

/// Writes each event as a line of JSON, for `--events`.
pub struct JsonLines<W: std::io::Write + Send>(pub W);

impl<W: std::io::Write + Send> Reporter for JsonLines<W> {
    fn report(&mut self, event: &RunEvent<'_>) {
        // A reader of `--events` that closed its end must not stop the run.
        if let Ok(mut line) = serde_json::to_vec(event) {
            line.push(b'\n');
            let _ = self.0.write_all(&line).and_then(|()| self.0.flush());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_protocol::{EventBody, Outcome};

    #[test]
    fn everything_said_is_one_line_of_json() {
        let mut out = Vec::new();
        let event = Event { seq: 3, at_ms: 9, body: EventBody::Ended { outcome: Outcome::Done } };
        let mut lines = JsonLines(&mut out);
        lines.report(&RunEvent::Where { run: "r", remote: "h200", address: "ssh://x" });
        lines.report(&RunEvent::Job { job: "r.1", event: &event });
        let recorded = LogPosition { path: std::path::Path::new("l"), offset: 0, len: 2 };
        let (step, stream, bytes) = ("s", Stream::Stdout, b"hi");
        lines.report(&RunEvent::Output { step, stream, len: 2, bytes, recorded });
        insta::assert_snapshot!(String::from_utf8(out).unwrap(), @r#"
        {"said":"where","run":"r","remote":"h200","address":"ssh://x"}
        {"said":"job","job":"r.1","seq":3,"at_ms":9,"event":"ended","outcome":{"how":"done"}}
        {"said":"output","step":"s","stream":"stdout","len":2}
        "#);
    }
}
