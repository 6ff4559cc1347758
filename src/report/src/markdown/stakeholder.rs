//! `stakeholder_summary.md`: a summary for readers who decide but do not profile. It says what was
//! measured, the results, and what to do; each sentence of the narrative has its number.

use super::{NO_OPERATORS, add_peak};
use crate::blocks::{Block, Blocks};
use crate::bound::share_text;
use crate::finding;
use crate::headline::{first_finding, headline, longest};
use crate::kernel_name::KernelLabels;
use crate::quantity::{duration, measured, per_second, percent, threshold};
use crate::region_rows;
use crate::sections::findings::steps;
use crate::sections::stages::{self, operators};
use crate::sections::timeline::{NO_REGIONS, kernels, no_kernels, nothing_ran_on_a_gpu, regions};
use crate::sections::{View, add_short_account};
use crate::text::capital;
use crate::{ReportInput, TextTable, busy, kernel_sums};
use rgpu_model::profile::TimingClock;
use rgpu_model::speed_of_light::Utilization;
use rgpu_model::{Launch, Profile, Stage};

/// The maximum number of rows of the top tables and recommendations.
const MAX_TOP_ROWS: usize = 10;

pub(super) fn report(subject: &ReportInput<'_>, view: &View<'_>) -> Blocks {
    let profile = view.profile;
    let mut out = Blocks::default();
    out.add(Block::Title(format!("{}: summary", profile.kernel.name), String::new()));
    out.heading("Executive Summary");
    let head = headline(subject, &view.names);
    out.note(format!("{}. {}", head.title, head.text));
    let first = first_finding(profile).map(|first| format!("First thing to do: {}", first.hint));
    out.note(first.unwrap_or_else(|| "No findings.".to_owned()));
    environment(&mut out, profile);
    add_short_account(&mut out, view);
    aggregates(&mut out, profile);
    out.table_or("Per-Region Timings", regions(profile, usize::MAX), NO_REGIONS);
    region_rows::gpu_note(profile).into_iter().for_each(|note| out.note(note));
    let mut steps = steps(profile);
    if profile.run.seconds > 0.0 {
        let seconds = format!("{:.2}", profile.run.seconds);
        let rung = profile.rung.to_string();
        steps.add_row(["the whole run".to_owned(), rung, String::new(), seconds]);
    }
    let absent = "No step of a run was recorded: this is of a report file alone.";
    out.table_or("Per-Stage Timings", steps, absent);
    mfu(&mut out, profile);
    let operators = operators(view, profile.operators.iter().take(MAX_TOP_ROWS));
    out.table_or("Top Operators", operators, NO_OPERATORS);
    out.table_or("Top Kernels", kernels(view, MAX_TOP_ROWS), no_kernels(profile));
    recommendations(&mut out, view);
    out.heading("Narrative");
    out.note(narrative(view).join(" "));
    out
}

fn environment(out: &mut Blocks, profile: &Profile) {
    out.heading("Environment");
    let gpu = profile
        .host
        .as_ref()
        .and_then(|h| h.gpus.iter().find(|g| Some(&g.uuid) == profile.gpu.as_ref()));
    let was_built = !profile.code.is_empty() || !nothing_ran_on_a_gpu(profile);
    let facts = [
        ("GPU", profile.device.clone().or_else(|| gpu.map(|g| g.name.clone()))),
        ("Where", Some(profile.run.remote.clone())),
        ("Mode", Some(profile.run.mode.clone())),
        ("Rung", Some(profile.rung.to_string())),
        ("Started", Some(profile.run.started.clone())),
        ("Compiler", Some(profile.kernel.compiler.clone())),
        ("Architectures", was_built.then(|| profile.kernel.arch.join(", "))),
        ("rgpu", Some(profile.run.rgpu.clone())),
    ];
    for (what, value) in facts {
        value.filter(|v| !v.is_empty()).into_iter().for_each(|value| out.field(what, value));
    }
}

fn aggregates(out: &mut Blocks, profile: &Profile) {
    let mut rows: Vec<(String, String)> = Vec::new();
    let mut row = |what: &str, value: String| rows.push((what.to_owned(), value));
    if let Some(t) = &profile.timing {
        row("median time without a tool", duration(t.median_ns));
        row("samples", t.samples.to_string());
        for (x, unit) in [(t.bytes_per_s, "B"), (t.flops_per_s, "FLOP")] {
            if let Some(x) = x.filter(|x| *x > 0.0) {
                row("rate", per_second(x, unit));
            }
        }
    }
    if !profile.kernels.is_empty() {
        let total: u64 = profile.kernels.iter().map(|k| k.total_ns).sum();
        let launches: u64 = profile.kernels.iter().map(|k| k.launches).sum();
        row("kernels", profile.kernels.len().to_string());
        row("launches", launches.to_string());
        row(&busy::sum_title("time in kernels", profile), duration(total as f64));
    }
    for c in &profile.copies {
        row(&format!("{} ×{}", c.kind, c.count), duration(c.total_ns as f64));
    }
    if let Some(busy) = busy::busy(profile) {
        row("time from first to last kernel", busy.span());
        let start_up = busy.start_up();
        let part = if start_up.is_some() { "the rest" } else { "it" };
        start_up.into_iter().for_each(|ns| row("start-up in it", ns));
        row(&format!("share of {part} with the GPU busy"), busy.percent());
    }
    if rows.is_empty() {
        out.add(Block::Chapter("Aggregates".to_owned(), "Nothing was timed on the GPU."));
        return;
    }
    out.heading("Aggregates");
    rows.into_iter().for_each(|(what, value)| out.field(what, value));
}

/// Adds the rates and the MFU of cases with declared work, and of a model's stages.
fn mfu(out: &mut Blocks, profile: &Profile) {
    let is_rated = |stage: &Stage| stage.flops_per_s.is_some() || stage.utilization.is_some();
    let utilisation = utilisation(profile);
    if !profile.stages.iter().any(is_rated) {
        let absent = if nothing_ran_on_a_gpu(profile) {
            "Nothing was measured on a GPU, so no share of its peak is known."
        } else {
            "No `[work]` is declared, so neither the useful operations nor the share of the peak \
             are known."
        };
        return out.table_or("MFU", utilisation, absent);
    }
    out.heading("MFU");
    out.table("", utilisation);
    out.table("", stages::table(profile));
    add_peak(out, profile);
}

fn utilisation(profile: &Profile) -> TextTable {
    let parts = profile.speed_of_light.iter().flat_map(|sol| {
        let parts = [("MFU", &sol.flops), ("DRAM", &sol.bytes)];
        parts.into_iter().filter_map(move |(name, part)| Some((sol, name, part.as_ref()?)))
    });
    let rate = |x: f64, u: &Utilization| {
        per_second(x, &u.unit.trim_end_matches("/s").replace("byte", "B"))
    };
    TextTable::of(
        parts,
        &[
            ("case", &|(sol, name, _)| format!("{} ({name})", sol.case)),
            ("reached:", &|(.., u)| rate(u.achieved, u)),
            ("peak:", &|(.., u)| rate(u.peak, u)),
            ("share:", &|(.., u)| percent(u.percent)),
            ("which peak", &|(.., u)| u.label.clone()),
            ("source", &|(.., u)| u.source.to_string()),
        ],
    )
}

fn recommendations(out: &mut Blocks, view: &View<'_>) {
    let profile = view.profile;
    if profile.findings.is_empty() {
        out.add(Block::Chapter("Recommendations".to_owned(), "No findings."));
        return;
    }
    out.heading("Recommendations");
    let large = profile.findings.iter().filter(|finding| !profile.is_little(finding));
    for (at, f) in large.enumerate().take(MAX_TOP_ROWS) {
        let kernel = finding::kernel(f, &view.names).map(|kernel| format!("`{}`: ", code(&kernel)));
        let gain = finding::gain(f, profile).map(|gain| format!(". {}", capital(&gain)));
        let (kernel, gain) = (kernel.unwrap_or_default(), gain.unwrap_or_default());
        let hint = f.hint.trim_end_matches('.');
        out.add(Block::Item(at + 1, format!("{kernel}{hint}. Because {}{gain}", f.text)));
    }
}

/// What was measured, in sentences that name the key of each number.
fn narrative(view: &View<'_>) -> Vec<String> {
    let (profile, names) = (view.profile, &view.names);
    let mut sentences = Vec::new();
    if let Some(t) = &profile.timing {
        let (what, but) = match t.clock {
            TimingClock::CpuReference => ("The reference on the CPU", "; no GPU was measured"),
            _ => ("One call", ""),
        };
        sentences.push(format!(
            "{what} takes {} (`timing.median_ns`, 95 % between {} and {}){but}.",
            duration(t.median_ns),
            duration(t.ci95_ns[0]),
            duration(t.ci95_ns[1])
        ));
    }
    if let Some(top) = profile.kernels.first() {
        let total = kernel_sums::work_ns(profile);
        sentences.push(format!(
            "`{}` has {} of the {} in {}{} (`kernels[0].total_ns`).",
            code(&names.name(&top.kernel)),
            percent(100.0 * top.work_ns() as f64 / total.max(1) as f64),
            duration(total as f64),
            busy::sum_title("kernels", profile),
            kernel_sums::apart_from_set_up(profile)
        ));
    }
    if let Some((launch, class)) = longest(profile) {
        sentences.extend(bound(launch, class, names));
    }
    if let Some(busy) = busy::busy(profile) {
        let (sentence, span) = (busy.sentence(), busy.span_words());
        sentences.push(format!("{sentence}, {span} (`timeline.devices`)."));
        sentences.extend(busy::graphs_note(profile).map(str::to_owned));
    }
    for share in profile.bound.iter().take(1) {
        sentences.push(format!("It reaches {} (`bound`).", share_text(share)));
    }
    for sol in profile.speed_of_light.iter().take(1).filter(|_| profile.bound.is_empty()) {
        sentences.push(format!(
            "It runs at {} of what its device allows (`speed_of_light.percent`, {} side).",
            percent(sol.percent),
            sol.bound
        ));
    }
    if sentences.is_empty() {
        sentences.push("Nothing was measured.".to_owned());
    }
    sentences
}

/// One sentence for each verdict on a launch, with the first number of its evidence.
fn bound(
    launch: &Launch,
    class: &rgpu_model::Classification,
    names: &KernelLabels<'_>,
) -> Vec<String> {
    let name = names.name(&launch.kernel);
    let sentences = class.verdicts.iter().filter_map(|v| {
        let e = v.evidence.first()?;
        let threshold =
            threshold(e).map(|threshold| format!(", threshold {threshold} from {}", e.source));
        Some(format!(
            "The verdict on `{}` is {} (`{}` = {}{}).",
            code(&name),
            v.verdict.replace('_', " "),
            code(&e.metric),
            measured(e.value, &e.unit),
            threshold.unwrap_or_default()
        ))
    });
    sentences.collect()
}

/// Foreign text for use between backticks.
fn code(text: &str) -> String {
    text.chars().map(|c| if c == '`' || c.is_control() { ' ' } else { c }).collect()
}
