//! Submits a plan and uploads the blobs that the host lacks.
//!
//! If the host has every blob, `Submit` starts the job at once: a warm job is one round trip.
//! Otherwise the host names the missing blobs, and they are uploaded, over several streams on a
//! long link: sshd's receive window (2 MiB a channel) caps one stream at window / round trip. The
//! plan waits on the host and starts with its last blob; an agent that cannot wait gets `Submit`
//! again.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rgpu_protocol::frame::FrameKind;
use rgpu_protocol::plan::InputFile;
use rgpu_protocol::{BLOB_BYTES, Digest, FromAgent, Plan, ToAgent};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use super::client::{Conversation, IncomingMessage, Request, Session, unexpected_answer};
use super::fetch::PREFETCH_BYTES;
use super::{RemoteError, limits};

/// Artifacts up to this size are sent with the job's terminal event.
pub const INLINE_BYTES: u64 = 256 << 10;

/// An upload opens more streams if it has more bytes and a longer round trip than these.
const PARALLEL_MIN_BYTES: u64 = 4 << 20;
pub(super) const PARALLEL_MIN_ROUND_TRIP: Duration = Duration::from_millis(20);
/// sshd's `MaxSessions` is 10 a connection by default.
const MAX_UPLOAD_STREAMS: usize = 10;

/// For a larger bundle, streams are opened while the host is still being asked which blobs it
/// lacks: it probably lacks the large file, and opening a stream takes a round trip.
const EARLY_OPEN_MIN_BYTES: u64 = 32 << 20;

/// Bytes of a blob that are compressed as a trial.
const SAMPLE_BYTES: usize = 32 << 10;

/// Blobs that one stream may have sent without a confirmation.
const MAX_UNCONFIRMED_BLOBS: usize = 8;

/// When there are several streams, one takes another blob only if at most this many bytes of it are
/// unsent. Otherwise the first stream would take all blobs.
const MAX_UNSENT_WINDOW_BYTES: u64 = 1 << 20;

/// How often a host may report missing blobs. A replacement machine has none of the blobs that the
/// first one confirmed.
const MAX_UPLOAD_ROUNDS: u32 = 3;

/// How long a blob is reserved for each stream that is still opening, and how often we check.
const STREAM_OPEN_WAIT: Duration = Duration::from_secs(1);
const STREAM_OPEN_POLL: Duration = Duration::from_millis(5);

/// Reads the bytes of a bundle.
pub trait BlobReader: Send + Sync {
    /// The uncompressed bytes of a blob, at most [`BLOB_BYTES`].
    fn open(&self, digest: &Digest) -> io::Result<Vec<u8>>;
}

/// The progress of an upload or a fetch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransferProgress {
    /// Number of bytes transferred, before compression.
    pub done: u64,
    /// Uncompressed bytes to move.
    pub total: u64,
}

/// A callback that receives progress.
pub type ProgressSink<'a> = &'a (dyn Fn(TransferProgress) + Send + Sync);

/// A plan with its files and secrets.
#[derive(Clone)]
pub struct Submission {
    /// The plan to submit.
    pub plan: Plan,
    /// The contents of its files.
    pub blobs: Arc<dyn BlobReader>,
    /// The values of its secrets, by name.
    pub secrets: BTreeMap<String, String>,
}

/// The amount that an upload moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UploadTotals {
    /// Number of blobs that were sent.
    pub blobs: usize,
    /// The size of these blobs before compression.
    pub bytes: u64,
    /// Streams that sent blobs.
    pub streams: usize,
}

impl Session {
    /// Submits a plan, uploads the blobs that the host lacks, and follows the job from its first
    /// event.
    ///
    /// If the job already exists, it is attached to. So this may be repeated after a cut link;
    /// blobs that arrived whole are not sent again.
    ///
    /// # Errors
    /// The link fails, the agent refuses (`facts_changed`, `disk_full` …), or a file cannot be
    /// read.
    pub async fn submit(
        &mut self,
        submission: &Submission,
        progress: ProgressSink<'_>,
    ) -> Result<UploadTotals, RemoteError> {
        let message = ToAgent::Submit {
            plan: Box::new(submission.plan.clone()),
            secrets: submission.secrets.clone(),
            inline_bytes: INLINE_BYTES,
            ahead_bytes: if self.streams.round_trip() > PARALLEL_MIN_ROUND_TRIP {
                PREFETCH_BYTES
            } else {
                0
            },
            await_blobs: true,
        };
        let mut uploaded = UploadTotals::default();
        let total_bytes = submission.plan.files.iter().map(|file| file.size).sum();
        let knew_agent = self.agent().is_some();
        let mut opening = if total_bytes > EARLY_OPEN_MIN_BYTES {
            self.open_streams(total_bytes, MAX_UPLOAD_STREAMS)
        } else {
            Vec::new()
        };
        let mut early = self.send_early(submission, &mut opening);
        let mut rounds = 0;
        loop {
            let doing = "submitting the plan";
            let request = Request { name: "submit", doing, limit: limits::ANSWER_TIMEOUT };
            match self.ask(&message, request).await? {
                FromAgent::Following { job } => {
                    self.start_following(job, &submission.plan.job)?;
                    return Ok(uploaded);
                }
                FromAgent::Missing { digests, awaited, .. } if rounds < MAX_UPLOAD_ROUNDS => {
                    rounds += 1;
                    self.is_answer_pending = true;
                    if !knew_agent && self.conversation.cold {
                        // The other streams found no agent either.
                        opening.clear();
                        early = None;
                    }
                    let then = if awaited { AfterLastBlob::Begins } else { AfterLastBlob::Asked };
                    let missing = MissingOnHost { digests, then };
                    let streams =
                        early.take().map_or(EarlyWork::Opening(opening), EarlyWork::Sending);
                    opening = Vec::new();
                    let (sent, begun) = self.upload(submission, missing, streams, progress).await?;
                    uploaded.blobs += sent.blobs;
                    uploaded.bytes += sent.bytes;
                    uploaded.streams = uploaded.streams.max(sent.streams);
                    self.is_answer_pending = false;
                    if let Some(job) = begun {
                        self.start_following(job, &submission.plan.job)?;
                        return Ok(uploaded);
                    }
                }
                FromAgent::Missing { digests, .. } => {
                    return Err(RemoteError::ProtocolViolation {
                        what: format!(
                            "{} blobs are missing that the agent had confirmed",
                            digests.len()
                        ),
                    });
                }
                other => return Err(unexpected_answer(&other)),
            }
        }
    }

    /// If no blob of the bundle was ever sent to this host, starts to send all of them over the
    /// streams that are opening.
    fn send_early(
        &self,
        submission: &Submission,
        opening: &mut Vec<OpeningStream>,
    ) -> Option<UploadStreams> {
        let sent_record = self.sent_record.as_ref().filter(|_| !opening.is_empty())?;
        let files = &submission.plan.files;
        let digests: HashSet<&Digest> = files.iter().flat_map(|file| &file.blobs).collect();
        sent_record.record_if_all_new(&digests).then(|| {
            let mut digests: Vec<Digest> = digests.into_iter().cloned().collect();
            digests.sort();
            UploadStreams::begin(digests, submission, std::mem::take(opening))
        })
    }

    /// Starts to open up to `max_streams` streams, counting the session's own, if `bytes` and the
    /// round trip justify it.
    fn open_streams(&self, bytes: u64, max_streams: usize) -> Vec<OpeningStream> {
        if bytes <= PARALLEL_MIN_BYTES || self.streams.round_trip() <= PARALLEL_MIN_ROUND_TRIP {
            return Vec::new();
        }
        let open = |_| {
            let streams = self.streams.clone();
            tokio::spawn(async move {
                // If the host grants fewer streams, the upload uses those.
                let Ok(wire) = streams.open().await else { return Ok(None) };
                Conversation::greet(wire).await.map(|(conversation, _)| Some(conversation))
            })
        };
        (1..max_streams).map(open).collect()
    }

    async fn upload(
        &mut self,
        submission: &Submission,
        missing: MissingOnHost,
        streams: EarlyWork,
        progress: ProgressSink<'_>,
    ) -> Result<(UploadTotals, Option<String>), RemoteError> {
        let sizes = blob_sizes(&submission.plan);
        let MissingOnHost { mut digests, then } = missing;
        digests.sort();
        digests.dedup();
        if let Some(foreign) = digests.iter().find(|digest| !sizes.contains_key(digest)) {
            return Err(RemoteError::ProtocolViolation {
                what: format!("it asks for {foreign:?}, which is not part of the plan"),
            });
        }
        if digests.is_empty() {
            let what = "it lists no missing blob, and does not start the plan".to_owned();
            return Err(RemoteError::ProtocolViolation { what });
        }
        let total: u64 = digests.iter().map(|digest| sizes[digest]).sum();
        let blobs = digests.len();
        progress(TransferProgress { done: 0, total });
        let UploadStreams { work, stored, mut confirmed, mut running } = match streams {
            EarlyWork::Sending(lanes) => {
                let wanted: HashSet<Digest> = digests.into_iter().collect();
                lanes.work.left().retain(|digest| wanted.contains(digest));
                lanes
            }
            EarlyWork::Opening(mut opening) => {
                if opening.is_empty() {
                    opening = self.open_streams(total, MAX_UPLOAD_STREAMS.min(blobs));
                }
                opening.truncate(blobs - 1);
                UploadStreams::begin(digests, submission, opening)
            }
        };

        let mut done = 0;
        let mut report = |digest: &Digest| {
            // Blobs sent early may not have been missing.
            done = total.min(done + sizes.get(digest).copied().unwrap_or(0));
            progress(TransferProgress { done, total });
        };
        let mut begun = None;
        {
            let own = send_blobs(&mut self.conversation, &work, &stored);
            tokio::pin!(own);
            let mut own_done = false;
            while !own_done {
                tokio::select! {
                    result = &mut own => {
                        begun = result?;
                        own_done = true;
                    }
                    Some(digest) = confirmed.recv() => report(&digest),
                }
            }
        }
        drop(stored);
        // A job that has started has every blob, even if some confirmations are outstanding.
        while begun.is_none() && !(running.is_empty() && confirmed.is_closed()) {
            tokio::select! {
                Some(digest) = confirmed.recv() => report(&digest),
                Some(ended) = running.join_next() => match ended {
                    Ok(result) => result?,
                    Err(error) => return Err(RemoteError::LinkCut {
                        doing: "uploading",
                        why: error.to_string(),
                    }),
                },
                incoming = self.conversation.incoming("uploading"), if then == AfterLastBlob::Begins => {
                    begun = started_job(incoming?)?;
                }
                else => break,
            }
        }
        if begun.is_none() && then == AfterLastBlob::Begins {
            begun = Some(self.wait_for_start().await?);
        }
        progress(TransferProgress { done: total, total });
        let streams = work.lanes.load(Ordering::Relaxed);
        Ok((UploadTotals { blobs, bytes: total, streams }, begun))
    }

    /// Waits until a plan whose blobs are all confirmed starts.
    async fn wait_for_start(&mut self) -> Result<String, RemoteError> {
        let doing = "submitting the plan";
        let request = Request { name: "submit", doing, limit: limits::ANSWER_TIMEOUT };
        match self.wait_for_answer(&request).await? {
            FromAgent::Following { job } => Ok(job),
            other => Err(unexpected_answer(&other)),
        }
    }
}

/// The step after the last blob.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AfterLastBlob {
    /// The plan starts by itself.
    Begins,
    /// The plan must be submitted again.
    Asked,
}

/// The blobs that a host lacks.
struct MissingOnHost {
    digests: Vec<Digest>,
    then: AfterLastBlob,
}

/// Work done before the host named the missing blobs.
enum EarlyWork {
    /// Streams are being opened.
    Opening(Vec<OpeningStream>),
    /// Streams already send blobs that the host probably lacks.
    Sending(UploadStreams),
}

/// The additional streams, and the state they share with the session's own. They stop when this is
/// dropped.
struct UploadStreams {
    work: Arc<PendingBlobs>,
    stored: mpsc::UnboundedSender<Digest>,
    confirmed: mpsc::UnboundedReceiver<Digest>,
    running: JoinSet<Result<(), RemoteError>>,
}

impl UploadStreams {
    /// Sends `digests` over these streams as soon as each is open.
    fn begin(digests: Vec<Digest>, submission: &Submission, opening: Vec<OpeningStream>) -> Self {
        let work = Arc::new(PendingBlobs {
            left: Mutex::new(digests.into()),
            blobs: submission.blobs.clone(),
            max_unsent: if opening.is_empty() { u64::MAX } else { MAX_UNSENT_WINDOW_BYTES },
            lanes: AtomicUsize::new(0),
            opening_streams: AtomicUsize::new(opening.len()),
            begun: Instant::now(),
        });
        let (stored, confirmed) = mpsc::unbounded_channel();
        let mut running = JoinSet::new();
        for opened in opening {
            let (work, stored) = (work.clone(), stored.clone());
            running.spawn(async move {
                let cut = |why: tokio::task::JoinError| RemoteError::LinkCut {
                    doing: "opening a stream",
                    why: why.to_string(),
                };
                let opened = opened.await;
                work.opening_streams.fetch_sub(1, Ordering::Relaxed);
                let Some(mut conversation) = opened.map_err(cut)?? else { return Ok(()) };
                send_blobs(&mut conversation, &work, &stored).await.map(drop)
            });
        }
        Self { work, stored, confirmed, running }
    }
}

/// The job whose start `incoming` reports. Other messages can be ignored: the job sends nothing
/// before it starts, and an earlier job is no longer followed.
fn started_job(incoming: IncomingMessage) -> Result<Option<String>, RemoteError> {
    match incoming {
        IncomingMessage::Answer(FromAgent::Following { job }) => Ok(Some(job)),
        IncomingMessage::Answer(FromAgent::Refused { request, code, text }) => {
            Err(RemoteError::Refused { request, code, text })
        }
        _ => Ok(None),
    }
}

/// A stream that is being opened; `None`: the host refused it.
type OpeningStream = JoinHandle<Result<Option<Conversation>, RemoteError>>;

/// The queue of blobs to send.
struct PendingBlobs {
    left: Mutex<VecDeque<Digest>>,
    blobs: Arc<dyn BlobReader>,
    /// Bytes that may be unsent in a stream when it takes another blob.
    max_unsent: u64,
    /// Streams that have taken a blob.
    lanes: AtomicUsize,
    /// Streams that are still opening, and since when. A blob is reserved for each until
    /// [`STREAM_OPEN_WAIT`] is over.
    opening_streams: AtomicUsize,
    begun: Instant,
}

impl PendingBlobs {
    fn left(&self) -> std::sync::MutexGuard<'_, VecDeque<Digest>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether all remaining blobs are reserved for streams that are still opening.
    fn is_reserved(&self) -> bool {
        self.left().len() <= self.opening_streams.load(Ordering::Relaxed)
            && self.begun.elapsed() < STREAM_OPEN_WAIT
    }
}

/// A blob ready to send.
struct PackedBlob {
    message: ToAgent,
    bytes: Vec<u8>,
}

/// Reads a blob, and compresses it if that saves a tenth or more. Blocks.
fn pack(blobs: &dyn BlobReader, digest: Digest) -> Result<PackedBlob, RemoteError> {
    let plain = blobs
        .open(&digest)
        .map_err(|source| RemoteError::Blob { digest: digest.clone(), source })?;
    let size = plain.len() as u64;
    if size > BLOB_BYTES {
        let source = io::Error::other(format!("a blob of {size} bytes"));
        return Err(RemoteError::Blob { digest, source });
    }
    let packed = if might_shrink(&plain) {
        zstd::bulk::compress(&plain, 1).ok().filter(|z| shrinks(z, &plain))
    } else {
        None
    };
    let zstd = packed.is_some();
    let bytes = packed.unwrap_or(plain);
    Ok(PackedBlob {
        message: ToAgent::Blob { digest, size, stored: bytes.len() as u64, zstd },
        bytes,
    })
}

fn shrinks(packed: &[u8], plain: &[u8]) -> bool {
    packed.len() < plain.len() / 10 * 9
}

/// Whether compression is worth a try, judged by a sample from the middle of a long blob.
fn might_shrink(plain: &[u8]) -> bool {
    if plain.len() <= 2 * SAMPLE_BYTES {
        return true;
    }
    let sample = &plain[plain.len() / 2..][..SAMPLE_BYTES];
    zstd::bulk::compress(sample, 1).is_ok_and(|packed| shrinks(&packed, sample))
}

/// Sends blobs over one stream until none is left and all are confirmed, or the job has started.
async fn send_blobs(
    conversation: &mut Conversation,
    work: &Arc<PendingBlobs>,
    stored: &mpsc::UnboundedSender<Digest>,
) -> Result<Option<String>, RemoteError> {
    let writer = conversation.writer.clone();
    let mut unconfirmed = 0_usize;
    let mut used = false;
    loop {
        let has_blobs = !work.left().is_empty();
        if !has_blobs && unconfirmed == 0 {
            return Ok(None);
        }
        let reserved = has_blobs && used && work.is_reserved();
        let take_blob = has_blobs && !reserved && unconfirmed < MAX_UNCONFIRMED_BLOBS;
        let written_before = writer.written();
        tokio::select! {
            biased;
            () = writer.drained(work.max_unsent), if take_blob => {
                let Some(digest) = work.left().pop_front() else { continue };
                if !std::mem::replace(&mut used, true) {
                    work.lanes.fetch_add(1, Ordering::Relaxed);
                }
                let source = work.clone();
                let packed = tokio::task::spawn_blocking(move || pack(&*source.blobs, digest))
                    .await
                    .map_err(|error| RemoteError::ProtocolViolation { what: error.to_string() })??;
                writer.send_with_bytes(&packed.message, FrameKind::Blob, &packed.bytes).await?;
                unconfirmed += 1;
            }
            () = tokio::time::sleep(STREAM_OPEN_POLL), if reserved => {}
            incoming = timeout(limits::STALL_TIMEOUT, conversation.incoming("uploading")) => match incoming {
                Ok(incoming) => match incoming? {
                    IncomingMessage::Answer(FromAgent::Stored { digest }) => {
                        unconfirmed = unconfirmed.checked_sub(1).ok_or_else(|| {
                            let what = format!("{digest:?} is confirmed, and was not sent");
                            RemoteError::ProtocolViolation { what }
                        })?;
                        // The receiver outlives every lane.
                        let _ = stored.send(digest);
                    }
                    incoming => {
                        if let Some(job) = started_job(incoming)? {
                            return Ok(Some(job));
                        }
                    }
                },
                // The upload is slow but moves.
                Err(_) if writer.written() > written_before => {}
                Err(_) => {
                    return Err(RemoteError::Silent { doing: "uploading", limit: limits::STALL_TIMEOUT });
                }
            },
        }
    }
}

/// The size of each blob of a plan.
fn blob_sizes(plan: &Plan) -> HashMap<Digest, u64> {
    let mut sizes = HashMap::new();
    for piece in plan.files.iter().flat_map(InputFile::pieces) {
        sizes.insert(piece.digest.clone(), piece.len);
    }
    sizes
}

#[cfg(test)]
mod tests {
    use super::super::fake::{self, InProcessAgent};
    use crate::{HostLink, ReconnectPolicy};

    use super::*;

    /// Bytes that do not compress.
    fn noise(n: usize) -> Vec<u8> {
        let mut x = 88_172_645_463_325_252_u64;
        (0..n)
            .map(|_| {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                x as u8
            })
            .collect()
    }

    #[tokio::test]
    async fn a_host_that_loses_what_it_confirmed_is_sent_it_a_few_times_only() {
        let host = InProcessAgent::new(vec![fake::ended()]);
        host.forget_blobs();
        let bytes = noise(10_000);
        let submission = fake::submission(&[("in", &bytes)]);
        let error = connect(&host).await.submit(&submission, &|_| ()).await.unwrap_err();
        assert!(
            matches!(&error, RemoteError::ProtocolViolation { what } if what.contains("confirmed"))
        );
        assert_eq!(host.blob_bytes(), u64::from(MAX_UPLOAD_ROUNDS) * bytes.len() as u64);
    }

    async fn connect(host: &InProcessAgent) -> HostLink {
        let patience = ReconnectPolicy {
            first: Duration::from_millis(1),
            longest: Duration::from_millis(1),
            total: Duration::from_secs(20),
        };
        HostLink::connect(Arc::new(host.clone()), fake::options())
            .await
            .unwrap()
            .with_reconnect_policy(patience)
    }

    #[tokio::test]
    async fn a_large_bundle_goes_over_several_streams_and_the_next_run_sends_nothing() {
        let host = InProcessAgent::new(vec![fake::ended()]);
        let (big, small) = (noise(9 << 20), vec![7; 1 << 20]);
        let submission = fake::submission(&[("big", &big), ("small", &small)]);
        let seen = Mutex::new(Vec::new());
        let record_progress = |transfer: TransferProgress| seen.lock().unwrap().push(transfer);
        let first = fake::connect(&host).await.submit(&submission, &record_progress).await.unwrap();
        assert_eq!((first.blobs, first.bytes), (10, 10 << 20));
        assert!(first.streams > 1, "{first:?}");
        // The second file is one byte over and over.
        assert!((9 << 20..(9 << 20) + 1000).contains(&host.blob_bytes()));
        let seen = seen.into_inner().unwrap();
        assert_eq!(seen.first(), Some(&TransferProgress { done: 0, total: 10 << 20 }));
        assert_eq!(seen.last(), Some(&TransferProgress { done: 10 << 20, total: 10 << 20 }));

        let second = fake::connect(&host).await.submit(&submission, &|_| ()).await.unwrap();
        assert_eq!(second, UploadTotals::default());
    }

    #[tokio::test]
    async fn a_large_bundle_that_is_new_goes_out_unasked_and_each_blob_once() {
        const BYTES: usize = 34 << 20;
        let host = InProcessAgent::new(vec![fake::ended()]);
        let big = noise(BYTES);
        let submission = fake::submission(&[("big", &big)]);
        let (cache, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let remembering = |folder: &tempfile::TempDir| {
            let sent =
                super::super::SentRecord::new(folder.path(), &super::super::RemoteSpec::local());
            let host = host.clone();
            async move { fake::connect(&host).await.with_sent_record(sent) }
        };
        let first = remembering(&cache).await.submit(&submission, &|_| ()).await.unwrap();
        assert!(first.streams > 1, "{first:?}");
        assert_eq!(host.blob_bytes(), BYTES as u64);
        let second = remembering(&cache).await.submit(&submission, &|_| ()).await.unwrap();
        assert_eq!((second, host.blob_bytes()), (UploadTotals::default(), BYTES as u64));
        // An empty record says that nothing was sent, which is wrong here. The job starts anyway.
        let third = remembering(&other).await.submit(&submission, &|_| ()).await.unwrap();
        assert_eq!(third, UploadTotals::default());
    }

    #[tokio::test]
    async fn an_upload_over_links_that_are_cut_goes_on_with_what_is_missing() {
        let host = InProcessAgent::new(vec![fake::ended()]);
        let big = noise(12 << 20);
        let submission = fake::submission(&[("big", &big)]);
        let mut link = fake::connect(&host).await;
        // The link allows one more answer to a blob and no more.
        host.cut_after(800);
        link.submit(&submission, &|_| ()).await.unwrap();
        let again = fake::connect(&host).await.submit(&submission, &|_| ()).await.unwrap();
        assert_eq!(again, UploadTotals::default());
    }

    #[tokio::test]
    async fn a_file_that_is_gone_stops_the_upload() {
        let host = InProcessAgent::new(vec![]);
        let mut submission = fake::submission(&[("a", b"abc")]);
        submission.blobs = Arc::new(fake::Blobs::default());
        let error = fake::connect(&host).await.submit(&submission, &|_| ()).await.unwrap_err();
        assert!(matches!(error, RemoteError::Blob { .. }), "{error:?}");
    }
}
