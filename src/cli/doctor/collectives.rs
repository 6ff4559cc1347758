//! `rgpu doctor --collectives`: times NCCL's collectives between the GPUs of a host.
//!
//! A job on the host measures the times. They are fitted to a latency α and a time per byte β, the
//! parameters of `rgpu model`'s cost model for collectives, and printed or written to the files of
//! `--out`.

use std::path::{Path, PathBuf};

use rgpu_predict::Calibration;
use rgpu_predict::calibration::{CollectiveFit, Errors};
use rgpu_predict::collective::{self, Op, Topology};
use rgpu_predict::fit::{fit, fit_times, gpu_rows};
use rgpu_predict::hw::Gpu;
use rgpu_predict::measurement::{Measurement, MeasurementKind, write_csv};
use schemars::JsonSchema;
use serde::Serialize;

use super::super::support::app::{App, Status};
use super::super::support::followed_run::FollowedRun;
use super::super::support::session;
use super::super::support::terminal::escape_controls;
use super::DoctorArgs;
use crate::cli::model;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_plan::tool::GpuSelection;
use rgpu_report::{TextTable, bytes, duration, per_second, percent};
use rgpu_run::run::{CollectiveRow, CollectivesRequest, MeasuredCollectives, measure_collectives};
use rgpu_run::store::atomic;

/// The `source` column of the rows that `--out` writes.
const SOURCE: &str = "rgpu doctor --collectives";
const MEBIBYTE: f64 = 1_048_576.0;

/// The output of `doctor --collectives --json` (`rgpu.collectives/1`).
#[derive(Serialize, JsonSchema)]
pub(in crate::cli) struct CollectivesDocument {
    /// Name and version of this schema: `rgpu.collectives/1`.
    schema: &'static str,
    /// The remote's name.
    remote: String,
    /// The GPU's product name.
    gpu: String,
    /// Number of GPUs that took part.
    gpus: u32,
    /// The version of NCCL.
    nccl: String,
    /// The file of NCCL on the host.
    library: String,
    /// Whether NCCL could reduce inside the switch, by its own log.
    nvls: NvlsState,
    /// `NCCL_NVLS_ENABLE` as NCCL saw it; absent if it was not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    nvls_setting: Option<String>,
    /// The times of each collective.
    collectives: Vec<TimedCollective>,
    /// The files that were written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    out: Vec<String>,
    /// Lines of NCCL's log that tell its choices.
    log: Vec<String>,
}

/// Whether NCCL could use NVLS, the reductions inside NVSwitch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum NvlsState {
    /// NCCL has channels for NVLS, and chooses by size whether to use them.
    On,
    /// NCCL has no channels for NVLS.
    Off,
    /// NCCL's log does not tell.
    Unknown,
}

/// One collective.
#[derive(Serialize, JsonSchema)]
struct TimedCollective {
    /// The name of the collective.
    op: Op,
    /// Latency and time per byte, smallest sizes first. Empty if the times cannot be fitted.
    fit: Vec<AlphaBeta>,
    /// The errors of the fit on the sizes that were held out.
    #[serde(skip_serializing_if = "Option::is_none")]
    errors: Option<Errors>,
    /// The times by size.
    sizes: Vec<TimedSize>,
}

/// The time of a range of sizes: α + β · size.
#[derive(Serialize, JsonSchema)]
struct AlphaBeta {
    /// The least and the largest size in bytes.
    bytes: [f64; 2],
    /// The time of an empty message in ns.
    alpha_ns: f64,
    /// The time of each byte in ns.
    beta_ns: f64,
}

/// The time of a collective at one size.
#[derive(Serialize, JsonSchema)]
struct TimedSize {
    /// The size in bytes, as nccl-tests counts it: the whole buffer.
    bytes: f64,
    /// The time of one call: the median over loops of calls, of the mean over ranks.
    time_ns: f64,
    /// The longest loop over the shortest, less 1.
    spread: f64,
    /// The size by the time, in B/s.
    algorithm_bandwidth: f64,
    /// The algorithm bandwidth times 2(n−1)/n for an all-reduce, (n−1)/n for the others, in B/s.
    bus_bandwidth: f64,
}

/// A file for `--out`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) enum OutFile {
    /// Measured rows, for `rgpu model fit` and `reconcile`.
    Csv(PathBuf),
    /// A calibration, for `--calib`.
    Toml(PathBuf),
}

impl std::str::FromStr for OutFile {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match Path::new(text).extension().and_then(|extension| extension.to_str()) {
            Some("csv") => Ok(Self::Csv(text.into())),
            Some("toml") => Ok(Self::Toml(text.into())),
            _ => Err("a name that ends in .csv (times) or .toml (calibration)".to_owned()),
        }
    }
}

/// Times the collectives of a host.
pub(super) fn run(app: &App, args: &DoctorArgs) -> Result<Status> {
    let spec = session::spec(app, args.remote.as_deref())?;
    let request = CollectivesRequest {
        gpus: args.gpus.clone().unwrap_or(GpuSelection::All),
        nvls: args.nvls,
    };
    let measured = FollowedRun::run_in_scratch_folder(
        app,
        &spec,
        "collectives",
        "collectives".to_owned(),
        args.accept_new,
        async |session, context| measure_collectives(session, &request, context).await,
    )?;
    let rows = rows(&measured, &jiff::Zoned::now().date().to_string());
    let known_gpus = model::known_gpus(app);
    let hardware = known_gpus.iter().find(|known| gpu_rows(&rows, &known.id).next().is_some());
    let gpu = hardware.and_then(|known| Some((known, known.gpu().ok()?)));
    let calibration = gpu.as_ref().map(|(known, gpu)| {
        fit(&known.id, gpu, Topology::for_gpu(gpu).as_ref(), &rows).calibration
    });
    let document = CollectivesDocument {
        schema: "rgpu.collectives/1",
        remote: spec.name.clone(),
        gpu: measured.gpu.clone(),
        gpus: measured.ranks,
        nccl: version(measured.version),
        library: measured.library.clone(),
        nvls: nvls_state(&measured.log),
        nvls_setting: measured.nvls_setting.clone(),
        collectives: timed(&measured, gpu.as_ref().map(|(_, gpu)| gpu), calibration.as_ref()),
        out: write_files(app, &args.out, &rows, calibration.as_ref(), &measured.gpu)?,
        log: measured.log.clone(),
    };
    if app.global.json {
        app.print_json(&document)?
    } else {
        show(app, &document, args.nvls)
    }
    Ok(0)
}

/// `2.27.5` from NCCL's code, which has two digits for each part since 2.9.
fn version(code: u32) -> String {
    match code {
        10_000.. => format!("{}.{}.{}", code / 10_000, code / 100 % 100, code % 100),
        _ => format!("{}.{}.{}", code / 1000, code / 100 % 10, code % 100),
    }
}

/// What NCCL's log says of its channels: `16 nvls channels`.
fn nvls_state(log: &[String]) -> NvlsState {
    let number = log.iter().find_map(|line| {
        let (before, _) = line.split_once(" nvls channels")?;
        before.rsplit(' ').next()?.parse::<u32>().ok()
    });
    match number {
        Some(0) => NvlsState::Off,
        Some(_) => NvlsState::On,
        None => NvlsState::Unknown,
    }
}

/// The time of one call in ns: the median over loops.
fn time_ns(row: &CollectiveRow) -> f64 {
    let mut loops = row.loops_ns.clone();
    loops.sort_by(f64::total_cmp);
    let half = loops.len() / 2;
    match loops.len() % 2 {
        0 => f64::midpoint(loops[half - 1], loops[half]),
        _ => loops[half],
    }
}

/// The rows as `rgpu model fit` reads them.
fn rows(measured: &MeasuredCollectives, date: &str) -> Vec<Measurement> {
    let row = |row: &CollectiveRow| Measurement {
        gpus: Some(measured.ranks),
        framework: Some("nccl".to_owned()),
        version: Some(version(measured.version)),
        date: Some(date.to_owned()),
        op: Some(row.op.clone()),
        bytes: Some(row.bytes),
        time_ns: Some(time_ns(row)),
        ..Measurement::new(MeasurementKind::Collective, SOURCE, &measured.gpu)
    };
    measured.rows.iter().map(row).collect()
}

/// The collectives with their fits: those of the calibration where the GPU's link is known, else
/// against the best rate that was measured.
fn timed(
    measured: &MeasuredCollectives,
    gpu: Option<&Gpu>,
    calibration: Option<&Calibration>,
) -> Vec<TimedCollective> {
    let ranks = f64::from(measured.ranks);
    let topology = gpu.and_then(Topology::for_gpu);
    let mut all = Vec::new();
    for (op, name) in Op::ALL {
        let own = measured.rows.iter().filter(|row| row.op == *name);
        let sizes: Vec<TimedSize> = own.map(|row| timed_size(row, op.volume(ranks))).collect();
        if sizes.is_empty() {
            continue;
        }
        let found = match (calibration, &topology) {
            (Some(calibration), Some(topology)) => {
                let ns = collective::predict(*op, 1.0, ranks, topology, None).bound_ns;
                let fits = calibration.collective.iter();
                fits.clone().find(|fit| fit.op == *name).map(|fit| (fit.clone(), ns))
            }
            _ => {
                let times: Vec<_> = sizes.iter().map(|size| (size.bytes, size.time_ns)).collect();
                fit_times(name, measured.ranks, &times)
            }
        };
        let alpha_beta = |(fit, ns): &(CollectiveFit, f64)| -> Vec<AlphaBeta> {
            let regimes = fit.regimes.iter();
            regimes
                .map(|regime| AlphaBeta {
                    bytes: regime.bytes,
                    alpha_ns: regime.alpha_ns,
                    beta_ns: ns / regime.bandwidth,
                })
                .collect()
        };
        all.push(TimedCollective {
            op: *op,
            fit: found.as_ref().map(alpha_beta).unwrap_or_default(),
            errors: found.map(|(fit, _)| fit.test),
            sizes,
        });
    }
    all
}

/// `volume`: the part of the size that crosses each GPU's link.
fn timed_size(row: &CollectiveRow, volume: f64) -> TimedSize {
    let time_ns = time_ns(row);
    let (least, most) = row
        .loops_ns
        .iter()
        .fold((f64::INFINITY, 0.0_f64), |(least, most), ns| (least.min(*ns), most.max(*ns)));
    let algorithm_bandwidth = row.bytes / (time_ns / 1e9);
    TimedSize {
        bytes: row.bytes,
        time_ns,
        spread: most / least - 1.0,
        algorithm_bandwidth,
        bus_bandwidth: algorithm_bandwidth * volume,
    }
}

/// Writes the files of `--out`, and returns their names.
fn write_files(
    app: &App,
    files: &[OutFile],
    rows: &[Measurement],
    calibration: Option<&Calibration>,
    gpu: &str,
) -> Result<Vec<String>> {
    let bug = |what: &str, error: String| Failure::new(Exit::Bug, "bug", what).cause(error);
    let mut written = Vec::new();
    for file in files {
        let (path, text) = match file {
            OutFile::Csv(path) => {
                let text = write_csv(rows)
                    .map_err(|error| bug("the CSV cannot be written", error.to_string()))?;
                (path, text)
            }
            OutFile::Toml(path) => {
                let calibration = calibration.filter(|fits| !fits.collective.is_empty());
                let Some(calibration) = calibration else {
                    let gpu = escape_controls(gpu.as_bytes());
                    let what = format!("there is no calibration for `{gpu}`");
                    return Err(Failure::new(Exit::Config, "unknown_gpu", what)
                        .hint("`rgpu model hw list` shows the GPUs with a known link; `rgpu model hw add` adds one")
                        .hint("`--out rows.csv` keeps the times for `rgpu model fit`"));
                };
                let text = toml::to_string(calibration)
                    .map_err(|error| bug("the fit cannot be written as TOML", error.to_string()))?;
                (path, text.into_bytes())
            }
        };
        atomic::write(&app.cwd.join(path), &text).map_err(|error| {
            Failure::new(Exit::Disk, "disk", "cannot write").file(path.display()).cause(error)
        })?;
        app.print_note(&format!("wrote {}", path.display()));
        written.push(path.display().to_string());
    }
    Ok(written)
}

fn show(app: &App, document: &CollectivesDocument, asked_nvls: bool) {
    let clean = |text: &str| escape_controls(text.as_bytes());
    let setting = document.nvls_setting.as_deref().map(clean);
    let why = match (&setting, asked_nvls) {
        (Some(_), false) => " (NCCL_NVLS_ENABLE=0, set by rgpu; `--nvls` leaves it to NCCL)".into(),
        (Some(value), true) => format!(" (NCCL_NVLS_ENABLE={value} on the host)"),
        (None, _) => String::new(),
    };
    let nvls = match document.nvls {
        NvlsState::On => "on",
        NvlsState::Off => "off",
        NvlsState::Unknown => "unknown: NCCL's log does not tell",
    };
    app.print(&format!(
        "{}: NCCL {} on {} x {}\n  library  {}\n  NVLS     {nvls}{why}\n\n",
        document.remote,
        document.nccl,
        document.gpus,
        clean(&document.gpu),
        clean(&document.library),
    ));
    let mut table = TextTable::new("collective | size: | time: | spread: | algorithm: | bus:");
    for collective in &document.collectives {
        for size in &collective.sizes {
            table.add_row([
                collective.op.name().to_owned(),
                bytes(size.bytes),
                duration(size.time_ns),
                percent(100.0 * size.spread),
                per_second(size.algorithm_bandwidth, "B"),
                per_second(size.bus_bandwidth, "B"),
            ]);
        }
    }
    app.print(&table.plain(app.style().width, 2));
    app.print("\n  time = α + β · size\n");
    let mut table = TextTable::new("collective | from: | to: | α: | β: | held out: | mean error:");
    for collective in &document.collectives {
        let name = collective.op.name().to_owned();
        for line in &collective.fit {
            let errors = collective.errors.unwrap_or_default();
            table.add_row([
                name.clone(),
                bytes(line.bytes[0]),
                bytes(line.bytes[1]),
                duration(line.alpha_ns),
                format!("{}/MiB", duration(line.beta_ns * MEBIBYTE)),
                errors.n.to_string(),
                percent(100.0 * errors.mape),
            ]);
        }
        if collective.fit.is_empty() {
            app.print_note(&format!("{name}: its times cannot be fitted"));
        }
    }
    app.print(&table.plain(app.style().width, 2));
    if document.out.is_empty() {
        app.print(
            "\n  `--out calib.toml` keeps α and β for `rgpu model … --calib calib.toml`;\n  \
             `--out rows.csv` keeps the times for `rgpu model fit` and `reconcile`\n",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(gpu: &str) -> MeasuredCollectives {
        // α = 10 µs and β = 4 ns/KiB: a bus bandwidth of 256 GB/s for an all-reduce of two ranks.
        let row = |power: u32| {
            let bytes = f64::from(1_u32 << power);
            let time = 10_000.0 + bytes / 256.0;
            CollectiveRow {
                op: "all_reduce".to_owned(),
                bytes,
                loops_ns: vec![time * 1.5, time, time * 0.9],
            }
        };
        let mut measured: MeasuredCollectives = serde_json::from_str("{\"ranks\": 2}").unwrap();
        measured.gpu = gpu.to_owned();
        measured.rows = (10..30).map(row).collect();
        measured
    }

    #[test]
    fn known_latency_and_rate_are_found_with_the_gpus_link_and_without() {
        let measured = measured("NVIDIA H200");
        let rows = rows(&measured, "2026-11-27");
        let gpu = rgpu_predict::hw::find("h200").unwrap().gpu().unwrap();
        let calibration = fit("h200", &gpu, Topology::for_gpu(&gpu).as_ref(), &rows).calibration;
        for (gpu, calibration) in [(Some(&gpu), Some(&calibration)), (None, None)] {
            let all = timed(&measured, gpu, calibration);
            let [all_reduce] = &all[..] else { panic!("one collective") };
            let largest = all_reduce.sizes.last().unwrap();
            assert!(
                (largest.bus_bandwidth / 256e9 - 1.0).abs() < 0.01,
                "{}",
                largest.bus_bandwidth
            );
            assert!((largest.spread - 1.5 / 0.9 + 1.0).abs() < 1e-9);
            let (first, last) = (&all_reduce.fit[0], all_reduce.fit.last().unwrap());
            assert!((first.alpha_ns / 10_000.0 - 1.0).abs() < 0.02, "{}", first.alpha_ns);
            assert!((last.beta_ns * 256.0 - 1.0).abs() < 0.02, "{}", last.beta_ns);
            assert!(all_reduce.errors.unwrap().mape < 0.02);
        }
    }

    #[test]
    fn nvls_is_what_nccl_says_of_its_channels() {
        // Lines of NCCL 2.27 and of a version before it knew NVLS.
        let of = |line: &str| nvls_state(&[format!("h:1:9 [0] NCCL INFO {line}")]);
        let channels = "24 coll channels, 24 collnet channels, ";
        assert_eq!(of(&format!("{channels}16 nvls channels, 32 p2p channels")), NvlsState::On);
        assert_eq!(of(&format!("{channels}0 nvls channels, 32 p2p channels")), NvlsState::Off);
        assert_eq!(of("24 coll channels, 32 p2p channels"), NvlsState::Unknown);
    }

    #[test]
    fn versions_are_read_from_both_forms_of_the_code() {
        assert_eq!([version(22_705), version(2804)], ["2.27.5", "2.8.4"]);
    }

    #[test]
    fn the_ending_of_a_file_says_what_it_gets() {
        assert_eq!("a/rows.csv".parse(), Ok(OutFile::Csv("a/rows.csv".into())));
        assert_eq!("c.toml".parse(), Ok(OutFile::Toml("c.toml".into())));
        assert!("rows.txt".parse::<OutFile>().is_err() && "csv".parse::<OutFile>().is_err());
    }
}
