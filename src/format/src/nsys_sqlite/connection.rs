//! The open export file and its tables.

use super::rows::{ChainRow, RuntimeRow, TableRow};
use super::shares::SharedTable;
use super::table::{self, Fields};
use super::{NsysSqliteError, schema};
use crate::in_order;
use crate::memory::MemoryBudget;
use crate::nsys_row::{
    ApiCall, Diagnostic, Gpu, GraphLaunch, Kernel, KernelInterval, MAX_FRAMES, Memcpy, Memset,
    NativeFrame, NativeStack, NvtxEvent, Strings,
};
use rusqlite::limits::Limit;
use rusqlite::{Connection, OpenFlags};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::ops::RangeInclusive;
use std::path::Path;

/// An open nsys export.
#[derive(Debug)]
pub struct NsysSqlite {
    uri: String,
    bytes: u64,
    connection: Connection,
    tables: HashSet<String>,
    /// Names in the file of tables that have another one.
    renamed: BTreeMap<&'static str, String>,
    /// How many threads read a large table.
    readers: usize,
}

impl NsysSqlite {
    /// Opens `path` read-only and immutable: no lock, no journal, and no other file is touched.
    ///
    /// # Errors
    /// [`NsysSqliteError::Open`] for anything that is not an SQLite database,
    /// [`NsysSqliteError::NotNsys`] for one that nsys did not write.
    pub fn open(path: &Path) -> Result<NsysSqlite, NsysSqliteError> {
        let uri = uri(path);
        // SQLite says why a file cannot be read.
        let bytes = std::fs::metadata(path).map_or(0, |meta| meta.len());
        let schema_bytes = File::open(path).map_or(0, |file| schema::bytes(&file));
        if schema_bytes > schema::MAX_SCHEMA_BYTES {
            return Err(NsysSqliteError::Schema { limit: schema::MAX_SCHEMA_BYTES });
        }
        let connection = connect(&uri, bytes).map_err(NsysSqliteError::Open)?;
        let tables = table::names(&connection).map_err(NsysSqliteError::Open)?;
        let known = ["StringIds", "META_DATA_EXPORT", "EXPORT_META_DATA", Gpu::TABLE];
        if !known.iter().any(|name| tables.contains(*name)) {
            return Err(NsysSqliteError::NotNsys { tables: tables.len() });
        }
        let mut file = NsysSqlite {
            uri,
            bytes,
            connection,
            tables,
            renamed: BTreeMap::new(),
            // Each reader holds the schema in memory.
            readers: if schema_bytes > SHARED_SCHEMA_BYTES { 1 } else { in_order::readers() },
        };
        file.find_renamed::<Kernel>();
        file.find_renamed::<Memcpy>();
        file.find_renamed::<Memset>();
        file.find_renamed::<GraphLaunch>();
        file.find_renamed::<NvtxEvent>();
        Ok(file)
    }

    /// Looks for a missing table under another name, by its columns.
    fn find_renamed<T: TableRow>(&mut self) {
        if !self.tables.contains(T::TABLE)
            && let Some(stored) =
                table::with_columns(&self.connection, &self.tables, T::OWN_COLUMNS)
        {
            self.renamed.insert(T::TABLE, stored);
        }
    }

    /// The name of a table in the file. `None` if the file has no such table.
    fn stored<'a>(&'a self, table: &'a str) -> Option<&'a str> {
        let known = self.tables.contains(table).then_some(table);
        known.or_else(|| self.renamed.get(table).map(String::as_str))
    }

    /// Tables that were known by their columns only: our names, and those in the file.
    pub fn renamed_tables(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.renamed.iter().map(|(table, stored)| (*table, stored.as_str()))
    }

    /// Tables whose name begins like that of a missing table, but which have other columns: our
    /// names, and those in the file.
    pub fn unread_tables(&self) -> Vec<(&'static str, &str)> {
        let known = [
            Kernel::TABLE,
            Memcpy::TABLE,
            Memset::TABLE,
            RuntimeRow::TABLE,
            GraphLaunch::TABLE,
            NvtxEvent::TABLE,
        ];
        let mut unread = Vec::new();
        for table in known.into_iter().filter(|table| self.stored(table).is_none()) {
            let like = self.tables.iter().filter(|stored| stored.starts_with(table));
            unread.extend(like.map(|stored| (table, stored.as_str())));
        }
        unread.sort_unstable();
        unread
    }

    /// The number of rows of a table, whichever columns it has. `None` if there is no such table,
    /// or it has more rows than the file has room for: then some are in it only once.
    pub fn rows_of(&self, table: &str) -> Option<u64> {
        let stored = self.stored(table)?;
        // A plain `count(*)` is one operation for SQLite, which nothing can interrupt.
        let limit = table::max_rows(self.bytes);
        let sql = format!("SELECT count(*) FROM (SELECT 1 FROM \"{stored}\" LIMIT {limit} + 1)");
        let rows = self.connection.query_row(&sql, [], |row| row.get::<_, i64>(0)).ok()?;
        u64::try_from(rows).ok().filter(|rows| *rows <= limit)
    }

    /// Reads each large table on at most this many threads, for callers that read several files at
    /// once. Without it, there are as many as suit this machine. With one, the caller's thread
    /// reads itself, which takes less time in total.
    #[must_use]
    pub fn with_readers(self, most: usize) -> NsysSqlite {
        NsysSqlite { readers: self.readers.min(most), ..self }
    }

    /// Whether there is any row of GPU work: kernels, copies, fills or graphs. nsys writes a report
    /// without any, with exit status 0, when it could not trace the GPU.
    pub fn has_gpu_rows(&self) -> bool {
        [Kernel::TABLE, Memcpy::TABLE, Memset::TABLE, GraphLaunch::TABLE]
            .iter()
            .any(|t| self.stored(t).is_some())
    }

    /// The name and value pairs of the export's metadata.
    ///
    /// # Errors
    /// [`NsysSqliteError::Table`] when the table is damaged.
    pub fn export(&self) -> Result<BTreeMap<String, String>, NsysSqliteError> {
        let mut pairs = BTreeMap::new();
        for name in ["META_DATA_EXPORT", "EXPORT_META_DATA"] {
            self.each(name, &["name", "value"], |f| {
                if let (Some(key), Some(value)) = (f.text(0), f.text(1)) {
                    pairs.insert(key, value);
                }
            })?;
        }
        Ok(pairs)
    }

    /// The export's schema version, such as `3.20.3`.
    ///
    /// # Errors
    /// [`NsysSqliteError::Table`] when the table is damaged.
    pub fn schema_version(&self) -> Result<Option<String>, NsysSqliteError> {
        let pairs = self.export()?;
        if let Some(version) = pairs.get("EXPORT_SCHEMA_VERSION") {
            return Ok(Some(version.clone()));
        }
        let part = |name: &str| {
            pairs.iter().find(|(k, _)| k.ends_with(name)).map(|(_, value)| value.as_str())
        };
        let parts = [part("VERSION_MAJOR"), part("VERSION_MINOR"), part("VERSION_MICRO")];
        let parts: Vec<&str> = parts.into_iter().flatten().collect();
        Ok((!parts.is_empty()).then(|| parts.join(".")))
    }

    /// The bytes of the file.
    pub fn file_bytes(&self) -> usize {
        usize::try_from(self.bytes).unwrap_or(usize::MAX)
    }

    /// All strings.
    ///
    /// # Errors
    /// [`NsysSqliteError::Table`] when the table is damaged.
    pub fn strings(&self) -> Result<Strings, NsysSqliteError> {
        let mut strings = Strings::default();
        let mut budget = MemoryBudget::for_file(self.file_bytes());
        let mut row = 0;
        let mut over = None;
        self.each("StringIds", &["id", "value"], |f| {
            row += 1;
            if let (Some(id), Some(text)) = (f.int(0), f.text(1)) {
                match budget.take(Strings::bytes_of(&text)) {
                    Ok(()) => strings.insert(id, text),
                    Err(cause) => over = over.or(Some((row, cause))),
                }
            }
        })?;
        match over {
            None => Ok(strings),
            Some((row, cause)) => {
                Err(NsysSqliteError::OverBudget { table: "StringIds", row, cause })
            }
        }
    }

    /// The GPUs.
    ///
    /// # Errors
    /// [`NsysSqliteError::Table`] when the table is damaged.
    pub fn gpus(&self) -> Result<Vec<Gpu>, NsysSqliteError> {
        let mut gpus = Vec::new();
        self.each(Gpu::TABLE, Gpu::COLUMNS, |f| gpus.push(Gpu::read(f)))?;
        Ok(gpus)
    }

    /// The start of the capture, in nanoseconds since 1970 by the host's clock.
    ///
    /// # Errors
    /// [`NsysSqliteError::Table`] when the table is damaged.
    pub fn session_start_ns(&self) -> Result<Option<i64>, NsysSqliteError> {
        let mut start = None;
        self.each("TARGET_INFO_SESSION_START_TIME", &["utcEpochNs"], |f| start = f.int(0))?;
        Ok(start)
    }

    /// The name of the host.
    ///
    /// # Errors
    /// [`NsysSqliteError::Table`] when the table is damaged.
    pub fn host_name(&self) -> Result<Option<String>, NsysSqliteError> {
        let mut name = None;
        self.each("TARGET_INFO_SYSTEM_ENV", &["name", "value"], |f| {
            if f.text(0).as_deref() == Some("Hostname") {
                name = f.text(1).filter(|name| !name.is_empty());
            }
        })?;
        Ok(name)
    }

    /// The diagnostic messages of nsys.
    ///
    /// # Errors
    /// [`NsysSqliteError::Table`] when the table is damaged.
    pub fn diagnostics(&self) -> Result<Vec<Diagnostic>, NsysSqliteError> {
        let mut all = Vec::new();
        self.each(Diagnostic::TABLE, Diagnostic::COLUMNS, |f| all.push(Diagnostic::read(f)))?;
        Ok(all)
    }

    /// Streams the kernels in file order and returns the number of rows. All readers below do the
    /// same.
    ///
    /// # Errors
    /// [`NsysSqliteError::Table`] when the table is damaged.
    pub fn kernels(&self, row: impl FnMut(Kernel)) -> Result<u64, NsysSqliteError> {
        self.large(row)
    }

    /// Streams the first `limit` kernels.
    ///
    /// # Errors
    /// [`NsysSqliteError::Table`] when the table is damaged.
    pub fn first_kernels(
        &self,
        limit: u64,
        mut row: impl FnMut(Kernel),
    ) -> Result<u64, NsysSqliteError> {
        let Some(stored) = self.stored(Kernel::TABLE) else { return Ok(0) };
        let all = table::select(&self.connection, (Kernel::TABLE, stored), Kernel::COLUMNS)?;
        let sql = format!("{all} LIMIT {}", i64::try_from(limit).unwrap_or(i64::MAX));
        table::stream((&self.connection, self.bytes), Kernel::TABLE, &sql, |f| row(Kernel::read(f)))
    }

    /// Streams only the fields of the kernels that sums need: a third of the columns, in a third of
    /// the time.
    ///
    /// # Errors
    /// [`NsysSqliteError::Table`] when the table is damaged.
    pub fn kernel_intervals(
        &self,
        row: impl FnMut(KernelInterval),
    ) -> Result<u64, NsysSqliteError> {
        self.large(row)
    }

    /// The approximate number of rows of GPU work, API calls and NVTX events together, for progress
    /// display. It is not reliable: a hostile file may state anything.
    pub fn about_rows(&self) -> u64 {
        let streamed = [
            Kernel::TABLE,
            Memcpy::TABLE,
            Memset::TABLE,
            GraphLaunch::TABLE,
            RuntimeRow::TABLE,
            NvtxEvent::TABLE,
        ];
        let present = streamed.iter().filter_map(|table| self.stored(table));
        let about = |table: &str| {
            let ids = table::row_ids(&self.connection, table);
            ids.map_or(0, |ids| u64::try_from(*ids.end()).unwrap_or(0))
        };
        present.fold(0, |sum: u64, table| sum.saturating_add(about(table)))
    }

    /// Streams the copies.
    ///
    /// # Errors
    /// [`NsysSqliteError::Table`] when the table is damaged.
    pub fn memcpys(&self, row: impl FnMut(Memcpy)) -> Result<u64, NsysSqliteError> {
        self.large(row)
    }

    /// Streams the fills.
    ///
    /// # Errors
    /// [`NsysSqliteError::Table`] when the table is damaged.
    pub fn memsets(&self, row: impl FnMut(Memset)) -> Result<u64, NsysSqliteError> {
        self.large(row)
    }

    /// Streams the graphs traced as a whole.
    ///
    /// # Errors
    /// [`NsysSqliteError::Table`] when the table is damaged.
    pub fn graph_launches(&self, row: impl FnMut(GraphLaunch)) -> Result<u64, NsysSqliteError> {
        self.large(row)
    }

    /// Streams the API calls.
    ///
    /// # Errors
    /// [`NsysSqliteError::Table`] when the table is damaged.
    pub fn api_calls(&self, mut row: impl FnMut(ApiCall)) -> Result<u64, NsysSqliteError> {
        let mut calls = 0;
        self.large(|found: RuntimeRow| {
            if found.is_call() {
                calls += 1;
                row(found.call);
            }
        })?;
        Ok(calls)
    }

    /// Streams the native frames of calls, and returns the number of stacks. The frames of Python
    /// that nsys writes as marks of NVTX are not in its exports.
    ///
    /// # Errors
    /// [`NsysSqliteError::Table`] when a table is damaged.
    pub fn native_stacks(&self, mut row: impl FnMut(NativeStack)) -> Result<u64, NsysSqliteError> {
        if self.stored(ChainRow::TABLE).is_none() {
            return Ok(0);
        }
        // What does not fit into memory has no stack.
        let mut budget = MemoryBudget::for_file(self.file_bytes());
        let mut calls: HashMap<i64, NativeStack> = HashMap::new();
        self.large(|found: RuntimeRow| {
            let Some(chain) = found.chain.filter(|_| !found.is_call()) else { return };
            if budget.take(2 * size_of::<NativeStack>()).is_ok() {
                let RuntimeRow { call, .. } = found;
                calls.insert(
                    chain,
                    NativeStack {
                        start_ns: call.start_ns,
                        end_ns: call.end_ns,
                        global_tid: call.global_tid,
                        correlation: call.correlation,
                        frames: Vec::new(),
                    },
                );
            }
        })?;
        let mut stacks = 0;
        // The frames of a stack are in consecutive rows.
        let mut current: Option<i64> = None;
        let mut frames: Vec<(i64, NativeFrame)> = Vec::new();
        let mut end = |chain: Option<i64>, frames: &mut Vec<(i64, NativeFrame)>| {
            if let Some(mut stack) = chain.and_then(|chain| calls.remove(&chain)) {
                frames.sort_by_key(|(depth, _)| *depth);
                stack.frames = frames.iter().map(|(_, frame)| *frame).collect();
                stacks += 1;
                row(stack);
            }
            frames.clear();
        };
        self.large(|found: ChainRow| {
            if found.chain != current {
                end(current, &mut frames);
                current = found.chain;
            }
            if frames.len() < MAX_FRAMES {
                frames.push((found.depth, found.frame));
            }
        })?;
        end(current, &mut frames);
        Ok(stacks)
    }

    /// Streams the NVTX events.
    ///
    /// # Errors
    /// [`NsysSqliteError::Table`] when the table is damaged.
    pub fn nvtx_events(&self, row: impl FnMut(NvtxEvent)) -> Result<u64, NsysSqliteError> {
        self.large(row)
    }

    /// Reads the rows of a small table; a missing table has none.
    fn each(
        &self,
        table: &'static str,
        columns: &[&str],
        row: impl FnMut(&Fields<'_, '_>),
    ) -> Result<u64, NsysSqliteError> {
        let Some(stored) = self.stored(table) else { return Ok(0) };
        let sql = table::select(&self.connection, (table, stored), columns)?;
        table::stream((&self.connection, self.bytes), table, &sql, row)
    }

    /// Reads the rows of a table that may be large, on several threads if so. `row` is called in
    /// file order, on the caller's thread.
    fn large<T: TableRow>(&self, mut row: impl FnMut(T)) -> Result<u64, NsysSqliteError> {
        let table = T::TABLE;
        let Some(stored) = self.stored(table) else { return Ok(0) };
        let sql = table::select(&self.connection, (table, stored), T::COLUMNS)?;
        let readers = self.readers;
        let ids = table::row_ids(&self.connection, stored);
        let is_large =
            |ids: &RangeInclusive<i64>| ids.start().abs_diff(*ids.end()) >= LARGE_ID_SPAN;
        if let Some(ids) = ids.filter(|ids| readers > 1 && is_large(ids)) {
            let sql = format!("{sql} WHERE {} BETWEEN ?1 AND ?2", table::ROW_ID);
            let shared = SharedTable { uri: &self.uri, bytes: self.bytes, table, sql: &sql, ids };
            if let Some(outcome) = shared.stream(readers, &mut row) {
                return outcome;
            }
        }
        table::stream((&self.connection, self.bytes), table, &sql, |f| row(T::read(f)))
    }
}

/// Tables with a smaller span of row ids are read in a few milliseconds, so threads would not pay.
const LARGE_ID_SPAN: u64 = 1 << 15;

/// A schema of at most this many bytes is parsed again by each reader of a large table.
const SHARED_SCHEMA_BYTES: u64 = 64 << 10;

/// A row takes a few operations for each of its columns, and each column at least a byte.
const OPERATIONS_PER_BYTE: u64 = 16;
/// More than any reader runs on one connection over a whole table.
const MAX_STATEMENTS: u64 = 16;
/// Operations of statements that read nothing, such as those that read the schema.
const BASE_OPERATIONS: u64 = 1 << 20;
/// Operations between two looks at the count.
const OPERATIONS_PER_CHECK: u32 = 1 << 12;

/// Opens a further connection to a file of `bytes` bytes, which changes nothing and trusts nothing.
/// In a damaged file the parts of a table may lead back to earlier ones, so that reading would
/// never end. So a connection interrupts its statements after more operations than a sound file
/// needs, and takes no text longer than the file.
pub(super) fn connect(uri: &str, bytes: u64) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(uri, flags)?;
    let longest = i32::try_from(bytes).unwrap_or(i32::MAX).max(1 << 16);
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, longest)?;
    let each_statement = BASE_OPERATIONS + OPERATIONS_PER_BYTE.saturating_mul(bytes);
    let mut left = each_statement.saturating_mul(MAX_STATEMENTS);
    connection.progress_handler(
        OPERATIONS_PER_CHECK.cast_signed(),
        Some(move || {
            left = left.saturating_sub(u64::from(OPERATIONS_PER_CHECK));
            left == 0
        }),
    )?;
    connection.execute_batch("PRAGMA trusted_schema = OFF; PRAGMA query_only = ON;")?;
    Ok(connection)
}

/// The URI of a path, with every character escaped that could end the path early.
fn uri(path: &Path) -> String {
    let mut uri = String::from("file:");
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => {
                uri.push(char::from(*byte));
            }
            byte => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri.push_str("?mode=ro&immutable=1");
    uri
}
