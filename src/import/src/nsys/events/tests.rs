use std::fmt::Write;

use crate::nsys::import_sqlite;
use rgpu_model::Trace;
use rgpu_model::trace::UnlistedEvents;

const TABLES: &str = "
    CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT);
    CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
    CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, contextId, streamId,
        correlationId, globalPid, demangledName, gridX, gridY, gridZ, blockX, blockY, blockZ,
        registersPerThread, dynamicSharedMemory);
    CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start, end, bytes, copyKind, streamId,
        correlationId, globalPid, srcKind, dstKind);
    CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start, end, globalTid, correlationId, nameId,
        returnValue);
    CREATE TABLE NVTX_EVENTS (start, end, eventType, rangeId, text, globalTid, domainId);
    BEGIN;
";

const PROCESS: u32 = 1 << 24;

/// The trace of an export with these rows.
fn trace_of(rows: &str) -> (Trace, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("synthetic.sqlite");
    let sql = format!("{TABLES} {rows}; COMMIT;");
    rusqlite::Connection::open(&path).unwrap().execute_batch(&sql).unwrap();
    let imported = import_sqlite(&path, "synthetic.sqlite").unwrap();
    let gaps = imported.gaps.into_iter().map(|gap| format!("{}: {}", gap.code, gap.text));
    (imported.sidecars.trace.unwrap(), gaps.collect())
}

/// A copy of `bytes` bytes of the kind, from and to these kinds of memory, by a call of that name
/// that lasts from 1,000 to `returned` ns. The copy runs from 5,000 to 9,000 ns.
fn waits(name: &str, [kind, source, target]: [u32; 3], bytes: u64) -> bool {
    let (trace, _) = trace_of(&format!(
        "INSERT INTO StringIds VALUES (1, '{name}');
         INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY
             VALUES (5000, 9000, {bytes}, {kind}, 7, 1, {PROCESS}, {source}, {target});
         INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (1000, 9500, {PROCESS} + 5, 1, 1, 0)"
    ));
    assert_eq!(trace.work[0].call, Some(0));
    trace.calls[0].waits
}

/// nsys's numbers: kinds of copies, and of memory.
const TO_DEVICE: u32 = 1;
const TO_HOST: u32 = 2;
const ON_DEVICE: u32 = 8;
const ON_HOST: u32 = 9;
const PAGEABLE: u32 = 0;
const PINNED: u32 = 1;
const DEVICE: u32 = 2;

#[test]
fn copies_wait_by_their_call_direction_memory_and_size() {
    let later = "cudaMemcpyAsync_v3020";
    // As in the manual: "API synchronization behavior".
    assert!(waits(later, [TO_HOST, DEVICE, PAGEABLE], 4));
    assert!(!waits(later, [TO_HOST, DEVICE, PINNED], 1 << 20));
    assert!(waits(later, [TO_DEVICE, PAGEABLE, DEVICE], 1 << 20));
    assert!(!waits(later, [TO_DEVICE, PAGEABLE, DEVICE], 64 << 10));
    assert!(!waits(later, [TO_DEVICE, PINNED, DEVICE], 1 << 20));
    assert!(!waits(later, [ON_DEVICE, DEVICE, DEVICE], 1 << 20));
    assert!(waits(later, [ON_HOST, PAGEABLE, PAGEABLE], 4));
    let now = "cudaMemcpy_v3020";
    assert!(waits(now, [TO_HOST, DEVICE, PINNED], 4));
    assert!(waits(now, [TO_DEVICE, PAGEABLE, DEVICE], 4));
    assert!(!waits(now, [ON_DEVICE, DEVICE, DEVICE], 1 << 20));
    assert!(!waits("cudaGraphLaunch_v10000", [TO_HOST, DEVICE, PAGEABLE], 4));
}

#[test]
fn a_call_that_frees_memory_waits_only_for_a_gpu_at_work() {
    // Two kernels run from 5,000 to 9,000 and from 9,000 to 20,000 ns.
    let free = |from: u32, until: u32, process: u32| {
        let (trace, _) = trace_of(&format!(
            "INSERT INTO StringIds VALUES (1, 'cudaLaunchKernel_v7000'), (2, 'cudaFree_v3020');
             INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES
                 (5000, 9000, 0, 1, 7, 1, {PROCESS}, 1, 1, 1, 1, 32, 1, 1, 8, 0),
                 (9000, 20000, 0, 1, 7, 2, {PROCESS}, 1, 1, 1, 1, 32, 1, 1, 8, 0);
             INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES
                 (1000, 2000, {PROCESS} + 5, 1, 1, 0),
                 (2000, 3000, {PROCESS} + 5, 2, 1, 0),
                 ({from}, {until}, {process} + 5, 3, 2, 0)"
        ));
        let free = trace.calls.iter().find(|call| trace.names[call.name as usize] == "cudaFree");
        free.unwrap().waits
    };
    assert!(free(4000, 20_500, PROCESS));
    assert!(free(12_000, 20_000, PROCESS));
    assert!(!free(4000, 9500, PROCESS), "it returned before the second kernel ended");
    assert!(!free(12_000, 15_000, PROCESS));
    assert!(!free(20_000, 90_000, PROCESS), "the GPU was idle");
    assert!(!free(4000, 20_500, 2 * PROCESS), "another process");
}

#[test]
fn migrations_of_unified_memory_and_copies_of_arrays_have_names() {
    let rows = (3..=13).filter(|kind| !(8..=10).contains(kind)).map(|kind| {
        format!(
            "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY
                 VALUES ({kind}000, {kind}500, 4096, {kind}, 7, NULL, {PROCESS}, 4, 2)"
        )
    });
    let (trace, _) = trace_of(&rows.collect::<Vec<_>>().join(";"));
    let names = trace.work.iter().map(|work| trace.names[work.name as usize].as_str());
    let expected =
        ["HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "unified HtoD", "unified DtoH", "unified DtoD"];
    assert_eq!(names.collect::<Vec<_>>(), expected);
    assert!(trace.work.iter().all(|work| work.bytes == Some(4096) && work.pageable.is_none()));
}

#[test]
fn launches_of_the_same_grid_block_and_shared_memory_have_the_same_shape() {
    // Grid, block and shared memory in order of start; the file has them in another.
    let shapes = [[8, 32, 0], [8, 32, 0], [9, 32, 0], [8, 64, 0], [8, 32, 0], [8, 32, 4096]];
    let mut rows = "INSERT INTO StringIds VALUES (1, 'k'), (2, 'l')".to_owned();
    for (at, [grid, block, shared]) in shapes.iter().enumerate().rev() {
        let name = 1 + at % 2;
        write!(
            rows,
            "; INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({at}000, {at}500, 0, 1, 7, {at},
                 {PROCESS}, {name}, {grid}, 1, 1, {block}, 1, 1, 8, {shared})"
        )
        .unwrap();
    }
    let (trace, _) = trace_of(&rows);
    let got: Vec<_> = trace.work.iter().map(|work| work.shape.unwrap()).collect();
    assert_eq!(got, [0, 0, 1, 2, 0, 3]);
}

/// Twice as many kernels as the document has, on two threads of which one polls. Rows of a real
/// export have more columns, so that more memory is allowed for each; `more_bytes` stand for them.
fn long_trace(more_bytes: u32) -> (Trace, Vec<String>) {
    trace_of(&format!(
        "CREATE TABLE other_columns (value);
         INSERT INTO other_columns VALUES (zeroblob({more_bytes}));
         INSERT INTO StringIds VALUES (1, 'k'), (2, 'cudaLaunchKernel_v7000'),
             (3, 'cudaEventQuery_v3020');
         WITH RECURSIVE n(c) AS (SELECT 0 UNION ALL SELECT c + 1 FROM n WHERE c < 39999)
         INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL SELECT c * 1000 + 500, c * 1000 + 900, 0, 1, 7,
             c, {PROCESS}, 1, 1, 1, 1, 32, 1, 1, 8, 0 FROM n;
         WITH RECURSIVE n(c) AS (SELECT 0 UNION ALL SELECT c + 1 FROM n WHERE c < 39999)
         INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME
             SELECT c * 1000, c * 1000 + 100, {PROCESS} + 5, c, 2, 0 FROM n;
         WITH RECURSIVE n(c) AS (SELECT 0 UNION ALL SELECT c + 1 FROM n WHERE c < 29999)
         INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME
             SELECT c * 1000 + 50, c * 1000 + 60, {PROCESS} + 6, 100000 + c, 3, 0 FROM n"
    ))
}

#[test]
fn lists_are_shorter_where_memory_is_short_and_sums_are_not() {
    let (trace, gaps) = long_trace(400_000);
    assert!((20_000..40_000).contains(&trace.work.len()), "{}", trace.work.len());
    assert_eq!(trace.work.len() as u64 + trace.cut.work, 40_000);
    assert_eq!(trace.calls.len() as u64 + trace.cut.calls, 70_000);
    assert!(!gaps.iter().any(|gap| gap.starts_with("too_much_memory")), "{gaps:?}");
    let gap = gaps.iter().find(|gap| gap.starts_with("trace_cut")).unwrap();
    assert!(gap.ends_with(&format!("the last {} and 0 only in the sums", trace.cut.work)), "{gap}");
}

#[test]
fn memory_has_all_events_and_the_document_the_first() {
    let (trace, gaps) = long_trace(10_000_000);
    assert_eq!((trace.work.len(), trace.calls.len()), (40_000, 70_000));
    assert_eq!(trace.cut, UnlistedEvents::default());
    assert!(trace.calls.is_sorted_by_key(|call| call.start_ns));
    for work in &trace.work {
        let call = &trace.calls[work.call.unwrap() as usize];
        assert_eq!(call.start_ns + 500, work.start_ns);
    }
    let gap = gaps.iter().find(|gap| gap.starts_with("trace_cut")).unwrap();
    let text = "trace.json lists the first 20000 pieces of GPU work and 0 ranges; 20000 and 0 \
                more, with 30000 calls, are only in the sums and the findings";
    assert!(gap.ends_with(text), "{gap}");
    let mut document = trace.clone();
    document.cut_to_document();
    assert_eq!(document.work[..], trace.work.iter().take(20_000).cloned().collect::<Vec<_>>()[..]);
    assert_eq!(document.calls.len(), 40_000);
    assert_eq!(document.cut, UnlistedEvents { work: 20_000, ranges: 0, calls: 30_000 });
}
