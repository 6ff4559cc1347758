//! `report.md` of the run folder: the same facts as on the terminal.

use super::kernels::no_kernels_note;
use super::{KernelLabels, TextTable, plain, section, sentence};
use crate::busy;
use crate::checks;
use crate::finding;
use crate::kernel_sums::set_up_cell;
use crate::missing;
use crate::quantity::{cost, duration, measured, per_second, percent, threshold, timestamp};
use crate::ranks;
use crate::region_rows;
use crate::terminal::head::graph_text;
use crate::terminal::launches::{roofline_text, stalls_text};
use crate::terminal::selection;
use crate::text::capital;
use rgpu_model::Profile;
use rgpu_model::metric::{self, MainMetric};

/// The maximum number of launches listed.
const MAX_LAUNCHES: usize = 100;

pub(super) fn report(profile: &Profile, names: &KernelLabels<'_>) -> String {
    let mut out = format!("# {} ({})\n\n", plain(&profile.kernel.name), profile.run.mode);
    let run = &profile.run;
    out += &format!("Run `{}` on `{}`, ", run.id, run.remote);
    // An imported file has no start time and no duration of the run.
    if !run.started.is_empty() {
        out += &format!("{}, {:.1} s, ", timestamp(&run.started), run.seconds);
        if let Some(spent) = run.cost_usd {
            out += &format!("{}, ", cost(spent, run.cost_from.as_deref()));
        }
    }
    let lost =
        profile.data_lost_on_rung().map_or_else(String::new, |lost| format!(", without {lost}"));
    out += &format!("rung `{}`{lost}.\n\n", profile.rung);
    for warning in profile.stopped_pass().into_iter().chain(&profile.warnings) {
        out += &format!(
            "**Warning:** {}.\n\n",
            sentence(&capital(warning.text.trim_end_matches('.')))
        );
    }
    if profile.has_cpu_reference_time() {
        out += "No GPU was measured: the times are those of the reference on the CPU, not the kernel's.\n\n";
    }
    findings(&mut out, profile, names);
    kernel_verdicts(&mut out, profile, names);
    out += "## Cases\n\n";
    let mut table = TextTable::new(
        "case | median: | 95 % interval: | samples: | by host clock: | in a CUDA graph: | \
         bandwidth: | rate: | results",
    );
    for case in &profile.cases {
        let t = case.timing.as_ref();
        let cell = |text: Option<String>| text.unwrap_or_default();
        table.add_row([
            plain(&case.name),
            cell(t.map(|t| duration(t.median_ns))),
            cell(t.map(|t| format!("{} – {}", duration(t.ci95_ns[0]), duration(t.ci95_ns[1])))),
            cell(t.map(|t| t.samples.to_string())),
            cell(t.and_then(|t| t.wall_ns).map(duration)),
            cell(t.and_then(|t| t.graph.as_ref()).map(graph_text)),
            cell(t.and_then(|t| t.bytes_per_s).map(|x| per_second(x, "B"))),
            cell(t.and_then(|t| t.flops_per_s).map(|x| per_second(x, "FLOP"))),
            cell(case.correctness.as_ref().map(|c| c.verdict.to_string())),
        ]);
    }
    if let Some(mean) = &profile.geometric_mean {
        let interval =
            mean.ci95_ns.map(|[low, high]| format!("{} – {}", duration(low), duration(high)));
        table.add_row([
            "geometric mean".to_owned(),
            duration(mean.median_ns),
            interval.unwrap_or_default(),
        ]);
    }
    section(&mut out, table, "No case was timed on this rung.");

    out += "## Kernels\n\n";
    if let Some(gpus) = busy::several_gpus(profile).filter(|_| !profile.kernels.is_empty()) {
        out += &format!("Times are summed over {gpus}.\n\n");
    }
    busy::graphs_note(profile).iter().for_each(|note| out.push_str(&format!("{note}\n\n")));
    let mut table = TextTable::new("kernel | launches: | total: | of it set-up: | mean:");
    for k in &profile.kernels {
        let mean = k.total_ns as f64 / k.launches.max(1) as f64;
        table.add_row([
            plain(&names.name(&k.kernel)),
            k.launches.to_string(),
            duration(k.total_ns as f64),
            set_up_cell(k),
            duration(mean),
        ]);
    }
    section(&mut out, table.without_empty_columns(), no_kernels_note(profile));

    launches(&mut out, profile, names);

    sanitizer(&mut out, profile, names);
    if let Some(of_program) = &profile.ranks {
        out += &format!("## Ranks\n\n{}.\n\n", ranks::clock(&of_program.clock));
        section(&mut out, ranks::times(of_program), "");
        section(&mut out, ranks::idle(of_program), "No rank was idle.");
        section(&mut out, ranks::collectives(of_program), "No collective was matched.");
        section(&mut out, ranks::waits(of_program), "No collective waited for a rank.");
        if let Some(step) = ranks::slowest_step(of_program) {
            out += &format!("Steps: {}.\n\n", plain(&step));
        }
        if let Some(rest) = ranks::left_out(of_program) {
            out += &format!("… and {rest}.\n\n");
        }
    }
    out += "## Regions\n\n";
    let mut table = TextTable::new("region | count: | host: | GPU: | GPU span:");
    for row in region_rows::rows(profile, usize::MAX) {
        let time = |ns: Option<u64>| ns.map(|ns| duration(ns as f64)).unwrap_or_default();
        let count = row.instances.map(|n| n.to_string()).unwrap_or_default();
        let (host, span) = (time(row.host_ns), time(row.gpu_span_ns));
        table.add_row([plain(&row.label), count, host, row.gpu_text(), span]);
    }
    let table = table.without_empty_columns();
    section(&mut out, table, "No NVTX region was seen.");
    region_rows::gpu_note(profile).iter().for_each(|note| out += &format!("{note}.\n\n"));

    out += "## Ladder\n\n";
    let mut table = TextTable::new("step | rung | ok | reason | message | seconds:");
    for r in &profile.ladder {
        let ok = if r.ok { "yes" } else { "no" };
        table.add_row([
            r.step.clone(),
            r.rung.clone(),
            ok.into(),
            r.code.clone(),
            plain(&r.message),
            format!("{:.2}", r.seconds),
        ]);
    }
    section(&mut out, table, "No rung was tried.");

    out += "## Missing\n\n";
    if profile.missing().next().is_none() {
        out += "Nothing that was requested is missing.\n";
    }
    for missing in missing::texts(profile.missing(), names) {
        out += &format!("- `{}`: {}\n", missing.code, sentence(&missing.text));
    }
    out
}

/// The findings with their advice and evidence.
fn findings(out: &mut String, profile: &Profile, names: &KernelLabels<'_>) {
    *out += "## What to try\n\n";
    if profile.findings.is_empty() {
        *out += "No findings.\n\n";
    }
    for (at, finding) in profile.findings.iter().enumerate() {
        let text = match finding::kernel(finding, names) {
            Some(kernel) => format!("{}: {}", plain(&kernel), sentence(&finding.text)),
            None => sentence(&capital(&finding.text)),
        };
        *out += &format!("{}. **{text}** (`{}`)", at + 1, finding.id);
        let hint = finding::hint(&profile.findings, at);
        if !hint.is_empty() {
            *out += &format!(" → {}", sentence(&hint));
        }
        out.push('\n');
        if let Some(worth) = finding::worth(finding, profile) {
            *out += &format!("   - worth {}\n", sentence(&worth));
        }
        for place in &finding.places {
            *out += &format!("   - {}\n", sentence(&finding::idle_location_text(place, names)));
        }
        if let Some(covered) = finding::covered(finding, names) {
            *out += &format!("   - in {}\n", plain(&covered));
        }
        for e in &finding.evidence {
            let against = threshold(e).map(|limit| format!(" (threshold {limit}, {})", e.source));
            let value = measured(e.value, &e.unit);
            *out += &format!("   - `{}` = {value}{}\n", e.metric, against.unwrap_or_default());
        }
    }
    if !profile.findings.is_empty() {
        out.push('\n');
    }
}

/// The limits of the kernels that take most GPU time.
fn kernel_verdicts(out: &mut String, profile: &Profile, names: &KernelLabels<'_>) {
    if profile.kernel_verdicts.is_empty() {
        return;
    }
    *out += "## What limits the kernels\n\n";
    for text in selection::sentences(profile) {
        *out += &format!("{text}\n\n");
    }
    for v in &profile.kernel_verdicts {
        let (name, share) = (plain(&names.name(&v.kernel)), percent(v.percent));
        let verdict = v.verdict.as_deref().unwrap_or("no verdict");
        *out += &format!("- {name} ({share}): **{verdict}** {}\n", sentence(&v.text));
    }
    out.push('\n');
}

/// The checks of the sanitizer: verdict, errors and causes of each, and those that did not run.
fn sanitizer(out: &mut String, profile: &Profile, names: &KernelLabels<'_>) {
    if profile.sanitizer.is_empty() {
        return;
    }
    *out += "## Sanitizer\n\n";
    let mut table = TextTable::new("check | verdict | errors: | causes: | note");
    for result in &profile.sanitizer {
        table.add_row([
            plain(&result.tool),
            plain(&result.verdict),
            result.errors.map(|errors| errors.to_string()).unwrap_or_default(),
            result.causes.len().to_string(),
            plain(&result.note),
        ]);
    }
    section(out, table, "");
    let covered = checks::covered(profile, names).map(|text| plain(&text));
    let texts = [covered, checks::not_run(profile)];
    texts.into_iter().flatten().for_each(|text| *out += &format!("{text}\n\n"));
    for cause in profile.sanitizer.iter().flat_map(|result| &result.causes) {
        *out += &format!("- {}\n", plain(&checks::cause(cause, names)));
    }
    if profile.sanitizer.iter().any(|result| !result.causes.is_empty()) {
        out.push('\n');
    }
}

/// The launches with counters: how busy their units were, stalls, roofline and verdict.
fn launches(out: &mut String, profile: &Profile, names: &KernelLabels<'_>) {
    let mut counted =
        profile.launches.iter().filter(|launch| !launch.metrics.is_empty()).peekable();
    if counted.peek().is_none() {
        return;
    }
    *out += "## Launches\n\n";
    let mut table = TextTable::new(
        "launch: | kernel | duration: | SM %: | mem %: | occ %: | regs: | verdict | stalls | \
         roofline",
    );
    for launch in counted.by_ref().take(MAX_LAUNCHES) {
        let metric = |of: MainMetric| {
            launch.first_number(of.ids).map(|(_, x)| format!("{x:.1}")).unwrap_or_default()
        };
        let verdict = launch.classification.as_ref().map(|class| class.primary.clone());
        table.add_row([
            launch.id.to_string(),
            plain(&names.name(&launch.kernel)),
            launch.duration_ns.map(duration).unwrap_or_default(),
            metric(metric::SM_THROUGHPUT),
            metric(metric::MEMORY_THROUGHPUT),
            metric(metric::OCCUPANCY),
            launch.registers.map(|n| n.to_string()).unwrap_or_default(),
            verdict.unwrap_or_default(),
            plain(&stalls_text(launch).unwrap_or_default()),
            plain(&roofline_text(launch).unwrap_or_default()),
        ]);
    }
    section(out, table.without_empty_columns(), "");
    match counted.count() {
        0 => {}
        more => *out += &format!("… and {more} more in `profile.json`.\n\n"),
    }
}
