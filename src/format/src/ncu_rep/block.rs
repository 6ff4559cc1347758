//! The middle layer: blocks, their headers, and the positions of the entries in their payloads.
//!
//! Only the block headers are decoded here; entries stay byte ranges.

use super::error::{Error, Problem};
use super::notes::Notes;
use super::session::Process;
use super::wire::Message;

/// The newest known file version (2022.1 to 2025.3 all write 7).
const KNOWN_VERSION: u64 = 7;

/// Maximum number of processes kept: a limit for damaged files.
const MAX_PROCESSES: usize = 256;

/// Message names, used in problems.
const HEADER: &str = "block header";

/// Kind of a payload entry. The variants are in payload order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryKind {
    Source,
    Kernel,
    Range,
    CommandList,
    Graph,
}

impl EntryKind {
    fn name(self) -> &'static str {
        match self {
            EntryKind::Source => "source",
            EntryKind::Kernel => "kernel result",
            EntryKind::Range => "range result",
            EntryKind::CommandList => "command list result",
            EntryKind::Graph => "graph result",
        }
    }
}

/// Position of one entry.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) kind: EntryKind,
    pub(super) offset: usize,
    pub(super) length: usize,
}

impl Entry {
    /// The entry's bytes; empty if `bytes` are not the indexed file.
    pub(super) fn message<'a>(&self, bytes: &'a [u8]) -> Message<'a> {
        let end = self.offset.saturating_add(self.length);
        Message::new(bytes.get(self.offset..end).unwrap_or_default(), self.offset)
    }
}

/// The positions of all entries, strings and sessions of a file.
#[derive(Debug, Default)]
pub(super) struct Index {
    pub(super) version: u64,
    pub(super) blocks: usize,
    pub(super) entries: Vec<Entry>,
    /// The offset of each string's tag. The table is the concatenation over all blocks, and results
    /// may use strings of later blocks.
    pub(super) strings: Vec<usize>,
    /// `SessionDetails` of every block, in order; they are merged later.
    pub(super) sessions: Vec<(usize, usize)>,
    pub(super) processes: Vec<Process>,
}

impl Index {
    /// Indexes the blocks. Of a cut file, every complete part is kept.
    pub(super) fn read(bytes: &[u8], notes: &mut Notes) -> Result<Index, Error> {
        let mut index = Index::default();
        let header = prefixed(bytes, 4)
            .ok_or(Error::FileHeader { offset: 4, reason: "the file ends inside it" })?;
        notes.walk(header, "file header", |_, field| match field.number {
            1 => field.varint().map(|version| index.version = version),
            _ => None,
        });
        if index.version == 0 {
            return Err(Error::FileHeader { offset: 8, reason: "it has no version" });
        }
        if index.version > KNOWN_VERSION {
            let version = index.version;
            notes.problems.push(Problem::Version { version, known: KNOWN_VERSION });
        }
        let mut at = header.offset() + header.bytes().len();
        while at < bytes.len() {
            match index.block(bytes, at, notes) {
                Some(next) => at = next,
                None => break,
            }
        }
        Ok(index)
    }

    /// Reads the block at `at` and returns the offset of the next one.
    fn block(&mut self, bytes: &[u8], at: usize, notes: &mut Notes) -> Option<usize> {
        let Some(header) = prefixed(bytes, at) else {
            let needed = needed(bytes, at);
            notes.problems.push(Problem::Cut {
                offset: at,
                what: HEADER,
                needed,
                end: bytes.len(),
            });
            return None;
        };
        let mut counts = [0_u64; 5];
        let mut payload_size = 0;
        notes.walk(header, HEADER, |notes, field| match field.number {
            1 => field.varint().map(|count| counts[0] = count),
            2 => field.varint().map(|count| counts[1] = count),
            3 => field.message().map(|m| self.sessions.push((m.offset(), m.bytes().len()))),
            4 => field.message().map(|table| self.add_strings(table, notes)),
            5 => field.varint().map(|size| payload_size = size),
            6 => field.message().map(|message| {
                // Every block repeats the process of its entries.
                let process = Process::read(message, notes);
                if self.processes.len() < MAX_PROCESSES && !self.processes.contains(&process) {
                    self.processes.push(process);
                }
            }),
            7 => field.varint().map(|count| counts[2] = count),
            8 => field.varint().map(|count| counts[3] = count),
            9 => field.varint().map(|count| counts[4] = count),
            _ => None,
        });
        self.blocks += 1;
        let start = header.offset() + header.bytes().len();
        let end = usize::try_from(payload_size).ok().and_then(|size| start.checked_add(size));
        match end.filter(|&end| end <= bytes.len()) {
            Some(end) => {
                self.payload(bytes, at, start, end, counts, notes);
                Some(end)
            }
            None => {
                let needed = ((start - at) as u64).saturating_add(payload_size);
                let end = bytes.len();
                notes.problems.push(Problem::Cut { offset: at, what: "block", needed, end });
                self.payload(bytes, at, start, end, counts, notes);
                None
            }
        }
    }

    fn payload(
        &mut self,
        bytes: &[u8],
        block: usize,
        start: usize,
        end: usize,
        counts: [u64; 5],
        notes: &mut Notes,
    ) {
        use EntryKind::{CommandList, Graph, Kernel, Range, Source};
        let payload = bytes.get(..end).unwrap_or(bytes);
        let mut at = start;
        for (kind, count) in [Source, Kernel, Range, CommandList, Graph].into_iter().zip(counts) {
            for _ in 0..count {
                let Some(entry) = prefixed(payload, at) else {
                    let (needed, end) = (needed(payload, at), payload.len());
                    notes.problems.push(if at < end {
                        Problem::Cut { offset: at, what: kind.name(), needed, end }
                    } else {
                        Problem::Entries { offset: block }
                    });
                    return;
                };
                at = entry.offset() + entry.bytes().len();
                // A message has required fields, so an empty one is damaged. Skipping it keeps the
                // index small relative to the file.
                if entry.bytes().is_empty() {
                    notes.problems.push(Problem::Entries { offset: block });
                    continue;
                }
                let (offset, length) = (entry.offset(), entry.bytes().len());
                self.entries.push(Entry { kind, offset, length });
            }
        }
        if at < payload.len() {
            notes.problems.push(Problem::Slack { offset: at, bytes: payload.len() - at });
        }
    }

    fn add_strings(&mut self, table: Message<'_>, notes: &mut Notes) {
        notes.walk(table, "string table", |_, field| match field.number {
            1 => field.message().map(|_| self.strings.push(field.offset)),
            _ => None,
        });
    }
}

/// The message after the `u32` length at `at`, if it is complete.
fn prefixed(bytes: &[u8], at: usize) -> Option<Message<'_>> {
    let start = at.checked_add(4)?;
    let length = usize::try_from(length(bytes, at)?).ok()?;
    Some(Message::new(bytes.get(start..start.checked_add(length)?)?, start))
}

fn length(bytes: &[u8], at: usize) -> Option<u32> {
    let prefix = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(prefix.try_into().ok()?))
}

/// The number of bytes that the message at `at` needs, as far as the file states it.
fn needed(bytes: &[u8], at: usize) -> u64 {
    length(bytes, at).map_or(4, |length| 4 + u64::from(length))
}
