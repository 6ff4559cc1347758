//! A plan that waits for its blobs, so that it begins with the last of them: on a long link the
//! client's word that all were sent would come a round trip later.
//!
//! Blobs may come on other connections, which are other processes, so the store itself is watched.
//! What has come is put into the job's inputs at once.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rgpu_protocol::plan::InputFile;
use rgpu_protocol::{Digest, FromAgent, Plan};

use super::jobs::{Jobs, SubmittedPlan};
use super::{ClientWriter, client_left};
use crate::job::{BlobTargets, FolderDraft};

/// How often the store is looked at while blobs come, and while none does.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
const IDLE_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// How many of those that come next are looked for.
const POLLED_BLOBS: usize = 32;

/// A waiting plan. Dropped, it does not begin any more, unless it just has.
pub(super) struct WaitingPlan {
    job: String,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl WaitingPlan {
    /// Lets `order` wait for `missing`.
    pub(super) fn begin(
        jobs: Arc<Jobs>,
        out: ClientWriter,
        order: SubmittedPlan,
        missing: &[Digest],
    ) -> Self {
        let (job, stop) = (order.plan.job.clone(), Arc::new(AtomicBool::new(false)));
        let missing: HashSet<&Digest> = missing.iter().collect();
        let pieces = order.plan.files.iter().flat_map(InputFile::pieces);
        let mut awaited: Vec<(Digest, u64)> = pieces
            .filter(|piece| missing.contains(piece.digest))
            .map(|piece| (piece.digest.clone(), piece.len))
            .collect();
        // They come in this order; the last is looked for first.
        awaited.sort_by(|a, b| b.cmp(a));
        awaited.dedup();
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut draft = jobs.service.draft();
            if wait(&jobs, &order.plan, &mut awaited, draft.as_mut(), &stopped) && !client_left() {
                // A failed outbox ends the conversation elsewhere.
                let _ = begin(&jobs, &out, &order, draft);
            }
        });
        Self { job, stop, thread: Some(thread) }
    }

    /// Whether this is the job that waits.
    pub(super) fn is(&self, job: &str) -> bool {
        self.job == job
    }
}

impl Drop for WaitingPlan {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Waits until all of them are there, and fills them in; false: it was stopped.
fn wait(
    jobs: &Jobs,
    plan: &Plan,
    awaited: &mut Vec<(Digest, u64)>,
    mut draft: Option<&mut FolderDraft>,
    stop: &AtomicBool,
) -> bool {
    let Ok(blobs) = jobs.service.blobs() else { return false };
    let places = BlobTargets::of(plan);
    let mut pause = POLL_INTERVAL;
    loop {
        let before = awaited.len();
        // Several streams send at the same time, each in order.
        for i in (before.saturating_sub(POLLED_BLOBS)..before).rev() {
            let (digest, size) = &awaited[i];
            if blobs.has(digest, *size) {
                let (digest, _) = awaited.remove(i);
                if let Some(draft) = &mut draft {
                    draft.fill(&places, &digest, blobs);
                }
            }
        }
        if stop.load(Ordering::Relaxed) {
            return false;
        }
        if awaited.is_empty() {
            return true;
        }
        if awaited.len() < before {
            pause = POLL_INTERVAL;
            continue;
        }
        std::thread::sleep(pause);
        pause = IDLE_POLL_INTERVAL.min(pause * 2);
    }
}

fn begin(
    jobs: &Jobs,
    out: &ClientWriter,
    order: &SubmittedPlan,
    draft: Option<FolderDraft>,
) -> std::io::Result<()> {
    let digests = jobs.submit(order, draft)?;
    if digests.is_empty() {
        return Ok(());
    }
    // One was removed meanwhile.
    out.send(&FromAgent::Missing { job: order.plan.job.clone(), digests, awaited: false })
}
