//! Lets a plan wait for its blobs, and starts it when the last one is stored. To wait for the
//! client's message that all were sent would cost a round trip.
//!
//! Blobs may arrive on other connections, which are other processes, so this polls the blob store.
//! It copies blobs into the job's inputs as they arrive.

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rgpu_protocol::plan::InputFile;
use rgpu_protocol::{Digest, FromAgent, Plan};

use super::jobs::{Jobs, SubmittedPlan};
use super::{ClientWriter, client_left};
use crate::job::{BlobTargets, FolderDraft};

/// The first pause after a poll that found nothing, and the longest: it doubles from poll to poll.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
const IDLE_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// How many of the next expected blobs each poll looks for.
const POLLED_BLOBS: usize = 32;

/// A waiting plan. Dropping it stops the wait; a job that was already submitted continues.
pub(super) struct WaitingPlan {
    job: String,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl WaitingPlan {
    /// Starts to wait for the blobs in `missing`.
    pub(super) fn begin(
        jobs: Arc<Jobs>,
        out: ClientWriter,
        client: Arc<OwnedFd>,
        submitted: SubmittedPlan,
        missing: &[Digest],
    ) -> Self {
        let (job, stop) = (submitted.plan.job.clone(), Arc::new(AtomicBool::new(false)));
        let missing: HashSet<&Digest> = missing.iter().collect();
        let pieces = submitted.plan.files.iter().flat_map(InputFile::pieces);
        let mut awaited: Vec<(Digest, u64)> = pieces
            .filter(|piece| missing.contains(piece.digest))
            .map(|piece| (piece.digest.clone(), piece.len))
            .collect();
        // Clients send blobs in ascending order of their digests. The next one is at the end.
        awaited.sort_by(|a, b| b.cmp(a));
        awaited.dedup();
        let stop_flag = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut draft = jobs.service.draft();
            if wait(&jobs, &submitted.plan, &mut awaited, draft.as_mut(), &stop_flag)
                && !client_left(&client)
            {
                // The reading thread notices a failed writer.
                let _ = begin(&jobs, &out, &submitted, draft);
            }
        });
        Self { job, stop, thread: Some(thread) }
    }

    /// Returns whether `job` is the waiting job.
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

/// Waits until all blobs are there and copies them into the job's hidden folder. Returns false
/// if it was stopped, or if there is no blob store.
fn wait(
    jobs: &Jobs,
    plan: &Plan,
    awaited: &mut Vec<(Digest, u64)>,
    mut draft: Option<&mut FolderDraft>,
    stop: &AtomicBool,
) -> bool {
    let Ok(blobs) = jobs.service.blobs() else { return false };
    let targets = BlobTargets::new(plan);
    let mut delay = POLL_INTERVAL;
    loop {
        let before = awaited.len();
        // Several streams send at the same time, each in order.
        for i in (before.saturating_sub(POLLED_BLOBS)..before).rev() {
            let (digest, size) = &awaited[i];
            if blobs.has(digest, *size) {
                let (digest, _) = awaited.remove(i);
                if let Some(draft) = &mut draft {
                    draft.fill(&targets, &digest, blobs);
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
            delay = POLL_INTERVAL;
            continue;
        }
        std::thread::sleep(delay);
        delay = IDLE_POLL_INTERVAL.min(delay * 2);
    }
}

fn begin(
    jobs: &Jobs,
    out: &ClientWriter,
    submitted: &SubmittedPlan,
    draft: Option<FolderDraft>,
) -> std::io::Result<()> {
    let digests = jobs.submit(submitted, draft)?;
    if digests.is_empty() {
        return Ok(());
    }
    // A blob was removed meanwhile.
    out.send(&FromAgent::Missing { job: submitted.plan.job.clone(), digests, awaited: false })
}
