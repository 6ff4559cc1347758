//! `layout eval`: facts, offsets and pictures of one layout.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use rgpu_layout::picture::{CellGrid, Coloring, Tile};
use rgpu_layout::{
    Coordinate, F2Matrix, Layout, Proof, Properties, SwizzledLayout, f2_matrix, properties,
};
use schemars::JsonSchema;
use serde::Serialize;

use super::document::{LayoutResult, line, print, proof_line};
use super::input::{LimitArgs, numbers, parsed, usage};
use super::output::save;
use super::page;
use crate::cli::support::app::{App, Status};
use crate::error::{Exit, Failure, Result};

/// `layout eval`.
#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct EvalArgs {
    /// The layout, swizzled or not
    pub layout: String,

    /// Print the offset of a coordinate: an index, or a tuple such as (5,3)
    #[arg(long, value_name = "COORDINATE", allow_hyphen_values = true)]
    pub at: Vec<String>,

    /// Print the layout as a matrix over bits, as Triton's linear layouts are
    #[arg(long)]
    pub f2: bool,

    /// Print a table of offsets; with --tile of threads and values
    #[arg(long, help_heading = "Pictures")]
    pub table: bool,

    /// Write a picture as SVG
    #[arg(long, value_name = "FILE", help_heading = "Pictures")]
    pub svg: Option<PathBuf>,

    /// Write a picture in this format [default file: layout.html or layout.svg]
    #[arg(long, value_enum, help_heading = "Pictures")]
    pub format: Option<PictureFormat>,

    /// Where --format writes
    #[arg(long, value_name = "FILE", requires = "format", help_heading = "Pictures")]
    pub out: Option<PathBuf>,

    /// Overwrite files that are no pictures
    #[arg(long, help_heading = "Pictures")]
    pub force: bool,

    /// The layout counts threads, then values: draw this tile, as 16x8, with who holds what
    #[arg(long, value_name = "ROWSxCOLUMNS", help_heading = "Pictures")]
    pub tile: Option<String>,

    /// Offsets of the tile run along rows first
    #[arg(long, requires = "tile", help_heading = "Pictures")]
    pub row_major: bool,

    /// What colours stand for [default: offset; with --tile thread]
    #[arg(long, value_enum, help_heading = "Pictures")]
    pub color_by: Option<ColorMeaning>,

    /// Bytes of an element, for --color-by bank
    #[arg(long, value_name = "BYTES", default_value_t = 2, help_heading = "Pictures",
          value_parser = clap::value_parser!(i64).range(1..=16))]
    pub elem_bytes: i64,

    #[command(flatten)]
    pub limit: LimitArgs,
}

/// The format of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum PictureFormat {
    /// A page that tells about the cell below the pointer
    Html,
    /// A drawing
    Svg,
}

/// The meaning of a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum ColorMeaning {
    /// The thread; without --tile the first mode
    Thread,
    /// The bank of shared memory
    Bank,
    /// The offset
    Offset,
}

/// The result of `layout eval`.
#[derive(Serialize, JsonSchema)]
pub(super) struct Evaluation {
    /// The layout.
    layout: SwizzledLayout,
    /// Facts about it, below the swizzle. A swizzle changes neither size nor image size, and keeps
    /// it injective.
    #[serde(flatten)]
    properties: Properties,
    /// The same function with as few modes as possible.
    coalesced_form: Layout,
    /// The offsets of the coordinates of `--at`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    at: Vec<CoordinateOffset>,
    /// The matrix of `--f2`.
    #[serde(skip_serializing_if = "Option::is_none")]
    f2: Option<F2Matrix>,
    /// The files written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    files: Vec<String>,
}

/// A coordinate with its offset.
#[derive(Serialize, JsonSchema)]
struct CoordinateOffset {
    /// The coordinate.
    coordinate: String,
    /// Its offset, swizzled.
    offset: i64,
}

pub(super) fn run(app: &App, args: &EvalArgs) -> Result<Status> {
    let layout: SwizzledLayout = parsed(&args.layout, "layout")?;
    let plain = layout.layout();
    let mut at = Vec::new();
    for text in &args.at {
        let coordinate: Coordinate = parsed(text, "coordinate")?;
        let offset = plain.at_coordinate(&coordinate).ok_or_else(|| {
            usage(format!("`{text}` is no coordinate of {plain}, which has {}", plain.size()))
                .hint("give an index below its size, or a tuple nested as its shape")
        })?;
        let offset = layout.swizzle().apply(offset + layout.offset());
        at.push(CoordinateOffset { coordinate: coordinate.to_string(), offset });
    }
    let f2 = match args.f2.then(|| f2_matrix(&layout)).transpose() {
        Ok(matrix) => matrix,
        Err(rejection) => {
            return Err(Failure::new(Exit::Findings, "no_matrix", "there is no such matrix")
                .cause(rejection.reason()));
        }
    };
    let files = draw(args, &layout)?;
    let facts = properties(plain, args.limit.limits());
    let mut text = format!("{layout}\n{}", facts_text(plain, &facts, args.limit));
    if !layout.swizzle().is_identity() {
        text += &line("swizzle", format!("{} (the facts are those below it)", layout.swizzle()));
    }
    for CoordinateOffset { coordinate, offset } in &at {
        text += &line("at", format!("{coordinate} → {offset}"));
    }
    if let Some(matrix) = &f2 {
        text += &f2_text(matrix);
    }
    if args.table {
        text += &format!("\n{}", picture(args, &layout)?.table(app.terminal.stdout_color));
    }
    for file in &files {
        text += &format!("{file}\n");
    }
    let coalesced_form = rgpu_layout::coalesce(plain).layout;
    let evaluation = Evaluation { layout, properties: facts, coalesced_form, at, f2, files };
    print(app, LayoutResult::Eval(evaluation), &text)?;
    Ok(0)
}

fn facts_text(layout: &Layout, facts: &Properties, limit: LimitArgs) -> String {
    let known = |value: Option<i64>| {
        value.map_or(format!("not counted: more than {} points", limit.max_points), |v| {
            v.to_string()
        })
    };
    let yes = |value: Option<bool>| match value {
        Some(true) => "yes",
        Some(false) => "no",
        None => "not known",
    };
    let mut text = line("size", facts.size) + &line("cosize", facts.cosize);
    text += &line("image", known(facts.image_size));
    if let Some(times) = facts.duplication.filter(|times| *times > 1) {
        text += &line("duplication", format!("{times} coordinates for each offset"));
    }
    text += &line("injective", yes(facts.injective));
    text += &line("compact", yes(Some(facts.compact)));
    text += &line("tractable", yes(Some(facts.tractable)));
    text += &line(
        "coalesced",
        match facts.coalesced {
            true => "yes".to_owned(),
            false => format!("no: {}", rgpu_layout::coalesce(layout).layout),
        },
    );
    if facts.filter_zeros != *layout {
        text += &line("filter_zeros", &facts.filter_zeros);
    }
    let proof: Option<&Proof> = facts.proof.as_ref();
    text + &proof.map(proof_line).unwrap_or_default()
}

fn f2_text(matrix: &F2Matrix) -> String {
    let columns: Vec<String> = matrix.columns.iter().map(i64::to_string).collect();
    let mut text = line("f2", format!("bit i of the index adds {}", columns.join(", ")));
    text += &line("rank", matrix.rank);
    for row in &matrix.rows {
        text += &line("", row);
    }
    text
}

fn picture(args: &EvalArgs, layout: &SwizzledLayout) -> Result<CellGrid> {
    let bank = Coloring::Bank { element_bytes: args.elem_bytes };
    let coloring = match args.color_by {
        Some(ColorMeaning::Thread) => Coloring::Thread,
        Some(ColorMeaning::Bank) => bank,
        Some(ColorMeaning::Offset) => Coloring::Offset,
        None if args.tile.is_some() => Coloring::Thread,
        None => Coloring::Offset,
    };
    let drawn = match &args.tile {
        None => CellGrid::of_values(layout, coloring),
        Some(tile) => {
            let [rows, columns] = numbers(tile, 'x', "16x8")?;
            if !layout.swizzle().is_identity() {
                return Err(usage("a layout of threads and values has no swizzle"));
            }
            let tile = Tile { rows, columns, row_major: args.row_major };
            CellGrid::of_threads(layout.layout(), tile, coloring)
        }
    };
    drawn.map_err(usage)
}

/// Writes the pictures and returns their paths.
fn draw(args: &EvalArgs, layout: &SwizzledLayout) -> Result<Vec<String>> {
    let mut files = Vec::new();
    if let Some(path) = &args.svg {
        files.push(save(path, &picture(args, layout)?.svg(), args.force)?);
    }
    match args.format {
        Some(PictureFormat::Svg) => {
            let path = args.out.clone().unwrap_or_else(|| "layout.svg".into());
            files.push(save(&path, &picture(args, layout)?.svg(), args.force)?);
        }
        Some(PictureFormat::Html) => {
            let path = args.out.clone().unwrap_or_else(|| "layout.html".into());
            let picture = picture(args, layout)?;
            files.push(save(
                &path,
                &page::render(&layout.to_string(), &picture.svg()),
                args.force,
            )?);
        }
        None => {}
    }
    Ok(files)
}
