//! `rgpu model coll`: a collective by message size, on the GPU's links or a topology file.

use std::path::{Path, PathBuf};

use clap::Args;
use rgpu_predict::Calibration;
use rgpu_predict::collective::topology::TopologyFile;
use rgpu_predict::collective::{self, Op, Topology};
use rgpu_predict::document::{CollectiveDocument, collective_document, link_source, size_line};
use rgpu_predict::hw::Gpu;

use super::gpu::{GpuArgs, PredictedGpu, target};
use super::input;
use super::page::{self, PageArgs};
use crate::cli::support::app::{App, Status};
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_model::toml_error;
use rgpu_report::{TextTable, bytes, duration, per_second};

/// Predict a collective by message size
#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct CollArgs {
    /// allreduce, allgather, reducescatter, alltoall or p2p
    pub op: Op,

    #[command(flatten)]
    pub gpu: GpuArgs,

    /// The size: one rank's buffer, or for allgather and reducescatter the whole
    #[arg(long, value_parser = input::size)]
    pub bytes: f64,

    /// Number of GPUs, each with one rank
    #[arg(long, value_parser = input::count)]
    pub gpus: f64,

    /// A file with links that differ from the GPU's own: nodes, NVLink, PCIe, network, NUMA
    #[arg(long, value_name = "FILE")]
    pub topology: Option<PathBuf>,

    #[command(flatten)]
    pub page: PageArgs,
}

/// Sizes on each side of the one that was asked for.
const SHOWN_SIZES: i32 = 4;
/// The factor between two of them.
const SIZE_STEP: f64 = 4.0;
/// The longest bar of a rate.
const BAR_COLUMNS: f64 = 12.0;

/// The links of a GPU, changed by a file.
pub(super) fn topology(gpu: &Gpu, path: Option<&Path>) -> Result<Topology> {
    let file = match path {
        Some(path) => TopologyFile::parse(&input::toml(path)?).map_err(|error| {
            let what = toml_error::short(&error.to_string());
            Failure::new(Exit::Config, "bad_topology", what).file(path.display())
        })?,
        None => TopologyFile::default(),
    };
    Topology::with(gpu, &file)
        .map_err(|error| Failure::new(Exit::Config, "bad_topology", error.to_string()))
}

pub(super) fn run(app: &App, args: &CollArgs) -> Result<Status> {
    let target = target(app, &args.gpu)?;
    let topology = topology(&target.gpu, args.topology.as_deref())?;
    if args.gpus < 2.0 || !topology.joins(args.gpus) {
        let what = if args.gpus < 2.0 {
            "a collective needs at least 2 GPUs".to_owned()
        } else {
            format!("no network joins {} GPUs", args.gpus)
        };
        return Err(Failure::new(Exit::Usage, "usage", what)
            .hint("`network_gb_s` in a --topology file gives the network of one GPU"));
    }
    let calibration = target.calibration.as_ref();
    let ends = target.likely_ends();
    let predict_with = |bytes: f64, calibration: Option<&Calibration>| {
        collective::predict(args.op, bytes, args.gpus, &topology, calibration)
    };
    let predict = |bytes: f64| predict_with(bytes, calibration);
    let line = |bytes: f64| {
        let time = predict(bytes);
        let mut line = size_line(&time);
        if let (Some(ends), true) = (&ends, time.is_calibrated) {
            let at = |end: &PredictedGpu| predict_with(bytes, end.calibration.as_ref()).time_ns();
            line.likely_ns = Some([at(&ends[0]).max(time.bound_ns), at(&ends[1])]);
        }
        line
    };
    let sizes = (-SHOWN_SIZES..=SHOWN_SIZES)
        .map(|power| (args.bytes * SIZE_STEP.powi(power)).round())
        .filter(|bytes| *bytes >= 1.0)
        .map(line)
        .collect();
    let source = match &args.topology {
        Some(path) => path.display().to_string(),
        None => link_source(&target.hardware),
    };
    let time = predict(args.bytes);
    let document = collective_document(&target.hardware.id, &time, sizes, &source);
    let name = document.op.name();
    let sides = [page::side(name, &document)?];
    let is_page = page::write(app, &args.page, name, &document.gpu, &sides)?;
    match (app.global.json, is_page) {
        (true, _) => app.print_json(&document)?,
        (false, true) => {}
        (false, false) => print(app, &document),
    }
    Ok(0)
}

fn print(app: &App, document: &CollectiveDocument) {
    let name = document.op.name();
    app.print(&format!(
        "{name} of {} on {} x {}\n\n  bound  {}  links alone, without reductions in the switch\n  time   {}  {}\n",
        bytes(document.bytes),
        document.gpus,
        document.gpu,
        duration(document.bound_ns),
        duration(document.time_ns),
        document.calibration.word(),
    ));
    let asked = document.sizes.iter().find(|line| line.bytes == document.bytes);
    if let Some([fast, slow]) = asked.and_then(|line| line.likely_ns) {
        let range = format!("{} to {}", duration(fast), duration(slow));
        app.print(&format!("  likely {range}  covers 80 % of the times held out of the fit\n"));
    }
    app.print("\n");
    let mut table = TextTable::new("size: | time: | bound: | bus rate: | algorithm | protocol | ");
    let most = document.sizes.iter().map(|line| line.bus_bandwidth).fold(0.0, f64::max);
    for line in &document.sizes {
        let bar = "#".repeat((BAR_COLUMNS * line.bus_bandwidth / most).round() as usize);
        table.add_row([
            bytes(line.bytes),
            duration(line.time_ns),
            duration(line.bound_ns),
            per_second(line.bus_bandwidth, "B"),
            format!("{:?}", line.algorithm).to_lowercase(),
            format!("{:?}", line.protocol).to_lowercase(),
            bar,
        ]);
    }
    app.print(&table.plain(app.style().width, 2));
}
