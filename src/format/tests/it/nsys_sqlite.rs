//! Tests nsys's sqlite in the layouts of several versions, complete and damaged.

use crate::damage;
use rgpu_format::nsys_row::{CopyKind, KernelInterval, NvtxKind};
use rgpu_format::nsys_sqlite::{NsysSqlite, NsysSqliteError};
use rusqlite::Connection;
use std::path::Path;

/// Tables as nsys 2025.3 writes them, with the rows of a tiny program.
const NEW: &str = "
    PRAGMA page_size = 512;
    CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT);
    INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', '3.20.3');
    CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
    INSERT INTO StringIds VALUES (1, 'vecadd(float *)'), (2, 'vecadd'),
        (3, 'cudaLaunchKernel_v7000'), (4, 'registered');
    CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT, uuid TEXT, chipName TEXT,
        computeMajor INTEGER, computeMinor INTEGER, smCount INTEGER, clockRate INTEGER,
        memoryBandwidth INTEGER, totalMemory INTEGER, l2CacheSize INTEGER);
    INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA H200', 'aa-bb', 'GH100', 9, 0, 132,
        1980000000, 4814000000000, 150754820096, 62914560);
    CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER,
        contextId INTEGER, greenContextId INTEGER, streamId INTEGER, correlationId INTEGER,
        globalPid INTEGER, demangledName INTEGER, shortName INTEGER, mangledName INTEGER,
        launchType INTEGER, registersPerThread INTEGER, gridX INTEGER, gridY INTEGER,
        gridZ INTEGER, blockX INTEGER, blockY INTEGER, blockZ INTEGER, staticSharedMemory INTEGER,
        dynamicSharedMemory INTEGER, localMemoryPerThread INTEGER, graphNodeId INTEGER);
    INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1000, 2500, 0, 1, NULL, 7, 42, 16777216, 1, 2,
        NULL, 0, 16, 64, 1, 1, 256, 1, 1, 0, 1024, 0, NULL);
    CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, bytes INTEGER,
        copyKind INTEGER, deviceId INTEGER, streamId INTEGER, correlationId INTEGER,
        globalPid INTEGER, srcKind INTEGER, dstKind INTEGER);
    INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (100, 200, 4096, 1, 0, 7, 40, 16777216, 1, 2),
        (3000, 3100, 64, 12, 0, 7, 43, 16777216, 2, 4), (3200, 3300, 8, 2, 0, 7, 44, 16777216, 2, 0);
    CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, eventClass INTEGER,
        globalTid INTEGER, correlationId INTEGER, nameId INTEGER, returnValue INTEGER);
    INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (900, 950, 0, 16777217, 42, 3, 0);
    CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, rangeId INTEGER,
        category INTEGER, color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER,
        textId INTEGER, domainId INTEGER);
    INSERT INTO NVTX_EVENTS VALUES (800, 960, 59, NULL, NULL, NULL, 'A', 16777217, NULL, NULL, 0),
        (810, NULL, 60, 1, NULL, NULL, NULL, 16777217, NULL, 4, 1),
        (0, NULL, 75, NULL, NULL, NULL, 'rgpu', 16777217, NULL, NULL, 1);
    CREATE TABLE DIAGNOSTIC_EVENT (timestamp INTEGER, severity INTEGER, text TEXT);
    INSERT INTO DIAGNOSTIC_EVENT VALUES (5, 2, 'CUDA profiling might have not been started');
";

/// The same data as 2022.2 writes it: other names, fewer columns.
const OLD: &str = "
    CREATE TABLE EXPORT_META_DATA (name TEXT, value TEXT);
    INSERT INTO EXPORT_META_DATA VALUES ('EXPORT_SCHEMA_VERSION_MAJOR', '2'),
        ('EXPORT_SCHEMA_VERSION_MINOR', '9'), ('EXPORT_SCHEMA_VERSION_MICRO', '1');
    CREATE TABLE StringIds (id INTEGER, value TEXT);
    INSERT INTO StringIds VALUES (1, 'k');
    CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, demangledName INTEGER);
    INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1, 2, 1);
";

fn database(folder: &Path, sql: &str) -> std::path::PathBuf {
    let path = folder.join("with space?and#.sqlite");
    Connection::open(&path).unwrap().execute_batch(sql).unwrap();
    path
}

#[test]
fn every_table_of_a_new_export_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = NsysSqlite::open(&database(folder.path(), NEW)).unwrap();
    assert_eq!(file.schema_version().unwrap().as_deref(), Some("3.20.3"));
    assert!(file.has_gpu_rows());
    let strings = file.strings().unwrap();
    let mut kernels = Vec::new();
    assert_eq!(file.kernels(|k| kernels.push(k)).unwrap(), 1);
    let kernel = &kernels[0];
    assert_eq!(strings.get(kernel.demangled.unwrap()), Some("vecadd(float *)"));
    assert_eq!((kernel.grid, kernel.block), (Some([64, 1, 1]), Some([256, 1, 1])));
    assert_eq!((kernel.mangled, kernel.cluster), (None, None));
    assert_eq!((kernel.registers, kernel.dynamic_shared_bytes), (Some(16), Some(1024)));
    let mut copies = Vec::new();
    file.memcpys(|c| copies.push((c.kind, c.bytes, c.pageable))).unwrap();
    let expected = [
        (CopyKind::HostToDevice, 4096, Some(false)),
        (CopyKind::UnifiedToHost, 64, None),
        (CopyKind::DeviceToHost, 8, Some(true)),
    ];
    assert_eq!(copies, expected);
    let mut calls = Vec::new();
    file.api_calls(|c| calls.push((c.correlation, c.global_tid))).unwrap();
    assert_eq!(calls, [(Some(42), Some(16_777_217))]);
    let mut events = Vec::new();
    file.nvtx_events(|e| events.push(e)).unwrap();
    let names: Vec<_> = events.iter().map(|e| (e.kind, e.name(&strings))).collect();
    assert_eq!(
        names,
        [
            (NvtxKind::PushPop, Some("A")),
            (NvtxKind::StartEnd, Some("registered")),
            (NvtxKind::Domain, Some("rgpu"))
        ]
    );
    assert_eq!(events[1].end_ns, None);
    let gpus = file.gpus().unwrap();
    assert_eq!((gpus[0].sms, gpus[0].compute), (Some(132), Some((9, 0))));
    assert_eq!(file.diagnostics().unwrap().len(), 1);
}

#[test]
fn an_old_export_reads_with_what_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let file = NsysSqlite::open(&database(folder.path(), OLD)).unwrap();
    assert_eq!(file.schema_version().unwrap().as_deref(), Some("2.9.1"));
    let mut kernels = Vec::new();
    file.kernels(|k| kernels.push(k)).unwrap();
    assert_eq!((kernels[0].start_ns, kernels[0].grid), (1, None));
    assert_eq!(file.nvtx_events(|_| {}).unwrap(), 0);
    assert!(file.gpus().unwrap().is_empty());
}

#[test]
fn the_first_kernels_and_what_sums_need_of_all_come_in_the_files_order() {
    let folder = tempfile::tempdir().unwrap();
    let sql = format!(
        "{NEW} DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL; \
         CREATE INDEX late ON CUPTI_ACTIVITY_KIND_KERNEL (start, end); \
         INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, end) VALUES (9, 10), (5, 6), (7, 8);"
    );
    let file = NsysSqlite::open(&database(folder.path(), &sql)).unwrap();
    let (mut all, mut first, mut runs) = (Vec::new(), Vec::new(), Vec::new());
    file.kernels(|kernel| all.push(kernel)).unwrap();
    assert_eq!(file.first_kernels(2, |kernel| first.push(kernel)).unwrap(), 2);
    file.kernel_intervals(|run| runs.push(run)).unwrap();
    assert_eq!(all.iter().map(|kernel| kernel.start_ns).collect::<Vec<_>>(), [9, 5, 7]);
    assert_eq!(first, all[..2]);
    assert_eq!(runs, all.into_iter().map(KernelInterval::from).collect::<Vec<_>>());
    assert!(file.about_rows() >= 3);
}

#[test]
fn other_databases_and_other_files_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let other = database(folder.path(), "CREATE TABLE t (a); CREATE VIEW StringIds AS SELECT 1;");
    let error = NsysSqlite::open(&other).unwrap_err();
    assert!(matches!(error, NsysSqliteError::NotNsys { tables: 1 }), "{error}");
    let text = folder.path().join("text");
    std::fs::write(&text, "not a database, but long enough to be read as one").unwrap();
    assert!(matches!(NsysSqlite::open(&text), Err(NsysSqliteError::Open(_))));
    assert!(matches!(NsysSqlite::open(&folder.path().join("none")), Err(NsysSqliteError::Open(_))));
}

#[test]
fn reading_leaves_the_folder_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = database(folder.path(), NEW);
    let before = std::fs::read(&path).unwrap();
    read_all(&path);
    assert_eq!(std::fs::read(&path).unwrap(), before);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

fn read_all(path: &Path) {
    let Ok(file) = NsysSqlite::open(path) else { return };
    let _ = file.schema_version();
    let _ = file.strings();
    let _ = file.gpus();
    let _ = file.diagnostics();
    let _ = file.kernels(|_| {});
    let _ = file.memcpys(|_| {});
    let _ = file.memsets(|_| {});
    let _ = file.graph_launches(|_| {});
    let _ = file.api_calls(|_| {});
    let _ = file.nvtx_events(|_| {});
}

#[test]
fn damaged_databases_never_panic() {
    let folder = tempfile::tempdir().unwrap();
    let data = std::fs::read(database(folder.path(), NEW)).unwrap();
    let path = folder.path().join("damaged");
    let read = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        read_all(&path);
    };
    // SQLite reads whole pages, so cuts within one are alike and every 16 bytes is enough.
    for len in (0..data.len()).step_by(16) {
        read(&data[..len]);
    }
    damage::flip_bits(&data, 1_500, read);
}

#[test]
fn damaged_tables_that_threads_share_never_panic() {
    let folder = tempfile::tempdir().unwrap();
    // Few rows, so far apart that the table counts as large.
    let sql = format!(
        "{NEW} INSERT INTO NVTX_EVENTS (_rowid_, start, eventType, text)
         VALUES (-9000000000000000000, 1, 59, 'first'), (9000000000000000000, 2, 59, 'last');
         INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (_rowid_, start) VALUES (40000, 3);"
    );
    let path = database(folder.path(), &sql);
    let whole = NsysSqlite::open(&path).unwrap();
    let mut names = Vec::new();
    assert_eq!(whole.nvtx_events(|event| names.push(event.text)).unwrap(), 5);
    assert_eq!(names.first().cloned().flatten().as_deref(), Some("first"));
    assert_eq!(names.last().cloned().flatten().as_deref(), Some("last"));
    drop(whole);
    let data = std::fs::read(&path).unwrap();
    let path = folder.path().join("damaged");
    damage::flip_bits(&data, 100, |bytes| {
        std::fs::write(&path, bytes).unwrap();
        read_all(&path);
    });
}

#[test]
fn damaged_real_exports_never_panic() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("damaged");
    for real in crate::fixture::files("nsys", ".sqlite") {
        let data = std::fs::read(&real).unwrap();
        let read = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            read_all(&path);
        };
        for len in (0..data.len()).step_by(1021) {
            read(&data[..len]);
        }
        damage::flip_bits(&data, 300, read);
    }
}

#[test]
fn a_table_read_by_several_threads_comes_whole_and_in_the_files_order() {
    let folder = tempfile::tempdir().unwrap();
    let sql = format!(
        "{NEW} DELETE FROM NVTX_EVENTS; DELETE FROM CUPTI_ACTIVITY_KIND_RUNTIME;
         WITH RECURSIVE n(c) AS (SELECT 1 UNION ALL SELECT c + 1 FROM n WHERE c < 70000)
         INSERT INTO NVTX_EVENTS (_rowid_, start, eventType, text)
         SELECT c * 3 - 100000, 70000 - c, 59, 'range ' || c FROM n;
         INSERT INTO NVTX_EVENTS (_rowid_, start, eventType, text)
         VALUES (1000000000000, -1, 59, printf('%.*c', 100000, 'n'));
         WITH RECURSIVE n(c) AS (SELECT 1 UNION ALL SELECT c + 1 FROM n WHERE c < 40000)
         INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME (start, end) SELECT c % 1000, 7 FROM n;"
    );
    let path = database(folder.path(), &sql);
    let file = NsysSqlite::open(&path).unwrap();
    let mut events = Vec::new();
    assert_eq!(file.nvtx_events(|e| events.push(e)).unwrap(), 70_001);
    let long = events.pop().unwrap();
    assert_eq!(long.text.map(|text| text.len()), Some(1 << 16), "longer names are cut");
    for (event, c) in events.iter().zip(1..) {
        assert_eq!((event.start_ns, event.text.clone()), (70_000 - c, Some(format!("range {c}"))));
    }
    let mut calls = Vec::new();
    assert_eq!(file.api_calls(|c| calls.push(c.start_ns)).unwrap(), 40_000);
    assert!(calls.iter().zip(1..).all(|(start, c)| *start == c % 1000));
    let mut by_one = Vec::new();
    let file = file.with_readers(1);
    assert_eq!(file.api_calls(|c| by_one.push(c.start_ns)).unwrap(), 40_000);
    assert_eq!(by_one, calls);
    // With its last pages overwritten, the rows before come first, then one error.
    drop(file);
    let mut bytes = std::fs::read(&path).unwrap();
    let whole = bytes.len() - bytes.len() / 20;
    bytes[whole..].fill(0);
    std::fs::write(&path, &bytes).unwrap();
    let file = NsysSqlite::open(&path).unwrap();
    let mut before = 0;
    let error = file.api_calls(|_| before += 1).unwrap_err();
    assert!(before > 10_000, "{before}");
    let told = matches!(error, NsysSqliteError::Table { rows, .. } if rows == before);
    assert!(told, "{error}");
}

/// Bytes of a page in these databases.
const PAGE: usize = 512;

/// Makes a page an inner one, of as many cells as fit, which all name one child. The first page of
/// a file has the file's header before it.
fn name_one_child(data: &mut [u8], page: u32, child: u32) {
    let begin = (page as usize - 1) * PAGE;
    let header = if page == 1 { 100 } else { 0 };
    let page = &mut data[begin..begin + PAGE];
    // One cell at the end: the child, and a key. Its offset is in the list of cells many times.
    let cell = PAGE - 5;
    // SQLite refuses pages with more cells.
    let count = (PAGE - header - 8) / 6;
    page[header..].fill(0);
    page[header] = 5;
    page[header + 3..header + 5].copy_from_slice(&(count as u16).to_be_bytes());
    page[header + 5..header + 7].copy_from_slice(&(cell as u16).to_be_bytes());
    page[header + 8..header + 12].copy_from_slice(&child.to_be_bytes());
    for offset in page[header + 12..header + 12 + 2 * count].chunks_mut(2) {
        offset.copy_from_slice(&(cell as u16).to_be_bytes());
    }
    page[cell..cell + 4].copy_from_slice(&child.to_be_bytes());
}

#[test]
fn a_table_whose_pages_are_read_again_and_again_comes_to_an_end() {
    let folder = tempfile::tempdir().unwrap();
    let rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500)
        INSERT INTO NVTX_EVENTS (start, eventType, text) SELECT i, 59, 'name' FROM n;";
    let path = database(folder.path(), &format!("{NEW} {rows}"));
    let sql = "SELECT rootpage FROM sqlite_master WHERE name = 'NVTX_EVENTS'";
    let root: u32 = Connection::open(&path).unwrap().query_row(sql, [], |row| row.get(0)).unwrap();
    let data = std::fs::read(&path).unwrap();
    let leaf = |page: &u32| {
        let page = &data[(*page as usize - 1) * PAGE..][..PAGE];
        page[0] == 13 && !page.windows(6).any(|text| text == b"CREATE")
    };
    let leaves: Vec<u32> = (root + 1..=(data.len() / PAGE) as u32).filter(leaf).take(9).collect();
    assert_eq!(leaves.len(), 9);
    let chain = |top: u32| {
        let mut bomb = data.clone();
        let pages: Vec<u32> = std::iter::once(top).chain(leaves.iter().copied()).collect();
        pages.windows(2).for_each(|pair| name_one_child(&mut bomb, pair[0], pair[1]));
        let path = folder.path().join("bomb.sqlite");
        std::fs::write(&path, bomb).unwrap();
        NsysSqlite::open(&path)
    };
    let error = chain(root).unwrap().nvtx_events(|_| {}).unwrap_err();
    let NsysSqliteError::Table { rows, cause, .. } = &error else { panic!("{error}") };
    assert!(*rows < data.len() as u64, "{rows}");
    assert!(cause.to_string().contains("more bytes than the file"), "{cause}");
    // The table of tables is one, too.
    assert!(chain(1).is_err());
}

#[test]
fn declarations_of_tables_that_would_fill_memory_are_refused_before_they_are_parsed() {
    let folder = tempfile::tempdir().unwrap();
    let open = |more: &str| {
        let _ = std::fs::remove_dir_all(folder.path());
        std::fs::create_dir_all(folder.path()).unwrap();
        NsysSqlite::open(&database(folder.path(), &format!("BEGIN; {NEW} {more} COMMIT;")))
    };
    let list =
        |numbers: usize| format!("CREATE TABLE a (b CHECK (b IN (1{})));", ",1".repeat(numbers));
    let many: String = (0..2000)
        .map(|n| format!("CREATE TABLE t{n} (a CHECK (a IN (1{})));", ",1".repeat(100)))
        .collect();
    for hostile in [list(200_000), many] {
        let error = open(&hostile).unwrap_err();
        assert!(matches!(error, NsysSqliteError::Schema { .. }), "{error}");
    }
    // Several pages of declarations, as nsys writes them, are read.
    let plain: String =
        (0..300).map(|n| format!("CREATE TABLE t{n} (start, end, text);")).collect();
    assert_eq!(open(&(plain + &list(20_000))).unwrap().kernels(|_| {}).unwrap(), 1);
}
