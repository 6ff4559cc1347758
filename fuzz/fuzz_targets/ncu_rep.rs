//! Treats any bytes as an ncu report: no panic, no unbounded memory, and recovered data is
//! readable.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rgpu_format::ncu_rep::{NcuReadLimits, NcuReport};

fuzz_target!(|file: &[u8]| {
    let limits = NcuReadLimits { max_size: 1 << 22 };
    let Ok((report, problems)) = NcuReport::read(file, &limits) else { return };
    for problem in problems {
        let _ = problem.to_string();
    }
    for result in report.results() {
        for metric in result.metrics() {
            let _ = (metric.unit(), metric.value().number(), metric.instances().count());
            // A name that is not UTF-8 is not found by its replacement text.
            let found = result.metric(metric.name()).is_some();
            assert!(found || metric.name().contains(char::REPLACEMENT_CHARACTER));
        }
        let _ = (result.rules().count(), result.nvtx());
        for section in result.sections() {
            let _ = (section.raw(), section.header(), section.tables(), section.rooflines());
            let _ = section.rooflines_for(90);
        }
    }
    for source in report.sources() {
        let _ = source.function_at(u64::MAX);
    }
});
