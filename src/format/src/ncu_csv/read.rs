//! Reads a raw or details page of `ncu --csv`: its rows become one [`CsvLaunch`] for each launch.

use super::NcuCsvError;
use super::launch::{Cell, CellValue, CsvLaunch, CsvRule, compute, ranges, triple};
use crate::csv::{CsvError, Row, Rows, number};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The page of `ncu --csv`, which decides its columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Page {
    /// One row a launch.
    Raw,
    /// One row a metric.
    Details,
}

/// The rows of one page of `ncu --csv`.
#[derive(Debug, Clone, PartialEq)]
pub struct NcuCsv {
    /// Kind of the page.
    pub page: Page,
    /// Its launches, in order.
    pub launches: Vec<CsvLaunch>,
    /// Number of rows that were skipped because their field count differs from the header's.
    pub ragged: u64,
    /// Why reading stopped early, if it did; the launches before are complete.
    pub broken: Option<CsvError>,
}

/// Columns that identify the launch of a row, in any order.
const IDENTITY: &[&str] = &[
    "ID",
    "Process ID",
    "Process Name",
    "Host Name",
    "Kernel Name",
    "Context",
    "Stream",
    "Block Size",
    "Grid Size",
    "Device",
    "CC",
];
/// Name of the column of push/pop ranges. Its cells begin with the thread, those of start/end
/// ranges with the range's number.
const PUSH_POP: &str = "thread Domain:Push/Pop_Range";
const START_END: &str = "Id:Domain:Start/Stop_Range";

impl NcuCsv {
    /// Whether the first bytes of a file look like a page.
    pub fn is_page(head: &[u8]) -> bool {
        let text = String::from_utf8_lossy(head);
        let header =
            text.lines().find(|line| line.starts_with("\"ID\",") || line.starts_with("ID,"));
        header.is_some_and(|line| line.contains("Kernel Name") && line.contains("Process ID"))
    }

    /// Reads a page.
    ///
    /// # Errors
    /// [`NcuCsvError`] if there is no page. A page that was cut off gives its complete rows.
    pub fn read(file: &[u8]) -> Result<NcuCsv, NcuCsvError> {
        let mut rows = Rows::new(file)?;
        let header = header(&mut rows)?;
        let columns = Columns::new(&header.fields);
        match columns.details {
            Some(details) => read_details(rows, &columns, &details),
            None => read_raw(rows, &columns),
        }
    }
}

/// The first row of a table; lines before it are messages of ncu or the program's output.
fn header(rows: &mut Rows<'_>) -> Result<Row, NcuCsvError> {
    while let Some(line) = rows.peek_line() {
        if line.starts_with("\"ID\",") || line.starts_with("ID,") {
            let row = rows.next_row()?;
            if let Some(row) = row.filter(|row| row.fields.iter().any(|f| f == "Kernel Name")) {
                return Ok(row);
            }
        } else {
            rows.skip_line();
        }
    }
    Err(NcuCsvError::NoHeader)
}

/// The positions of the columns.
struct Columns<'a> {
    names: &'a [String],
    by_name: HashMap<&'a str, usize>,
    push_pop: Option<usize>,
    start_end: Option<usize>,
    details: Option<Details>,
    /// Metric columns of the raw page.
    metrics: Vec<usize>,
}

/// Columns of the details page.
#[derive(Clone, Copy)]
struct Details {
    section: Option<usize>,
    name: usize,
    unit: Option<usize>,
    value: usize,
}

impl<'a> Columns<'a> {
    fn new(names: &'a [String]) -> Columns<'a> {
        let mut by_name = HashMap::new();
        for (index, name) in names.iter().enumerate() {
            by_name.entry(name.as_str()).or_insert(index);
        }
        let at = |name: &str| by_name.get(name).copied();
        let starts = |prefix: &str| names.iter().position(|name| name.starts_with(prefix));
        let (push_pop, start_end) = (starts(PUSH_POP), starts(START_END));
        let details = at("Metric Name").zip(at("Metric Value")).map(|(name, value)| Details {
            section: at("Section Name"),
            name,
            unit: at("Metric Unit"),
            value,
        });
        let other = |index: &usize| {
            !IDENTITY.contains(&names[*index].as_str())
                && Some(*index) != push_pop
                && Some(*index) != start_end
        };
        let metrics = (0..names.len()).filter(other).collect();
        Columns { names, by_name, push_pop, start_end, details, metrics }
    }

    fn cell<'r>(&self, row: &'r Row, name: &str) -> &'r str {
        let index = self.by_name.get(name);
        index.and_then(|index| row.fields.get(*index)).map_or("", String::as_str)
    }

    fn launch(&self, row: &Row) -> CsvLaunch {
        let ranges_of = |column: Option<usize>, numbered| {
            let cell = column.and_then(|index| row.fields.get(index));
            cell.map(|cell| ranges(cell, numbered)).unwrap_or_default()
        };
        CsvLaunch {
            id: self.cell(row, "ID").trim().parse().unwrap_or_default(),
            kernel: self.cell(row, "Kernel Name").to_owned(),
            process: self.cell(row, "Process Name").to_owned(),
            grid: triple(self.cell(row, "Grid Size")),
            block: triple(self.cell(row, "Block Size")),
            stream: self.cell(row, "Stream").trim().parse().ok(),
            compute: compute(self.cell(row, "CC")),
            push_pop: ranges_of(self.push_pop, false),
            start_end: ranges_of(self.start_end, true),
            cells: Vec::new(),
            rules: Vec::new(),
        }
    }
}

/// The next row of the table; messages of the tool in between are skipped.
fn next(rows: &mut Rows<'_>) -> Result<Option<Row>, CsvError> {
    while rows.peek_line().is_some_and(|line| line.starts_with("==") || line.is_empty()) {
        rows.skip_line();
    }
    rows.next_row()
}

/// Memory of a launch without its metrics, in bytes, with all that a profile makes of it.
const LAUNCH_BYTES: usize = 3 << 10;
/// Memory of a metric or rule of a launch without its texts, in bytes.
const CELL_BYTES: usize = 320;
/// Memory of a name that is new, in the tables of names.
const NAME_BYTES: usize = 320;
/// How often a text of a row is kept.
const TEXT_COPIES: usize = 3;

/// The names, units and sections of a page, each stored once.
#[derive(Default)]
struct KnownTexts(HashSet<Arc<str>>);

impl KnownTexts {
    fn share(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.0.get(text) {
            return Arc::clone(known);
        }
        let text: Arc<str> = text.into();
        self.0.insert(Arc::clone(&text));
        text
    }
}

fn launch_bytes(row: &Row) -> usize {
    let text_bytes: usize = row.fields.iter().take(IDENTITY.len() + 2).map(String::len).sum();
    LAUNCH_BYTES + TEXT_COPIES * text_bytes
}

/// Memory of a metric with this value, whose names are stored once and printed once.
fn cell_bytes(names: usize, value: &str) -> usize {
    CELL_BYTES + names + TEXT_COPIES * value.len()
}

fn read_raw(mut rows: Rows<'_>, columns: &Columns<'_>) -> Result<NcuCsv, NcuCsvError> {
    let units = next(&mut rows)?.ok_or(NcuCsvError::NoUnits)?;
    let mut known = KnownTexts::default();
    let nothing = known.share("");
    let name = |index: &usize| {
        let unit = units.fields.get(*index).map_or("", String::as_str);
        (known.share(&columns.names[*index]), known.share(unit))
    };
    let names: Vec<(Arc<str>, Arc<str>)> = columns.metrics.iter().map(name).collect();
    let mut page = NcuCsv { page: Page::Raw, launches: Vec::new(), ragged: 0, broken: None };
    loop {
        let row = match next(&mut rows) {
            Ok(Some(row)) => row,
            Ok(None) => break,
            Err(cause) => {
                page.broken = Some(cause);
                break;
            }
        };
        if row.fields.len() != columns.names.len() {
            page.ragged += 1;
            continue;
        }
        let cells = columns.metrics.iter().zip(&names);
        let cells = cells
            .map(|(index, (name, unit))| cell_bytes(name.len() + unit.len(), &row.fields[*index]));
        if let Err(cause) = rows.keep(launch_bytes(&row) + cells.sum::<usize>()) {
            page.broken = Some(cause);
            break;
        }
        let mut launch = columns.launch(&row);
        let cells = columns.metrics.iter().zip(&names);
        launch.cells = cells
            .map(|(index, (name, unit))| Cell {
                section: Arc::clone(&nothing),
                name: Arc::clone(name),
                unit: Arc::clone(unit),
                value: CellValue::read(&row.fields[*index]),
            })
            .collect();
        page.launches.push(launch);
    }
    Ok(page)
}

fn read_details(
    mut rows: Rows<'_>,
    columns: &Columns<'_>,
    details: &Details,
) -> Result<NcuCsv, NcuCsvError> {
    let mut known = KnownTexts::default();
    let mut page = NcuCsv { page: Page::Details, launches: Vec::new(), ragged: 0, broken: None };
    loop {
        let row = match next(&mut rows) {
            Ok(Some(row)) => row,
            Ok(None) => break,
            Err(cause) => {
                page.broken = Some(cause);
                break;
            }
        };
        // Metric rows end before the columns of rules.
        if row.fields.len() <= details.value || row.fields.len() > columns.names.len() {
            page.ragged += 1;
            continue;
        }
        let id: u64 = columns.cell(&row, "ID").trim().parse().unwrap_or_default();
        let is_new = page.launches.last().is_none_or(|launch| launch.id != id);
        let field = |index: usize| row.fields.get(index).map_or("", String::as_str);
        let name =
            [details.section, Some(details.name), details.unit].map(|at| at.map_or("", field));
        let is_known = known.0.contains(name[1]);
        let name_bytes: usize = name.iter().map(|text| text.len()).sum();
        let new_bytes = if is_known { 0 } else { NAME_BYTES + TEXT_COPIES * name_bytes };
        let rule_bytes: usize = row.fields.iter().skip(details.value + 1).map(String::len).sum();
        let bytes = if is_new { launch_bytes(&row) } else { 0 }
            + cell_bytes(name_bytes, field(details.value))
            + new_bytes
            + TEXT_COPIES * rule_bytes;
        if let Err(cause) = rows.keep(bytes) {
            page.broken = Some(cause);
            break;
        }
        if is_new {
            page.launches.push(columns.launch(&row));
        }
        let Some(launch) = page.launches.last_mut() else { continue };
        let [section, name, unit] = name;
        if !name.is_empty() {
            launch.cells.push(Cell {
                section: known.share(section),
                name: known.share(name),
                unit: known.share(unit),
                value: CellValue::read(field(details.value)),
            });
        }
        let text = columns.cell(&row, "Rule Description");
        if !text.is_empty() {
            launch.rules.push(CsvRule {
                rule: columns.cell(&row, "Rule Name").to_owned(),
                kind: columns.cell(&row, "Rule Type").to_owned(),
                text: text.to_owned(),
                speedup: number(columns.cell(&row, "Estimated Speedup")),
            });
        }
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_stored_once_so_that_a_large_page_of_details_is_read_whole() {
        let mut text = String::from(
            "\"ID\",\"Process ID\",\"Process Name\",\"Host Name\",\"Kernel Name\",\"Context\",\"Stream\",\
             \"Block Size\",\"Grid Size\",\"Device\",\"CC\",\"Section Name\",\"Metric Name\",\
             \"Metric Unit\",\"Metric Value\"\n",
        );
        let kernel =
            "void at::native::elementwise_kernel<4, at::native::AddFunctor<float>>(int, T2)";
        for row in 0..120_000 {
            let (id, metric) = (row / 40, row % 40);
            text += &format!(
                "\"{id}\",\"4242\",\"python3.11\",\"127.0.0.1\",\"{kernel}\",\"1\",\"7\",\
                 \"(256, 1, 1)\",\"(1024, 1, 1)\",\"0\",\"9.0\",\"GPU Speed Of Light Throughput\",\
                 \"DRAM Frequency {metric}\",\"hz\",\"2,619,000,{row}\"\n"
            );
        }
        let page = NcuCsv::read(text.as_bytes()).unwrap();
        assert_eq!(page.broken, None, "{} launches of {} bytes", page.launches.len(), text.len());
        assert_eq!(page.launches.len(), 3000);
        let name = |launch: usize| Arc::as_ptr(&page.launches[launch].cells[7].name);
        assert_eq!(name(0), name(2999));
    }
}
