//! Stages of a model with their rates, and its longest operators.

use super::View;
use crate::TextTable;
use crate::blocks::{Blocks, TableBlock};
use crate::phrase::short_place;
use crate::quantity::{duration, per_second, percent};
use crate::text::cut_middle;
use rgpu_model::stage::StageClock;
use rgpu_model::{Operator, Profile, Stage};

/// The maximum number of operators shown; operators.md has all.
const MAX_OPERATORS: usize = 8;

pub(super) fn add_stages(out: &mut Blocks, view: &View<'_>) {
    let profile = view.profile;
    out.table("stages", table(profile));
    if let Some(note) = mfu_note(profile) {
        out.note(note);
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

/// One row per stage.
pub(crate) fn table(profile: &Profile) -> TextTable {
    let several = profile.stages.iter().any(|stage| stage.case != profile.stages[0].case);
    let rate = |s: &Stage| s.flops_per_s.map(|rate| per_second(rate, "FLOP")).unwrap_or_default();
    TextTable::of(
        &profile.stages,
        &[
            ("case", &|s| if several { s.case.clone() } else { String::new() }),
            ("stage", &|s| s.region.clone()),
            ("count:", &|s| s.instances.to_string()),
            ("mean:", &|s| duration(s.mean_ns)),
            ("unprofiled:", &|s| s.plain_ns.map(|ns| duration(ns as f64)).unwrap_or_default()),
            ("clock", &|s| s.clock.to_string()),
            ("GPU span:", &|s| s.gpu_span_ns.map(duration).unwrap_or_default()),
            ("rate:", &|s| rate(s)),
            (format!("{}:", mfu_name(profile)).as_str(), &|s| {
                s.utilization.as_ref().map(|u| percent(u.percent)).unwrap_or_default()
            }),
        ],
    )
}

/// Columns of a kernel's name in the table of operators.
const MAX_KERNEL_COLUMNS: usize = 28;
/// With less room for the places, each operator is shown with its numbers and place below it.
const MIN_PLACE_COLUMNS: usize = 30;

/// The operators with the most GPU time, and the one with the most time on the host if it is not
/// among them.
fn longest(profile: &Profile) -> impl Iterator<Item = &Operator> {
    let (shown, others) = profile.operators.split_at(profile.operators.len().min(MAX_OPERATORS));
    let on_host = others.iter().max_by_key(|operator| operator.host_self_ns);
    let longest = shown.iter().map(|operator| operator.host_self_ns).max().unwrap_or_default();
    shown.iter().chain(on_host.filter(|operator| operator.host_self_ns > longest))
}

/// Adds the operators with the most self time.
pub(super) fn add_operators(out: &mut Blocks, view: &View<'_>) {
    let title = "operators".to_owned();
    // The place says more than the kernel where both do not fit.
    let spare = Some((MIN_PLACE_COLUMNS, &["longest kernel", "calls"][..]));
    let sentences = Some(("called in", MIN_PLACE_COLUMNS));
    let table = operators(view, longest(view.profile));
    let block = TableBlock { title, table, indent: 4, spare, sentences, ..TableBlock::default() };
    out.full_table(block);
}

/// A table of operators. A whole report has their full names, and the times with those of operators
/// that they call.
pub(crate) fn operators<'a>(
    view: &View<'_>,
    operators: impl Iterator<Item = &'a Operator>,
) -> TextTable {
    let time = |ns: u64| duration(ns as f64);
    let with_callees = |ns: Option<u64>| ns.filter(|_| view.is_whole).map(time).unwrap_or_default();
    let kernel = |o: &Operator| Some(view.names.name(&o.kernels.first()?.kernel));
    TextTable::of(
        operators,
        &[
            ("operator", &|o| {
                if view.is_whole { o.name.clone() } else { view.names.name(&o.name) }
            }),
            ("calls:", &|o| o.calls.to_string()),
            ("GPU:", &|o| with_callees(o.gpu_ns)),
            ("own GPU:", &|o| o.gpu_self_ns.map(time).unwrap_or_default()),
            ("rate:", &|o| {
                o.flops_per_s().map(|rate| per_second(rate, "FLOP")).unwrap_or_default()
            }),
            ("host:", &|o| with_callees(Some(o.host_ns))),
            ("own host:", &|o| time(o.host_self_ns)),
            ("longest kernel", &|o| cut_middle(&kernel(o).unwrap_or_default(), MAX_KERNEL_COLUMNS)),
            ("called in", &|o| {
                let mut places = o.places.iter().map(|place| &*place.function);
                if view.is_whole {
                    return places.collect::<Vec<_>>().join("; ");
                }
                places.next().map(short_place).unwrap_or_default()
            }),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::to_text;
    use crate::{KernelNames, Style};
    use rgpu_model::operator::CallSite;

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
            let mut out = Blocks::default();
            add_operators(&mut out, &View::new(&profile, KernelNames::Short, false));
            to_text(&out.0, &Style { width, ..Style::default() })
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
            let table = table(&profile).plain(80, 0);
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
