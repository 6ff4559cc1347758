//! Mode `deep`: chooses the kernels that take the most time, and which of their launches ncu
//! profiles. The launches that the first pass (the survey) recorded come in; the second pass, with
//! ncu, gets the chosen kernels and launch numbers.
//!
//! ncu runs each launch dozens of times, so a few launches stand for the rest. Launches of one
//! kernel with equal geometry are a class, and up to three of each class are profiled
//! ([`numbers`]). The cost is estimated first, and fitted to a limit ([`fit`]).

pub(super) mod fit;
mod numbers;

use std::collections::{BTreeMap, HashMap, HashSet};

use rgpu_analysis::tuning::{self, Tuner};
use rgpu_model::Launch;
use rgpu_model::timeline::{KernelSum, WHOLE_GRAPHS};

/// Launches of a class that are profiled.
pub(super) const LAUNCHES_PER_CLASS: u64 = 3;

/// A kernel of the survey. Launches by which Triton autotuned it do not count: Triton caches its
/// choice, so the next run of the program lacks them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct KernelCandidate {
    pub kernel: String,
    pub mangled: Option<String>,
    /// Duration of each launch in nanoseconds, in order.
    pub durations: Vec<f64>,
    /// Its launches by geometry, in the order of their first launch, without those by which XLA
    /// autotuned it and those of the program's set-up.
    pub classes: Vec<LaunchClass>,
    pub launches: u64,
    /// Nanoseconds of the launches of `classes`, and of launches beyond the list of the survey.
    pub total_ns: u64,
}

/// Launches of one kernel with equal grid, block and shared memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct LaunchClass {
    pub geometry: ([u32; 3], [u32; 3], Option<u64>),
    /// Their numbers among the kernel's launches, from 1.
    pub numbers: Vec<u64>,
    pub total_ns: f64,
}

impl KernelCandidate {
    /// Adds a launch. If `is_set_up`, it only counts for the numbers of later launches, because the
    /// next run has it too.
    fn add(&mut self, launch: &Launch, is_set_up: bool) {
        let duration_ns = launch.duration_ns.unwrap_or(0.0).max(0.0);
        self.durations.push(duration_ns);
        if is_set_up {
            return;
        }
        let number = self.durations.len() as u64;
        let geometry = (launch.grid, launch.block, launch.shared_bytes);
        let index = self.classes.iter().position(|class| class.geometry == geometry);
        let index = index.unwrap_or_else(|| {
            self.classes.push(LaunchClass { geometry, ..LaunchClass::default() });
            self.classes.len() - 1
        });
        if let Some(class) = self.classes.get_mut(index) {
            class.numbers.push(number);
            class.total_ns += duration_ns;
        }
    }
}

/// The candidates without kernels that only autotuning launches, unless there are no others.
/// `launches` are in the order of their start.
pub(super) fn without_tuning(
    mut candidates: Vec<KernelCandidate>,
    launches: &[Launch],
    sums: &[KernelSum],
) -> Vec<KernelCandidate> {
    let tuning = tuning::kernels(launches, sums);
    let tunes = |kernel: &KernelCandidate| tuning.contains_key(kernel.kernel.as_str());
    if !candidates.iter().all(tunes) {
        candidates.retain(|kernel| !tunes(kernel));
    }
    candidates
}

/// The time of each kernel that these candidates of the whole program do not count, in nanoseconds:
/// that of its launches that are set-up.
pub(super) fn set_up_times(all: &[KernelCandidate], sums: &[KernelSum]) -> BTreeMap<String, u64> {
    let mut counted: HashMap<&str, u64> = HashMap::new();
    for candidate in all {
        *counted.entry(&candidate.kernel).or_default() += candidate.total_ns;
    }
    let programs = sums.iter().filter(|sum| sum.kernel != WHOLE_GRAPHS);
    let times = programs.map(|sum| {
        let counted = counted.get(sum.kernel.as_str()).copied().unwrap_or(0);
        (sum, sum.total_ns.saturating_sub(counted))
    });
    // Durations of launches are rounded one by one.
    let set_up = times.filter(|(sum, ns)| *ns > sum.total_ns / 1000);
    set_up.map(|(sum, ns)| (sum.kernel.clone(), ns)).collect()
}

/// Launches of a program's set-up, by id.
#[derive(Clone, Debug, Default)]
pub(super) struct SetUpLaunches {
    /// Launches by which a compiler benchmarks a kernel.
    pub benchmarked: HashMap<u32, Tuner>,
    /// Launches of the program's own set-up, such as random weights.
    pub preparing: HashSet<u32>,
}

impl SetUpLaunches {
    fn contains(&self, launch: &Launch) -> bool {
        self.benchmarked.contains_key(&launch.id) || self.preparing.contains(&launch.id)
    }
}

/// Kernels by their GPU time outside of set-up, longest first. `sums` also count launches that the
/// trace did not list; pass them only if `launches` covers the whole program. Launches of set-up
/// count for no time, unless there are no others.
pub(super) fn candidates<'a>(
    launches: impl Iterator<Item = &'a Launch> + Clone,
    sums: &[KernelSum],
    set_up: &SetUpLaunches,
) -> Vec<KernelCandidate> {
    let only_set_up = launches.clone().all(|launch| set_up.contains(launch));
    let mut found: Vec<KernelCandidate> = Vec::new();
    let mut index_of: HashMap<(&str, Option<&str>), usize> = HashMap::new();
    let mut left_out: HashMap<&str, (u64, f64)> = HashMap::new();
    for launch in launches {
        let is_set_up = !only_set_up && set_up.contains(launch);
        if is_set_up && set_up.benchmarked.get(&launch.id) == Some(&Tuner::Triton) {
            let (count, total_ns) = left_out.entry(launch.kernel.as_str()).or_default();
            *count += 1;
            *total_ns += launch.duration_ns.unwrap_or(0.0).max(0.0);
            continue;
        }
        let key = (launch.kernel.as_str(), launch.mangled.as_deref());
        let index = *index_of.entry(key).or_insert_with(|| {
            found.push(KernelCandidate {
                kernel: launch.kernel.clone(),
                mangled: launch.mangled.clone(),
                ..KernelCandidate::default()
            });
            found.len() - 1
        });
        found[index].add(launch, is_set_up);
    }
    found.retain(|candidate| !candidate.classes.is_empty());
    for candidate in &mut found {
        let sum = sums.iter().find(|sum| sum.kernel == candidate.kernel);
        let listed = candidate.durations.len() as u64;
        let listed_ns: f64 = candidate.classes.iter().map(|class| class.total_ns).sum();
        let (benchmarks, benchmark_ns) =
            left_out.get(candidate.kernel.as_str()).copied().unwrap_or_default();
        let benchmark_ns = benchmark_ns + candidate.durations.iter().sum::<f64>() - listed_ns;
        candidate.launches = listed;
        candidate.total_ns = listed_ns as u64;
        if let Some(sum) = sum.filter(|sum| sum.launches > listed + benchmarks) {
            candidate.launches = sum.launches - benchmarks;
            candidate.total_ns = sum.total_ns.saturating_sub(benchmark_ns.max(0.0) as u64);
        }
    }
    found.sort_by(|a, b| b.total_ns.cmp(&a.total_ns).then_with(|| a.kernel.cmp(&b.kernel)));
    found
}

/// How many launches to skip so that the mean of the next `count` is closest to the mean of all.
pub(super) fn skip(durations: &[f64], count: u64) -> u64 {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    if count == 0 || durations.len() <= count {
        return 0;
    }
    let target_sum = durations.iter().sum::<f64>() / durations.len() as f64 * count as f64;
    let mut sum: f64 = durations[..count].iter().sum();
    let (mut best, mut best_distance) = (0, (sum - target_sum).abs());
    for first in 1..=durations.len() - count {
        sum += durations[first + count - 1] - durations[first - 1];
        let distance = (sum - target_sum).abs();
        // Rounding errors must not move the window.
        if distance < best_distance * (1.0 - 1e-9) {
            (best, best_distance) = (first, distance);
        }
    }
    best as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_launches_taken_are_those_nearest_the_mean() {
        assert_eq!(skip(&[9.0, 1.0, 1.0, 1.0], 4), 0);
        assert_eq!(skip(&[9.0, 2.0, 1.0, 1.0], 1), 1);
        assert_eq!(skip(&[100.0, 10.0, 10.0, 10.0, 10.0], 2), 1);
        assert_eq!(skip(&[5.0, 5.0, 5.0], 2), 0);
    }

    #[test]
    fn kernels_are_told_apart_by_their_mangled_names_and_summed() {
        let launch = |mangled: &str, ns: f64| Launch {
            kernel: "add".into(),
            mangled: Some(mangled.into()),
            duration_ns: Some(ns),
            ..Launch::default()
        };
        let launches = [launch("x", 1.0), launch("y", 5.0), launch("x", 2.0)];
        let found = candidates(launches.iter(), &[], &SetUpLaunches::default());
        let shown: Vec<_> =
            found.iter().map(|c| (c.mangled.as_deref().unwrap(), c.launches, c.total_ns)).collect();
        assert_eq!(shown, [("y", 1, 5), ("x", 2, 3)]);
    }

    #[test]
    fn kernels_of_tuning_are_chosen_only_if_there_are_no_others() {
        let launch = |kernel: &str, ns: f64| Launch {
            kernel: kernel.to_owned(),
            duration_ns: Some(ns),
            ..Launch::default()
        };
        let delay = "stream_executor::gpu::<unnamed>::DelayKernel(volatile int *, int)";
        let launches = [launch(delay, 900.0), launch("gemm_fusion_dot", 5.0)];
        let all = |launches: &[Launch]| candidates(launches.iter(), &[], &SetUpLaunches::default());
        let chosen = without_tuning(all(&launches), &launches, &[]);
        assert_eq!(chosen.iter().map(|c| &*c.kernel).collect::<Vec<_>>(), ["gemm_fusion_dot"]);
        let only = &launches[..1];
        assert_eq!(without_tuning(all(only), only, &[]).len(), 1);
    }

    /// Inductor benchmarked its kernel 211 times in the survey of a compiled program, and the next
    /// run launched it 11 times.
    #[test]
    fn launches_of_benchmarks_are_not_numbered() {
        let launch = |id: u32| Launch {
            id,
            kernel: "triton_poi_fused_gelu_view_6".to_owned(),
            duration_ns: Some(if id < 211 { 77_000.0 } else { 67_000.0 }),
            ..Launch::default()
        };
        let launches: Vec<Launch> = (0..222).map(launch).collect();
        let by = |tuner| SetUpLaunches {
            benchmarked: (0..211).map(|id| (id, tuner)).collect(),
            ..SetUpLaunches::default()
        };
        let sum = KernelSum {
            kernel: launches[0].kernel.clone(),
            launches: 222,
            total_ns: 211 * 77_000 + 11 * 67_000,
            ..KernelSum::default()
        };
        let found = candidates(launches.iter(), std::slice::from_ref(&sum), &by(Tuner::Triton));
        assert_eq!((found[0].launches, found[0].total_ns), (11, 11 * 67_000));
        assert_eq!(found[0].classes[0].numbers, (1..=11).collect::<Vec<u64>>());
        let fill = KernelSum { kernel: "fill".into(), total_ns: 5, ..KernelSum::default() };
        let graphs = KernelSum { kernel: WHOLE_GRAPHS.into(), total_ns: 9, ..fill.clone() };
        let times = set_up_times(&found, &[sum.clone(), fill, graphs]);
        let benchmarked = (sum.kernel.clone(), 211 * 77_000);
        assert_eq!(times.into_iter().collect::<Vec<_>>(), [("fill".to_owned(), 5), benchmarked]);
        // XLA tunes again in the next run: its launches keep their numbers.
        let found = candidates(launches.iter(), std::slice::from_ref(&sum), &by(Tuner::Xla));
        assert_eq!((found[0].launches, found[0].total_ns), (222, 11 * 67_000));
        assert_eq!(found[0].classes[0].numbers, (212..=222).collect::<Vec<u64>>());
        // A program that did nothing else is measured as it is.
        let only = candidates(launches[..211].iter(), &[], &by(Tuner::Xla));
        assert_eq!(only[0].launches, 211);
    }

    /// One program, recorded with its CUDA graphs as a whole and by kernel: the graphs hide 15
    /// launches of vecadd, without which another kernel seems the longest.
    #[test]
    fn recorded_kernels_inside_graphs_count_only_if_they_are_traced_one_by_one() {
        let longest = |case: &str| {
            let file = format!("tests/fixtures/nsys/2025.3.1/{case}/report.sqlite");
            let path =
                std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(file);
            let recorded = rgpu_import::nsys::import_sqlite(&path, "report.sqlite").unwrap();
            let set_up = SetUpLaunches::default();
            let all = candidates(recorded.launches.iter(), &recorded.kernels, &set_up);
            (all[0].kernel.clone(), all[0].launches)
        };
        assert_eq!(longest("timeline-graph"), ("tiled_matmul".to_owned(), 22));
        assert_eq!(longest("timeline-node"), ("vecadd".to_owned(), 88));
    }

    /// triton_norm of `tests/gpu/programs`, as nsys recorded it: it fills its input with random
    /// numbers, which are the third longest kernel.
    #[test]
    fn recorded_kernels_of_set_up_are_not_chosen() {
        let file = "tests/fixtures/programs/triton_norm/report.sqlite";
        let path = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(file);
        let recorded = rgpu_import::nsys::import_sqlite(&path, "report.sqlite").unwrap();
        let chosen = |set_up: &SetUpLaunches| {
            let all = candidates(recorded.launches.iter(), &recorded.kernels, set_up);
            all.into_iter().take(3).map(|kernel| kernel.kernel).collect::<Vec<_>>()
        };
        let is_random = |kernel: &String| kernel.contains("distribution_elementwise");
        assert!(chosen(&SetUpLaunches::default()).iter().any(is_random));
        let preparing = rgpu_analysis::set_up::preparing_launches(&recorded.launches);
        let steady = chosen(&SetUpLaunches { preparing, ..SetUpLaunches::default() });
        assert_eq!((steady.len(), steady[0].as_str()), (3, "rms_norm"));
        assert!(!steady.iter().any(is_random), "{steady:?}");
    }

    #[test]
    fn launches_of_one_geometry_are_a_class() {
        let launch = |blocks: u32, shared: u64| Launch {
            kernel: "add".into(),
            grid: [blocks, 1, 1],
            block: [256, 1, 1],
            shared_bytes: Some(shared),
            duration_ns: Some(f64::from(blocks)),
            ..Launch::default()
        };
        let launches = [launch(8, 0), launch(2, 0), launch(8, 0), launch(8, 64)];
        let found = candidates(launches.iter(), &[], &SetUpLaunches::default());
        let classes: Vec<_> =
            found[0].classes.iter().map(|class| (&*class.numbers, class.total_ns)).collect();
        assert_eq!(classes, [(&[1, 3][..], 16.0), (&[2], 2.0), (&[4], 8.0)]);
    }
}
