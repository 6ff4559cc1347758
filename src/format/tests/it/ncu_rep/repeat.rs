//! Builds large reports from small recordings by repeating the results.

use rgpu_format::wire::Message;

/// Block headers store session details and strings under these field numbers.
const SESSION: u32 = 3;
const STRINGS: u32 = 4;

/// The report followed by `times - 1` copies of its blocks without their session and strings, so
/// that the copies' metrics find their names where the first ones do.
pub(crate) fn repeat(report: &[u8], times: usize) -> Vec<u8> {
    let first = 8 + length(report, 4);
    let mut copy = Vec::new();
    let mut at = first;
    while at < report.len() {
        let start = at + 4;
        let header = &report[start..start + length(report, at)];
        let (kept, payload) = header_without_strings(header);
        at = start + header.len() + payload;
        copy.extend_from_slice(&(kept.len() as u32).to_le_bytes());
        copy.extend_from_slice(&kept);
        copy.extend_from_slice(&report[start + header.len()..at]);
    }
    let mut out = report.to_vec();
    for _ in 1..times {
        out.extend_from_slice(&copy);
    }
    out
}

/// The end offsets of a report's blocks.
#[allow(dead_code, reason = "the benchmark has no use for it")]
pub(crate) fn boundaries(report: &[u8]) -> Vec<usize> {
    let mut at = 8 + length(report, 4);
    let mut ends = vec![at];
    while at < report.len() {
        let start = at + 4;
        let header = &report[start..start + length(report, at)];
        ends.push(start + header.len());
        at = start + header.len() + header_without_strings(header).1;
        ends.push(at);
    }
    ends
}

fn length(report: &[u8], at: usize) -> usize {
    u32::from_le_bytes([report[at], report[at + 1], report[at + 2], report[at + 3]]) as usize
}

/// A block header's other fields, and the size of its payload.
fn header_without_strings(header: &[u8]) -> (Vec<u8>, usize) {
    let fields: Vec<_> = Message::new(header, 0).fields().flatten().collect();
    let ends = fields.iter().skip(1).map(|field| field.offset).chain([header.len()]);
    let (mut kept, mut payload) = (Vec::new(), 0);
    for (field, end) in fields.iter().zip(ends) {
        if field.number == 5 {
            payload = field.varint().unwrap_or(0) as usize;
        }
        if field.number != SESSION && field.number != STRINGS {
            kept.extend_from_slice(&header[field.offset..end]);
        }
    }
    (kept, payload)
}
