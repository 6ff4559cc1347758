//! The result of an importer, and how it is merged into the profile.

use std::collections::{BTreeMap, HashMap};

use super::case_report::RunnerFailure;
use rgpu_model::launch::Launch;
use rgpu_model::memory::MemoryUse;
use rgpu_model::profile::{CaseResult, Gap, ModelInfo, Profile};
use rgpu_model::sanitizer::SanitizerResult;
use rgpu_model::timeline::{CopySum, KernelSum, RegionKind};
use rgpu_model::{KernelCode, Operator, Region, Sidecars, Stage};

/// The content of one artifact.
#[derive(Clone, Debug, Default)]
pub struct ImportedArtifact {
    /// The result of a leaderboard's own program.
    pub board: Option<rgpu_case::BoardReport>,
    /// Launches in time order, numbered from 0 within the artifact.
    pub launches: Vec<Launch>,
    /// Sums of launches by kernel, longest first. Empty where they can be computed from `launches`.
    pub kernels: Vec<KernelSum>,
    /// Copies and memsets summed by kind.
    pub copies: Vec<CopySum>,
    /// NVTX regions, parents before children.
    pub regions: Vec<Region>,
    /// Operators of a framework such as PyTorch, longest first.
    pub operators: Vec<Operator>,
    /// Stages of the model that a program ran.
    pub stages: Vec<Stage>,
    /// Largest use of each GPU's memory.
    pub memory: Vec<MemoryUse>,
    /// Results of sanitizer tools.
    pub sanitizer: Vec<SanitizerResult>,
    /// Compiled code, one entry for each kernel.
    pub code: Vec<KernelCode>,
    /// Missing data, with the reasons.
    pub gaps: Vec<Gap>,
    /// Cases with the runner's results. They are joined with the run's cases by name.
    pub cases: Vec<CaseResult>,
    /// Warnings of the runner about the host.
    pub warnings: Vec<Gap>,
    /// The model that a Python kernel built. `None` for other kernels.
    pub model: Option<rgpu_case::ModelReport>,
    /// The model that a program ran. `None` for kernels.
    pub program_model: Option<ModelInfo>,
    /// Why the runner stopped early.
    pub runner_failure: Option<RunnerFailure>,
    /// Why the report is not a result although the tool claims success, worst first.
    pub refusals: Vec<RejectedReport>,
    /// The version of the tool, as the artifact gives it.
    pub tool_version: Option<String>,
    /// How the tool controlled the GPU's clocks, as it names that: `base`, `none` …
    pub clock_control: Option<String>,
    /// The GPU's name, as the artifact gives it.
    pub device: Option<String>,
    /// Separate documents, which use this artifact's own launch numbers.
    pub sidecars: Sidecars,
}

/// A reason to try another rung, found by the laptop in a report that the tool considers good.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RejectedReport {
    /// One of `empty_report`, `nan_counters`, `unknown_metric`, `no_gpu_rows`.
    pub code: &'static str,
    /// The reason, for users.
    pub text: String,
    /// The metrics to leave out next time. Only for `unknown_metric`.
    pub metrics: Vec<String>,
}

impl ImportedArtifact {
    /// Keeps the launches for which `keep` is true and renumbers them from 0; regions and hot spots
    /// are adjusted, and empty regions removed. Returns the number of removed launches.
    pub fn keep_launches(&mut self, keep: impl Fn(&Launch) -> bool) -> usize {
        let all = self.launches.len();
        // New launch numbers by old ones.
        let mut numbers = BTreeMap::new();
        for launch in std::mem::take(&mut self.launches) {
            if keep(&launch) {
                let id = u32::try_from(self.launches.len()).unwrap_or(u32::MAX);
                numbers.insert(launch.id, id);
                self.launches.push(Launch { id, ..launch });
            }
        }
        if self.launches.len() == all {
            return 0;
        }
        let launches = &self.launches;
        self.regions.retain_mut(|region| {
            let had = region.launches.len() + region.ranges.len();
            region.launches.retain_mut(|id| renumber(&numbers, id));
            region.ranges.retain_mut(|range| renumber(&numbers, &mut range.launch));
            let has = region.launches.len() + region.ranges.len();
            if has < had && region.ranges.is_empty() {
                let inside = region.launches.iter().filter_map(|id| launches.get(*id as usize));
                let inside: Vec<Launch> = inside.cloned().collect();
                region.kernels = kernel_sums(&inside);
                let known: Option<f64> = inside.iter().map(|launch| launch.duration_ns).sum();
                region.gpu_ns = known.map(|ns| ns.max(0.0).round() as u64);
            }
            has > 0 || had == 0
        });
        if let Some(spots) = &mut self.sidecars.hotspots {
            spots.launches.retain_mut(|spots| renumber(&numbers, &mut spots.launch));
        }
        all - self.launches.len()
    }

    /// Merges everything except cases, refusals and the runner's failure into `profile` and
    /// `sidecars`.
    ///
    /// Launches get the next free numbers. Sums by kernel come from the artifact if it has them.
    /// Otherwise they are computed from its launches, unless the profile has sums already. A second
    /// result of the same sanitizer tool and rank replaces the first. Regions of the runner's own
    /// range log are dropped if any tool recorded regions.
    pub fn add_to(self, profile: &mut Profile, sidecars: &mut Sidecars) {
        let first = u32::try_from(profile.launches.len()).unwrap_or(u32::MAX);
        sidecars.add(self.sidecars, first);
        let sums = match self.kernels {
            sums if !sums.is_empty() => sums,
            _ if profile.kernels.is_empty() => kernel_sums(&self.launches),
            _ => Vec::new(),
        };
        add_kernel_sums(&mut profile.kernels, sums);
        profile.launches.extend(self.launches.into_iter().map(|mut launch| {
            launch.id = launch.id.saturating_add(first);
            launch
        }));
        profile.copies.extend(self.copies);
        add_regions(profile, self.regions, first);
        profile.operators.extend(self.operators);
        profile.stages.extend(self.stages);
        profile.memory.extend(self.memory);
        profile.kernel.model = self.program_model.or(profile.kernel.model.take());
        // The runner's own log only fills in where no tool recorded ranges.
        if profile.regions.iter().any(|region| !is_own_log(&region.from)) {
            profile.regions.retain(|region| !is_own_log(&region.from));
        }
        for result in self.sanitizer {
            match profile
                .sanitizer
                .iter_mut()
                .find(|r| (&r.tool, r.rank) == (&result.tool, result.rank))
            {
                Some(earlier) => *earlier = result,
                None => profile.sanitizer.push(result),
            }
        }
        profile.code.extend(self.code);
        profile.gaps.extend(self.gaps);
        profile.device = self.device.or(profile.device.take());
        for warning in self.warnings {
            // Every job of the runner judges the host; list the same doubt once.
            if !profile.warnings.contains(&warning) {
                profile.warnings.push(warning);
            }
        }
    }
}

/// Adds sums by kernel. Two artifacts of one run, such as the traces of two processes, may both
/// have a kernel.
fn add_kernel_sums(known: &mut Vec<KernelSum>, more: Vec<KernelSum>) {
    if known.is_empty() {
        *known = more;
        return;
    }
    let mut by_kernel: HashMap<String, usize> = HashMap::new();
    for (at, sum) in known.iter().enumerate() {
        by_kernel.entry(sum.kernel.clone()).or_insert(at);
    }
    for sum in more {
        match by_kernel.get(&sum.kernel).and_then(|at| known.get_mut(*at)) {
            Some(other) => {
                other.launches += sum.launches;
                other.total_ns = other.total_ns.saturating_add(sum.total_ns);
                other.min_ns = other.min_ns.min(sum.min_ns);
                other.max_ns = other.max_ns.max(sum.max_ns);
            }
            None => {
                by_kernel.insert(sum.kernel.clone(), known.len());
                known.push(sum);
            }
        }
    }
    known.sort_by_key(|sum| std::cmp::Reverse(sum.total_ns));
}

/// Replaces a launch's number by its new one. Returns false if the launch was removed.
fn renumber(numbers: &BTreeMap<u32, u32>, id: &mut u32) -> bool {
    match numbers.get(id) {
        Some(now) => {
            *id = *now;
            true
        }
        None => false,
    }
}

/// Adds regions. ncu gives a region's counters and no host times; a trace gives its times. Both
/// are merged into one region, in either order.
fn add_regions(profile: &mut Profile, regions: Vec<Region>, first_launch: u32) {
    let earlier = earlier_regions(&profile.regions, &regions);
    profile.regions.reserve(regions.len());
    for (mut region, earlier) in regions.into_iter().zip(earlier) {
        let results = region.ranges.iter_mut().map(|range| &mut range.launch);
        for launch in region.launches.iter_mut().chain(results) {
            *launch = launch.saturating_add(first_launch);
        }
        let known = earlier.and_then(|at| profile.regions.get_mut(at));
        match known.filter(|known| known.host_ns.is_some() != region.host_ns.is_some()) {
            Some(known) => {
                let (mut trace, mut counters) = match known.host_ns {
                    Some(_) => (std::mem::take(known), region),
                    None => (region, std::mem::take(known)),
                };
                trace.launches.append(&mut counters.launches);
                trace.ranges.append(&mut counters.ranges);
                trace.metrics.append(&mut counters.metrics);
                *known = trace;
            }
            None => profile.regions.push(region),
        }
    }
}

/// The place in `known` of the other half of each region: the same path and kind, with host times
/// if the region has none, and without if it has.
fn earlier_regions(known: &[Region], regions: &[Region]) -> Vec<Option<usize>> {
    let mut places: HashMap<(&[String], &RegionKind, bool), usize> = HashMap::new();
    for (at, region) in known.iter().enumerate().filter(|(_, known)| !is_own_log(&known.from)) {
        places.entry((&region.path, &region.kind, region.host_ns.is_some())).or_insert(at);
    }
    let other_half = |region: &Region| {
        places.get(&(&region.path[..], &region.kind, region.host_ns.is_none())).copied()
    };
    regions.iter().map(other_half).collect()
}

/// Whether a region comes from the runner's range log, judged by the file name that plans give it.
fn is_own_log(from: &str) -> bool {
    from.ends_with("ranges.jsonl")
}

/// Sums by kernel, longest first, over the launches that have a duration.
pub(super) fn kernel_sums(launches: &[Launch]) -> Vec<KernelSum> {
    let mut sums: Vec<KernelSum> = Vec::new();
    let mut at: std::collections::HashMap<&str, usize> = std::collections::HashMap::new();
    for launch in launches {
        let Some(duration) = launch.duration_ns else { continue };
        let ns = duration.max(0.0).round() as u64;
        let index = *at.entry(&launch.kernel).or_insert_with(|| {
            sums.push(KernelSum {
                kernel: launch.kernel.clone(),
                min_ns: u64::MAX,
                ..KernelSum::default()
            });
            sums.len() - 1
        });
        let sum = &mut sums[index];
        sum.launches += 1;
        sum.total_ns = sum.total_ns.saturating_add(ns);
        sum.min_ns = sum.min_ns.min(ns);
        sum.max_ns = sum.max_ns.max(ns);
    }
    sums.sort_by_key(|sum| std::cmp::Reverse(sum.total_ns));
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_model::sanitizer::CheckTool;

    fn launch(id: u32, kernel: &str, ns: f64) -> Launch {
        let kernel = kernel.to_owned();
        Launch { id, kernel, duration_ns: Some(ns), ..Launch::default() }
    }

    #[test]
    fn a_second_artifacts_launches_are_numbered_on() {
        let mut profile = Profile::default();
        let one =
            ImportedArtifact { launches: vec![launch(0, "a", 5.0)], ..ImportedArtifact::default() };
        one.clone().add_to(&mut profile, &mut Sidecars::default());
        one.add_to(&mut profile, &mut Sidecars::default());
        assert_eq!(profile.launches.iter().map(|l| l.id).collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn launches_are_summed_by_kernel_longest_first() {
        let launches = [launch(0, "a", 1.0), launch(1, "b", 7.0), launch(2, "a", 3.0)];
        let mut profile = Profile::default();
        ImportedArtifact { launches: launches.to_vec(), ..ImportedArtifact::default() }
            .add_to(&mut profile, &mut Sidecars::default());
        let sums: Vec<_> = profile
            .kernels
            .iter()
            .map(|k| (k.kernel.as_str(), k.launches, k.total_ns, k.min_ns, k.max_ns))
            .collect();
        assert_eq!(sums, [("b", 1, 7, 7, 7), ("a", 2, 4, 1, 3)]);
    }

    #[test]
    fn a_hundred_thousand_regions_and_kernels_of_two_artifacts_are_joined_in_one_pass() {
        const COUNT: usize = 100_000;
        let artifact = |host_ns: Option<u64>| {
            let region = |n: usize| Region {
                path: vec![n.to_string()],
                host_ns,
                launches: if host_ns.is_none() { vec![n as u32] } else { Vec::new() },
                ..Region::default()
            };
            let sum =
                |n: usize| KernelSum { kernel: n.to_string(), launches: 1, ..KernelSum::default() };
            ImportedArtifact {
                regions: (0..COUNT).map(region).collect(),
                kernels: (0..COUNT).map(sum).collect(),
                ..ImportedArtifact::default()
            }
        };
        let mut profile = Profile::default();
        for host_ns in [None, Some(5)] {
            artifact(host_ns).add_to(&mut profile, &mut Sidecars::default());
        }
        assert_eq!((profile.regions.len(), profile.kernels.len()), (COUNT, COUNT));
        for (region, n) in profile.regions.iter().zip(0..) {
            assert_eq!((region.host_ns, &region.launches), (Some(5), &vec![n]));
        }
        assert!(profile.kernels.iter().all(|kernel| kernel.launches == 2));
    }

    #[test]
    fn regions_of_a_tool_replace_those_of_the_runners_own_log() {
        let regions = |from: &str| {
            let region =
                Region { path: vec!["A".to_owned()], from: from.to_owned(), ..Region::default() };
            ImportedArtifact { regions: vec![region], ..ImportedArtifact::default() }
        };
        let mut profile = Profile::default();
        regions("raw/time.ranges.jsonl").add_to(&mut profile, &mut Sidecars::default());
        assert_eq!(profile.regions.len(), 1);
        regions("raw/report.nsys-rep").add_to(&mut profile, &mut Sidecars::default());
        regions("raw/once.ranges.jsonl").add_to(&mut profile, &mut Sidecars::default());
        assert_eq!(profile.regions.len(), 1);
        assert_eq!(profile.regions[0].from, "raw/report.nsys-rep");
    }

    #[test]
    fn times_of_a_trace_and_launches_of_counters_are_one_region_in_either_order() {
        let of = |host_ns, launches: &[u32]| Region {
            path: vec!["A".to_owned()],
            kind: RegionKind::PushPop,
            host_ns,
            launches: launches.to_vec(),
            ..Region::default()
        };
        let imported = |region, launches: usize| ImportedArtifact {
            regions: vec![region],
            launches: (0..launches).map(|_| Launch::default()).collect(),
            ..ImportedArtifact::default()
        };
        for counters_first in [true, false] {
            let mut all = [imported(of(Some(5), &[]), 3), imported(of(None, &[0, 1]), 2)];
            if counters_first {
                all.reverse();
            }
            let mut profile = Profile::default();
            all.into_iter().for_each(|one| one.add_to(&mut profile, &mut Sidecars::default()));
            assert_eq!(profile.regions.len(), 1);
            assert_eq!(profile.regions[0].host_ns, Some(5));
            let expected = if counters_first { [0, 1] } else { [3, 4] };
            assert_eq!(profile.regions[0].launches, expected);
        }
    }

    #[test]
    fn each_rank_has_its_result_of_a_sanitizer_tool() {
        let mut profile = Profile::default();
        for rank in [0, 1, 1] {
            let result = SanitizerResult { rank: Some(rank), ..SanitizerResult::default() };
            ImportedArtifact { sanitizer: vec![result], ..ImportedArtifact::default() }
                .add_to(&mut profile, &mut Sidecars::default());
        }
        let ranks: Vec<_> = profile.sanitizer.iter().map(|result| result.rank).collect();
        assert_eq!(ranks, [Some(0), Some(1)]);
    }

    #[test]
    fn the_later_result_of_a_sanitizer_tool_counts() {
        let result = |verdict: &str| SanitizerResult {
            tool: CheckTool::Memcheck,
            verdict: verdict.into(),
            ..SanitizerResult::default()
        };
        let mut profile = Profile::default();
        for verdict in ["unknown", "found"] {
            let sanitizer = vec![result(verdict)];
            ImportedArtifact { sanitizer, ..ImportedArtifact::default() }
                .add_to(&mut profile, &mut Sidecars::default());
        }
        assert_eq!(profile.sanitizer.len(), 1);
        assert_eq!(profile.sanitizer[0].verdict, "found");
    }
}
