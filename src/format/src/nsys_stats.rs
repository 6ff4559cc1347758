//! Reader of the output of `nsys stats --format csv`.
//!
//! The output holds one table or several, each after a line `Processing [FILE] with [SCRIPT]...`
//! that names the report. A file written with `-o` holds one table without such a line, so tables
//! are also recognised by their columns. A report without rows is a line `SKIPPED: …`. Columns by
//! version:
//!
//! | column | 2020 and 2021 | since 2022 |
//! |---|---|---|
//! | share | `Time(%)` | `Time (%)` |
//! | sum | `Total Time (ns)` | the same |
//! | mean, least, most | `Average`, `Minimum`, `Maximum`; then `Avg (ns)`, `Min (ns)`, `Max (ns)` | `Avg (ns)`, `Min (ns)`, `Max (ns)` |
//! | how often | `Instances`, `Num Calls`, `Operations`, `Count` | `Instances`, `Num Calls`, `Count` |
//! | sizes | `Total`, in KB | `Total (MB)` |
//!
//! `--timeunit` changes the unit in the column's name. Tested with nsys 2025.3; older columns
//! follow NVIDIA's documentation.

use crate::csv::{CsvError, Row, Rows, number};
use thiserror::Error;

/// The reason why the output could not be read.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum NsysStatsError {
    /// The rows are damaged.
    #[error(transparent)]
    Rows(#[from] CsvError),
    /// The text contains no table of `nsys stats`.
    #[error("no table of `nsys stats`, and no message that a report was skipped")]
    NoTable,
}

/// Kind of report that a table shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// Kernels by name: `cuda_gpu_kern_sum`, `gpukernsum`.
    Kernels,
    /// Kernels and copies one by one: `cuda_gpu_trace`, `gputrace`.
    GpuTrace,
    /// Copies and fills by kind: `cuda_gpu_mem_time_sum`, `gpumemtimesum`.
    CopyTimes,
    /// Copies and fills by size: `cuda_gpu_mem_size_sum`, `gpumemsizesum`.
    CopySizes,
    /// CUDA calls by name: `cuda_api_sum`, `cudaapisum`.
    Calls,
    /// Ranges by name: `nvtx_sum`, `nvtxsum`.
    Ranges,
    /// Kernels by range: `nvtx_kern_sum`, `nvtxkernsum`.
    RangeKernels,
    /// Any other report, by its name if that is known.
    Other(String),
}

/// The table of one report of `nsys stats`.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// The report that nsys made.
    pub report: Report,
    /// Column names as printed.
    pub columns: Vec<String>,
    /// Rows; each has as many cells as there are columns.
    pub rows: Vec<Vec<String>>,
    /// Number of rows that were skipped because their length differs.
    pub ragged: u64,
}

/// All tables of one output.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NsysStats {
    /// The tables, in order.
    pub tables: Vec<Table>,
    /// nsys's messages about skipped reports.
    pub skipped: Vec<String>,
    /// Why reading stopped early, if it did.
    pub broken: Option<CsvError>,
}

impl NsysStats {
    /// Whether the first bytes of a file look like this output.
    pub fn is_print(head: &[u8]) -> bool {
        let text = String::from_utf8_lossy(head);
        text.lines().take(8).any(|line| script(line).is_some() || is_header(line))
    }

    /// Reads the output.
    ///
    /// # Errors
    /// [`NsysStatsError`]. Output that was cut off gives its complete rows.
    pub fn read(file: &[u8]) -> Result<NsysStats, NsysStatsError> {
        let mut rows = Rows::new(file)?;
        let mut stats = NsysStats::default();
        let mut name = None;
        while let Some(line) = rows.peek_line() {
            if let Some(found) = script(line) {
                name = Some(found.to_owned());
            } else if let Some(words) = line.strip_prefix("SKIPPED: ") {
                if let Err(cause) = rows.keep(ROW_BYTES + TEXT_COPIES * words.len()) {
                    stats.broken = Some(cause);
                    break;
                }
                stats.skipped.push(words.to_owned());
            } else if is_header(line) {
                let (table, broken) = table(&mut rows, name.take());
                stats.tables.extend(table);
                if broken.is_some() {
                    stats.broken = broken;
                    break;
                }
                continue;
            }
            rows.skip_line();
        }
        let nothing = stats.tables.is_empty() && stats.skipped.is_empty() && stats.broken.is_none();
        if nothing { Err(NsysStatsError::NoTable) } else { Ok(stats) }
    }
}

/// The report's name in `Processing [x.sqlite] with [/opt/…/reports/NAME.py]... `.
fn script(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("Processing [")?;
    let script = rest.split_once("with [")?.1.split_once(']')?.0;
    let file = script.rsplit('/').next().unwrap_or(script);
    // A report's options follow its name after a colon.
    Some(file.split(':').next().unwrap_or(file).trim_end_matches(".py"))
}

/// Whether a line is the header of a known table.
fn is_header(line: &str) -> bool {
    const FIRST: &[&str] = &[
        "Time (%)",
        "Time(%)",
        "Total (",
        "Total",
        "Start (",
        "Start(",
        "NVTX Range",
        "Range,",
        "PID,TID",
        "Duration",
    ];
    line.matches(',').count() >= 3 && FIRST.iter().any(|first| line.starts_with(first))
}

/// Memory of a row and of one of its fields, in bytes, with all that a profile makes of them.
const ROW_BYTES: usize = 2 << 10;
const FIELD_BYTES: usize = 96;
/// How often a text of a row is kept.
const TEXT_COPIES: usize = 3;

fn row_bytes(row: &Row) -> usize {
    let text_bytes: usize = row.fields.iter().map(String::len).sum();
    ROW_BYTES + FIELD_BYTES * row.fields.len() + TEXT_COPIES * text_bytes
}

/// The table at the current row. It ends at an empty line, at a message of the tool, or at the end
/// of the file.
fn table(rows: &mut Rows<'_>, name: Option<String>) -> (Option<Table>, Option<CsvError>) {
    let header = match rows.next_row() {
        Ok(Some(header)) => header,
        Ok(None) => return (None, None),
        Err(cause) => return (None, Some(cause)),
    };
    if let Err(cause) = rows.keep(row_bytes(&header)) {
        return (None, Some(cause));
    }
    let mut table = Table {
        report: report(name.as_deref(), &header.fields),
        columns: header.fields,
        rows: Vec::new(),
        ragged: 0,
    };
    let mut broken = None;
    while let Some(line) = rows.peek_line() {
        if line.trim().is_empty() || script(line).is_some() || line.starts_with("SKIPPED: ") {
            break;
        }
        match rows.next_row() {
            Ok(Some(row)) if row.fields.len() == table.columns.len() => {
                if let Err(cause) = rows.keep(row_bytes(&row)) {
                    broken = Some(cause);
                    break;
                }
                table.rows.push(row.fields);
            }
            Ok(Some(_)) => table.ragged += 1,
            Ok(None) => break,
            Err(cause) => {
                broken = Some(cause);
                break;
            }
        }
    }
    (Some(table), broken)
}

fn report(name: Option<&str>, columns: &[String]) -> Report {
    let known = match name {
        Some("cuda_gpu_kern_sum" | "cuda_gpu_kernel_sum" | "gpukernsum") => Some(Report::Kernels),
        Some("cuda_gpu_trace" | "gputrace") => Some(Report::GpuTrace),
        Some("cuda_gpu_mem_time_sum" | "gpumemtimesum") => Some(Report::CopyTimes),
        Some("cuda_gpu_mem_size_sum" | "gpumemsizesum") => Some(Report::CopySizes),
        Some("cuda_api_sum" | "cudaapisum") => Some(Report::Calls),
        Some("nvtx_sum" | "nvtxsum") => Some(Report::Ranges),
        Some("nvtx_kern_sum" | "nvtxkernsum") => Some(Report::RangeKernels),
        Some(other) => Some(Report::Other(other.to_owned())),
        None => None,
    };
    if let Some(report) = known {
        return report;
    }
    let has = |name: &str| columns.iter().any(|column| column == name);
    let starts = |prefix: &str| columns.iter().any(|column| column.starts_with(prefix));
    match () {
        () if has("Kernel Name") && has("NVTX Range") => Report::RangeKernels,
        () if has("CorrId") && starts("Duration") && has("Name") => Report::GpuTrace,
        () if has("Operation") && starts("Total Time") => Report::CopyTimes,
        () if has("Operation") && starts("Total") => Report::CopySizes,
        () if has("Num Calls") => Report::Calls,
        () if has("Range") && has("Instances") && starts("Total Time") => Report::Ranges,
        () if has("Instances") && has("Name") && starts("Total Time") => Report::Kernels,
        () => Report::Other(String::new()),
    }
}

impl Table {
    /// The first column with any of these `names`, ignoring the unit in parentheses.
    pub fn column(&self, names: &[&str]) -> Option<usize> {
        let plain = |column: &str| {
            let end = column.find('(').unwrap_or(column.len());
            column[..end].trim().to_owned()
        };
        names
            .iter()
            .find_map(|name| self.columns.iter().position(|c| c == name || plain(c) == *name))
    }

    /// The cell of a row; empty if there is no such column.
    pub fn cell<'r>(&self, row: &'r [String], column: Option<usize>) -> &'r str {
        column.and_then(|column| row.get(column)).map_or("", String::as_str)
    }

    /// A cell in nanoseconds, using the unit in its column's name; without a unit it already is
    /// nanoseconds.
    pub fn ns(&self, row: &[String], column: Option<usize>) -> Option<f64> {
        let factor = match self.unit(column?) {
            "us" | "usec" | "μs" | "µs" => 1e3,
            "ms" | "msec" => 1e6,
            "s" | "sec" => 1e9,
            _ => 1.0,
        };
        number(self.cell(row, column)).map(|value| value * factor)
    }

    /// A cell in bytes, using the unit in its column's name; prefixes are decimal. Without a unit
    /// it is in KB, as older versions print.
    pub fn bytes(&self, row: &[String], column: Option<usize>) -> Option<f64> {
        let factor = match self.unit(column?) {
            "B" | "bytes" => 1.0,
            "MB" | "MiB" => 1e6,
            "GB" => 1e9,
            _ => 1e3,
        };
        number(self.cell(row, column)).map(|value| value * factor)
    }

    fn unit(&self, column: usize) -> &str {
        let name = self.columns.get(column).map_or("", String::as_str);
        let inner = name.split_once('(').and_then(|(_, rest)| rest.split_once(')'));
        inner.map_or("", |(unit, _)| unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_columns_and_other_time_units_are_read() {
        let old = b"Time(%),Total Time (ns),Instances,Average,Minimum,Maximum,Name\n\
                    100.0,30,3,10.0,5,15,\"k(int, float)\"\n";
        let stats = NsysStats::read(old).unwrap();
        let table = &stats.tables[0];
        assert_eq!(table.report, Report::Kernels);
        assert_eq!(table.ns(&table.rows[0], table.column(&["Min", "Minimum"])), Some(5.0));
        assert_eq!(table.rows[0][6], "k(int, float)");
        let ms = b"Time (%),Total Time (ms),Instances,Avg (ms),Name\n1,2.5,1,2.5,k\n";
        let stats = NsysStats::read(ms).unwrap();
        let table = &stats.tables[0];
        assert_eq!(table.ns(&table.rows[0], table.column(&["Total Time"])), Some(2.5e6));
    }

    #[test]
    fn several_tables_and_skipped_reports_stand_in_one_print() {
        let text = b"Generating SQLite file a.sqlite from a.nsys-rep\n\
            Processing [a.sqlite] with [/x/reports/cuda_gpu_kern_sum.py]... \n\
            SKIPPED: a.sqlite does not contain CUDA kernel data.\n\n\
            Processing [a.sqlite] with [/x/reports/nvtx_sum.py]... \n\
            Time (%),Total Time (ns),Instances,Style,Range\n1,2,3,PushPop,:A\nx,y\n\n";
        let stats = NsysStats::read(text).unwrap();
        assert_eq!(stats.skipped, ["a.sqlite does not contain CUDA kernel data."]);
        assert_eq!(stats.tables[0].report, Report::Ranges);
        assert_eq!((stats.tables[0].rows.len(), stats.tables[0].ragged), (1, 1));
        assert_eq!(NsysStats::read(b"hello\n"), Err(NsysStatsError::NoTable));
    }
}
