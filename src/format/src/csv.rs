//! Reads comma-separated values as NVIDIA's tools print them: RFC 4180 rows between other lines.
//!
//! Rows end with a line feed, optionally after a carriage return. A field in double quotes may
//! contain commas, line feeds and doubled quotes. Lines that begin with `==` are messages of the
//! tool.

use crate::memory::MemoryBudget;
use thiserror::Error;

/// Most fields of a row. The widest tables have one column for each of about 10,000 metrics.
const MAX_FIELDS: usize = 1 << 16;

/// The reason why reading stopped before the end.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum CsvError {
    /// The text is not UTF-8.
    #[error("not a text: a byte at offset {offset} is not UTF-8")]
    NotText {
        /// Offset in bytes from the start of the file.
        offset: u64,
    },
    /// A quoted field has no closing quote: the file was cut off.
    #[error("a quoted field that starts at offset {offset} has no end")]
    OpenQuote {
        /// Offset in bytes from the start of the file.
        offset: u64,
    },
    /// A row has too many fields.
    #[error("row {row}, at offset {offset}, has more than {MAX_FIELDS} fields")]
    TooManyFields {
        /// Number of the row among the rows that were read, from 1.
        row: u64,
        /// Offset in bytes from the start of the file.
        offset: u64,
    },
    /// The rows take too much memory.
    #[error(
        "row {row}, at offset {offset}, and the rows before it take more than the {} MiB of memory \
         that a file of this size may take", .limit >> 20
    )]
    TooMuchMemory {
        /// Number of the row among the rows that were read, from 1.
        row: u64,
        /// Offset in bytes from the start of the file.
        offset: u64,
        /// The limit in bytes.
        limit: u64,
    },
}

/// One row: its fields and its offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The fields, without quotes and their escapes.
    pub fields: Vec<String>,
    /// Offset of its first byte.
    pub offset: u64,
}

/// Iterates over the rows of a text.
#[derive(Debug, Clone)]
pub struct Rows<'a> {
    text: &'a str,
    at: usize,
    /// Number of rows that were read, and the offset of the last one.
    rows: u64,
    last_row_offset: usize,
    budget: MemoryBudget,
}

impl<'a> Rows<'a> {
    /// Starts reading a file; a byte order mark is skipped.
    ///
    /// # Errors
    /// [`CsvError::NotText`].
    pub fn new(file: &'a [u8]) -> Result<Rows<'a>, CsvError> {
        let text = std::str::from_utf8(file)
            .map_err(|e| CsvError::NotText { offset: e.valid_up_to() as u64 })?;
        let at = if text.starts_with('\u{feff}') { 3 } else { 0 };
        let budget = MemoryBudget::for_file(file.len());
        Ok(Rows { text, at, rows: 0, last_row_offset: at, budget })
    }

    /// Takes the memory for what is kept of the last row.
    ///
    /// # Errors
    /// [`CsvError::TooMuchMemory`] if the file may not take that much.
    pub fn keep(&mut self, bytes: usize) -> Result<(), CsvError> {
        let (row, offset) = (self.rows, self.last_row_offset as u64);
        let kept = self.budget.take(bytes);
        kept.map_err(|over| CsvError::TooMuchMemory { row, offset, limit: over.limit })
    }

    /// The next line, without consuming it.
    pub fn peek_line(&self) -> Option<&'a str> {
        let rest = self.text.get(self.at..).filter(|rest| !rest.is_empty())?;
        Some(rest.split('\n').next().unwrap_or(rest).trim_end_matches('\r'))
    }

    /// Consumes the next line.
    pub fn skip_line(&mut self) {
        let rest = self.text.get(self.at..).unwrap_or_default();
        self.at += rest.find('\n').map_or(rest.len(), |end| end + 1);
    }

    /// The next row; `None` at the end.
    ///
    /// # Errors
    /// [`CsvError::OpenQuote`] or [`CsvError::TooManyFields`]; nothing can be read after it.
    pub fn next_row(&mut self) -> Result<Option<Row>, CsvError> {
        let Some(rest) = self.text.get(self.at..).filter(|rest| !rest.is_empty()) else {
            return Ok(None);
        };
        let start = self.at;
        self.rows += 1;
        self.last_row_offset = start;
        let mut fields = Vec::new();
        let mut at = 0;
        loop {
            let (field, end) = match rest[at..].strip_prefix('"') {
                Some(quoted) => {
                    let offset = (start + at) as u64;
                    let Some((field, length)) = unquote(quoted) else {
                        self.at = self.text.len();
                        return Err(CsvError::OpenQuote { offset });
                    };
                    (field, at + 1 + length)
                }
                None => (String::new(), at),
            };
            // Text between a closing quote and the next comma belongs to the field.
            let tail = &rest[end..];
            let length = tail.find([',', '\n']).unwrap_or(tail.len());
            let more = tail[length..].starts_with(',');
            let plain = if more { &tail[..length] } else { tail[..length].trim_end_matches('\r') };
            if fields.len() == MAX_FIELDS {
                self.at = self.text.len();
                return Err(CsvError::TooManyFields { row: self.rows, offset: start as u64 });
            }
            fields.push(field + plain);
            at = end + length;
            if !more {
                break;
            }
            at += 1;
        }
        self.at = start + at + usize::from(rest[at..].starts_with('\n'));
        Ok(Some(Row { fields, offset: start as u64 }))
    }
}

/// The contents of a quoted field, and its length including the closing quote.
fn unquote(quoted: &str) -> Option<(String, usize)> {
    let mut field = String::new();
    let mut at = 0;
    loop {
        let end = at + quoted[at..].find('"')?;
        field.push_str(&quoted[at..end]);
        if !quoted[end + 1..].starts_with('"') {
            return Some((field, end + 1));
        }
        field.push('"');
        at = end + 2;
    }
}

/// Parses a number as these tools print it, with optional commas between thousands.
pub fn number(cell: &str) -> Option<f64> {
    let cell = cell.trim();
    let plain = if cell.contains(',') { cell } else { return cell.parse().ok() };
    let (sign, digits) = plain.strip_prefix('-').map_or(("", plain), |rest| ("-", rest));
    let (integer, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let mut groups = integer.split(',');
    let first = groups.next().unwrap_or_default();
    let all_digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let well_parted = (1..=3).contains(&first.len())
        && all_digits(first)
        && groups.all(|group| group.len() == 3 && all_digits(group));
    let joined = format!("{sign}{}.{fraction}", integer.replace(',', ""));
    well_parted.then(|| joined.trim_end_matches('.').parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &str) -> Vec<Vec<String>> {
        let mut rows = Rows::new(text.as_bytes()).unwrap();
        let mut all = Vec::new();
        while let Some(row) = rows.next_row().unwrap() {
            all.push(row.fields);
        }
        all
    }

    #[test]
    fn quotes_hold_commas_line_feeds_and_quotes() {
        assert_eq!(rows("a,\"b,\n\"\"c\"\"\",\r\nd\n"), [vec!["a", "b,\n\"c\"", ""], vec!["d"]]);
        assert_eq!(rows("a,\"b\"c,d"), [["a", "bc", "d"]]);
        assert_eq!(rows("\n,\n"), [vec![""], vec!["", ""]]);
    }

    #[test]
    fn a_quote_without_end_is_told_with_its_offset() {
        let mut rows = Rows::new(b"a\nb,\"c\nd").unwrap();
        assert!(rows.next_row().unwrap().is_some());
        assert_eq!(rows.next_row(), Err(CsvError::OpenQuote { offset: 4 }));
        assert_eq!(rows.next_row(), Ok(None));
        assert_eq!(Rows::new(b"a\xff").err(), Some(CsvError::NotText { offset: 1 }));
    }

    #[test]
    fn fields_and_memory_have_a_limit_that_names_the_row() {
        let wide = format!("a\n{}\n", ",".repeat(MAX_FIELDS));
        let mut rows = Rows::new(wide.as_bytes()).unwrap();
        assert!(rows.next_row().unwrap().is_some());
        assert_eq!(rows.next_row(), Err(CsvError::TooManyFields { row: 2, offset: 2 }));
        let mut rows = Rows::new(b"a\nb\n").unwrap();
        rows.next_row().unwrap();
        assert_eq!(rows.keep(1 << 20), Ok(()));
        rows.next_row().unwrap();
        let told = rows.keep(1 << 30).unwrap_err().to_string();
        assert!(told.starts_with("row 2, at offset 2, ") && told.contains("32 MiB"), "{told}");
    }

    #[test]
    fn thousands_are_parted_by_commas_only_where_they_should_be() {
        assert_eq!(number("7,351"), Some(7351.0));
        assert_eq!(number("-1,234,567.5"), Some(-1234567.5));
        assert_eq!(number(" 3.25 "), Some(3.25));
        assert_eq!(number("1,2"), None);
        assert_eq!(number("(1, 1, 1)"), None);
        assert_eq!(number("n/a"), None);
    }
}
