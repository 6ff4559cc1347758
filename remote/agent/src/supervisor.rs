//! The supervisor of one job, in a process of its own that outlives the connection.
//!
//! A connection starts it with the job's listening socket as standard input and the job's locked
//! file as standard output. It leaves the session, adopts all descendants of its programs, and
//! writes the event log. After the terminal event it only removes old jobs that exceed the quota.

mod artifacts;
mod capture;
mod clients;
mod environment;
mod gpu;
mod gpu_queue;
mod hang;
mod relay;
mod rung;
mod rung_verdict;
mod step;
mod supervisor_log;
mod watchdog;

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{DirBuilder, File};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rgpu_protocol::plan::OnFailure;
use rgpu_protocol::{EventBody, Outcome, Plan, Stream};
use rustix::process::getpid;

use crate::blob::Blobs;
use crate::host_fault::{HostFault, IoContext};
use crate::job::{JobFolder, remove_tree};
use crate::journal::Journal;
use crate::{gpu_setting, hold, process, quota};

pub(crate) use environment::{find_on_path, is_program, marker};

pub(crate) use artifacts::left_behind;

use artifacts::AnnouncedFiles;
pub(crate) use relay::facts;
pub use relay::relay;
pub use watchdog::run_watchdog;

use clients::{ClientSet, StopReason};
use gpu::GpuLock;
use step::StepResult;
use watchdog::{WATCHDOG_AFTER, WatchdogProcess};

/// How long the client may take to send the secrets after its plan.
const SECRETS_WAIT: Duration = Duration::from_secs(30);

/// Why a job ends before its last step.
#[derive(Debug)]
pub(crate) enum EarlyEnd {
    Stop(StopReason),
    Fault(HostFault),
    Outcome(Outcome),
}

impl From<HostFault> for EarlyEnd {
    fn from(fault: HostFault) -> Self {
        Self::Fault(fault)
    }
}

impl EarlyEnd {
    fn outcome(self) -> Outcome {
        match self {
            Self::Stop(StopReason::Cancelled) => Outcome::Cancelled,
            Self::Fault(fault) => fault.outcome(),
            Self::Outcome(outcome) => outcome,
        }
    }
}

/// Carries out the job in `folder`, in a process that was started for it.
///
/// # Errors
/// The event log cannot be written. The next client of the job reports that.
pub fn run(folder: &Path) -> Result<(), HostFault> {
    supervisor_log::run_logged(folder, || supervise(folder.to_owned()))
}

fn supervise(folder: PathBuf) -> Result<(), HostFault> {
    // The program was started through `/proc/self/exe`. This name shows in process lists.
    let _ = rustix::thread::set_name(c"rgpu-agent");
    // This fails for a group leader, which has a session of its own already.
    let _ = rustix::process::setsid();
    hold::end_with_holder(hold::SUPERVISOR_OUTLIVES);
    // Very old kernels lack this. Daemons are then found only by their environment.
    let _ = rustix::process::set_child_subreaper(Some(getpid()));
    let (listener, lock) = inherited_files(&folder)?;
    let folder = JobFolder::at(folder);
    let (journal, _) = Journal::open(&folder.events_path())?;
    let plan = folder.plan()?;
    let tmp = folder.tmp();
    DirBuilder::new().mode(0o700).recursive(true).create(&tmp).context("make", &tmp)?;
    let lease = Duration::from_secs(plan.limits.lease_s);
    let clients = ClientSet::new(listener.into(), folder.path().join("stdin"), lease);
    let clients = clients.context("listen in", folder.path())?;
    let root = folder.root().to_owned();
    let mut supervisor = Supervisor {
        blobs: Blobs::new(&root),
        plan: std::rc::Rc::new(plan),
        journal,
        clients,
        gpu: None,
        logs: HashMap::new(),
        announced: AnnouncedFiles::default(),
        watchdog: None,
        started: Instant::now(),
        folder,
    };
    let result = catch_unwind(AssertUnwindSafe(|| supervisor.run_steps()));
    let outcome = match result {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(early_end)) => early_end.outcome(),
        Err(panic) => Outcome::HostError { code: "agent_bug".into(), text: panic_text(&*panic) },
    };
    let folder_path = supervisor.folder.path().to_owned();
    supervisor.end(outcome)?;
    drop(lock);
    // No client waits for this.
    quota::job_ended(&root, &folder_path);
    Ok(())
}

/// Takes over the listening socket and the lock from standard input and output, and replaces those
/// with `/dev/null`.
fn inherited_files(folder: &Path) -> Result<(OwnedFd, File), HostFault> {
    let listener = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3);
    let listener = listener.context("take over", folder)?;
    let lock = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3);
    let lock = lock.context("take over", folder)?;
    let null = Path::new("/dev/null");
    let null = File::options().read(true).write(true).open(null).context("open", null)?;
    rustix::stdio::dup2_stdin(&null).context("take over", folder)?;
    rustix::stdio::dup2_stdout(&null).context("take over", folder)?;
    Ok((listener, lock.into()))
}

/// Returns the message of a panic.
fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("a defect of the agent: {}", text.unwrap_or("no message"))
}

pub(crate) struct Supervisor {
    folder: JobFolder,
    plan: std::rc::Rc<Plan>,
    journal: Journal,
    clients: ClientSet,
    blobs: Blobs,
    gpu: Option<GpuLock>,
    logs: HashMap<(String, Stream), capture::StreamLog>,
    announced: AnnouncedFiles,
    /// The process that ends the job if the supervisor is killed; `None` for a short job that holds
    /// no GPU.
    watchdog: Option<WatchdogProcess>,
    /// When the job began, or when the last attempt to start a watchdog failed.
    started: Instant,
}

impl Supervisor {
    /// Appends an event and wakes the clients.
    fn emit(&mut self, body: EventBody) -> Result<(), HostFault> {
        self.journal.append(body)?;
        self.clients.wake();
        Ok(())
    }

    fn warn(&mut self, code: &str, text: String) -> Result<(), HostFault> {
        self.emit(EventBody::Warning { code: code.into(), text })
    }

    /// Starts the watchdog if the job has run for [`WATCHDOG_AFTER`]. Returns how long to wait
    /// until then.
    fn start_watchdog_when_due(&mut self) -> Duration {
        let left = WATCHDOG_AFTER.saturating_sub(self.started.elapsed());
        if self.watchdog.is_none() && left.is_zero() {
            match WatchdogProcess::start(self.folder.path(), &[]) {
                Ok(watchdog) => self.watchdog = Some(watchdog),
                // No resources for another process: try again later.
                Err(_) => self.started = Instant::now(),
            }
        }
        if self.watchdog.is_some() { Duration::MAX } else { left.max(Duration::from_millis(1)) }
    }

    /// Starts a watchdog that holds `files`, and dismisses the one before.
    fn replace_watchdog(&mut self, files: Vec<BorrowedFd<'_>>) -> Result<(), HostFault> {
        let path = self.folder.path();
        let watchdog = WatchdogProcess::start(path, &files).context("start a watchdog of", path)?;
        if let Some(before) = self.watchdog.replace(watchdog) {
            before.dismiss();
        }
        Ok(())
    }

    /// Fails if a client has cancelled the job. Warns if the lease has expired.
    fn check_stop(&mut self) -> Result<(), EarlyEnd> {
        if self.clients.detach_if_lease_expired() {
            let lease = self.plan.limits.lease_s;
            let text = format!(
                "no client has followed this job for {lease} s; it continues within its own limits"
            );
            self.warn("lease_expired", text)?;
        }
        self.clients.stop().map_or(Ok(()), |stop| Err(EarlyEnd::Stop(stop)))
    }

    /// Runs all steps in order.
    fn run_steps(&mut self) -> Result<Outcome, EarlyEnd> {
        let plan = self.plan.clone();
        self.emit(EventBody::Started { folder: self.folder.work().display().to_string() })?;
        let secrets = self.await_secrets(&plan)?;
        let last_gpu_step = plan.steps.iter().rposition(|s| s.gpu);
        let mut succeeded = BTreeSet::new();
        for (at, step) in plan.steps.iter().enumerate() {
            self.check_stop()?;
            if let Some(needs) = step.needs.iter().find(|n| !succeeded.contains(n.as_str())) {
                let (step, needs) = (step.id.clone(), needs.clone());
                self.emit(EventBody::StepSkipped { step, needs })?;
            } else {
                if let (true, None, Some(request)) = (step.gpu, &self.gpu, &plan.gpu) {
                    self.lock_gpu(request)?;
                }
                match self.run_step(step, &secrets)? {
                    StepResult::Succeeded => {
                        succeeded.insert(step.id.as_str());
                    }
                    StepResult::Failed(code) if step.on_failure == OnFailure::Stop => {
                        return Ok(Outcome::Failed { step: step.id.clone(), code });
                    }
                    StepResult::Failed(_) => {}
                }
            }
            // A GPU that cannot be restored stays locked until the end of the job, which tries
            // again: without the lock, that would change the GPU under another job.
            if last_gpu_step == Some(at) && self.gpu.is_some() && self.restore_gpus()? {
                self.gpu = None;
                self.emit(EventBody::GpuReleased {})?;
            }
        }
        Ok(Outcome::Done)
    }

    /// Waits for the values of the plan's secrets.
    fn await_secrets(&mut self, plan: &Plan) -> Result<BTreeMap<String, String>, EarlyEnd> {
        let start = Instant::now();
        while !plan.secrets.is_empty() {
            if let Some(values) = self.clients.secrets() {
                let named = values.iter().filter(|(name, _)| plan.secrets.contains(name));
                return Ok(named.map(|(n, v)| (n.clone(), v.clone())).collect());
            }
            if start.elapsed() > SECRETS_WAIT {
                let text = "the values of the plan's secrets were never received".into();
                let code = "no_secrets".into();
                return Err(EarlyEnd::Outcome(Outcome::HostError { code, text }));
            }
            self.clients.wait(&[], Duration::from_secs(1))?;
            self.check_stop()?;
        }
        Ok(BTreeMap::new())
    }

    /// Restores the GPU settings that the job changed, such as locked clocks. If that fails, warns
    /// and returns false.
    fn restore_gpus(&mut self) -> Result<bool, HostFault> {
        match gpu_setting::undo(&self.folder) {
            Ok(()) => Ok(true),
            Err(failure) => {
                self.warn("gpu_not_restored", gpu_setting::not_restored(&failure))?;
                Ok(false)
            }
        }
    }

    /// Kills all remaining processes and writes the terminal event.
    fn end(mut self, outcome: Outcome) -> Result<(), HostFault> {
        let left = kill_descendants(self.watchdog.as_ref().map(WatchdogProcess::pid));
        if !left.is_empty() {
            // The outcome matters more than this warning.
            let _ = self.warn("unkillable", unkillable(&left));
        }
        if !matches!(self.restore_gpus(), Ok(true)) {
            // If this fails, the commands stay in the job's folder, and are lost with it.
            let _ = gpu_setting::keep_after_end(&self.folder);
        }
        self.gpu = None;
        let _ = remove_tree(&self.folder.tmp());
        let _ = std::fs::remove_file(self.folder.path().join("stdin"));
        self.journal.append(EventBody::Ended { outcome })?;
        self.clients.wake();
        self.journal.close();
        Ok(())
    }
}

/// Kills every descendant but the watchdog. Returns those that did not exit.
fn kill_descendants(watchdog: Option<i32>) -> BTreeSet<i32> {
    if process::reap(|_| {}) == process::Children::None {
        return BTreeSet::new();
    }
    let reap = || {
        process::reap(|_| {});
    };
    process::kill_until_none(|| process::own_descendants(watchdog), reap, process::KILL_WAIT)
}

fn unkillable(pids: &BTreeSet<i32>) -> String {
    let pids: Vec<String> = pids.iter().map(i32::to_string).collect();
    format!(
        "processes {} cannot be killed: they wait for the driver or belong to another user",
        pids.join(", ")
    )
}
