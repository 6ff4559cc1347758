//! Fills outputs before a launch with patterns that reveal unwritten elements.
//!
//! Each dtype has two patterns. For floats the first is a NaN other than the one that GPU
//! arithmetic produces (`0x7fffffff`); the second is an ordinary number near 1.3. A result computed
//! from poison therefore differs between the two. An element counts as unwritten only if it holds
//! the first pattern after a launch on the first, and the second after a launch on the second, so
//! no computed value can be mistaken for poison.

use rgpu_case::Dtype;

/// Selects one of the two patterns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Poison {
    First,
    Second,
}

impl Poison {
    /// The bits of one poisoned element.
    pub(crate) fn bits(self, dtype: Dtype) -> u64 {
        let all = u64::MAX >> (64 - dtype.bits());
        match (dtype, self) {
            (Dtype::F64, Poison::Second) => 0x3ff4_b4b4_b4b4_b4b5,
            (Dtype::F32, Poison::Second) => 0x3fa5_a5a5,
            (Dtype::F16, Poison::Second) => 0x3d5a,
            (Dtype::Bf16, Poison::Second) => 0x3fa5,
            (Dtype::E4m3, Poison::Second) => 0x3b,
            (Dtype::E5m2, Poison::Second) => 0x3d,
            (Dtype::E2m1, Poison::Second) => 0x3,
            (_, Poison::First) if dtype.is_float() => all,
            (_, Poison::First) => 0xa5a5_a5a5_a5a5_a5a5 & all,
            (_, Poison::Second) => 0x5a5a_5a5a_5a5a_5a5a & all,
        }
    }

    /// The value of every byte of the first pattern.
    pub(crate) fn first_byte(dtype: Dtype) -> u8 {
        if dtype.is_float() { 0xff } else { 0xa5 }
    }

    /// Fills a tensor with the pattern.
    pub(crate) fn fill(self, dtype: Dtype, bytes: &mut [u8]) {
        let bits = self.bits(dtype);
        if dtype.bits() == 4 {
            bytes.fill((bits | bits << 4) as u8);
            return;
        }
        let width = dtype.bits() as usize / 8;
        for element in bytes.chunks_exact_mut(width) {
            element.copy_from_slice(&bits.to_le_bytes()[..width]);
        }
    }
}

/// Whether a single launch on the first pattern is enough to recognise an unwritten element: the
/// dtype is wide enough, or the pattern is a NaN that results do not have.
pub(crate) fn one_pattern_suffices(dtype: Dtype) -> bool {
    dtype.bits() >= 16 || matches!(dtype, Dtype::E4m3 | Dtype::E5m2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn float_poison_is_nan_first_and_an_ordinary_number_second() {
        for dtype in Dtype::ALL.into_iter().filter(|d| d.is_float()) {
            let value = |poison: Poison| dtype.decode(poison.bits(dtype)).as_f64();
            assert!(value(Poison::First).is_nan() || dtype == Dtype::E2m1, "{dtype}");
            assert!((1.2..=1.5).contains(&value(Poison::Second)), "{dtype}");
        }
    }

    #[test]
    fn the_two_patterns_differ_for_every_dtype() {
        for dtype in Dtype::ALL {
            assert_ne!(Poison::First.bits(dtype), Poison::Second.bits(dtype), "{dtype}");
        }
    }

    #[test]
    fn the_first_pattern_is_one_byte_over_and_over() {
        for dtype in Dtype::ALL {
            let mut bytes = vec![0; dtype.bytes_for(6).unwrap() as usize];
            Poison::First.fill(dtype, &mut bytes);
            let byte = Poison::first_byte(dtype);
            assert!(bytes.iter().all(|&b| b == byte), "{dtype}: {bytes:x?}");
        }
    }

    #[test]
    fn filling_reaches_every_element() {
        for dtype in Dtype::ALL {
            let mut bytes = vec![0; dtype.bytes_for(6).unwrap() as usize];
            Poison::Second.fill(dtype, &mut bytes);
            for i in 0..6 {
                assert_eq!(dtype.bits_at(&bytes, i), Some(Poison::Second.bits(dtype)));
            }
        }
    }
}
