//! `layout epilogue`: how an epilogue reads the accumulator, and the traffic of its stores.

use clap::Args;
use rgpu_layout::access::{
    Access, AccessReport, Space, StoreCandidate, StoreTile, check_access, search_stores,
};
use rgpu_layout::sm100::EpilogueTile;
use rgpu_layout::{Layout, Mode, Swizzle};
use schemars::JsonSchema;
use serde::Serialize;

use super::document::{LayoutResult, line, print};
use super::input::{LimitArgs, numbers, usage};
use crate::cli::support::app::{App, Status};
use crate::error::Result;
use crate::report::{Align, TextTable};

/// `layout epilogue`.
#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct EpilogueArgs {
    /// The tile of C: rows x columns
    #[arg(long, value_name = "MxN")]
    pub tile: String,

    /// The load from tensor memory: 32x32b.x1 to 32x32b.x128
    #[arg(long, value_name = "LOAD", default_value = "32x32b.x32")]
    pub ldtm: String,

    /// Bytes of an element of C
    #[arg(long, value_name = "BYTES")]
    pub elem_bytes: i64,

    /// Elements from one row of C to the next
    #[arg(long, value_name = "ELEMENTS")]
    pub ldc: i64,

    /// Search the arrangements of threads over the tile for the one with the least traffic
    #[arg(long)]
    pub search: bool,

    /// Threads that store
    #[arg(long, default_value_t = 128, requires = "search")]
    pub threads: i64,

    /// Elements that one store may have
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4, 8, 16], requires = "search")]
    pub vector_widths: Vec<i64>,

    /// Show this many arrangements
    #[arg(long, default_value_t = 10, value_name = "N", requires = "search")]
    pub top_k: usize,

    #[command(flatten)]
    pub limit: LimitArgs,
}

/// The result of `layout epilogue`.
#[derive(Serialize, JsonSchema)]
pub(super) struct EpilogueResult {
    #[serde(flatten)]
    partition: EpilogueTile,
    /// From (row, column) of the tile to elements of C.
    tile_of_c: Layout,
    /// The cost of stores if each thread writes the row that the load gave it, by vector width.
    direct_stores: Vec<DirectStore>,
    /// The arrangements that `--search` found, least traffic first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    candidates: Vec<StoreCandidate>,
}

/// Stores of one width.
#[derive(Serialize, JsonSchema)]
struct DirectStore {
    /// Elements of a store.
    vector: i64,
    /// The layout from thread and value to elements of C.
    layout: Layout,
    #[serde(flatten)]
    report: AccessReport,
}

pub(super) fn run(app: &App, args: &EpilogueArgs) -> Result<Status> {
    let [rows, columns] = numbers::<2>(&args.tile, 'x', "128x128")?;
    let load = args.ldtm.strip_prefix("32x32b.x").and_then(|n| n.parse().ok());
    let load = load.ok_or_else(|| {
        usage(format!("`{}` is no load whose threads have a row each", args.ldtm))
            .hint("32x32b.x1, .x2, .x4 … .x128")
    })?;
    let partition = EpilogueTile::new(columns, load).map_err(usage)?;
    let store = StoreTile {
        rows,
        columns,
        element_bytes: args.elem_bytes,
        leading: args.ldc,
        threads: args.threads,
        vectors: args.vector_widths.clone(),
    };
    store.check().map_err(usage)?;
    let flat = |modes: &[Mode]| Layout::flat(modes).map_err(usage);
    let tile_of_c = flat(&[Mode::new(rows, args.ldc), Mode::new(columns, 1)])?;
    let direct_stores = direct_stores(args, rows, load)?;
    let mut candidates = match args.search {
        true => search_stores(&store, args.limit.limits()).map_err(usage)?,
        false => Vec::new(),
    };
    candidates.truncate(args.top_k);
    let result = EpilogueResult { partition, tile_of_c, direct_stores, candidates };
    let text = text(&result);
    print(app, LayoutResult::Epilogue(result), &text)?;
    Ok(0)
}

/// The stores of the columns of one load by one warp, whose lanes have a row each.
fn direct_stores(args: &EpilogueArgs, rows: i64, load: i64) -> Result<Vec<DirectStore>> {
    let mut stores = Vec::new();
    for vector in [1_i64, 2, 4, 8, 16] {
        if load % vector != 0 || vector.saturating_mul(args.elem_bytes) > 16 || rows % 32 != 0 {
            continue;
        }
        let layout = Layout::flat(&[Mode::new(32, args.ldc), Mode::new(load, 1)]).map_err(usage)?;
        let access = Access {
            space: Space::Global,
            element_bytes: args.elem_bytes,
            lanes: 32,
            vector,
            swizzle: Swizzle::default(),
        };
        // A width that no instruction has is no row.
        if let Ok(report) = check_access(&layout, access, args.limit.limits()) {
            stores.push(DirectStore { vector, layout, report });
        }
    }
    Ok(stores)
}

fn text(result: &EpilogueResult) -> String {
    let mut text = line("tDtAcc", &result.partition.accumulator);
    text += &line("tDgC", &result.partition.output);
    text += &line("gC", &result.tile_of_c);
    text += "\n  each thread stores its row, one load of one warp:\n";
    let percent = |share: f64| format!("{:.2} %", share * 100.0);
    let mut table = TextTable::new(&[
        ("vector", Align::Right),
        ("bytes", Align::Right),
        ("stores", Align::Right),
        ("sectors/store", Align::Right),
        ("used", Align::Right),
        ("", Align::Left),
    ]);
    for DirectStore { vector, report, .. } in &result.direct_stores {
        let sectors = report.sectors.map(|count| count.most.to_string()).unwrap_or_default();
        let fault = report.misaligned.map(|_| "misaligned: it faults".to_owned());
        table.add_row([
            vector.to_string(),
            report.lane_bytes.to_string(),
            report.requests.to_string(),
            sectors,
            report.efficiency.map(percent).unwrap_or_default(),
            fault.unwrap_or_default(),
        ]);
    }
    text += &table.without_empty_columns().plain(100, 2);
    if result.candidates.is_empty() {
        return text;
    }
    text += "\n  arrangements of the threads over the tile:\n";
    let mut table = TextTable::new(&[
        ("row threads", Align::Right),
        ("vector", Align::Right),
        ("sectors", Align::Right),
        ("ideal", Align::Right),
        ("used", Align::Right),
        ("stores", Align::Right),
        ("values", Align::Left),
        ("layout", Align::Left),
    ]);
    for candidate in &result.candidates {
        table.add_row([
            candidate.row_threads.to_string(),
            candidate.vector.to_string(),
            candidate.sectors.to_string(),
            candidate.ideal_sectors.to_string(),
            percent(candidate.efficiency),
            candidate.requests.to_string(),
            if candidate.direct { "direct" } else { "through smem" }.to_owned(),
            candidate.layout.to_string(),
        ]);
    }
    text + &table.plain(150, 2)
}
