//! Chooses launches by their numbers. ncu's `--kernel-id` counts the launches of each kernel by
//! geometry, from 1, and matches the number with a regular expression. So one run of the program
//! profiles launches from all its parts. (`--launch-skip` and `--launch-count` only give launches in
//! a row, and `--filter-mode per-launch-config` mixes kernels of equal geometry.)
//!
//! One expression serves all kernels: a number that is chosen for a short class is taken from the
//! long ones too.

use std::collections::BTreeSet;

use super::{KernelCandidate, LaunchClass};

/// A class with a lower share of its kernel's time needs no launch of its own.
const MIN_CLASS_SHARE: f64 = 0.05;

/// The numbers that give up to `per_class` launches of each class, with one in its later half.
pub(super) fn choose(kernels: &[KernelCandidate], per_class: u64) -> Vec<u64> {
    let sizes: BTreeSet<u64> =
        kernels.iter().flat_map(long_classes).map(|class| class.launches).collect();
    let mut numbers = BTreeSet::new();
    for size in sizes {
        let wanted = per_class.min(size);
        let lacks = |numbers: &BTreeSet<u64>| {
            (numbers.range(..=size).count() as u64) < wanted
                || (wanted > 1 && numbers.range(size / 2 + 1..=size).next().is_none())
        };
        // The middles of equal parts, the last part first.
        for part in (1..=wanted).rev() {
            if lacks(&numbers) {
                numbers.insert(((2 * part - 1) * size).div_ceil(2 * wanted));
            }
        }
    }
    numbers.into_iter().collect()
}

/// How many launches of a kernel have one of these numbers, which ascend.
pub(super) fn count(kernel: &KernelCandidate, numbers: &[u64]) -> u64 {
    let of_class =
        |class: &LaunchClass| numbers.partition_point(|number| *number <= class.launches) as u64;
    kernel.classes.iter().map(of_class).sum()
}

/// The classes with a share of the kernel's time that counts; at least the longest.
fn long_classes(kernel: &KernelCandidate) -> impl Iterator<Item = &LaunchClass> {
    let total: f64 = kernel.classes.iter().map(|class| class.total_ns).sum();
    let longest = kernel.classes.iter().map(|class| class.total_ns).fold(0.0, f64::max);
    let least = longest.min(MIN_CLASS_SHARE * total);
    kernel.classes.iter().filter(move |class| class.total_ns >= least)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(classes: &[(u64, f64)]) -> KernelCandidate {
        let class = |&(launches, total_ns): &(u64, f64)| LaunchClass {
            launches,
            total_ns,
            ..LaunchClass::default()
        };
        KernelCandidate { classes: classes.iter().map(class).collect(), ..Default::default() }
    }

    #[test]
    fn three_launches_are_spread_over_a_class() {
        assert_eq!(choose(&[kernel(&[(128, 1.0)])], 3), [22, 64, 107]);
        assert_eq!(choose(&[kernel(&[(3, 1.0)])], 3), [1, 2, 3]);
        assert_eq!(choose(&[kernel(&[(2, 1.0)])], 3), [1, 2]);
        assert_eq!(choose(&[kernel(&[(9, 1.0)])], 1), [5]);
        assert_eq!(choose(&[], 3), [0; 0]);
    }

    #[test]
    fn classes_share_numbers_and_each_has_a_late_one() {
        let kernels = [kernel(&[(8, 1.0)]), kernel(&[(128, 1.0)]), kernel(&[(100, 1.0)])];
        let numbers = choose(&kernels, 3);
        assert_eq!(numbers, [2, 4, 7, 84]);
        let counts: Vec<u64> = kernels.iter().map(|kernel| count(kernel, &numbers)).collect();
        assert_eq!(counts, [3, 4, 4]);
    }

    #[test]
    fn a_short_class_gets_no_number_of_its_own_but_may_have_one() {
        let kernels = [kernel(&[(60, 99.0), (1, 1.0), (40, 1.0)])];
        let numbers = choose(&kernels, 3);
        assert_eq!(numbers, [10, 30, 50]);
        assert_eq!(count(&kernels[0], &numbers), 5);
    }

    #[test]
    fn of_many_equal_classes_the_longest_still_counts() {
        let kernels = [kernel(&[(8, 1.0); 200])];
        assert_eq!(count(&kernels[0], &choose(&kernels, 1)), 200);
    }
}
