//! Tables of domains and registered strings. A handle is an index into a table, so that an invalid
//! handle finds nothing instead of an invalid address. Entries are never freed or moved: reading
//! needs no lock, which a fork could leave taken.

use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Domain names; number 0 is the default domain and stays empty.
pub(crate) static DOMAINS: Names<1024> = Names::new();
/// Registered strings of all domains; number 0 is the null handle.
pub(crate) static STRINGS: Names<65536> = Names::new();

/// Stands for all names that no longer fit.
const OVERFLOW: &str = "(more names than the collector keeps)";

/// An append-only table of names.
pub(crate) struct Names<const N: usize> {
    slots: [AtomicPtr<Box<str>>; N],
    next: AtomicUsize,
}

impl<const N: usize> Names<N> {
    const fn new() -> Self {
        Self {
            slots: [const { AtomicPtr::new(std::ptr::null_mut()) }; N],
            next: AtomicUsize::new(1),
        }
    }

    /// Adds a name and returns its number; a full table returns its last number for everything.
    pub(crate) fn add(&self, name: &str) -> usize {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (number, name) = if number < N - 1 { (number, name) } else { (N - 1, OVERFLOW) };
        if number == N - 1 {
            self.next.store(N - 1, Ordering::Relaxed);
            if self.get(number).is_some() {
                return number;
            }
        }
        let entry = Box::into_raw(Box::new(Box::from(name)));
        self.slots[number].store(entry, Ordering::Release);
        number
    }

    /// The name with this number, if there is one.
    pub(crate) fn get(&self, number: usize) -> Option<&'static str> {
        let entry = self.slots.get(number)?.load(Ordering::Acquire);
        // SAFETY: a slot is null or holds a leaked box that never changes.
        unsafe { entry.as_ref() }.map(|name| &**name)
    }

    /// All names with their numbers.
    pub(crate) fn all(&self) -> impl Iterator<Item = (usize, &'static str)> {
        let end = self.next.load(Ordering::Acquire).saturating_add(1).min(N);
        (1..end).filter_map(|number| Some((number, self.get(number)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_numbers_have_no_name() {
        static TABLE: Names<8> = Names::new();
        let a = TABLE.add("a");
        assert_eq!((TABLE.get(a), TABLE.get(0), TABLE.get(99)), (Some("a"), None, None));
    }

    #[test]
    fn a_full_table_gives_one_number_to_the_rest() {
        static TABLE: Names<4> = Names::new();
        let numbers: Vec<_> = ["a", "b", "c", "d", "e"].map(|name| TABLE.add(name)).into();
        assert_eq!(numbers, [1, 2, 3, 3, 3]);
        assert_eq!(TABLE.get(3), Some(OVERFLOW));
        assert_eq!(TABLE.all().count(), 3);
    }
}
