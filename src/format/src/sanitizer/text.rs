//! Reads the log that Compute Sanitizer prints: records, summaries and endings.

use crate::memory::MemoryBudget;

use super::details;
use super::heads;
use super::record::{Record, RecordKind, Severity};

/// The output of one run of compute-sanitizer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Log {
    /// Whether the tool's banner is present.
    pub banner: bool,
    /// All records in order.
    pub records: Vec<Record>,
    /// All summaries in order; several processes give several.
    pub summaries: Vec<Summary>,
    /// Endings after which the run proves nothing, or less than it seems to.
    pub aborts: Vec<Abort>,
    /// Number of errors that the tool counted but did not print (`--print-limit`).
    pub not_printed: u64,
    /// Other lines of the tool.
    pub notes: Vec<String>,
    /// Number of lines that are the program's own output.
    pub program_lines: u64,
    /// The first line that was left out because those before it take all the memory that a log of
    /// this size may take. Summaries after it are read all the same.
    pub first_left_out: Option<u64>,
}

/// Memory of a line of the tool, in bytes, with all that a profile makes of it.
const LINE_BYTES: usize = 1 << 10;
/// Most summaries of a log of which lines were left out: one for each process.
const MAX_LATE_SUMMARIES: usize = 4096;
/// How often a text of a line is kept.
const TEXT_COPIES: usize = 4;

/// A line of the tool's closing summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Summary {
    /// `ERROR SUMMARY: N errors`: memcheck, initcheck, synccheck.
    Errors(u64),
    /// `RACECHECK SUMMARY: H hazards displayed (E errors, W warnings)`.
    Races {
        /// Hazards that the tool printed.
        displayed: u64,
        /// Hazards that are errors.
        errors: u64,
        /// Hazards that are warnings.
        warnings: u64,
    },
    /// `LEAK SUMMARY: N bytes leaked in M allocations`.
    Leaks {
        /// Bytes that were not freed.
        bytes: u64,
        /// Number of allocations that were not freed.
        allocations: u64,
    },
}

/// A line that gives a reason why a run may have checked nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Abort {
    /// The kind of reason, by the words of the line.
    pub kind: AbortKind,
    /// The text of the line, without the prefix.
    pub text: String,
}

/// A line's information about the end of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AbortKind {
    /// The program ended without a CUDA call, or before its first kernel.
    NothingInstrumented,
    /// The tool found no process to attach to in time.
    NoProcess,
    /// The program does not exist.
    NoProgram,
    /// The program itself returned an error.
    ProgramFailed,
    /// This GPU or driver is not supported by this sanitizer.
    DeviceNotSupported,
    /// The tool itself failed, as `Internal error encountered` says.
    Internal,
    /// Errors were dropped inside the tool (buffer overflow).
    RecordsLost,
    /// Any other `Error: …`.
    Other,
}

const PREFIX: &str = "=========";
/// Details follow 5 or 9 blanks after the prefix, heads 1 (or 2: `Unused memory …`).
const DETAIL_INDENT: &str = "   ";

/// Reads a log. It never fails: other lines count as the program's output, and a log without tool
/// output gives an empty [`Log`], whose verdict is unknown.
pub fn read_log(data: &[u8]) -> Log {
    let mut log = Log::default();
    // The record that detail lines belong to. An unknown head becomes a record only with its first
    // detail line.
    let mut open = OpenRecord::Nothing;
    let mut offset = 0u64;
    let mut budget = MemoryBudget::for_file(data.len());
    for (raw, number) in data.split(|b| *b == b'\n').zip(1..) {
        let line = String::from_utf8_lossy(raw);
        let start = offset;
        offset += raw.len() as u64 + 1;
        let Some(text) = tool_part(line.trim_end_matches('\r'), &mut log.program_lines) else {
            continue;
        };
        let text = text.trim_end();
        if budget.take(LINE_BYTES + TEXT_COPIES * text.len()).is_err() {
            log.first_left_out.get_or_insert(number);
            if let Some(summary) = summary(text.trim_start()) {
                open.close(&mut log);
                // A tool prints few summaries.
                if log.summaries.len() < MAX_LATE_SUMMARIES {
                    log.summaries.push(summary);
                }
            }
            continue;
        }
        if text.trim_start().is_empty() {
            open.close(&mut log);
        } else if text.starts_with(DETAIL_INDENT) {
            open.detail(&mut log, text, start);
        } else {
            open.close(&mut log);
            open = head(&mut log, text.trim_start(), start);
        }
    }
    open.close(&mut log);
    log
}

enum OpenRecord {
    Nothing,
    Record(Box<Record>),
    Unknown { text: String, offset: u64 },
}

impl OpenRecord {
    fn close(&mut self, log: &mut Log) {
        match std::mem::replace(self, OpenRecord::Nothing) {
            OpenRecord::Nothing => {}
            OpenRecord::Record(record) => log.records.push(*record),
            OpenRecord::Unknown { text, .. } => log.notes.push(text),
        }
    }

    fn detail(&mut self, log: &mut Log, text: &str, offset: u64) {
        if let OpenRecord::Unknown { text, offset } = self {
            let record = Record::new(RecordKind::Other, Severity::Error, text, *offset);
            *self = OpenRecord::Record(Box::new(record));
        }
        match self {
            OpenRecord::Record(record) => details::apply(record, text),
            // A detail line without a head: its text may still be a known head.
            _ => match heads::read(text.trim_start(), offset) {
                Some(record) => *self = OpenRecord::Record(Box::new(record)),
                None => log.notes.push(text.trim().to_owned()),
            },
        }
    }
}

/// The part of a line after the tool's prefix. A program that prints without a newline leaves its
/// own text before the prefix.
fn tool_part<'l>(line: &'l str, program_lines: &mut u64) -> Option<&'l str> {
    if line.is_empty() {
        return None;
    }
    let found = line.find(PREFIX).and_then(|at| {
        let rest = &line[at + PREFIX.len()..];
        (rest.is_empty() || rest.starts_with(' ')).then_some((at, rest))
    });
    match found {
        Some((at, rest)) => {
            *program_lines += u64::from(at > 0);
            Some(rest)
        }
        None => {
            *program_lines += 1;
            None
        }
    }
}

fn head(log: &mut Log, text: &str, offset: u64) -> OpenRecord {
    if text == "COMPUTE-SANITIZER" || text == "CUDA-MEMCHECK" {
        log.banner = true;
    } else if let Some((count, _)) = text
        .strip_prefix("ERROR SUMMARY: ")
        .unwrap_or(text)
        .split_once(" not printed")
        .filter(|(count, _)| details::number(count).is_some())
    {
        log.not_printed = log.not_printed.saturating_add(details::number(count).unwrap_or(0));
    } else if let Some(summary) = summary(text) {
        log.summaries.push(summary);
    } else if let Some(kind) = abort(text) {
        log.aborts.push(Abort { kind, text: text.to_owned() });
    } else if let Some(record) = heads::read(text, offset) {
        return OpenRecord::Record(Box::new(record));
    } else if let Some(rest) = text.strip_prefix("Error: ") {
        log.aborts.push(Abort { kind: AbortKind::Other, text: rest.to_owned() });
    } else {
        return OpenRecord::Unknown { text: text.to_owned(), offset };
    }
    OpenRecord::Nothing
}

fn summary(text: &str) -> Option<Summary> {
    let (name, rest) = text.split_once(" SUMMARY: ")?;
    let first = details::number(rest)?;
    let in_brackets = |n: usize| -> Option<u64> {
        let (_, inside) = rest.split_once('(')?;
        details::number(inside.split(", ").nth(n)?)
    };
    match name {
        "ERROR" => Some(Summary::Errors(first)),
        "RACECHECK" => Some(Summary::Races {
            displayed: first,
            errors: in_brackets(0)?,
            warnings: in_brackets(1)?,
        }),
        "LEAK" => Some(Summary::Leaks {
            bytes: first,
            allocations: details::number(rest.split_once(" in ")?.1)?,
        }),
        _ => None,
    }
}

fn abort(text: &str) -> Option<AbortKind> {
    const KNOWN: [(&str, AbortKind); 11] = [
        ("Target application doesn't exist", AbortKind::NoProgram),
        ("terminated before first instrumented", AbortKind::NothingInstrumented),
        ("No attachable process found", AbortKind::NoProcess),
        ("Failed to find attachable process", AbortKind::NoProcess),
        ("Target application returned an error", AbortKind::ProgramFailed),
        ("process didn't terminate successfully", AbortKind::ProgramFailed),
        ("Device not supported", AbortKind::DeviceNotSupported),
        ("device not supported", AbortKind::DeviceNotSupported),
        ("Internal Sanitizer", AbortKind::Internal),
        ("Internal error encountered", AbortKind::Internal),
        ("error buffer overflow", AbortKind::RecordsLost),
    ];
    KNOWN.iter().find(|(words, _)| text.contains(words)).map(|(_, kind)| *kind)
}
