//! Treats any bytes as compute-sanitizer's log and as its XML.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rgpu_format::sanitizer::{self, Record, Tool, Verdict};

/// Every record belongs to exactly one cause.
fn group(records: &[Record]) {
    let causes = sanitizer::group(records);
    let members = causes.iter().map(|c| 1 + c.repeats.len() + c.follow_ups.len());
    assert_eq!(members.sum::<usize>(), records.len());
}

fuzz_target!(|file: &[u8]| {
    let log = sanitizer::read_log(file);
    group(&log.records);
    for tool in [Tool::Memcheck, Tool::Racecheck, Tool::Initcheck, Tool::Synccheck] {
        let clean = sanitizer::verdict(&log, tool) == Verdict::Clean;
        assert!(!clean || (!log.summaries.is_empty() && log.aborts.is_empty()));
    }
    if let Ok(report) = sanitizer::read_xml(file) {
        group(&report.records);
    }
});
