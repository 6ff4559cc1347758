//! The types of the log's lines, and their serialization to JSON. The crate's root documents the
//! fields.
//!
//! The callbacks of NVTX and CUPTI fill them; `sink` writes the bytes to the log file.

use serde::Serialize;
use std::borrow::Cow;

/// Version of the format, in the `opened` line.
pub(crate) const FORMAT: u32 = 1;

/// A line about the log itself, or one that names a domain, category, thread or kernel.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub(crate) enum Notice<'a> {
    Opened {
        format: u32,
        pid: u32,
        ppid: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        exe: Option<&'a str>,
        clock: &'a str,
        ns: u64,
        unix_ns: u64,
        limit_bytes: u64,
    },
    Domain {
        domain: usize,
        name: &'a str,
    },
    Category {
        domain: usize,
        category: u32,
        name: &'a str,
    },
    Thread {
        tid: u32,
        name: &'a str,
    },
    Cupti {
        state: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        version: Option<u32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        path: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        clock: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        text: Option<&'a str>,
    },
    Name {
        id: u32,
        text: &'a str,
    },
    Closed {
        ns: u64,
        events: u64,
        dropped: u64,
        unbalanced: u64,
        work: u64,
        calls: u64,
        lost: u64,
    },
}

/// A kernel, copy or fill on a GPU, or a call into CUDA.
#[serde_with::skip_serializing_none]
#[derive(Serialize, Default)]
pub(crate) struct Activity {
    pub(crate) event: &'static str,
    pub(crate) ns: Option<u64>,
    pub(crate) end_ns: Option<u64>,
    pub(crate) id: u32,
    pub(crate) tid: Option<u32>,
    pub(crate) device: Option<u32>,
    pub(crate) context: Option<u32>,
    pub(crate) stream: Option<u32>,
    pub(crate) name: Option<u32>,
    pub(crate) grid: Option<[u32; 3]>,
    pub(crate) block: Option<[u32; 3]>,
    pub(crate) registers: Option<u32>,
    pub(crate) static_bytes: Option<u32>,
    pub(crate) dynamic_bytes: Option<u32>,
    pub(crate) local_bytes: Option<u32>,
    pub(crate) graph_node: Option<u64>,
    pub(crate) kind: Option<u8>,
    pub(crate) value: Option<u32>,
    pub(crate) bytes: Option<u64>,
    pub(crate) result: Option<u32>,
}

/// A push, pop, start, end or mark of NVTX. Without `#[serde(flatten)]`, which would double the
/// time to write a line.
#[serde_with::skip_serializing_none]
#[derive(Serialize)]
pub(crate) struct Event<'a> {
    pub(crate) event: &'static str,
    pub(crate) ns: u64,
    pub(crate) tid: u32,
    pub(crate) domain: usize,
    pub(crate) level: Option<u32>,
    pub(crate) id: Option<u64>,
    pub(crate) message: Option<&'a str>,
    pub(crate) category: Option<u32>,
    pub(crate) color: Option<u32>,
    pub(crate) payload: Option<Payload>,
}

/// The attributes that a program gives a range or a mark.
#[derive(Default)]
pub(crate) struct Attributes<'a> {
    pub(crate) message: Option<Cow<'a, str>>,
    pub(crate) category: Option<u32>,
    pub(crate) color: Option<u32>,
    pub(crate) payload: Option<Payload>,
}

/// The number that a program may attach to a range or mark.
#[derive(Serialize, Clone, Copy)]
#[serde(untagged)]
pub(crate) enum Payload {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
}

/// Appends `line` and its newline to `bytes`.
pub(crate) fn append(bytes: &mut Vec<u8>, line: &impl Serialize) {
    let before = bytes.len();
    // Plain structs with string keys always serialize; on an error no partial line is left.
    match serde_json::to_writer(&mut *bytes, line) {
        Ok(()) => bytes.push(b'\n'),
        Err(_) => bytes.truncate(before),
    }
}
