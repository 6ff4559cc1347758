//! Limits how many calls of nvdisasm run at once: each takes a core and a few hundred megabytes.

use std::sync::{Condvar, Mutex, PoisonError};

/// A number of permits that are lent and returned.
#[derive(Debug)]
pub(super) struct Permits {
    total: usize,
    free: Mutex<usize>,
    returned: Condvar,
}

impl Permits {
    /// One permit per core of this machine.
    pub(super) fn one_per_core() -> Self {
        let total = std::thread::available_parallelism().map_or(1, usize::from);
        Self { total, free: Mutex::new(total), returned: Condvar::new() }
    }

    /// The number of permits.
    pub(super) fn total(&self) -> usize {
        self.total
    }

    /// Waits for a permit, runs `work` and returns the permit.
    pub(super) fn take<T>(&self, work: impl FnOnce() -> T) -> T {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let free = self.returned.wait_while(free, |free| *free == 0);
        *free.unwrap_or_else(PoisonError::into_inner) -= 1;
        let _back = Permit(self);
        work()
    }
}

/// Returns its permit on drop, also if the work panics.
struct Permit<'t>(&'t Permits);

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.returned.notify_one();
    }
}
