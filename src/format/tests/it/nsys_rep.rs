//! Compares the native reader of Nsight Systems reports with nsys's own sqlite of the same report.

use crate::{damage, fixture};
use rgpu_format::nsys_rep::{EventTable, NsysEvent, NsysRepError, NsysReport};
use rgpu_format::nsys_row::Diagnostic;
use rgpu_format::nsys_sqlite::NsysSqlite;

#[test]
fn every_row_equals_the_one_that_nsys_exports() {
    for case in ["regions", "regions-nvtx-only"] {
        let bytes = fixture::bytes(&format!("nsys/2025.3.1/{case}/report.nsys-rep"));
        let report = NsysReport::read(&bytes).unwrap();
        let path = fixture::root().join(format!("nsys/2025.3.1/{case}/report.sqlite"));
        let export = NsysSqlite::open(&path).unwrap();
        assert_eq!(report.gpus(), export.gpus().unwrap());

        let (mut kernels, mut copies, mut calls) = (Vec::new(), Vec::new(), Vec::new());
        let (mut ranges, mut diagnostics) = (Vec::new(), Vec::new());
        let events = report.events(|event| match event {
            NsysEvent::Kernel(kernel) => kernels.push(kernel),
            NsysEvent::Memcpy(copy) => copies.push(copy),
            NsysEvent::ApiCall(call) => calls.push(call),
            NsysEvent::Nvtx(event) => ranges.push(event),
            NsysEvent::Diagnostic(diagnostic) => diagnostics.push(diagnostic),
            _ => {}
        });
        assert_eq!(Some(events.unwrap()), report.stated_events());

        let mut expected = Vec::new();
        export.kernels(|kernel| expected.push(kernel)).unwrap();
        assert_eq!(kernels, expected);
        let mut expected = Vec::new();
        export.memcpys(|copy| expected.push(copy)).unwrap();
        assert_eq!(copies, expected);
        let mut expected = Vec::new();
        export.api_calls(|call| expected.push(call)).unwrap();
        calls.sort_by_key(|call| (call.start_ns, call.global_tid));
        expected.sort_by_key(|call| (call.start_ns, call.global_tid));
        assert_eq!(calls, expected);
        let mut expected = Vec::new();
        export.nvtx_events(|event| expected.push(event)).unwrap();
        assert_eq!(ranges, expected);
        let words = |all: &[Diagnostic]| {
            let mut words: Vec<_> = all.iter().map(|d| (d.severity, d.text.clone())).collect();
            words.sort();
            words
        };
        assert_eq!(words(&diagnostics), words(&export.diagnostics().unwrap()));

        let strings = export.strings().unwrap();
        let named = kernels.iter().filter_map(|k| k.demangled);
        let named = named.chain(calls.iter().filter_map(|c| c.name));
        for id in named.chain(ranges.iter().filter_map(|r| r.text_id)) {
            assert_eq!(report.strings().get(id), strings.get(id), "string {id}");
        }
    }
}

#[test]
fn each_event_is_in_the_table_of_its_kind() {
    use EventTable::*;
    let tables = [Kernel, Memcpy, Memset, Graph, ApiCall, Nvtx, Diagnostic, OtherGpuWork];
    let mut filled = [0; 8];
    for case in ["regions", "regions-nvtx-only", "timeline-graph", "timeline-node"] {
        let bytes = fixture::bytes(&format!("nsys/2025.3.1/{case}/report.nsys-rep"));
        let report = NsysReport::read(&bytes).unwrap();
        let mut all = Vec::new();
        let count = report.events(|event| all.push(event)).unwrap();
        let index = report.index().unwrap();
        assert_eq!(index.events(), count);
        for (table, filled) in tables.into_iter().zip(&mut filled) {
            let is_of_table = |event: &NsysEvent| match event {
                NsysEvent::Kernel(_) => table == Kernel,
                NsysEvent::Memcpy(_) => table == Memcpy,
                NsysEvent::Memset(_) => table == Memset,
                NsysEvent::Graph(_) => table == Graph,
                NsysEvent::ApiCall(_) | NsysEvent::NativeStack(_) => table == ApiCall,
                NsysEvent::Nvtx(_) | NsysEvent::PythonStack(_) => table == Nvtx,
                NsysEvent::Diagnostic(_) => table == Diagnostic,
                NsysEvent::OtherGpuWork(_) => table == OtherGpuWork,
                NsysEvent::Other(_) => false,
            };
            let mut found = Vec::new();
            report.events_of(&index, table, Some, |event| found.push(event)).unwrap();
            // Calls of the profiler itself are none of the program.
            found.retain(|event| !matches!(event, NsysEvent::Other(_)));
            let expected: Vec<NsysEvent> = all.iter().filter(|e| is_of_table(e)).cloned().collect();
            assert_eq!(found, expected, "{case}: {table:?}");
            *filled += found.len();
        }
    }
    assert!(filled.iter().filter(|count| **count > 0).count() >= 6, "{filled:?}");
}

#[test]
fn other_files_and_cut_reports_are_named() {
    let error = NsysReport::read(b"SQLite format 3\0").unwrap_err();
    assert!(matches!(error, NsysRepError::NotAReport { .. }), "{error}");
    let bytes = fixture::bytes("nsys/2025.3.1/regions/report.nsys-rep");
    let cut = NsysReport::read(&bytes[..bytes.len() - 1]).unwrap_err();
    assert!(matches!(cut, NsysRepError::Cut { .. }), "{cut}");
    assert_eq!(NsysReport::read(&bytes).unwrap().build(), "36398880");
}

#[test]
fn a_cut_report_gives_its_whole_chunks_and_its_names_where_the_cut_comes_after_them() {
    let bytes = fixture::bytes("nsys/2025.3.1/regions/report.nsys-rep");
    let count = |report: &NsysReport<'_>| {
        let mut kernels = Vec::new();
        let _ = report.events(|event| {
            if let NsysEvent::Kernel(kernel) = event {
                kernels.push(kernel);
            }
        });
        kernels
    };
    let whole = NsysReport::read(&bytes).unwrap();
    let cut = NsysReport::salvage(&bytes[..bytes.len() - 1]).unwrap();
    assert_eq!(count(&cut), count(&whole));
    assert_eq!(cut.strings(), whole.strings());
    assert!(NsysReport::salvage(&bytes[..200]).is_none());
    let mut least = usize::MAX;
    for len in (0..bytes.len()).step_by(97) {
        let Some(cut) = NsysReport::salvage(&bytes[..len]) else { continue };
        let kernels = count(&cut);
        assert!(count(&whole).starts_with(&kernels));
        least = least.min(kernels.len());
    }
    assert!(least <= count(&whole).len());
}

#[test]
fn a_broken_chunk_is_left_out_and_named() {
    let bytes = fixture::bytes("nsys/2025.3.1/regions/report.nsys-rep");
    let start = bytes.windows(8).position(|b| b == b"QDTEXT00").unwrap();
    let mut told = 0;
    for at in (start + 8..bytes.len() - 16).step_by(501) {
        let mut broken = bytes.clone();
        broken[at] ^= 0xff;
        let Ok(report) = NsysReport::read(&broken) else { continue };
        let (whole, causes) = report.whole_chunks();
        assert!(whole.events(|_| {}).is_ok());
        told += causes.len();
    }
    assert!(told > 0);
}

#[test]
fn damaged_reports_never_panic() {
    let bytes = fixture::bytes("nsys/2025.3.1/regions-nvtx-only/report.nsys-rep");
    let read = |bytes: &[u8]| {
        if let Ok(report) = NsysReport::read(bytes) {
            let _ = report.events(|_| {});
            let _ = report.whole_chunks();
            if let Ok(index) = report.index() {
                let _ = report.events_of(&index, EventTable::Kernel, Some, |_| {});
                let _ = report.events_of(&index, EventTable::Nvtx, Some, |_| {});
            }
        }
        let _ = NsysReport::salvage(bytes).map(|report| report.events(|_| {}));
    };
    damage::cut_everywhere(&bytes, read);
    damage::flip_bits(&bytes, 6_000, read);
    // A cut file with its end restored: the sections are outside of its bytes.
    let end = bytes[bytes.len() - 16..].to_vec();
    for len in (0..bytes.len() - 16).step_by(7) {
        read(&[&bytes[..len], &end].concat());
    }
}
