//! A job's events after a given number, with their output: as frames, as server-sent events, or as
//! one JSON document (long polling).
//!
//! Each request starts one follower, whatever the format. No response takes longer than hosting
//! platforms allow (`MAX_WAIT_S`): if a stream ends without the terminal event, the client
//! continues from there.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Query, State as Shared};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use base64ct::{Base64, Encoding};
use rgpu_agent::connection::follow::{ClientOutput, Position};
use rgpu_agent::service::JobCommand;
use rgpu_protocol::http::{
    Events, FRAMES, HEARTBEAT_INTERVAL, MAX_WAIT_S, OutputPiece, parse_received,
};
use rgpu_protocol::{EventBody, FromAgent};
use tokio::io::{AsyncWriteExt, DuplexStream};
use tokio::time::timeout;

use crate::answer::{HttpRefusal, json};
use crate::jobs::{accepts, wait_duration};
use crate::state::State;
use crate::stream::{FollowedBody, FrameReader, ReadBody};

/// A document of events ends after this much output, in base64.
const DOCUMENT_BYTES: usize = 1 << 20;

/// Events that follow within this pause go into the same document.
const BATCH_PAUSE: Duration = Duration::from_millis(5);

/// Answers `GET /v1/jobs/{id}/events`: sends events after a given number, and renews the job's
/// lease.
pub(crate) async fn events(
    Shared(state): Shared<Arc<State>>,
    Path(job): Path<String>,
    Query(query): Query<Vec<(String, String)>>,
    headers: HeaderMap,
) -> Result<Response, HttpRefusal> {
    let query_params = EventsQuery::parse(&query)?;
    let resumed = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let after = query_params.after.or(resumed).unwrap_or(0);
    let folder = state
        .run_blocking(move |service| {
            let folder = service.find("attach", &job)?;
            service.send_command(JobCommand::Renew, &job)?;
            Ok(folder)
        })
        .await?;
    let received = query_params.received.map_or(ClientOutput::WithEvents, ClientOutput::Given);
    let from_seq = after.saturating_add(1);
    let position = Position {
        from_seq,
        received,
        inline_bytes: query_params.inline,
        heartbeat_interval: Some(HEARTBEAT_INTERVAL),
    };
    let follow = |position, default_s| {
        FollowedBody::start(&state, folder, position, wait_duration(query_params.wait, default_s))
    };
    if accepts(&headers, FRAMES) {
        return Ok(follow(position, MAX_WAIT_S)?.frames());
    }
    let position = Position { inline_bytes: 0, ..position };
    if accepts(&headers, "text/event-stream") {
        return Ok(server_sent(follow(position, MAX_WAIT_S)?));
    }
    let wait = wait_duration(query_params.wait, 0);
    // `document` applies `wait` itself: it returns existing events even if `wait` is 0.
    let followed = follow(position, MAX_WAIT_S)?;
    Ok(json(StatusCode::OK, &document(followed, after, wait).await?))
}

/// Query parameters: last event seen, seconds to wait, largest artifact to send inline, output
/// already received.
#[derive(Default)]
struct EventsQuery {
    after: Option<u64>,
    wait: Option<u64>,
    inline: u64,
    received: Option<Vec<rgpu_protocol::message::ReceivedOutput>>,
}

impl EventsQuery {
    fn parse(query: &[(String, String)]) -> Result<Self, HttpRefusal> {
        let mut query_params = Self::default();
        for (name, value) in query {
            let bad = || {
                let text = format!("`{name}={value}` is not understood");
                HttpRefusal::new(StatusCode::BAD_REQUEST, "bad_query", text)
            };
            let number = || value.parse::<u64>().map_err(|_| bad());
            match name.as_str() {
                "after" => query_params.after = Some(number()?),
                "wait" => query_params.wait = Some(number()?),
                "inline" => query_params.inline = number()?,
                "had" => {
                    let received = query_params.received.get_or_insert_default();
                    if !value.is_empty() {
                        received.push(parse_received(value).ok_or_else(bad)?);
                    }
                }
                _ => return Err(bad()),
            }
        }
        Ok(query_params)
    }
}

/// One message of a follower, with its bytes.
enum FollowerMessage {
    Event(rgpu_protocol::Event),
    Output(OutputPiece),
    /// There is nothing more for now.
    Quiet,
    /// The message with which the follower ended.
    Refused(FromAgent),
}

async fn next(frames: &mut FrameReader<FollowedBody>) -> std::io::Result<Option<FollowerMessage>> {
    loop {
        let Some((_, body)) = frames.next().await? else { return Ok(None) };
        let message: FromAgent = serde_json::from_slice(&body)?;
        let message = match message {
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
        return Ok(Some(message));
    }
}

/// Collects existing events, or the first that come within `wait`.
async fn document(
    followed: FollowedBody,
    after: u64,
    wait: Duration,
) -> Result<Events, HttpRefusal> {
    let mut frames = FrameReader::new(followed);
    let mut document = Events { next: after, ..Events::default() };
    // Output whose event has not come yet.
    let mut pending_output = Vec::new();
    let (mut bytes, mut caught_up) = (0, false);
    let end = tokio::time::Instant::now() + wait;
    while !document.ended && bytes < DOCUMENT_BYTES {
        let message = if !caught_up {
            next(&mut frames).await
        } else if document.events.is_empty() {
            match tokio::time::timeout_at(end, next(&mut frames)).await {
                Ok(message) => message,
                Err(_) => break,
            }
        } else {
            match timeout(BATCH_PAUSE, next(&mut frames)).await {
                Ok(message) => message,
                Err(_) => break,
            }
        };
        match message {
            Ok(Some(FollowerMessage::Event(event))) => {
                document.next = event.seq;
                document.ended = matches!(event.body, EventBody::Ended { .. });
                document.events.push(event);
                document.output.append(&mut pending_output);
            }
            Ok(Some(FollowerMessage::Output(piece))) => {
                bytes += piece.data.len();
                pending_output.push(piece);
            }
            Ok(Some(FollowerMessage::Quiet)) if !document.events.is_empty() => break,
            Ok(Some(FollowerMessage::Quiet)) => caught_up = true,
            Ok(Some(FollowerMessage::Refused(FromAgent::Refused { text, .. }))) => {
                let status = StatusCode::INTERNAL_SERVER_ERROR;
                return Err(HttpRefusal::new(status, "follow_failed", text));
            }
            // The client already has the terminal event.
            Ok(None) => {
                document.ended = document.events.is_empty() && !frames.source().was_stopped();
                break;
            }
            Ok(Some(FollowerMessage::Refused(_))) | Err(_) => break,
        }
    }
    Ok(document)
}

/// Sends server-sent events. Their ids are event numbers, so that a browser's `EventSource` resumes
/// by itself.
fn server_sent(followed: FollowedBody) -> Response {
    let (writer, reader) = tokio::io::duplex(256 << 10);
    tokio::spawn(async move {
        // A disconnected client is no failure of the job.
        let _ = write_events(followed, writer).await;
    });
    let mut response = Response::new(ReadBody::endless(reader));
    let kind = HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

async fn write_events(followed: FollowedBody, mut writer: DuplexStream) -> std::io::Result<()> {
    let mut frames = FrameReader::new(followed);
    while let Some(message) = next(&mut frames).await? {
        let text = match message {
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
        writer.write_all(text.as_bytes()).await?;
    }
    writer.shutdown().await
}
