//! Spreads work over the machine's cores: files, the images of a file, the kernels of an image, and
//! the calls of nvdisasm for an image, each over the cores that are free.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex};
use std::thread::Scope;

/// The cores of this machine. All spreads share them, so no more threads work than there are cores.
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
        let less = |free: usize| free.checked_sub(1);
        self.0
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, less)
            .ok()
            .map(|_| CorePermit(self))
    }

    /// Calls `work` with each number below `count` and returns the results in order. It starts with
    /// the lowest, on this thread and on every core that is or becomes free. Each thread has its
    /// own `state`.
    pub(super) fn spread<T: Send, S>(
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

/// The shared state of the threads of one spread.
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
        let squares = cores.spread(
            100,
            || 0,
            |done, at| {
                *done += 1;
                assert!(*done <= 100);
                cores.spread(at, || (), |(), inner| inner).len() * at
            },
        );
        assert!(squares.iter().enumerate().all(|(at, square)| *square == at * at));
        assert_eq!(cores.0.into_inner(), 3);
        assert!(SpareCores(AtomicUsize::new(0)).spread(0, || (), |(), _| ()).is_empty());
    }
}
