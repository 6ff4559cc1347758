//! Sends parts of artifacts, compressed if that makes them smaller.

use std::io;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Sender, channel};

use rgpu_protocol::FromAgent;
use rgpu_protocol::frame::FrameKind;

use super::ClientWriter;
use crate::inside::open_regular;
use crate::job::JobFolder;
use crate::service::Refusal;

/// Bytes to compress as a sample before a larger part is compressed.
const SAMPLE_BYTES: usize = 32 << 10;

/// Smaller parts are sent uncompressed.
const MIN_PACKED_BYTES: usize = 512;

/// A requested part of an artifact.
pub(crate) struct ArtifactPart {
    pub(crate) folder: JobFolder,
    pub(crate) path: String,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

/// Sends parts in the order of the requests, in a thread of its own.
#[derive(Clone)]
pub(crate) struct Fetcher(Sender<ArtifactPart>);

impl Fetcher {
    /// Starts the thread. It ends with the connection.
    pub(crate) fn start(out: ClientWriter) -> Self {
        let (sender, receiver) = channel::<ArtifactPart>();
        std::thread::spawn(move || {
            for part in receiver {
                if send_part(&out, &part.folder, &part.path, part.offset, part.len).is_err() {
                    return;
                }
            }
        });
        Self(sender)
    }

    /// Queues a part. If the thread has ended, the writer has failed and the connection is ending.
    pub(crate) fn ask(&self, part: ArtifactPart) {
        let _ = self.0.send(part);
    }
}

/// Sends up to `len` bytes of an artifact from `offset` on, or a refusal.
pub(super) fn send_part(
    out: &ClientWriter,
    folder: &JobFolder,
    path: &str,
    offset: u64,
    len: u64,
) -> io::Result<()> {
    let (message, wire) = part(folder, path, offset, len);
    out.queue_with(&message, FrameKind::Blob, &wire)?;
    out.flush()
}

/// Returns up to `len` bytes of an artifact from `offset` on and the message that announces them,
/// or a refusal and no bytes.
fn part(folder: &JobFolder, path: &str, offset: u64, len: u64) -> (FromAgent, Vec<u8>) {
    let bytes = match read_part(folder, path, offset, len) {
        Ok(bytes) => bytes,
        Err(e) => return (FromAgent::from(refusal(path, &e)), Vec::new()),
    };
    let packed = pack(&bytes);
    let (plain, zstd) = (bytes.len() as u64, packed.is_some());
    let wire = packed.unwrap_or(bytes);
    let message = FromAgent::Data {
        job: folder.id().to_owned(),
        path: path.to_owned(),
        offset,
        len: plain,
        stored: wire.len() as u64,
        zstd,
    };
    (message, wire)
}

/// Converts an error of reading a job's file into a refusal.
fn refusal(path: &str, error: &io::Error) -> Refusal {
    let is_link = error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error());
    let code = match error.kind() {
        io::ErrorKind::NotFound => "no_such_file",
        io::ErrorKind::InvalidInput | io::ErrorKind::NotADirectory => "bad_path",
        _ if is_link => "bad_path",
        _ => "io",
    };
    Refusal::new("fetch", code, format!("`{}`: {error}", path.escape_debug()))
}

fn read_part(folder: &JobFolder, path: &str, offset: u64, len: u64) -> io::Result<Vec<u8>> {
    let file = open_regular(&folder.work(), path)?;
    let size = file.metadata()?.len();
    let len = len.min(size.saturating_sub(offset));
    let mut bytes = vec![0; len as usize];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

/// Compresses with zstd; `None` if that saves less than a tenth.
fn pack(bytes: &[u8]) -> Option<Vec<u8>> {
    if bytes.len() < MIN_PACKED_BYTES {
        return None;
    }
    let shrinks = |packed: &[u8], plain: &[u8]| packed.len() < plain.len() / 10 * 9;
    if bytes.len() > 2 * SAMPLE_BYTES {
        let middle = bytes.len() / 2;
        let sample = &bytes[middle..middle + SAMPLE_BYTES];
        let tried = zstd::bulk::compress(sample, 1).ok()?;
        if !shrinks(&tried, sample) {
            return None;
        }
    }
    let packed = zstd::bulk::compress(bytes, 3).ok()?;
    shrinks(&packed, bytes).then_some(packed)
}
