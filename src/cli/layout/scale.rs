//! `layout sf`: scale factors of NVFP4 and MXFP4 in global memory.

use std::path::{Path, PathBuf};

use clap::Args;
use rgpu_layout::sm100::{BufferCheck, ScaleProof, ScaleTensor, check_buffer};
use rgpu_layout::{Layout, Proof};
use schemars::JsonSchema;
use serde::Serialize;

use super::document::{LayoutResult, line, print, proof_line};
use super::input::{LimitArgs, file, usage};
use crate::cli::support::app::{App, Status};
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_model::number_form::by_number;

/// `layout sf`.
///
/// With --file and --expect the exit status is 1 if a scale is not where it belongs.
#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct ScaleArgs {
    /// Rows of the operand: M or N
    #[arg(long)]
    pub mn: i64,

    /// Elements of a row
    #[arg(long)]
    pub k: i64,

    /// Number of batches
    #[arg(long, default_value_t = 1)]
    pub l: i64,

    /// Elements that share a scale: 16 in NVFP4, 32 in MXFP4
    #[arg(long, default_value_t = 16, value_name = "ELEMENTS")]
    pub sf_vec: i64,

    /// Print the byte of the scale of an element: row,k or row,k,batch
    #[arg(long, value_name = "ROW,K", allow_hyphen_values = true)]
    pub at: Vec<String>,

    /// Print the element whose scale is at this byte
    #[arg(long, value_name = "BYTE", allow_hyphen_values = true)]
    pub offset: Vec<i64>,

    /// Show the proof that the repeated block is the explicit form
    #[arg(long)]
    pub prove: bool,

    /// A dumped buffer of scales, in the order that the hardware wants
    #[arg(long, value_name = "FILE", requires = "expect")]
    pub file: Option<PathBuf>,

    /// The same scales in plain order: one byte each, by batch, row and K
    #[arg(long, value_name = "FILE", requires = "file")]
    pub expect: Option<PathBuf>,

    /// The plain scales of the other operand, to find out whether the buffer holds those
    #[arg(long, value_name = "FILE", requires_all = ["file", "other_mn"])]
    pub other: Option<PathBuf>,

    /// Rows of the other operand
    #[arg(long, value_name = "ROWS", requires = "other")]
    pub other_mn: Option<i64>,

    #[command(flatten)]
    pub limit: LimitArgs,
}

/// The result of `layout sf`.
#[serde_with::skip_serializing_none]
#[derive(Serialize, JsonSchema)]
pub(super) struct ScaleResult {
    /// The layout from (row, k, batch) to bytes.
    layout: Layout,
    /// How it is proved that this is the layout.
    proof: Proof,
    /// The extents of the tensor, and the elements of a scale.
    tensor: ScaleTensor,
    /// Bytes with the padding to blocks of 512.
    bytes: i64,
    /// Bytes from one batch to the next.
    batch_bytes: i64,
    /// The coordinates of `--at` and the bytes of `--offset`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    at: Vec<ScalePlace>,
    /// The details of `--prove`.
    details: Option<ScaleProof>,
    /// The comparison of `--file` with `--expect`.
    check: Option<BufferCheck>,
}

/// The place of a scale.
#[derive(Serialize, JsonSchema)]
struct ScalePlace {
    /// The row, counted from 0.
    row: i64,
    /// The element along K.
    k: i64,
    /// The batch, counted from 0.
    batch: i64,
    /// The byte that holds the scale.
    offset: i64,
    /// Whether it is padding: no element of the tensor has this scale.
    padding: bool,
}

pub(super) fn run(app: &App, args: &ScaleArgs) -> Result<Status> {
    let tensor = ScaleTensor::new(args.mn, args.k, args.l, args.sf_vec).map_err(usage)?;
    let details = tensor.prove(args.limit.limits()).map_err(|rejection| bug(&rejection))?;
    let mut at = Vec::new();
    for text in &args.at {
        at.push(place_of(tensor, text)?);
    }
    for &offset in &args.offset {
        let (row, k, batch) = tensor.coordinate(offset).ok_or_else(|| {
            usage(format!("byte {offset} is outside: the scales take {} bytes", tensor.bytes()))
        })?;
        let padding = tensor.offset(row, k, batch).is_none();
        at.push(ScalePlace { row, k, batch, offset, padding });
    }
    let check = match (&args.file, &args.expect) {
        (Some(buffer), Some(plain)) => Some(compare(args, tensor, buffer, plain)?),
        _ => None,
    };
    let wrong = check.as_ref().is_some_and(|check| !check.equal);
    let result = ScaleResult {
        layout: details.explicit.clone(),
        proof: details.proof.clone(),
        tensor,
        bytes: tensor.bytes(),
        batch_bytes: tensor.bytes() / tensor.batches(),
        at,
        details: args.prove.then_some(details),
        check,
    };
    let text = text(&result);
    print(app, LayoutResult::Sf(result), &text)?;
    Ok(if wrong { Exit::Findings as u8 } else { 0 })
}

fn bug(rejection: &rgpu_layout::Rejection) -> Failure {
    Failure::new(Exit::Bug, "bug", "the scale layout could not be proved").cause(rejection.reason())
}

fn place_of(tensor: ScaleTensor, text: &str) -> Result<ScalePlace> {
    let numbers: Option<Vec<i64>> =
        text.trim_matches(['(', ')']).split(',').map(|n| n.trim().parse().ok()).collect();
    let (row, k, batch) = match numbers.as_deref() {
        Some([row, k]) => (*row, *k, 0),
        Some([row, k, batch]) => (*row, *k, *batch),
        _ => return Err(usage(format!("`{text}` is not written like `5,32` (row, k)"))),
    };
    let offset = tensor.offset(row, k, batch).ok_or_else(|| {
        let (rows, ks, batches) = (tensor.rows(), tensor.k(), tensor.batches());
        usage(format!(
            "({row},{k},{batch}) is outside of {rows} rows, {ks} along K, {batches} batches"
        ))
    })?;
    Ok(ScalePlace { row, k, batch, offset, padding: false })
}

fn compare(
    args: &ScaleArgs,
    tensor: ScaleTensor,
    buffer: &Path,
    plain: &Path,
) -> Result<BufferCheck> {
    let (buffer, expected) = (file(buffer)?, file(plain)?);
    let other = match (&args.other, args.other_mn) {
        (Some(path), Some(rows)) => {
            let tensor = ScaleTensor::new(rows, args.k, args.l, args.sf_vec).map_err(usage)?;
            Some((tensor, file(path)?))
        }
        _ => None,
    };
    let other = other.as_ref().map(|(tensor, bytes)| (*tensor, bytes.as_slice()));
    check_buffer(tensor, &buffer, &expected, other).map_err(|error| {
        Failure::new(Exit::Artifact, "wrong_size", "the plain scales are of another shape")
            .file(plain.display())
            .cause(error)
    })
}

fn text(result: &ScaleResult) -> String {
    let mut text = format!("{}\n", result.layout);
    text += &line("bytes", format!("{} ({} a batch)", result.bytes, result.batch_bytes));
    text += &proof_line(&result.proof);
    if let Some(details) = &result.details {
        text += &line("repeated", &details.helper);
        text += &line("broadcast", format!("{} elements share a scale", details.broadcast));
        text += &line(
            "filter",
            if details.filter_zeros_needed {
                format!("needed before copying or inverting: {}", details.filtered)
            } else {
                "not needed".to_owned()
            },
        );
    }
    for ScalePlace { row, k, batch, offset, padding } in &result.at {
        let padding = if *padding { " (padding)" } else { "" };
        text += &line("at", format!("row {row}, k {k}, batch {batch} ↔ byte {offset}{padding}"));
    }
    let Some(check) = &result.check else { return text };
    if check.equal {
        return text + &line("buffer", format!("all {} scales are in their place", check.scales));
    }
    let are = by_number(check.wrong, "is", "are");
    text += &line("buffer", format!("{} of {} scales {are} wrong", check.wrong, check.scales));
    if let Some(first) = &check.first_wrong {
        let found = first
            .found
            .map_or("the buffer ends before it".to_owned(), |byte| format!("and is {byte:#04x}"));
        text += &line(
            "first",
            format!(
                "row {}, k {}, batch {}: byte {} should be {:#04x}, {found}",
                first.row, first.k, first.batch, first.offset, first.expected
            ),
        );
    }
    for mistake in &check.mistakes {
        text += &line("likely", mistake);
    }
    match (&check.found_layout, check.permutation) {
        _ if !check.mistakes.is_empty() => {}
        (Some(layout), _) => {
            text += &line(
                "likely",
                "a permutation: the buffer has every scale, in the order of this layout",
            );
            text += &line("found", layout);
        }
        (None, true) => {
            let reason = "a permutation: all values occur, but no order of rows, scales and \
                          blocks puts them so";
            text += &line("likely", reason);
        }
        (None, false) => {
            text += &line("likely", "no known mistake and no permutation: the values differ");
        }
    }
    text
}
