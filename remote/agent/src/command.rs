//! Runs small programs on the host (probes, the list of GPU processes): captures output up to a
//! limit, and kills the process group after a time limit.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process_group};

/// The result of a program.
#[derive(Debug, Default)]
pub(crate) struct CommandOutput {
    /// Exit status; `None` if a signal killed it.
    pub(crate) exit: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    /// Whether the program was killed, by its time limit or by `stop`.
    pub(crate) timed_out: bool,
}

/// Runs `argv` in `/`, without standard input and with `env` over the agent's environment. Keeps up
/// to `cap` bytes of each stream. The agent's own folder may be a project's on this machine, and a
/// program may take code from the folder it is started in.
pub(crate) fn ask(
    argv: &[String],
    env: &BTreeMap<String, String>,
    cap: usize,
    limit: Duration,
) -> io::Result<CommandOutput> {
    ask_unless(argv, env, cap, limit, &AtomicBool::new(false))
}

/// As [`ask`]. Setting `stop` kills the program as its time limit does.
pub(crate) fn ask_unless(
    argv: &[String],
    env: &BTreeMap<String, String>,
    cap: usize,
    limit: Duration,
    stop: &AtomicBool,
) -> io::Result<CommandOutput> {
    let deadline = Instant::now() + limit;
    let (program, args) = argv
        .split_first()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no program"))?;
    let mut child = Command::new(program)
        .args(args)
        .envs(env)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()?;
    let mut answer = CommandOutput::default();
    let mut stdout = child.stdout.take();
    let mut stderr = child.stderr.take();
    while stdout.is_some() || stderr.is_some() {
        let left = deadline.saturating_duration_since(Instant::now());
        // A daemon that the program started may hold the pipes open.
        let ended = child.try_wait()?.is_some();
        let wait = if ended { Duration::ZERO } else { left.min(Duration::from_millis(20)) };
        let streams = [stdout.is_some(), stderr.is_some()];
        let mut fds = Vec::new();
        fds.extend(stdout.as_ref().map(|s| PollFd::new(s, PollFlags::IN)));
        fds.extend(stderr.as_ref().map(|s| PollFd::new(s, PollFlags::IN)));
        let timeout = Timespec { tv_sec: 0, tv_nsec: wait.subsec_nanos() as _ };
        let ready = poll(&mut fds, Some(&timeout)).unwrap_or(0);
        let mut hits = fds.iter().map(|fd| !fd.revents().is_empty());
        let out_ready = streams[0] && hits.next() == Some(true);
        let err_ready = streams[1] && hits.next() == Some(true);
        drop(fds);
        if out_ready {
            take(&mut stdout, &mut answer.stdout, cap)?;
        }
        if err_ready {
            take(&mut stderr, &mut answer.stderr, cap)?;
        }
        if ready == 0 && ended {
            break;
        }
        if left.is_zero() || stop.load(Ordering::Relaxed) {
            answer.timed_out = true;
            break;
        }
    }
    while !answer.timed_out && child.try_wait()?.is_none() {
        answer.timed_out = Instant::now() > deadline || stop.load(Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(1));
    }
    if let Some(group) = Pid::from_raw(child.id() as i32) {
        // This also kills remaining processes of a program that has ended.
        let _ = kill_process_group(group, Signal::KILL);
    }
    answer.exit = child.wait()?.code();
    Ok(answer)
}

/// Reads once. Drops the stream at its end.
fn take(stream: &mut Option<impl Read>, kept: &mut Vec<u8>, cap: usize) -> io::Result<()> {
    let mut chunk = [0; 16 << 10];
    let n = match stream.as_mut() {
        Some(open) => open.read(&mut chunk)?,
        None => return Ok(()),
    };
    if n == 0 {
        *stream = None;
    }
    let room = cap.saturating_sub(kept.len());
    kept.extend_from_slice(&chunk[..n.min(room)]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str, limit_ms: u64) -> CommandOutput {
        let argv = ["sh", "-c", script].map(String::from);
        ask(&argv, &BTreeMap::new(), 1000, Duration::from_millis(limit_ms)).unwrap()
    }

    #[test]
    fn both_streams_and_the_status_are_told() {
        let answer = sh("echo out; echo err >&2; exit 3", 5000);
        assert_eq!((answer.exit, answer.timed_out), (Some(3), false));
        assert_eq!((&answer.stdout[..], &answer.stderr[..]), (&b"out\n"[..], &b"err\n"[..]));
    }

    #[test]
    fn programs_are_not_started_in_the_folder_of_the_agent() {
        assert_eq!(sh("pwd", 5000).stdout, b"/\n");
    }

    #[test]
    fn a_program_that_hangs_is_ended_and_one_that_leaves_a_daemon_is_not_waited_for() {
        let start = Instant::now();
        assert!(sh("sleep 100", 100).timed_out);
        assert_eq!(sh("sleep 100 & echo x", 20_000).stdout, b"x\n");
        assert!(start.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn a_program_that_nobody_waits_for_is_ended() {
        let argv = ["sh", "-c", "sleep 100 & wait"].map(String::from);
        let (start, stop) = (Instant::now(), AtomicBool::new(false));
        let answer = std::thread::scope(|scope| {
            let (argv, stop, limit) = (&argv, &stop, Duration::from_secs(60));
            let asked = scope.spawn(move || ask_unless(argv, &BTreeMap::new(), 10, limit, stop));
            std::thread::sleep(Duration::from_millis(100));
            stop.store(true, Ordering::Relaxed);
            asked.join().unwrap().unwrap()
        });
        assert!(answer.timed_out && start.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn endless_output_is_cut_at_the_cap() {
        assert_eq!(sh("head -c 1000000 /dev/zero", 5000).stdout.len(), 1000);
    }
}
