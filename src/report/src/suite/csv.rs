//! `suite.csv`: a row for each time; cases without one have one row.

use super::pair::{at_size, over_sizes};
use rgpu_model::suite::{SuiteRow, SuiteRun, SuiteTime};

const HEAD: [&str; 27] = [
    "case",
    "target",
    "remote",
    "state",
    "reason",
    "size",
    "sizes",
    "side",
    "kernel",
    "dtype",
    "gpu",
    "device",
    "driver",
    "toolkit",
    "clocks",
    "median_ns",
    "low_ns",
    "high_ns",
    "samples",
    "graph_ns",
    "sol_percent",
    "speedup",
    "pair",
    "expected",
    "run",
    "seconds",
    "mean_speedup",
];

/// Renders a suite as CSV.
pub fn csv(run: &SuiteRun) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    // A Vec takes every write.
    let _ = writer.write_record(HEAD);
    for row in &run.rows {
        if row.times.is_empty() {
            let _ = writer.write_record(record(row, None));
        }
        for time in &row.times {
            let _ = writer.write_record(record(row, Some(time)));
        }
    }
    let bytes = writer.into_inner().unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn record(row: &SuiteRow, time: Option<&SuiteTime>) -> [String; 27] {
    let of = |get: fn(&SuiteTime) -> String| time.map(get).unwrap_or_default();
    let pair = time.and_then(|time| at_size(row, time));
    // The mean of several sizes is told once, beside the first of them.
    let first = row.times.iter().find(|time| time.key.side == "optimised");
    let is_first = time.is_some() && time == first;
    let mean = over_sizes(row).filter(|_| is_first).and_then(|(_, pair)| pair.speedup);
    let kernel = match time.map(|time| time.key.side.as_str()) {
        Some("baseline") => row.baseline.clone().unwrap_or_default(),
        _ => row.kernel.clone(),
    };
    [
        row.case.clone(),
        row.target.clone(),
        row.remote.clone(),
        row.state.as_str().to_owned(),
        row.reason.clone().unwrap_or_default(),
        of(|t| t.size.clone()),
        of(|t| t.key.sizes.clone()),
        of(|t| t.key.side.clone()),
        kernel,
        of(|t| t.key.dtype.clone()),
        of(|t| t.key.gpu.clone()),
        of(|t| t.device.clone()),
        of(|t| t.key.driver.clone()),
        of(|t| t.key.toolkit.clone()),
        of(|t| t.key.clocks.clone()),
        of(|t| t.median_ns.to_string()),
        of(|t| t.ci95_ns[0].to_string()),
        of(|t| t.ci95_ns[1].to_string()),
        of(|t| t.samples.to_string()),
        of(|t| t.graph.as_ref().map(|graph| graph.median_ns.to_string()).unwrap_or_default()),
        of(|t| t.sol_percent.map(|x| x.to_string()).unwrap_or_default()),
        pair.as_ref().and_then(|pair| pair.speedup).map(|x| x.to_string()).unwrap_or_default(),
        pair.map(|pair| pair.verdict.as_str().to_owned()).unwrap_or_default(),
        of(|t| t.against.as_ref().map(|j| j.verdict.as_str().to_owned()).unwrap_or_default()),
        row.run.clone().unwrap_or_default(),
        row.seconds.to_string(),
        mean.map(|x| x.to_string()).unwrap_or_default(),
    ]
}
