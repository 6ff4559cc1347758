//! Mode `deep`: chooses the kernels that take the most time, and how many of their launches fit the
//! budget.
//!
//! ncu runs each launch dozens of times, so the cost is estimated first. Over the budget, fewer
//! launches of each kernel are measured, then fewer kernels, then fewer sections.

use std::collections::HashMap;

use crate::model::Launch;
use crate::model::profile::Gap;
use crate::model::selection::Price;
use crate::model::timeline::KernelSum;
use crate::tool::{Budget, LaunchCost};

/// The smallest set, used if no other fits the budget.
pub(super) const FALLBACK_SET: &str = "minimal";

/// A kernel that the survey saw.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct KernelCandidate {
    pub kernel: String,
    pub mangled: Option<String>,
    /// Duration of each launch in nanoseconds, in order.
    pub durations: Vec<f64>,
    pub launches: u64,
    pub total_ns: u64,
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
        found[index].durations.push(launch.duration_ns.unwrap_or(0.0).max(0.0));
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

/// The part of a request that fits a budget.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct BudgetFit {
    /// How many of the kernels, from the first.
    pub kernels: usize,
    /// Most launches of each kernel.
    pub cap: u64,
    /// Whether only [`FALLBACK_SET`] fits.
    pub least: bool,
    pub price: Price,
    pub left_out: Vec<Gap>,
}

/// Fits the kernels to a budget. `costs` are those of one launch with the requested metrics and, if
/// it is cheaper, with [`FALLBACK_SET`].
pub(super) fn fit(
    kernels: &[KernelCandidate],
    costs: (LaunchCost, Option<LaunchCost>),
    program_s: f64,
    budget: Budget,
) -> BudgetFit {
    let sets = std::iter::once((costs.0, false)).chain(costs.1.map(|cost| (cost, true)));
    let price_of =
        |count: usize, cap: u64, cost: &LaunchCost| price(&kernels[..count], cap, cost, program_s);
    let fits =
        |price: &Price| price.seconds <= budget.seconds as f64 && price.bytes <= budget.bytes;
    let max_launches = kernels.iter().map(|kernel| kernel.launches).max().unwrap_or(1).max(1);
    let mut chosen = None;
    'sets: for (cost, least) in sets {
        for count in (1..=kernels.len()).rev() {
            // Find the highest cap that fits; the price only grows with the cap.
            let (mut low, mut high) = (0, max_launches);
            while low < high {
                let middle = high - (high - low) / 2;
                match fits(&price_of(count, middle, &cost)) {
                    true => low = middle,
                    false => high = middle - 1,
                }
            }
            if low > 0 {
                chosen = Some((count, low, cost, least));
                break 'sets;
            }
        }
    }
    // At least one launch is always measured, so that there is a result.
    let cheapest = costs.1.unwrap_or(costs.0);
    let (count, cap, cost, least) = chosen.unwrap_or((1, 1, cheapest, costs.1.is_some()));
    let mut price = price_of(count.min(kernels.len()), cap, &cost);
    price.limit_seconds = Some(budget.seconds as f64);
    price.limit_bytes = Some(budget.bytes);
    let left_out = left_out(kernels, (count, cap, least), &price, budget);
    BudgetFit { kernels: count, cap, least, price, left_out }
}

fn price(kernels: &[KernelCandidate], cap: u64, cost: &LaunchCost, program_s: f64) -> Price {
    let cut = kernels.iter().any(|kernel| kernel.launches > cap);
    // If launches are capped, each kernel skips a different number and needs its own pass.
    let passes = if cut { kernels.len() } else { 1 };
    let mut seconds = LaunchCost::ncu_run_seconds(program_s) * passes as f64;
    let mut bytes = 0;
    for kernel in kernels {
        let count = kernel.launches.min(cap);
        let mean_s = kernel.total_ns as f64 / kernel.launches.max(1) as f64 * 1e-9;
        seconds += cost.launch_seconds(mean_s) * count as f64;
        bytes += cost.bytes.saturating_mul(count);
    }
    Price { seconds, bytes, passes: cost.passes, ..Price::default() }
}

fn left_out(
    kernels: &[KernelCandidate],
    (count, cap, least): (usize, u64, bool),
    price: &Price,
    budget: Budget,
) -> Vec<Gap> {
    let mut gaps = Vec::new();
    let mut add = |code: &str, text: String| gaps.push(Gap { code: code.to_owned(), text });
    for kernel in kernels.iter().take(count).filter(|kernel| kernel.launches > cap) {
        add(
            "budget_launches",
            format!(
                "`{}`: {cap} of {} launches, to stay within the budget",
                kernel.kernel, kernel.launches
            ),
        );
    }
    for kernel in kernels.iter().skip(count) {
        add("budget_kernel", format!("`{}`: left out to stay within the budget", kernel.kernel));
    }
    if least {
        add("budget_sections", format!("only the set `{FALLBACK_SET}`, to stay within the budget"));
    }
    if price.seconds > budget.seconds as f64 || price.bytes > budget.bytes {
        add("over_budget", "even one launch exceeds the budget; it is profiled anyway".to_owned());
    }
    gaps
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

    fn kernel(name: &str, launches: u64, ns: u64) -> KernelCandidate {
        let durations = vec![ns as f64; launches as usize];
        KernelCandidate {
            kernel: name.into(),
            durations,
            launches,
            total_ns: launches * ns,
            mangled: None,
        }
    }

    const FULL: LaunchCost = LaunchCost { passes: 38, bytes: 1_000_000 };
    const MINIMAL: LaunchCost = LaunchCost { passes: 9, bytes: 50_000 };

    fn fitted(kernels: &[KernelCandidate], seconds: u64, bytes: u64) -> BudgetFit {
        fit(kernels, (FULL, Some(MINIMAL)), 1.0, Budget { seconds, bytes })
    }

    fn codes(fit: &BudgetFit) -> Vec<&str> {
        fit.left_out.iter().map(|gap| gap.code.as_str()).collect()
    }

    #[test]
    fn within_the_budget_nothing_is_left_out() {
        let fit = fitted(&[kernel("a", 10, 1000), kernel("b", 2, 1000)], 600, 500_000_000);
        assert_eq!((fit.kernels, fit.least, fit.left_out.len()), (2, false, 0));
        assert!(fit.cap >= 10);
        assert_eq!(fit.price.passes, 38);
    }

    #[test]
    fn beyond_it_go_launches_then_kernels_then_sections() {
        let kernels = [kernel("a", 1000, 1000), kernel("b", 1, 1000), kernel("c", 1, 1000)];
        let fit = fitted(&kernels, 600, 20_000_000);
        assert_eq!((fit.kernels, fit.cap, fit.least), (3, 18, false));
        assert_eq!(codes(&fit), ["budget_launches"]);
        let fit = fitted(&kernels, 600, 2_500_000);
        assert_eq!((fit.kernels, fit.cap, fit.least), (2, 1, false));
        assert_eq!(codes(&fit), ["budget_launches", "budget_kernel"]);
        let fit = fitted(&kernels, 600, 900_000);
        assert!(fit.least && fit.kernels == 3 && fit.cap > 1);
        let fit = fitted(&kernels, 1, 500_000_000);
        assert_eq!((fit.kernels, fit.cap, fit.least), (1, 1, true));
        assert!(codes(&fit).contains(&"over_budget"));
        assert!(fit.price.seconds > 1.0);
    }

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
}
