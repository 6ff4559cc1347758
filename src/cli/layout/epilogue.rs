//! `layout epilogue`: how an epilogue reads the accumulator, and the traffic of its stores.

use clap::Args;
use rgpu_layout::access::{
    Access, AccessReport, Space, StoreCandidate, StoreTile, check_access, search_stores,
};
use rgpu_layout::sm100::{EpilogueError, EpilogueTile, TmemLoad};
use rgpu_layout::{ElementSize, Layout, Mode, Swizzle};
use schemars::JsonSchema;
use serde::Serialize;

use super::document::{LayoutResult, line, print};
use super::input::{LimitArgs, numbers, usage};
use crate::cli::support::app::{App, Status};
use rgpu_model::error::Result;
use rgpu_report::TextTable;

#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct EpilogueArgs {
    /// The tile of C of one CTA: 64 or 128 rows x columns
    #[arg(long, value_name = "MxN")]
    pub tile: String,

    /// The load from tensor memory: 32x32b.x1 to .x128; 16x32bx2.x1 to .x128 for 64 rows of one CTA
    #[arg(long, value_name = "LOAD", default_value = "32x32b.x32")]
    pub ldtm: String,

    /// CTAs that share the MMA: 1 or 2
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=2))]
    pub cta_group: u8,

    /// Bytes of an element of C; 0.5 for 4 bits
    #[arg(long, value_name = "BYTES")]
    pub elem_bytes: ElementSize,

    /// Elements from one row of C to the next
    #[arg(long, value_name = "ELEMENTS")]
    pub ldc: i64,

    /// Search the arrangements of threads over the tile for the one with the least traffic
    #[arg(long)]
    pub search: bool,

    /// Number of threads that store the tile
    #[arg(long, default_value_t = 128, requires = "search")]
    pub threads: i64,

    /// Elements that one store may have, of at most 32 bytes together [default: 1 to 64]
    #[arg(long, value_delimiter = ',', default_values_t = VECTOR_WIDTHS, hide_default_value = true, requires = "search")]
    pub vector_widths: Vec<i64>,

    /// Show this many arrangements
    #[arg(long, default_value_t = 10, value_name = "N", requires = "search")]
    pub top_k: usize,

    #[command(flatten)]
    pub limit: LimitArgs,
}

/// Elements of a store: up to 32 bytes of 4-bit elements.
const VECTOR_WIDTHS: [i64; 7] = [1, 2, 4, 8, 16, 32, 64];

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
    let load: TmemLoad = args.ldtm.parse().map_err(|error: EpilogueError| {
        usage(error)
            .hint("32x32b.x1, .x2, .x4 … .x128, or for 64 rows of one CTA 16x32bx2.x1 … .x128")
    })?;
    let partition = EpilogueTile::new(rows, columns, args.cta_group == 2, load).map_err(usage)?;
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
    let direct_stores = direct_stores(args, load)?;
    let mut candidates = if args.search {
        search_stores(&store, args.limit.limits()).map_err(usage)?
    } else {
        Vec::new()
    };
    candidates.truncate(args.top_k);
    let result = EpilogueResult { partition, tile_of_c, direct_stores, candidates };
    let text = line("warps", warps(args, rows, columns)) + &text(&result);
    print(app, LayoutResult::Epilogue(result), &text)?;
    Ok(0)
}

/// The stores of what one load gives a warp.
fn direct_stores(args: &EpilogueArgs, load: TmemLoad) -> Result<Vec<DirectStore>> {
    let layout = load.warp_layout(args.ldc).map_err(usage)?;
    let mut stores = Vec::new();
    for vector in VECTOR_WIDTHS.into_iter().filter(|vector| load.columns() % vector == 0) {
        let access = Access {
            space: Space::Global,
            element_bytes: args.elem_bytes,
            lanes: 32,
            vector,
            swizzle: Swizzle::default(),
        };
        if access.lane_bytes().is_none() {
            continue;
        }
        let report = check_access(&layout, access, args.limit.limits()).map_err(usage)?;
        stores.push(DirectStore { vector, layout: layout.clone(), report });
    }
    if stores.is_empty() {
        let (bytes, columns) = (args.elem_bytes, load.columns());
        return Err(usage(format!("no store has 1 to {columns} elements of {bytes} bytes")).hint(
            "a store has 1, 2, 4, 8, 16 or 32 bytes, and a thread as many columns as its load",
        ));
    }
    Ok(stores)
}

/// Which rows and columns each warp reads: a quarter of the lanes.
fn warps(args: &EpilogueArgs, rows: i64, columns: i64) -> String {
    match (rows, args.cta_group) {
        (128, _) => "warp w of 4 reads lanes 32w to 32w+31, rows 32w to 32w+31".to_owned(),
        (_, 1) => "warp w of 4 reads lanes 32w to 32w+15, rows 16w to 16w+15".to_owned(),
        _ => format!(
            "warp w of 4 reads lanes 32w to 32w+31: rows 32(w mod 2) to 32(w mod 2)+31, of columns {}",
            format_args!(
                "0 to {} if w < 2, else {} to {}",
                columns / 2 - 1,
                columns / 2,
                columns - 1
            )
        ),
    }
}

fn text(result: &EpilogueResult) -> String {
    let mut text = line("tDtAcc", &result.partition.accumulator);
    text += &line("tDgC", &result.partition.output);
    text += &line("gC", &result.tile_of_c);
    text += "\n  each thread stores its row, one load of one warp:\n";
    let percent = |share: f64| format!("{:.2} %", share * 100.0);
    let mut table = TextTable::new("vector: | bytes: | stores: | sectors/store: | used: | ");
    for DirectStore { vector, report, .. } in &result.direct_stores {
        let sectors = report.sectors.map(|count| count.most.to_string()).unwrap_or_default();
        let fault = report.misaligned.map(|_| "misaligned: it faults".to_owned());
        let needs = report.needs_arch.map(|arch| format!("{arch} and newer"));
        table.add_row([
            vector.to_string(),
            report.lane_bytes.to_string(),
            report.requests.to_string(),
            sectors,
            report.efficiency.map(percent).unwrap_or_default(),
            fault.or(needs).unwrap_or_default(),
        ]);
    }
    text += &table.without_empty_columns().plain(100, 2);
    if result.candidates.is_empty() {
        return text;
    }
    text += "\n  arrangements of the threads over the tile:\n";
    let mut table = TextTable::new(
        "row threads: | vector: | sectors: | ideal: | used: | stores: | values | layout",
    );
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
