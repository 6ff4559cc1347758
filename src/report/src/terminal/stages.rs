//! Stages of a model with their rates, and its longest operators.

use super::Page;
use crate::TextTable;
use crate::quantity::{duration, per_second, percent};
use crate::text::cut_middle;
use rgpu_model::stage::StageClock;
use rgpu_model::{Operator, Profile, Stage};

/// The maximum number of operators shown; operators.md has all.
const MAX_OPERATORS: usize = 8;

pub(super) fn add_stages(page: &mut Page<'_>, profile: &Profile) {
    page.table("stages", table(profile, str::to_owned));
    if let Some(note) = mfu_note(profile) {
        page.line(&format!("    {note}"));
    }
}

/// Whether the MFU of some and of all stages is that of the time in which the GPU works.
fn busy_mfu(profile: &Profile) -> (bool, bool) {
    let with_mfu = || profile.stages.iter().filter(|stage| stage.utilization.is_some());
    let is_of_gpu = |stage: &Stage| stage.clock == StageClock::Gpu;
    (with_mfu().any(is_of_gpu), with_mfu().all(is_of_gpu))
}

/// What the MFU of the table's stages is called.
pub(crate) fn mfu_name(profile: &Profile) -> &'static str {
    if busy_mfu(profile) == (true, true) { "MFU while busy" } else { "MFU" }
}

/// That the MFU of a stage on the GPU's clock leaves out idle time.
pub(crate) fn mfu_note(profile: &Profile) -> Option<&'static str> {
    busy_mfu(profile)
        .0
        .then_some("clock gpu: rate and MFU leave out the time in which the GPU waits")
}

/// One row per stage; `text` escapes foreign names for the output format.
pub(crate) fn table(profile: &Profile, text: impl Fn(&str) -> String) -> TextTable {
    let several = profile.stages.iter().any(|stage| stage.case != profile.stages[0].case);
    let mut table = TextTable::new(&format!(
        "case | stage | count: | mean: | unprofiled: | clock | GPU span: | rate: | {}:",
        mfu_name(profile)
    ));
    for stage in &profile.stages {
        table.add_row([
            if several { text(&stage.case) } else { String::new() },
            text(&stage.region),
            stage.instances.to_string(),
            duration(stage.mean_ns),
            stage.plain_ns.map(|ns| duration(ns as f64)).unwrap_or_default(),
            stage.clock.to_string(),
            stage.gpu_span_ns.map(duration).unwrap_or_default(),
            stage.flops_per_s.map(|rate| per_second(rate, "FLOP")).unwrap_or_default(),
            stage.utilization.as_ref().map(|u| percent(u.percent)).unwrap_or_default(),
        ]);
    }
    table.without_empty_columns()
}

/// Columns of a kernel's name in the table of operators.
const MAX_KERNEL_COLUMNS: usize = 28;
/// Columns of a place.
const MAX_PLACE_COLUMNS: usize = 40;
/// With less room for the places, each operator is shown with its numbers and place below it.
const MIN_PLACE_COLUMNS: usize = 30;

/// `net.py(9): forward` without the folders of its file. Code outside of functions has no line: torch
/// gives its first.
pub(crate) fn short_place(function: &str) -> String {
    let (file, name) = function.split_once('(').unwrap_or((function, ""));
    let file = file.rsplit('/').next().unwrap_or(file);
    let text = match name.split_once("): ") {
        Some((_, "<module>")) => file.to_owned(),
        None if file.ends_with(": <module>") => file.replace(": <module>", ""),
        _ if name.is_empty() => file.to_owned(),
        _ => format!("{file}({name}"),
    };
    cut_middle(&text, MAX_PLACE_COLUMNS)
}

/// The operators with the most GPU time, and the one with the most time on the host if it is not
/// among them.
fn longest(profile: &Profile) -> impl Iterator<Item = &Operator> {
    let (shown, others) = profile.operators.split_at(profile.operators.len().min(MAX_OPERATORS));
    let on_host = others.iter().max_by_key(|operator| operator.host_self_ns);
    let longest = shown.iter().map(|operator| operator.host_self_ns).max().unwrap_or_default();
    shown.iter().chain(on_host.filter(|operator| operator.host_self_ns > longest))
}

/// Writes the operators with the most self time.
pub(super) fn add_operators(page: &mut Page<'_>, profile: &Profile) {
    let mut table = TextTable::new(
        "operator | calls: | own GPU: | rate: | own host: | longest kernel | called in",
    );
    for o in longest(profile) {
        let kernel = o.kernels.first().map(|k| page.names.name(&k.kernel));
        table.add_row([
            page.names.name(&o.name),
            o.calls.to_string(),
            o.gpu_self_ns.map(|ns| duration(ns as f64)).unwrap_or_default(),
            o.flops_per_s().map(|rate| per_second(rate, "FLOP")).unwrap_or_default(),
            duration(o.host_self_ns as f64),
            kernel.map(|name| cut_middle(&name, MAX_KERNEL_COLUMNS)).unwrap_or_default(),
            o.places.first().map(|place| short_place(&place.function)).unwrap_or_default(),
        ]);
    }
    // The place says more than the kernel where both do not fit.
    let (room, spare) = (page.style.width.saturating_sub(4), ["longest kernel", "calls"]);
    let table = table.without_empty_columns().with_room(room, MIN_PLACE_COLUMNS, &spare);
    page.table_with_words("operators", &table, "called in", MIN_PLACE_COLUMNS);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Style;
    use rgpu_model::operator::CallSite;

    #[test]
    fn a_place_has_a_line_only_if_it_is_a_function() {
        assert_eq!(short_place("/a/b/net.py(9): forward"), "net.py(9): forward");
        assert_eq!(short_place("/a/train.py(13): <module>"), "train.py");
        assert_eq!(short_place("/a/train.py: <module>"), "train.py");
        assert_eq!(short_place("net.py"), "net.py");
    }

    #[test]
    fn the_place_of_an_operator_with_a_long_name_stays_whole() {
        let operator = |name: &str| Operator {
            name: name.to_owned(),
            calls: 24,
            gpu_self_ns: Some(1_424_700),
            host_self_ns: 987_000,
            flops: Some(1e12),
            places: vec![CallSite {
                function: "/a/models/modeling_llama.py(312): forward".to_owned(),
                ..CallSite::default()
            }],
            ..Operator::default()
        };
        let names = ["aten::mm", "autograd::engine::evaluate_function: AddmmBackward0"];
        let operators = names.map(operator).to_vec();
        let profile = Profile { operators, ..Profile::default() };
        let shown = |width| {
            let style = Style { width, ..Style::default() };
            let names = style.names.labels(&profile);
            let mut page = Page { out: String::new(), style: &style, names };
            add_operators(&mut page, &profile);
            page.out
        };
        for width in [60, 80, 100, 200] {
            let out = shown(width);
            assert_eq!(out.matches("modeling_llama.py(312):").count(), 2, "{out}");
            assert!(out.lines().all(|line| line.chars().count() <= width), "{out}");
        }
        insta::assert_snapshot!(shown(80));
    }

    #[test]
    fn the_mfu_of_a_stage_on_the_gpus_clock_is_that_while_it_is_busy() {
        use rgpu_model::speed_of_light::Utilization;
        let heads = [StageClock::Gpu, StageClock::Host].map(|clock| {
            let utilization = Some(Utilization { percent: 22.0, ..Utilization::default() });
            let stage = Stage { clock, utilization, ..Stage::default() };
            let profile = Profile { stages: vec![stage], ..Profile::default() };
            let table = table(&profile, str::to_owned).plain(80, 0);
            (table.contains("MFU while busy"), mfu_note(&profile).is_some())
        });
        assert_eq!(heads, [(true, true), (false, false)]);
    }

    #[test]
    fn the_longest_operator_on_the_host_is_shown_too() {
        let operator =
            |name: String, host_self_ns| Operator { name, host_self_ns, ..Operator::default() };
        let mut operators: Vec<Operator> =
            (0..MAX_OPERATORS + 2).map(|n| operator(format!("o{n}"), 10)).collect();
        let names = |operators: &[Operator]| {
            let profile = Profile { operators: operators.to_vec(), ..Profile::default() };
            longest(&profile).map(|operator| operator.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(names(&operators).len(), MAX_OPERATORS);
        operators[MAX_OPERATORS + 1].host_self_ns = 11;
        assert_eq!(names(&operators).last().unwrap(), &format!("o{}", MAX_OPERATORS + 1));
    }
}
