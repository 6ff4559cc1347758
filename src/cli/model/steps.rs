//! Steps of a model on an idle GPU, beside their predictions.

use rgpu_predict::measurement::MeasurementKind;
use rgpu_predict::reconcile::Pair;

use rgpu_report::{TextTable, duration, percent};

/// The number of steps that the text shows.
const MAX_SHOWN_STEPS: usize = 100;

/// Each step with its error. `None` if there are no steps.
pub(super) fn table(pairs: &[Pair]) -> Option<TextTable> {
    let mut table = TextTable::new(
        "model | step | sequences: | context: | measured: | predicted: | error: | launches: | \
         counted:",
    );
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
