//! Fetches pieces of files, several at a time, and passes them on in the order of the requests.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use reqwest::Response;
use reqwest::header::{CONTENT_TYPE, ETAG, RANGE};
use rgpu_protocol::http::FRAMES;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;

use super::bridge::{AbortOnDrop, RequestContext, in_path, job_path};
use super::requests::{WorkerAnswer, WorkerRequest};
use super::transfer_rate::TransferRate;
use crate::http::{self, HttpError};
use crate::limits;

/// Pieces fetched at the same time.
const MAX_PIECES_IN_FLIGHT: usize = 4;

/// Attempts for a piece whose answer was cut.
const MAX_TRIES: u32 = 3;

/// Bytes by which an answer may exceed its piece: frames, path, and the growth of incompressible
/// data.
const MAX_EXTRA_BYTES: u64 = 128 << 10;

/// A piece of a file.
pub(super) struct FilePiece {
    pub(super) job: String,
    pub(super) path: String,
    pub(super) offset: u64,
    pub(super) len: u64,
}

/// Fetches pieces of artifacts in the background, several at once.
pub(super) struct ArtifactFetcher {
    link: RequestContext,
    room: Arc<Semaphore>,
    queue: mpsc::UnboundedSender<(FilePiece, PendingPiece)>,
    _task: AbortOnDrop,
}

/// A piece being fetched. Dropping it stops the fetch.
struct PendingPiece(JoinHandle<Result<PieceOutcome, HttpError>>);

impl Drop for PendingPiece {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The result of fetching a piece.
enum PieceOutcome {
    /// Frames, and the ETag of their file.
    Frames(Vec<u8>, Option<String>),
    /// A message that explains a refusal.
    AgentMessage(Vec<u8>),
}

impl ArtifactFetcher {
    pub(super) fn new(link: RequestContext) -> Self {
        let (queue, coming) = mpsc::unbounded_channel();
        let task = tokio::spawn(pass_in_order(link.clone(), coming));
        let room = Arc::new(Semaphore::new(MAX_PIECES_IN_FLIGHT));
        Self { link, room, queue, _task: AbortOnDrop(task.abort_handle()) }
    }

    /// Starts to fetch a piece.
    pub(super) fn ask(&self, piece: FilePiece) {
        let FilePiece { job, path, offset, len } = &piece;
        let url = format!("{}/artifacts/{}", job_path(job), in_path(path));
        let last = (offset + len).saturating_sub(1);
        let ask = WorkerRequest::get(url, FETCHING)
            .accept(FRAMES)
            .header(RANGE, &format!("bytes={offset}-{last}"));
        let (link, room, max_bytes) = (self.link.clone(), self.room.clone(), len + MAX_EXTRA_BYTES);
        let task = tokio::spawn(async move {
            let _permit = room.acquire().await;
            let mut tries = 1;
            loop {
                match fetch(&link, ask.clone(), max_bytes).await {
                    Err(HttpError::Cut { .. }) if tries < MAX_TRIES => tries += 1,
                    done => return done,
                }
            }
        });
        // The receiver lives as long as we do.
        let _ = self.queue.send((piece, PendingPiece(task)));
    }
}

const FETCHING: &str = "fetching a file";

/// Fetches a piece; its answer has at most `max_bytes` bytes.
async fn fetch(
    link: &RequestContext,
    ask: WorkerRequest,
    max_bytes: u64,
) -> Result<PieceOutcome, HttpError> {
    let mut response = match link.requests.send(ask).await? {
        WorkerAnswer::AgentMessage(body) => return Ok(PieceOutcome::AgentMessage(body)),
        WorkerAnswer::Response(response) => response,
    };
    let cut = |why: String| HttpError::Cut { doing: FETCHING, why };
    let header = |response: &Response, name| {
        response.headers().get(name).and_then(|v| v.to_str().ok()).map(str::to_owned)
    };
    if header(&response, CONTENT_TYPE).is_none_or(|kind| kind != FRAMES) {
        return Err(cut("it is not a stream of frames".to_owned()));
    }
    let tag = header(&response, ETAG);
    let announced = response.content_length().unwrap_or(0).min(max_bytes);
    let mut frames = Vec::with_capacity(announced as usize);
    let mut transfer_rate = TransferRate::new(Instant::now());
    loop {
        match http::next_chunk(&mut response, limits::STALL_TIMEOUT, FETCHING).await? {
            Some(bytes) if (frames.len() + bytes.len()) as u64 > max_bytes => {
                return Err(cut(format!("its answer is over {max_bytes} bytes")));
            }
            Some(bytes) => {
                frames.extend_from_slice(&bytes);
                transfer_rate.add_bytes(bytes.len(), Instant::now()).map_err(cut)?;
            }
            None => return Ok(PieceOutcome::Frames(frames, tag)),
        }
    }
}

/// Passes pieces on in order. If a file changed since its first piece, the stream ends; the next
/// stream resumes with the new file.
async fn pass_in_order(
    link: RequestContext,
    mut queue: mpsc::UnboundedReceiver<(FilePiece, PendingPiece)>,
) {
    let mut tags: HashMap<(String, String), String> = HashMap::new();
    while let Some((piece, mut coming)) = queue.recv().await {
        let outcome = match (&mut coming.0).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(error)) => {
                link.failed("fetch", &error).await;
                continue;
            }
            Err(_) => return,
        };
        let (frames, tag) = match outcome {
            PieceOutcome::Frames(frames, tag) => (frames, tag),
            PieceOutcome::AgentMessage(body) => {
                let _ = link.send_json(&body).await;
                continue;
            }
        };
        let file = (piece.job, piece.path);
        if let Some(tag) = tag {
            let is_first = piece.offset == 0;
            if let Some(first_tag) =
                tags.get(&file).filter(|first_tag| !is_first && **first_tag != tag)
            {
                // The file was rewritten, or restored by a restarted host. The digest of the whole
                // file decides once the rest has come.
                let path = file.1.escape_debug();
                let why = format!("`{path}` has changed ({first_tag}, then {tag})");
                return link.cut_off(&HttpError::Cut { doing: FETCHING, why });
            }
            tags.insert(file, tag);
        }
        if link.pass(frames).await.is_err() {
            return;
        }
    }
}
