//! A job's event log: one JSON line per event, append-only. It is the only record of what happened.
//!
//! Some space beyond the end is reserved, so that the terminal event can be written on a full disk.
//! A line cut off by a kill or a power failure is removed before the next append.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rgpu_protocol::{Event, EventBody};
use rustix::fs::FallocateFlags;

use crate::host_fault::{HostFault, IoContext};

/// Space reserved for the terminal event.
const RESERVED_BYTES: u64 = 64 << 10;

/// The writer of the log. The holder of the job's lock is the only one.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
    len: u64,
    reserved: u64,
    seq: u64,
}

impl Journal {
    /// Creates or continues the log at `path`. Returns the last event too.
    pub fn open(path: &Path) -> Result<(Self, Option<Event>), HostFault> {
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let file = file.context("open", path)?;
        let mut reader = JournalReader { file, at: 0 };
        let mut last = None;
        let mut seq = 0;
        loop {
            let events = reader.read_new().context("read", path)?;
            let Some(event) = events.into_iter().next_back() else { break };
            seq = event.seq;
            last = Some(event);
        }
        let JournalReader { file, at: len } = reader;
        // Truncate only if there is a partial line: it releases the reserved space, which may be
        // the last on a full disk.
        if file.metadata().context("look at", path)?.len() > len {
            file.set_len(len).context("cut", path)?;
        }
        Ok((Self { file, path: path.to_owned(), len, reserved: len, seq }, last))
    }

    /// Appends an event with the next number.
    ///
    /// # Errors
    /// The event cannot be written completely; the log then ends with the one before.
    pub fn append(&mut self, body: EventBody) -> Result<(), HostFault> {
        let is_terminal = matches!(body, EventBody::Ended { .. });
        let event = Event { seq: self.seq + 1, at_ms: now_ms(), body };
        let mut line =
            serde_json::to_vec(&event).map_err(io::Error::from).context("tell", &self.path)?;
        line.push(b'\n');
        let end = self.len + line.len() as u64;
        if !is_terminal && end + RESERVED_BYTES / 2 > self.reserved {
            self.reserve(end)?;
        }
        if let Err(e) = self.file.write_all_at(&line, self.len) {
            // Remove a partial line.
            let _ = self.file.set_len(self.len);
            return Err(e).context("write", &self.path);
        }
        self.len = end;
        self.seq += 1;
        Ok(())
    }

    fn reserve(&mut self, end: u64) -> Result<(), HostFault> {
        let to = end + RESERVED_BYTES;
        match rustix::fs::fallocate(&self.file, FallocateFlags::KEEP_SIZE, self.len, to - self.len)
        {
            Err(e @ (rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT)) => {
                Err(e).context("write", &self.path)
            }
            // File systems without reservation work without it.
            _ => {
                self.reserved = to;
                Ok(())
            }
        }
    }

    /// Releases the reserved space, after the terminal event.
    pub fn close(self) {
        // A longer file does no harm.
        let _ = self.file.set_len(self.len);
    }
}

/// A reader of the log. There may be any number, at any time.
#[derive(Debug)]
pub struct JournalReader {
    file: File,
    /// End of the last complete line read. The writer may still cut off what follows.
    at: u64,
}

impl JournalReader {
    /// Opens the log at `path` for reading from its start.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { file: File::open(path)?, at: 0 })
    }

    /// Returns the complete events appended since the last call, some hundred KiB at most, or none
    /// if there are no more for now. Invalid lines are skipped.
    pub fn read_new(&mut self) -> io::Result<Vec<Event>> {
        let mut chunk = vec![0; 64 << 10];
        loop {
            let n = self.file.read_at(&mut chunk, self.at)?;
            let Some(end) = chunk[..n].iter().rposition(|b| *b == b'\n') else {
                if n < chunk.len() {
                    return Ok(Vec::new());
                }
                // The line is longer than the chunk.
                chunk.resize(chunk.len() * 2, 0);
                continue;
            };
            self.at += end as u64 + 1;
            let lines = chunk[..end].split(|b| *b == b'\n');
            let events: Vec<Event> =
                lines.filter_map(|line| serde_json::from_slice(line).ok()).collect();
            if !events.is_empty() {
                return Ok(events);
            }
        }
    }
}

/// Returns the Unix time in milliseconds.
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_cut_by_a_kill_is_removed_before_the_next_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        let (mut journal, last) = Journal::open(&path).unwrap();
        assert!(last.is_none());
        journal.append(EventBody::GpuReleased {}).unwrap();
        drop(journal);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes.extend(br#"{"seq":2,"at_"#);
        std::fs::write(&path, &bytes).unwrap();

        let (mut journal, last) = Journal::open(&path).unwrap();
        assert_eq!(last.unwrap().seq, 1);
        journal.append(EventBody::GpuReleased {}).unwrap();
        journal.close();
        let text = std::fs::read_to_string(&path).unwrap();
        let seqs: Vec<u64> =
            text.lines().map(|l| serde_json::from_str::<Event>(l).unwrap().seq).collect();
        assert_eq!(seqs, [1, 2]);
    }

    #[test]
    fn a_reader_sees_whole_lines_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("e");
        std::fs::write(&path, "{\"seq\":1,\"at_ms\":0,\"event\":\"gpu_released\"}\n{\"se").unwrap();
        let mut reader = JournalReader::open(&path).unwrap();
        assert_eq!(reader.read_new().unwrap().len(), 1);
        assert!(reader.read_new().unwrap().is_empty());
    }
}
