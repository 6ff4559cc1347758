//! Files of other tools as measured rows. Bytes in, rows out; nothing of them is shipped.

pub mod aic;
pub mod card;
pub mod inferencemax;
pub mod mlperf;
pub mod parquet;
pub mod trtllm;
pub mod vllm;

use std::collections::BTreeMap;

use serde_json::Value;

use crate::measurement::{MAX_NUMBER, Measurement};

/// Values that the file lacks and the user gives.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImportDefaults {
    /// The GPU's name in the catalogue.
    pub gpu: Option<String>,
    /// Number of GPUs per pipeline stage (tensor parallelism).
    pub tp: Option<u32>,
    /// Prompt length, in tokens.
    pub input: Option<f64>,
    /// Output length, in tokens.
    pub output: Option<f64>,
    /// The date, as YYYY-MM-DD.
    pub date: Option<String>,
}

/// A file that holds no rows that can be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// The file is not JSON.
    #[error("`{file}` is not JSON: {cause}")]
    Json {
        /// The path of the file.
        file: String,
        /// The error of the parser.
        cause: String,
    },
    /// A field is missing or wrong.
    #[error("`{file}`: {place} {text}")]
    Shape {
        /// The path of the file.
        file: String,
        /// The JSON pointer in the file, or another position.
        place: String,
        /// The problem and what to do.
        text: String,
    },
}

impl ImportError {
    fn shape(file: &str, place: impl Into<String>, text: impl Into<String>) -> Self {
        Self::Shape { file: file.to_owned(), place: place.into(), text: text.into() }
    }
}

fn json(file: &str, bytes: &[u8]) -> Result<Value, ImportError> {
    serde_json::from_slice(bytes)
        .map_err(|error| ImportError::Json { file: file.to_owned(), cause: error.to_string() })
}

/// A number of 0 or more, also in quotes. `None` if it is larger than anything that is measured.
fn number(value: Option<&Value>) -> Option<f64> {
    let value = value?;
    let number = value.as_f64().or_else(|| value.as_str()?.trim().parse().ok())?;
    (0.0..=MAX_NUMBER / 1e9).contains(&number).then_some(number)
}

/// A whole number, also in quotes.
fn whole(value: Option<&Value>) -> Option<u32> {
    let number = number(value)?;
    (number.fract() == 0.0 && number <= f64::from(u32::MAX)).then_some(number as u32)
}

fn text(value: Option<&Value>) -> Option<String> {
    value.and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
}

/// True or false, also in quotes.
fn flag(value: Option<&Value>) -> Option<bool> {
    let value = value?;
    value.as_bool().or_else(|| match value.as_str()?.to_lowercase().as_str() {
        "true" | "1" => Some(true),
        "false" | "0" => Some(false),
        _ => None,
    })
}

/// The catalogue's name for a name of hardware such as `h200-trt` or `NVIDIA H200`.
fn gpu_name(name: &str) -> String {
    let lower = name.to_lowercase();
    let is_known = |word: &&str| crate::hw::find(word).is_ok();
    let words = lower.split(|c: char| !c.is_ascii_alphanumeric());
    words.filter(|word| !word.is_empty()).find(is_known).unwrap_or(&lower).to_owned()
}

/// Rows without those that repeat a configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct MergedRows {
    /// One row a configuration, in the order they came.
    pub rows: Vec<Measurement>,
    /// Rows left out: their file, and the file of the row that was kept.
    pub duplicates: Vec<(String, String)>,
}

/// Keeps the first row of every configuration and day.
#[must_use]
pub fn merge(rows: Vec<Measurement>) -> MergedRows {
    let mut first: BTreeMap<(String, Option<String>), String> = BTreeMap::new();
    let mut merged = MergedRows { rows: Vec::new(), duplicates: Vec::new() };
    for row in rows {
        match first.entry((row.configuration(), row.date.clone())) {
            std::collections::btree_map::Entry::Occupied(kept) => {
                merged.duplicates.push((row.source, kept.get().clone()));
            }
            std::collections::btree_map::Entry::Vacant(entry) => {
                entry.insert(row.source.clone());
                merged.rows.push(row);
            }
        }
    }
    merged
}

/// Keeps rows of days from `since` to `until`, both included. Rows without a day are kept only
/// without limits.
#[must_use]
pub fn between(
    rows: Vec<Measurement>,
    since: Option<&str>,
    until: Option<&str>,
) -> Vec<Measurement> {
    let is_inside = |row: &Measurement| match row.date.as_deref() {
        None => since.is_none() && until.is_none(),
        Some(day) => since.is_none_or(|from| day >= from) && until.is_none_or(|to| day <= to),
    };
    rows.into_iter().filter(is_inside).collect()
}

/// `YYYYMMDD…` or `YYYY-MM-DD…` as YYYY-MM-DD.
fn day(text: &str) -> Option<String> {
    let digits: String = text.chars().take(10).filter(char::is_ascii_digit).take(8).collect();
    let is_date = digits.len() == 8 && digits.starts_with("20");
    is_date.then(|| format!("{}-{}-{}", &digits[..4], &digits[4..6], &digits[6..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurement::MeasurementKind;

    #[test]
    fn duplicates_are_named_and_days_are_kept_apart() {
        let row = |source: &str, date: Option<&str>, tp| {
            let mut row = Measurement::new(MeasurementKind::Serving, source, "h200");
            row.tp = Some(tp);
            row.date = date.map(str::to_owned);
            row.tpot_ns = Some(f64::from(tp));
            row
        };
        let rows = vec![
            row("a", None, 1),
            row("b", None, 1),
            row("c", Some("2026-01-02"), 1),
            row("d", None, 2),
        ];
        let merged = merge(rows);
        assert_eq!(merged.duplicates, [("b".to_owned(), "a".to_owned())]);
        assert_eq!(merged.rows.len(), 3);
        let new = between(merged.rows, Some("2026-01-01"), None);
        assert_eq!(new.len(), 1);
        assert_eq!(new[0].source, "c");
    }

    #[test]
    fn names_and_days_are_read_from_longer_texts() {
        assert_eq!(gpu_name("NVIDIA H200"), "h200");
        assert_eq!(gpu_name("b200-trt"), "b200");
        assert_eq!(gpu_name("TPU v7"), "tpu v7");
        assert_eq!(day("20260102-101112").as_deref(), Some("2026-01-02"));
        assert_eq!(day("2026-01-02T10:11").as_deref(), Some("2026-01-02"));
        assert_eq!(day("soon"), None);
    }
}
