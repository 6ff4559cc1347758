//! Makes findings of the verdicts on launches: one for each cause, with the kernels and launches
//! that it covers.
//!
//! Verdicts of one rule have one cause if their hint is equal, or their kernel: of several hints
//! for one kernel, that of the launch with the most time at stake is given. Of a kernel with
//! counters, only launches that have them are judged, and stand for the others of that kernel; in
//! mode `deep` for those with their geometry.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};

use super::classify::{LAUNCH_BOUND, Verdicts};
use super::geometry::GeometryTimes;
use super::known_kernel::{Author, author, fuse_hint, matrix_unit};
use super::operator_products::unfitting_size;
use super::rule::{Conclusion, Rule, VerdictRole};
use super::stake::{self, MeanGpuTime, gains};
use super::timeline::{GraphUse, Graphs};
use super::tuning::{self, Tuner};
use rgpu_model::finding::{CoveredKernel, GainScope, PotentialGain};
use rgpu_model::timeline::WHOLE_GRAPHS;
use rgpu_model::{Finding, Launch, Operator, Profile};

/// A finding about a smaller share of the time is left out: nobody would act on it.
const MIN_SHARE: f64 = 0.001;

/// The hint for short kernels of a CUDA graph.
const IN_GRAPH: &str = "it is in a CUDA graph already: fuse small kernels, or batch the work";

/// A launch with the verdict of one rule.
struct Member<'a> {
    launch: &'a Launch,
    conclusion: &'a Conclusion,
    hint: String,
    /// Time that it could give back, for itself and the launches that it stands for: at most, and at
    /// least if that is known.
    stake_ns: f64,
    least_ns: Option<f64>,
    /// GPU time of the same.
    total_ns: f64,
}

/// Verdicts of one cause.
struct Cause<'a> {
    rule: &'static Rule,
    members: Vec<Member<'a>>,
}

/// The findings of a profile's launches. `verdicts` has those on each launch; the launches of
/// `set_up` get none, since nobody tunes what runs once.
pub(super) fn findings(
    profile: &Profile,
    verdicts: &[Verdicts],
    graphs: &Graphs,
    set_up: &HashSet<u32>,
) -> Vec<Finding> {
    let benchmarked = tuning::benchmarked_launches(&profile.launches);
    let sums = LaunchSums::new(profile, benchmarked);
    let mut causes: Vec<Cause<'_>> = Vec::new();
    // The cause of each rule and kernel.
    let mut of_kernel: HashMap<(&str, &str), usize> = HashMap::new();
    let mut order: Vec<(&Launch, &Verdicts)> = profile.launches.iter().zip(verdicts).collect();
    let duration = |launch: &Launch| launch.duration_ns.unwrap_or_default();
    // Nobody tunes the kernels that tune.
    let tuning = tuning::kernels(&profile.launches, &profile.kernels);
    order.retain(|(launch, _)| {
        !tuning.contains_key(launch.kernel.as_str()) && !set_up.contains(&launch.id)
    });
    order.sort_by(|a, b| duration(b.0).total_cmp(&duration(a.0)));
    for (launch, verdicts) in order {
        // Inside a graph a launch costs little, and a matrix product is work that must be done.
        let is_work_of_graph =
            graphs.use_of(launch) == GraphUse::Inside && matrix_unit(&launch.kernel).is_some();
        let short = !is_work_of_graph
            && sums.by_kernel.len() > 1
            && verdicts.iter().any(|(rule, _)| rule.id == LAUNCH_BOUND);
        for ((rule, conclusion), gain) in verdicts.iter().zip(gains(launch, verdicts)) {
            // With several kernels, a short launch gets only its launch_bound verdict, and a
            // symptom is omitted unless it is the primary verdict.
            let primary = std::ptr::eq(*rule, verdicts[0].0);
            let is_reported = match rule.kind {
                _ if short => rule.id == LAUNCH_BOUND,
                _ if is_work_of_graph && rule.id == LAUNCH_BOUND => false,
                VerdictRole::Symptom => primary || sums.by_kernel.len() == 1,
                VerdictRole::Bound | VerdictRole::Cause => true,
            };
            if !is_reported || !sums.counts(launch, rule) {
                continue;
            }
            let total_ns = duration(launch) * sums.scale(launch, rule);
            let graph_use = graphs.use_of(launch);
            let hint = hint(rule, conclusion, launch, graph_use, &profile.operators);
            let at = *of_kernel.entry((rule.id, launch.kernel.as_str())).or_insert_with(|| {
                let same = |c: &Cause<'_>| c.rule.id == rule.id && c.members[0].hint == hint;
                causes.iter().position(same).unwrap_or_else(|| {
                    causes.push(Cause { rule, members: Vec::new() });
                    causes.len() - 1
                })
            });
            let stake_ns = gain.most * total_ns;
            let least_ns = gain.least.map(|least| least * total_ns);
            let member = Member { launch, conclusion, hint, stake_ns, least_ns, total_ns };
            causes[at].members.push(member);
        }
    }
    let findings = causes.into_iter().map(|cause| cause.into_finding(profile, &sums));
    // A bound that a deciding cause explains has nothing of its own to give back.
    let counts = |stake: &PotentialGain| stake.ns > 0 && sums.is_worth_a_finding(stake);
    findings.filter(|finding| finding.stake.as_ref().is_none_or(counts)).collect()
}

/// The next step for whoever can take it: hints about a kernel's code help only its author.
fn hint(
    rule: &Rule,
    conclusion: &Conclusion,
    launch: &Launch,
    graph_use: GraphUse,
    operators: &[Operator],
) -> String {
    if rule.id == LAUNCH_BOUND {
        return match graph_use {
            GraphUse::Inside => IN_GRAPH.to_owned(),
            GraphUse::Beside => {
                "the program replays CUDA graphs, and these launches are outside of \
                                 them, perhaps their warm-up: fuse small kernels, or batch the work"
                    .to_owned()
            }
            GraphUse::Absent => conclusion.hint.clone(),
        };
    }
    if ["tensor_bound", "fp32_gemm", "fp64_trickle"].contains(&rule.id) {
        return conclusion.hint.clone();
    }
    if let Some(fuse) = fuse_hint(&launch.kernel) {
        return fuse.to_owned();
    }
    match author(&launch.kernel) {
        Author::Library => {
            let sizes = match unfitting_size(operators, &launch.kernel) {
                Some((name, size)) => {
                    format!(", sizes that are multiples of 64: `{name}` has {size}")
                }
                None => String::new(),
            };
            format!(
                "the kernel is a library's: give it larger work (a larger batch{sizes}), a narrower \
                 type, or try another algorithm or backend of the library"
            )
        }
        _ => conclusion.hint.clone(),
    }
}

/// Launches and times of a profile's kernels.
struct LaunchSums<'a> {
    by_kernel: HashMap<&'a str, KernelLaunches>,
    /// Summed over `gpus`, without set-up.
    gpu_ns: f64,
    /// `None` without a timeline of all launches.
    of_gpu: Option<MeanGpuTime>,
    /// Whether the profile has a trace with several kernels.
    traces_several: bool,
    /// Ids of launches that only benchmarked a kernel.
    benchmarked: HashMap<u32, Tuner>,
    geometries: GeometryTimes<'a>,
}

#[derive(Default)]
struct KernelLaunches {
    /// Launches with and without counters, and their GPU time.
    counted: (u64, f64),
    uncounted: (u64, f64),
    /// Launches that only benchmarked the kernel.
    benchmarked: (u64, f64),
    /// Number and time of all other launches, as far as the profile sums them.
    all: Option<(u64, f64)>,
}

impl<'a> LaunchSums<'a> {
    /// `benchmarked` launches count for no kernel.
    fn new(profile: &'a Profile, benchmarked: HashMap<u32, Tuner>) -> LaunchSums<'a> {
        let mut by_kernel: HashMap<&str, KernelLaunches> = HashMap::new();
        for launch in &profile.launches {
            let sums = by_kernel.entry(&launch.kernel).or_default();
            if benchmarked.contains_key(&launch.id) {
                sums.benchmarked.0 += 1;
                sums.benchmarked.1 += launch.duration_ns.unwrap_or_default();
                continue;
            }
            let (launches, ns) =
                if launch.metrics.is_empty() { &mut sums.uncounted } else { &mut sums.counted };
            *launches += 1;
            *ns += launch.duration_ns.unwrap_or_default();
        }
        for kernel in &profile.kernels {
            if let Some(sums) = by_kernel.get_mut(kernel.kernel.as_str()) {
                let (launches, ns) = sums.benchmarked;
                let ns = kernel.set_up_ns.map_or(ns, |ns| ns as f64);
                let launches = kernel.launches.saturating_sub(launches);
                sums.all = Some((launches, (kernel.total_ns as f64 - ns).max(0.0)));
            }
        }
        let summed: f64 = profile.kernels.iter().map(|kernel| kernel.work_ns() as f64).sum();
        let times = by_kernel.values().map(|k| k.counted.1 + k.uncounted.1 + k.benchmarked.1);
        let listed: f64 = times.sum();
        // A timeline of the first events only has no span of all launches.
        let whole = profile.timeline.as_ref().filter(|timeline| !timeline.partial);
        LaunchSums {
            by_kernel,
            gpu_ns: if summed > 0.0 { summed } else { listed },
            of_gpu: MeanGpuTime::new(whole),
            traces_several: profile.kernels.len() > 1,
            benchmarked,
            geometries: GeometryTimes::new(profile),
        }
    }

    /// Whether a rule judges launches of this kernel by counters. How long launches are is known
    /// without them.
    fn by_counters(&self, launch: &Launch, rule: &Rule) -> bool {
        let Some(sums) = self.by_kernel.get(launch.kernel.as_str()) else { return false };
        match rule.id {
            LAUNCH_BOUND => sums.uncounted.0 == 0,
            _ => sums.counted.0 > 0,
        }
    }

    /// Whether a launch is one of those that the rule judges.
    fn counts(&self, launch: &Launch, rule: &Rule) -> bool {
        self.by_counters(launch, rule) != launch.metrics.is_empty()
            && !self.benchmarked.contains_key(&launch.id)
    }

    /// The time of the launches that the judged ones stand for, for each nanosecond of those.
    fn scale(&self, launch: &Launch, rule: &Rule) -> f64 {
        if let Some((_, scale)) = self.geometries.stands_for(launch) {
            return scale;
        }
        let Some(sums) = self.by_kernel.get(launch.kernel.as_str()) else { return 1.0 };
        let judged = if self.by_counters(launch, rule) { sums.counted.1 } else { sums.uncounted.1 };
        match sums.all {
            Some((_, total)) if judged > 0.0 && total > judged => total / judged,
            _ => 1.0,
        }
    }

    /// How many launches a judged one stands for.
    fn launches(&self, launch: &Launch, rule: &Rule) -> f64 {
        if let Some((launches, _)) = self.geometries.stands_for(launch) {
            return launches;
        }
        let Some(sums) = self.by_kernel.get(launch.kernel.as_str()) else { return 1.0 };
        let judged = if self.by_counters(launch, rule) { sums.counted.0 } else { sums.uncounted.0 };
        match sums.all {
            Some((all, _)) if all > judged => all as f64 / judged.max(1) as f64,
            _ => 1.0,
        }
    }

    /// The launches of a kernel.
    fn all_launches(&self, kernel: &str) -> u64 {
        let Some(sums) = self.by_kernel.get(kernel) else { return 0 };
        let listed = sums.counted.0 + sums.uncounted.0;
        sums.all.map_or(listed, |(all, _)| all.max(listed))
    }

    /// Whether a gain is not too small a part of the time for a finding.
    fn is_worth_a_finding(&self, stake: &PotentialGain) -> bool {
        // Of a program that hardly uses the GPU, the kernels count all the same.
        let of_kernels = stake.ns as f64 * self.gpus() / self.gpu_ns.max(1.0);
        let share = if stake.of == GainScope::Program { of_kernels } else { stake.share };
        share >= MIN_SHARE
    }

    /// Number of GPUs over which times of kernels are summed.
    fn gpus(&self) -> f64 {
        self.of_gpu.map_or(1.0, |time| time.gpus as f64)
    }

    /// The launches of which those that a rule judges are a part: these, and the benchmarks.
    fn judged(&self, profile: &Profile, rule: &Rule) -> usize {
        let judged = profile.launches.iter().filter(|launch| self.counts(launch, rule)).count();
        judged + self.benchmarked.len()
    }
}

impl Cause<'_> {
    fn into_finding(mut self, profile: &Profile, sums: &LaunchSums<'_>) -> Finding {
        self.members.sort_by(|a, b| b.stake_ns.total_cmp(&a.stake_ns));
        let covers = self.covers(sums);
        let first = &self.members[0];
        let ns: f64 = self.members.iter().map(|member| member.stake_ns).sum();
        let least_ns: Option<f64> = self.members.iter().map(|member| member.least_ns).sum();
        let several = sums.by_kernel.len() > 1;
        Finding {
            id: self.rule.id.to_owned(),
            category: self.rule.category.to_owned(),
            stake: interval(ns, least_ns, |ns| stake(self.rule, ns, first.launch, sums)),
            launch: Some(first.launch.id),
            kernel: several.then(|| first.launch.kernel.clone()),
            text: self.text(&covers, profile, sums),
            evidence: first.conclusion.evidence.clone(),
            hint: first.hint.clone(),
            covers,
            ..Finding::default()
        }
    }

    /// The kernels of the members, most time at stake first.
    fn covers(&self, sums: &LaunchSums<'_>) -> Vec<CoveredKernel> {
        let mut covers: Vec<CoveredKernel> = Vec::new();
        let mut index: HashMap<&str, usize> = HashMap::new();
        let mut sums_of: Vec<[f64; 3]> = Vec::new();
        for member in &self.members {
            let kernel = member.launch.kernel.as_str();
            let at = *index.entry(kernel).or_insert_with(|| {
                covers.push(CoveredKernel {
                    kernel: kernel.to_owned(),
                    text: member.conclusion.text.clone(),
                    ..CoveredKernel::default()
                });
                sums_of.push([0.0; 3]);
                covers.len() - 1
            });
            let launches = sums.launches(member.launch, self.rule);
            let sums = [launches, member.total_ns, member.stake_ns];
            sums_of[at].iter_mut().zip(sums).for_each(|(sum, value)| *sum += value);
        }
        for (covered, sums) in covers.iter_mut().zip(sums_of) {
            let [launches, total_ns, stake_ns] = sums.map(|sum| sum.round() as u64);
            (covered.launches, covered.total_ns, covered.stake_ns) = (launches, total_ns, stake_ns);
        }
        covers.sort_by_key(|covered| std::cmp::Reverse(covered.stake_ns));
        covers
    }

    fn text(&self, covers: &[CoveredKernel], profile: &Profile, sums: &LaunchSums<'_>) -> String {
        let first = &self.members[0];
        let members = self.members.len();
        if let [covered] = covers {
            if self.rule.id != LAUNCH_BOUND {
                return first.conclusion.text.clone();
            }
            let mut members: Vec<&Member<'_>> = self.members.iter().collect();
            let ns = |member: &Member<'_>| member.launch.duration_ns.unwrap_or_default();
            members.sort_by(|a, b| ns(a).total_cmp(&ns(b)));
            let typical = &members[members.len() / 2].conclusion.text;
            let all = sums.all_launches(&covered.kernel);
            return if covered.launches < all {
                format!("in {} of its {all} launches {typical}", covered.launches)
            } else {
                typical.clone()
            };
        }
        let predicate = match self.rule.id {
            LAUNCH_BOUND => {
                let limit =
                    first.conclusion.evidence.first().and_then(|e| e.threshold).unwrap_or_default();
                let as_launch =
                    if first.hint == IN_GRAPH { "" } else { ", about as long as a launch takes" };
                format!("run for less than {:.0} µs{as_launch}", limit / 1e3)
            }
            _ => self.rule.plural_predicate.to_owned(),
        };
        let total: f64 = self.members.iter().map(|member| member.total_ns).sum();
        let (part, whole, of, mean) = match (self.rule.id, sums.of_gpu) {
            (LAUNCH_BOUND, Some(MeanGpuTime { gpus, span_ns, .. })) => {
                let mean =
                    if gpus > 1 { format!(" (the mean of {gpus} GPUs)") } else { String::new() };
                (total / gpus as f64, span_ns, GainScope::Program, mean)
            }
            _ => (total, sums.gpu_ns, GainScope::Kernel, String::new()),
        };
        let judged = sums.judged(profile, self.rule);
        let kernels = profile.kernels.iter().filter(|kernel| kernel.kernel != WHOLE_GRAPHS);
        let listed: u64 = kernels.map(|kernel| kernel.launches).sum();
        let all = match listed > judged as u64 {
            true if first.launch.metrics.is_empty() => format!("first {judged} launches"),
            true => "profiled launches".to_owned(),
            false => "launches".to_owned(),
        };
        format!(
            "{members} launches of {} kernels {predicate}: {} of the {all}, {} of {}{mean}",
            covers.len(),
            percent(members as f64, judged as f64),
            percent(part, whole),
            of.words(),
        )
    }
}

/// The bound of `ns`, with an interval from `least_ns` on if that is known.
fn interval(
    ns: f64,
    least_ns: Option<f64>,
    bound: impl Fn(f64) -> Option<PotentialGain>,
) -> Option<PotentialGain> {
    let most = bound(ns)?;
    let low_ns = least_ns.and_then(&bound).map(|least| least.ns);
    Some(PotentialGain { low_ns, high_ns: low_ns.map(|_| most.ns), ..most })
}

fn stake(rule: &Rule, ns: f64, launch: &Launch, sums: &LaunchSums<'_>) -> Option<PotentialGain> {
    launch.duration_ns?;
    // The result of a whole range has no grid, and its time is the region's.
    if launch.grid == [0; 3] && !launch.region.is_empty() {
        let region = Some(rgpu_model::timeline::display_path(&launch.region));
        let share = stake::share(ns, launch.duration_ns?);
        let bound = PotentialGain::bound(ns.round() as u64, GainScope::Region, share);
        return Some(PotentialGain { region, ..bound });
    }
    let of_gpu = sums.of_gpu.filter(|_| sums.traces_several || rule.id == LAUNCH_BOUND);
    Some(stake::of_kernels(ns, sums.gpu_ns, of_gpu))
}

/// `61 %`, `4.2 %`, `less than 0.1 %`.
fn percent(part: f64, whole: f64) -> String {
    match 100.0 * part / whole.max(f64::MIN_POSITIVE) {
        share if share >= 9.95 => format!("{share:.0} %"),
        share if share >= 0.095 => format!("{share:.1} %"),
        _ => "less than 0.1 %".to_owned(),
    }
}
