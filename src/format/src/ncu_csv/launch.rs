//! One launch on a page of `ncu --csv`, and the parsers of its cells.

use std::sync::Arc;

use crate::csv::number;

/// One launch with its metrics and rules.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CsvLaunch {
    /// Column `ID`: the result's number in the report.
    pub id: u64,
    /// `Kernel Name`; `range` for a range.
    pub kernel: String,
    /// Column `Process Name`, as printed.
    pub process: String,
    /// `Grid Size`, if the page has it.
    pub grid: Option<[u32; 3]>,
    /// `Block Size`, if the page has it.
    pub block: Option<[u32; 3]>,
    /// Column `Stream`; `None` if it is not a number.
    pub stream: Option<u64>,
    /// Column `CC`: compute capability, major and minor.
    pub compute: Option<(u32, u32)>,
    /// Open push/pop ranges, outermost first.
    pub push_pop: Vec<RangeName>,
    /// Open start/end ranges of the process.
    pub start_end: Vec<RangeName>,
    /// Metrics in the page's order.
    pub cells: Vec<Cell>,
    /// Messages of ncu's rules; only on the details page.
    pub rules: Vec<CsvRule>,
}

/// An open NVTX range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeName {
    /// The domain; `None` for the default one.
    pub domain: Option<String>,
    /// The range's own text.
    pub name: String,
}

/// One metric of one launch.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// Section name; only on the details page.
    pub section: Arc<str>,
    /// The metric's id on the raw page. On the details page its label, unless ids were requested.
    pub name: Arc<str>,
    /// The unit as printed.
    pub unit: Arc<str>,
    /// The value as printed.
    pub value: CellValue,
}

/// A metric's value as ncu prints it.
#[derive(Debug, Clone, PartialEq)]
pub enum CellValue {
    /// A finite number, in the cell's unit.
    Number(f64),
    /// `nan` or `inf`, of either sign.
    NotFinite,
    /// An empty cell, `n/a` or `no data`.
    Missing,
    /// Any other text, as printed.
    Text(String),
}

/// A message of an ncu rule.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CsvRule {
    /// Name of the rule.
    pub rule: String,
    /// `OPT`, `WRN`, `INF` …
    pub kind: String,
    /// Text of the message.
    pub text: String,
    /// The estimated speed-up in percent.
    pub speedup: Option<f64>,
}

impl CellValue {
    pub(super) fn read(cell: &str) -> CellValue {
        match cell.trim() {
            "" | "n/a" | "N/A" | "no data" | "(!) n/a" => return CellValue::Missing,
            "nan" | "-nan" | "inf" | "-inf" | "NaN" => return CellValue::NotFinite,
            _ => {}
        }
        match number(cell) {
            Some(value) if value.is_finite() => CellValue::Number(value),
            Some(_) => CellValue::NotFinite,
            None => CellValue::Text(cell.to_owned()),
        }
    }
}

/// Parses `(256, 1, 1)`.
pub(super) fn triple(cell: &str) -> Option<[u32; 3]> {
    let inner = cell.trim().strip_prefix('(')?.strip_suffix(')')?;
    let mut parts = inner.split(',').map(|part| part.trim().parse::<u32>().ok());
    let triple = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(triple)
}

/// Parses a compute capability such as `9.0`.
pub(super) fn compute(cell: &str) -> Option<(u32, u32)> {
    let (major, minor) = cell.trim().split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Number of fields after a range's name: payload type and value, colour type and colour, message
/// type and message.
const FIELDS_AFTER_NAME: usize = 6;

/// Parses the ranges of one cell: a thread's number, then one quoted text per range,
/// `"domain:name:fields…"`, with the range's number before the domain for start/end ranges. A name
/// may contain colons; a domain is assumed not to.
pub(super) fn ranges(cell: &str, numbered: bool) -> Vec<RangeName> {
    let quoted = cell.split('"').skip(1).step_by(2);
    let range = |text: &str| {
        let text = if numbered { text.split_once(':')?.1 } else { text };
        let (domain, rest) = text.split_once(':')?;
        let name = rest.rsplitn(FIELDS_AFTER_NAME + 1, ':').nth(FIELDS_AFTER_NAME)?;
        let domain = (domain != "<default domain>").then(|| domain.to_owned());
        Some(RangeName { domain, name: name.to_owned() })
    };
    quoted.filter_map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_with_domain_and_colons_in_their_names() {
        let cell = r#"3015  "<default domain>:A:none:none:none:none:none:none"  "d:B::C:none:none:none:none:none:none" "#;
        let name = |domain: Option<&str>, name: &str| RangeName {
            domain: domain.map(str::to_owned),
            name: name.to_owned(),
        };
        assert_eq!(ranges(cell, false), [name(None, "A"), name(Some("d"), "B::C")]);
        let cell = r#" "0:rgpu:whole:Uint64:7:none:none:ASCII:whole" "#;
        assert_eq!(ranges(cell, true), [name(Some("rgpu"), "whole")]);
        assert_eq!(ranges("\"\" \"a\" \":\"", true), []);
    }
}
