//! Turns texts of the command line into layouts and numbers, and reads the files that it names.
//! Syntax errors of layouts, coordinates and swizzles show the place with a caret.

#![expect(clippy::disallowed_methods, reason = "the layout file that the user named")]

use std::str::FromStr;

use clap::Args;
use rgpu_layout::{Limits, ParseError};

use crate::cli::support::missing;
use rgpu_model::error::{Exit, Failure, Result};

/// Limits the work of a proof.
#[derive(Args, Clone, Copy, Debug)]
pub(in crate::cli) struct LimitArgs {
    /// Maximum number of points that a proof may check; anything left unproved is reported
    #[arg(long, value_name = "N", default_value_t = Limits::default().points, display_order = 800)]
    pub max_points: u64,
}

impl LimitArgs {
    pub(super) fn limits(self) -> Limits {
        Limits { points: self.max_points, ..Limits::default() }
    }
}

/// Reads a layout, tiler, coordinate or swizzle.
pub(super) fn parse<T: FromStr<Err = ParseError>>(text: &str, kind: &str) -> Result<T> {
    text.parse().map_err(|error: ParseError| {
        let place = format!("{}, in column {}", error.reason, error.column);
        let hint = match kind {
            "swizzle" => "a swizzle is written `3,4,3` or `S<3,4,3>`",
            "coordinate" => "a coordinate is an index, or a tuple such as `(5,(1,0))`",
            _ => "a layout is written `(4,8):(8,1)`, and in a shell between quotes",
        };
        Failure::new(Exit::Usage, "layout_syntax", format!("this is not a {kind}: {place}"))
            .cause(error.caret())
            .hint(hint)
    })
}

/// A wrong value of a flag.
pub(super) fn usage(reason: impl std::fmt::Display) -> Failure {
    Failure::new(Exit::Usage, "usage", reason.to_string())
}

/// Reads integers between separators, as in `128x256x64` or `80,4096`.
pub(super) fn numbers<const N: usize>(
    text: &str,
    separator: char,
    example: &str,
) -> Result<[i64; N]> {
    let all: Option<Vec<i64>> =
        text.split(separator).map(|number| number.trim().parse().ok()).collect();
    all.and_then(|numbers| numbers.try_into().ok())
        .ok_or_else(|| usage(format!("`{text}` is not written like `{example}`")))
}

/// Reads a file that the user named.
pub(super) fn file(path: &std::path::Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|e| {
        let failure = Failure::new(Exit::Artifact, "unreadable", "the file cannot be read");
        missing::file_or(path, &e, failure)
    })
}
