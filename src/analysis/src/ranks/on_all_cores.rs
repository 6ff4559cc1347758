//! Work on many items by all cores.

use std::panic::resume_unwind;
use std::thread::{available_parallelism, scope};

/// The results for all items, in their order. Each core gets an equal part of the items.
pub(super) fn map<T: Sync, R: Send>(items: &[T], each: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let cores = available_parallelism().map_or(1, usize::from);
    map_on(cores, items, each)
}

fn map_on<T: Sync, R: Send>(cores: usize, items: &[T], each: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let part = items.len().div_ceil(cores).max(1);
    if part >= items.len() {
        return items.iter().map(each).collect();
    }
    let each = &each;
    scope(|scope| {
        let threads: Vec<_> = items
            .chunks(part)
            .map(|part| scope.spawn(move || part.iter().map(each).collect::<Vec<R>>()))
            .collect();
        let parts =
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|e| resume_unwind(e)));
        parts.flatten().collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_items_whatever_the_cores() {
        for many in [0_u64, 1, 2, 7, 100] {
            let items: Vec<u64> = (0..many).collect();
            let expected: Vec<u64> = items.iter().map(|n| n * n).collect();
            for cores in [1, 2, 3, 64] {
                assert_eq!(map_on(cores, &items, |n| n * n), expected, "{many} on {cores}");
            }
        }
    }
}
