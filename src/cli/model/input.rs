//! Reads the files that a user names, and numbers with units.

#![expect(clippy::disallowed_methods, reason = "the model's configuration that the user named")]

use std::io::Read;
use std::path::Path;

use crate::cli::support::missing;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_model::regular_file::MAX_TOML_BYTES;

/// Larger files are not read into memory.
const MAX_FILE_BYTES: u64 = 1 << 30;

/// The bytes of a file.
pub(super) fn read(path: &Path) -> Result<Vec<u8>> {
    read_up_to(path, MAX_FILE_BYTES)
}

fn read_up_to(path: &Path, max_bytes: u64) -> Result<Vec<u8>> {
    let unreadable = |error: std::io::Error| {
        let failure = Failure::new(Exit::Artifact, "unreadable", "the file cannot be read");
        missing::file_or(path, &error, failure)
    };
    let file = std::fs::File::open(path).map_err(unreadable)?;
    // A pipe may be named, and has no size.
    let mut is_too_large = file.metadata().map_err(unreadable)?.len() > max_bytes;
    let mut bytes = Vec::new();
    if !is_too_large {
        let limited = file.take(max_bytes.saturating_add(1)).read_to_end(&mut bytes);
        is_too_large = limited.map_err(unreadable)? as u64 > max_bytes;
    }
    if is_too_large {
        let what = format!("the file is larger than {} MiB", max_bytes >> 20);
        return Err(Failure::new(Exit::Artifact, "too_large", what).file(path.display()));
    }
    Ok(bytes)
}

/// The text of a TOML file.
pub(super) fn toml(path: &Path) -> Result<String> {
    as_text(path, read_up_to(path, MAX_TOML_BYTES)?)
}

/// The text of a file.
pub(super) fn text(path: &Path) -> Result<String> {
    as_text(path, read(path)?)
}

fn as_text(path: &Path, bytes: Vec<u8>) -> Result<String> {
    String::from_utf8(bytes).map_err(|error| {
        Failure::new(Exit::Artifact, "not_text", "the file is not UTF-8 text")
            .file(path.display())
            .cause(error.utf8_error())
    })
}

/// A size such as `64M`, `1.5GiB` or `4096`. `K`, `M` and `G` are powers of 1024, as nccl-tests
/// has them; `kB`, `MB` and `GB` are powers of ten.
pub(super) fn size(typed: &str) -> std::result::Result<f64, String> {
    let end = typed.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(typed.len());
    let (number, unit) = typed.split_at(end);
    let scale = match unit.to_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "kib" => 1024.0,
        "m" | "mib" => 1024.0 * 1024.0,
        "g" | "gib" => 1024.0 * 1024.0 * 1024.0,
        "kb" => 1e3,
        "mb" => 1e6,
        "gb" => 1e9,
        other => return Err(format!("`{other}` is not a unit of size: use K, M, G, kB, MB or GB")),
    };
    match number.trim().parse::<f64>() {
        Ok(number) if number > 0.0 && number * scale < 1e18 => Ok((number * scale).round()),
        _ => Err(format!("`{typed}` is not a size above 0")),
    }
}

/// A whole number above 0 as a float, for sizes that go into formulas.
pub(super) fn count(typed: &str) -> std::result::Result<f64, String> {
    match typed.parse::<u64>() {
        Ok(number) if (1..=1 << 48).contains(&number) => Ok(number as f64),
        _ => Err(format!("`{typed}` is not a whole number above 0")),
    }
}

/// Numbers as `8`, `1,4,16`, or `1..256:x2` and `8..64:+8`.
pub(super) fn counts(typed: &str) -> std::result::Result<Counts, String> {
    const MAX_NUMBERS: usize = 1000;
    let Some((first, rest)) = typed.split_once("..") else {
        return typed.split(',').map(count).collect::<std::result::Result<_, _>>().map(Counts);
    };
    let (last, step) = rest.split_once(':').unwrap_or((rest, "x2"));
    let (mut at, last) = (count(first)?, count(last)?);
    let wrong = || format!("`{step}` is not a step: write x2 or +8");
    let by = step.strip_prefix(['x', '+']).ok_or_else(wrong)?;
    let by: f64 = by.parse().map_err(|_| wrong())?;
    let is_factor = step.starts_with('x');
    if by.is_nan() || (is_factor && by <= 1.0) || (!is_factor && by < 1.0) {
        return Err(wrong());
    }
    let mut numbers = Vec::new();
    while at <= last && numbers.len() < MAX_NUMBERS {
        numbers.push(at.round());
        at = if is_factor { at * by } else { at + by };
    }
    numbers.dedup();
    if numbers.is_empty() {
        Err(format!("`{typed}` has no number in it"))
    } else {
        Ok(Counts(numbers))
    }
}

/// A number or a range, as [`counts`] reads it.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::cli) struct Counts(pub(super) Vec<f64>);

/// A day as YYYY-MM-DD.
pub(super) fn day(typed: &str) -> std::result::Result<String, String> {
    match typed.parse::<jiff::civil::Date>() {
        Ok(date) => Ok(date.to_string()),
        Err(_) => Err(format!("`{typed}` is not a day: write YYYY-MM-DD")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_of_two_and_of_ten() {
        assert_eq!(size("64M"), Ok(67_108_864.0));
        assert_eq!(size("64MB"), Ok(64e6));
        assert_eq!(size("1.5GiB"), Ok(1_610_612_736.0));
        assert!(size("64 parsecs").is_err() && size("-1").is_err() && size("").is_err());
    }

    #[test]
    fn numbers_are_listed_or_stepped() {
        assert_eq!(counts("1..256:x2").unwrap().0.len(), 9);
        assert_eq!(counts("1,4,16").unwrap().0, [1.0, 4.0, 16.0]);
        assert_eq!(counts("8..24:+8").unwrap().0, [8.0, 16.0, 24.0]);
        for wrong in ["", "0", "4..2", "1..8:x1", "1..8:+0", "1..8:*2", "1..8:xNaN"] {
            assert!(counts(wrong).is_err(), "{wrong}");
        }
    }
}
