//! Unpacks, hashes and writes blobs in a thread, while the next one is read.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

use rgpu_protocol::{Digest, FromAgent};

use super::ClientWriter;
use crate::blob::BlobEncoding;
use crate::service::Service;

/// Blobs (of at most 4 MiB each) that may wait for the thread.
const MAX_WAITING_BLOBS: usize = 1;

/// A blob as it arrived on the wire.
pub(super) struct ReceivedBlob {
    pub(super) digest: Digest,
    pub(super) size: u64,
    pub(super) wire: Vec<u8>,
    pub(super) packed: BlobEncoding,
}

enum StoreWork {
    Put(ReceivedBlob),
    /// Acknowledged when all work before it is done.
    Settle(SyncSender<()>),
}

/// Stores blobs in the order of arrival and answers each.
pub(super) struct BlobStorer(SyncSender<StoreWork>);

impl BlobStorer {
    /// Starts the thread. It ends with the connection.
    pub(super) fn start(service: Arc<Service>, out: ClientWriter) -> Self {
        let (sender, receiver) = sync_channel(MAX_WAITING_BLOBS);
        std::thread::spawn(move || {
            for work in receiver {
                match work {
                    StoreWork::Settle(done) => drop(done.send(())),
                    StoreWork::Put(ReceivedBlob { digest, size, wire, packed }) => {
                        let answer = match service.put_blob(&digest, size, &wire, packed) {
                            Ok(()) => FromAgent::Stored { digest },
                            Err(refusal) => refusal.into(),
                        };
                        // The reading thread notices a failed writer.
                        let _ = out.send(&answer);
                    }
                }
            }
        });
        Self(sender)
    }

    /// Queues a blob. Blocks while the queue is full.
    pub(super) fn put(&self, blob: ReceivedBlob) {
        let _ = self.0.send(StoreWork::Put(blob));
    }

    /// Waits until all queued blobs are stored.
    pub(super) fn settle(&self) {
        let (done, settled) = sync_channel(1);
        if self.0.send(StoreWork::Settle(done)).is_ok() {
            let _ = settled.recv();
        }
    }
}
