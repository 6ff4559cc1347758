//! Treats any bytes as the NVTX collector's log and as the runner's range log.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rgpu_format::{nvtx_log, range_log};

fuzz_target!(|file: &[u8]| {
    if let Ok(log) = nvtx_log::read(file) {
        let events: usize = log.sessions.iter().map(|session| session.events.len()).sum();
        assert!(events < file.len());
    }
    if let Ok(log) = range_log::read(file) {
        assert!(log.ranges.len() < file.len());
    }
});
