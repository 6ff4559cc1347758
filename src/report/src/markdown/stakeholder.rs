//! `stakeholder_summary.md`: a summary for readers who decide but do not profile. It says what was
//! measured, the results, and what to do; each sentence of the narrative has its number.

use super::{KernelLabels, TextTable, kernels, operators, plain, section};
use crate::bound::share_text;
use crate::finding;
use crate::headline::{headline, longest};
use crate::quantity::{duration, measured, per_second, percent, threshold};
use crate::region_rows;
use crate::terminal::stages as model_stages;
use crate::text::capital;
use crate::{ReportInput, busy, kernel_sums};
use rgpu_model::profile::TimingClock;
use rgpu_model::{Launch, Profile, Stage};

/// The maximum number of rows of the top tables and recommendations.
const MAX_TOP_ROWS: usize = 10;

pub(super) fn report(subject: &ReportInput<'_>, names: &KernelLabels<'_>) -> String {
    let profile = subject.profile;
    let mut out = format!("# {}: summary\n\n", plain(&profile.kernel.name));
    executive(&mut out, subject, names);
    heading(&mut out, "Environment");
    section(&mut out, environment(profile), "The host of this run is unknown.");
    heading(&mut out, "Aggregates");
    section(&mut out, aggregates(subject), "Nothing was timed on the GPU.");
    heading(&mut out, "Per-Region Timings");
    section(
        &mut out,
        regions(profile),
        "No NVTX range was recorded, so there are no times by region.",
    );
    region_rows::gpu_note(profile).iter().for_each(|note| out += &format!("{note}.\n\n"));
    heading(&mut out, "Per-Stage Timings");
    section(
        &mut out,
        stages(profile),
        "No step of a run was recorded: this is of a report file alone.",
    );
    heading(&mut out, "MFU");
    mfu(&mut out, profile);
    heading(&mut out, "Top Operators");
    section(&mut out, operators::table(profile, names, MAX_TOP_ROWS), operators::NO_OPERATORS_NOTE);
    heading(&mut out, "Top Kernels");
    section(
        &mut out,
        kernels::table(profile, names, MAX_TOP_ROWS),
        kernels::no_kernels_note(profile),
    );
    heading(&mut out, "Recommendations");
    recommendations(&mut out, profile, names);
    heading(&mut out, "Narrative");
    narrative(&mut out, subject, names);
    out
}

fn heading(out: &mut String, text: &str) {
    out.push_str(&format!("## {text}\n\n"));
}

fn executive(out: &mut String, subject: &ReportInput<'_>, names: &KernelLabels<'_>) {
    heading(out, "Executive Summary");
    let (head, profile) = (headline(subject, names), subject.profile);
    out.push_str(&format!(
        "**{}.** {}\n\n",
        plain(&head.title),
        sentence(&head.text, names, profile)
    ));
    match profile.findings.first() {
        Some(first) => {
            out.push_str(&format!(
                "First thing to do: {}\n\n",
                sentence(&first.hint, names, profile)
            ));
        }
        None => out.push_str("No findings.\n\n"),
    }
}

fn environment(profile: &Profile) -> TextTable {
    let mut table = TextTable::new("what | value");
    let gpu = profile
        .host
        .as_ref()
        .and_then(|h| h.gpus.iter().find(|g| Some(&g.uuid) == profile.gpu.as_ref()));
    let was_built = !profile.code.is_empty() || !kernels::nothing_ran_on_a_gpu(profile);
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
        if let Some(value) = value.filter(|v| !v.is_empty()) {
            table.add_row([what.to_owned(), plain(&value)]);
        }
    }
    table
}

fn aggregates(subject: &ReportInput<'_>) -> TextTable {
    let profile = subject.profile;
    let mut table = TextTable::new("what | value:");
    let mut row = |what: &str, value: String| table.add_row([what.to_owned(), value]);
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
        let ns = duration(c.total_ns as f64);
        row(&format!("{} ×{}", plain(&c.kind), c.count), ns);
    }
    if let Some(busy) = busy::busy(profile) {
        row("time from first to last kernel", busy.span());
        let start_up = busy.start_up();
        let part = if start_up.is_some() { "the rest" } else { "it" };
        start_up.into_iter().for_each(|ns| row("start-up in it", ns));
        row(&format!("share of {part} with the GPU busy"), busy.percent());
    }
    table
}

fn regions(profile: &Profile) -> TextTable {
    let mut table = TextTable::new("region | count: | host: | GPU: | launches:");
    let time = |ns: Option<u64>| ns.map(|ns| duration(ns as f64)).unwrap_or_default();
    for row in region_rows::rows(profile, usize::MAX) {
        table.add_row([
            plain(&row.label),
            row.instances.map(|n| n.to_string()).unwrap_or_default(),
            time(row.host_ns),
            row.gpu_text(),
            row.launches.to_string(),
        ]);
    }
    table
}

/// The steps of the run from the ladder.
fn stages(profile: &Profile) -> TextTable {
    let mut table = TextTable::new("stage | rung | succeeded | seconds:");
    for r in &profile.ladder {
        let succeeded = if r.ok { "yes".to_owned() } else { format!("no: {}", r.code) };
        table.add_row([r.step.clone(), r.rung.clone(), succeeded, format!("{:.2}", r.seconds)]);
    }
    if profile.run.seconds > 0.0 {
        let seconds = format!("{:.2}", profile.run.seconds);
        table.add_row([
            "the whole run".to_owned(),
            profile.rung.to_string(),
            String::new(),
            seconds,
        ]);
    }
    table
}

/// The rates and the MFU of cases with declared work, and of a model's stages.
fn mfu(out: &mut String, profile: &Profile) {
    let is_rated = |stage: &Stage| stage.flops_per_s.is_some() || stage.utilization.is_some();
    if !profile.stages.iter().any(is_rated) {
        let why = if kernels::nothing_ran_on_a_gpu(profile) {
            "Nothing was measured on a GPU, so no share of its peak is known."
        } else {
            "No `[work]` is declared, so neither the useful operations nor the share of the peak are known."
        };
        return section(out, utilisation(profile), why);
    }
    if !profile.speed_of_light.is_empty() {
        section(out, utilisation(profile), "");
    }
    section(out, model_stages::table(profile, plain), "");
    if let Some(peak) = profile.stages.iter().find_map(|stage| stage.utilization.as_ref()) {
        let (label, rate) = (plain(&peak.label), per_second(peak.peak, "FLOP"));
        out.push_str(&format!(
            "{} is the share of {rate}: {label} ({}).\n\n",
            model_stages::mfu_name(profile),
            plain(&peak.source)
        ));
    }
    if let Some(note) = model_stages::mfu_note(profile) {
        out.push_str(&format!("Note: {note}.\n\n"));
    }
}

fn utilisation(profile: &Profile) -> TextTable {
    let mut table = TextTable::new("case | reached: | peak: | share: | which peak | source");
    for sol in &profile.speed_of_light {
        for (name, part) in [("MFU", &sol.flops), ("DRAM", &sol.bytes)] {
            let Some(u) = part else { continue };
            let unit = u.unit.trim_end_matches("/s").replace("byte", "B");
            table.add_row([
                plain(&format!("{} ({name})", sol.case)),
                per_second(u.achieved, &unit),
                per_second(u.peak, &unit),
                percent(u.percent),
                plain(&u.label),
                plain(&u.source),
            ]);
        }
    }
    table
}

fn recommendations(out: &mut String, profile: &Profile, names: &KernelLabels<'_>) {
    if profile.findings.is_empty() {
        out.push_str("No findings.\n\n");
        return;
    }
    for (at, f) in profile.findings.iter().enumerate().take(MAX_TOP_ROWS) {
        let kernel = finding::kernel(f, names).map(|kernel| format!("`{}`: ", code(&kernel)));
        let (kernel, hint) = (kernel.unwrap_or_default(), sentence(&f.hint, names, profile));
        let why = f.text.trim().replace('<', "&lt;");
        let worth = finding::worth(f, profile).map(|worth| format!(" Worth {}.", plain(&worth)));
        let worth = worth.unwrap_or_default();
        out.push_str(&format!("{}. {kernel}{hint} Because {why}.{worth}\n", at + 1));
    }
    out.push('\n');
}

fn narrative(out: &mut String, subject: &ReportInput<'_>, names: &KernelLabels<'_>) {
    let profile = subject.profile;
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
            plain(&sol.bound)
        ));
    }
    if sentences.is_empty() {
        sentences.push("Nothing was measured.".to_owned());
    }
    out.push_str(&sentences.join(" "));
    out.push('\n');
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
        let threshold = threshold(e)
            .map(|threshold| format!(", threshold {threshold} from {}", plain(&e.source)));
        Some(format!(
            "The verdict on `{}` is {} (`{}` = {}{}).",
            code(&name),
            v.verdict.replace('_', " "),
            code(&e.metric),
            plain(&measured(e.value, &e.unit)),
            threshold.unwrap_or_default()
        ))
    });
    sentences.collect()
}

/// One of our own texts as a sentence, with a capital and a full stop. Its backticks stay markup. A
/// name at its start, such as `cuDNN` or that of a kernel, stays as it is.
fn sentence(text: &str, names: &KernelLabels<'_>, profile: &Profile) -> String {
    let text = text.trim();
    let starts_with = |kernel: &str| {
        let rest = text.strip_prefix(names.name(kernel).as_str());
        rest.is_some_and(|rest| rest.starts_with([' ', ':']))
    };
    let is_name = text.split(' ').next().is_some_and(|word| {
        word.contains(|c: char| c.is_uppercase() || c.is_ascii_digit() || c == '_')
    });
    let is_name = is_name || profile.kernels.iter().any(|sum| starts_with(&sum.kernel));
    let stop = if text.ends_with(['.', '!', '?']) { "" } else { "." };
    let text = if is_name { text.to_owned() } else { capital(text) };
    format!("{}{stop}", text.replace('<', "&lt;"))
}

/// Foreign text for use between backticks.
fn code(text: &str) -> String {
    text.chars().map(|c| if c == '`' || c.is_control() { ' ' } else { c }).collect()
}
