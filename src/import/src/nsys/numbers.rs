//! Small numbers for values that occur millions of times but have few distinct values.

use std::collections::HashMap;

/// Numbers values in order of first occurrence. A recently seen value costs one comparison.
#[derive(Debug)]
pub(super) struct ValueNumbers {
    all: Vec<u64>,
    by_value: HashMap<u64, u32>,
    /// Numbers of recently seen values, in a slot chosen by the value's bits.
    recent: [u32; RECENT_SLOTS],
}

const RECENT_SLOTS: usize = 256;

impl Default for ValueNumbers {
    fn default() -> ValueNumbers {
        ValueNumbers { all: Vec::new(), by_value: HashMap::new(), recent: [0; RECENT_SLOTS] }
    }
}

/// The slot of a value. String and thread ids differ in their lowest bits, process ids above bit
/// 24.
fn recent_slot(value: u64) -> usize {
    (value ^ (value >> 24)) as usize % RECENT_SLOTS
}

impl ValueNumbers {
    /// The number of a value, and whether the value is new.
    pub(super) fn number(&mut self, value: u64) -> (u32, bool) {
        let recent = self.recent[recent_slot(value)];
        if self.get(recent) == Some(value) {
            return (recent, false);
        }
        // More than 2^32 distinct values would need a far larger file than the size limit allows.
        let next = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
        let number = *self.by_value.entry(value).or_insert(next);
        let new = number == next;
        if new {
            self.all.push(value);
        }
        self.recent[recent_slot(value)] = number;
        (number, new)
    }

    /// The number of a value. `None` if it has not occurred.
    pub(super) fn known(&self, value: u64) -> Option<u32> {
        let recent = self.recent[recent_slot(value)];
        if self.get(recent) == Some(value) {
            return Some(recent);
        }
        self.by_value.get(&value).copied()
    }

    /// Number of distinct values.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// All values by number.
    pub(super) fn all(&self) -> &[u64] {
        &self.all
    }

    /// The value with a number.
    pub(super) fn get(&self, number: u32) -> Option<u64> {
        self.all.get(number as usize).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_their_numbers_though_they_share_a_place() {
        let mut numbers = ValueNumbers::default();
        let values = [0, 256, 512, 0, 1 << 24, 1, 256, u64::MAX];
        let got: Vec<_> = values.iter().map(|value| numbers.number(*value)).collect();
        let expected = [
            (0, true),
            (1, true),
            (2, true),
            (0, false),
            (3, true),
            (4, true),
            (1, false),
            (5, true),
        ];
        assert_eq!(got, expected);
        assert_eq!((numbers.known(512), numbers.known(7)), (Some(2), None));
        assert_eq!((numbers.get(3), numbers.get(6)), (Some(1 << 24), None));
    }
}
