//! Steps of a model on an idle GPU, beside their predictions.

use rgpu_predict::Calibration;
use rgpu_predict::collective::Topology;
use rgpu_predict::config::Model;
use rgpu_predict::hw::Gpu;
use rgpu_predict::kernel::{Context, LaunchMode};
use rgpu_predict::llm::{Deployment, Parallelism, Step, check_parallelism, phase};
use rgpu_predict::measurement::{Measurement, MeasurementKind};
use rgpu_predict::reconcile::Pair;

use crate::report::{Align, TextTable, duration, percent};

/// The number of steps that the text shows.
const MAX_SHOWN_STEPS: usize = 100;

/// The prediction for a step, or why there is none.
///
/// In a CUDA graph a step takes what its kernels take. Without one, the host may be slower than
/// the GPU: it needs its measured time for each launch.
pub(super) fn pair(
    row: &Measurement,
    model: &Model,
    topology: Topology,
    gpu: &Gpu,
    calibration: Option<&Calibration>,
) -> Result<Pair, String> {
    let sequences = row.batch.ok_or("the number of sequences is not known")?;
    let queries = row.queries.ok_or("the number of queries is not known")?;
    let keys = row.keys.ok_or("the context is not known")?;
    let measured_ns = row.time_ns.ok_or("no time was measured")?;
    let is_eager = row.launch.is_some_and(|launch| launch != LaunchMode::Graph);
    let (step, quantity) = match (row.op.as_deref(), is_eager) {
        (Some("prefill"), false) => (Step::prefill(sequences, queries), "prefill"),
        (Some("prefill"), true) => (Step::prefill(sequences, queries), "eager_prefill"),
        (Some("decode"), false) => (Step::decode(sequences, keys), "decode"),
        (Some("decode"), true) => (Step::decode(sequences, keys), "eager_decode"),
        _ => return Err("the step is not `prefill` or `decode`".to_owned()),
    };
    let step = Step { queries, keys, ..step };
    let mut deployment = Deployment::new(model, topology);
    deployment.parallelism = Parallelism { tp: row.tp.unwrap_or(1), ..Parallelism::NONE };
    deployment.fusion = row.fusion.unwrap_or_default();
    check_parallelism(model, &deployment, gpu).map_err(|error| error.to_string())?;
    let context = Context { calibration, ..Context::new(gpu) };
    let times = phase(model, &deployment, &step, &context);
    let kernels_ns = times.pipeline_latency_ns();
    let predicted_ns = match (is_eager, row.launch_ns) {
        (false, _) => kernels_ns,
        (true, Some(launch_ns)) => kernels_ns.max(times.launches() * launch_ns),
        (true, None) => return Err("a step without a CUDA graph needs launch_ns".to_owned()),
    };
    Ok(Pair {
        row: row.clone(),
        quantity,
        measured_ns,
        bound_ns: times.pipeline_latency_bound_ns(),
        predicted_ns,
        is_calibrated: times.is_calibrated(),
        launches: Some(times.launches()),
    })
}

/// Each step with its error. `None` if there are no steps.
pub(super) fn table(pairs: &[Pair]) -> Option<TextTable> {
    let mut table = TextTable::new(&[
        ("model", Align::Left),
        ("step", Align::Left),
        ("sequences", Align::Right),
        ("context", Align::Right),
        ("measured", Align::Right),
        ("predicted", Align::Right),
        ("error", Align::Right),
        ("launches", Align::Right),
        ("counted", Align::Right),
    ]);
    let is_step = |pair: &&Pair| pair.row.kind == MeasurementKind::Step;
    for pair in pairs.iter().filter(is_step).take(MAX_SHOWN_STEPS) {
        let row = &pair.row;
        let number = |value: Option<f64>| value.map(|n| n.to_string()).unwrap_or_default();
        table.add_row([
            row.model.clone().unwrap_or_default(),
            pair.quantity.replace('_', " "),
            number(row.batch),
            number(row.keys),
            duration(pair.measured_ns),
            duration(pair.predicted_ns),
            percent(100.0 * pair.error()),
            number(pair.launches),
            number(row.launches),
        ]);
    }
    (!table.is_empty()).then_some(table)
}
