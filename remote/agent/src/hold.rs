//! Holds a node that a batch system has granted, and lets clients in.
//!
//! A batch system ends what a short command leaves behind on a node, so no connection over such a
//! command may start a supervisor. The holder runs in the batch script. It listens in its folder,
//! and starts an agent for each client. Supervisors are descendants of the holder, and they live as
//! long as the batch script does. A client reaches it through [`relay_stdio`], run by a short
//! command.
//!
//! The holder ends when no agent and no job has run for a while. The node is then given back,
//! whatever became of the client. A batch system that ends the batch script may miss supervisors,
//! for example Slurm's proctrack/linuxproc, which finds processes by their parents: so supervisors
//! end with their holder by themselves.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, kill_process, pidfd_open, set_child_subreaper,
};

use crate::control;
use crate::host_fault::{HostFault, IoContext};
use crate::process::{Children, reap};
use crate::root::under_home;

/// Name of the holder's socket in its folder.
const SOCKET: &str = "sock";

/// Names the holder's folder to the agent that passes a client's bytes on.
const REACH_VARIABLE: &str = "RGPU_AGENT_REACH";

/// Process of the holder under which an agent and its supervisors run.
const HOLDER_VARIABLE: &str = "RGPU_AGENT_HOLDER";

/// How long a client waits for a holder that is still starting.
const START_TIMEOUT: Duration = Duration::from_secs(45);

/// Most bytes that are passed on at once.
const PIECE_BYTES: usize = 256 << 10;

/// How much longer than its holder a supervisor lives, at most.
pub(crate) const SUPERVISOR_OUTLIVES: Duration = Duration::from_secs(2);

/// How often the holder looks whether anything runs.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Holds the node until nothing has run for `idle_s` seconds.
pub fn hold(folder: &Path, idle_s: &OsStr) -> Result<(), HostFault> {
    let seconds = idle_s.to_str().and_then(|text| text.parse().ok());
    let idle_s = seconds.ok_or(io::ErrorKind::InvalidInput).context("read the limit of", folder)?;
    let idle = Duration::from_secs(idle_s);
    // Makes supervisors whose agent has ended our children.
    set_child_subreaper(Some(getpid()))
        .map_err(io::Error::from)
        .context("adopt jobs in", folder)?;
    let listener = control::listen(folder, SOCKET).context("listen in", folder)?;
    listener.set_nonblocking(true).context("listen in", folder)?;
    let mut last_use = Instant::now();
    while last_use.elapsed() < idle {
        let limit = LOOK_INTERVAL.as_nanos() as _;
        let timeout = Timespec { tv_sec: 0, tv_nsec: limit };
        // Interrupted: look again.
        let _ = poll(&mut [PollFd::new(&listener, PollFlags::IN)], Some(&timeout));
        while let Ok((client, _)) = listener.accept() {
            // If no process can be started now, the client sees the end of its stream and comes
            // again.
            let _ = start_agent(client.into());
        }
        if reap(|_| {}) != Children::None {
            last_use = Instant::now();
        }
    }
    Ok(())
}

/// Starts an agent for the client at the other end of `client`.
fn start_agent(client: OwnedFd) -> io::Result<()> {
    let output = client.try_clone()?;
    // Works even if the agent's file has been removed.
    let mut command = Command::new("/proc/self/exe");
    command.arg0("rgpu-agent").arg("stdio").env_remove(REACH_VARIABLE).process_group(0);
    command.env(HOLDER_VARIABLE, std::process::id().to_string());
    command.stdin(Stdio::from(client)).stdout(Stdio::from(output)).stderr(Stdio::null());
    command.spawn().map(drop)
}

/// Ends this process when the holder ends that it runs under, if it runs under one. A supervisor's
/// watchdog then ends its programs. Agents end at once and supervisors `later`: so a client loses
/// its link and asks the batch system for the reason, instead of hearing that a supervisor died.
pub(crate) fn end_with_holder(later: Duration) {
    let holder = std::env::var(HOLDER_VARIABLE).ok().and_then(|text| text.parse().ok());
    let Some(holder) = holder.and_then(Pid::from_raw) else { return };
    let holder = match pidfd_open(holder, PidfdFlags::empty()) {
        Ok(holder) => holder,
        Err(Errno::SRCH) => return end(),
        // Kernels before 5.3: what the batch system finds is what it ends.
        Err(_) => return,
    };
    let wait = move || {
        while poll(&mut [PollFd::new(&holder, PollFlags::IN)], None) == Err(Errno::INTR) {}
        std::thread::sleep(later);
        end();
    };
    // Without a thread, too, the batch system ends what it finds.
    let _ = std::thread::Builder::new().name("holder".to_owned()).spawn(wait);
}

/// Ends this process as a batch system does.
fn end() {
    let _ = kill_process(getpid(), Signal::TERM);
}

/// The holder's folder that this process's client asks for; `None`: the client wants this process.
pub fn requested() -> Option<PathBuf> {
    std::env::var_os(REACH_VARIABLE)
        .filter(|folder| !folder.is_empty())
        .map(|folder| under_home(folder.into()))
}

/// Passes the bytes of standard input and output to and from the holder's agent.
pub fn relay_stdio(folder: &Path) -> Result<(), HostFault> {
    let started = Instant::now();
    let holder = loop {
        match control::connect(folder, SOCKET) {
            Ok(holder) => break holder,
            // The holder starts with the batch script, which may be later than this process.
            Err(_) if started.elapsed() < START_TIMEOUT => std::thread::sleep(LOOK_INTERVAL / 5),
            Err(error) => return Err(HostFault::new("reach the holder", error)),
        }
    };
    let input = rustix::stdio::stdin().try_clone_to_owned().context("read from", folder)?;
    let output = rustix::stdio::stdout().try_clone_to_owned().context("write to", folder)?;
    let (mut from_holder, mut output) = (&holder, File::from(output));
    let to_holder = holder.try_clone().context("talk to the holder in", folder)?;
    std::thread::spawn(move || pass_input(File::from(input), &to_holder));
    // The agent ends the stream: it has read the end of its input, or it has died.
    pass(&mut from_holder, &mut output).context("pass on what comes from", folder)
}

/// Passes the client's bytes on, and their end.
fn pass_input(mut input: File, mut to_holder: &UnixStream) {
    // The other direction notices a lost connection.
    let _ = pass(&mut input, &mut to_holder);
    let _ = to_holder.shutdown(Shutdown::Write);
}

/// Passes bytes on as soon as they come.
fn pass(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut buffer = vec![0; PIECE_BYTES];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(n) => to.write_all(&buffer[..n])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
