//! Finding and ending processes through `/proc`: whole trees, until none is left.
//!
//! The supervisor is a subreaper, so whatever its programs start (and daemonise, in whatever
//! session) stays its descendant. Descendants are stopped first, until a walk finds no new one,
//! and then killed: a process that is stopped forks no more, so a fork storm ends too.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process};

/// A living process.
#[derive(Clone, Copy, Debug)]
struct Entry {
    pid: i32,
    parent: i32,
}

/// All living processes but zombies.
fn living() -> Vec<Entry> {
    let Ok(proc) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = proc.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid: i32| {
        let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
        // `pid (name) state ppid …`; the name may hold anything, so count from its last bracket.
        let after = stat.iter().rposition(|b| *b == b')')?;
        let rest = str::from_utf8(stat.get(after + 2..)?).ok()?;
        let mut fields = rest.split(' ');
        let state = fields.next()?;
        let parent = fields.next()?.parse().ok()?;
        (!matches!(state, "Z" | "X")).then_some(Entry { pid, parent })
    })
    .collect()
}

/// Descendants of the processes in `roots`, these not included.
fn descendants(roots: &BTreeSet<i32>) -> BTreeSet<i32> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for entry in living() {
        children.entry(entry.parent).or_default().push(entry.pid);
    }
    let mut found = BTreeSet::new();
    let mut open: Vec<i32> = roots.iter().copied().collect();
    while let Some(pid) = open.pop() {
        for child in children.get(&pid).into_iter().flatten() {
            if !roots.contains(child) && found.insert(*child) {
                open.push(*child);
            }
        }
    }
    found
}

/// Descendants of this process.
pub(crate) fn own_descendants() -> BTreeSet<i32> {
    descendants(&BTreeSet::from([std::process::id() as i32]))
}

/// Sends a signal to each; those that are gone or not ours are passed over.
pub(crate) fn signal_all(pids: &BTreeSet<i32>, signal: Signal) {
    for pid in pids.iter().filter_map(|p| Pid::from_raw(*p)) {
        let _ = kill_process(pid, signal);
    }
}

/// Kills what `find` finds until it finds nothing more, at most for `limit`; what is left then.
/// `between` runs between rounds (to reap).
pub(crate) fn kill_until_none(
    find: impl Fn() -> BTreeSet<i32>,
    mut between: impl FnMut(),
    limit: Duration,
) -> BTreeSet<i32> {
    let start = Instant::now();
    loop {
        let mut stopped = BTreeSet::new();
        loop {
            let found = find();
            let new: BTreeSet<i32> = found.difference(&stopped).copied().collect();
            if new.is_empty() || start.elapsed() > limit {
                break;
            }
            signal_all(&new, Signal::STOP);
            stopped.extend(new);
        }
        signal_all(&stopped, Signal::KILL);
        between();
        let left = find();
        if left.is_empty() || start.elapsed() > limit {
            return left;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Kills what a dead supervisor left behind: processes with `marker` (`NAME=value`) in their
/// environment, and all their descendants. What could not be killed.
pub(crate) fn kill_marked(marker: &str) -> BTreeSet<i32> {
    let me = std::process::id() as i32;
    let marked = || {
        let carries = |pid: i32| {
            fs::read(format!("/proc/{pid}/environ"))
                .is_ok_and(|e| e.split(|b| *b == 0).any(|var| var == marker.as_bytes()))
        };
        let roots: BTreeSet<i32> =
            living().iter().map(|e| e.pid).filter(|p| *p != me && carries(*p)).collect();
        let mut all = descendants(&roots);
        all.extend(roots);
        all
    };
    kill_until_none(marked, || {}, Duration::from_secs(10))
}

/// What became of a child.
pub(crate) type Reaped = (i32, WaitStatus);

/// Whether any child is left after a reaping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Children {
    /// Some are alive.
    Some,
    /// There is none, and so no descendant either.
    None,
}

/// Collects the status of every child that has ended.
pub(crate) fn reap(mut each: impl FnMut(Reaped)) -> Children {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) => each((pid.as_raw_nonzero().get(), status)),
            Ok(None) => return Children::Some,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return Children::None,
        }
    }
}
