//! Live updates of the page as server-sent events. A client that reconnects continues after the
//! last id that it received.
//!
//! One thread polls the runs and the state database while a client is connected or made a request a
//! moment ago. `/api/v1/live` sends a message for each change. Its ids are `REVISION.EVENT`, and
//! events of the database since the client's last id are sent again. `/api/v1/runs/ID/live` sends
//! the events and the output of one run. Its ids are offsets in these files.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::header;
use axum::response::Response;
use bytes::Bytes;
use hyper::body::Frame;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::mpsc;

use super::{DashboardContext, Server, run_detail};
use rgpu_model::error::Result;
use rgpu_run::store::live::{phase, read_at};
use rgpu_run::store::state::{StateDb, sql_error};
use rgpu_run::store::{RunFolder, RunState};

/// How often to look for changes of the runs and of the database.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// How often to look for new output of a run.
const RUN_POLL_INTERVAL: Duration = Duration::from_millis(300);

/// A comment goes out this often, so that a dead connection is noticed.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// At most this many events of the database are sent again after a gap.
const MAX_REPLAYED_EVENTS: usize = 500;

/// The most bytes of a file in one message, and at the beginning of a stream.
const MAX_READ_BYTES: u64 = 64 << 10;

/// Numbers that grow with each change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Revision {
    /// Grows when a run changes.
    pub(super) runs: u64,
    /// The newest event of the state database.
    pub(super) event: i64,
}

/// Something has changed (a message `changed` of `/api/v1/live`).
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct LiveChange {
    /// Grows when a run changes.
    pub(super) runs: u64,
    /// The newest event of the state database; 0 without one.
    pub(super) event: i64,
    /// The events of queue and loops since the last message.
    pub(super) changes: Vec<StateChange>,
}

/// An event of the state database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(super) struct StateChange {
    /// The number of the event; later ones have higher numbers.
    pub(super) event: i64,
    /// `entry`, `cancel`, `runner` or `pause` of the queue; `loop` or `loop-stop`.
    pub(super) kind: String,
    /// The number of the entry or loop.
    pub(super) subject: i64,
    /// The state before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) from: Option<String>,
    /// The state from then on.
    pub(super) to: String,
}

/// What a run added since the last message (a message `run` of `/api/v1/runs/ID/live`).
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct RunUpdate {
    /// The state.
    pub(super) state: RunState,
    /// What it does at the moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) phase: Option<String>,
    /// Lines of its events.jsonl.
    pub(super) events: Vec<Value>,
    /// The output since the last message.
    pub(super) output: Vec<LiveOutputPiece>,
}

/// Output of a step.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct LiveOutputPiece {
    /// The log's file name: the step and the stream.
    pub(super) log: String,
    /// Where the text begins in the log, in bytes.
    pub(super) offset: u64,
    /// The text that was added.
    pub(super) text: String,
}

/// The body of a stream of server-sent events. It ends when its sender is dropped.
struct EventStreamBody(mpsc::Receiver<Bytes>);

impl HttpBody for EventStreamBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|message| message.map(|bytes| Ok(Frame::data(bytes))))
    }
}

fn stream(receiver: mpsc::Receiver<Bytes>) -> Response {
    let mut response = Response::new(Body::new(EventStreamBody(receiver)));
    let value = header::HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, value);
    response
}

fn message(event: &str, id: &str, data: &impl Serialize) -> Bytes {
    let data = serde_json::to_string(data).unwrap_or_default();
    format!("event: {event}\nid: {id}\ndata: {data}\n\n").into()
}

/// Looks for changes until the process ends.
pub(super) fn watch(server: &Arc<Server>) {
    let server = Arc::clone(server);
    std::thread::spawn(move || {
        loop {
            server.table.refresh();
            let event = newest_event(&server.context).unwrap_or_default();
            let runs = server.table.snapshot().revision;
            let revision = Revision { runs, event };
            server.revision.send_if_modified(|old| std::mem::replace(old, revision) != revision);
            std::thread::sleep(WATCH_INTERVAL);
            while server.revision.receiver_count() == 0 && !server.had_request_recently() {
                std::thread::sleep(WATCH_INTERVAL / 4);
            }
        }
    });
}

fn newest_event(context: &DashboardContext) -> Option<i64> {
    let db = StateDb::open_existing(&context.project, &context.own_ids).ok()??;
    let query = "SELECT max(id) FROM event";
    db.connection().query_row(query, [], |row| row.get::<_, Option<i64>>(0)).ok()?
}

/// The events of the database after `last`, oldest first.
fn changes(context: &DashboardContext, last: i64) -> Result<Vec<StateChange>> {
    let Some(db) = StateDb::open_existing(&context.project, &context.own_ids)? else {
        return Ok(Vec::new());
    };
    let mut query = db
        .connection()
        .prepare(
            "SELECT id, kind, subject, from_state, to_state FROM event WHERE id > ?1 \
             ORDER BY id DESC LIMIT ?2",
        )
        .map_err(sql_error("read"))?;
    let change = |row: &rusqlite::Row<'_>| {
        Ok(StateChange {
            event: row.get(0)?,
            kind: row.get(1)?,
            subject: row.get(2)?,
            from: row.get(3)?,
            to: row.get(4)?,
        })
    };
    let rows = query.query_map([last, MAX_REPLAYED_EVENTS as i64], change);
    let mut changes: Vec<StateChange> =
        rows.and_then(Iterator::collect).map_err(sql_error("read"))?;
    changes.reverse();
    Ok(changes)
}

/// The stream of all changes. `last` is the id of the last message that the client got.
pub(super) fn changes_stream(server: &Arc<Server>, last: Option<&str>) -> Response {
    let (sender, receiver) = mpsc::channel(16);
    let last_event = last.and_then(|id| id.split_once('.')?.1.parse::<i64>().ok());
    let server = Arc::clone(server);
    tokio::spawn(async move {
        let mut revisions = server.revision.subscribe();
        let mut sent = last_event.unwrap_or(server.revision.borrow().event);
        loop {
            let Revision { runs, event } = *revisions.borrow_and_update();
            let mut repeated = Vec::new();
            // A database that was made again counts from 1.
            if event > sent {
                let (context, from) = (server.context.clone(), sent);
                let read = server.blocking(move || changes(&context, from)).await;
                repeated = read.unwrap_or_default();
            }
            sent = event;
            let change = LiveChange { runs, event, changes: repeated };
            let id = format!("{runs}.{event}");
            if sender.send(message("changed", &id, &change)).await.is_err() {
                return;
            }
            while let Err(_elapsed) =
                tokio::time::timeout(KEEP_ALIVE_INTERVAL, revisions.changed()).await
            {
                if sender.send(Bytes::from_static(b": alive\n\n")).await.is_err() {
                    return;
                }
            }
        }
    });
    stream(receiver)
}

/// Where a stream of a run is: the offset in its events, and in each log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Position {
    events: u64,
    logs: BTreeMap<String, u64>,
}

impl Position {
    /// The id of a message: `123 build.stderr:40 exec.stdout:7`.
    fn id(&self) -> String {
        let logs = self.logs.iter().map(|(name, offset)| format!(" {name}:{offset}"));
        format!("{}{}", self.events, logs.collect::<String>())
    }

    fn parse(id: &str) -> Option<Self> {
        let mut words = id.split(' ');
        let events = words.next()?.parse().ok()?;
        let logs = words.map(|word| {
            let (name, offset) = word.rsplit_once(':')?;
            Some((name.to_owned(), offset.parse().ok()?))
        });
        Some(Self { events, logs: logs.collect::<Option<_>>()? })
    }
}

/// The events of a run.
const EVENTS: &str = "events.jsonl";

/// What a run wrote since `position`, which moves to its end.
fn news(folder: &RunFolder, position: &mut Option<Position>) -> Result<RunUpdate> {
    let record = folder.current_record()?;
    let is_first = position.is_none();
    let own = position.get_or_insert_default();
    if is_first {
        let events = folder.files().open_file(EVENTS).and_then(|file| file.metadata());
        own.events = events.map_or(0, |events| events.len()).saturating_sub(MAX_READ_BYTES);
    }
    let bytes = read_at(folder, EVENTS, own.events, MAX_READ_BYTES).unwrap_or_default();
    let whole = match bytes.iter().rposition(|byte| *byte == b'\n') {
        Some(at) => at + 1,
        // A line that is longer than a piece is left out.
        None if bytes.len() as u64 == MAX_READ_BYTES => bytes.len(),
        // A line that is being written comes with the next message.
        None => 0,
    };
    own.events += whole as u64;
    let lines = bytes[..whole].split(|byte| *byte == b'\n');
    let events = lines.filter_map(|line| serde_json::from_slice(line).ok()).collect();
    let mut output = Vec::new();
    for log in run_detail::logs(folder) {
        let first = if is_first { log.bytes.saturating_sub(MAX_READ_BYTES) } else { 0 };
        let offset = own.logs.entry(log.name.clone()).or_insert(first);
        if log.bytes <= *offset {
            continue;
        }
        let file = Path::new("log").join(&log.name);
        let mut bytes = read_at(folder, file, *offset, MAX_READ_BYTES).unwrap_or_default();
        if is_first && first > 0 {
            // The first piece may begin inside a character.
            let rest = bytes.iter().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count();
            bytes.drain(..rest);
            *offset += rest as u64;
        }
        let held = incomplete_tail(&bytes);
        bytes.truncate(bytes.len() - held);
        if bytes.is_empty() {
            continue;
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        output.push(LiveOutputPiece { log: log.name, offset: *offset, text });
        *offset += bytes.len() as u64;
    }
    let is_active = record.state.is_active();
    let phase = if is_active { phase(folder) } else { None };
    Ok(RunUpdate { state: record.state, phase, events, output })
}

/// The bytes at the end that begin a character whose rest is not there yet.
fn incomplete_tail(bytes: &[u8]) -> usize {
    let is_incomplete = |length: &usize| {
        let end = std::str::from_utf8(&bytes[bytes.len() - length..]);
        end.is_err_and(|e| e.valid_up_to() == 0 && e.error_len().is_none())
    };
    (1..=bytes.len().min(3)).find(is_incomplete).unwrap_or(0)
}

/// The stream of one run. It ends when the run has ended and everything was sent.
pub(super) fn run_stream(server: &Arc<Server>, folder: RunFolder, last: Option<&str>) -> Response {
    let (sender, receiver) = mpsc::channel(16);
    let mut position = last.and_then(Position::parse);
    let server = Arc::clone(server);
    tokio::spawn(async move {
        let mut shown: Option<(RunState, Option<String>)> = None;
        let mut quiet = Duration::ZERO;
        loop {
            let (own, mut moved) = (folder.clone(), position.clone());
            let read = server.blocking(move || {
                let news = news(&own, &mut moved)?;
                Ok((news, moved))
            });
            let sent = match read.await {
                Ok((news, moved)) => {
                    let state = (news.state, news.phase.clone());
                    // After a line that was left out there may be more.
                    let is_news = moved != position || shown.as_ref() != Some(&state);
                    position = moved;
                    let is_active = news.state.is_active();
                    let id = position.as_ref().map(Position::id).unwrap_or_default();
                    shown = Some(state);
                    match (is_news, is_active) {
                        (true, _) => Some(message("run", &id, &news)),
                        (false, true) => None,
                        (false, false) => {
                            let _ = sender.send(message("end", &id, &news)).await;
                            return;
                        }
                    }
                }
                // The run was removed.
                Err(failure) if failure.code != "busy" => return,
                Err(_) => None,
            };
            quiet += RUN_POLL_INTERVAL;
            let bytes = match sent {
                Some(bytes) => Some(bytes),
                None if quiet > KEEP_ALIVE_INTERVAL => Some(Bytes::from_static(b": alive\n\n")),
                None => None,
            };
            if let Some(bytes) = bytes {
                quiet = Duration::ZERO;
                if sender.send(bytes).await.is_err() {
                    return;
                }
            }
            if sender.is_closed() {
                return;
            }
            tokio::time::sleep(RUN_POLL_INTERVAL).await;
        }
    });
    stream(receiver)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_run::store::RunRecord;

    #[test]
    fn a_position_is_read_back() {
        let logs = [("a.stdout".to_owned(), 5), ("b.stderr".to_owned(), 0)];
        let position = Position { events: 12, logs: logs.into() };
        assert_eq!(position.id(), "12 a.stdout:5 b.stderr:0");
        assert_eq!(Position::parse(&position.id()), Some(position));
        assert_eq!(Position::parse("0"), Some(Position::default()));
        for wrong in ["", "x", "1 a", "1 a:b", "1  "] {
            assert_eq!(Position::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn nothing_of_a_run_is_sent_twice_or_lost() {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(dir.path(), "run", None).unwrap();
        folder.save(&RunRecord::new("run".into(), "exec", jiff::Timestamp::UNIX_EPOCH)).unwrap();
        std::fs::create_dir_all(folder.path().join("log")).unwrap();
        let append = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            let mut all = std::fs::read(&path).unwrap_or_default();
            all.extend_from_slice(bytes);
            std::fs::write(path, all).unwrap();
        };
        append("events.jsonl", b"{\"event\": \"queued\"}\n{\"event\": \"step_");
        append("log/exec.stdout", "caf\u{e9}".as_bytes());
        append("log/exec.stdout", &"\u{e9}".as_bytes()[..1]);
        let mut position = None;
        let first = news(&folder, &mut position).unwrap();
        assert_eq!(first.events.len(), 1);
        assert_eq!(first.output[0].text, "caf\u{e9}");
        append("events.jsonl", b"started\"}\n");
        append("log/exec.stdout", &"\u{e9}".as_bytes()[1..]);
        // A client that comes back with the last id.
        let mut position = Position::parse(&position.unwrap().id());
        let second = news(&folder, &mut position).unwrap();
        assert_eq!(second.events[0]["event"], "step_started");
        assert_eq!((second.output[0].text.as_str(), second.output[0].offset), ("\u{e9}", 5));
        let third = news(&folder, &mut position).unwrap();
        assert!(third.events.is_empty() && third.output.is_empty());
        // A line that is longer than a piece is left out, and the next one is not.
        let long = "x".repeat(MAX_READ_BYTES as usize);
        append("events.jsonl", format!("{{\"event\": \"{long}\"}}\n").as_bytes());
        append("events.jsonl", b"{\"event\": \"ended\"}\n");
        assert!(news(&folder, &mut position).unwrap().events.is_empty());
        let last = news(&folder, &mut position).unwrap();
        assert_eq!((last.events.len(), &last.events[0]["event"]), (1, &"ended".into()));
        // A stream that begins inside a character begins with the next one.
        append("log/exec.stdout", "\u{e9}".repeat(MAX_READ_BYTES as usize / 2 - 1).as_bytes());
        append("log/exec.stdout", b".");
        let mut position = None;
        let output = news(&folder, &mut position).unwrap().output;
        assert!(output[0].text.starts_with('\u{e9}'), "{:?}", output[0].text.chars().next());
        assert_eq!(output[0].offset % 2, 1);
    }

    #[test]
    fn a_character_is_not_cut_at_the_end() {
        for (bytes, held) in [
            (&b""[..], 0),
            (b"a", 0),
            (b"\xc3", 1),
            (b"\x80\xc3\xa9", 0),
            (b"\x80 \xe2\x82", 2),
            (b"\xff\xf0\x9f\x98", 3),
            (b"\xf0\x9f\x98\x80", 0),
            (b"a\x80", 0),
        ] {
            assert_eq!(incomplete_tail(bytes), held, "{bytes:?}");
        }
    }
}
