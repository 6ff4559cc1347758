//! A comparison on a terminal: the verdict, then the evidence.

use super::words::{
    MAX_METRICS, change, effect, factor, gap_label, interval, join_note, kernel, launches,
    rank_changes, side, value,
};
use crate::quantity::duration;
use crate::region_rows::short_region;
use crate::text::wrap;
use crate::{Style, TextTable};
use rgpu_model::comparison::TimeSource;
use rgpu_model::comparison::{Comparison, KernelChange, TimeChange, Unmatched};

/// Renders a comparison; the text ends with a newline.
pub fn table(c: &Comparison, style: &Style) -> String {
    let mut out = format!("{}\n", headline(c, style));
    for line in wrap(&c.summary, style.width.saturating_sub(2)) {
        out += &format!("  {line}\n");
    }
    out += "\n";
    sides(&mut out, c, style);
    times(&mut out, c, style);
    for kernel in &c.kernels {
        one_kernel(&mut out, kernel, style);
    }
    unmatched(&mut out, "only in a", &c.only_a, style);
    unmatched(&mut out, "only in b", &c.only_b, style);
    regions(&mut out, c, style);
    let ranks = rank_changes(c);
    if !ranks.is_empty() {
        out += &format!("\n{}", ranks.without_empty_columns().plain(style.width, 2));
    }
    if !c.differences.is_empty() {
        out += "\n  different (compared with --force)\n";
        for d in &c.differences {
            out += &format!("    {}: {} against {}\n", d.what, d.a, d.b);
        }
    }
    for part in c.parts.iter() {
        let lead = format!("  {:<11} ", part.part);
        let none = if part.there { "" } else { "no results: " };
        hang(&mut out, &lead, &format!("{none}{}", part.note), style);
    }
    for gap in &c.gaps {
        hang(&mut out, &format!("  {:<11} ", gap_label(gap)), &gap.text, style);
    }
    out
}

fn headline(c: &Comparison, style: &Style) -> String {
    style.paint_verdicts(c.verdict.as_str())
}

/// Writes a text after a lead, with a hanging indent.
fn hang(out: &mut String, lead: &str, text: &str, style: &Style) {
    let indent = lead.chars().count();
    for (i, line) in wrap(text, style.width.saturating_sub(indent)).iter().enumerate() {
        let pad = if i == 0 { lead.to_owned() } else { " ".repeat(indent) };
        *out += &format!("{pad}{line}\n");
    }
}

fn sides(out: &mut String, c: &Comparison, style: &Style) {
    let mut table = TextTable::new(" | kernel | mode | rung | results | name");
    for (label, side) in [("a", &c.a), ("b", &c.b)] {
        table.add_row([
            label.to_owned(),
            style.names.name(&side.kernel),
            side.mode.clone(),
            if side.rung == *side.mode { String::new() } else { side.rung.to_string() },
            side.correctness.as_deref().unwrap_or_default().to_owned(),
            if side.name == side.kernel { String::new() } else { side.name.clone() },
        ]);
    }
    *out += &table.without_empty_columns().plain(style.width, 2);
}

fn times(out: &mut String, c: &Comparison, style: &Style) {
    if c.cases.is_empty() {
        return;
    }
    let mut table = TextTable::new("case | a: | b: | speedup: | 95 % interval: | verdict");
    for case in &c.cases {
        table.add_row(time_cells(case.name.clone(), &case.time));
    }
    *out += &format!("\n{}", style.paint_verdicts(&table.plain(style.width, 2)));
    if let Some(time) = &c.time {
        let how = match (&time.source, time.rounds) {
            (TimeSource::Abba, Some(n)) => format!("timed calls interleaved a b b a, {n} rounds"),
            (TimeSource::AlternatedProcesses, _) => {
                "each side timed in two processes, in the order a b b a".to_owned()
            }
            _ => "each side timed in its own run".to_owned(),
        };
        *out += &format!("  {how}\n");
    }
}

fn time_cells(name: String, time: &TimeChange) -> [String; 6] {
    [
        name,
        side(&time.a),
        side(&time.b),
        factor(time.speedup),
        interval(time),
        time.verdict.as_str().to_owned(),
    ]
}

fn one_kernel(out: &mut String, k: &KernelChange, style: &Style) {
    *out += &format!("\n  {}\n", kernel(k, style.names));
    if let Some(text) = join_note(k) {
        hang(out, "    ", &text, style);
    }
    if let Some(time) = &k.time {
        let ci = interval(time);
        let ci = if ci.is_empty() { ci } else { format!(", 95 % interval {ci}") };
        let text = format!(
            "{} → {}, speedup {}{ci} ({} under the tool)",
            side(&time.a),
            side(&time.b),
            factor(time.speedup),
            launches(k.launches)
        );
        hang(out, "    time        ", &text, style);
    }
    if let Some([a, b]) = &k.bound {
        let (a, b) = (a.replace('_', " "), b.replace('_', " "));
        let text = if a == b { format!("{a}, as before") } else { format!("{a} → {b}") };
        hang(out, "    bound by    ", &text, style);
    }
    let resources: Vec<String> = k
        .resources
        .iter()
        .map(|r| {
            if r.a == r.b {
                format!("{} {}", r.label, value(r.a, &r.unit))
            } else {
                format!("{} {} → {}", r.label, value(r.a, &r.unit), value(r.b, &r.unit))
            }
        })
        .collect();
    if !resources.is_empty() {
        hang(out, "    resources   ", &resources.join(", "), style);
    }
    let mut table = TextTable::new("metric | a: | b: | change: | ");
    for m in k.metrics.iter().take(MAX_METRICS) {
        let (a, b) = (value(m.a, &m.unit), value(m.b, &m.unit));
        table.add_row([m.label.clone(), a, b, change(m), effect(m)]);
    }
    *out += &table.without_empty_columns().plain(style.width, 4);
    if k.metrics.len() > MAX_METRICS {
        *out += &format!("    and {} more in the JSON\n", k.metrics.len() - MAX_METRICS);
    }
}

fn unmatched(out: &mut String, title: &str, list: &[Unmatched], style: &Style) {
    if list.is_empty() {
        return;
    }
    let mut table = TextTable::new(&format!("{title} | launches: | total:"));
    let names = style.names.distinct(list.iter().map(|kernel| kernel.kernel.as_str()));
    for (kernel, name) in list.iter().zip(names) {
        table.add_row([
            name,
            kernel.launches.to_string(),
            kernel.total_ns.map(duration).unwrap_or_default(),
        ]);
    }
    *out += &format!("\n{}", table.without_empty_columns().plain(style.width, 2));
}

fn regions(out: &mut String, c: &Comparison, style: &Style) {
    let mut table = TextTable::new("region | GPU time a: | GPU time b: | speedup:");
    for region in c.regions.iter().filter(|r| r.gpu_ns.is_some_and(|ns| ns != [0, 0])) {
        let [a, b] = region.gpu_ns.unwrap_or_default().map(|ns| ns as f64);
        let speedup = match region.launches {
            Some([a, b]) if a != b => format!("unlike: {}", launches([a, b])),
            _ if b > 0.0 => factor(a / b),
            _ => String::new(),
        };
        let name = short_region(&region.region).into_owned();
        table.add_row([name, duration(a), duration(b), speedup]);
    }
    if !table.is_empty() {
        *out += &format!("\n{}", table.without_empty_columns().plain(style.width, 2));
    }
}
