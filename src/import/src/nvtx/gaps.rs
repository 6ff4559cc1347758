//! The gaps of a profile for data that the collector's logs lack: dropped events, damaged lines,
//! CUPTI that could not be used.

use rgpu_format::nvtx_log::{Cupti, NvtxLog};

use super::paired::PairedRanges;
use rgpu_model::number_form::by_number;
use rgpu_model::profile::Gap;

/// The state of CUPTI in each process that initialised CUDA.
pub(super) fn cupti(log: &NvtxLog) -> impl Iterator<Item = &Cupti> {
    log.sessions.iter().filter_map(|session| session.cupti.as_ref())
}

/// The gap for lines of one log that cannot be read.
pub(super) fn damaged(log: &NvtxLog, from: &str) -> Option<Gap> {
    let offset = log.first_broken?;
    let text = match log.broken_lines {
        1 => format!("{from}: 1 line, at offset {offset}, cannot be read"),
        lines => format!("{from}: {lines} lines cannot be read, the first at offset {offset}"),
    };
    Some(Gap { code: "damaged_report".to_owned(), text })
}

pub(super) fn gaps(log: &NvtxLog, paired: &PairedRanges<'_>, from: &str) -> Vec<Gap> {
    let asked = cupti(log).next().is_some();
    let untimed = log.sessions.iter().flat_map(|s| &s.work).filter(|w| w.span_ns.is_none()).count();
    let lost = log.sessions.iter().filter_map(|s| s.closed.as_ref());
    let lost: u64 = lost.map(|closed| closed.lost).fold(0, u64::saturating_add);
    let off: Vec<&Cupti> = cupti(log).filter(|cupti| cupti.state != "on").collect();
    let why_off = off.iter().find_map(|cupti| cupti.text.as_deref());
    let compared = cupti(log).any(|cupti| cupti.clock.as_deref() == Some("compared"));
    let closed = log.sessions.iter().filter_map(|session| session.closed.as_ref());
    let dropped: u64 = closed.map(|closed| closed.dropped).fold(0, u64::saturating_add);
    let cut = log.sessions.iter().filter(|session| session.closed.is_none()).count();
    let all = [
        (
            dropped > 0,
            "dropped_events",
            format!(
                "{from}: {dropped} {} left out: the log was full or could not be written",
                by_number(dropped, "line was", "lines were")
            ),
        ),
        (
            cut > 0,
            "unfinished_log",
            format!(
                "{from}: the program ended without closing the log; its last {} may be missing",
                if asked { "half second" } else { "100 ms" }
            ),
        ),
        (
            paired.open > 0,
            "open_ranges",
            format!(
                "{from}: {} NVTX range{} never ended; counted until the last event",
                paired.open,
                if paired.open == 1 { "" } else { "s" }
            ),
        ),
        (
            paired.stray > 0,
            "stray_ends",
            match paired.stray {
                1 => format!("{from}: 1 pop or end closes a range that never began"),
                stray => format!("{from}: {stray} pops or ends close ranges that never began"),
            },
        ),
        (
            lost > 0,
            "lost_records",
            format!(
                "{from}: CUPTI's buffers were full: {lost} records of kernels, copies and calls are missing"
            ),
        ),
        (
            untimed > 0,
            "untimed_work",
            format!(
                "{from}: CUPTI has no times of {untimed} kernels, copies or fills; they are left out"
            ),
        ),
        (
            !off.is_empty() && log.sessions.iter().any(|session| !session.work.is_empty()),
            "cupti_unusable",
            format!(
                "{from}: {} of the processes had no CUPTI{}; their work on the GPU is missing",
                off.len(),
                why_off.map(|why| format!(" ({why})")).unwrap_or_default()
            ),
        ),
        (
            compared,
            "clock_compared",
            format!(
                "{from}: this version of CUPTI has its own clock; it was compared with the clock \
                 of the ranges once"
            ),
        ),
    ];
    let gaps = all.into_iter().filter(|(holds, ..)| *holds);
    gaps.map(|(_, code, text)| Gap { code: code.to_owned(), text }).collect()
}
