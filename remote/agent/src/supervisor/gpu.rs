//! Which GPU a job gets, and whether it is free of others' processes. It fails closed: without
//! the lock, or when it cannot be told who else computes there, nothing runs.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rgpu_protocol::plan::{GpuRequest, KnownGpu};
use rgpu_protocol::{EventBody, GpuChoice, Outcome};
use rustix::fs::FlockOperation;

use super::queue::{Queue, QueueError, QueueState, Ticket, valid_uuid};
use super::{EarlyEnd, Supervisor};
use crate::command::ask_unless;
use crate::host::user_name;

/// Names another folder for the locks than the one all users of a host share (for containers that
/// mount one, and for tests).
const FOLDER_VARIABLE: &str = "RGPU_LOCK_DIR";

/// How often the first in the queue looks; those behind look more seldom.
const QUEUE_POLL: Duration = Duration::from_millis(20);

/// How soon the way back to a place in the queue is tried again, when somebody else is looking.
const QUEUE_LOCK_RETRY: Duration = Duration::from_millis(2);

/// How often a change of the place or the holder is told: holders can write what they like.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// A look takes milliseconds: who keeps others from looking for so long is told as the holder.
const BUSY_LIMIT: Duration = Duration::from_secs(5);

/// How long the list of GPU processes may take.
const PROCESSES_WAIT: Duration = Duration::from_secs(20);

/// The GPUs held by this job, until dropped.
#[derive(Debug)]
pub(crate) struct GpuLock(Vec<(String, File)>);

impl Drop for GpuLock {
    fn drop(&mut self) {
        for (_, lock) in &self.0 {
            // The guard has the same open files: closing ours alone would not give them back.
            let _ = rustix::fs::flock(lock, FlockOperation::Unlock);
        }
    }
}

impl GpuLock {
    /// The open lock files.
    fn files(&self) -> Vec<BorrowedFd<'_>> {
        self.0.iter().map(|(_, lock)| lock.as_fd()).collect()
    }

    /// Their UUIDs, as `CUDA_VISIBLE_DEVICES` wants them.
    pub(crate) fn visible(&self) -> String {
        self.0.iter().map(|(uuid, _)| uuid.as_str()).collect::<Vec<_>>().join(",")
    }
}

fn no_gpu(text: String) -> EarlyEnd {
    EarlyEnd::Outcome(Outcome::NoGpu { text })
}

impl From<QueueError> for EarlyEnd {
    fn from(error: QueueError) -> Self {
        let (code, text) = ("gpu_lock".into(), error.to_string());
        Self::Outcome(Outcome::HostError { code, text })
    }
}

impl Supervisor {
    /// Waits for a GPU that `request` allows, locks it and makes sure that nobody else is on it.
    pub(crate) fn lock_gpu(&mut self, request: &GpuRequest) -> Result<(), EarlyEnd> {
        let queue = Queue::open(std::env::var_os(FOLDER_VARIABLE).map(PathBuf::from))?;
        let start = Instant::now();
        let mut wanted = choose(request)?;
        let count = usize::try_from(request.count).unwrap_or(usize::MAX).max(1);
        if wanted.len() < count {
            return Err(no_gpu(format!("{count} GPUs are wanted, {} would do", wanted.len())));
        }
        let mut busy = Vec::new();
        let mut ticket = None;
        loop {
            let held = self.queue_up(&queue, &mut ticket, &wanted, count, start)?;
            let mut free = true;
            for (uuid, _) in &held {
                let foreign = if request.share { Vec::new() } else { self.foreign(request, uuid)? };
                if !foreign.is_empty() {
                    free = false;
                    busy.push(format!("GPU {uuid}: {}", foreign.join(", ")));
                    wanted.retain(|w| w != uuid);
                }
            }
            if free {
                return self.hold(request, held);
            }
            if wanted.len() < count {
                let text = format!("processes of others compute there: {}", busy.join("; "));
                return Err(no_gpu(text));
            }
            // Still holding them: the next in the queue should not find out by itself meanwhile.
            if let Some(ticket) = &mut ticket {
                while !queue.again(ticket, &wanted)? {
                    self.wait_in_queue(start, QUEUE_LOCK_RETRY)?;
                }
            }
        }
    }

    fn hold(&mut self, request: &GpuRequest, held: Vec<(String, File)>) -> Result<(), EarlyEnd> {
        for (uuid, _) in &held {
            let known = request.known.iter().find(|g| g.uuid == *uuid);
            let (index, name) = known.map_or((0, String::new()), |g| (g.index, g.name.clone()));
            self.emit(EventBody::GpuLocked { uuid: uuid.clone(), index, name })?;
        }
        let lock = GpuLock(held);
        // Held by the guard too: when this process is killed, its programs still compute for the
        // moment until the guard has ended them, and nobody else may have the GPU so long.
        self.guard_with(lock.files())?;
        self.gpu = Some(lock);
        Ok(())
    }

    /// Stands in the queue until `count` of `wanted` are ours.
    fn queue_up(
        &mut self,
        queue: &Queue,
        ticket: &mut Option<Ticket>,
        wanted: &[String],
        count: usize,
        start: Instant,
    ) -> Result<Vec<(String, File)>, EarlyEnd> {
        let who = self.who();
        let mut told = (0, String::new());
        let mut told_at = None;
        let mut last_look = Instant::now();
        loop {
            if ticket.is_none() {
                *ticket = queue.enter(wanted, count, &who)?;
            }
            let look = ticket.as_ref().map_or(Ok(QueueState::Busy), |ticket| queue.look(ticket))?;
            let now = match look {
                QueueState::Ours(held) => return Ok(held),
                QueueState::Wait { place, holder } => {
                    last_look = Instant::now();
                    (place, holder)
                }
                QueueState::Busy if last_look.elapsed() < BUSY_LIMIT => (0, String::new()),
                QueueState::Busy => {
                    (0, format!("whoever locks `{}`", queue.guard_path().display()))
                }
            };
            let pause = QUEUE_POLL * now.0.clamp(1, 25);
            let is_due = told_at.is_none_or(|at: Instant| at.elapsed() >= TELL_EVERY);
            // An empty holder says nothing new.
            if !now.1.is_empty() && told != now && is_due {
                let (place, holder) = now.clone();
                (told, told_at) = (now, Some(Instant::now()));
                self.emit(EventBody::Queued { place, holder })?;
            }
            self.wait_in_queue(start, pause)?;
        }
    }

    /// Waits for `pause`, or until the job is cancelled or its time in the queue is over.
    fn wait_in_queue(&mut self, start: Instant, pause: Duration) -> Result<(), EarlyEnd> {
        let left = Duration::from_secs(self.plan.limits.queue_s).saturating_sub(start.elapsed());
        if left.is_zero() {
            return Err(EarlyEnd::Outcome(Outcome::QueueTimeout));
        }
        self.hub.wait(&[], pause.min(left))?;
        self.check_stop()
    }

    /// Processes on a GPU, in words. This job has none yet, so all are others'.
    fn foreign(&mut self, request: &GpuRequest, uuid: &str) -> Result<Vec<String>, EarlyEnd> {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let listing = scope.spawn(|| foreign(request, uuid, &stop));
            while !listing.is_finished() {
                let waited = self.hub.wait(&[], QUEUE_LOCK_RETRY).map_err(EarlyEnd::from);
                if let Err(halt) = waited.and_then(|_| self.check_stop()) {
                    stop.store(true, Ordering::Relaxed);
                    return Err(halt);
                }
            }
            listing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Who holds a GPU, for those who wait.
    fn who(&self) -> String {
        let user = user_name(rustix::process::geteuid().as_raw());
        format!("{user}: {} ({})", self.plan.title, self.plan.job)
    }
}

/// UUIDs of the GPUs that the request allows, in the driver's order.
fn choose(request: &GpuRequest) -> Result<Vec<String>, EarlyEnd> {
    let known = || request.known.iter();
    let fits: Vec<&KnownGpu> = match &request.choice {
        GpuChoice::Any => known().collect(),
        GpuChoice::Index(index) => known().filter(|g| g.index == *index).collect(),
        GpuChoice::Uuid(start) => {
            let fits: Vec<_> = known().filter(|g| g.uuid.starts_with(start.as_str())).collect();
            match fits.iter().find(|g| g.uuid == *start) {
                Some(exact) => vec![*exact],
                None if fits.len() > 1 => {
                    return Err(no_gpu(format!("several GPUs begin with `{start}`")));
                }
                None => fits,
            }
        }
        GpuChoice::Name(part) => {
            let part = part.to_lowercase();
            known().filter(|g| g.name.to_lowercase().contains(&part)).collect()
        }
    };
    if fits.is_empty() {
        let list: Vec<String> =
            known().map(|g| format!("{} {} ({})", g.index, g.name, g.uuid)).collect();
        let list = if list.is_empty() { "none".into() } else { list.join(", ") };
        let asked = match &request.choice {
            GpuChoice::Any => "no GPU".to_owned(),
            GpuChoice::Index(index) => format!("no GPU {index}"),
            GpuChoice::Uuid(text) | GpuChoice::Name(text) => format!("no GPU `{text}`"),
        };
        return Err(no_gpu(format!("{asked} on this host; there: {list}")));
    }
    match fits.iter().find(|g| !valid_uuid(&g.uuid)) {
        Some(odd) => Err(no_gpu(format!("`{}` is no GPU's UUID", odd.uuid.escape_debug()))),
        None => Ok(fits.iter().map(|g| g.uuid.clone()).collect()),
    }
}

/// Processes on a GPU, in words; asks no longer once `stop` is set.
fn foreign(request: &GpuRequest, uuid: &str, stop: &AtomicBool) -> Result<Vec<String>, EarlyEnd> {
    if request.processes.is_empty() {
        return Ok(Vec::new());
    }
    let unknown = |why: String| no_gpu(format!("cannot tell who computes on GPU {uuid}: {why}"));
    let answer = ask_unless(&request.processes, &BTreeMap::new(), 1 << 20, PROCESSES_WAIT, stop)
        .map_err(|e| unknown(format!("`{}`: {e}", request.processes[0])))?;
    let text = String::from_utf8_lossy(&answer.stdout);
    if answer.timed_out || answer.exit != Some(0) {
        let words = text.lines().last().unwrap_or("no answer").to_owned();
        return Err(unknown(words));
    }
    Ok(text.lines().filter_map(|line| process_words(line, uuid)).collect())
}

/// A line `uuid, pid, name, memory` that names this GPU.
fn process_words(line: &str, uuid: &str) -> Option<String> {
    let mut fields = line.split(',').map(str::trim);
    if fields.next() != Some(uuid) {
        return None;
    }
    let pid = fields.next().unwrap_or("?");
    let name = fields.next().unwrap_or("?");
    let owner = std::fs::metadata(format!("/proc/{pid}"));
    let owner = owner.map(|m| user_name(std::os::unix::fs::MetadataExt::uid(&m)));
    let owner = owner.map_or(String::new(), |user| format!(" of {user}"));
    Some(format!("`{name}` (process {pid}{owner})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(choice: GpuChoice) -> GpuRequest {
        let gpu = |index: u32, uuid: &str, name: &str| KnownGpu {
            index,
            uuid: uuid.into(),
            name: name.into(),
        };
        let known = vec![gpu(0, "GPU-aa1", "NVIDIA H200"), gpu(1, "GPU-ab2", "NVIDIA L4")];
        GpuRequest { choice, count: 1, share: false, known, processes: Vec::new() }
    }

    #[test]
    fn a_gpu_is_chosen_by_index_uuid_prefix_or_part_of_its_name() {
        let pick = |choice| choose(&request(choice)).unwrap();
        assert_eq!(pick(GpuChoice::Any), ["GPU-aa1", "GPU-ab2"]);
        assert_eq!(pick(GpuChoice::Index(1)), ["GPU-ab2"]);
        assert_eq!(pick(GpuChoice::Uuid("GPU-aa".into())), ["GPU-aa1"]);
        assert_eq!(pick(GpuChoice::Name("h200".into())), ["GPU-aa1"]);
        assert!(choose(&request(GpuChoice::Uuid("GPU-a".into()))).is_err());
        assert!(choose(&request(GpuChoice::Index(7))).is_err());
    }

    #[test]
    fn when_the_list_of_processes_fails_nothing_runs() {
        let mut request = request(GpuChoice::Any);
        request.processes = vec!["false".into()];
        let foreign = |request: &_, uuid: &_| foreign(request, uuid, &AtomicBool::new(false));
        assert!(foreign(&request, "GPU-aa1").is_err());
        request.processes = ["echo", "GPU-aa1, 1, python, 10 MiB"].map(String::from).to_vec();
        assert!(foreign(&request, "GPU-aa1").unwrap()[0].starts_with("`python` (process 1"));
        assert!(foreign(&request, "GPU-ab2").unwrap().is_empty());
    }
}
