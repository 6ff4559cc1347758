//! Fits the detailed pass of mode `deep`, the one under ncu, to a limit in seconds and bytes.
//!
//! The kernels of the survey, the estimated costs of the section sets and the program's time come
//! in. [`BudgetFit`] goes out: the kernels, the set and the launches to profile, with their
//! estimated cost. What exceeds the limit is dropped in this order: first a smaller section set,
//! then fewer launches of each kernel, then the smallest set. Then the same with launches in a row
//! instead of chosen launch numbers, and last with fewer kernels.

use super::numbers::{self, LaunchQuota, MIN_CLASS_SHARE};
use super::{KernelCandidate, LAUNCHES_PER_CLASS};
use rgpu_model::profile::Gap;
use rgpu_model::selection::Price;
use rgpu_plan::tool::{DeepBudget, LaunchCost};

/// The smallest set, used if no other fits the limit.
pub(in crate::run) const FALLBACK_SET: &str = "minimal";

/// Without `--budget` the detailed pass takes as long as this many runs of the program under ncu.
const RUNS_UNDER_NCU: f64 = 1.5;

/// Without `--budget` the detailed pass may take at least this long, however short the program is.
const SHORT_PASS_S: f64 = 20.0;

/// A section set with the cost of a launch. `None`: the sections that the user named, else the
/// usual set.
pub(in crate::run) type SetCost = (Option<&'static str>, LaunchCost);

/// The sections and launches that may be profiled.
#[derive(Clone, Debug)]
pub(in crate::run) struct DeepChoices {
    /// The sets to try before fewer launches, best first.
    pub sets: Vec<SetCost>,
    /// The set to try after fewer launches of these sets.
    pub fallback: Option<SetCost>,
    /// Maximum number of launches of each class, or of each kernel without numbers.
    pub max_launches: u64,
    /// Whether launches may be chosen by their numbers: for a program of which ncu profiles all,
    /// and if the user did not choose launches. It is not known how ncu counts under filters by
    /// region.
    pub by_number: bool,
}

/// The part of a request that fits a limit.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::run) struct BudgetFit {
    /// The number of kernels to profile: the first ones of the list.
    pub kernels: usize,
    /// The set to collect. `None`: the sections that the user named, else the usual set.
    pub set: Option<&'static str>,
    /// Number of launches to profile, for each of these kernels.
    pub counts: Vec<u64>,
    /// The numbers of these launches among those of their kernel. Empty: launches in a row are
    /// profiled. Then each kernel needs a pass of its own if a kernel has more launches than that.
    pub numbers: Vec<u64>,
    /// The estimated cost.
    pub price: Price,
    /// What the limit leaves out, each with the reason.
    pub left_out: Vec<Gap>,
}

/// The limit of a pass: the user's `--budget`, or the default for the program's time.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Limit {
    seconds: f64,
    bytes: u64,
}

impl Limit {
    fn new(budget: DeepBudget, program_s: f64) -> Self {
        let usual = (RUNS_UNDER_NCU * LaunchCost::ncu_run_seconds(program_s)).max(SHORT_PASS_S);
        Self {
            seconds: budget.seconds.map_or(usual, |seconds| seconds as f64),
            bytes: budget.bytes,
        }
    }

    fn holds(&self, price: &Price) -> bool {
        price.seconds <= self.seconds && price.bytes <= self.bytes
    }
}

/// Fits the kernels to a limit.
pub(in crate::run) fn fit(
    kernels: &[KernelCandidate],
    choices: &DeepChoices,
    program_s: f64,
    budget: DeepBudget,
) -> BudgetFit {
    let limit = Limit::new(budget, program_s);
    let most = kernels.iter().map(|kernel| kernel.launches).max().unwrap_or(1);
    let most = most.clamp(1, choices.max_launches.max(1));
    let fitting = first_fitting(kernels, choices, most, program_s, limit);
    // At least one launch is always measured, so that there is a result.
    let (quota, mut fit) = fitting.unwrap_or_else(|| {
        let cheapest = choices.fallback.or_else(|| choices.sets.last().copied());
        let cheapest = cheapest.unwrap_or((None, LaunchCost { passes: 1, bytes: 0 }));
        let one = LaunchQuota { per_class: 1, min_share: MIN_CLASS_SHARE };
        (one, estimate(&kernels[..kernels.len().min(1)], false, one, cheapest, program_s))
    });
    let is_fewer = quota.per_class < most || quota.min_share > MIN_CLASS_SHARE;
    fit.price.limit_seconds = Some(limit.seconds);
    fit.price.limit_bytes = Some(limit.bytes);
    fit.left_out = left_out(kernels, &fit, is_fewer, limit);
    fit
}

/// The largest part that fits, with its quota; `most` is the largest quota to try.
fn first_fitting(
    kernels: &[KernelCandidate],
    choices: &DeepChoices,
    most: u64,
    program_s: f64,
    limit: Limit,
) -> Option<(LaunchQuota, BudgetFit)> {
    let mut steps: Vec<(LaunchQuota, SetCost)> = Vec::new();
    for sets in [choices.sets.as_slice(), choices.fallback.as_slice()] {
        for quota in numbers::quotas(most) {
            steps.extend(sets.iter().map(|set| (quota, *set)));
        }
    }
    let ways: &[bool] = if choices.by_number { &[true, false] } else { &[false] };
    for count in (1..=kernels.len()).rev() {
        for by_number in ways {
            for (quota, set) in &steps {
                let fit = estimate(&kernels[..count], *by_number, *quota, *set, program_s);
                if limit.holds(&fit.price) {
                    return Some((*quota, fit));
                }
            }
        }
    }
    None
}

/// The launches of all these kernels under a quota, with their estimated cost.
fn estimate(
    kernels: &[KernelCandidate],
    by_number: bool,
    quota: LaunchQuota,
    (set, cost): SetCost,
    program_s: f64,
) -> BudgetFit {
    let numbers = if by_number { numbers::choose(kernels, quota) } else { Vec::new() };
    let count = |kernel: &KernelCandidate| {
        if by_number {
            numbers::count(kernel, &numbers)
        } else {
            kernel.launches.min(quota.per_class)
        }
    };
    let counts: Vec<u64> = kernels.iter().map(count).collect();
    let price = price(kernels, &counts, by_number, &cost, program_s);
    BudgetFit { kernels: kernels.len(), set, counts, numbers, price, left_out: Vec::new() }
}

fn price(
    kernels: &[KernelCandidate],
    counts: &[u64],
    by_number: bool,
    cost: &LaunchCost,
    program_s: f64,
) -> Price {
    let cut = kernels.iter().zip(counts).any(|(kernel, count)| kernel.launches > *count);
    // Each kernel skips a different number of launches and needs its own run.
    let runs = if cut && !by_number { kernels.len() } else { 1 };
    let mut seconds = LaunchCost::ncu_run_seconds(program_s) * runs as f64;
    let mut bytes = 0_u64;
    for (kernel, count) in kernels.iter().zip(counts) {
        let mean_s = kernel.total_ns as f64 / kernel.launches.max(1) as f64 * 1e-9;
        seconds += cost.launch_seconds(mean_s) * *count as f64;
        bytes = bytes.saturating_add(cost.bytes.saturating_mul(*count));
    }
    Price { seconds, bytes, passes: cost.passes, ..Price::default() }
}

/// The launches, kernels and sections that the limit leaves out. `is_fewer`: it lowered the quota.
fn left_out(
    kernels: &[KernelCandidate],
    fit: &BudgetFit,
    is_fewer: bool,
    limit: Limit,
) -> Vec<Gap> {
    let mut gaps = Vec::new();
    let mut add = |code: &str, text: String| gaps.push(Gap { code: code.to_owned(), text });
    let cut = kernels.iter().zip(&fit.counts).filter(|(kernel, count)| kernel.launches > **count);
    for (kernel, count) in cut.filter(|_| is_fewer) {
        add(
            "budget_launches",
            format!(
                "`{}`: {count} of {} launches, to stay within the budget",
                kernel.kernel, kernel.launches
            ),
        );
    }
    for kernel in kernels.iter().skip(fit.kernels) {
        add("budget_kernel", format!("`{}`: left out to stay within the budget", kernel.kernel));
    }
    if let Some(set) = fit.set {
        add("budget_sections", format!("only the set `{set}`, to stay within the budget"));
    }
    if !limit.holds(&fit.price) {
        add("over_budget", "even one launch exceeds the budget; it is profiled anyway".to_owned());
    }
    gaps
}

impl DeepChoices {
    /// The choice between what the user named, cheaper sets, and [`FALLBACK_SET`].
    pub(in crate::run) fn new(
        asked: LaunchCost,
        cheaper: &[(&'static str, LaunchCost)],
        fallback: LaunchCost,
    ) -> Self {
        let is_cheaper = |cost: &LaunchCost| cost.passes < asked.passes;
        let cheaper = cheaper.iter().filter(|(_, cost)| is_cheaper(cost));
        let cheaper = cheaper.map(|(set, cost)| (Some(*set), *cost));
        Self {
            sets: std::iter::once((None, asked)).chain(cheaper).collect(),
            fallback: is_cheaper(&fallback).then_some((Some(FALLBACK_SET), fallback)),
            max_launches: LAUNCHES_PER_CLASS,
            by_number: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::LaunchClass;
    use super::*;

    fn kernel(name: &str, launches: u64, ns: u64) -> KernelCandidate {
        let total_ns = (launches * ns) as f64;
        KernelCandidate {
            kernel: name.into(),
            durations: vec![ns as f64; launches as usize],
            classes: vec![LaunchClass {
                numbers: (1..=launches).collect(),
                total_ns,
                ..LaunchClass::default()
            }],
            launches,
            total_ns: launches * ns,
            mangled: None,
        }
    }

    const FULL: LaunchCost = LaunchCost { passes: 38, bytes: 1_000_000 };
    const DETAILED: LaunchCost = LaunchCost { passes: 20, bytes: 200_000 };
    const MINIMAL: LaunchCost = LaunchCost { passes: 9, bytes: 50_000 };

    fn choices() -> DeepChoices {
        DeepChoices::new(FULL, &[("detailed", DETAILED)], MINIMAL)
    }

    fn fitted(kernels: &[KernelCandidate], seconds: Option<u64>, bytes: u64) -> BudgetFit {
        fit(kernels, &choices(), 1.0, DeepBudget { seconds, bytes })
    }

    fn codes(fit: &BudgetFit) -> Vec<&str> {
        fit.left_out.iter().map(|gap| gap.code.as_str()).collect()
    }

    #[test]
    fn three_launches_of_each_kernel_are_no_cut_by_the_budget() {
        let kernels = [kernel("a", 1000, 1000), kernel("b", 2, 1000)];
        let fit = fitted(&kernels, Some(600), 500_000_000);
        assert_eq!((fit.kernels, fit.set, fit.counts.as_slice()), (2, None, &[3, 2][..]));
        assert_eq!(fit.numbers, [1, 2, 834]);
        assert_eq!((fit.price.passes, codes(&fit).len()), (38, 0));
    }

    #[test]
    fn beyond_it_go_sections_then_launches_then_kernels() {
        let kernels = [kernel("a", 1000, 1000), kernel("b", 1, 1000), kernel("c", 1, 1000)];
        let fit = fitted(&kernels, Some(600), 4_000_000);
        let kept = |fit: &BudgetFit| (fit.kernels, fit.set, fit.counts.clone());
        assert_eq!(kept(&fit), (3, Some("detailed"), vec![3, 1, 1]));
        assert_eq!(codes(&fit), ["budget_sections"]);
        let fit = fitted(&kernels, Some(600), 900_000);
        assert_eq!(kept(&fit), (3, Some("detailed"), vec![2, 1, 1]));
        assert_eq!(codes(&fit), ["budget_launches", "budget_sections"]);
        let fit = fitted(&kernels, Some(600), 250_000);
        assert_eq!(kept(&fit), (3, Some(FALLBACK_SET), vec![3, 1, 1]));
        let fit = fitted(&kernels, Some(600), 120_000);
        assert_eq!(kept(&fit), (2, Some(FALLBACK_SET), vec![1, 1]));
        assert_eq!(codes(&fit), ["budget_launches", "budget_kernel", "budget_sections"]);
        let fit = fitted(&kernels, Some(1), 500_000_000);
        assert_eq!(kept(&fit), (1, Some(FALLBACK_SET), vec![1]));
        assert!(codes(&fit).contains(&"over_budget"));
        assert!(fit.price.seconds > 1.0);
    }

    #[test]
    fn without_a_budget_the_pass_takes_no_longer_than_the_program_under_ncu_half_again() {
        let kernels = [kernel("a", 1000, 1000), kernel("b", 900, 1000), kernel("c", 800, 1000)];
        for program_s in [1.0, 15.0, 60.0] {
            let budget = DeepBudget { seconds: None, bytes: 500_000_000 };
            let fit = fit(&kernels, &choices(), program_s, budget);
            let limit = (1.5 * (program_s + 2.0)).max(20.0);
            assert!(fit.price.seconds <= limit, "{} > {limit}", fit.price.seconds);
            assert_eq!((fit.kernels, fit.numbers.is_empty()), (3, false));
        }
    }

    #[test]
    fn of_a_kernel_with_many_geometries_the_longest_is_measured() {
        let mut many = kernel("many", 1600, 1000);
        many.classes = (0..200)
            .map(|class| LaunchClass {
                numbers: (0..8).map(|launch| 200 * launch + class + 1).collect(),
                total_ns: if class == 7 { 90_000.0 } else { 8000.0 },
                ..LaunchClass::default()
            })
            .collect();
        let fit = fitted(&[many], Some(30), 500_000_000);
        assert_eq!(
            (fit.counts.as_slice(), fit.numbers.as_slice()),
            (&[3][..], &[208, 608, 1208][..])
        );
        assert_eq!(codes(&fit), [""; 0]);
    }

    /// A training step has elementwise kernels with many geometries each.
    #[test]
    fn beyond_the_budget_only_longer_classes_have_numbers() {
        let spread = |name: &str| {
            let mut spread = kernel(name, 700, 10_000);
            spread.classes = (0..7)
                .map(|class| LaunchClass {
                    numbers: (0..100).map(|launch| 7 * launch + class + 1).collect(),
                    total_ns: if class == 3 { 4e6 } else { 5e5 },
                    ..LaunchClass::default()
                })
                .collect();
            spread
        };
        let kernels = [spread("a"), spread("b"), spread("c")];
        let fit = fitted(&kernels, Some(600), 700_000);
        assert_eq!((fit.kernels, fit.set), (3, Some("detailed")));
        assert_eq!((fit.numbers.as_slice(), fit.counts.as_slice()), (&[347][..], &[1, 1, 1][..]));
        assert_eq!(codes(&fit).iter().filter(|code| **code == "budget_launches").count(), 3);
    }
}
