//! The short table a user reads first, fit for 80 columns: how fast, why not faster, what to try.

use super::quantity::{bytes, digits, duration, per_second, percent};
use super::{Align, Grid, Style};
use crate::model::profile::{Correctness, Timing};
use crate::model::{Launch, Profile};

/// Launches shown at most; the profile has all.
const SHOWN: usize = 12;

/// The profile as a short text.
pub(super) fn render(profile: &Profile, style: &Style) -> String {
    let mut page = Page { out: String::new(), style };
    head(&mut page, profile);
    launches(&mut page, profile);
    kernels(&mut page, profile);
    regions(&mut page, profile);
    sanitizer(&mut page, profile);
    code(&mut page, profile);
    findings(&mut page, profile);
    tail(&mut page, profile);
    page.out
}

struct Page<'a> {
    out: String,
    style: &'a Style,
}

impl Page<'_> {
    fn line(&mut self, text: &str) {
        self.out.push_str(text.trim_end());
        self.out.push('\n');
    }

    /// A labelled line; what does not fit goes on under the text.
    fn field(&mut self, label: &str, text: &str) {
        self.painted_field(label, text, "");
    }

    /// The same with the text in a colour.
    fn painted_field(&mut self, label: &str, text: &str, sgr: &str) {
        let room = self.style.width.saturating_sub(14).max(30);
        for (at, part) in wrap(text, room).into_iter().enumerate() {
            let label = if at == 0 { label } else { "" };
            let part = if sgr.is_empty() { part } else { self.paint(sgr, &part) };
            self.line(&format!("  {label:<11} {part}"));
        }
    }

    fn bold(&self, text: &str) -> String {
        self.paint("1", text)
    }

    fn paint(&self, sgr: &str, text: &str) -> String {
        if self.style.color { format!("\u{1b}[{sgr}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    fn table(&mut self, title: &str, grid: Grid) {
        let text = grid.without_empty_columns().plain(self.style.width, 4);
        if !text.is_empty() {
            self.line("");
            let title = self.bold(title);
            self.line(&format!("  {title}"));
            self.out.push_str(&text);
        }
    }
}

fn head(page: &mut Page<'_>, profile: &Profile) {
    let gpu = profile.host.as_ref().and_then(|host| {
        host.gpus.iter().find(|g| Some(&g.uuid) == profile.gpu.as_ref()).map(|g| g.name.clone())
    });
    let name = page.bold(&profile.kernel.name);
    let (mode, remote) = (&profile.run.mode, &profile.run.remote);
    page.line(&match gpu.or_else(|| profile.device.clone()) {
        // A report without its host says at least which GPU it is of, if it does.
        None if profile.host.is_none() => format!("{name}  {mode}"),
        Some(gpu) => format!("{name}  {mode} on {gpu} ({remote})"),
        None => {
            let cpu = profile.timing.as_ref().is_some_and(|t| t.clock == "cpu_reference");
            let what = if cpu { "the reference ran on its CPU" } else { "nothing ran on a GPU" };
            format!("{name}  {mode} was asked, but {remote} has no GPU: {what}")
        }
    });
    if profile.cases.len() > 1 {
        cases(page, profile);
    } else if let Some(timing) = &profile.timing {
        page.field("time", &timing_text(timing));
    }
    if let Some(correctness) = &profile.correctness {
        let sgr = match correctness.verdict.as_str() {
            "right" => "32",
            "wrong" => "31",
            _ => "",
        };
        page.painted_field("correct", &correctness_text(correctness), sgr);
    }
    for warning in &profile.warnings {
        page.field("warning", &warning.text);
    }
}

fn timing_text(t: &Timing) -> String {
    let half = (t.ci95_ns[1] - t.ci95_ns[0]) / 2.0;
    let mut text = duration(t.median_ns);
    if t.median_ns > 0.0 && t.samples > 1 {
        text += &format!(" ± {}", percent(100.0 * half / t.median_ns));
    }
    let rate = |x: Option<f64>, unit| x.filter(|x| *x > 0.0).map(|x| per_second(x, unit));
    let rates = [rate(t.bytes_per_s, "B"), rate(t.flops_per_s, "FLOP")];
    rates.into_iter().flatten().for_each(|rate| text += &format!(", {rate}"));
    let clock = match t.clock.as_str() {
        "cuda_events" => "CUDA events",
        "cpu_reference" => "the reference on the CPU",
        _ => "host clock",
    };
    text += &format!("  (median of {}, {clock}", t.samples);
    if t.l2_flushed {
        text += ", L2 flushed";
    }
    text + ")"
}

fn correctness_text(c: &Correctness) -> String {
    let mut text = c.verdict.clone();
    match c.verdict.as_str() {
        "right" => {
            text += &format!(": {} values", c.checked);
            if let Some(max) = c.max_abs {
                text += &format!(
                    ", largest error {}",
                    if max == 0.0 { "0".into() } else { format!("{max:.1e}") }
                );
            }
        }
        "wrong" => {
            text += &format!(": {} of {} values", c.wrong, c.checked);
            c.first_wrong.iter().for_each(|first| text += &format!("; {first}"));
        }
        _ => text += &format!(": {}", c.note),
    }
    match c.bit_equal {
        Some(true) => text += ", two calls equal bit for bit",
        Some(false) => text += ", two calls differ",
        None => {}
    }
    text
}

fn cases(page: &mut Page<'_>, profile: &Profile) {
    let mut grid = Grid::new(&[
        ("case", Align::Left),
        ("time", Align::Right),
        ("±", Align::Right),
        ("bandwidth", Align::Right),
        ("rate", Align::Right),
        ("correct", Align::Left),
    ]);
    for case in &profile.cases {
        let t = case.timing.as_ref();
        let half = |t: &Timing| 50.0 * (t.ci95_ns[1] - t.ci95_ns[0]) / t.median_ns;
        grid.row([
            case.name.clone(),
            t.map(|t| duration(t.median_ns)).unwrap_or_default(),
            t.filter(|t| t.samples > 1 && t.median_ns > 0.0)
                .map(|t| percent(half(t)))
                .unwrap_or_default(),
            t.and_then(|t| t.bytes_per_s).map(|x| per_second(x, "B")).unwrap_or_default(),
            t.and_then(|t| t.flops_per_s).map(|x| per_second(x, "FLOP")).unwrap_or_default(),
            case.correctness.as_ref().map(|c| c.verdict.clone()).unwrap_or_default(),
        ]);
    }
    page.table("cases", grid);
}

fn metric(launch: &Launch, ids: &[&str]) -> String {
    launch.first_number(ids).map(|(_, x)| format!("{x:.1}")).unwrap_or_default()
}

/// ncu's launches: one row each.
fn launches(page: &mut Page<'_>, profile: &Profile) {
    if profile.launches.iter().all(|l| l.metrics.is_empty()) {
        return;
    }
    let mut grid = Grid::new(&[
        ("kernel", Align::Left),
        ("duration", Align::Right),
        ("SM %", Align::Right),
        ("mem %", Align::Right),
        ("occ %", Align::Right),
        ("regs", Align::Right),
    ]);
    for launch in profile.launches.iter().take(SHOWN) {
        grid.row([
            short_name(&launch.kernel),
            launch.duration_ns.map(duration).unwrap_or_default(),
            metric(launch, &["sm__throughput.avg.pct_of_peak_sustained_elapsed"]),
            metric(launch, &["gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"]),
            metric(launch, &["sm__warps_active.avg.pct_of_peak_sustained_active"]),
            launch.registers.map(|r| r.to_string()).unwrap_or_default(),
        ]);
    }
    page.table("launches", grid);
    if profile.launches.len() > SHOWN {
        page.line(&format!("    … and {} more in profile.json", profile.launches.len() - SHOWN));
    }
    page.line("");
    said_once(page, profile, "stalls", stalls_text);
    said_once(page, profile, "bound by", |launch| {
        launch.classification.as_ref().map(classification_text)
    });
}

/// A field that several launches of one kernel mostly share: each text once, under its kernel's name
/// where there are several.
fn said_once(
    page: &mut Page<'_>,
    profile: &Profile,
    label: &str,
    text: impl Fn(&Launch) -> Option<String>,
) {
    let mut said: Vec<(String, String)> = Vec::new();
    for launch in profile.launches.iter().take(SHOWN) {
        let Some(text) = text(launch) else { continue };
        let kernel = short_name(&launch.kernel);
        if !said.iter().any(|(k, t)| *k == kernel && *t == text) {
            said.push((kernel, text));
        }
    }
    let several = said.len() > 1;
    for (at, (kernel, text)) in said.into_iter().enumerate() {
        let label = if at == 0 { label } else { "" };
        page.field(label, &if several { format!("{kernel}: {text}") } else { text });
    }
}

/// The stall reasons that matter most, in percent of the cycles between two instructions.
fn stalls_text(launch: &Launch) -> Option<String> {
    let top: Vec<String> = launch
        .stalls
        .iter()
        .filter(|s| s.reason != "selected")
        .take(3)
        .map(|s| match s.percent {
            Some(p) => format!("{} {p:.0} %", s.reason),
            None => s.reason.clone(),
        })
        .collect();
    (!top.is_empty()).then(|| top.join(", "))
}

fn classification_text(class: &crate::model::Classification) -> String {
    let mut text = class.primary.replace('_', " ");
    let primary = class.verdicts.iter().find(|v| v.verdict == class.primary);
    if let Some(e) = primary.and_then(|v| v.evidence.first()) {
        // The counter's own name says enough; the whole id is in the profile.
        let counter = e.metric.split('.').next().unwrap_or(&e.metric);
        text += &format!(" ({counter} {} {})", digits(e.value), e.unit);
    }
    let others: Vec<_> = class
        .verdicts
        .iter()
        .filter(|v| v.verdict != class.primary)
        .map(|v| v.verdict.replace('_', " "))
        .collect();
    if !others.is_empty() {
        text += &format!("; also {}", others.join(", "));
    }
    text
}

/// A timeline's kernels, summed by name.
fn kernels(page: &mut Page<'_>, profile: &Profile) {
    if profile.launches.iter().any(|l| !l.metrics.is_empty()) {
        return;
    }
    let mut grid = Grid::new(&[
        ("kernel", Align::Left),
        ("launches", Align::Right),
        ("total", Align::Right),
        ("mean", Align::Right),
        ("min", Align::Right),
        ("max", Align::Right),
    ]);
    for k in profile.kernels.iter().take(SHOWN) {
        grid.row([
            short_name(&k.kernel),
            k.launches.to_string(),
            duration(k.total_ns as f64),
            duration(k.total_ns as f64 / k.launches.max(1) as f64),
            duration(k.min_ns as f64),
            duration(k.max_ns as f64),
        ]);
    }
    page.table("kernels", grid);
    let mut grid = Grid::new(&[
        ("copies", Align::Left),
        ("count", Align::Right),
        ("bytes", Align::Right),
        ("time", Align::Right),
    ]);
    for c in &profile.copies {
        grid.row([
            c.kind.clone(),
            c.count.to_string(),
            bytes(c.bytes as f64),
            duration(c.total_ns as f64),
        ]);
    }
    page.table("copies", grid);
}

fn regions(page: &mut Page<'_>, profile: &Profile) {
    let mut grid = Grid::new(&[
        ("region", Align::Left),
        ("times", Align::Right),
        ("host", Align::Right),
        ("GPU", Align::Right),
        ("kernels", Align::Right),
    ]);
    for region in profile.regions.iter().take(2 * SHOWN) {
        let launches: u64 = region.kernels.iter().map(|k| k.launches).sum();
        grid.row([
            region.display(),
            region.instances.to_string(),
            duration(region.host_ns as f64),
            region.gpu_ns.map(|ns| duration(ns as f64)).unwrap_or_default(),
            if launches > 0 { launches.to_string() } else { String::new() },
        ]);
    }
    page.table("regions", grid);
}

fn sanitizer(page: &mut Page<'_>, profile: &Profile) {
    if profile.sanitizer.is_empty() {
        return;
    }
    page.line("");
    for result in &profile.sanitizer {
        let text = match result.verdict.as_str() {
            "clean" => page.paint("32", "clean"),
            "found" => {
                let causes = result.causes.len();
                page.paint("31", &format!("{causes} cause{}", if causes == 1 { "" } else { "s" }))
            }
            _ => format!("unknown: {}", result.note),
        };
        page.field(&result.tool, &text);
        for cause in &result.causes {
            let at = match (&cause.file, cause.line) {
                (Some(file), Some(line)) => format!("{file}:{line}: "),
                (Some(file), None) => format!("{file}: "),
                _ => String::new(),
            };
            let kernel = if cause.kernel.is_empty() {
                String::new()
            } else {
                format!(" in {}", short_name(&cause.kernel))
            };
            let count =
                if cause.count > 1 { format!(" ({} times)", cause.count) } else { String::new() };
            page.field("", &format!("{at}{}{kernel}{count}", cause.text));
            for detail in cause.details.iter().take(2) {
                page.field("", &format!("  {detail}"));
            }
        }
    }
}

fn code(page: &mut Page<'_>, profile: &Profile) {
    let mut grid = Grid::new(&[
        ("code", Align::Left),
        ("arch", Align::Left),
        ("regs", Align::Right),
        ("stack", Align::Right),
        ("spills", Align::Right),
        ("shared", Align::Right),
        ("size", Align::Right),
    ]);
    for k in profile.code.iter().take(SHOWN) {
        grid.row([
            short_name(k.name.as_deref().unwrap_or(&k.symbol)),
            k.arch.clone(),
            k.registers.to_string(),
            k.stack_bytes.map(|b| bytes(b.into())).unwrap_or_else(|| "?".into()),
            match (k.spill_store_bytes, k.spill_load_bytes) {
                (Some(0), Some(0)) => "0".to_owned(),
                (Some(s), Some(l)) => format!("{s}/{l} B"),
                _ => String::new(),
            },
            bytes(k.shared_bytes.into()),
            bytes(k.code_bytes as f64),
        ]);
    }
    page.table("compiled", grid);
}

fn findings(page: &mut Page<'_>, profile: &Profile) {
    if profile.findings.is_empty() {
        return;
    }
    page.line("");
    let title = page.bold("what to try");
    page.line(&format!("  {title}"));
    let room = page.style.width.saturating_sub(7).max(30);
    for (at, finding) in profile.findings.iter().take(5).enumerate() {
        for (line, part) in wrap(&finding.text, room).into_iter().enumerate() {
            let number = if line == 0 { (at + 1).to_string() } else { String::new() };
            page.line(&format!("    {number:>1}  {part}"));
        }
        for (line, part) in wrap(&finding.hint, room.saturating_sub(2)).into_iter().enumerate() {
            page.line(&format!("       {} {part}", if line == 0 { "→" } else { " " }));
        }
    }
}

fn tail(page: &mut Page<'_>, profile: &Profile) {
    page.line("");
    page.field("rung", &profile.rung);
    for step in profile.ladder.iter().filter(|r| !r.ok) {
        let words = if step.words.is_empty() { String::new() } else { format!(": {}", step.words) };
        page.field("", &format!("not {} ({}{words})", step.rung, step.code));
    }
    // A rung that was given up is said above, with its reason.
    let told = |text: &str| {
        profile.ladder.iter().any(|r| !r.ok && text.starts_with(&format!("{}: ", r.rung)))
    };
    for gap in profile.gaps.iter().filter(|gap| !told(&gap.text)) {
        page.field("missing", &gap.text);
    }
}

/// A kernel's name without its parameter list and return type, cut to what a table can bear.
fn short_name(name: &str) -> String {
    let cut = match name.find('(') {
        Some(at) if at > 0 && !name.starts_with('(') => &name[..at],
        _ => name,
    };
    let cut = cut.strip_prefix("void ").unwrap_or(cut);
    if cut.chars().count() <= 44 {
        cut.to_owned()
    } else {
        format!("{}…", cut.chars().take(43).collect::<String>())
    }
}

/// Breaks at blanks so that no line has more than `room` columns, colours not counted; a longer
/// word stays whole.
fn wrap(text: &str, room: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split(' ') {
        let width = visible_width(word);
        let last = lines.len() - 1;
        if used > 0 && used + 1 + width > room {
            lines.push(word.to_owned());
            used = width;
        } else {
            if used > 0 || !lines[last].is_empty() || word.is_empty() {
                lines[last].push(' ');
                used += 1;
            }
            lines[last].push_str(word);
            used += width;
        }
    }
    lines
}

fn visible_width(text: &str) -> usize {
    unicode_width::UnicodeWidthStr::width(rgpu_protocol::pattern::strip_ansi(text).as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lose_their_parameters_and_long_ones_are_cut() {
        assert_eq!(short_name("void add<float>(float*, int)"), "add<float>");
        assert_eq!(short_name("(anonymous namespace)::k(int)"), "(anonymous namespace)::k(int)");
        assert_eq!(short_name(&"x".repeat(60)).chars().count(), 44);
    }

    #[test]
    fn long_texts_wrap_at_blanks() {
        assert_eq!(wrap("aa bb cc", 5), ["aa bb", "cc"]);
        assert_eq!(wrap("\u{1b}[1maa\u{1b}[0m bb", 5).len(), 1);
        assert_eq!(wrap("abcdefghij", 4), ["abcdefghij"]);
    }
}
