//! `compare.md`: the same facts as on the terminal.

use super::words::{
    MAX_METRICS, change, effect, factor, gap_label, interval, join_note, kernel, launches,
    rank_changes, side, value,
};
use crate::markdown::{plain, sentence};
use crate::quantity::duration;
use crate::{KernelNames, TextTable};
use rgpu_model::comparison::{Comparison, KernelChange, Unmatched};

/// Renders a comparison as Markdown. Sections without data say why.
pub fn markdown(c: &Comparison, names: KernelNames) -> String {
    let mut out =
        format!("# {}: {} against {}\n\n", c.verdict.as_str(), plain(&c.b.name), plain(&c.a.name));
    out += &format!("{}.\n\n", sentence(&c.summary));
    sides(&mut out, c);
    times(&mut out, c);
    out += "## Kernels\n\n";
    if c.kernels.is_empty() {
        out += "No kernel launch is recorded on both sides.\n\n";
    }
    for kernel in &c.kernels {
        one_kernel(&mut out, kernel, names);
    }
    unmatched(&mut out, c);
    regions(&mut out, c);
    let ranks = rank_changes(c);
    if !ranks.is_empty() {
        out += "## Ranks\n\n";
        put(&mut out, ranks, "");
    }
    out += "## What each tool gave\n\n";
    for part in &c.parts {
        let no = if part.there { "" } else { "no " };
        out += &format!("- {no}{}: {}\n", part.part, sentence(&part.note));
    }
    for gap in &c.gaps {
        out += &format!("- {}: {}\n", gap_label(gap), sentence(&gap.text));
    }
    if c.parts.is_empty() && c.gaps.is_empty() {
        out += "Both sides are saved profiles; nothing is missing.\n";
    }
    out
}

fn put(out: &mut String, table: TextTable, empty: &str) {
    if table.is_empty() {
        *out += &format!("{empty}\n\n")
    } else {
        *out += &format!("{}\n", table.without_empty_columns().markdown())
    }
}

fn sides(out: &mut String, c: &Comparison) {
    *out += "## Sides\n\n";
    let mut table = TextTable::new("side | name | kernel | mode | rung | GPU | results");
    for (label, side) in [("a", &c.a), ("b", &c.b)] {
        table.add_row([
            label.to_owned(),
            plain(&side.name),
            plain(&side.kernel),
            plain(&side.mode),
            plain(&side.rung),
            plain(side.device.as_deref().unwrap_or_default()),
            side.correctness.as_deref().unwrap_or_default().to_owned(),
        ]);
    }
    put(out, table, "");
    for d in &c.differences {
        let (a, b) = (plain(&d.a), plain(&d.b));
        *out += &format!("- different {}: {a} against {b} (compared with `--force`)\n", d.what);
    }
    if !c.differences.is_empty() {
        out.push('\n');
    }
}

fn times(out: &mut String, c: &Comparison) {
    *out += "## Times\n\n";
    let mut table =
        TextTable::new("case | a: | b: | speedup: | 95 % interval: | rounds: | verdict");
    for case in &c.cases {
        let t = &case.time;
        table.add_row([
            plain(&case.name),
            side(&t.a),
            side(&t.b),
            factor(t.speedup),
            interval(t),
            t.rounds.map(|n| n.to_string()).unwrap_or_default(),
            t.verdict.as_str().to_owned(),
        ]);
    }
    put(out, table, "No case was timed on both sides; see the kernels' own durations.");
}

fn one_kernel(out: &mut String, k: &KernelChange, names: KernelNames) {
    *out += &format!("### {}\n\n", plain(&kernel(k, names)));
    if let Some(text) = join_note(k) {
        *out += &format!("- {}\n", plain(&text));
    }
    if let Some(t) = &k.time {
        let ci = interval(t);
        let ci = if ci.is_empty() { ci } else { format!(" ({ci})") };
        let times = format!("{} → {}, speedup {}{ci}", side(&t.a), side(&t.b), factor(t.speedup));
        *out += &format!("- time under the tool: {times}, {}\n", launches(k.launches));
    }
    if let Some([a, b]) = &k.bound {
        *out += &format!("- bound by: {} → {}\n", plain(a), plain(b));
    }
    for r in &k.resources {
        *out += &format!("- {}: {} → {}\n", r.label, value(r.a, &r.unit), value(r.b, &r.unit));
    }
    out.push('\n');
    let mut table = TextTable::new("metric | a: | b: | change: | so | id");
    for m in k.metrics.iter().take(MAX_METRICS) {
        let (a, b) = (value(m.a, &m.unit), value(m.b, &m.unit));
        table.add_row([plain(&m.label), a, b, change(m), effect(m), plain(&m.metric)]);
    }
    put(out, table, "No metric was recorded on both sides, or none changed.");
}

fn unmatched(out: &mut String, c: &Comparison) {
    if c.only_a.is_empty() && c.only_b.is_empty() {
        return;
    }
    *out += "## Kernels of one side alone\n\n";
    let mut table = TextTable::new("side | kernel | launches: | total:");
    let mut rows = |label: &str, list: &[Unmatched]| {
        for kernel in list {
            let total = kernel.total_ns.map(duration).unwrap_or_default();
            let launches = kernel.launches.to_string();
            table.add_row([label.to_owned(), plain(&kernel.kernel), launches, total]);
        }
    };
    rows("a", &c.only_a);
    rows("b", &c.only_b);
    put(out, table, "");
}

fn regions(out: &mut String, c: &Comparison) {
    *out += "## Regions\n\n";
    let mut table = TextTable::new(
        "region | GPU time a: | GPU time b: | launches: | host time a: | host time b:",
    );
    for r in &c.regions {
        let cells = |pair: Option<[u64; 2]>| {
            pair.map_or([String::new(), String::new()], |ns| ns.map(|ns| duration(ns as f64)))
        };
        let ([ga, gb], [ha, hb]) = (cells(r.gpu_ns), cells(r.host_ns));
        let launched = r.launches.map(launches).unwrap_or_default();
        table.add_row([plain(&r.region), ga, gb, launched, ha, hb]);
    }
    put(out, table, "The sides have no region in common.");
}
