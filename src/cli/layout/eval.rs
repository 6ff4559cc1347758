//! `layout eval`: facts, offsets and pictures of one layout.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use rgpu_layout::picture::{CellGrid, Coloring, Tile};
use rgpu_layout::{
    Coordinate, ElementSize, F2Matrix, Layout, Properties, Swizzle, SwizzledLayout, f2_matrix,
    properties,
};
use schemars::JsonSchema;
use serde::Serialize;

use super::document::{LayoutResult, line, print, proof_line};
use super::input::{LimitArgs, numbers, parse, usage};
use super::output::save;
use super::page;
use crate::cli::support::app::{App, Status};
use rgpu_model::error::{Exit, Failure, Result};

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

    /// Write a picture as SVG; missing folders of the path are created
    #[arg(long, value_name = "FILE", help_heading = "Pictures")]
    pub svg: Option<PathBuf>,

    /// Write a picture in this format [default file: layout.html or layout.svg]
    #[arg(long, value_enum, help_heading = "Pictures")]
    pub format: Option<PictureFormat>,

    /// Where --format writes
    #[arg(long, value_name = "FILE", requires = "format", help_heading = "Pictures")]
    pub out: Option<PathBuf>,

    /// Overwrite files that are not pictures
    #[arg(long, help_heading = "Pictures")]
    pub force: bool,

    /// The layout counts threads, then values: draw this tile, as 16x8, with who holds what
    #[arg(long, value_name = "ROWSxCOLUMNS", help_heading = "Pictures")]
    pub tile: Option<String>,

    /// Offsets of the tile run along rows first
    #[arg(long, requires = "tile", help_heading = "Pictures")]
    pub row_major: bool,

    /// The meaning of the colours [default: offset; with --tile thread]
    #[arg(long, value_enum, help_heading = "Pictures")]
    pub color_by: Option<ColorMeaning>,

    /// Bytes of an element, for swizzles, which act on byte addresses, and for --color-by bank; 0.5
    /// for 4 bits [default: 1; for --color-by bank without a swizzle 2]
    #[arg(long, value_name = "BYTES")]
    pub elem_bytes: Option<ElementSize>,

    #[command(flatten)]
    pub limit: LimitArgs,
}

/// The format of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum PictureFormat {
    /// A page with details of the cell under the pointer
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
#[serde_with::skip_serializing_none]
#[derive(Serialize, JsonSchema)]
pub(super) struct Evaluation {
    /// The layout that is evaluated.
    layout: SwizzledLayout,
    /// The size of an element, if it was given.
    element_bytes: Option<ElementSize>,
    /// The swizzle of the offsets of such elements that the swizzle of byte addresses is.
    element_swizzle: Option<Swizzle>,
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
    f2: Option<F2Matrix>,
    /// The files that were written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    files: Vec<String>,
}

/// A coordinate with its offset.
#[derive(Serialize, JsonSchema)]
struct CoordinateOffset {
    /// The coordinate, as it was given.
    coordinate: String,
    /// Its offset, swizzled.
    offset: i64,
}

pub(super) fn run(app: &App, args: &EvalArgs) -> Result<Status> {
    let layout: SwizzledLayout = parse(&args.layout, "layout")?;
    let plain = layout.layout();
    // From here on, the swizzle is one of offsets.
    let placed = match args.elem_bytes {
        Some(element) => layout.for_elements(element).map_err(usage)?,
        None => layout.clone(),
    };
    let mut at = Vec::new();
    for text in &args.at {
        let coordinate: Coordinate = parse(text, "coordinate")?;
        let offset = plain.at_coordinate(&coordinate).ok_or_else(|| {
            usage(format!("`{text}` is not a coordinate of {plain}, which has {}", plain.size()))
                .hint("give an index below its size, or a tuple nested as its shape")
        })?;
        let offset = placed.swizzle().apply(offset + placed.offset());
        at.push(CoordinateOffset { coordinate: coordinate.to_string(), offset });
    }
    let f2 = match args.f2.then(|| f2_matrix(&placed)).transpose() {
        Ok(matrix) => matrix,
        Err(rejection) => {
            return Err(Failure::new(Exit::Findings, "no_matrix", "there is no such matrix")
                .cause(rejection.reason()));
        }
    };
    let files = draw(args, &layout, &placed)?;
    let facts = properties(plain, args.limit.limits());
    let mut text = format!("{layout}\n{}", facts_text(plain, &facts, args.limit));
    text += &swizzle_text(&layout, &placed, args.elem_bytes);
    for CoordinateOffset { coordinate, offset } in &at {
        text += &line("at", format!("{coordinate} → {offset}"));
    }
    if let Some(matrix) = &f2 {
        text += &f2_text(matrix);
    }
    if args.table {
        let table = picture(args, &layout, &placed)?.table(app.terminal.stdout_color);
        // It has numbers only.
        text += &format!("\n{}", rgpu_report::mark_own_colors(&table));
    }
    for file in &files {
        text += &format!("{file}\n");
    }
    let coalesced_form = rgpu_layout::coalesce(plain).layout;
    let status = if facts.image_size.is_none() { Exit::Findings as u8 } else { 0 };
    let swizzled = !placed.swizzle().is_identity();
    let evaluation = Evaluation {
        element_bytes: args.elem_bytes,
        element_swizzle: args.elem_bytes.filter(|_| swizzled).map(|_| placed.swizzle()),
        layout,
        properties: facts,
        coalesced_form,
        at,
        f2,
        files,
    };
    print(app, LayoutResult::Eval(evaluation), &text)?;
    Ok(status)
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
        if facts.coalesced {
            "yes".to_owned()
        } else {
            format!("no: {}", rgpu_layout::coalesce(layout).layout)
        },
    );
    if facts.filter_zeros != *layout {
        text += &line("filter_zeros", &facts.filter_zeros);
    }
    let proofs = facts.proof.iter().chain(&facts.injective_proof);
    text += &proofs.map(proof_line).collect::<String>();
    if facts.image_size.is_none() {
        text += &line("help", "`--max-points N` raises the number of points that may be checked");
    }
    text
}

/// The unit of the swizzle.
fn swizzle_text(
    layout: &SwizzledLayout,
    placed: &SwizzledLayout,
    element: Option<ElementSize>,
) -> String {
    let swizzle = layout.swizzle();
    if swizzle.is_identity() {
        return String::new();
    }
    let mode = swizzle.umma_mode().map_or(String::new(), |mode| format!(", the {mode} mode,"));
    let unit = match element {
        Some(element) => format!("{} of elements of {element} bytes", placed.swizzle()),
        None => "an element is one byte here; `--elem-bytes` gives its size".to_owned(),
    };
    let period = swizzle.period();
    line(
        "swizzle",
        format!("{swizzle} of byte addresses{mode} repeats every {period} bytes; {unit}"),
    ) + &line("", "size to coalesced are those of the layout below it")
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

/// The picture of a layout, from the one whose swizzle acts on offsets.
fn picture(args: &EvalArgs, layout: &SwizzledLayout, placed: &SwizzledLayout) -> Result<CellGrid> {
    let coloring = match args.color_by {
        Some(ColorMeaning::Thread) => Coloring::Thread,
        Some(ColorMeaning::Bank) => {
            let plain = ElementSize::from_bytes(2).ok().filter(|_| layout.swizzle().is_identity());
            let element = args.elem_bytes.or(plain).ok_or_else(|| {
                usage("the swizzle acts on byte addresses: banks depend on the size of an element")
                    .hint("give it by `--elem-bytes`, as in `--elem-bytes 0.5` for 4 bits")
            })?;
            Coloring::Bank { element }
        }
        Some(ColorMeaning::Offset) => Coloring::Offset,
        None if args.tile.is_some() => Coloring::Thread,
        None => Coloring::Offset,
    };
    let drawn = match &args.tile {
        None => CellGrid::from_values(placed, coloring).map(|cells| cells.titled(layout)),
        Some(tile) => {
            let [rows, columns] = numbers(tile, 'x', "16x8")?;
            if !layout.swizzle().is_identity() {
                return Err(usage("a layout of threads and values has no swizzle"));
            }
            let tile = Tile { rows, columns, row_major: args.row_major };
            CellGrid::from_threads(layout.layout(), tile, coloring)
        }
    };
    drawn.map_err(usage)
}

/// Writes the pictures and returns their paths.
fn draw(args: &EvalArgs, layout: &SwizzledLayout, placed: &SwizzledLayout) -> Result<Vec<String>> {
    let mut files = Vec::new();
    if let Some(path) = &args.svg {
        files.push(save(path, &picture(args, layout, placed)?.svg(), args.force)?);
    }
    match args.format {
        Some(PictureFormat::Svg) => {
            let path = args.out.clone().unwrap_or_else(|| "layout.svg".into());
            files.push(save(&path, &picture(args, layout, placed)?.svg(), args.force)?);
        }
        Some(PictureFormat::Html) => {
            let path = args.out.clone().unwrap_or_else(|| "layout.html".into());
            let picture = picture(args, layout, placed)?;
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
