//! `kernels.csv`: one row per launch with all its metrics, or one row per kernel if single launches
//! are not known.

use std::collections::BTreeMap;

use rgpu_model::regions::RegionEntry;
use rgpu_model::{Launch, Value};

const COLUMNS: &[&str] = &[
    "kernel",
    "launches",
    "launch",
    "grid",
    "block",
    "stream",
    "registers",
    "total (ns)",
    "min (ns)",
    "max (ns)",
];

pub(super) fn kernels(entry: &RegionEntry, launches: &[&Launch]) -> String {
    let units: BTreeMap<&str, &str> = launches
        .iter()
        .flat_map(|launch| &launch.metrics)
        .map(|(id, metric)| (id.as_str(), metric.unit.as_str()))
        .collect();
    let metrics = units.iter().map(|(id, unit)| match *unit {
        "" => (*id).to_owned(),
        unit => format!("{id} ({unit})"),
    });
    let head: Vec<String> = COLUMNS.iter().map(|name| (*name).to_owned()).chain(metrics).collect();
    let mut out = row(&head);
    for launch in launches {
        let whole = |ns: Option<f64>| ns.map(|ns| ns.to_string()).unwrap_or_default();
        let time = whole(launch.duration_ns);
        let mut cells = vec![
            launch.kernel.clone(),
            "1".to_owned(),
            launch.id.to_string(),
            shape(launch.grid),
            shape(launch.block),
            launch.stream.map(|stream| stream.to_string()).unwrap_or_default(),
            launch.registers.map(|registers| registers.to_string()).unwrap_or_default(),
            time.clone(),
            time.clone(),
            time,
        ];
        cells.extend(units.keys().map(|id| {
            launch.metrics.get(*id).map(|metric| value(&metric.value)).unwrap_or_default()
        }));
        out += &row(&cells);
    }
    if launches.is_empty() {
        for sum in &entry.region.kernels {
            let mut cells = vec![sum.kernel.clone(), sum.launches.to_string()];
            cells.resize(7, String::new());
            cells.extend([sum.total_ns, sum.min_ns, sum.max_ns].map(|ns| ns.to_string()));
            out += &row(&cells);
        }
    }
    out
}

/// `XxYxZ`; empty for the result of a whole range, which has no grid and no block.
fn shape(size: [u32; 3]) -> String {
    if size == [0; 3] { String::new() } else { size.map(|n| n.to_string()).join("x") }
}

pub(super) fn value(value: &Value) -> String {
    match value {
        Value::Int(n) => n.to_string(),
        Value::Float(x) => x.to_string(),
        Value::Text(text) => text.clone(),
    }
}

/// One line of CSV (RFC 4180).
fn row(cells: &[String]) -> String {
    let cell = |text: &String| {
        if text.contains([',', '"', '\n', '\r']) {
            format!("\"{}\"", text.replace('"', "\"\""))
        } else {
            text.clone()
        }
    };
    cells.iter().map(cell).collect::<Vec<_>>().join(",") + "\n"
}
