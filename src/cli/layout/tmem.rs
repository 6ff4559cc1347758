//! `layout tmem`: the budget of tensor memory.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use rgpu_layout::sm100::{
    Advice, MmaTile, SegmentKind, TMEM_COLUMNS, TmemBudget, TmemRequest, budget,
};
use schemars::JsonSchema;
use serde::Serialize;

use super::document::{LayoutResult, line, print};
use super::input::{numbers, usage};
use super::output::save;
use crate::cli::support::app::{App, Status};
use rgpu_model::error::{Exit, Result};
use rgpu_report::TextTable;

/// `layout tmem`.
///
/// The exit status is 1 if the segments do not fit into 512 columns.
#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct TmemArgs {
    /// The tile of a block-scaled MMA with 4-bit operands: MxNxK
    #[arg(long, value_name = "MxNxK", required_unless_present = "acc_cols",
          conflicts_with_all = ["acc_cols", "sfa_cols", "sfb_cols"])]
    pub tile: Option<String>,

    /// Stages of the accumulator
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub acc_stages: i64,

    /// Stages of the scales
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub sf_stages: i64,

    /// CTAs that share the MMA: 1 or 2
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=2))]
    pub cta_group: u8,

    /// Elements that share a scale: 16 in NVFP4, 32 in MXFP4
    #[arg(long, default_value_t = 16, value_name = "ELEMENTS")]
    pub sf_vec: i64,

    /// Columns of one stage of the accumulator
    #[arg(long, value_name = "COLUMNS")]
    pub acc_cols: Option<i64>,

    /// Columns of the scales of A
    #[arg(long, default_value_t = 0, value_name = "COLUMNS")]
    pub sfa_cols: i64,

    /// Columns of the scales of B
    #[arg(long, default_value_t = 0, value_name = "COLUMNS")]
    pub sfb_cols: i64,

    /// The multiple at which accumulators begin
    #[arg(long, default_value_t = 1, value_name = "COLUMNS")]
    pub acc_align: i64,

    /// The multiple at which scales begin
    #[arg(long, default_value_t = 4, value_name = "COLUMNS")]
    pub sf_align: i64,

    /// Show this many orders of the segments
    #[arg(long, default_value_t = 3, value_name = "N")]
    pub top_k: usize,

    /// Print the segments in this format
    #[arg(long, value_enum)]
    pub format: Option<SegmentFormat>,

    /// Write --format into this file
    #[arg(long, value_name = "FILE", requires = "format")]
    pub out: Option<PathBuf>,

    /// Overwrite a file that was not written by this command
    #[arg(long, requires = "out")]
    pub force: bool,
}

/// The format of the segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum SegmentFormat {
    /// Comma-separated values
    Csv,
    /// A Markdown table
    Markdown,
}

/// The result of `layout tmem`.
#[derive(Serialize, JsonSchema)]
pub(super) struct TmemResult {
    /// Whether everything fits into 512 columns.
    fits: bool,
    /// The columns and stages that were asked for.
    request: TmemRequest,
    /// The tile, if it was given by `--tile`.
    #[serde(skip_serializing_if = "Option::is_none")]
    tile: Option<MmaTile>,
    #[serde(flatten)]
    budget: TmemBudget,
}

pub(super) fn run(app: &App, args: &TmemArgs) -> Result<Status> {
    let tile = match &args.tile {
        None => None,
        Some(text) => {
            let [m, n, k] = numbers(text, 'x', "128x256x256")?;
            Some(MmaTile::new(m, n, k, args.cta_group == 2, args.sf_vec).map_err(usage)?)
        }
    };
    let of_tile =
        tile.map(|tile| TmemRequest::for_tile(tile, args.acc_stages)).transpose().map_err(usage)?;
    let columns = of_tile.unwrap_or(TmemRequest {
        accumulator: args.acc_cols.unwrap_or_default(),
        sfa: args.sfa_cols,
        sfb: args.sfb_cols,
        accumulator_stages: args.acc_stages,
        scale_stages: 1,
        accumulator_alignment: 1,
        scale_alignment: 4,
    });
    let request = TmemRequest {
        scale_stages: args.sf_stages,
        accumulator_alignment: args.acc_align,
        scale_alignment: args.sf_align,
        ..columns
    };
    let mut budget = budget(request).map_err(usage)?;
    budget.orders.truncate(args.top_k);
    let fits = budget.allocation.is_some();
    let mut text = match args.format {
        None => text(&request, &budget),
        Some(format) => segments(&budget, format),
    };
    if let Some(path) = &args.out {
        text = save(path, &text, args.force)? + "\n";
    }
    print(app, LayoutResult::Tmem(TmemResult { fits, request, tile, budget }), &text)?;
    Ok(if fits { 0 } else { Exit::Findings as u8 })
}

fn kind(kind: SegmentKind) -> &'static str {
    match kind {
        SegmentKind::Accumulator => "accumulator",
        SegmentKind::Sfa => "sfa",
        SegmentKind::Sfb => "sfb",
    }
}

fn text(request: &TmemRequest, budget: &TmemBudget) -> String {
    let mut text = match budget.allocation {
        Some(columns) => format!("{columns} columns of {TMEM_COLUMNS} to allocate\n"),
        None => format!(
            "does not fit: {} columns are needed, and there are {TMEM_COLUMNS}\n",
            budget.extent
        ),
    };
    text += &line(
        "columns",
        format!(
            "{} = {} × accumulator {} + {} × (sfa {} + sfb {})",
            budget.used,
            request.accumulator_stages,
            request.accumulator,
            request.scale_stages,
            request.sfa,
            request.sfb
        ),
    );
    if let Some(slack) = budget.slack {
        text += &line("unused", format!("{slack} columns of the allocation"));
        text += &line(
            "blocks an SM",
            format!("{}, as far as tensor memory goes", budget.blocks_per_sm),
        );
    }
    let mut table = TextTable::new("segment | stage: | column: | columns:");
    for segment in &budget.segments {
        let numbers = [segment.stage, segment.column, segment.columns].map(|n| n.to_string());
        table.add_row([kind(segment.kind).to_owned()].into_iter().chain(numbers));
    }
    text += &format!("\n{}", table.plain(100, 2));
    if budget.orders.len() > 1 {
        text.push('\n');
    }
    for order in budget.orders.iter().filter(|_| budget.orders.len() > 1) {
        let kinds = order.kinds.map(kind).join(", ");
        text += &line("order", format!("{kinds}: {} columns", order.extent));
    }
    for advice in &budget.advice {
        text += &line(
            "advice",
            match advice {
                Advice::FewerStages { stages: 1 } => "one stage of the accumulator fits".to_owned(),
                Advice::FewerStages { stages } => format!("{stages} stages of the accumulator fit"),
                Advice::NarrowerTile { columns } => {
                    format!("with these stages, an accumulator of {columns} columns fits")
                }
                Advice::OverlapStages { columns } => format!(
                    "two stages fit if they share {columns} columns, which the epilogue frees first"
                ),
                Advice::TwoBlocks { save } => {
                    format!("with {save} columns less, two blocks fit on an SM")
                }
                Advice::AnotherStage { stages } => {
                    format!("{stages} stages of the accumulator fit into the same allocation")
                }
            },
        );
    }
    text
}

fn segments(budget: &TmemBudget, format: SegmentFormat) -> String {
    let head = ["segment", "stage", "column", "columns"];
    let rows = budget.segments.iter().map(|s| {
        [kind(s.kind).to_owned(), s.stage.to_string(), s.column.to_string(), s.columns.to_string()]
    });
    match format {
        SegmentFormat::Csv => {
            let lines = rows.map(|row| row.join(",") + "\n");
            std::iter::once(head.join(",") + "\n").chain(lines).collect()
        }
        SegmentFormat::Markdown => {
            let lines = rows.map(|row| format!("| {} |\n", row.join(" | ")));
            let head = format!("| {} |\n|---|--:|--:|--:|\n", head.join(" | "));
            std::iter::once(head).chain(lines).collect()
        }
    }
}
