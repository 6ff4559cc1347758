//! Reads the CSV of `ncu --import REPORT --csv --page source --print-source sass`: the
//! instructions of each launch, with what ncu counted for them.
//!
//! Each launch has a table of its own: a row with its kernel's name, a header, and one row an
//! instruction. ncu leaves out columns that have no value in the whole table. Pages of
//! `--print-source cuda` or `cuda,sass` begin with `File Path` and are not read.

use super::NcuCsvError;
use super::launch::CellValue;
use crate::csv::{CsvError, Row, Rows};

/// The launches of `--page source`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SourcePage {
    /// Its launches, in order.
    pub launches: Vec<SourceLaunch>,
    /// Number of skipped rows: rows before the first kernel, without an address, or with another
    /// number of fields than the header.
    pub ragged: u64,
    /// The CSV error that ended the reading, such as a file that was cut off.
    pub broken: Option<CsvError>,
}

/// The instructions of one launch.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SourceLaunch {
    /// Column `Kernel Name`, as ncu prints it.
    pub kernel: String,
    /// Labels of the columns after address and text. Old versions of ncu print some twice.
    pub columns: Vec<String>,
    /// One for each row, in address order.
    pub instructions: Vec<SourceRow>,
}

/// One instruction with what ncu counted for it.
#[derive(Debug, Clone, PartialEq)]
pub struct SourceRow {
    /// Address on the GPU.
    pub address: u64,
    /// Guard, name and operands. Branch targets are addresses.
    pub text: String,
    /// One for each column.
    pub cells: Vec<CellValue>,
}

const KERNEL: &str = "Kernel Name";
const ADDRESS: &str = "Address";

/// Memory of a launch, of an instruction, and of one of its cells, in bytes, with all that a
/// profile makes of them.
const LAUNCH_BYTES: usize = 3 << 10;
const ROW_BYTES: usize = 1 << 10;
const CELL_BYTES: usize = 96;
/// How often a text of a row is kept.
const TEXT_COPIES: usize = 3;

/// First cells of the rows of pages that are printed as source lines.
const LINES: [&str; 3] = ["File Path", "Function Name", "Line No"];

impl SourcePage {
    /// Whether the first bytes of a file look like a source page, as SASS or as source lines.
    pub fn is_page(head: &[u8]) -> bool {
        let text = String::from_utf8_lossy(head);
        let first = text.trim_start_matches('\u{feff}').lines().find(|line| !is_message(line));
        first.is_some_and(|line| {
            [KERNEL, LINES[0], LINES[1]]
                .iter()
                .any(|name| line.starts_with(&format!("\"{name}\",\"")))
        })
    }

    /// Reads a page.
    ///
    /// # Errors
    /// [`NcuCsvError`] if there is no table of instructions. A page that was cut off gives its
    /// complete rows.
    pub fn read(file: &[u8]) -> Result<SourcePage, NcuCsvError> {
        let mut rows = Rows::new(file)?;
        let mut page = SourcePage::default();
        let mut has_lines = false;
        loop {
            while rows.peek_line().is_some_and(is_message) {
                rows.skip_line();
            }
            let row = match rows.next_row() {
                Ok(Some(row)) => row,
                Ok(None) => break,
                Err(cause) => {
                    page.broken = Some(cause);
                    break;
                }
            };
            let is_kernel = row.fields.first().is_some_and(|first| first == KERNEL);
            let text_bytes: usize = row.fields.iter().map(String::len).sum();
            let bytes = if is_kernel { LAUNCH_BYTES } else { row.fields.len() * CELL_BYTES };
            if let Err(cause) = rows.keep(ROW_BYTES + bytes + TEXT_COPIES * text_bytes) {
                page.broken = Some(cause);
                break;
            }
            match row.fields.first().map(String::as_str) {
                Some(KERNEL) => {
                    let kernel = row.fields.get(1).cloned().unwrap_or_default();
                    page.launches.push(SourceLaunch { kernel, ..SourceLaunch::default() });
                }
                Some(first) if LINES.contains(&first) => has_lines = true,
                _ => page.add(row),
            }
        }
        page.launches.retain(|launch| !launch.instructions.is_empty());
        match (page.launches.is_empty(), has_lines) {
            (true, true) => Err(NcuCsvError::SourceLines),
            (true, false) => Err(NcuCsvError::NoInstructions),
            (false, _) => Ok(page),
        }
    }

    /// Adds a header or an instruction to the last launch.
    fn add(&mut self, row: Row) {
        let Some(launch) = self.launches.last_mut() else {
            self.ragged += 1;
            return;
        };
        let mut fields = row.fields.into_iter();
        let first = fields.next().unwrap_or_default();
        let text = fields.next().unwrap_or_default();
        if first == ADDRESS {
            launch.columns = fields.collect();
            return;
        }
        let address = first.strip_prefix("0x").and_then(|hex| u64::from_str_radix(hex, 16).ok());
        match address.filter(|_| fields.len() == launch.columns.len()) {
            Some(address) => launch.instructions.push(SourceRow {
                address,
                text: text.split_whitespace().collect::<Vec<_>>().join(" "),
                cells: fields.map(|cell| CellValue::read(&cell)).collect(),
            }),
            None => self.ragged += 1,
        }
    }
}

/// Whether a line is empty or a message of ncu (`==PROF== …`).
fn is_message(line: &str) -> bool {
    line.is_empty() || line.starts_with("==")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_launch_has_a_table_of_its_own() {
        let page = "==PROF== a message\n\"Kernel Name\",\"a(int, int)\",\n\"Address\",\"Source\",\"# Samples\",\"Access\"\n\
            \"0x10\",\"      MOV R1, R2\",\"1,234\",\"-\"\n\"0x20\",\"@!P0  BRA 0x10\",\"0\",\"Global\"\nx,y\n\
            \"Kernel Name\",\"b\",\n\"Address\",\"Source\",\"# Samples\"\n\"0x40\",\"EXIT\",\"7\"\n";
        assert!(SourcePage::is_page(page.as_bytes()));
        let read = SourcePage::read(page.as_bytes()).unwrap();
        assert_eq!((read.launches.len(), read.ragged, &read.broken), (2, 1, &None));
        let first = &read.launches[0];
        assert_eq!((first.kernel.as_str(), first.columns.len()), ("a(int, int)", 2));
        assert_eq!(
            first.instructions[0].cells,
            [CellValue::Number(1234.0), CellValue::Text("-".to_owned())]
        );
        assert_eq!(first.instructions[1].text, "@!P0 BRA 0x10");
        assert_eq!(first.instructions[1].cells[1], CellValue::Text("Global".to_owned()));
        assert_eq!(read.launches[1].instructions[0].address, 0x40);
        // A page that was cut off keeps its complete rows.
        let cut = page.rfind("\"7\"").unwrap() + 2;
        let read = SourcePage::read(&page.as_bytes()[..cut]).unwrap();
        assert!(read.broken.is_some() && read.launches.len() == 1, "{read:?}");
    }

    #[test]
    fn a_page_without_instructions_is_an_error_that_says_what_it_has() {
        let lines = "\"File Path\",\"/src/a.cu\",\n\"Function Name\",\"a\",\n\"Line No\",\"Source\",\"# Samples\"\n\"8\",\"{\",\"1\"\n";
        assert!(SourcePage::is_page(lines.as_bytes()));
        assert_eq!(SourcePage::read(lines.as_bytes()), Err(NcuCsvError::SourceLines));
        let empty = "\"Kernel Name\",\"a\",\n";
        assert_eq!(SourcePage::read(empty.as_bytes()), Err(NcuCsvError::NoInstructions));
        assert!(!SourcePage::is_page(b"\"ID\",\"Process ID\",\"Kernel Name\"\n"));
    }
}
