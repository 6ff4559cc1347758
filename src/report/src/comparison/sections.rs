//! The sections of a comparison: the evidence of its verdict.

use super::words::{
    MAX_METRICS, account_changes, change, effect, factor, gap_label, interval, join_note, kernel,
    launches, rank_changes, side, value,
};
use crate::blocks::{Block, Blocks, TableBlock};
use crate::quantity::duration;
use crate::region_rows::short_region;
use crate::{KernelNames, TextTable};
use rgpu_model::comparison::{
    ComparedSide, Comparison, KernelChange, RegionChange, TimeSource, UnmatchedKernel,
};
use rgpu_model::finding::GainScope;

/// All sections; `is_whole` if they have all that is known, as in a file.
pub(super) fn report(c: &Comparison, names: KernelNames, is_whole: bool) -> Blocks {
    let mut out = Blocks::default();
    out.add(Block::Note(2, c.summary.clone()));
    titled(&mut out, "sides", sides(c, names, is_whole));
    times(&mut out, c);
    let none =
        if c.kernels.is_empty() { "No kernel launch is recorded on both sides." } else { "" };
    out.add(Block::Chapter("kernels".to_owned(), none));
    c.kernels.iter().for_each(|kernel| one_kernel(&mut out, kernel, names, is_whole));
    titled(&mut out, "only in a", unmatched("only in a", &c.only_a, names));
    titled(&mut out, "only in b", unmatched("only in b", &c.only_b, names));
    let regions = regions(c, is_whole);
    if regions.is_empty() {
        let none = "The sides have no region in common.";
        out.add(Block::Chapter("regions".to_owned(), none));
    }
    titled(&mut out, "regions", regions);
    titled(&mut out, "ranks", rank_changes(c));
    account(&mut out, c, names, is_whole);
    if !c.differences.is_empty() {
        out.add(Block::Subheading("different (compared with --force)".to_owned()));
    }
    for d in &c.differences {
        out.note(format!("{}: {} against {}", d.what, d.a, d.b));
    }
    let is_empty = c.parts.is_empty() && c.gaps.is_empty();
    let none = if is_empty { "Both sides are saved profiles; nothing is missing." } else { "" };
    out.add(Block::Chapter("what each tool gave".to_owned(), none));
    for part in &c.parts {
        let none = if part.there { "" } else { "no results: " };
        out.field(part.part.to_string(), format!("{none}{}", part.note));
    }
    // The summary has told why there is no verdict.
    let untold = c.gaps.iter().filter(|gap| !c.summary.contains(&gap.text));
    untold.for_each(|gap| out.field(gap_label(gap), &gap.text));
    out
}

/// Adds a table below an empty line; nothing if it has no rows.
fn titled(out: &mut Blocks, title: &'static str, table: TextTable) {
    if !table.is_empty() {
        out.add(Block::Group(title));
        out.full_table(TableBlock { table, indent: 2, ..TableBlock::default() });
    }
}

/// Where the time of a step, or of the program, changed.
fn account(out: &mut Blocks, c: &Comparison, names: KernelNames, is_whole: bool) {
    let Some(account) = &c.account else { return };
    let title = if account.of == GainScope::Step {
        "where a step's time changed"
    } else {
        "where the program's time changed"
    };
    titled(out, title, account_changes(account, names, is_whole));
    if let Some(note) = &account.note {
        out.add(Block::Note(2, note.clone()));
    }
}

fn sides(c: &Comparison, names: KernelNames, is_whole: bool) -> TextTable {
    let device = |side: &ComparedSide| side.device.clone().filter(|_| is_whole).unwrap_or_default();
    TextTable::of(
        [("a", &c.a), ("b", &c.b)],
        &[
            ("", &|(label, _)| (*label).to_owned()),
            ("kernel", &|(_, side)| names.name(&side.kernel)),
            ("mode", &|(_, side)| side.mode.clone()),
            ("rung", &|(_, side)| unless(side.rung == *side.mode, &side.rung)),
            ("GPU", &|(_, side)| device(side)),
            ("results", &|(_, side)| side.correctness.as_deref().unwrap_or_default().to_owned()),
            ("name", &|(_, side)| unless(side.name == side.kernel, &side.name)),
        ],
    )
}

/// The text; empty if another cell says it.
fn unless(is_said: bool, text: &str) -> String {
    if is_said { String::new() } else { text.to_owned() }
}

fn times(out: &mut Blocks, c: &Comparison) {
    if c.cases.is_empty() {
        let none = "No case was timed on both sides; see the kernels' own durations.";
        out.add(Block::Chapter("times".to_owned(), none));
        return;
    }
    let table = TextTable::of(
        &c.cases,
        &[
            ("case", &|case| case.name.clone()),
            ("a:", &|case| side(&case.time.a)),
            ("b:", &|case| side(&case.time.b)),
            ("speedup:", &|case| factor(case.time.speedup)),
            ("95 % interval:", &|case| interval(&case.time)),
            ("verdict", &|case| case.time.verdict.as_str().to_owned()),
        ],
    );
    out.add(Block::Group("times"));
    out.full_table(TableBlock { table, indent: 2, has_verdicts: true, ..TableBlock::default() });
    if let Some(time) = &c.time {
        let how = match (&time.source, time.rounds) {
            (TimeSource::Abba, Some(n)) => format!("timed calls interleaved a b b a, {n} rounds"),
            (TimeSource::AlternatedProcesses, _) => {
                "each side timed in two processes, in the order a b b a".to_owned()
            }
            _ => "each side timed in its own run".to_owned(),
        };
        out.add(Block::Note(2, how));
    }
}

fn one_kernel(out: &mut Blocks, k: &KernelChange, names: KernelNames, is_whole: bool) {
    out.add(Block::Subheading(kernel(k, names)));
    join_note(k).into_iter().for_each(|text| out.note(text));
    if let Some(time) = &k.time {
        let ci = interval(time);
        let ci = if ci.is_empty() { ci } else { format!(", 95 % interval {ci}") };
        let (a, b, speedup) = (side(&time.a), side(&time.b), factor(time.speedup));
        let under = launches(k.launches);
        out.inner_field(
            "time",
            format!("{a} → {b}, speedup {speedup}{ci} ({under} under the tool)"),
        );
    }
    if let Some([a, b]) = &k.bound {
        let (a, b) = (a.replace('_', " "), b.replace('_', " "));
        out.inner_field(
            "bound by",
            if a == b { format!("{a}, as before") } else { format!("{a} → {b}") },
        );
    }
    let resources = k.resources.iter().map(|r| {
        let (a, b) = (value(r.a, &r.unit), value(r.b, &r.unit));
        if r.a == r.b { format!("{} {a}", r.label) } else { format!("{} {a} → {b}", r.label) }
    });
    let resources: Vec<String> = resources.collect();
    if !resources.is_empty() {
        out.inner_field("resources", resources.join(", "));
    }
    let table = TextTable::of(
        k.metrics.iter().take(MAX_METRICS),
        &[
            ("metric", &|m| m.label.clone()),
            ("a:", &|m| value(m.a, &m.unit)),
            ("b:", &|m| value(m.b, &m.unit)),
            ("change:", &|m| change(m)),
            ("", &|m| effect(m)),
            ("id", &|m| if is_whole { m.metric.clone() } else { String::new() }),
        ],
    );
    if table.is_empty() {
        let none = "No metric was recorded on both sides, or none changed.";
        out.add(Block::Chapter(String::new(), none));
    }
    out.table("", table);
    if k.metrics.len() > MAX_METRICS {
        out.note(format!("and {} more in the JSON", k.metrics.len() - MAX_METRICS));
    }
}

fn unmatched(title: &str, list: &[UnmatchedKernel], names: KernelNames) -> TextTable {
    let names = names.distinct(list.iter().map(|kernel| kernel.kernel.as_str()));
    TextTable::of(
        list.iter().zip(names),
        &[
            (title, &|(_, name)| name.clone()),
            ("launches:", &|(kernel, _)| kernel.launches.to_string()),
            ("total:", &|(kernel, _)| kernel.total_ns.map(duration).unwrap_or_default()),
        ],
    )
}

fn regions(c: &Comparison, is_whole: bool) -> TextTable {
    let on_gpu = |region: &&RegionChange| region.gpu_ns.is_some_and(|ns| ns != [0, 0]);
    let time = |ns: Option<[u64; 2]>, side: usize| {
        ns.map(|ns| duration(ns[side] as f64)).unwrap_or_default()
    };
    let host = |r: &RegionChange| r.host_ns.filter(|_| is_whole);
    TextTable::of(
        c.regions.iter().filter(|region| is_whole || on_gpu(region)),
        &[
            ("region", &|r| short_region(&r.region).into_owned()),
            ("GPU time a:", &|r| time(r.gpu_ns, 0)),
            ("GPU time b:", &|r| time(r.gpu_ns, 1)),
            ("speedup:", &|r| match r.launches {
                Some([a, b]) if a != b => format!("unlike: {}", launches([a, b])),
                _ => {
                    let known = r.gpu_ns.filter(|[_, b]| *b > 0);
                    known.map(|[a, b]| factor(a as f64 / b as f64)).unwrap_or_default()
                }
            }),
            ("host time a:", &|r| time(host(r), 0)),
            ("host time b:", &|r| time(host(r), 1)),
        ],
    )
}
