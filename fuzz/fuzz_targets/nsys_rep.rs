//! Treats any bytes as a report of Nsight Systems.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rgpu_format::nsys_rep::{EventTable, NsysReport};

fuzz_target!(|file: &[u8]| {
    let _ = NsysReport::salvage(file).map(|report| report.events(|_| {}));
    let Ok(report) = NsysReport::read(file) else { return };
    let (whole, _) = report.whole_chunks();
    assert!(whole.events(|_| {}).is_ok());
    let _ = (report.build(), report.gpus().len(), report.strings().len());
    let _ = report.events(|_| {});
    let Ok(index) = report.index() else { return };
    for table in [EventTable::Kernel, EventTable::Nvtx, EventTable::OtherGpuWork] {
        let _ = report.events_of(&index, table, Some, |_| {});
    }
});
