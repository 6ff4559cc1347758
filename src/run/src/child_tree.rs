//! Waits for a child process and ends it with its whole tree, from a process that has no other
//! children. `rgpu queue` and `rgpu loop` run commands this way.
//!
//! This process is the subreaper of all that the child starts, even of daemons, so the whole tree
//! ends with the child, by the agent's own code.

mod limited_output;

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::io;
use std::time::{Duration, Instant};

use rustix::process::{Signal, WaitStatus};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal as Listener, SignalKind, signal};

use crate::process_tree::{self, Children};

pub use limited_output::LimitedOutput;

/// The most bytes of a log with the output of commands on this machine.
pub const MAX_LOG_BYTES: u64 = 64 << 20;

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitResult {
    /// A child has exited.
    Child,
    /// SIGTERM, and SIGINT and SIGHUP where those are listened to.
    Terminate,
    /// The time is up.
    Time,
}

/// What to do about a child that still runs.
#[derive(Clone, Copy, Debug)]
pub enum ChildAction {
    /// Wait for at most this long, and look again.
    Wait(Option<Duration>),
    /// End the tree, with these signals before SIGKILL.
    End(&'static [Signal]),
}

/// How a child ended.
#[derive(Clone, Debug)]
pub struct TreeEnd {
    /// Its status; `None` if it is unknown.
    pub status: Option<WaitStatus>,
    /// How long it ran, by a clock that does not step.
    pub duration: Duration,
    /// Processes that could not be killed.
    pub unkilled: BTreeSet<i32>,
}

/// The signals of this process, which is the subreaper from now on.
#[derive(Debug)]
pub struct TreeWatch {
    runtime: Runtime,
    child: Listener,
    terminate: Vec<Listener>,
}

impl TreeWatch {
    /// Listens for ended children and SIGTERM; with `is_foreground` also for SIGINT and SIGHUP.
    pub fn listen(is_foreground: bool) -> io::Result<Self> {
        process_tree::become_subreaper();
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (child, terminate) = {
            let _entered = runtime.enter();
            let mut kinds = vec![SignalKind::terminate()];
            if is_foreground {
                kinds.extend([SignalKind::interrupt(), SignalKind::hangup()]);
            }
            let terminate = kinds.into_iter().map(signal).collect::<io::Result<_>>()?;
            (signal(SignalKind::child())?, terminate)
        };
        Ok(Self { runtime, child, terminate })
    }

    /// Waits for a signal, for at most `limit`.
    pub fn wait(&mut self, limit: Option<Duration>) -> WaitResult {
        let limit = async {
            match limit {
                Some(limit) => tokio::time::sleep(limit).await,
                None => std::future::pending().await,
            }
        };
        let (child, listeners) = (&mut self.child, &mut self.terminate);
        let terminate = std::future::poll_fn(|context| {
            let mut polled = listeners.iter_mut().map(|listener| listener.poll_recv(context));
            if polled.any(|poll| poll.is_ready()) {
                std::task::Poll::Ready(())
            } else {
                std::task::Poll::Pending
            }
        });
        self.runtime.block_on(async {
            tokio::select! {
                _ = child.recv() => WaitResult::Child,
                () = terminate => WaitResult::Terminate,
                () = limit => WaitResult::Time,
            }
        })
    }

    /// Waits until the child `pid` ends, and then ends what is left of its tree. `look` is asked
    /// after each wake, with `None` at first.
    pub fn follow(
        &mut self,
        pid: i32,
        mut look: impl FnMut(Option<WaitResult>, Duration) -> ChildAction,
    ) -> TreeEnd {
        let start = Instant::now();
        let mut status: Option<WaitStatus> = None;
        let mut reap = || {
            let children = process_tree::reap(|(ended, how)| {
                if ended == pid {
                    status = Some(how);
                }
            });
            (children, status)
        };
        let mut wake = None;
        let (mut children, signals): (_, &[Signal]) = loop {
            let (children, status) = reap();
            if status.is_some() {
                break (children, &[Signal::TERM]);
            }
            match look(wake, start.elapsed()) {
                ChildAction::Wait(limit) => wake = Some(self.wait(limit)),
                ChildAction::End(signals) => break (children, signals),
            }
        };
        let duration = start.elapsed();
        let mut left = BTreeSet::new();
        if children == Children::Some {
            let ended = process_tree::end_descendants(None, signals, |limit| {
                if let Some(limit) = limit {
                    std::thread::sleep(limit);
                }
                children = reap().0;
                Ok::<_, Infallible>(children)
            });
            left = ended.unwrap_or_default();
        }
        TreeEnd { status, duration, unkilled: left }
    }
}
