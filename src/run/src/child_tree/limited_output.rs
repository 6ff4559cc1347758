//! The output of a command, up to a limit: its beginning and its end go to a log, and a line says
//! how many bytes between them were dropped.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write, pipe};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, poll};

/// The end of an output that is kept beyond the limit.
const MAX_END_BYTES: usize = 64 << 10;

/// Most bytes per read.
const READ_BYTES: usize = 64 << 10;

/// Most bytes that are read after the command has ended: what is left in the pipe.
const MAX_REST_BYTES: usize = 2 << 20;

/// A command's output on its way into a log.
#[derive(Debug)]
pub struct LimitedOutput {
    copier: JoinHandle<()>,
    /// Dropped when the command has ended.
    ended: PipeWriter,
}

impl LimitedOutput {
    /// Copies into `log`, which may have `limit` bytes in all, what is written to the returned
    /// pipe.
    pub fn start(log: File, limit: u64) -> io::Result<(PipeWriter, Self)> {
        let (output, writer) = pipe()?;
        let (end, ended) = pipe()?;
        let len = log.metadata()?.len();
        let room = limit.saturating_sub(len);
        let log = LimitedLog { log, limit, room, dropped: 0, end: VecDeque::new() };
        let builder = std::thread::Builder::new().name("output".to_owned());
        let copier = builder.spawn(move || copy(output, &end, log))?;
        Ok((writer, Self { copier, ended }))
    }

    /// Takes what is left once the command and its processes have ended, and says what was dropped.
    pub fn finish(self) {
        drop(self.ended);
        let _ = self.copier.join();
    }
}

fn copy(mut output: PipeReader, end: &PipeReader, mut log: LimitedLog) {
    let mut bytes = vec![0; READ_BYTES];
    let mut rest = MAX_REST_BYTES;
    while rest > 0 {
        let mut both = [PollFd::new(&output, PollFlags::IN), PollFd::new(end, PollFlags::IN)];
        let polled = poll(&mut both, None);
        let [has_output, has_ended] = both.map(|fd| !fd.revents().is_empty());
        match polled {
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => break,
            // Nothing is left, though a process that cannot be killed may hold the pipe.
            Ok(_) if !has_output => break,
            Ok(_) => {}
        }
        match output.read(&mut bytes) {
            Ok(0) => break,
            Ok(count) => {
                log.append(&bytes[..count]);
                if has_ended {
                    rest = rest.saturating_sub(count);
                }
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    log.finish();
}

/// A log that takes no more than its limit.
#[derive(Debug)]
struct LimitedLog {
    log: File,
    limit: u64,
    room: u64,
    /// Bytes that found no room.
    dropped: u64,
    /// The last of them.
    end: VecDeque<u8>,
}

impl LimitedLog {
    fn append(&mut self, bytes: &[u8]) {
        let room = usize::try_from(self.room).unwrap_or(usize::MAX);
        let (kept, dropped) = bytes.split_at(bytes.len().min(room));
        // What a full disk does not take is dropped, too.
        let dropped = match self.log.write_all(kept) {
            Ok(()) => dropped,
            Err(_) => bytes,
        };
        self.room = self.room.saturating_sub(kept.len() as u64);
        if dropped.is_empty() {
            return;
        }
        if self.dropped == 0 {
            let limit = self.limit;
            let _ = writeln!(
                self.log,
                "\nrgpu: the log has {limit} bytes, its limit: output is dropped from here on, but \
                 for its end"
            );
        }
        self.dropped += dropped.len() as u64;
        let last = &dropped[dropped.len().saturating_sub(MAX_END_BYTES)..];
        self.end.extend(last);
        let excess = self.end.len().saturating_sub(MAX_END_BYTES);
        self.end.drain(..excess);
    }

    fn finish(&mut self) {
        if self.dropped == 0 {
            return;
        }
        let lost = self.dropped - self.end.len() as u64;
        let _ = writeln!(self.log, "rgpu: {lost} bytes of output were dropped; the end follows");
        let _ = self.log.write_all(self.end.make_contiguous());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log_of(limit: u64, pieces: &[&[u8]]) -> Vec<u8> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let (mut writer, output) =
            LimitedOutput::start(File::create(&path).unwrap(), limit).unwrap();
        for piece in pieces {
            writer.write_all(piece).unwrap();
        }
        // The writer stays open, as in a process that cannot be killed.
        output.finish();
        drop(writer);
        std::fs::read(&path).unwrap()
    }

    #[test]
    fn an_output_below_the_limit_is_whole() {
        assert_eq!(log_of(10, &[b"12345", b"67890"]), b"1234567890");
        assert_eq!(log_of(10, &[]), b"");
    }

    #[test]
    fn above_the_limit_beginning_and_end_stay_and_the_bytes_between_are_counted() {
        let long = vec![b'x'; 1_000_000];
        let log = String::from_utf8(log_of(5, &[b"begin", &long, b"end"])).unwrap();
        let lost = 1_000_000 + 3 - MAX_END_BYTES;
        assert!(log.starts_with("begin\nrgpu: the log has 5 bytes, its limit"), "{}", &log[..200]);
        assert!(log.contains(&format!("\nrgpu: {lost} bytes of output were dropped; ")));
        assert!(log.ends_with("xend"), "{}", &log[log.len() - 20..]);
        assert!(log.len() < MAX_END_BYTES + 500, "{}", log.len());
    }
}
