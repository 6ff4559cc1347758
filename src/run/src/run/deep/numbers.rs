//! Chooses launches by their numbers. ncu's `--kernel-id` numbers the launches of each kernel from
//! 1, and matches the number with a regular expression. So one run of the program profiles launches
//! from all its parts. (`--launch-skip` and `--launch-count` only give launches in a row, and
//! `--filter-mode per-launch-config` mixes kernels of equal geometry.)
//!
//! NVIDIA's manual says that grid, block and shared memory have counts of their own. ncu 2025.3.1
//! does not do so: with the numbers 7, 20, 34 and 67 it profiled the launches of `cupy_copy` that
//! have these numbers among all 120, the four of them with the small grid, in their place between
//! those of other kernels. So the numbers here count all launches of a kernel.
//!
//! One expression serves all kernels: a number that is chosen for one class takes a launch of each
//! other kernel, too. So numbers that serve several classes are preferred.

use std::collections::BTreeSet;

use super::{KernelCandidate, LaunchClass};

/// How many launches of a kernel are profiled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LaunchQuota {
    /// Launches of each class.
    pub per_class: u64,
    /// A class with a lower share of its kernel's time needs no launch of its own.
    pub min_share: f64,
}

/// [`LaunchQuota::min_share`], unless the budget needs fewer launches.
pub(super) const MIN_CLASS_SHARE: f64 = 0.05;

/// The quotas to try, from most launches to least: fewer of each class, then only of longer
/// classes, then only of the longest class of each kernel.
pub(super) fn quotas(most: u64) -> impl Iterator<Item = LaunchQuota> {
    let fewer =
        (1..=most).rev().map(|per_class| LaunchQuota { per_class, min_share: MIN_CLASS_SHARE });
    fewer.chain([0.2, 1.0].map(|min_share| LaunchQuota { per_class: 1, min_share }))
}

/// The numbers that give up to `per_class` launches of each class, with one in its later half.
pub(super) fn choose(kernels: &[KernelCandidate], quota: LaunchQuota) -> Vec<u64> {
    let mut classes: Vec<&LaunchClass> =
        kernels.iter().flat_map(|kernel| long_classes(kernel, quota.min_share)).collect();
    classes.sort_by_key(|class| class.numbers.len());
    let mut chosen = BTreeSet::new();
    for (at, class) in classes.iter().enumerate() {
        let target_count = target_count(class, quota.per_class);
        // The last part first.
        for part in (0..target_count).rev() {
            let size = class.numbers.len();
            let part_numbers =
                &class.numbers[part * size / target_count..(part + 1) * size / target_count];
            if lacks(class, &chosen, target_count)
                && !part_numbers.iter().any(|n| chosen.contains(n))
            {
                let middle = ((2 * part + 1) * size).div_ceil(2 * target_count) - 1;
                let middle = class.numbers[middle.min(size - 1)];
                let later = &classes[at + 1..];
                chosen.extend(most_useful(part_numbers, middle, later, &chosen, quota));
            }
        }
    }
    chosen.into_iter().collect()
}

fn target_count(class: &LaunchClass, per_class: u64) -> usize {
    class.numbers.len().min(usize::try_from(per_class).unwrap_or(usize::MAX))
}

/// Whether a class has too few of these numbers, or none in its later half.
fn lacks(class: &LaunchClass, chosen: &BTreeSet<u64>, target_count: usize) -> bool {
    let later_half = &class.numbers[class.numbers.len() / 2..];
    let count = class.numbers.iter().filter(|number| chosen.contains(number)).count();
    count < target_count
        || target_count > 1 && !later_half.iter().any(|number| chosen.contains(number))
}

/// The number that also serves most of the other classes, of equal ones the one nearest to
/// `middle`.
fn most_useful(
    numbers: &[u64],
    middle: u64,
    others: &[&LaunchClass],
    chosen: &BTreeSet<u64>,
    quota: LaunchQuota,
) -> Option<u64> {
    let lacking =
        others.iter().filter(|class| lacks(class, chosen, target_count(class, quota.per_class)));
    let lacking: Vec<&&LaunchClass> = lacking.collect();
    let served = |number: u64| {
        lacking.iter().filter(|class| class.numbers.binary_search(&number).is_ok()).count()
    };
    let nearest = |number: &u64| std::cmp::Reverse(number.abs_diff(middle));
    numbers.iter().copied().max_by_key(|number| (served(*number), nearest(number)))
}

/// How many launches of a kernel have one of these numbers, which ascend.
pub(super) fn count(kernel: &KernelCandidate, numbers: &[u64]) -> u64 {
    numbers.partition_point(|number| *number <= kernel.launches) as u64
}

/// The classes with such a share of the kernel's time; at least the longest.
fn long_classes(kernel: &KernelCandidate, min_share: f64) -> impl Iterator<Item = &LaunchClass> {
    let total: f64 = kernel.classes.iter().map(|class| class.total_ns).sum();
    let mut classes: Vec<&LaunchClass> =
        kernel.classes.iter().filter(|class| !class.numbers.is_empty()).collect();
    classes.sort_by(|a, b| b.total_ns.total_cmp(&a.total_ns));
    let long = |class: &&LaunchClass| class.total_ns >= min_share * total;
    let count = classes.iter().take_while(|class| long(class)).count().max(1);
    classes.into_iter().take(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel whose launches have these classes, in order.
    fn kernel(order: &[usize], launch_ns: &[f64]) -> KernelCandidate {
        let mut kernel = KernelCandidate {
            classes: vec![LaunchClass::default(); launch_ns.len()],
            launches: order.len() as u64,
            ..KernelCandidate::default()
        };
        for (number, class) in (1..).zip(order) {
            kernel.classes[*class].numbers.push(number);
            kernel.classes[*class].total_ns += launch_ns[*class];
        }
        kernel
    }

    fn of(launches: usize) -> KernelCandidate {
        kernel(&vec![0; launches], &[1.0])
    }

    fn chosen(kernels: &[KernelCandidate], per_class: u64) -> Vec<u64> {
        choose(kernels, LaunchQuota { per_class, min_share: MIN_CLASS_SHARE })
    }

    #[test]
    fn three_launches_are_spread_over_a_class() {
        assert_eq!(chosen(&[of(128)], 3), [22, 64, 107]);
        assert_eq!(chosen(&[of(3)], 3), [1, 2, 3]);
        assert_eq!(chosen(&[of(2)], 3), [1, 2]);
        assert_eq!(chosen(&[of(9)], 1), [5]);
        assert_eq!(chosen(&[], 3), [0; 0]);
    }

    #[test]
    fn kernels_share_numbers_and_each_has_a_late_one() {
        let kernels = [of(8), of(128), of(100)];
        let numbers = chosen(&kernels, 3);
        assert_eq!(numbers, [2, 4, 7, 84]);
        let counts: Vec<u64> = kernels.iter().map(|kernel| count(kernel, &numbers)).collect();
        assert_eq!(counts, [3, 4, 4]);
    }

    /// CuPy's copies for `roll` in the order of the recorded run: two of a row, then one of the
    /// rest of the grid, 1.7 µs and 81 µs.
    #[test]
    fn the_numbers_are_those_of_the_long_class_among_all_launches() {
        let order: Vec<usize> = [0, 0, 1].repeat(40);
        let copies = kernel(&order, &[1698.0, 81_017.0]);
        let numbers = chosen(std::slice::from_ref(&copies), 3);
        assert_eq!(numbers, [21, 60, 102]);
        assert!(numbers.iter().all(|number| copies.classes[1].numbers.contains(number)));
        // With `cupy_add` and `cupy_multiply`, which have one geometry each.
        let kernels = [of(80), copies, of(40)];
        let numbers = chosen(&kernels, 3);
        let long = &kernels[1].classes[1].numbers;
        assert_eq!(numbers.iter().filter(|number| long.contains(number)).count(), 3);
        let counts: Vec<u64> = kernels.iter().map(|kernel| count(kernel, &numbers)).collect();
        assert_eq!((numbers.as_slice(), counts), (&[7, 21, 34, 60, 102][..], vec![4, 5, 3]));
    }

    /// The elementwise kernel of a `gemm` run: one launch of each of two geometries.
    #[test]
    fn two_geometries_with_one_launch_each_have_two_numbers() {
        let numbers = chosen(&[kernel(&[0, 1], &[186_000.0, 9000.0])], 3);
        assert_eq!(numbers, [1], "the second has 4.6 % of the time");
        assert_eq!(chosen(&[kernel(&[0, 1], &[186_000.0, 19_000.0])], 3), [1, 2]);
    }

    #[test]
    fn fewer_launches_are_of_longer_classes() {
        let order: Vec<usize> = (0..10).cycle().take(100).collect();
        let ns: Vec<f64> = (0..10).map(|class| if class < 2 { 40.0 } else { 10.0 }).collect();
        let kernels = [kernel(&order, &ns)];
        let counts: Vec<usize> = quotas(2).map(|quota| choose(&kernels, quota).len()).collect();
        assert_eq!(counts, [20, 10, 2, 1]);
    }
}
