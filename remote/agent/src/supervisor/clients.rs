//! The supervisor's clients: their messages, the lease, cancellation and standard input. The
//! supervisor waits here, but for pauses of milliseconds.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rgpu_protocol::frame::{self, FrameKind};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SendFlags, send};

use crate::control::Control;
use crate::host_fault::{HostFault, IoContext};

/// Why a job must stop before its steps are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopReason {
    /// A client cancelled the job.
    Cancelled,
}

/// The connected clients, and the state that their messages set.
pub(crate) struct ClientSet {
    listener: UnixListener,
    clients: Vec<Client>,
    stdin: StdinSpool,
    /// Bytes of standard input received, without repeats.
    received: u64,
    secrets: Option<BTreeMap<String, String>>,
    lease: Duration,
    renewed: Instant,
    detached: bool,
    cancelled: bool,
}

struct Client {
    stream: UnixStream,
    /// Bytes of an incomplete frame.
    partial: Vec<u8>,
    /// Bytes of standard input still expected in output frames.
    stdin_left: u64,
    /// Their offset in the whole input, if the client sends one.
    stdin_offset: Option<u64>,
    stdin_eof: bool,
}

impl ClientSet {
    /// Listens for clients. `spool` is the file for waiting standard input.
    pub(crate) fn new(listener: UnixListener, spool: PathBuf, lease: Duration) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self {
            listener,
            clients: Vec::new(),
            stdin: StdinSpool::new(spool),
            received: 0,
            secrets: None,
            lease,
            renewed: Instant::now(),
            detached: false,
            cancelled: false,
        })
    }

    /// Returns why the job must stop, or `None`.
    pub(crate) fn stop(&self) -> Option<StopReason> {
        self.cancelled.then_some(StopReason::Cancelled)
    }

    /// Detaches the job if its lease has expired; returns whether this call did so. A detached job
    /// has only its own limits, and its program reads the end of standard input.
    pub(crate) fn detach_if_lease_expired(&mut self) -> bool {
        let expired = !self.detached && self.renewed.elapsed() > self.lease;
        if expired {
            self.detached = true;
            self.stdin.end();
        }
        expired
    }

    /// Returns the secrets, once a client has sent them.
    pub(crate) fn secrets(&self) -> Option<&BTreeMap<String, String>> {
        self.secrets.as_ref()
    }

    /// Returns the spool of the running program's standard input.
    pub(crate) fn stdin(&mut self) -> &mut StdinSpool {
        &mut self.stdin
    }

    /// Wakes all clients, so that they read the event log.
    pub(crate) fn wake(&mut self) {
        for client in &self.clients {
            wake_client(&client.stream);
        }
    }

    /// Waits until a client sends something, one of `others` is ready, or `limit` has passed.
    /// Returns which of `others` are ready.
    pub(crate) fn wait(
        &mut self,
        others: &[(BorrowedFd<'_>, PollFlags)],
        limit: Duration,
    ) -> Result<Vec<bool>, HostFault> {
        let until_lease =
            (self.lease + Duration::from_millis(1)).saturating_sub(self.renewed.elapsed());
        let limit = if self.detached { limit } else { limit.min(until_lease) };
        let mut fds: Vec<PollFd<'_>> =
            others.iter().map(|(fd, flags)| PollFd::from_borrowed_fd(*fd, *flags)).collect();
        fds.push(PollFd::new(&self.listener, PollFlags::IN));
        fds.extend(self.clients.iter().map(|c| PollFd::new(&c.stream, PollFlags::IN)));
        // An hour at most; the caller calls again.
        let limit = limit.min(Duration::from_secs(3600));
        let timeout = Timespec { tv_sec: limit.as_secs() as _, tv_nsec: limit.subsec_nanos() as _ };
        if poll(&mut fds, Some(&timeout)).is_err() {
            // Interrupted: nothing is ready.
            return Ok(vec![false; others.len()]);
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        for at in (0..self.clients.len()).rev() {
            if ready[others.len() + 1 + at] && !self.read_client(at)? {
                self.clients.swap_remove(at);
            }
        }
        if ready[others.len()] {
            self.accept();
        }
        Ok(ready[..others.len()].to_vec())
    }

    fn accept(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            if stream.set_nonblocking(true).is_ok() {
                // Events may have been appended before this client could be woken.
                wake_client(&stream);
                let (partial, stdin_left, stdin_offset, stdin_eof) = (Vec::new(), 0, None, false);
                self.clients.push(Client { stream, partial, stdin_left, stdin_offset, stdin_eof });
            }
        }
    }

    /// Reads from a client. Returns false if it has disconnected.
    fn read_client(&mut self, at: usize) -> Result<bool, HostFault> {
        let mut chunk = [0; 64 << 10];
        let client = &mut self.clients[at];
        let connected = match client.stream.read(&mut chunk) {
            Ok(0) => false,
            Ok(n) => {
                client.partial.extend_from_slice(&chunk[..n]);
                true
            }
            Err(e) => matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted),
        };
        let bytes = std::mem::take(&mut client.partial);
        let mut used = 0;
        loop {
            match frame::parse(&bytes[used..]) {
                Ok(Some((frame, len))) => {
                    self.handle_frame(at, frame.kind, frame.body)?;
                    used += len;
                }
                Ok(None) => break,
                // Only our own connections send here. One that sends something else is dropped.
                Err(_) => return Ok(false),
            }
        }
        self.clients[at].partial.extend_from_slice(&bytes[used..]);
        Ok(connected)
    }

    fn handle_frame(&mut self, at: usize, kind: FrameKind, body: &[u8]) -> Result<(), HostFault> {
        self.renewed = Instant::now();
        let client = &mut self.clients[at];
        if kind != FrameKind::Message {
            client.stdin_left = client.stdin_left.saturating_sub(body.len() as u64);
            let ends = client.stdin_eof && client.stdin_left == 0;
            let at = client.stdin_offset.unwrap_or(self.received);
            client.stdin_offset =
                client.stdin_offset.map(|at| at.saturating_add(body.len() as u64));
            if at > self.received {
                // Our clients leave no gaps.
                return Ok(());
            }
            // A client that reconnects repeats bytes sent over its earlier link.
            let repeated = self.received.saturating_sub(at).min(body.len() as u64);
            let fresh = &body[repeated as usize..];
            if !fresh.is_empty() {
                self.stdin.push(fresh)?;
                self.received += fresh.len() as u64;
            }
            if ends {
                self.stdin.end();
            }
            return Ok(());
        }
        // A message type of a newer connection must not fail the job.
        let Ok(message) = serde_json::from_slice::<Control>(body) else { return Ok(()) };
        match message {
            Control::Secrets(values) => self.secrets = Some(values),
            Control::Stdin { len, eof, offset } => {
                (client.stdin_left, client.stdin_offset, client.stdin_eof) = (len, offset, eof);
                if eof && len == 0 && offset.is_none_or(|at| at <= self.received) {
                    self.stdin.end();
                }
            }
            Control::Renew => {}
            Control::Detach => self.detached = true,
            Control::Cancel => self.cancelled = true,
        }
        Ok(())
    }
}

/// Wakes a client. If the socket is full, a wake-up is pending already; a disconnected client is
/// noticed when it is read.
fn wake_client(stream: &UnixStream) {
    let _ = send(stream.as_fd(), b"!", SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}

/// Standard input on its way to a program. It waits in a file, so that a slow program never blocks
/// the connection, which may bring a cancellation.
pub(crate) struct StdinSpool {
    path: PathBuf,
    file: Option<File>,
    written: u64,
    taken: u64,
    ended: bool,
    /// Whether the end of input has been passed on.
    end_delivered: bool,
}

impl StdinSpool {
    fn new(path: PathBuf) -> Self {
        Self { path, file: None, written: 0, taken: 0, ended: false, end_delivered: false }
    }

    fn push(&mut self, bytes: &[u8]) -> Result<(), HostFault> {
        if self.taken == self.written && self.written > 0 {
            self.drop_taken(&self.path.clone())?;
        }
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                let mut open = OpenOptions::new();
                open.read(true).write(true).create(true).truncate(true);
                none.insert(open.open(&self.path).context("make", &self.path)?)
            }
        };
        file.write_all_at(bytes, self.written).context("write", &self.path)?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    fn drop_taken(&mut self, path: &Path) -> Result<(), HostFault> {
        if let Some(file) = &self.file {
            file.set_len(0).context("empty", path)?;
        }
        (self.written, self.taken) = (0, 0);
        Ok(())
    }

    fn end(&mut self) {
        self.ended = true;
    }

    /// Returns whether bytes are waiting.
    pub(crate) fn has_bytes(&self) -> bool {
        self.taken < self.written
    }

    /// Returns whether all bytes were taken and no more will come.
    pub(crate) fn is_over(&self) -> bool {
        self.ended && !self.has_bytes()
    }

    /// Returns whether the end of input has been passed on.
    pub(crate) fn is_end_delivered(&self) -> bool {
        self.end_delivered
    }

    /// Records that the end of input has been passed on.
    pub(crate) fn record_end_delivered(&mut self) {
        self.end_delivered = true;
    }

    /// Records that the end of input must be passed on again.
    pub(crate) fn deliver_end_again(&mut self) {
        self.end_delivered = false;
    }

    /// Reads the next bytes, at most `buffer.len()`. They stay in the spool until
    /// [`StdinSpool::took`].
    pub(crate) fn peek(&self, buffer: &mut [u8]) -> Result<usize, HostFault> {
        match &self.file {
            Some(file) if self.has_bytes() => {
                file.read_at(buffer, self.taken).context("read", &self.path)
            }
            _ => Ok(0),
        }
    }

    /// Removes `n` bytes that the program has taken.
    pub(crate) fn took(&mut self, n: usize) {
        self.taken += n as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standard_input_waits_until_it_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = StdinSpool::new(dir.path().join("stdin"));
        spool.push(b"abc").unwrap();
        let mut buffer = [0; 2];
        assert_eq!(spool.peek(&mut buffer).unwrap(), 2);
        spool.took(2);
        spool.push(b"d").unwrap();
        spool.end();
        assert!(!spool.is_over());
        assert_eq!((spool.peek(&mut buffer).unwrap(), &buffer), (2, b"cd"));
        spool.took(2);
        assert!(spool.is_over());
        spool.push(b"e").unwrap();
        assert_eq!((spool.peek(&mut buffer).unwrap(), buffer[0]), (1, b'e'));
    }

    #[test]
    fn input_that_comes_once_more_over_another_link_is_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("sock")).unwrap();
        let spool = dir.path().join("stdin");
        let mut clients = ClientSet::new(listener, spool, Duration::from_secs(60)).unwrap();
        let mut send =
            |links: &mut Vec<UnixStream>, link: usize, at: Option<u64>, text: &[u8], eof| {
                while links.len() <= link {
                    links.push(UnixStream::connect(dir.path().join("sock")).unwrap());
                    clients.wait(&[], Duration::ZERO).unwrap();
                }
                let control = Control::Stdin { len: text.len() as u64, eof, offset: at };
                crate::wire::write_message(&mut links[link], &control).unwrap();
                if !text.is_empty() {
                    crate::wire::write_frame(&mut links[link], FrameKind::Output, text).unwrap();
                }
                clients.wait(&[], Duration::from_secs(5)).unwrap();
                let mut all = [0; 64];
                let n = clients.stdin().peek(&mut all).unwrap();
                (String::from_utf8_lossy(&all[..n]).into_owned(), clients.stdin().ended)
            };
        let mut links = Vec::new();
        assert_eq!(send(&mut links, 0, Some(0), b"abc", false).0, "abc");
        assert_eq!(send(&mut links, 1, Some(0), b"abcd", false).0, "abcd");
        // The first link delivers its bytes late.
        assert_eq!(send(&mut links, 0, Some(3), b"d", false).0, "abcd");
        assert_eq!(send(&mut links, 1, Some(4), b"e", false).0, "abcde");
        // A gap is refused.
        assert_eq!(send(&mut links, 0, Some(9), b"z", false).0, "abcde");
        assert_eq!(send(&mut links, 0, Some(10), b"", true), ("abcde".into(), false));
        // A client that sends no offset.
        assert_eq!(send(&mut links, 0, None, b"f", false).0, "abcdef");
        assert_eq!(send(&mut links, 1, Some(6), b"", true), ("abcdef".into(), true));
    }

    #[test]
    fn a_lease_that_nobody_renews_runs_out_once_unless_the_client_left_on_purpose() {
        let dir = tempfile::tempdir().unwrap();
        let clients = |name: &str| {
            let listener = UnixListener::bind(dir.path().join(name)).unwrap();
            ClientSet::new(listener, dir.path().join("stdin"), Duration::from_millis(10)).unwrap()
        };
        let mut left = clients("left");
        assert!(!left.detach_if_lease_expired());
        left.wait(&[], Duration::from_secs(5)).unwrap();
        assert!(left.detach_if_lease_expired() && !left.detach_if_lease_expired());
        assert!(left.stdin().is_over());
        assert_eq!(left.stop(), None);
        let mut detached = clients("detached");
        detached.detached = true;
        std::thread::sleep(Duration::from_millis(20));
        assert!(!detached.detach_if_lease_expired());
    }
}
