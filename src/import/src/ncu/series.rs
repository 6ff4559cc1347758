//! Metrics that ncu's PM sampler recorded while a launch ran: one value every few hundred
//! nanoseconds, with the GPU's time in nanoseconds as its key. Most have no value for the launch as
//! a whole.

use rgpu_format::ncu_rep::{Metric, MetricValue, NcuResult};

use rgpu_model::launch::MetricSeries;

/// Most values of one series. Longer ones are averaged.
const MAX_VALUES: usize = 128;

/// The series of a result, in the order of the report.
pub(super) fn import(result: &NcuResult<'_>, metrics: &[Metric<'_>]) -> Vec<MetricSeries> {
    // The time is the key of the only instance.
    let at = |name| whole(&result.metric(name)?.instances().next()?.correlation);
    let begin = at("profiler__timestamp_workload_start_0");
    let end = at("profiler__timestamp_workload_end_0");
    let sampled = metrics.iter().filter(|metric| metric.is_pm_sampled());
    sampled.filter_map(|metric| series(metric, begin, end)).collect()
}

/// The series of a metric. `None` with fewer than two values.
fn series(metric: &Metric<'_>, begin: Option<u64>, end: Option<u64>) -> Option<MetricSeries> {
    let samples = metric.instances().filter_map(|instance| {
        let time = whole(&instance.correlation).filter(|time| *time > 0)?;
        Some((time, instance.value.finite()?))
    });
    let samples: Vec<(u64, f64)> = samples.collect();
    let inside = |(time, _): &&(u64, f64)| {
        begin.is_none_or(|begin| begin <= *time) && end.is_none_or(|end| *time <= end)
    };
    // The sampler starts before the launch and stops after it.
    let during: Vec<(u64, f64)> = samples.iter().filter(inside).copied().collect();
    let samples = if during.len() < 2 { samples } else { during };
    let ((first, _), (last, _)) = (samples.first()?, samples.last()?);
    let span = last.checked_sub(*first).filter(|span| *span > 0)?;
    let per_value = samples.len().div_ceil(MAX_VALUES);
    let values = samples.chunks(per_value).map(|chunk| {
        let mean = chunk.iter().map(|(_, value)| value).sum::<f64>() / chunk.len() as f64;
        // Three decimals are enough for a line.
        (mean * 1e3).round() / 1e3
    });
    Some(MetricSeries {
        metric: metric.name().to_owned(),
        unit: metric.unit().unwrap_or_default().into_owned(),
        start_ns: begin.map_or(0, |begin| first.saturating_sub(begin)),
        interval_ns: span as f64 / (samples.len() - 1) as f64 * per_value as f64,
        values: values.collect(),
    })
}

fn whole(value: &MetricValue<'_>) -> Option<u64> {
    match value {
        MetricValue::Uint32(value) => Some(u64::from(*value)),
        MetricValue::Uint64(value) => Some(*value),
        MetricValue::Double(value) if *value >= 0.0 => Some(*value as u64),
        _ => None,
    }
}
