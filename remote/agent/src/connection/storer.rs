//! Storing blobs: unpacked, hashed and written in a thread of its own while the next one is read.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

use rgpu_protocol::{Digest, FromAgent};

use super::ClientWriter;
use crate::blob::Packed;
use crate::service::Service;

/// Blobs that have come and wait; each is 4 MiB at most.
const MAX_WAITING_BLOBS: usize = 1;

/// A blob as it came over the wire.
pub(super) struct ReceivedBlob {
    pub(super) digest: Digest,
    pub(super) size: u64,
    pub(super) wire: Vec<u8>,
    pub(super) packed: Packed,
}

enum StoreWork {
    Put(ReceivedBlob),
    /// Answered once everything before it is done.
    Settle(SyncSender<()>),
}

/// Stores blobs in the order in which they came, and answers each.
pub(super) struct BlobStorer(SyncSender<StoreWork>);

impl BlobStorer {
    /// Starts the thread; it ends with the conversation.
    pub(super) fn start(service: Arc<Service>, out: ClientWriter) -> Self {
        let (ask, asked) = sync_channel(MAX_WAITING_BLOBS);
        std::thread::spawn(move || {
            for work in asked {
                match work {
                    StoreWork::Settle(done) => drop(done.send(())),
                    StoreWork::Put(ReceivedBlob { digest, size, wire, packed }) => {
                        let answer = match service.put_blob(&digest, size, &wire, packed) {
                            Ok(()) => FromAgent::Stored { digest },
                            Err(refusal) => refusal.into(),
                        };
                        // When the outbox has failed, the conversation ends elsewhere.
                        let _ = out.send(&answer);
                    }
                }
            }
        });
        Self(ask)
    }

    /// Hands a blob over; waits while others wait.
    pub(super) fn put(&self, arrived: ReceivedBlob) {
        let _ = self.0.send(StoreWork::Put(arrived));
    }

    /// Waits until all blobs that were handed over are stored.
    pub(super) fn settle(&self) {
        let (done, settled) = sync_channel(1);
        if self.0.send(StoreWork::Settle(done)).is_ok() {
            let _ = settled.recv();
        }
    }
}
