//! The runner: one process at a time takes entries from the queue and has their attempts run.
//!
//! It holds a lock for life. It keeps nothing that the database does not have, so it may be killed
//! at any point: attempts continue without it, and the next runner follows them by their process.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::Pid;
use tokio::process::Command;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::attempt::{AttemptCall, RECORD_RETRY_DELAY};
use super::entry::{Entry, EntryState};
use super::error::io_error;
use super::schedule::{Schedule, ScheduleAction};
use super::{Queue, QueueError, ROLE};
use rgpu_model::fault_point;
use rgpu_model::regular_file::MAX_FILE_BYTES;
use rgpu_run::process_tree;
use rgpu_run::run::CancelSignal;
use rgpu_run::store::state::{ProcessId, StateError, StateLock};

/// The file with the messages of a detached runner.
const RUNNER_LOG: &str = "runner.log";

/// How often to look for changes by other processes.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// How long an entry whose attempt could not begin waits for its next try.
const POSTPONED_FOR: Duration = Duration::from_secs(5);

/// How the runner runs.
#[derive(Clone, Copy, Debug)]
pub struct RunnerOptions {
    /// Whether it ends when no entry waits or runs.
    pub once: bool,
    /// A running entry without output for this long is reported once.
    pub silent_after: Duration,
}

/// Something that the runner reports.
#[derive(Clone, Debug)]
pub enum RunnerEvent {
    /// An attempt is being started.
    Started {
        /// The number of the entry that starts.
        entry: i64,
        /// The attempt's number, from 1.
        attempt: u32,
    },
    /// An attempt of an earlier runner still runs, and is followed.
    Found {
        /// The number of the entry that runs.
        entry: i64,
        /// The attempt's number, from 1.
        attempt: u32,
    },
    /// An entry ended, or waits again.
    Ended(Box<Entry>),
    /// A running entry has had no output for a while.
    Silent {
        /// The number of the entry without output.
        entry: i64,
        /// How long it has written nothing.
        silent: Duration,
    },
    /// An attempt could not begin; it is tried again.
    NotStarted {
        /// The number of the entry that waits for another try.
        entry: i64,
    },
    /// `queue.log` cannot be written; it is tried again with the next end.
    NotLogged {
        /// The error with its causes.
        why: String,
    },
    /// A change cannot be recorded, because the disk is full; it is tried again.
    DiskFull {
        /// The number of the entry whose change waits to be recorded.
        entry: i64,
    },
    /// These entries wait, and an agent's runner does not start them.
    LeftToUser {
        /// Their numbers.
        entries: Vec<i64>,
    },
    /// Nothing waits or runs. The runner goes on until it is stopped.
    Waiting,
    /// No entry is started any more; running ones are waited for.
    Stopping {
        /// Number of running entries.
        running: usize,
    },
    /// The runner ends, and these entries continue without it.
    Left {
        /// Numbers of the running entries.
        entries: Vec<i64>,
    },
}

/// An attempt that this runner follows.
#[derive(Debug)]
struct WatchedEntry {
    attempt: u32,
    log_bytes: u64,
    silent_since: Instant,
    is_silence_reported: bool,
}

/// The one runner of a queue.
#[derive(Debug)]
pub struct Runner {
    queue: Queue,
    schedule: Schedule,
    /// The event of this runner's start.
    event: i64,
    watched: BTreeMap<i64, WatchedEntry>,
    ended: (UnboundedSender<i64>, UnboundedReceiver<i64>),
    /// Whether the last try to write `queue.log` failed, so that it is reported once.
    is_log_failing: bool,
    /// Whether the full disk was reported.
    is_full_told: bool,
    _lock: StateLock,
}

impl Runner {
    /// Becomes the runner of the queue.
    ///
    /// # Errors
    /// Another process is the runner ([`rgpu_run::store::state::StateError::Held`]); the database
    /// cannot be read or written.
    pub fn start(mut queue: Queue) -> Result<Self, QueueError> {
        let (lock, event) = queue.become_runner()?;
        fault_point::kill_if_named("runner started");
        let schedule = Schedule::read(&queue)?;
        let (watched, ended) = (BTreeMap::new(), unbounded_channel());
        Ok(Self {
            queue,
            schedule,
            event,
            watched,
            ended,
            is_log_failing: false,
            is_full_told: false,
            _lock: lock,
        })
    }

    /// Runs entries until there are none (`once`), or until it is asked to stop. After one request
    /// it starts no more and waits for the running ones; after two it leaves them running, for the
    /// next runner to find. Returns whether it was asked to stop.
    pub async fn run(
        &mut self,
        options: RunnerOptions,
        mut stop: CancelSignal,
        mut report: impl FnMut(RunnerEvent),
    ) -> Result<bool, QueueError> {
        self.find_running(&mut report)?;
        self.update_log_file(&mut report);
        let mut requests = 0;
        let mut is_idle = false;
        loop {
            self.schedule.refresh(&self.queue)?;
            // An end is in the database a moment before its process is gone. It is reported first.
            let is_ending = self.watched.keys().any(|entry| !self.schedule.is_running(*entry));
            if requests == 0 && !is_ending {
                self.start_entries(&mut report)?;
            }
            let has_work = requests == 0
                && !(options.once
                    && (self.schedule.is_paused() || self.schedule.has_none_waiting()));
            if requests > 1 && !self.watched.is_empty() {
                report(RunnerEvent::Left { entries: self.watched.keys().copied().collect() });
            }
            if requests > 1 || (self.watched.is_empty() && !has_work) {
                let entries: Vec<i64> = self.schedule.left().collect();
                if !entries.is_empty() {
                    report(RunnerEvent::LeftToUser { entries });
                }
                return Ok(requests > 0);
            }
            let was_idle = is_idle;
            is_idle = requests == 0 && self.watched.is_empty() && self.schedule.has_none_waiting();
            if is_idle && !was_idle {
                report(RunnerEvent::Waiting);
            }
            tokio::select! {
                Some(entry) = self.ended.1.recv() => self.has_ended(entry, &mut report)?,
                () = stop.wait_for_more_than(requests) => {
                    requests = stop.request_count();
                    if requests == 1 {
                        report(RunnerEvent::Stopping { running: self.watched.len() });
                    }
                }
                () = tokio::time::sleep(POLL_INTERVAL) => {}
            }
            self.report_silence(options.silent_after, &mut report);
        }
    }

    /// Follows the attempts that earlier runners started, and records those as lost whose watching
    /// process is gone.
    fn find_running(&mut self, report: &mut impl FnMut(RunnerEvent)) -> Result<(), QueueError> {
        for running in self.queue.running_attempts()? {
            let (entry, attempt) = (running.entry, running.attempt);
            let pidfd = Pid::from_raw(running.process.pid).and_then(process_tree::open_pidfd);
            if !running.process.is_alive() {
                let reason = if running.process.is_of_earlier_boot() {
                    "the machine was restarted"
                } else {
                    "the process that watched it was killed"
                };
                self.is_lost(entry, attempt, reason, report)?;
                continue;
            }
            self.watch(entry, attempt);
            let ended = self.ended.0.clone();
            tokio::task::spawn_blocking(move || {
                wait_for_exit(pidfd, &running.process);
                let _ = ended.send(entry);
            });
            report(RunnerEvent::Found { entry, attempt });
        }
        Ok(())
    }

    /// Writes the missing lines of `queue.log`. What they say is in the database already.
    fn update_log_file(&mut self, report: &mut impl FnMut(RunnerEvent)) {
        let written = self.queue.update_log_file();
        if let Err(error) = &written
            && !self.is_log_failing
        {
            report(RunnerEvent::NotLogged { why: error.with_causes() });
        }
        self.is_log_failing = written.is_err();
    }

    /// Whether a change was recorded; not if the disk is full, which is reported once.
    fn is_recorded(
        &mut self,
        entry: i64,
        result: Result<(), QueueError>,
        report: &mut impl FnMut(RunnerEvent),
    ) -> Result<bool, QueueError> {
        match result {
            Err(error) if error.is_full_disk() => {
                if !self.is_full_told {
                    report(RunnerEvent::DiskFull { entry });
                }
                self.is_full_told = true;
                Ok(false)
            }
            other => {
                self.is_full_told = false;
                other.map(|()| true)
            }
        }
    }

    fn start_entries(&mut self, report: &mut impl FnMut(RunnerEvent)) -> Result<(), QueueError> {
        while let Some(turn) = self.schedule.next(&self.queue)? {
            match turn {
                ScheduleAction::Start { entry, attempt } => {
                    fault_point::kill_if_named("runner starts");
                    self.spawn(entry, attempt)?;
                    self.schedule.is_starting(entry, attempt);
                    self.watch(entry, attempt);
                    report(RunnerEvent::Started { entry, attempt });
                    fault_point::kill_if_named("runner spawned");
                }
                ScheduleAction::Skip { entry, dependency } => {
                    let skipped = self.queue.skip(entry, dependency);
                    if !self.is_recorded(entry, skipped, report)? {
                        // The next look tries it again.
                        return Ok(());
                    }
                    fault_point::kill_if_named("runner skipped");
                    self.schedule.refresh(&self.queue)?;
                    self.update_log_file(report);
                    report(RunnerEvent::Ended(Box::new(self.queue.entry(entry)?)));
                }
            }
        }
        Ok(())
    }

    /// Starts the process that watches an attempt.
    fn spawn(&self, entry: i64, attempt: u32) -> Result<(), QueueError> {
        let call = AttemptCall {
            project: self.queue.project.clone(),
            own_ids: self.queue.own_ids.clone(),
            entry,
            attempt,
            runner: self.event,
        };
        let mut command = Command::new("/proc/self/exe");
        command.arg0("rgpu").args(call.argv()).current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn();
        let mut child = child.map_err(|source| QueueError::Spawn { entry, source })?;
        let ended = self.ended.0.clone();
        tokio::spawn(async move {
            let _ = child.wait().await;
            let _ = ended.send(entry);
        });
        Ok(())
    }

    fn watch(&mut self, entry: i64, attempt: u32) {
        let watched = WatchedEntry {
            attempt,
            log_bytes: 0,
            silent_since: Instant::now(),
            is_silence_reported: false,
        };
        self.watched.insert(entry, watched);
    }

    /// Handles the end of the process that watched an attempt.
    fn has_ended(
        &mut self,
        entry: i64,
        report: &mut impl FnMut(RunnerEvent),
    ) -> Result<(), QueueError> {
        fault_point::kill_if_named("runner heard");
        let Some(watched) = self.watched.remove(&entry) else { return Ok(()) };
        let attempt = watched.attempt;
        self.schedule.refresh(&self.queue)?;
        let now = match self.queue.entry(entry) {
            // Ended and removed meanwhile.
            Err(QueueError::NoEntry(_)) => return Ok(()),
            entry => entry?,
        };
        match now.state {
            EntryState::Running if now.attempt == attempt => {
                return self.is_lost(
                    entry,
                    attempt,
                    "the process that watched it was killed",
                    report,
                );
            }
            EntryState::Waiting if now.attempt < attempt => {
                let until = Instant::now() + POSTPONED_FOR;
                self.schedule.is_postponed(entry, now.attempt, until);
                report(RunnerEvent::NotStarted { entry });
                return Ok(());
            }
            _ => {}
        }
        self.update_log_file(report);
        report(RunnerEvent::Ended(Box::new(now)));
        Ok(())
    }

    /// Records an attempt as lost, after what is left of it was killed.
    fn is_lost(
        &mut self,
        entry: i64,
        attempt: u32,
        reason: &str,
        report: &mut impl FnMut(RunnerEvent),
    ) -> Result<(), QueueError> {
        let ended = self.queue.end_lost(entry, attempt, reason);
        if !self.is_recorded(entry, ended, report)? {
            self.watch(entry, attempt);
            let ended = self.ended.0.clone();
            tokio::spawn(async move {
                tokio::time::sleep(RECORD_RETRY_DELAY).await;
                let _ = ended.send(entry);
            });
            return Ok(());
        }
        self.schedule.refresh(&self.queue)?;
        self.update_log_file(report);
        report(RunnerEvent::Ended(Box::new(self.queue.entry(entry)?)));
        Ok(())
    }

    fn report_silence(&mut self, after: Duration, report: &mut impl FnMut(RunnerEvent)) {
        for (entry, watched) in &mut self.watched {
            let path = self.queue.log_path(*entry, watched.attempt);
            let stat = self.queue.db.files().stat(path).ok().flatten();
            let bytes = stat.map_or(0, |stat| u64::try_from(stat.st_size).unwrap_or_default());
            if bytes != watched.log_bytes {
                watched.log_bytes = bytes;
                watched.silent_since = Instant::now();
                watched.is_silence_reported = false;
            }
            let silent = watched.silent_since.elapsed();
            if silent > after && !watched.is_silence_reported {
                watched.is_silence_reported = true;
                report(RunnerEvent::Silent { entry: *entry, silent });
            }
        }
    }
}

/// Waits until a process that is no child of ours has ended. Blocks.
fn wait_for_exit(pidfd: Option<OwnedFd>, process: &ProcessId) {
    while process.is_alive() {
        match &pidfd {
            Some(pidfd) => drop(poll(&mut [PollFd::new(pidfd, PollFlags::IN)], None)),
            // Old kernels have no pidfds.
            None => std::thread::sleep(POLL_INTERVAL),
        }
    }
}

/// Starts a runner that outlives this process, and waits until it has the lock. Its messages go to
/// `runner.log` in the state folder. `arguments` are those of rgpu. Returns its process id.
///
/// # Errors
/// Another process is the runner; the new one cannot start or ends at once.
pub fn detach(queue: &Queue, arguments: &[&str]) -> Result<u32, QueueError> {
    if let Some(holder) = queue.runner() {
        return Err(StateError::Held { role: ROLE, holder }.into());
    }
    let path = queue.folder().join(RUNNER_LOG);
    let log = queue.db.files().append(RUNNER_LOG, 0o600).map_err(io_error("open", &path))?;
    let start = log.metadata().map_err(io_error("read", &path))?.len();
    let program = Path::new("/proc/self/exe");
    let mut command = std::process::Command::new(program);
    command.arg0("rgpu").args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    let mut child = command.spawn().map_err(io_error("start", program))?;
    loop {
        if queue.runner().is_some_and(|holder| holder.pid().cast_unsigned() == child.id()) {
            return Ok(child.id());
        }
        match child.try_wait().map_err(io_error("watch", program))? {
            // With `once`, its work may be done already.
            Some(status) if status.success() => return Ok(child.id()),
            Some(_) => {
                let bytes = queue.db.files().read(RUNNER_LOG, MAX_FILE_BYTES).unwrap_or_default();
                let new = bytes.get(start as usize..).unwrap_or_default();
                let words = String::from_utf8_lossy(new).trim().to_owned();
                return Err(QueueError::NoRunner(words));
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}
