//! A job's events with the output that they name, from any number on: as frames, as server-sent
//! events, or as one JSON document that waits until there is something to tell.
//!
//! All three are the one follower's words. None is held longer than platforms allow: a stream that
//! ends without the terminal event is asked for again, from where it ended.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Query, State as Shared};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use base64ct::{Base64, Encoding};
use rgpu_agent::connection::follow::{ClientOutput, Position};
use rgpu_agent::service::JobCommand;
use rgpu_protocol::http::{BEAT, Events, FRAMES, LONGEST_WAIT_S, OutputPiece, parse_had};
use rgpu_protocol::{EventBody, FromAgent};
use tokio::io::{AsyncWriteExt, DuplexStream};
use tokio::time::timeout;

use crate::answer::{HttpRefusal, json};
use crate::jobs::{wait_for, wants};
use crate::state::State;
use crate::stream::{FollowedBody, FrameReader, ReadBody};

/// A document of events is cut when its output is longer than this.
const DOCUMENT_BYTES: usize = 1 << 20;

/// What comes within such a pause belongs to the same document.
const BATCH_PAUSE: Duration = Duration::from_millis(5);

/// Events from a number on.
pub(crate) async fn events(
    Shared(state): Shared<Arc<State>>,
    Path(job): Path<String>,
    Query(query): Query<Vec<(String, String)>>,
    headers: HeaderMap,
) -> Result<Response, HttpRefusal> {
    let asked = EventsQuery::parse(&query)?;
    let resumed = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let after = asked.after.or(resumed).unwrap_or(0);
    let folder = state
        .ask(move |service| {
            let folder = service.find("attach", &job)?;
            service.tell(JobCommand::Renew, &job)?;
            Ok(folder)
        })
        .await?;
    let had = asked.had.map_or(ClientOutput::WithEvents, ClientOutput::Given);
    let from_seq = after.saturating_add(1);
    let position = Position { from_seq, had, inline_bytes: asked.inline, beat: Some(BEAT) };
    let follow = |position, default_s| {
        FollowedBody::start(&state, folder, position, wait_for(asked.wait, default_s))
    };
    if wants(&headers, FRAMES) {
        return Ok(follow(position, LONGEST_WAIT_S)?.frames());
    }
    let position = Position { inline_bytes: 0, ..position };
    if wants(&headers, "text/event-stream") {
        return Ok(server_sent(follow(position, LONGEST_WAIT_S)?));
    }
    let wait = wait_for(asked.wait, 0);
    // The document itself keeps the time: what is there is told, also when nothing is waited for.
    let followed = follow(position, LONGEST_WAIT_S)?;
    Ok(json(StatusCode::OK, &document(followed, after, wait).await?))
}

/// What stands behind `?`.
#[derive(Default)]
struct EventsQuery {
    after: Option<u64>,
    wait: Option<u64>,
    inline: u64,
    had: Option<Vec<rgpu_protocol::message::ReceivedOutput>>,
}

impl EventsQuery {
    fn parse(query: &[(String, String)]) -> Result<Self, HttpRefusal> {
        let mut asked = Self::default();
        for (name, value) in query {
            let bad = || {
                let text = format!("`{name}={value}` is not understood");
                HttpRefusal::new(StatusCode::BAD_REQUEST, "bad_query", text)
            };
            let number = || value.parse::<u64>().map_err(|_| bad());
            match name.as_str() {
                "after" => asked.after = Some(number()?),
                "wait" => asked.wait = Some(number()?),
                "inline" => asked.inline = number()?,
                "had" => {
                    let had = asked.had.get_or_insert_default();
                    if !value.is_empty() {
                        had.push(parse_had(value).ok_or_else(bad)?);
                    }
                }
                _ => return Err(bad()),
            }
        }
        Ok(asked)
    }
}

/// One thing that a follower says, with its bytes.
enum FollowerMessage {
    Event(rgpu_protocol::Event),
    Output(OutputPiece),
    /// Nothing more for now.
    Quiet,
    /// It could not go on.
    Refused(FromAgent),
}

async fn next(frames: &mut FrameReader<FollowedBody>) -> std::io::Result<Option<FollowerMessage>> {
    loop {
        let Some((_, body)) = frames.next().await? else { return Ok(None) };
        let message: FromAgent = serde_json::from_slice(&body)?;
        let said = match message {
            FromAgent::Event { event, .. } => FollowerMessage::Event(event),
            FromAgent::Output { step, stream, offset, .. } => {
                let Some((_, bytes)) = frames.next().await? else { return Ok(None) };
                let data = Base64::encode_string(&bytes);
                FollowerMessage::Output(OutputPiece { step, stream, offset, data })
            }
            FromAgent::Pong {} => FollowerMessage::Quiet,
            FromAgent::Refused { .. } => FollowerMessage::Refused(message),
            _ => continue,
        };
        return Ok(Some(said));
    }
}

/// What is there, or what comes first within `wait`.
async fn document(
    followed: FollowedBody,
    after: u64,
    wait: Duration,
) -> Result<Events, HttpRefusal> {
    let mut frames = FrameReader::new(followed);
    let mut told = Events { next: after, ..Events::default() };
    // Pieces whose event has not come yet.
    let mut early = Vec::new();
    let (mut bytes, mut caught_up) = (0, false);
    let end = tokio::time::Instant::now() + wait;
    while !told.ended && bytes < DOCUMENT_BYTES {
        let said = if !caught_up {
            next(&mut frames).await
        } else if told.events.is_empty() {
            match tokio::time::timeout_at(end, next(&mut frames)).await {
                Ok(said) => said,
                Err(_) => break,
            }
        } else {
            match timeout(BATCH_PAUSE, next(&mut frames)).await {
                Ok(said) => said,
                Err(_) => break,
            }
        };
        match said {
            Ok(Some(FollowerMessage::Event(event))) => {
                told.next = event.seq;
                told.ended = matches!(event.body, EventBody::Ended { .. });
                told.events.push(event);
                told.output.append(&mut early);
            }
            Ok(Some(FollowerMessage::Output(piece))) => {
                bytes += piece.data.len();
                early.push(piece);
            }
            Ok(Some(FollowerMessage::Quiet)) if !told.events.is_empty() => break,
            Ok(Some(FollowerMessage::Quiet)) => caught_up = true,
            Ok(Some(FollowerMessage::Refused(FromAgent::Refused { text, .. }))) => {
                let status = StatusCode::INTERNAL_SERVER_ERROR;
                return Err(HttpRefusal::new(status, "follow_failed", text));
            }
            // The terminal event was had before.
            Ok(None) => {
                told.ended = told.events.is_empty() && !frames.source().was_stopped();
                break;
            }
            Ok(Some(FollowerMessage::Refused(_))) | Err(_) => break,
        }
    }
    Ok(told)
}

/// Each event under its number, so that a browser's `EventSource` resumes by itself.
fn server_sent(followed: FollowedBody) -> Response {
    let (ours, theirs) = tokio::io::duplex(256 << 10);
    tokio::spawn(async move {
        // A client that went away is no failure of the job.
        let _ = tell(followed, ours).await;
    });
    let mut response = Response::new(ReadBody::endless(theirs));
    let kind = HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

async fn tell(followed: FollowedBody, mut to: DuplexStream) -> std::io::Result<()> {
    let mut frames = FrameReader::new(followed);
    while let Some(said) = next(&mut frames).await? {
        let text = match said {
            FollowerMessage::Event(event) => {
                let data = serde_json::to_string(&event)?;
                format!("id: {}\nevent: event\ndata: {data}\n\n", event.seq)
            }
            FollowerMessage::Output(piece) => {
                format!("event: output\ndata: {}\n\n", serde_json::to_string(&piece)?)
            }
            FollowerMessage::Quiet => ": nothing new\n\n".to_owned(),
            FollowerMessage::Refused(refused) => {
                format!("event: refused\ndata: {}\n\n", serde_json::to_string(&refused)?)
            }
        };
        to.write_all(text.as_bytes()).await?;
    }
    to.shutdown().await
}
