use std::fmt::Write;

use crate::ImportedArtifact;
use crate::nsys::import_sqlite;

const TABLES: &str = "
    CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT);
    CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
    INSERT INTO StringIds VALUES (1, 'k'), (2, 'cudaLaunchKernel_v7000'),
        (3, 'cudaLaunchKernelExC_v11060'), (4, 'cudaGraphLaunch_v10000');
    CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, contextId, streamId,
        correlationId, globalPid, demangledName, graphNodeId, gridX, blockX, registersPerThread);
    CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start, end, bytes, copyKind, streamId);
    CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start, end, globalTid, correlationId, nameId,
        returnValue);
    CREATE TABLE NVTX_EVENTS (start, end, eventType, rangeId, text, globalTid, domainId);
";

/// Imports an export with these rows of kernels (as SQL: start and end), launched by a call of that
/// name, and more SQL.
fn imported(spans: &[(&str, &str)], call: i64, node: &str, more: &str) -> ImportedArtifact {
    let mut sql = TABLES.to_owned();
    for ((start, end), id) in spans.iter().zip(1..) {
        writeln!(
            sql,
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL
                VALUES ({start}, {end}, 0, 1, 7, {id}, 16777216, 1, {node}, 1, 32, 8);
             INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME
                VALUES (595000000 + {id}, 595000000 + {id}, 16777217, {id}, {call}, 0);"
        )
        .unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("synthetic.sqlite");
    rusqlite::Connection::open(&path).unwrap().execute_batch(&(sql + more)).unwrap();
    import_sqlite(&path, "synthetic.sqlite").unwrap()
}

/// Five kernels of 5 µs after 595 ms.
fn good() -> Vec<(String, String)> {
    (0..5)
        .map(|n| {
            let start = 595_100_000 + n * 10_000;
            (start.to_string(), (start + 5000).to_string())
        })
        .collect()
}

fn with_good(others: &[(&str, &str)]) -> ImportedArtifact {
    let good = good();
    let all = good.iter().map(|(start, end)| (start.as_str(), end.as_str()));
    imported(&all.chain(others.iter().copied()).collect::<Vec<_>>(), 2, "NULL", "")
}

fn gap<'i>(imported: &'i ImportedArtifact, code: &str) -> Option<&'i str> {
    imported.gaps.iter().find(|gap| gap.code == code).map(|gap| gap.text.as_str())
}

fn launches(imported: &ImportedArtifact) -> (u64, u64) {
    (imported.kernels[0].launches, imported.kernels[0].total_ns)
}

#[test]
fn kernels_with_times_that_cannot_be_are_left_out_counted_and_told() {
    let cases: &[(&str, &str)] = &[
        ("0", "0"),
        ("NULL", "NULL"),
        ("NULL", "595100000"),
        ("'a while ago'", "595100000"),
        ("595200000", "595100000"),
        ("9223372036854775807", "9223372036854775807"),
        ("595100000", "9223372036854775807"),
        ("-1700000000000000000", "-1699999999999995000"),
        ("1700000000000000000", "1700000000000005000"),
        ("9e999", "9e999"),
        ("1.0e19", "1.1e19"),
    ];
    for case in cases {
        let imported = with_good(&[*case, *case, *case]);
        assert_eq!(launches(&imported), (5, 25_000), "{case:?}");
        let told = gap(&imported, "impossible_times").unwrap_or_default();
        assert!(told.contains("3 kernels have times that cannot be"), "{case:?}: {told}");
        assert_eq!(imported.launches.len(), 5, "{case:?}");
        let span_ns = imported.sidecars.trace.unwrap().span_ns;
        assert!(span_ns < 1_000_000, "{case:?}: {span_ns}");
    }
}

#[test]
fn numbers_in_quotes_and_equal_starts_are_times() {
    let imported = with_good(&[("'595100000'", "'595105000'"), ("595100000", "595105000.0")]);
    assert_eq!(launches(&imported), (7, 35_000));
    assert!(imported.gaps.is_empty(), "{:?}", imported.gaps);
}

#[test]
fn a_kernel_that_outlasts_the_next_ones_of_its_stream_ends_where_they_start() {
    let mut spans: Vec<(String, String)> = (0..100_u64)
        .map(|n| (n * 11_000, if n == 40 { n * 11_000 + 3_000_000_000 } else { n * 11_000 + 8000 }))
        .map(|(start, end)| ((595_100_000 + start).to_string(), (595_100_000 + end).to_string()))
        .collect();
    for _ in 0..2 {
        let borrowed: Vec<_> = spans.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        let clipped = imported(&borrowed, 2, "NULL", "");
        assert_eq!(launches(&clipped), (100, 99 * 8000 + 11_000));
        let told = gap(&clipped, "stream_overlap").unwrap();
        assert!(told.contains("1 row of GPU work has an end after later work"), "{told}");
        assert!(clipped.sidecars.trace.unwrap().span_ns < 2_000_000);
        // A chain of dependent launches may not be that long either; nodes of a graph may overlap.
        assert_eq!(launches(&imported(&borrowed, 3, "NULL", "")).1, 99 * 8000 + 11_000);
        let graph = imported(&borrowed, 4, "NULL", "");
        assert_eq!((launches(&graph).1, gap(&graph, "stream_overlap")), (3_000_792_000, None));
        assert_eq!(launches(&imported(&borrowed, 2, "5", "")).1, 3_000_792_000);
        // The same in another order of rows.
        spans.reverse();
    }
}

#[test]
fn a_dependent_launch_may_overlap_the_kernel_before() {
    let spans = [("595100000", "595200000"), ("595150000", "595250000")];
    assert_eq!(launches(&imported(&spans, 3, "NULL", "")).1, 200_000);
    let inside = [("595100000", "595200000"), ("595120000", "595150000")];
    let dependent = imported(&inside, 3, "NULL", "");
    assert_eq!((launches(&dependent).1, gap(&dependent, "stream_overlap")), (130_000, None));
    let plain = imported(&inside, 2, "NULL", "");
    assert_eq!(launches(&plain).1, 50_000);
}

#[test]
fn copies_calls_and_ranges_follow_the_same_rule() {
    let rows = "
        INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (0, 0, 64, 1, 7),
            (595100000, 595100500, 64, 1, 9), (595100000, 595000000, 64, 1, 9);
        INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (595100009, 595100002, 16777217, 99, 2, 0);
        INSERT INTO NVTX_EVENTS VALUES (595000000, 595200000, 59, NULL, 'good', 16777217, 0),
            (NULL, 595200000, 59, NULL, 'none', 16777217, 0),
            (595000000, 594000000, 59, NULL, 'back', 16777217, 0),
            (1700000000000000000, 1700000000000000009, 59, NULL, 'far', 16777217, 0);";
    let good = good();
    let spans: Vec<_> = good.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    let imported = imported(&spans, 2, "NULL", rows);
    let told = gap(&imported, "impossible_times").unwrap();
    assert!(told.contains("2 copies, 1 call, 3 ranges have times"), "{told}");
    assert_eq!(imported.copies[0].count, 1);
    let regions: Vec<_> = imported.regions.iter().map(|region| region.display()).collect();
    assert_eq!(regions, ["good"]);
    assert!(imported.sidecars.trace.unwrap().span_ns < 1_000_000);
}

#[test]
fn a_renamed_table_is_read_by_its_columns_and_told() {
    let rename = "
        INSERT INTO NVTX_EVENTS VALUES (595000000, 595200000, 59, NULL, 'A', 16777217, 0);
        ALTER TABLE NVTX_EVENTS RENAME TO NVTX_EVENTS_V2;";
    let renamed = imported(&[("595100000", "595105000")], 2, "NULL", rename);
    assert_eq!(renamed.regions.len(), 1);
    let told = gap(&renamed, "unknown_events").unwrap();
    assert!(told.contains("`NVTX_EVENTS_V2` was read as `NVTX_EVENTS`"), "{told}");
    let other = "DROP TABLE NVTX_EVENTS; CREATE TABLE NVTX_EVENTS_V3 (what, time);";
    let unread = imported(&[("595100000", "595105000")], 2, "NULL", other);
    let told = gap(&unread, "unknown_events").unwrap();
    assert!(told.contains("no table `NVTX_EVENTS`, but `NVTX_EVENTS_V3`"), "{told}");
}

#[test]
fn a_trace_without_gpu_work_tells_what_it_has_and_why() {
    let calls = |code: i64| {
        format!(
            "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME WITH RECURSIVE n(i) AS
                (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 33482)
                SELECT i, i + 1, 16777217, i, 2, {code} FROM n;
             CREATE TABLE OSRT_API (start, end); INSERT INTO OSRT_API VALUES (1, 2), (3, 4);"
        )
    };
    let text = |sql: &str| imported(&[], 2, "NULL", sql).refusals[0].text.clone();
    let plain = text(&calls(0));
    assert!(plain.contains("33,482 CUDA calls and 2 calls of the operating system"), "{plain}");
    assert!(plain.contains("33,482 calls launch a kernel and none has a record"), "{plain}");
    assert!(text(&calls(700)).contains("error 700, an illegal address"));
    let lost = imported(&[("0", "0")], 2, "NULL", "").refusals[0].text.clone();
    assert!(lost.contains("None of its 1 piece of GPU work has times that can be"), "{lost}");
}
