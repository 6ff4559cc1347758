//! Reads the Parquet files of aiconfigurator: flat tables of texts and numbers, pages of version
//! 1, compressed with zstd or not at all, plain or with a dictionary.
//!
//! The file ends with its metadata in Thrift's compact protocol, their length and `PAR1`
//! (<https://github.com/apache/parquet-format>). What other writers may use is refused by name.

use std::collections::BTreeMap;

/// The first and last bytes of a file.
pub const MAGIC: &[u8] = b"PAR1";
/// No table has more rows or texts; larger counts are damage.
const MAX_ROWS: usize = 20_000_000;
const MAX_DEPTH: u32 = 16;
/// The maximum size of an unpacked page.
const MAX_PAGE_BYTES: usize = 256 << 20;

/// Codec numbers of the format.
const NOT_COMPRESSED: i64 = 0;
const ZSTD: i64 = 6;

/// Why a file cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParquetError {
    /// The file is truncated or damaged.
    #[error("the Parquet file is damaged: {0}")]
    Damaged(&'static str),
    /// A part of the format that this reader does not know.
    #[error(
        "the Parquet file has {0}, which is not supported; write it as CSV, for example with \
             duckdb -c \"copy (from 'FILE.parquet') to 'FILE.txt' (header)\""
    )]
    Unsupported(String),
}

use ParquetError::{Damaged, Unsupported};

/// The values of a column.
#[derive(Clone, Debug, PartialEq)]
pub enum Column {
    /// Texts; one that is absent is empty.
    Text(Vec<String>),
    /// Numbers; one that is absent is NaN.
    Number(Vec<f64>),
}

/// A table as columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// The columns by name.
    pub columns: BTreeMap<String, Column>,
}

impl Table {
    /// Number of rows: those that every column has.
    #[must_use]
    pub fn rows(&self) -> usize {
        let length = |column: &Column| match column {
            Column::Text(values) => values.len(),
            Column::Number(values) => values.len(),
        };
        self.columns.values().map(length).min().unwrap_or(0)
    }

    /// A cell as text. `None` if it is empty or not there.
    #[must_use]
    pub fn text(&self, column: &str, row: usize) -> Option<String> {
        match self.columns.get(column)? {
            Column::Text(values) => values.get(row).filter(|text| !text.is_empty()).cloned(),
            Column::Number(values) => values.get(row).map(ToString::to_string),
        }
    }

    /// A cell as a number. `None` if it is none or not there.
    #[must_use]
    pub fn number(&self, column: &str, row: usize) -> Option<f64> {
        match self.columns.get(column)? {
            Column::Text(values) => values.get(row)?.trim().parse().ok(),
            Column::Number(values) => values.get(row).copied().filter(|value| !value.is_nan()),
        }
    }
}

/// A value of Thrift's compact protocol.
#[derive(Clone, Debug)]
enum Thrift<'a> {
    Int(i64),
    Bytes(&'a [u8]),
    List(Vec<Thrift<'a>>),
    Struct(BTreeMap<i16, Thrift<'a>>),
    Other,
}

impl<'a> Thrift<'a> {
    fn field(&self, id: i16) -> Option<&Self> {
        match self {
            Self::Struct(fields) => fields.get(&id),
            _ => None,
        }
    }

    fn int(&self, id: i16) -> Option<i64> {
        match self.field(id)? {
            Self::Int(value) => Some(*value),
            _ => None,
        }
    }

    fn size(&self, id: i16) -> Option<usize> {
        usize::try_from(self.int(id)?).ok()
    }

    fn list(&self, id: i16) -> &[Self] {
        match self.field(id) {
            Some(Self::List(values)) => values,
            _ => &[],
        }
    }

    fn name(&self, id: i16) -> Option<String> {
        match self.field(id)? {
            Self::Bytes(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
            _ => None,
        }
    }
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Result<u8, ParquetError> {
        let (first, rest) = self.rest.split_first().ok_or(Damaged("metadata are cut"))?;
        self.rest = rest;
        Ok(*first)
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], ParquetError> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Damaged("data are cut"))?;
        self.rest = rest;
        Ok(taken)
    }

    fn varint(&mut self) -> Result<u64, ParquetError> {
        let (value, rest) = varint(self.rest).ok_or(Damaged("a number is cut"))?;
        self.rest = rest;
        Ok(value)
    }

    fn zigzag(&mut self) -> Result<i64, ParquetError> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    fn value(&mut self, kind: u8, depth: u32) -> Result<Thrift<'a>, ParquetError> {
        if depth > MAX_DEPTH {
            return Err(Damaged("metadata are nested too deeply"));
        }
        Ok(match kind {
            1 | 2 => Thrift::Other,
            3 => Thrift::Int(i64::from(self.byte()? as i8)),
            4..=6 => Thrift::Int(self.zigzag()?),
            7 => {
                self.take(8)?;
                Thrift::Other
            }
            8 => {
                let count = self.varint()?;
                let count = usize::try_from(count).map_err(|_| Damaged("a text is too long"))?;
                Thrift::Bytes(self.take(count)?)
            }
            9 | 10 => {
                let head = self.byte()?;
                let count = match head >> 4 {
                    15 => usize::try_from(self.varint()?).map_err(|_| Damaged("a list"))?,
                    count => usize::from(count),
                };
                // Every value of a list takes a byte, but for flags, which are not in lists here.
                if count > self.rest.len() {
                    return Err(Damaged("a list is longer than the file"));
                }
                let value = |_| match head & 15 {
                    1 | 2 => self.byte().map(|_| Thrift::Other),
                    kind => self.value(kind, depth + 1),
                };
                Thrift::List((0..count).map(value).collect::<Result<_, _>>()?)
            }
            12 => self.structure(depth + 1)?,
            _ => return Err(Damaged("metadata have an unknown type")),
        })
    }

    fn structure(&mut self, depth: u32) -> Result<Thrift<'a>, ParquetError> {
        let (mut fields, mut id) = (BTreeMap::new(), 0_i16);
        loop {
            let head = self.byte()?;
            if head == 0 {
                return Ok(Thrift::Struct(fields));
            }
            id = match head >> 4 {
                0 => self.zigzag()? as i16,
                delta => id.wrapping_add(i16::from(delta)),
            };
            fields.insert(id, self.value(head & 15, depth)?);
        }
    }
}

/// A number in 7-bit groups, lowest first, and what follows.
fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0;
    for (at, byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f).checked_shl(7 * at as u32)?;
        if byte & 0x80 == 0 {
            return Some((value, &bytes[at + 1..]));
        }
    }
    None
}

/// Reads all columns of a file.
///
/// # Errors
/// It is damaged, or has parts that are not supported.
pub fn read(file: &[u8]) -> Result<Table, ParquetError> {
    let body = file.strip_suffix(MAGIC).ok_or(Damaged("it does not end with PAR1"))?;
    let (body, length) = body.split_last_chunk::<4>().ok_or(Damaged("it is too short"))?;
    let length = u32::from_le_bytes(*length) as usize;
    let start = body.len().checked_sub(length).ok_or(Damaged("metadata are cut"))?;
    let metadata = Reader { rest: &body[start..] }.structure(0)?;

    let mut types = BTreeMap::new();
    for element in metadata.list(2).iter().skip(1) {
        if element.int(5).is_some_and(|children| children > 0) {
            return Err(Unsupported("nested columns".into()));
        }
        let name = element.name(4).ok_or(Damaged("a column has no name"))?;
        let is_optional = element.int(3) == Some(1);
        if element.int(3) == Some(2) {
            return Err(Unsupported("repeated columns".into()));
        }
        types.insert(name, is_optional);
    }
    let mut table = Table::default();
    for group in metadata.list(4) {
        for chunk in group.list(1) {
            let meta = chunk.field(3).ok_or(Damaged("a column has no metadata"))?;
            let name = match meta.list(3) {
                [Thrift::Bytes(name)] => String::from_utf8_lossy(name).into_owned(),
                _ => return Err(Unsupported("nested columns".into())),
            };
            let is_optional = types.get(&name).copied().unwrap_or(false);
            read_chunk(file, meta, &name, is_optional, &mut table)?;
        }
    }
    Ok(table)
}

/// The values of a dictionary or page.
enum Values {
    Text(Vec<String>),
    Number(Vec<f64>),
}

fn read_chunk(
    file: &[u8],
    meta: &Thrift<'_>,
    name: &str,
    is_optional: bool,
    table: &mut Table,
) -> Result<(), ParquetError> {
    let kind = meta.int(1).ok_or(Damaged("a column has no type"))?;
    let codec = meta.int(4).unwrap_or(0);
    if codec != NOT_COMPRESSED && codec != ZSTD {
        return Err(Unsupported(format!("compression {codec} in column `{name}`")));
    }
    let data = meta.size(9).ok_or(Damaged("a column has no place"))?;
    let start = meta.size(11).filter(|at| *at > 0 && *at < data).unwrap_or(data);
    let rest = file.get(start..).ok_or(Damaged("a column lies outside the file"))?;
    let mut reader = Reader { rest };
    let total = meta.size(5).filter(|n| *n <= MAX_ROWS).ok_or(Damaged("too many values"))?;
    let column = table.columns.entry(name.to_owned()).or_insert_with(|| match kind {
        6 | 7 => Column::Text(Vec::new()),
        _ => Column::Number(Vec::new()),
    });
    let (mut seen, mut dictionary) = (0, None);
    while seen < total {
        let head = reader.structure(0)?;
        let packed = reader.take(head.size(3).ok_or(Damaged("a page has no size"))?)?;
        let unpacked;
        let page = match codec {
            NOT_COMPRESSED => packed,
            _ => {
                let size = head.size(2).filter(|size| *size <= MAX_PAGE_BYTES);
                let size = size.ok_or(Damaged("a page is too large"))?;
                let page = zstd::bulk::decompress(packed, size);
                unpacked = page.map_err(|_| Damaged("a page cannot be unpacked"))?;
                &unpacked[..]
            }
        };
        match head.int(1) {
            Some(2) => {
                let count = head.field(7).and_then(|h| h.size(1)).ok_or(Damaged("a dictionary"))?;
                dictionary = Some(plain(kind, &mut Reader { rest: page }, count)?);
            }
            Some(0) => {
                let page_head = head.field(5).ok_or(Damaged("a page has no head"))?;
                let count = page_head.size(1).filter(|n| *n > 0 && seen + n <= total);
                let count = count.ok_or(Damaged("a page has too many values or none"))?;
                let encoding = page_head.int(2).unwrap_or(0);
                read_page(page, count, encoding, kind, is_optional, dictionary.as_ref(), column)?;
                seen += count;
            }
            Some(3) => return Err(Unsupported("pages of version 2".into())),
            _ => {}
        }
    }
    Ok(())
}

fn read_page(
    page: &[u8],
    count: usize,
    encoding: i64,
    kind: i64,
    is_optional: bool,
    dictionary: Option<&Values>,
    column: &mut Column,
) -> Result<(), ParquetError> {
    let mut reader = Reader { rest: page };
    // Where a value is there, its level is 1.
    let levels = if is_optional {
        let length = reader.take(4)?;
        let length = u32::from_le_bytes([length[0], length[1], length[2], length[3]]) as usize;
        runs(reader.take(length)?, 1, count)?
    } else {
        vec![1; count]
    };
    let present = levels.iter().filter(|level| **level == 1).count();
    let values = match encoding {
        0 => plain(kind, &mut reader, present)?,
        2 | 8 => {
            let width = if present == 0 { 0 } else { u32::from(reader.byte()?) };
            let at = if present == 0 { Vec::new() } else { runs(reader.rest, width, present)? };
            let from = dictionary.ok_or(Damaged("a dictionary is missing"))?;
            let missing = Damaged("a value is not in its dictionary");
            match from {
                Values::Text(all) => Values::Text(
                    at.iter()
                        .map(|i| all.get(*i as usize).cloned())
                        .collect::<Option<_>>()
                        .ok_or(missing)?,
                ),
                Values::Number(all) => Values::Number(
                    at.iter()
                        .map(|i| all.get(*i as usize).copied())
                        .collect::<Option<_>>()
                        .ok_or(missing)?,
                ),
            }
        }
        other => return Err(Unsupported(format!("encoding {other}"))),
    };
    match (values, column) {
        (Values::Text(values), Column::Text(column)) => {
            let mut values = values.into_iter();
            let next = |level: &u32| (*level == 1).then(|| values.next()).flatten();
            column.extend(levels.iter().map(next).map(Option::unwrap_or_default));
        }
        (Values::Number(values), Column::Number(column)) => {
            let mut values = values.into_iter();
            let next = |level: &u32| (*level == 1).then(|| values.next()).flatten();
            column.extend(levels.iter().map(next).map(|value| value.unwrap_or(f64::NAN)));
        }
        _ => return Err(Damaged("a column changes its type")),
    }
    Ok(())
}

fn plain(kind: i64, reader: &mut Reader<'_>, count: usize) -> Result<Values, ParquetError> {
    if count > reader.rest.len() {
        return Err(Damaged("a page is cut"));
    }
    fn eight(bytes: &[u8]) -> [u8; 8] {
        std::array::from_fn(|i| bytes.get(i).copied().unwrap_or(0))
    }
    fn four(bytes: &[u8]) -> [u8; 4] {
        std::array::from_fn(|i| bytes.get(i).copied().unwrap_or(0))
    }
    let mut numbers = |size: usize, number: fn(&[u8]) -> f64| {
        let bytes = reader.take(count.saturating_mul(size))?;
        Ok(Values::Number(bytes.chunks_exact(size).map(number).collect()))
    };
    match kind {
        1 => numbers(4, |bytes| f64::from(i32::from_le_bytes(four(bytes)))),
        2 => numbers(8, |bytes| i64::from_le_bytes(eight(bytes)) as f64),
        4 => numbers(4, |bytes| f64::from(f32::from_le_bytes(four(bytes)))),
        5 => numbers(8, |bytes| f64::from_le_bytes(eight(bytes))),
        6 => {
            let mut texts = Vec::new();
            for _ in 0..count {
                let length = u32::from_le_bytes(four(reader.take(4)?)) as usize;
                texts.push(String::from_utf8_lossy(reader.take(length)?).into_owned());
            }
            Ok(Values::Text(texts))
        }
        0 => {
            let bytes = reader.take(count.div_ceil(8))?;
            let bit = |i: usize| f64::from(bytes[i / 8] >> (i % 8) & 1);
            Ok(Values::Number((0..count).map(bit).collect()))
        }
        other => Err(Unsupported(format!("values of type {other}"))),
    }
}

/// Numbers of `width` bits, as runs of one value or packed by eights.
fn runs(bytes: &[u8], width: u32, count: usize) -> Result<Vec<u32>, ParquetError> {
    if width > 32 || count > MAX_ROWS {
        return Err(Damaged("numbers are too wide or too many"));
    }
    let mut reader = Reader { rest: bytes };
    let mut values = Vec::new();
    while values.len() < count {
        let head = reader.varint()?;
        let left = count - values.len();
        let length = usize::try_from(head >> 1).unwrap_or(usize::MAX);
        if length == 0 {
            return Err(Damaged("a run is empty"));
        }
        if head & 1 == 0 {
            let bytes = reader.take(width.div_ceil(8) as usize)?;
            let value = bytes.iter().rev().fold(0_u64, |v, byte| v << 8 | u64::from(*byte)) as u32;
            values.extend(std::iter::repeat_n(value, length.min(left)));
        } else {
            let packed = reader.take(length.saturating_mul(width as usize))?;
            for i in 0..length.saturating_mul(8).min(left) {
                let bit = i * width as usize;
                let bytes = packed[bit / 8..].iter().take(5);
                let window = bytes.rev().fold(0_u64, |value, byte| value << 8 | u64::from(*byte));
                values.push((window >> (bit % 8) & ((1_u64 << width) - 1)) as u32);
            }
        }
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_and_packed_numbers_are_read() {
        // A run of five 3s, then eight packed numbers of 3 bits: 0 to 7 (as in the format's text).
        let bytes = [5 << 1, 3, 1 << 1 | 1, 0b1000_1000, 0b1100_0110, 0b1111_1010];
        assert_eq!(runs(&bytes, 3, 13).unwrap(), [3, 3, 3, 3, 3, 0, 1, 2, 3, 4, 5, 6, 7]);
        assert!(runs(&bytes[..3], 3, 13).is_err());
    }

    #[test]
    fn what_is_no_file_is_refused() {
        assert!(read(b"").is_err());
        assert!(read(b"PAR1").is_err());
        assert!(read(b"PAR1\xff\xff\xff\xffPAR1").is_err());
        assert!(read(b"PAR1\x00\x01\x00\x00\x00PAR1").is_ok());
    }
}
