//! Mode `deep`: chooses the kernels that take the most time, and which of their launches ncu
//! profiles.
//!
//! ncu runs each launch dozens of times, so a few launches stand for the rest. Launches of one kernel
//! with equal geometry are a class, and up to three of each class are profiled ([`numbers`]). The
//! cost is estimated first, and fitted to a limit ([`fit`]).

pub(super) mod fit;
mod numbers;

use std::collections::HashMap;

use crate::analysis::tuning;
use crate::model::Launch;
use crate::model::timeline::KernelSum;

/// Launches of a class that are profiled.
pub(super) const LAUNCHES_PER_CLASS: u64 = 3;

/// A kernel that the survey saw.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct KernelCandidate {
    pub kernel: String,
    pub mangled: Option<String>,
    /// Duration of each launch in nanoseconds, in order.
    pub durations: Vec<f64>,
    /// Its launches by geometry, in the order of their first launch.
    pub classes: Vec<LaunchClass>,
    pub launches: u64,
    pub total_ns: u64,
}

/// Launches of one kernel with equal grid, block and shared memory, as ncu counts them for
/// `--kernel-id`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct LaunchClass {
    geometry: ([u32; 3], [u32; 3], Option<u64>),
    pub launches: u64,
    pub total_ns: f64,
}

impl KernelCandidate {
    fn add(&mut self, launch: &Launch) {
        let duration_ns = launch.duration_ns.unwrap_or(0.0).max(0.0);
        self.durations.push(duration_ns);
        let geometry = (launch.grid, launch.block, launch.shared_bytes);
        let index = self.classes.iter().position(|class| class.geometry == geometry);
        let index = index.unwrap_or_else(|| {
            self.classes.push(LaunchClass { geometry, ..LaunchClass::default() });
            self.classes.len() - 1
        });
        if let Some(class) = self.classes.get_mut(index) {
            class.launches += 1;
            class.total_ns += duration_ns;
        }
    }
}

/// The candidates without kernels that only serve a compiler's tuning, unless there are no others.
/// `launches` are in the order of their start.
pub(super) fn without_tuning(
    mut candidates: Vec<KernelCandidate>,
    launches: &[Launch],
) -> Vec<KernelCandidate> {
    let tuning = tuning::kernels(launches);
    let tunes = |kernel: &KernelCandidate| tuning.contains_key(kernel.kernel.as_str());
    if !candidates.iter().all(tunes) {
        candidates.retain(|kernel| !tunes(kernel));
    }
    candidates
}

/// Kernels by their GPU time, longest first. `sums` also count launches that the trace did not
/// list; pass them only if `launches` covers the whole program.
pub(super) fn candidates<'a>(
    launches: impl Iterator<Item = &'a Launch>,
    sums: &[KernelSum],
) -> Vec<KernelCandidate> {
    let mut found: Vec<KernelCandidate> = Vec::new();
    let mut index_of: HashMap<(&str, Option<&str>), usize> = HashMap::new();
    for launch in launches {
        let key = (launch.kernel.as_str(), launch.mangled.as_deref());
        let index = *index_of.entry(key).or_insert_with(|| {
            found.push(KernelCandidate {
                kernel: launch.kernel.clone(),
                mangled: launch.mangled.clone(),
                ..KernelCandidate::default()
            });
            found.len() - 1
        });
        found[index].add(launch);
    }
    for candidate in &mut found {
        let sum = sums.iter().find(|sum| sum.kernel == candidate.kernel);
        let listed = candidate.durations.len() as u64;
        candidate.launches = listed;
        candidate.total_ns = candidate.durations.iter().sum::<f64>() as u64;
        if let Some(sum) = sum.filter(|sum| sum.launches > listed) {
            candidate.launches = sum.launches;
            candidate.total_ns = sum.total_ns;
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
        let found = candidates(launches.iter(), &[]);
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
        let chosen = without_tuning(candidates(launches.iter(), &[]), &launches);
        assert_eq!(chosen.iter().map(|c| &*c.kernel).collect::<Vec<_>>(), ["gemm_fusion_dot"]);
        let only = &launches[..1];
        assert_eq!(without_tuning(candidates(only.iter(), &[]), only).len(), 1);
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
        let found = candidates(launches.iter(), &[]);
        let classes: Vec<_> =
            found[0].classes.iter().map(|class| (class.launches, class.total_ns)).collect();
        assert_eq!(classes, [(2, 16.0), (1, 2.0), (1, 8.0)]);
    }
}
