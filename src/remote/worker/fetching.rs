//! Pieces of files, several at a time and handed on in the order in which they were asked for.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use reqwest::Response;
use reqwest::header::{CONTENT_TYPE, ETAG, RANGE};
use rgpu_protocol::http::FRAMES;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::bridge::{AbortOnDrop, RequestContext, in_path, job_path};
use super::error::HttpError;
use super::requests::{WorkerAnswer, WorkerRequest, chain};
use super::transfer_rate::TransferRate;
use crate::remote::limits;

/// Pieces under way at the same time.
const MAX_PIECES_IN_FLIGHT: usize = 4;

/// Tries of a piece whose answer was cut.
const MAX_TRIES: u32 = 3;

/// Bytes that the answer with a piece may be longer than the piece: its frames, its path, and what
/// does not compress.
const MAX_EXTRA_BYTES: u64 = 128 << 10;

/// A piece of a file.
pub(super) struct FilePiece {
    pub(super) job: String,
    pub(super) path: String,
    pub(super) offset: u64,
    pub(super) len: u64,
}

/// Fetches pieces.
pub(super) struct Fetcher {
    link: RequestContext,
    room: Arc<Semaphore>,
    queue: mpsc::UnboundedSender<(FilePiece, PendingPiece)>,
    _task: AbortOnDrop,
}

/// A piece that is under way. It is not fetched for nobody.
struct PendingPiece(JoinHandle<Result<PieceOutcome, HttpError>>);

impl Drop for PendingPiece {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What came.
enum PieceOutcome {
    /// Frames, and the state of the file they are of.
    Frames(Vec<u8>, Option<String>),
    /// A message that says why not.
    Said(Vec<u8>),
}

impl Fetcher {
    pub(super) fn new(link: RequestContext) -> Self {
        let (queue, coming) = mpsc::unbounded_channel();
        let task = tokio::spawn(hand_on(link.clone(), coming));
        let room = Arc::new(Semaphore::new(MAX_PIECES_IN_FLIGHT));
        Self { link, room, queue, _task: AbortOnDrop(task.abort_handle()) }
    }

    /// Asks for a piece.
    pub(super) fn ask(&self, piece: FilePiece) {
        let FilePiece { job, path, offset, len } = &piece;
        let url = format!("{}/artifacts/{}", job_path(job), in_path(path));
        let last = (offset + len).saturating_sub(1);
        let ask = WorkerRequest::get(url, FETCHING)
            .accept(FRAMES)
            .header(RANGE, &format!("bytes={offset}-{last}"));
        let (link, room, most) = (self.link.clone(), self.room.clone(), len + MAX_EXTRA_BYTES);
        let task = tokio::spawn(async move {
            let _place = room.acquire().await;
            let mut tries = 1;
            loop {
                match fetch(&link, ask.clone(), most).await {
                    Err(HttpError::Cut { .. }) if tries < MAX_TRIES => tries += 1,
                    done => return done,
                }
            }
        });
        // The other end lives as long as we do.
        let _ = self.queue.send((piece, PendingPiece(task)));
    }
}

const FETCHING: &str = "fetching a file";

/// Asks for a piece, whose answer has at most `most` bytes.
async fn fetch(
    link: &RequestContext,
    ask: WorkerRequest,
    most: u64,
) -> Result<PieceOutcome, HttpError> {
    let mut response = match link.requests.send(ask).await? {
        WorkerAnswer::Said(body) => return Ok(PieceOutcome::Said(body)),
        WorkerAnswer::Good(response) => response,
    };
    let cut = |why: String| HttpError::Cut { doing: FETCHING, why };
    let header = |response: &Response, name| {
        response.headers().get(name).and_then(|v| v.to_str().ok()).map(str::to_owned)
    };
    if header(&response, CONTENT_TYPE).is_none_or(|kind| kind != FRAMES) {
        return Err(cut("it is no stream of frames".to_owned()));
    }
    let tag = header(&response, ETAG);
    let announced = response.content_length().unwrap_or(0).min(most);
    let mut frames = Vec::with_capacity(announced as usize);
    let mut pace = TransferRate::new(Instant::now());
    loop {
        let chunk = timeout(limits::STALL, response.chunk())
            .await
            .map_err(|_| HttpError::Silent { doing: FETCHING, limit: limits::STALL })?;
        match chunk {
            Ok(Some(bytes)) if (frames.len() + bytes.len()) as u64 > most => {
                return Err(cut(format!("its answer is over {most} bytes")));
            }
            Ok(Some(bytes)) => {
                frames.extend_from_slice(&bytes);
                pace.came(bytes.len(), Instant::now()).map_err(cut)?;
            }
            Ok(None) => return Ok(PieceOutcome::Frames(frames, tag)),
            Err(error) => return Err(cut(chain(&error))),
        }
    }
}

/// Hands pieces on. A file that is another one since its first piece ends the stream: the next one
/// goes on with what it is by then.
async fn hand_on(
    link: RequestContext,
    mut queue: mpsc::UnboundedReceiver<(FilePiece, PendingPiece)>,
) {
    let mut states: HashMap<(String, String), String> = HashMap::new();
    while let Some((piece, mut coming)) = queue.recv().await {
        let came = match (&mut coming.0).await {
            Ok(Ok(came)) => came,
            Ok(Err(error)) => {
                link.failed("fetch", &error).await;
                continue;
            }
            Err(_) => return,
        };
        let (frames, tag) = match came {
            PieceOutcome::Frames(frames, tag) => (frames, tag),
            PieceOutcome::Said(body) => {
                let _ = link.say(&body).await;
                continue;
            }
        };
        let file = (piece.job, piece.path);
        if let Some(tag) = tag {
            let first = piece.offset == 0;
            if let Some(known) = states.get(&file).filter(|known| !first && **known != tag) {
                // Written anew, or put back by a host that was started again: the digest of the whole
                // tells which, once the rest has come.
                let path = file.1.escape_debug();
                let why = format!("`{path}` is another file now ({known}, then {tag})");
                return link.cut_off(&HttpError::Cut { doing: FETCHING, why });
            }
            states.insert(file, tag);
        }
        if link.pass(frames).await.is_err() {
            return;
        }
    }
}
