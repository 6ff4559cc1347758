//! At most so many at once, whoever asks: nvdisasm takes a core and a few hundred megabytes.

use std::sync::{Condvar, Mutex, PoisonError};

/// Turns that are handed out and come back.
#[derive(Debug)]
pub(super) struct Permits {
    most: usize,
    free: Mutex<usize>,
    back: Condvar,
}

impl Permits {
    /// As many as this machine has cores.
    pub(super) fn one_a_core() -> Self {
        let most = std::thread::available_parallelism().map_or(1, usize::from);
        Self { most, free: Mutex::new(most), back: Condvar::new() }
    }

    /// How many there are.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Waits for a turn, does `work` and gives the turn back.
    pub(super) fn take<T>(&self, work: impl FnOnce() -> T) -> T {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let free = self.back.wait_while(free, |free| *free == 0);
        *free.unwrap_or_else(PoisonError::into_inner) -= 1;
        let _back = Permit(self);
        work()
    }
}

/// Gives a turn back, whatever became of the work.
struct Permit<'t>(&'t Permits);

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.back.notify_one();
    }
}
