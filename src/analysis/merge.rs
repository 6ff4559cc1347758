//! Makes findings of the verdicts on launches: one for each cause, with the kernels and launches
//! that it covers.
//!
//! Verdicts have one cause if their rule and their hint are equal. Of a kernel with counters, only
//! launches that have them are judged, and stand for the others of that kernel.

use std::collections::{HashMap, HashSet};

use super::classify::Verdicts;
use super::known_kernel::{Author, author};
use super::rule::{Conclusion, Kind, Rule};
use super::stake::gains;
use crate::model::finding::{CoveredKernel, Stake, StakeScope};
use crate::model::{Finding, Launch, Profile};

const LAUNCH_BOUND: &str = "launch_bound";

/// A launch with the verdict of one rule.
struct Member<'a> {
    launch: &'a Launch,
    conclusion: &'a Conclusion,
    /// Time that it could give back, for itself and the launches that it stands for.
    stake_ns: f64,
    /// GPU time of the same.
    total_ns: f64,
}

/// Verdicts of one cause.
struct Cause<'a> {
    rule: &'static Rule,
    hint: String,
    members: Vec<Member<'a>>,
}

/// The findings of a profile's launches. `verdicts` has those on each launch, `graphs` the ids of
/// launches that belong to CUDA graphs.
pub(super) fn findings(
    profile: &Profile,
    verdicts: &[Verdicts],
    graphs: &HashSet<u32>,
) -> Vec<Finding> {
    let sums = LaunchSums::new(profile);
    let mut causes: Vec<Cause<'_>> = Vec::new();
    let mut order: Vec<(&Launch, &Verdicts)> = profile.launches.iter().zip(verdicts).collect();
    let duration = |launch: &Launch| launch.duration_ns.unwrap_or_default();
    order.sort_by(|a, b| duration(b.0).total_cmp(&duration(a.0)));
    for (launch, verdicts) in order {
        let short =
            sums.by_kernel.len() > 1 && verdicts.iter().any(|(rule, _)| rule.id == LAUNCH_BOUND);
        for ((rule, conclusion), gain) in verdicts.iter().zip(gains(launch, verdicts)) {
            // Of several kernels, only what matters is told: nothing but the length of launches of a
            // few µs, and no symptom of a verdict that is told.
            let primary = std::ptr::eq(*rule, verdicts[0].0);
            let told = match rule.kind {
                _ if short => rule.id == LAUNCH_BOUND,
                Kind::Symptom => primary || sums.by_kernel.len() == 1,
                Kind::Bound | Kind::Cause => true,
            };
            if !told || !sums.counts(launch, rule) {
                continue;
            }
            let total_ns = duration(launch) * sums.scale(launch, rule);
            let hint = hint(rule, conclusion, launch, graphs.contains(&launch.id));
            let cause = causes.iter_mut().find(|c| c.rule.id == rule.id && c.hint == hint);
            let member = Member { launch, conclusion, stake_ns: gain * total_ns, total_ns };
            match cause {
                Some(cause) => cause.members.push(member),
                None => causes.push(Cause { rule, hint, members: vec![member] }),
            }
        }
    }
    causes.into_iter().map(|cause| cause.into_finding(profile, &sums)).collect()
}

/// The next step for whoever can take it: hints about a kernel's code help only its author.
fn hint(rule: &Rule, conclusion: &Conclusion, launch: &Launch, in_graph: bool) -> String {
    if rule.id == LAUNCH_BOUND {
        return match in_graph {
            true => {
                "it is in a CUDA graph already: fuse small kernels, or batch the work".to_owned()
            }
            false => conclusion.hint.clone(),
        };
    }
    if ["tensor_bound", "fp32_gemm", "fp64_trickle"].contains(&rule.id) {
        return conclusion.hint.clone();
    }
    match author(&launch.kernel) {
        Author::User => conclusion.hint.clone(),
        Author::Torch => "these are torch's own kernels: let `torch.compile` fuse them, call one \
                          fused operator in place of several, and give them larger or contiguous \
                          tensors"
            .to_owned(),
        Author::Library => "the kernel is a library's: give it larger or better shaped work (a \
                            larger batch, sizes that are multiples of 64), a narrower type, or try \
                            another algorithm or backend of the library"
            .to_owned(),
    }
}

/// Launches and times of a profile's kernels.
struct LaunchSums<'a> {
    by_kernel: HashMap<&'a str, KernelLaunches>,
    gpu_ns: f64,
    wall_ns: Option<f64>,
}

#[derive(Default)]
struct KernelLaunches {
    /// Launches with and without counters, and their GPU time.
    counted: (u64, f64),
    uncounted: (u64, f64),
    /// Time of all launches, as far as the profile sums it.
    total_ns: Option<f64>,
}

impl<'a> LaunchSums<'a> {
    fn new(profile: &'a Profile) -> LaunchSums<'a> {
        let mut by_kernel: HashMap<&str, KernelLaunches> = HashMap::new();
        for launch in &profile.launches {
            let sums = by_kernel.entry(&launch.kernel).or_default();
            let (launches, ns) = match launch.metrics.is_empty() {
                true => &mut sums.uncounted,
                false => &mut sums.counted,
            };
            *launches += 1;
            *ns += launch.duration_ns.unwrap_or_default();
        }
        for kernel in &profile.kernels {
            if let Some(sums) = by_kernel.get_mut(kernel.kernel.as_str()) {
                sums.total_ns = Some(kernel.total_ns as f64);
            }
        }
        let summed: f64 = profile.kernels.iter().map(|kernel| kernel.total_ns as f64).sum();
        let listed: f64 = by_kernel.values().map(|k| k.counted.1 + k.uncounted.1).sum();
        let wall = profile.timeline.iter().flat_map(|timeline| &timeline.devices);
        let wall = wall.map(|device| device.span_ns).max();
        LaunchSums {
            by_kernel,
            gpu_ns: if summed > 0.0 { summed } else { listed },
            wall_ns: wall.filter(|ns| *ns > 0).map(|ns| ns as f64),
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
    }

    /// The time of all launches of the kernel for each nanosecond of those that are judged.
    fn scale(&self, launch: &Launch, rule: &Rule) -> f64 {
        let Some(sums) = self.by_kernel.get(launch.kernel.as_str()) else { return 1.0 };
        let judged = if self.by_counters(launch, rule) { sums.counted.1 } else { sums.uncounted.1 };
        match sums.total_ns {
            Some(total) if judged > 0.0 && total > judged => total / judged,
            _ => 1.0,
        }
    }

    /// The launches that a rule judges, of all kernels.
    fn judged(&self, profile: &Profile, rule: &Rule) -> usize {
        profile.launches.iter().filter(|launch| self.counts(launch, rule)).count()
    }
}

impl Cause<'_> {
    fn into_finding(mut self, profile: &Profile, sums: &LaunchSums<'_>) -> Finding {
        self.members.sort_by(|a, b| b.stake_ns.total_cmp(&a.stake_ns));
        let covers = self.covers();
        let first = &self.members[0];
        let ns: f64 = self.members.iter().map(|member| member.stake_ns).sum();
        let several = sums.by_kernel.len() > 1;
        Finding {
            id: self.rule.id.to_owned(),
            category: self.rule.category.to_owned(),
            stake: stake(self.rule, ns, first.launch, sums),
            launch: Some(first.launch.id),
            kernel: several.then(|| first.launch.kernel.clone()),
            text: self.text(&covers, profile, sums),
            evidence: first.conclusion.evidence.clone(),
            hint: self.hint,
            covers,
            ..Finding::default()
        }
    }

    /// The kernels of the members, most time at stake first.
    fn covers(&self) -> Vec<CoveredKernel> {
        let mut covers: Vec<CoveredKernel> = Vec::new();
        let mut index: HashMap<&str, usize> = HashMap::new();
        let mut times: Vec<(f64, f64)> = Vec::new();
        for member in &self.members {
            let kernel = member.launch.kernel.as_str();
            let at = *index.entry(kernel).or_insert_with(|| {
                covers.push(CoveredKernel {
                    kernel: kernel.to_owned(),
                    text: member.conclusion.text.clone(),
                    ..CoveredKernel::default()
                });
                times.push((0.0, 0.0));
                covers.len() - 1
            });
            covers[at].launches += 1;
            times[at].0 += member.total_ns;
            times[at].1 += member.stake_ns;
        }
        for (covered, (total, stake)) in covers.iter_mut().zip(times) {
            (covered.total_ns, covered.stake_ns) = (total.round() as u64, stake.round() as u64);
        }
        covers.sort_by_key(|covered| std::cmp::Reverse(covered.stake_ns));
        covers
    }

    fn text(&self, covers: &[CoveredKernel], profile: &Profile, sums: &LaunchSums<'_>) -> String {
        let first = &self.members[0];
        let members = self.members.len();
        if covers.len() == 1 {
            let of_kernel = profile.launches.iter().filter(|launch| {
                launch.kernel == first.launch.kernel && sums.counts(launch, self.rule)
            });
            let all = of_kernel.count();
            return match self.rule.id {
                LAUNCH_BOUND if members < all => {
                    format!("in {members} of its {all} launches {}", first.conclusion.text)
                }
                _ => first.conclusion.text.clone(),
            };
        }
        let predicate = match self.rule.id {
            LAUNCH_BOUND => {
                let limit = first.conclusion.evidence.first().map_or(0.0, |e| e.threshold);
                format!("run for less than {:.0} µs, about as long as a launch takes", limit / 1e3)
            }
            _ => self.rule.of_several.to_owned(),
        };
        let total: f64 = self.members.iter().map(|member| member.total_ns).sum();
        let (whole, what) = match (self.rule.id, sums.wall_ns) {
            (LAUNCH_BOUND, Some(wall)) => (wall, "wall"),
            _ => (sums.gpu_ns, "GPU"),
        };
        let judged = sums.judged(profile, self.rule);
        let listed: u64 = profile.kernels.iter().map(|kernel| kernel.launches).sum();
        let all = match listed > judged as u64 && self.rule.id == LAUNCH_BOUND {
            true => format!("first {judged} launches"),
            false => "launches".to_owned(),
        };
        format!(
            "{members} launches of {} kernels {predicate}: {} of the {all}, {} of the {what} time",
            covers.len(),
            percent(members as f64, judged as f64),
            percent(total, whole),
        )
    }
}

fn stake(rule: &Rule, ns: f64, launch: &Launch, sums: &LaunchSums<'_>) -> Option<Stake> {
    launch.duration_ns?;
    // The result of a whole range has no grid, and its time is the region's.
    let (of, region, whole) = match (rule.id, sums.wall_ns) {
        _ if launch.grid == [0; 3] && !launch.region.is_empty() => {
            let region = crate::model::timeline::display_path(&launch.region);
            (StakeScope::Region, Some(region), launch.duration_ns?)
        }
        (LAUNCH_BOUND, Some(wall)) => (StakeScope::WallTime, None, wall),
        _ => (StakeScope::GpuTime, None, sums.gpu_ns),
    };
    let share = if whole > 0.0 { (ns / whole).min(1.0) } else { 0.0 };
    Some(Stake { ns: ns.round() as u64, of, region, share })
}

/// `61 %`, `4.2 %`, `less than 0.1 %`.
fn percent(part: f64, whole: f64) -> String {
    match 100.0 * part / whole.max(f64::MIN_POSITIVE) {
        share if share >= 9.95 => format!("{share:.0} %"),
        share if share >= 0.095 => format!("{share:.1} %"),
        _ => "less than 0.1 %".to_owned(),
    }
}
