//! A summary for an AI agent within a budget of bytes: whole lines, most important first.
//!
//! Each line is a short `key: value` fact, so a reader can stop anywhere. The last line counts the
//! lines that did not fit.

use std::collections::HashSet;

use super::account;
use super::bound::{prediction_text, share_text};
use super::finding;
use super::headline::headline;
use super::kernel_name::KernelLabels;
use super::kernel_sums::set_up_text;
use super::missing;
use super::phrase::{memory_text, model_text};
use super::quantity::{duration, measured, per_second, percent, threshold};
use super::region_rows;
use super::sections::selection;
use super::text::one_line;
use super::{Document, ReportInput, Style};
use rgpu_model::profile::TimingClock;
use rgpu_model::stage::StageClock;
use rgpu_model::{Launch, Profile, Stage};

/// The maximum number of stages.
const MAX_STAGES: usize = 12;

/// The smallest useful budget in bytes: enough for the first line, cut if it is longer.
pub const MIN_BUDGET_BYTES: usize = 256;

/// Renders `brief.txt`, cut to the budget of the style.
pub(super) fn render(subject: &ReportInput<'_>, style: &Style) -> Vec<Document<'static>> {
    let names = style.names.labels(subject.profile);
    vec![Document::new("brief.txt", within(&lines(subject, &names), style.budget))]
}

/// The lines that fit in the budget, and a last line that counts the rest. A first line that does
/// not fit is cut; the result is empty if the budget is too small even for that.
fn within(lines: &[String], budget: usize) -> String {
    let total_bytes: usize = lines.iter().map(|l| l.len() + 1).sum();
    if total_bytes <= budget {
        return lines.iter().fold(String::with_capacity(total_bytes), |out, l| out + l + "\n");
    }
    let rest = |n: usize| format!("more: {n} lines beyond {budget} bytes; see --format json\n");
    let room = budget.saturating_sub(rest(lines.len()).len());
    let mut out = String::new();
    let mut taken = 0;
    for line in lines {
        if out.len() + line.len() + 1 > room {
            break;
        }
        out += line;
        out.push('\n');
        taken += 1;
    }
    if let (0, Some(first)) = (taken, lines.first()) {
        // Leaves room for the ellipsis and the newline.
        let max_end = room.saturating_sub("…\n".len()).min(first.len());
        let end = (0..=max_end).rev().find(|end| first.is_char_boundary(*end)).unwrap_or(0);
        if end > 0 {
            out = format!("{}…\n", &first[..end]);
            taken = 1;
        }
    }
    let last = rest(lines.len() - taken);
    if out.len() + last.len() <= budget { out + &last } else { out }
}

fn lines(subject: &ReportInput<'_>, names: &KernelLabels<'_>) -> Vec<String> {
    let profile = subject.profile;
    let mut out = Vec::new();
    let mut say = |text: String| out.push(one_line(&text));
    let head = headline(subject, names);
    say(format!("verdict: {}. {}", head.title, head.text));
    say(format!(
        "what: {} ({}) on {}, rung {}",
        profile.kernel.name,
        profile.run.mode,
        profile.device.as_deref().unwrap_or("no GPU"),
        profile.rung
    ));
    profile.stopped_pass().iter().for_each(|stopped| say(format!("warning: {}", stopped.text)));
    if let Some(t) = &profile.timing {
        let mut text = format!(
            "time: {} median of {}, 95 % {} to {}",
            duration(t.median_ns),
            t.samples,
            duration(t.ci95_ns[0]),
            duration(t.ci95_ns[1])
        );
        if t.clock == TimingClock::CpuReference {
            text += " (the reference on the CPU; no GPU was measured)";
        }
        if let Some(graph) = &t.graph {
            text += &format!(", {} in a CUDA graph", duration(graph.median_ns));
        }
        for (x, unit) in [(t.bytes_per_s, "B"), (t.flops_per_s, "FLOP")] {
            if let Some(x) = x.filter(|x| *x > 0.0) {
                text += &format!(", {}", per_second(x, unit));
            }
        }
        say(text);
    }
    if let Some(mean) = &profile.geometric_mean {
        say(format!("geometric mean of {} cases: {}", mean.cases, duration(mean.median_ns)));
    }
    if let Some(c) = &profile.correctness {
        say(format!("results: {} ({} of {} wrong)", c.verdict, c.wrong, c.checked));
    }
    if let Some(model) = &profile.kernel.model {
        say(format!("model: {}", model_text(model)));
    }
    profile.memory.iter().for_each(|memory| say(format!("memory: {}", memory_text(memory))));
    profile.stages.iter().take(MAX_STAGES).for_each(|s| say(stage(s)));
    account(profile, names, &mut say);
    for (at, f) in profile.findings.iter().enumerate() {
        let kernel = finding::kernel(f, names).map(|kernel| format!("{kernel}: "));
        let kernel = kernel.unwrap_or_default();
        if profile.is_little(f) {
            say(format!("finding {} below 1 % of a step: {kernel}{}", f.id, f.text));
            continue;
        }
        say(format!("finding {}: {kernel}{}", f.id, f.text));
        finding::worth(f, profile).iter().for_each(|worth| say(format!("  worth: {worth}")));
        f.places.iter().for_each(|place| {
            say(format!("  where: {}", finding::idle_location_text(place, names)))
        });
        finding::covered(f, names).iter().for_each(|covered| say(format!("  in: {covered}")));
        finding::code(f).iter().for_each(|code| say(format!("  at: {code}")));
        say(format!("  do: {}", finding::hint(&profile.findings, at)));
        for e in &f.evidence {
            let against = threshold(e).map(|limit| format!(" (threshold {limit})"));
            let value = measured(e.value, &e.unit);
            say(format!("  because: {} = {value}{}", e.metric, against.unwrap_or_default()));
        }
    }
    for cause in profile.sanitizer.iter().flat_map(|r| &r.causes) {
        let at = cause.file.as_deref().map(|f| format!("{f}:{}: ", cause.line.unwrap_or(0)));
        say(format!("sanitizer: {}{}", at.unwrap_or_default(), cause.text));
    }
    profile.speed_of_light.iter().for_each(|sol| {
        say(format!("speed of light {}: {} ({} side)", sol.case, percent(sol.percent), sol.bound));
    });
    for share in &profile.bound {
        say(format!("bound {}: {}", share.case, share_text(share)));
        prediction_text(share).into_iter().for_each(|text| say(format!("model: {text}")));
    }
    selection::sentences(profile).into_iter().for_each(|text| say(format!("profiled: {text}")));
    for v in &profile.kernel_verdicts {
        let (name, share) = (names.name(&v.kernel), percent(v.percent));
        let verdict = v.verdict.as_deref().unwrap_or("no verdict");
        say(format!("kernel {name}: {share} of the GPU time, {verdict}: {}", v.text));
    }
    hot(subject, names, &mut say);
    profile.launches.iter().filter(|l| !l.metrics.is_empty()).for_each(|l| say(launch(l, names)));
    sums(profile, names, &mut say);
    let mut printed = HashSet::new();
    for step in profile.ladder.iter().filter(|r| !r.ok) {
        let text = format!("rung {} failed: {}: {}", step.rung, step.code, step.message);
        if printed.insert(text.clone()) {
            say(text);
        }
    }
    profile
        .data_lost_on_rung()
        .iter()
        .for_each(|lost| say(format!("lost on rung {}: {lost}", profile.rung)));
    missing::texts(profile.missing(), names)
        .iter()
        .for_each(|missing| say(format!("missing {}: {}", missing.code, missing.text)));
    out
}

/// The account in short, and what the first changes would give together.
fn account(profile: &Profile, names: &KernelLabels<'_>, say: &mut impl FnMut(String)) {
    let Some(account) = &profile.account else { return };
    say(format!("{}: {}", account::title(account), account::lead(account)));
    for row in account::rows(account::parts(account), names, account::MAX_SHORT_PARTS) {
        let (share, time) = (account::share_text(row.share), duration(row.ns as f64));
        let mut text = format!("  {}: {share}, {time}", row.label);
        if row.hidden_ns > 0 {
            text += &format!(", {} more hidden", duration(row.hidden_ns as f64));
        }
        if !row.largest.is_empty() {
            text += &format!(", most of it {}", row.largest_text());
        }
        if let Some(share) = row.largest_share {
            text += &format!(" ({:.0} %)", 100.0 * share);
        }
        say(text);
    }
    let outliers = account::outliers(account, names);
    let remarks = [outliers, account::no_gains(account), account::together(profile)];
    remarks.into_iter().flatten().for_each(|remark| say(format!("  {remark}")));
}

/// `stage LLM@prefill: 2.59 ms (gpu), 1 time, 221 TFLOP/s, MFU while busy 22 % of tensor bf16`.
fn stage(stage: &Stage) -> String {
    let case = if stage.case.is_empty() { String::new() } else { format!("{} ", stage.case) };
    let s = if stage.instances == 1 { "" } else { "s" };
    let mut text = format!(
        "stage {case}{}: {} ({}), {} time{s}",
        stage.region,
        duration(stage.mean_ns),
        stage.clock,
        stage.instances
    );
    if let Some(span) = stage.gpu_span_ns {
        text += &format!(", {} from first to last kernel", duration(span));
    }
    if let Some(rate) = stage.flops_per_s {
        text += &format!(", {}", per_second(rate, "FLOP"));
    }
    if let Some(share) = &stage.utilization {
        let busy = if stage.clock == StageClock::Gpu { " while busy" } else { "" };
        text += &format!(", MFU{busy} {} of {}", percent(share.percent), share.label);
    }
    text
}

fn hot(subject: &ReportInput<'_>, names: &KernelLabels<'_>, say: &mut impl FnMut(String)) {
    for spots in subject.hotspots.iter().flat_map(|h| &h.launches) {
        let total = spots.samples.unwrap_or(0).max(1) as f64;
        for spot in spots.lines.iter().take(3) {
            let samples = spot.counts.samples.unwrap_or(0) as f64;
            let mut text = format!(
                "hot line: {}:{} {} of samples in {}",
                spot.at.file,
                spot.at.line,
                percent(100.0 * samples / total),
                names.name(&spots.kernel)
            );
            // A report without imported sources lacks the text of the line.
            match spot.text.as_deref().map(str::trim) {
                Some(source) if !source.is_empty() => text += &format!(": {source}"),
                _ => {}
            }
            say(text);
        }
    }
}

fn launch(l: &Launch, names: &KernelLabels<'_>) -> String {
    let mut text = format!("launch {}: {}", l.id, names.name(&l.kernel));
    let mut add = |part: String| text += &format!(", {part}");
    l.duration_ns.into_iter().for_each(|ns| add(duration(ns)));
    l.classification.iter().for_each(|c| add(c.primary.clone()));
    for s in l.stalls.iter().filter(|s| s.reason != "selected").take(2) {
        s.percent.into_iter().for_each(|p| add(format!("{} {}", s.reason, percent(p))));
    }
    text
}

fn sums(profile: &Profile, names: &KernelLabels<'_>, say: &mut impl FnMut(String)) {
    for k in profile.kernels.iter().take(20) {
        let name = names.name(&k.kernel);
        let total = duration(k.total_ns as f64);
        let launches = if k.launches == 1 { "launch" } else { "launches" };
        let set_up = set_up_text(k).map_or_else(String::new, |text| format!(", {text}"));
        say(format!("kernel: {name}, {total} in {} {launches}{set_up}", k.launches));
    }
    for row in region_rows::rows(profile, 40) {
        if row.gpu_ns.is_some() {
            say(format!("region: {}, GPU {}", row.label, row.gpu_text()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_and_the_budget_holds_whatever_it_is() {
        let lines: Vec<String> = (0..40).map(|n| format!("fact {n}: µ and ×")).collect();
        let long = vec!["µ".repeat(600), "second".to_owned()];
        assert!(within(&long, MIN_BUDGET_BYTES).starts_with("µµµ"));
        for budget in 0..900 {
            assert!(within(&long, budget).len() <= budget);
            let text = within(&lines, budget);
            assert!(text.len() <= budget);
            assert!(text.is_empty() || text.ends_with('\n'));
            for line in text.lines() {
                let cut = |l: &String| line.strip_suffix('…').is_some_and(|cut| l.starts_with(cut));
                let known = lines.contains(&line.to_owned()) || lines.iter().any(cut);
                assert!(line.starts_with("more: ") || known, "{line}");
            }
        }
        assert_eq!(within(&lines, 4096).lines().count(), 40);
    }
}
