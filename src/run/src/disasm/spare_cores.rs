//! Runs nested loops (files, images, kernels, nvdisasm calls) in parallel on at most as many
//! threads as there are cores.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex};
use std::thread::Scope;

/// The cores of this machine. All loops share them, so no more threads work than there are cores.
pub(super) static CORES: LazyLock<SpareCores> =
    LazyLock::new(|| SpareCores(AtomicUsize::new(core_count() - 1)));

/// The number of cores of this machine.
pub(super) fn core_count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The number of free cores, without the caller's own.
#[derive(Debug)]
pub(super) struct SpareCores(AtomicUsize);

impl SpareCores {
    fn take(&self) -> Option<CorePermit<'_>> {
        let decrement = |free: usize| free.checked_sub(1);
        self.0
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, decrement)
            .ok()
            .map(|_| CorePermit(self))
    }

    /// Calls `work` with each number below `count` and returns the results in order. It starts with
    /// the lowest, on this thread and on every core that is or becomes free. Each thread has its
    /// own `state`.
    pub(super) fn parallel_map<T: Send, S>(
        &self,
        count: usize,
        state: impl Fn() -> S + Sync,
        work: impl Fn(&mut S, usize) -> T + Sync,
    ) -> Vec<T> {
        if count < 2 {
            let mut state = state();
            return (0..count).map(|at| work(&mut state, at)).collect();
        }
        let queue = WorkQueue {
            cores: self,
            next: AtomicUsize::new(0),
            done: Mutex::new(Vec::with_capacity(count)),
            count,
            state,
            work,
        };
        std::thread::scope(|scope| queue.run(scope));
        let mut done = queue.done.into_inner().unwrap_or_default();
        done.sort_unstable_by_key(|(at, _)| *at);
        done.into_iter().map(|(_, result)| result).collect()
    }
}

/// A core in use; freed on drop.
struct CorePermit<'c>(&'c SpareCores);

impl Drop for CorePermit<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_add(1, Ordering::AcqRel);
    }
}

/// The shared state of one `parallel_map` call.
struct WorkQueue<'c, T, M, W> {
    cores: &'c SpareCores,
    next: AtomicUsize,
    done: Mutex<Vec<(usize, T)>>,
    count: usize,
    state: M,
    work: W,
}

impl<'c, T: Send, S, M: Fn() -> S + Sync, W: Fn(&mut S, usize) -> T + Sync> WorkQueue<'c, T, M, W> {
    fn run<'s>(&'s self, scope: &'s Scope<'s, '_>) {
        let mut state = (self.state)();
        loop {
            let at = self.next.fetch_add(1, Ordering::Relaxed);
            if at >= self.count {
                break;
            }
            if at + 1 < self.count
                && let Some(core) = self.cores.take()
            {
                scope.spawn(move || {
                    let _core = core;
                    self.run(scope);
                });
            }
            let result = (self.work)(&mut state, at);
            if let Ok(mut done) = self.done.lock() {
                done.push((at, result));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_done_once_and_comes_back_in_order() {
        let cores = SpareCores(AtomicUsize::new(3));
        let squares = cores.parallel_map(
            100,
            || 0,
            |done, at| {
                *done += 1;
                assert!(*done <= 100);
                cores.parallel_map(at, || (), |(), inner| inner).len() * at
            },
        );
        assert!(squares.iter().enumerate().all(|(at, square)| *square == at * at));
        assert_eq!(cores.0.into_inner(), 3);
        assert!(SpareCores(AtomicUsize::new(0)).parallel_map(0, || (), |(), _| ()).is_empty());
    }
}
