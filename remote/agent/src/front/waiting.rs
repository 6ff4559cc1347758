//! A plan that waits for its blobs, so that it begins with the last of them: on a long link the
//! client's word that all were sent would come a round trip later.
//!
//! Blobs may come on other connections, which are other processes, so the store itself is watched.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rgpu_protocol::{Digest, FromAgent};

use super::jobs::{Jobs, Order};
use super::{Out, client_left};
use crate::blob::piece_sizes;

/// How often the store is looked at while blobs come, and while none does.
const LOOK_EVERY: Duration = Duration::from_millis(1);
const LOOK_SELDOM: Duration = Duration::from_millis(20);

/// A waiting plan. Dropped, it does not begin any more, unless it just has.
pub(super) struct Waiting {
    job: String,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Waiting {
    /// Lets `order` wait for `missing`.
    pub(super) fn begin(jobs: Arc<Jobs>, out: Out, order: Order, missing: &[Digest]) -> Self {
        let (job, stop) = (order.plan.job.clone(), Arc::new(AtomicBool::new(false)));
        let pieces = order.plan.files.iter().flat_map(|file| {
            file.blobs.iter().cloned().zip(piece_sizes(file.size, file.blobs.len()))
        });
        let mut awaited: Vec<(Digest, u64)> =
            pieces.filter(|(digest, _)| missing.contains(digest)).collect();
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            if wait(&jobs, &mut awaited, &stopped) && !client_left() {
                // A failed outbox ends the conversation elsewhere.
                let _ = begin(&jobs, &out, &order);
            }
        });
        Self { job, stop, thread: Some(thread) }
    }

    /// Whether this is the job that waits.
    pub(super) fn is(&self, job: &str) -> bool {
        self.job == job
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Waits until all of them are there; false: it was stopped.
fn wait(jobs: &Jobs, awaited: &mut Vec<(Digest, u64)>, stop: &AtomicBool) -> bool {
    let mut pause = LOOK_EVERY;
    loop {
        let before = awaited.len();
        while let Some((digest, size)) = awaited.last()
            && jobs.service.blobs().is_ok_and(|blobs| blobs.has(digest, *size))
        {
            awaited.pop();
        }
        if stop.load(Ordering::Relaxed) {
            return false;
        }
        if awaited.is_empty() {
            return true;
        }
        pause = if awaited.len() < before { LOOK_EVERY } else { LOOK_SELDOM.min(pause * 2) };
        std::thread::sleep(pause);
    }
}

fn begin(jobs: &Jobs, out: &Out, order: &Order) -> std::io::Result<()> {
    let digests = jobs.submit(order)?;
    if digests.is_empty() {
        return Ok(());
    }
    // One was removed meanwhile.
    out.send(&FromAgent::Missing { job: order.plan.job.clone(), digests, awaited: false })
}
