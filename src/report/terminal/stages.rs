//! Stages of a model with their rates, and its longest operators.

use super::Page;
use crate::model::Profile;
use crate::report::quantity::{duration, per_second, percent};
use crate::report::text::cut_middle;
use crate::report::{Align, TextTable};

/// The maximum number of operators shown; operators.md has all.
const MAX_OPERATORS: usize = 8;

pub(super) fn stages(page: &mut Page<'_>, profile: &Profile) {
    page.table("stages", table(profile, str::to_owned));
}

/// One row per stage; `text` escapes foreign names for the output format.
pub(in crate::report) fn table(profile: &Profile, text: impl Fn(&str) -> String) -> TextTable {
    let several = profile.stages.iter().any(|stage| stage.case != profile.stages[0].case);
    let mut table = TextTable::new(&[
        ("case", Align::Left),
        ("stage", Align::Left),
        ("count", Align::Right),
        ("mean", Align::Right),
        ("clock", Align::Left),
        ("rate", Align::Right),
        ("MFU", Align::Right),
    ]);
    for stage in &profile.stages {
        table.add_row([
            if several { text(&stage.case) } else { String::new() },
            text(&stage.region),
            stage.instances.to_string(),
            duration(stage.mean_ns),
            stage.clock.to_string(),
            stage.flops_per_s.map(|rate| per_second(rate, "FLOP")).unwrap_or_default(),
            stage.utilization.as_ref().map(|u| percent(u.percent)).unwrap_or_default(),
        ]);
    }
    table.without_empty_columns()
}

/// `net.py(9): forward` without the folders of its file.
pub(in crate::report) fn short_place(function: &str) -> String {
    let (file, name) = function.split_once('(').unwrap_or((function, ""));
    let file = file.rsplit('/').next().unwrap_or(file);
    cut_middle(&if name.is_empty() { file.to_owned() } else { format!("{file}({name}") }, 40)
}

/// Writes the operators with the most self time.
pub(super) fn operators(page: &mut Page<'_>, profile: &Profile) {
    let mut table = TextTable::new(&[
        ("operator", Align::Left),
        ("calls", Align::Right),
        ("own GPU", Align::Right),
        ("own host", Align::Right),
        ("longest kernel", Align::Left),
        ("called in", Align::Left),
    ]);
    for o in profile.operators.iter().take(MAX_OPERATORS) {
        table.add_row([
            page.style.names.name(&o.name),
            o.calls.to_string(),
            o.gpu_self_ns.map(|ns| duration(ns as f64)).unwrap_or_default(),
            duration(o.host_self_ns as f64),
            o.kernels.first().map(|k| page.style.names.name(&k.kernel)).unwrap_or_default(),
            o.places.first().map(|place| short_place(&place.function)).unwrap_or_default(),
        ]);
    }
    page.table("operators", table.without_empty_columns());
}
