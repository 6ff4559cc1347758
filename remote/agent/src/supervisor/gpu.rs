//! Locks a GPU for a job and checks that no process runs on it, unless the plan allows to share it.
//! If that check fails, nothing runs.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rgpu_protocol::plan::{GpuRequest, KnownGpu};
use rgpu_protocol::{EventBody, GpuChoice, Outcome};
use rustix::fs::FlockOperation;

use super::gpu_queue::{GpuQueue, GpuQueueError, GpuQueueState, Ticket, valid_uuid};
use super::{EarlyEnd, Supervisor};
use crate::command::ask_unless;
use crate::gpu_setting;
use crate::host::user_name;

/// Overrides the lock folder that all users of a host share (for containers that mount one, and for
/// tests).
const FOLDER_VARIABLE: &str = "RGPU_LOCK_DIR";

/// How often the first job in the queue looks; the others look less often.
const QUEUE_POLL: Duration = Duration::from_millis(20);

/// Pause before the next attempt to enter the queue again while another job looks at it.
const QUEUE_LOCK_RETRY: Duration = Duration::from_millis(2);

/// Shortest time between two queue events: holders can change their description at will.
const MIN_EVENT_INTERVAL: Duration = Duration::from_secs(1);

/// A look takes milliseconds. A job that locks the queue longer than this is reported as the
/// holder.
const BUSY_LIMIT: Duration = Duration::from_secs(5);

/// How long to wait for processes that are exiting: the driver needs seconds to free the memory of
/// some. They may be those of the job before.
const EXIT_WAIT: Duration = Duration::from_secs(15);

/// Pause before the next look at processes that are exiting.
const EXIT_POLL: Duration = Duration::from_millis(200);

/// Time limit of the program that lists GPU processes.
const PROCESSES_WAIT: Duration = Duration::from_secs(20);

/// The GPUs locked by this job, until dropped.
#[derive(Debug)]
pub(crate) struct GpuLock(Vec<(String, File)>);

impl Drop for GpuLock {
    fn drop(&mut self) {
        for (_, lock) in &self.0 {
            // The watchdog shares these open files, so closing ours would not release the locks.
            let _ = rustix::fs::flock(lock, FlockOperation::Unlock);
        }
    }
}

impl GpuLock {
    fn files(&self) -> Vec<BorrowedFd<'_>> {
        self.0.iter().map(|(_, lock)| lock.as_fd()).collect()
    }

    fn uuids(&self) -> Vec<&str> {
        self.0.iter().map(|(uuid, _)| uuid.as_str()).collect()
    }

    /// Returns the UUIDs for `CUDA_VISIBLE_DEVICES`.
    pub(crate) fn visible(&self) -> String {
        self.uuids().join(",")
    }
}

fn no_gpu(text: String) -> EarlyEnd {
    EarlyEnd::Outcome(Outcome::NoGpu { text })
}

impl From<GpuQueueError> for EarlyEnd {
    fn from(error: GpuQueueError) -> Self {
        let (code, text) = ("gpu_lock".into(), error.to_string());
        Self::Outcome(Outcome::HostError { code, text })
    }
}

impl Supervisor {
    /// Waits for GPUs that `request` allows, locks them, and checks that no other user's processes
    /// run there.
    pub(crate) fn lock_gpu(&mut self, request: &GpuRequest) -> Result<(), EarlyEnd> {
        let queue = GpuQueue::open(std::env::var_os(FOLDER_VARIABLE).map(PathBuf::from))?;
        let start = Instant::now();
        let mut candidates = choose(request)?;
        let count = usize::try_from(request.count).unwrap_or(usize::MAX).max(1);
        if candidates.len() < count {
            return Err(no_gpu(format!(
                "{count} GPUs are requested, but only {} match",
                candidates.len()
            )));
        }
        let mut busy = Vec::new();
        let mut ticket = None;
        loop {
            let held = self.wait_for_gpus(&queue, &mut ticket, &candidates, count, start)?;
            let mut free = true;
            for (uuid, _) in &held {
                let foreign_processes =
                    if request.share { Vec::new() } else { self.foreign_processes(request, uuid)? };
                if !foreign_processes.is_empty() {
                    free = false;
                    busy.push(format!("GPU {uuid}: {}", foreign_processes.join(", ")));
                    candidates.retain(|w| w != uuid);
                }
            }
            if free {
                return self.take_gpus(request, held);
            }
            if candidates.len() < count {
                let text = format!("other processes use it: {}", busy.join("; "));
                return Err(no_gpu(text));
            }
            // Rejoin while we still hold them, so that the next job does not take the same busy
            // GPUs.
            if let Some(ticket) = &mut ticket {
                while !queue.requeue(ticket, &candidates)? {
                    self.wait_in_queue(start, QUEUE_LOCK_RETRY)?;
                }
            }
        }
    }

    fn take_gpus(
        &mut self,
        request: &GpuRequest,
        held: Vec<(String, File)>,
    ) -> Result<(), EarlyEnd> {
        for (uuid, _) in &held {
            let known = request.known.iter().find(|g| g.uuid == *uuid);
            let (index, name) = known.map_or((0, String::new()), |g| (g.index, g.name.clone()));
            self.emit(EventBody::GpuLocked { uuid: uuid.clone(), index, name })?;
        }
        let lock = GpuLock(held);
        // The watchdog holds the locks too: if this process is killed, its programs still use the
        // GPU until the watchdog has ended them.
        self.replace_watchdog(lock.files())?;
        if let Err(failure) = gpu_setting::undo_left(self.folder.root(), &lock.uuids()) {
            self.warn("gpu_not_restored", gpu_setting::left_not_restored(&failure))?;
        }
        let lock = self.gpu.insert(lock);
        match &request.setting {
            Some(setting) => gpu_setting::change(&self.folder, setting, &lock.uuids()),
            None => Ok(()),
        }
    }

    /// Waits in the queue until `count` of `candidates` are ours.
    fn wait_for_gpus(
        &mut self,
        queue: &GpuQueue,
        ticket: &mut Option<Ticket>,
        candidates: &[String],
        count: usize,
        start: Instant,
    ) -> Result<Vec<(String, File)>, EarlyEnd> {
        let description = self.description();
        let mut reported = (0, String::new());
        let mut reported_at = None;
        let mut last_look = Instant::now();
        loop {
            if ticket.is_none() {
                *ticket = queue.enter(candidates, count, &description)?;
            }
            let look = ticket
                .as_ref()
                .map_or(Ok(GpuQueueState::Busy), |ticket| queue.try_lock_gpus(ticket))?;
            let now = match look {
                GpuQueueState::Ours(held) => return Ok(held),
                GpuQueueState::Wait { position, holder } => {
                    last_look = Instant::now();
                    (position, holder)
                }
                GpuQueueState::Busy if last_look.elapsed() < BUSY_LIMIT => (0, String::new()),
                GpuQueueState::Busy => {
                    (0, format!("the process that locks `{}`", queue.queue_lock_path().display()))
                }
            };
            let pause = QUEUE_POLL * now.0.clamp(1, 25);
            let is_due = reported_at.is_none_or(|at: Instant| at.elapsed() >= MIN_EVENT_INTERVAL);
            // A holder without a name is not worth reporting.
            if !now.1.is_empty() && reported != now && is_due {
                let (position, holder) = now.clone();
                (reported, reported_at) = (now, Some(Instant::now()));
                self.emit(EventBody::Queued { position, holder })?;
            }
            self.wait_in_queue(start, pause)?;
        }
    }

    /// Waits for `pause`. Fails if the job is cancelled or its time in the queue is over.
    fn wait_in_queue(&mut self, start: Instant, pause: Duration) -> Result<(), EarlyEnd> {
        let left = Duration::from_secs(self.plan.limits.queue_s).saturating_sub(start.elapsed());
        if left.is_zero() {
            return Err(EarlyEnd::Outcome(Outcome::QueueTimeout));
        }
        self.clients.wait(&[], pause.min(left))?;
        self.check_stop()
    }

    /// Describes the processes on a GPU, after a wait for those that are exiting. This job has none
    /// yet, so all belong to others.
    fn foreign_processes(
        &mut self,
        request: &GpuRequest,
        uuid: &str,
    ) -> Result<Vec<String>, EarlyEnd> {
        let start = Instant::now();
        loop {
            let found = self.list_processes(request, uuid)?;
            let any_stays = found.iter().any(|process| !process.is_exiting);
            if any_stays || found.is_empty() || start.elapsed() >= EXIT_WAIT {
                return Ok(found.into_iter().map(|process| process.description).collect());
            }
            self.clients.wait(&[], EXIT_POLL)?;
            self.check_stop()?;
        }
    }

    fn list_processes(
        &mut self,
        request: &GpuRequest,
        uuid: &str,
    ) -> Result<Vec<GpuProcess>, EarlyEnd> {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let listing = scope.spawn(|| list_processes(request, uuid, &stop));
            while !listing.is_finished() {
                let waited = self.clients.wait(&[], QUEUE_LOCK_RETRY).map_err(EarlyEnd::from);
                if let Err(early_end) = waited.and_then(|_| self.check_stop()) {
                    stop.store(true, Ordering::Relaxed);
                    return Err(early_end);
                }
            }
            listing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Describes this job, for those who wait for its GPU.
    fn description(&self) -> String {
        let user = user_name(rustix::process::geteuid().as_raw());
        format!("{user}: {} ({})", self.plan.title, self.plan.job)
    }
}

/// Returns the GPUs that Slurm has granted to the job of Slurm that this process is in, as indices
/// and UUIDs. A process may see more GPUs than that, and others have been granted those.
fn granted_by_slurm() -> Option<String> {
    std::env::var_os("SLURM_JOB_ID")?;
    std::env::var("CUDA_VISIBLE_DEVICES").ok()
}

fn is_granted(gpu: &KnownGpu, granted: Option<&str>) -> bool {
    let named = |word: &str| match word.trim().parse::<u32>() {
        Ok(index) => gpu.index == index,
        Err(_) => word.len() > 4 && gpu.uuid.starts_with(word.trim()),
    };
    granted.is_none_or(|granted| granted.split(',').any(named))
}

/// Returns the UUIDs of the GPUs that the request allows, in the driver's order.
fn choose(request: &GpuRequest) -> Result<Vec<String>, EarlyEnd> {
    let granted = granted_by_slurm();
    let known = || request.known.iter().filter(|gpu| is_granted(gpu, granted.as_deref()));
    let mut matching: Vec<&KnownGpu> =
        known().filter(|g| request.choice.allows(g.index, &g.uuid, &g.name)).collect();
    if let GpuChoice::Uuid(start) = &request.choice {
        match matching.iter().find(|g| g.uuid == *start) {
            Some(exact) => matching = vec![*exact],
            None if matching.len() > 1 => {
                return Err(no_gpu(format!("several GPUs have UUIDs that begin with `{start}`")));
            }
            None => {}
        }
    }
    if matching.is_empty() {
        let list: Vec<String> =
            known().map(|g| format!("{} {} ({})", g.index, g.name, g.uuid)).collect();
        let list = if list.is_empty() { "none".into() } else { list.join(", ") };
        let request_text = match &request.choice {
            GpuChoice::Any => "no GPU".to_owned(),
            GpuChoice::Index(index) => format!("no GPU {index}"),
            GpuChoice::Uuid(text) | GpuChoice::Name(text) => format!("no GPU `{text}`"),
        };
        return Err(no_gpu(format!("{request_text} on this host; it has {list}")));
    }
    match matching.iter().find(|g| !valid_uuid(&g.uuid)) {
        Some(invalid) => {
            Err(no_gpu(format!("`{}` is not a GPU's UUID", invalid.uuid.escape_debug())))
        }
        None => Ok(matching.iter().map(|g| g.uuid.clone()).collect()),
    }
}

/// A process that has a context on a GPU.
struct GpuProcess {
    description: String,
    /// Its memory is gone already; only the driver has not let go of it.
    is_exiting: bool,
}

/// Lists the processes on a GPU. Setting `stop` ends the listing.
fn list_processes(
    request: &GpuRequest,
    uuid: &str,
    stop: &AtomicBool,
) -> Result<Vec<GpuProcess>, EarlyEnd> {
    if request.processes.is_empty() {
        return Ok(Vec::new());
    }
    let unknown = |why: String| no_gpu(format!("cannot list the processes on GPU {uuid}: {why}"));
    let answer = ask_unless(&request.processes, &BTreeMap::new(), 1 << 20, PROCESSES_WAIT, stop)
        .map_err(|e| unknown(format!("`{}`: {e}", request.processes[0])))?;
    let text = String::from_utf8_lossy(&answer.stdout);
    if answer.timed_out || answer.exit != Some(0) {
        let last_line = text.lines().last().unwrap_or("no answer").to_owned();
        return Err(unknown(last_line));
    }
    Ok(text.lines().filter_map(|line| process_in(line, uuid)).collect())
}

/// The process in a line `uuid, pid, name, memory`; `None` if it is on another GPU.
fn process_in(line: &str, uuid: &str) -> Option<GpuProcess> {
    let mut fields = line.split(',').map(str::trim);
    if fields.next() != Some(uuid) {
        return None;
    }
    let pid = fields.next().unwrap_or("?");
    let name = fields.next().unwrap_or("?");
    let owner = std::fs::metadata(format!("/proc/{pid}"));
    let owner = owner.map(|m| user_name(std::os::unix::fs::MetadataExt::uid(&m)));
    let owner = owner.map_or(String::new(), |user| format!(" of {user}"));
    // A process that exits loses its memory first, and its command line is empty from then on.
    let command_line = std::fs::read(format!("/proc/{pid}/cmdline"));
    Some(GpuProcess {
        description: format!("`{name}` (process {pid}{owner})"),
        is_exiting: command_line.is_ok_and(|line| line.is_empty()),
    })
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
        GpuRequest { choice, count: 1, share: false, known, processes: Vec::new(), setting: None }
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
    fn only_gpus_that_slurm_has_granted_are_taken() {
        let granted = |list: Option<&str>| {
            let known = request(GpuChoice::Any).known;
            known.iter().filter(|gpu| is_granted(gpu, list)).count()
        };
        for (list, count) in [
            (None, 2),
            (Some("1"), 1),
            (Some("0,1"), 2),
            (Some("GPU-ab2"), 1),
            (Some("NoDevFiles"), 0),
            (Some(""), 0),
        ] {
            assert_eq!(granted(list), count, "{list:?}");
        }
    }

    #[test]
    fn when_the_list_of_processes_fails_nothing_runs() {
        let mut request = request(GpuChoice::Any);
        request.processes = vec!["false".into()];
        let listed = |request: &_, uuid: &_| list_processes(request, uuid, &AtomicBool::new(false));
        assert!(listed(&request, "GPU-aa1").is_err());
        request.processes = ["echo", "GPU-aa1, 1, python, 10 MiB"].map(String::from).to_vec();
        let found = listed(&request, "GPU-aa1").unwrap();
        assert!(found[0].description.starts_with("`python` (process 1"));
        assert!(listed(&request, "GPU-ab2").unwrap().is_empty());
    }

    #[test]
    fn a_process_is_exiting_when_its_memory_is_gone() {
        let is_exiting = |pid: u32| {
            process_in(&format!("GPU-aa1, {pid}, [No data], 10 MiB"), "GPU-aa1").unwrap().is_exiting
        };
        assert!(!is_exiting(std::process::id()));
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        // Nobody has waited for it, so it stays in the list of processes.
        let start = Instant::now();
        while !is_exiting(ended.id()) && start.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(is_exiting(ended.id()));
        ended.wait().unwrap();
    }
}
