//! Finds and kills processes through `/proc`: whole trees, until none is left.
//!
//! The supervisor is a subreaper, so every process that its programs start stays its descendant,
//! even a daemon in another session. Descendants are stopped first, until a walk finds no new one,
//! and then killed. A stopped process cannot fork, so this ends fork storms too. Both signals also
//! go to whole process groups, which reaches processes forked after the walk.
//!
//! Processes started with `sudo` belong to root. If this user may not signal them, `sudo -n kill`
//! does it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, kill_process_group};

use crate::command::ask;

/// Time limit of `sudo` for passing on a signal.
const SUDO_WAIT: Duration = Duration::from_secs(5);

/// How long processes have to exit after each signal before the next.
pub const SIGNAL_GRACE: Duration = Duration::from_secs(2);

/// How long killed processes may take to exit before they are reported as unkillable.
pub(crate) const KILL_WAIT: Duration = Duration::from_secs(10);

/// A process from `/proc`.
#[derive(Clone, Copy, Debug)]
struct ProcessEntry {
    pid: i32,
    parent: i32,
    group: i32,
}

/// Returns all living processes, without zombies.
fn living() -> Vec<ProcessEntry> {
    let Ok(proc) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = proc.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok());
    pids.filter_map(entry).collect()
}

/// Returns the process `pid`, if it lives.
fn entry(pid: i32) -> Option<ProcessEntry> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat_fields(&stat)?;
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then_some(ProcessEntry { pid, parent, group })
}

/// Returns the parent of the process `pid`, if it lives.
pub(crate) fn parent(pid: i32) -> Option<i32> {
    entry(pid).map(|entry| entry.parent)
}

/// The fields of a `stat` file from the process's state on. The file is `pid (name) state ppid …`:
/// the name may contain anything, so the fields begin after the last bracket.
fn stat_fields(stat: &[u8]) -> Option<std::str::Split<'_, char>> {
    let after = stat.iter().rposition(|b| *b == b')')?;
    Some(str::from_utf8(stat.get(after + 2..)?).ok()?.split(' '))
}

/// Returns the children of this process as the kernel lists them, with zombies; `None` if the
/// kernel lacks `CONFIG_PROC_CHILDREN`.
fn children() -> Option<Vec<i32>> {
    let mut listed = Vec::new();
    for task in fs::read_dir("/proc/self/task").ok()?.flatten() {
        let line = fs::read_to_string(task.path().join("children")).ok()?;
        listed.extend(line.split_ascii_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
    }
    listed.sort_unstable();
    Some(listed)
}

/// Returns the living children of this process but `watchdog`. A walk through `/proc` can miss a
/// chain of processes that each start the next and exit. But a subreaper always has the living one
/// among its children, and only its own reaping removes children from the list. So if all listed
/// ones are dead and the list has not changed since, none lives.
fn living_children(watchdog: Option<i32>) -> Vec<ProcessEntry> {
    // A chain is found after a few tries. The bound is for a storm that only makes zombies.
    for _ in 0..1000 {
        let Some(listed) = children() else { break };
        let others = listed.iter().copied().filter(|pid| Some(*pid) != watchdog);
        let alive: Vec<ProcessEntry> = others.filter_map(entry).collect();
        if !alive.is_empty() || children().is_none_or(|again| again == listed) {
            return alive;
        }
    }
    Vec::new()
}

/// When the process `pid` started, in clock ticks after the boot; `None` if it does not live. With
/// the boot's id this tells it from a later process of the same number.
pub fn start_time(pid: i32) -> Option<u64> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat_fields(&stat)?;
    let state = fields.next()?;
    let start = fields.nth(18)?.trim_end().parse().ok()?;
    (!matches!(state, "Z" | "X")).then_some(start)
}

/// Processes and their process groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessList {
    pub(crate) pids: BTreeSet<i32>,
    groups: BTreeSet<i32>,
}

impl ProcessList {
    /// Removes the processes with these names.
    pub(crate) fn spare(&mut self, names: &[String]) {
        self.pids.retain(|pid| {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            !names.iter().any(|spared| *spared == name.trim_end())
        });
    }
}

/// Returns the descendants of the processes in `roots`, without those.
fn descendants(roots: &BTreeSet<i32>) -> ProcessList {
    let mut children: HashMap<i32, Vec<ProcessEntry>> = HashMap::new();
    for entry in living() {
        children.entry(entry.parent).or_default().push(entry);
    }
    let mut found = ProcessList::default();
    let mut queue: Vec<i32> = roots.iter().copied().collect();
    while let Some(pid) = queue.pop() {
        for child in children.get(&pid).into_iter().flatten() {
            if !roots.contains(&child.pid) && found.pids.insert(child.pid) {
                found.groups.insert(child.group);
                queue.push(child.pid);
            }
        }
    }
    found
}

/// Returns the descendants of this process but `watchdog`. Their groups are in sessions that this
/// process or they created, so no other process is in them.
pub fn own_descendants(watchdog: Option<i32>) -> ProcessList {
    let mut found = descendants(&BTreeSet::from([std::process::id() as i32]));
    if found.pids.iter().all(|pid| Some(*pid) == watchdog) {
        for child in living_children(watchdog) {
            found.pids.insert(child.pid);
            found.groups.insert(child.group);
        }
    }
    if let Some(watchdog) = watchdog {
        found.pids.remove(&watchdog);
        found.groups.remove(&watchdog);
    }
    found.groups.remove(&rustix::process::getpgrp().as_raw_nonzero().get());
    found
}

/// Sends a signal once to each process. Those that have exited are skipped.
pub(crate) fn signal_all(found: &ProcessList, signal: Signal) {
    let mut refused = Vec::new();
    for pid in found.pids.iter().filter_map(|p| Pid::from_raw(*p)) {
        if kill_process(pid, signal) == Err(rustix::io::Errno::PERM) {
            refused.push(pid.as_raw_nonzero().to_string());
        }
    }
    if !refused.is_empty() {
        let mut argv = ["sudo", "-n", "kill", "-s"].map(String::from).to_vec();
        argv.push(signal.as_raw().to_string());
        argv.extend(refused);
        // If `sudo` is refused too, the caller reports the remaining processes.
        let _ = ask(&argv, &BTreeMap::new(), 1000, SUDO_WAIT);
    }
}

/// Sends a signal to whole groups. Only for signals that are harmless when sent twice.
fn signal_groups(found: &ProcessList, signal: Signal) {
    for group in found.groups.iter().filter_map(|g| Pid::from_raw(*g)) {
        let _ = kill_process_group(group, signal);
    }
}

/// Kills the processes that `find` returns until there are none, for at most `limit`. Returns the
/// remaining ones. `between` runs between rounds (to reap).
pub(crate) fn kill_until_none(
    find: impl Fn() -> ProcessList,
    mut between: impl FnMut(),
    limit: Duration,
) -> BTreeSet<i32> {
    let start = Instant::now();
    loop {
        let mut stopped = ProcessList::default();
        // A faster storm is handled in the next round.
        for _ in 0..50 {
            let mut new = find();
            new.pids.retain(|pid| !stopped.pids.contains(pid));
            if new.pids.is_empty() {
                break;
            }
            signal_groups(&new, Signal::STOP);
            signal_all(&new, Signal::STOP);
            stopped.pids.extend(new.pids);
            stopped.groups.extend(new.groups);
        }
        signal_groups(&stopped, Signal::KILL);
        signal_all(&stopped, Signal::KILL);
        between();
        let left = find().pids;
        if left.is_empty() || start.elapsed() > limit {
            return left;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Ends the descendants of this process but `watchdog`: sends each signal to all of them and gives
/// them [`SIGNAL_GRACE`] after it, then sends SIGKILL until none is left. `wait` reaps, and first
/// waits for at most the given time. Returns those that remain.
pub fn end_descendants<E>(
    watchdog: Option<i32>,
    signals: &[Signal],
    mut wait: impl FnMut(Option<Duration>) -> Result<Children, E>,
) -> Result<BTreeSet<i32>, E> {
    for signal in signals {
        let found = own_descendants(watchdog);
        signal_all(&found, *signal);
        // A stopped process handles no signal until it continues.
        signal_all(&found, Signal::CONT);
        let start = Instant::now();
        let mut children = wait(None)?;
        while children == Children::Some && start.elapsed() < SIGNAL_GRACE {
            // The end of a daemon is found by polling.
            children = wait(Some(Duration::from_millis(10)))?;
        }
        if children == Children::None {
            return Ok(BTreeSet::new());
        }
    }
    let mut error = None;
    let between = || {
        if let Err(e) = wait(None) {
            error = Some(e);
        }
    };
    let left = kill_until_none(|| own_descendants(watchdog), between, KILL_WAIT);
    error.map_or(Ok(left), Err)
}

/// Kills the processes of a dead supervisor: those with `marker` (`NAME=value`) in their
/// environment, and all their descendants. Returns those that remain.
pub fn kill_marked(marker: &str) -> BTreeSet<i32> {
    let me = std::process::id() as i32;
    let marked = || {
        let has_marker = |pid: i32| {
            fs::read(format!("/proc/{pid}/environ"))
                .is_ok_and(|e| e.split(|b| *b == 0).any(|var| var == marker.as_bytes()))
        };
        let roots: BTreeSet<i32> =
            living().iter().map(|e| e.pid).filter(|p| *p != me && has_marker(*p)).collect();
        let mut all = descendants(&roots).pids;
        all.extend(roots);
        // Their groups may be reused by other processes.
        ProcessList { pids: all, groups: BTreeSet::new() }
    };
    kill_until_none(marked, || {}, Duration::from_secs(10))
}

/// The process id of a reaped child, and how it ended.
pub type ReapedChild = (i32, WaitStatus);

/// Whether any child is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Children {
    /// Some children have not exited.
    Some,
    /// There are no children, and so no descendants.
    None,
}

/// Reaps every child that has exited.
pub fn reap(mut each: impl FnMut(ReapedChild)) -> Children {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) => each((pid.as_raw_nonzero().get(), status)),
            Ok(None) => return Children::Some,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return Children::None,
        }
    }
}
