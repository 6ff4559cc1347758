//! What a run says while it goes on: the one stream that bars, `--events` and logs consume.
//!
//! The host's own events ([`rgpu_protocol::Event`]) pass through unchanged; around them stand the
//! laptop's phases. The engine writes nothing anywhere else: a reporter that ignores all of it
//! changes nothing about the run.

use std::sync::{Arc, Mutex, PoisonError};

use rgpu_protocol::Event;
use rgpu_protocol::event::Stream;
use serde::Serialize;

use crate::store::LogPosition;

/// Something the run says.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "said", rename_all = "snake_case")]
pub enum RunEvent<'a> {
    /// Where the run goes, said first.
    Where {
        /// The run's id.
        run: &'a str,
        /// The remote's name.
        remote: &'a str,
        /// Its address in words.
        address: &'a str,
    },
    /// The connection is being made.
    Connecting {},
    /// The host is being started first, which takes a while.
    Starting {
        /// What is.
        what: &'a str,
    },
    /// The connection stands.
    Connected {
        /// Milliseconds it took.
        ms: u64,
    },
    /// The host is asked what it has.
    Asking {},
    /// Something is compiled on this machine.
    Compiling {
        /// What.
        what: &'a str,
    },
    /// A host's nvdisasm is at work.
    Disassembling {
        /// Calls that ended.
        done: usize,
        /// All calls.
        total: usize,
    },
    /// A plan is sent.
    Planned {
        /// The job.
        job: &'a str,
        /// The titles of its steps, in order.
        steps: Vec<&'a str>,
    },
    /// Blobs are sent.
    Uploading {
        /// Bytes sent.
        sent: u64,
        /// Bytes to send.
        total: u64,
    },
    /// An event of the host.
    Job {
        /// The job.
        job: &'a str,
        /// The event.
        #[serde(flatten)]
        event: &'a Event,
    },
    /// The program or tool printed.
    Output {
        /// The step.
        step: &'a str,
        /// Which stream.
        stream: Stream,
        /// Bytes printed; the bytes themselves are in the log, not in `--events`.
        len: usize,
        /// The bytes.
        #[serde(skip)]
        bytes: &'a [u8],
        /// Where they lie in the run folder by now.
        #[serde(skip)]
        recorded: LogPosition<'a>,
    },
    /// The connection broke; it is being restored.
    LinkLost {
        /// Why.
        why: String,
    },
    /// The connection stands again.
    LinkBack {},
    /// Results are fetched.
    Fetching {
        /// The file.
        path: &'a str,
        /// Bytes had of all files.
        got: u64,
        /// Bytes of all files.
        total: u64,
    },
    /// The laptop did not believe a rung and tries the next.
    Refused {
        /// The rung.
        rung: &'a str,
        /// Reason code.
        code: &'a str,
        /// In words.
        text: &'a str,
    },
    /// Something worth knowing.
    Note {
        /// In words.
        text: &'a str,
    },
    /// The run ended.
    Finished {
        /// Exit status of the command.
        exit: u8,
    },
}

/// A consumer of what a run says.
pub trait Reporter: Send {
    /// Takes one thing said.
    fn say(&mut self, event: &RunEvent<'_>);
}

/// Passes everything to several reporters, in order.
#[derive(Default)]
pub struct Reporters(pub Vec<Box<dyn Reporter>>);

impl Reporter for Reporters {
    fn say(&mut self, event: &RunEvent<'_>) {
        for reporter in &mut self.0 {
            reporter.say(event);
        }
    }
}

/// One reporter with several mouths: the engine speaks through it, and so does the connection.
#[derive(Clone)]
pub struct SharedReporter(Arc<Mutex<Reporters>>);

impl SharedReporter {
    /// Shares these reporters.
    pub fn new(reporters: Reporters) -> Self {
        Self(Arc::new(Mutex::new(reporters)))
    }
}

impl Reporter for SharedReporter {
    fn say(&mut self, event: &RunEvent<'_>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).say(event);
    }
}

/// Writes each thing said as a line of JSON: `--events`.
pub struct JsonLines<W: std::io::Write + Send>(pub W);

impl<W: std::io::Write + Send> Reporter for JsonLines<W> {
    fn say(&mut self, event: &RunEvent<'_>) {
        // A consumer that went away must not stop the run it watched.
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
        lines.say(&RunEvent::Where { run: "r", remote: "h200", address: "ssh://x" });
        lines.say(&RunEvent::Job { job: "r.1", event: &event });
        let recorded = LogPosition { path: std::path::Path::new("l"), offset: 0, len: 2 };
        let (step, stream, bytes) = ("s", Stream::Stdout, b"hi");
        lines.say(&RunEvent::Output { step, stream, len: 2, bytes, recorded });
        insta::assert_snapshot!(String::from_utf8(out).unwrap(), @r#"
        {"said":"where","run":"r","remote":"h200","address":"ssh://x"}
        {"said":"job","job":"r.1","seq":3,"at_ms":9,"event":"ended","outcome":{"how":"done"}}
        {"said":"output","step":"s","stream":"stdout","len":2}
        "#);
    }
}
