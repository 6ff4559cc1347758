//! The first lines: what ran where, how fast, and whether the results are right; and the cases.

use super::View;
use crate::TextTable;
use crate::blocks::{Block, Blocks};
use crate::bound::{prediction_text, share_text};
use crate::phrase::{graph_text, memory_text, model_text};
use crate::quantity::{self, duration, per_second, percent, timestamp, usd};
use rgpu_model::error::ANOTHER_HOST;
use rgpu_model::profile::CodeLanguage;
use rgpu_model::profile::{BaselineTime, Correctness, Score, Timing, Trust};
use rgpu_model::profile::{CheckVerdict, TimingClock};
use rgpu_model::speed_of_light::{SpeedOfLight, Utilization};
use rgpu_model::{Profile, RungId};

/// Launch overhead in nanoseconds that is tolerated before the host-clock time is shown too.
const LAUNCH_NS: f64 = 100e3;

pub(super) fn add_head(out: &mut Blocks, view: &View<'_>) {
    let profile = view.profile;
    let gpu = profile.host.as_ref().and_then(|host| {
        host.gpus.iter().find(|g| Some(&g.uuid) == profile.gpu.as_ref()).map(|g| g.name.clone())
    });
    let (mode, remote) = (&profile.run.mode, &profile.run.remote);
    let text = match gpu.or_else(|| profile.device.clone()) {
        // Without host facts or a GPU name in the report, only the mode is known.
        None if profile.host.is_none() => mode.clone(),
        // For a file, `remote` is a possibly long path that the user typed, so it is left out.
        Some(gpu) if profile.kernel.language == CodeLanguage::Report => {
            format!("{mode} on {gpu}")
        }
        Some(gpu) => format!("{mode} on {gpu} ({remote})"),
        None => {
            let clock = profile.timing.as_ref().map(|t| &t.clock);
            let what = match clock {
                _ if is_check(profile) && profile.has_cpu_reference_time() => {
                    "nothing was verified, and the times are those of the reference on its CPU"
                }
                _ if is_check(profile) => "nothing was verified",
                _ if profile.has_cpu_reference_time() => {
                    "the times are those of the reference on its CPU, not the kernel's"
                }
                // torch kernels also run on the CPU.
                Some(TimingClock::HostClock) if profile.kernel.language == CodeLanguage::Python => {
                    "it ran on its CPU"
                }
                _ => "nothing ran on a GPU",
            };
            format!("{mode} was requested, but {remote} has no GPU: {what}")
        }
    };
    out.add(Block::Title(profile.kernel.name.clone(), text));
    if view.is_whole {
        add_run(out, profile);
    }
    if continued_without_gpu(profile) {
        out.field("help", ANOTHER_HOST);
    }
    if let Some(model) = &profile.kernel.model {
        out.field("model", model_text(model));
    }
    for memory in &profile.memory {
        out.field("memory", memory_text(memory));
    }
    if profile.cases.len() > 1 {
        add_cases(out, profile);
    } else if let Some(timing) = &profile.timing {
        out.field("time", timing_text(timing));
    }
    for text in profile.score.iter().flat_map(score_texts) {
        out.field("score", text);
    }
    for case in profile.cases.iter().filter(|case| !case.baselines.is_empty()) {
        out.field("speed-up", speedup_text(&case.baselines));
    }
    if let Some(correctness) = &profile.correctness {
        // The ANSI code (SGR) of the color.
        let sgr = match correctness.verdict.as_str() {
            "right" => "32",
            "wrong" => "31",
            _ => "",
        };
        let text = correctness_text(correctness);
        let painted = if sgr.is_empty() { 0 } else { text.len() };
        out.painted_field("results", text, sgr, painted);
    }
    if let [sol] = &profile.speed_of_light[..] {
        out.field("of the peak", speed_of_light_text(sol));
    }
    if let [share] = &profile.bound[..] {
        out.field("bound", share_text(share));
        if let Some(text) = prediction_text(share) {
            out.field("model", text);
        }
    }
    if let Some(selection) = &profile.selection {
        let profiled = || selection.kernels.iter().filter(|k| k.profiled > 0);
        let kernels = profiled().count();
        if kernels > 0 {
            let s = if kernels == 1 { "kernel that holds" } else { "kernels that hold" };
            let share = percent(profiled().map(|kernel| kernel.percent).sum());
            out.field("profiled", format!("{kernels} {s} {share} of the GPU time"));
        }
    }
    if let Some(spent) = profile.run.cost_usd {
        // A billed amount may cover a part of the run or more than its time, so no time is shown.
        out.field(
            "cost",
            match profile.run.cost_from.as_deref() {
                Some("provider") => quantity::cost(spent, Some("provider")),
                _ => format!("{} for {:.1} s", usd(spent), profile.run.seconds),
            },
        );
    }
    for warning in profile.stopped_pass().into_iter().chain(&profile.warnings) {
        out.field("warning", &warning.text);
    }
}

/// Adds the run, which a terminal has shown while it ran. An imported file has no start time.
fn add_run(out: &mut Blocks, profile: &Profile) {
    let run = &profile.run;
    let mut text = format!("`{}` on `{}`", run.id, run.remote);
    if !run.started.is_empty() {
        text += &format!(", {}, {:.1} s", timestamp(&run.started), run.seconds);
    }
    out.field("run", text);
}

/// Whether the run continued without a GPU. If that is a failure, the failure has its own hint.
fn continued_without_gpu(profile: &Profile) -> bool {
    profile.host.is_some()
        && profile.gpu.is_none()
        && profile.device.is_none()
        && profile.rung != RungId::None
        && !is_check(profile)
}

/// Whether the run was to check the kernel, not to time it.
fn is_check(profile: &Profile) -> bool {
    matches!(profile.run.mode.as_str(), "verify" | "sanitizer")
}

pub(super) fn timing_text(t: &Timing) -> String {
    let half = (t.ci95_ns[1] - t.ci95_ns[0]) / 2.0;
    let mut text = duration(t.median_ns);
    if t.median_ns > 0.0 && t.samples > 1 {
        text += &format!(" ± {}", percent(100.0 * half / t.median_ns));
    }
    let rate = |x: Option<f64>, unit| x.filter(|x| *x > 0.0).map(|x| per_second(x, unit));
    let rates = [rate(t.bytes_per_s, "B"), rate(t.flops_per_s, "FLOP")];
    rates.into_iter().flatten().for_each(|rate| text += &format!(", {rate}"));
    let clock = match t.clock {
        TimingClock::CudaEvents => "CUDA events",
        TimingClock::CpuReference => "the reference on the CPU",
        _ => "host clock",
    };
    text += &format!("  (median of {}, {clock}", t.samples);
    if t.l2_flushed {
        text += ", L2 flushed";
    }
    if t.verified.is_some_and(|calls| calls >= t.samples) {
        text += ", every output compared";
        if t.verified == t.distinct_inputs {
            text += " with fresh data for each call";
        }
    }
    text += ")";
    text += &trust_text(t);
    // More than launch overhead: much host-side preparation, or work that CUDA events do not cover.
    let exceeds_launch_overhead =
        |wall: &f64| t.clock == TimingClock::CudaEvents && *wall > 2.0 * t.median_ns + LAUNCH_NS;
    if let Some(wall) = t.wall_ns.filter(exceeds_launch_overhead) {
        text += &format!("; a whole call takes {} by the host's clock", duration(wall));
    }
    if let Some(graph) = &t.graph {
        text += &format!("; {} in a CUDA graph", graph_text(graph));
    }
    if let Some(cooling) = &t.cooling {
        text += &format!("; the GPU cooled for {:.0} s before", cooling.seconds);
    }
    text
}

/// What is to be said about the clock; nothing if the times are proven or of an older build.
fn trust_text(t: &Timing) -> String {
    match t.trust {
        Some(Trust::Bounded) => {
            let claim =
                t.claimed_ns.map(|ns| format!(", the kernel's process claims {}", duration(ns)));
            let why = t.trust_reason.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
            format!("; bounded by the judge's clock{}{why}", claim.unwrap_or_default())
        }
        Some(Trust::Unprotected) => {
            let why =
                t.trust_reason.as_deref().unwrap_or("the kernel shares a process with its clock");
            format!("; unprotected: {why}")
        }
        Some(Trust::Proven) | None => String::new(),
    }
}

fn speed_of_light_text(sol: &SpeedOfLight) -> String {
    let part = |u: &Utilization| {
        let unit = u.unit.trim_end_matches("/s").replace("byte", "B");
        let (share, peak) = (percent(u.percent), per_second(u.peak, &unit));
        format!("{share} of {peak} {} ({})", u.label, u.source)
    };
    let parts: Vec<String> = sol.flops.iter().chain(&sol.bytes).map(part).collect();
    parts.join(", ")
}

/// The distinct peaks that the shares of several cases refer to.
fn peaks_text(speeds: &[SpeedOfLight]) -> Option<String> {
    let mut texts: Vec<String> = Vec::new();
    for u in speeds.iter().flat_map(|s| s.bytes.iter().chain(&s.flops)) {
        let unit = u.unit.trim_end_matches("/s").replace("byte", "B");
        let text = format!("{} {} ({})", per_second(u.peak, &unit), u.label, u.source);
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    (!texts.is_empty()).then(|| texts.join(", "))
}

fn correctness_text(c: &Correctness) -> String {
    let mut text = c.verdict.to_string();
    match c.verdict {
        CheckVerdict::Right => {
            text += &format!(": {} values", c.checked);
            if let Some(max) = c.max_abs {
                text += &format!(
                    ", largest error {}",
                    if max == 0.0 { "0".into() } else { format!("{max:.1e}") }
                );
            }
        }
        // A function of the task refused the result as a whole.
        CheckVerdict::Wrong if c.wrong == 0 => {
            c.first_wrong.iter().for_each(|first| text += &format!(": {first}"));
        }
        CheckVerdict::Wrong => {
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
    if let (Some(calls), Some(inputs)) = (c.timed_calls, c.timed_inputs) {
        text += &format!("; {calls} timed calls on {inputs} sets of data compared too");
    }
    text
}

/// Our score, and the board's.
fn score_texts(score: &Score) -> Vec<String> {
    let of = match (score.ranking_by.as_str(), score.benchmarks) {
        ("geom", n) if n > 1 => format!("geometric mean of {n} benchmarks"),
        ("mean", n) if n > 1 => format!("mean of {n} benchmarks"),
        _ => "the last benchmark".to_owned(),
    };
    let ours = score.time_ns.map(|ns| format!("{}, {of}", duration(ns)));
    let board = score.board.as_ref().map(|board| match board.time_ns {
        Some(ns) => format!(
            "{} by the board's own program (unprotected: it shares the kernel's process)",
            duration(ns)
        ),
        None => format!("the board's own program gave none: {}", board.message),
    });
    ours.into_iter().chain(board).collect()
}

fn speedup_text(baselines: &[BaselineTime]) -> String {
    let texts = baselines.iter().map(|baseline| {
        let form = match baseline.form.as_str() {
            "compile" => "torch.compile of the reference",
            _ => "the reference",
        };
        let time = duration(baseline.median_ns);
        match baseline.speedup {
            Some(speedup) => format!("{speedup:.2}× over {form} ({time})"),
            None => format!("{form} takes {time}"),
        }
    });
    texts.collect::<Vec<_>>().join(", ")
}

fn add_cases(out: &mut Blocks, profile: &Profile) {
    let time = if profile.has_cpu_reference_time() { "reference" } else { "time" };
    let mut table = TextTable::new(&format!(
        "case | {time}: | ±: | bandwidth: | rate: | of DRAM: | of peak: | in a graph: | results"
    ));
    // If only some cases were timed, the others say so explicitly.
    let untimed =
        if profile.cases.iter().any(|case| case.timing.is_some()) { "not timed" } else { "" };
    let share = |u: Option<&Utilization>| u.map(|u| percent(u.percent)).unwrap_or_default();
    for case in &profile.cases {
        let t = case.timing.as_ref();
        let speed = profile.speed_of_light.iter().find(|s| s.case == case.name);
        let half = |t: &Timing| 50.0 * (t.ci95_ns[1] - t.ci95_ns[0]) / t.median_ns;
        table.add_row([
            case.name.clone(),
            t.map_or_else(|| untimed.to_owned(), |t| duration(t.median_ns)),
            t.filter(|t| t.samples > 1 && t.median_ns > 0.0)
                .map(|t| percent(half(t)))
                .unwrap_or_default(),
            t.and_then(|t| t.bytes_per_s).map(|x| per_second(x, "B")).unwrap_or_default(),
            t.and_then(|t| t.flops_per_s).map(|x| per_second(x, "FLOP")).unwrap_or_default(),
            share(speed.and_then(|s| s.bytes.as_ref())),
            share(speed.and_then(|s| s.flops.as_ref())),
            t.and_then(|t| t.graph.as_ref()).map(graph_text).unwrap_or_default(),
            case.correctness.as_ref().map(|c| c.verdict.to_string()).unwrap_or_default(),
        ]);
    }
    if let Some(mean) = &profile.geometric_mean {
        let half = mean.ci95_ns.map(|ci| 50.0 * (ci[1] - ci[0]) / mean.median_ns);
        let cell = |x: Option<f64>| x.map(percent).unwrap_or_default();
        table.add_row([
            "geometric mean".to_owned(),
            duration(mean.median_ns),
            cell(half),
            String::new(),
            String::new(),
            cell(mean.bytes_percent),
            cell(mean.flops_percent),
        ]);
    }
    out.table("cases", table);
    if profile.bound.len() > 1 {
        for (at, share) in profile.bound.iter().enumerate() {
            let label = if at == 0 { "bounds" } else { "" };
            out.field(label, format!("{}: {}", share.case, share_text(share)));
            if let Some(text) = prediction_text(share) {
                out.field("", text);
            }
        }
    }
    if let Some(peaks) = peaks_text(&profile.speed_of_light) {
        out.field("peaks", &peaks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Style, report};
    use rgpu_model::profile::CaseResult;

    #[test]
    fn times_of_the_reference_are_called_so_whichever_cases_have_one() {
        let timing = Timing {
            clock: TimingClock::CpuReference,
            median_ns: 194e6,
            samples: 5,
            ..Timing::default()
        };
        let case = |name: &str, timing: Option<&Timing>| CaseResult {
            name: name.to_owned(),
            timing: timing.cloned(),
            ..CaseResult::default()
        };
        let mut profile = Profile {
            cases: vec![case("pair", None), case("ragged-1", Some(&timing))],
            host: Some(Default::default()),
            rung: RungId::Nvtx,
            ..Profile::default()
        };
        profile.kernel.name = "k".to_owned();
        profile.run.mode = "ncu".to_owned();
        profile.run.remote = "box".to_owned();
        let text = report("table").unwrap().text(&(&profile).into(), &Style::default());
        insta::assert_snapshot!(text);
        // A check that was not made comes first.
        profile.run.mode = "verify".to_owned();
        let text = report("table").unwrap().text(&(&profile).into(), &Style::default());
        let head: Vec<&str> = text.split_whitespace().collect();
        let head = head.join(" ");
        let expected =
            "k verify was requested, but box has no GPU: nothing was verified, and the times";
        assert!(head.starts_with(expected) && !head.contains("choose a host"), "{text}");
    }
}
