//! Treats any bytes as an nsys export; SQLite opens the file itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rgpu_format::nsys_sqlite::NsysSqlite;

fuzz_target!(|file: &[u8]| {
    let path = std::env::temp_dir().join(format!("rgpu-fuzz-{}.sqlite", std::process::id()));
    if std::fs::write(&path, file).is_err() {
        return;
    }
    if let Ok(export) = NsysSqlite::open(&path) {
        let mut rows = 0_u64;
        let _ = export.kernels(|_| rows += 1);
        let _ = export.memcpys(|_| rows += 1);
        let _ = export.memsets(|_| rows += 1);
        let _ = export.api_calls(|_| rows += 1);
        let _ = export.nvtx_events(|_| rows += 1);
        let _ = export.graph_launches(|_| rows += 1);
        let _ = (export.strings(), export.gpus(), export.diagnostics(), export.schema_version());
        // A row takes at least a byte of the file.
        assert!(rows <= 8 * file.len() as u64);
    }
});
