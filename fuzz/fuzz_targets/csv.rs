//! Treats any bytes as a CSV page of ncu and as output of `nsys stats`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rgpu_format::ncu_csv::{self, NcuCsv};
use rgpu_format::nsys_stats::NsysStats;

fuzz_target!(|file: &[u8]| {
    let _ = (NcuCsv::is_page(file), NsysStats::is_print(file));
    if let Ok(page) = NcuCsv::read(file) {
        let cells: usize = page.launches.iter().map(|launch| launch.cells.len()).sum();
        // A cell is a field of a row, and a field takes at least a comma.
        assert!(cells <= file.len());
        for cell in page.launches.iter().flat_map(|launch| &launch.cells) {
            let _ = ncu_csv::scale(&cell.unit);
        }
    }
    if let Ok(stats) = NsysStats::read(file) {
        for table in &stats.tables {
            for row in &table.rows {
                assert_eq!(row.len(), table.columns.len());
                for column in 0..row.len() {
                    let _ = (table.ns(row, Some(column)), table.bytes(row, Some(column)));
                }
            }
        }
    }
});
