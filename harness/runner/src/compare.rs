//! Comparison of one output with the reference.

use crate::poison::Poison;
use rgpu_case::{Arg, Dtype, Mismatch, OutputCheck, Tolerance, Value};

/// One output after two launches on the same inputs. Unwritten elements are found only if `left`
/// began with the first poison and `right` with the second.
pub(crate) struct OutputPair<'a> {
    pub(crate) arg: &'a Arg,
    pub(crate) group: usize,
    pub(crate) left: &'a [u8],
    pub(crate) right: &'a [u8],
}

impl OutputPair<'_> {
    /// Whether neither launch wrote element `i`. Always false for `inout`, which is never poisoned.
    fn unwritten(&self, i: usize) -> bool {
        let dtype = self.arg.dtype;
        self.arg.role == rgpu_case::Role::Out
            && dtype.bits_at(self.left, i) == Some(Poison::First.bits(dtype))
            && dtype.bits_at(self.right, i) == Some(Poison::Second.bits(dtype))
    }

    fn elements(&self) -> usize {
        self.arg.count().unwrap_or(0) as usize
    }

    /// Whether both launches gave the same bits. Elements that neither launch wrote are skipped.
    pub(crate) fn bit_equal(&self) -> bool {
        self.left == self.right
            || (0..self.elements()).all(|i| {
                let dtype = self.arg.dtype;
                dtype.bits_at(self.left, i) == dtype.bits_at(self.right, i) || self.unwritten(i)
            })
    }

    /// How many elements differ between the launches by more than the tolerance, and the index of
    /// the first: sums in another order may be right and still differ in their last bits.
    pub(crate) fn differing(&self, default: &Tolerance) -> (u64, Option<usize>) {
        let dtype = self.arg.dtype;
        let tolerance = self.arg.tolerance.as_ref().unwrap_or(default);
        let mut all = (0..self.elements()).filter(|&i| {
            let (left, right) = (dtype.bits_at(self.left, i), dtype.bits_at(self.right, i));
            let (Some(left), Some(right)) = (left, right) else { return false };
            let expected_value = dtype.decode(right);
            left != right
                && !Deviation::between(dtype.decode(left), expected_value)
                    .within(tolerance, expected_value)
                && !self.unwritten(i)
        });
        let first = all.next();
        (u64::from(first.is_some()) + all.count() as u64, first)
    }

    /// How many elements neither launch wrote, and the index of the first.
    pub(crate) fn unwritten_elements(&self) -> (u64, Option<usize>) {
        let mut all = (0..self.elements()).filter(|&i| self.unwritten(i));
        let first = all.next();
        (u64::from(first.is_some()) + all.count() as u64, first)
    }

    /// Compares `left` with the reference.
    pub(crate) fn check(&self, expected: &[u8], default: &Tolerance) -> OutputCheck {
        let dtype = self.arg.dtype;
        let tolerance = self.arg.tolerance.as_ref().unwrap_or(default);
        let mut checked = OutputCheck {
            name: self.arg.name.clone(),
            group: self.group,
            elements: self.elements() as u64,
            mismatches: 0,
            unwritten: 0,
            max_abs_error: 0.0,
            max_rel_error: 0.0,
            first_mismatch: None,
        };
        for i in 0..self.elements() {
            let (Some(actual), Some(expected_value)) =
                (dtype.bits_at(self.left, i), dtype.bits_at(expected, i))
            else {
                break; // cannot happen: all three have the size of the argument
            };
            if self.unwritten(i) {
                checked.unwritten += 1;
            } else if actual == expected_value {
                continue;
            }
            let (actual, expected_value) = (dtype.decode(actual), dtype.decode(expected_value));
            let error = Deviation::between(actual, expected_value);
            checked.max_abs_error = checked.max_abs_error.max(error.abs);
            checked.max_rel_error = checked.max_rel_error.max(error.rel);
            if error.within(tolerance, expected_value) && !self.unwritten(i) {
                continue;
            }
            checked.mismatches += 1;
            if checked.first_mismatch.is_none() {
                checked.first_mismatch = Some(Mismatch {
                    index: i as u64,
                    coordinates: coordinates(i as u64, &self.arg.dims),
                    actual: actual.to_string(),
                    expected: expected_value.to_string(),
                });
            }
        }
        checked
    }
}

/// Whether an output passes: mismatches within the allowed fraction, and no unwritten element.
pub(crate) fn passes(checked: &OutputCheck, arg: &Arg, default: &Tolerance) -> bool {
    let tolerance = arg.tolerance.as_ref().unwrap_or(default);
    let allowed = tolerance.mismatch_fraction * checked.elements as f64;
    checked.unwritten == 0 && checked.mismatches as f64 <= allowed
}

/// How far a value is from the expected one; 0 if either is not finite.
struct Deviation {
    abs: f64,
    rel: f64,
    /// Whether both are equal, both NaN, or the same infinity.
    same: bool,
    finite: bool,
}

impl Deviation {
    fn between(actual: Value, expected: Value) -> Deviation {
        let same = match (actual, expected) {
            (Value::Int(a), Value::Int(e)) => a == e,
            _ => {
                let (a, e) = (actual.as_f64(), expected.as_f64());
                a == e || (a.is_nan() && e.is_nan())
            }
        };
        let distance = match (actual, expected) {
            // Exact even where both round to the same f64.
            (Value::Int(a), Value::Int(e)) => a.abs_diff(e) as f64,
            _ => (actual.as_f64() - expected.as_f64()).abs(),
        };
        let finite = actual.as_f64().is_finite() && expected.as_f64().is_finite();
        if !finite || same {
            return Deviation { abs: 0.0, rel: 0.0, same, finite };
        }
        let scale = expected.as_f64().abs();
        let rel = if scale > 0.0 { (distance / scale).min(f64::MAX) } else { 0.0 };
        // The distance of two finite values may overflow, and the report holds finite numbers only.
        Deviation { abs: distance.min(f64::MAX), rel, same, finite }
    }

    fn within(&self, tolerance: &Tolerance, expected: Value) -> bool {
        let allowed = tolerance.abs + tolerance.rel * expected.as_f64().abs();
        self.same || (self.finite && self.abs <= allowed)
    }
}

/// Row-major coordinates of an element.
fn coordinates(index: u64, dims: &[u64]) -> Vec<u64> {
    let mut rest = index;
    let mut coordinates: Vec<u64> = dims
        .iter()
        .rev()
        .map(|&dim| {
            let coordinate = rest % dim.max(1);
            rest /= dim.max(1);
            coordinate
        })
        .collect();
    coordinates.reverse();
    coordinates
}

/// Counts the elements that a reference left poisoned, for dtypes in which one launch can show it.
pub(crate) fn count_unwritten_by_reference(dtype: Dtype, count: u64, bytes: &[u8]) -> u64 {
    if !crate::poison::one_pattern_suffices(dtype) {
        return 0;
    }
    let poison = Some(Poison::First.bits(dtype));
    (0..count as usize).filter(|&i| dtype.bits_at(bytes, i) == poison).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_case::Role;

    fn arg(dtype: Dtype, dims: &[u64]) -> Arg {
        Arg {
            name: "y".into(),
            dtype,
            dims: dims.to_vec(),
            role: Role::Out,
            init: None,
            seed: None,
            value: None,
            tolerance: None,
        }
    }

    fn bytes(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    fn check(actual: &[f32], expected: &[f32], tolerance: Tolerance) -> (OutputCheck, bool) {
        let arg = arg(Dtype::F32, &[actual.len() as u64]);
        let actual = bytes(actual);
        let results = OutputPair { arg: &arg, group: 0, left: &actual, right: &actual };
        let checked = results.check(&bytes(expected), &tolerance);
        let passed = passes(&checked, &arg, &tolerance);
        (checked, passed)
    }

    fn tolerance(abs: f64, rel: f64) -> Tolerance {
        Tolerance { abs, rel, mismatch_fraction: 0.0 }
    }

    #[test]
    fn errors_within_either_part_of_the_tolerance_pass() {
        assert!(check(&[1.0, 100.1], &[1.001, 100.0], tolerance(0.01, 0.002)).1);
        let (checked, passed) = check(&[1.0, 101.0], &[1.0, 100.0], tolerance(0.01, 0.002));
        assert!(!passed);
        assert_eq!((checked.mismatches, checked.max_abs_error), (1, 1.0));
        assert_eq!(checked.max_rel_error, 0.01);
    }

    #[test]
    fn nan_matches_only_nan_and_infinity_only_itself() {
        let loose = tolerance(1e30, 1.0);
        assert!(check(&[f32::NAN, f32::INFINITY], &[f32::NAN, f32::INFINITY], loose).1);
        for (actual, expected) in
            [(f32::NAN, 1.0), (1.0, f32::NAN), (f32::INFINITY, f32::NEG_INFINITY)]
        {
            let (checked, passed) = check(&[actual], &[expected], loose);
            assert!(!passed && checked.max_abs_error == 0.0, "{actual} {expected}");
        }
    }

    #[test]
    fn the_first_mismatch_has_coordinates_and_both_values() {
        let arg = arg(Dtype::F32, &[2, 3]);
        let actual = bytes(&[0.0, 0.0, 0.0, 0.0, f32::NAN, 0.0]);
        let results = OutputPair { arg: &arg, group: 1, left: &actual, right: &actual };
        let checked = results.check(&bytes(&[0.0; 6]), &Tolerance::default());
        let first = checked.first_mismatch.unwrap();
        assert_eq!((first.index, first.coordinates), (4, vec![1, 1]));
        assert_eq!((first.actual.as_str(), first.expected.as_str()), ("NaN", "0.0"));
    }

    #[test]
    fn an_allowed_fraction_of_mismatches_passes_and_one_more_does_not() {
        let some = Tolerance { mismatch_fraction: 0.25, ..tolerance(0.0, 0.0) };
        assert!(check(&[1.0, 0.0, 0.0, 0.0], &[0.0; 4], some).1);
        assert!(!check(&[1.0, 1.0, 0.0, 0.0], &[0.0; 4], some).1);
    }

    #[test]
    fn large_integers_are_compared_exactly() {
        let arg = arg(Dtype::U64, &[1]);
        let actual = (u64::MAX).to_le_bytes();
        let results = OutputPair { arg: &arg, group: 0, left: &actual, right: &actual };
        let checked = results.check(&(u64::MAX - 1).to_le_bytes(), &Tolerance::default());
        assert_eq!((checked.mismatches, checked.max_abs_error), (1, 1.0));
    }

    #[test]
    fn an_element_that_neither_launch_wrote_fails_even_a_loose_tolerance() {
        for dtype in Dtype::ALL {
            let arg = arg(dtype, &[4]);
            let size = dtype.bytes_for(4).unwrap() as usize;
            let (mut first, mut second) = (vec![0; size], vec![0; size]);
            Poison::First.fill(dtype, &mut first);
            Poison::Second.fill(dtype, &mut second);
            let written = dtype.encode_int(1);
            for i in [0, 1, 3] {
                dtype.set_bits(&mut first, i, written).unwrap();
                dtype.set_bits(&mut second, i, written).unwrap();
            }
            let mut expected = vec![0; size];
            for i in 0..4 {
                dtype.set_bits(&mut expected, i, written).unwrap();
            }
            let results = OutputPair { arg: &arg, group: 0, left: &first, right: &second };
            let loose = tolerance(1e30, 0.0);
            let checked = results.check(&expected, &loose);
            assert_eq!((checked.unwritten, checked.mismatches), (1, 1), "{dtype}");
            assert!(!passes(&checked, &arg, &loose), "{dtype}");
            assert!(results.bit_equal(), "{dtype}: what nobody wrote is not a difference");
            assert_eq!(results.unwritten_elements(), (1, Some(2)), "{dtype}");
        }
    }

    #[test]
    fn a_changing_result_is_not_bit_equal() {
        let arg = arg(Dtype::F32, &[2]);
        let (first, second) = (bytes(&[1.0, 2.0]), bytes(&[1.0, 2.5]));
        assert!(!OutputPair { arg: &arg, group: 0, left: &first, right: &second }.bit_equal());
    }

    #[test]
    fn differences_within_the_tolerance_are_no_differing_elements() {
        let arg = arg(Dtype::F32, &[3]);
        let (first, second) = (bytes(&[1.0, 2.0, 3.0]), bytes(&[1.0, 2.001, 4.0]));
        let results = OutputPair { arg: &arg, group: 0, left: &first, right: &second };
        assert_eq!(results.differing(&tolerance(0.01, 0.0)), (1, Some(2)));
        assert_eq!(results.differing(&tolerance(0.0, 0.0)), (2, Some(1)));
    }

    #[test]
    fn poison_left_by_a_reference_is_counted() {
        let mut expected = bytes(&[1.0, 2.0, 3.0]);
        Poison::First.fill(Dtype::F32, &mut expected[4..8]);
        assert_eq!(count_unwritten_by_reference(Dtype::F32, 3, &expected), 1);
    }
}
