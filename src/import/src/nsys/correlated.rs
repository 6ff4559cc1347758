//! A value for each correlation id of a process.
//!
//! GPU rows and API calls are in nearly the same order in the file, so the next id is mostly close
//! to the last one. A sorted list with a cursor is therefore several times faster than a hash table
//! and uses a third of the memory.

/// Process and correlation id.
pub(super) type Key = (u64, i64);

/// Values by key. All keys are known from the start.
#[derive(Debug)]
pub(super) struct ByCorrelation<T> {
    keys: Vec<Key>,
    values: Vec<Option<T>>,
}

impl<T> Default for ByCorrelation<T> {
    fn default() -> ByCorrelation<T> {
        ByCorrelation { keys: Vec::new(), values: Vec::new() }
    }
}

/// The index of the last hit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LastHit(usize);

impl<T> ByCorrelation<T> {
    /// Creates empty slots for `keys`, which may be in any order.
    pub(super) fn new(keys: impl Iterator<Item = Key>) -> ByCorrelation<T> {
        let mut keys: Vec<Key> = keys.collect();
        // The keys are nearly sorted, and the stable sort is fast on such input.
        keys.sort();
        keys.dedup();
        let mut values = Vec::new();
        values.resize_with(keys.len(), || None);
        ByCorrelation { keys, values }
    }

    fn find(&self, key: Key, finger: &mut LastHit) -> Option<usize> {
        let from = finger.0;
        let near = self.keys.get(from..)?.iter().take(4).position(|known| *known == key);
        let index = match near {
            Some(steps) => from + steps,
            None if self.keys.last().is_none_or(|last| *last < key) => return None,
            None => self.keys.binary_search(&key).ok()?,
        };
        finger.0 = index;
        Some(index)
    }

    /// The slot for a key's value. `None` for an unknown key.
    pub(super) fn slot(&mut self, key: Key, finger: &mut LastHit) -> Option<&mut Option<T>> {
        let index = self.find(key, finger)?;
        Some(&mut self.values[index])
    }

    /// All values, sorted by key.
    pub(super) fn into_values(self) -> impl Iterator<Item = T> {
        self.values.into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_in_any_order_are_found_wherever_the_finger_is() {
        let keys = [(2, 5), (1, 9), (1, 3), (2, 5), (1, 4), (1, 40), (3, 1), (1, -7)];
        let mut all = ByCorrelation::new(keys.into_iter());
        let mut finger = LastHit::default();
        for (value, key) in keys.into_iter().enumerate() {
            *all.slot(key, &mut finger).unwrap() = Some(value);
        }
        for missing in [(0, 0), (1, 5), (2, 4), (3, 2), (9, 9)] {
            assert!(all.slot(missing, &mut finger).is_none(), "{missing:?}");
        }
        for (value, key) in keys.into_iter().enumerate().rev() {
            // A second value for the same key replaces the first.
            let expected = if key == (2, 5) { 3 } else { value };
            assert_eq!(all.slot(key, &mut finger), Some(&mut Some(expected)), "{key:?}");
        }
        assert_eq!(all.into_values().count(), 7);
    }

    #[test]
    fn nothing_is_found_among_no_keys() {
        let mut all: ByCorrelation<u8> = ByCorrelation::default();
        assert_eq!(all.slot((1, 1), &mut LastHit::default()), None);
    }
}
