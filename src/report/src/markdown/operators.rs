//! `operators.md`: operators of a framework with the kernels that they launched.

use super::{KernelLabels, TextTable, plain, section};
use crate::quantity::{duration, per_second};
use crate::terminal::head::{memory_text, model_text};
use crate::terminal::stages;
use rgpu_model::Profile;

pub(super) fn report(profile: &Profile, names: &KernelLabels<'_>) -> String {
    let mut out = format!("# Operators of {}\n\n", plain(&profile.kernel.name));
    if let Some(model) = &profile.kernel.model {
        out += &format!("Model: {}.\n\n", plain(&model_text(model)));
    }
    for memory in &profile.memory {
        out += &format!("Memory: {}.\n\n", plain(&memory_text(memory)));
    }
    if !profile.stages.is_empty() {
        out += "## Stages\n\n";
        section(&mut out, stages::table(profile, plain), "");
        if let Some(peak) = profile.stages.iter().find_map(|stage| stage.utilization.as_ref()) {
            let (label, rate) = (plain(&peak.label), per_second(peak.peak, "FLOP"));
            let mfu = stages::mfu_name(profile);
            out += &format!("{mfu} is the share of {rate}: {label} ({}).\n\n", peak.source);
            if let Some(note) = stages::mfu_note(profile) {
                out += &format!("Note: {note}.\n\n");
            }
        }
        out += "## Operators\n\n";
    }
    section(&mut out, table(profile, names, usize::MAX), NO_OPERATORS_NOTE);
    out
}

/// The text for a profile without operators.
pub(super) const NO_OPERATORS_NOTE: &str =
    "This run has no torch trace, the only source of operators.";

/// A table of the first `max` operators.
pub(super) fn table(profile: &Profile, names: &KernelLabels<'_>, max: usize) -> TextTable {
    let mut table = TextTable::new(
        "operator | calls: | GPU: | own GPU: | rate: | host: | own host: | longest kernel | \
         called in",
    );
    let time = |ns: u64| duration(ns as f64);
    for o in profile.operators.iter().take(max) {
        table.add_row([
            plain(&o.name),
            o.calls.to_string(),
            o.gpu_ns.map(time).unwrap_or_default(),
            o.gpu_self_ns.map(time).unwrap_or_default(),
            o.flops_per_s().map(|rate| per_second(rate, "FLOP")).unwrap_or_default(),
            time(o.host_ns),
            time(o.host_self_ns),
            o.kernels.first().map(|k| plain(&names.name(&k.kernel))).unwrap_or_default(),
            o.places.iter().map(|p| plain(&p.function)).collect::<Vec<_>>().join("; "),
        ]);
    }
    table.without_empty_columns()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel_name::KernelNames;
    use rgpu_model::Operator;

    #[test]
    fn times_have_the_unit_that_fits() {
        let operator = Operator {
            name: "aten::mm".to_owned(),
            host_ns: 123_456_789_000,
            host_self_ns: 1_204_000,
            gpu_ns: Some(59_712),
            ..Operator::default()
        };
        let profile = Profile { operators: vec![operator], ..Profile::default() };
        let names = KernelNames::Short.labels(&profile);
        let row =
            table(&profile, &names, 1).markdown().lines().last().unwrap_or_default().to_owned();
        assert_eq!(row, "| aten::mm | 0 | 59.7 µs | 123 s | 1.20 ms |");
    }
}
