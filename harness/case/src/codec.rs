//! Encoding, decoding and packing of elements of every dtype.
//!
//! Little-endian; sub-byte elements are packed low nibble first. Floats are rounded to nearest,
//! ties to even, and finite values beyond the range become the largest finite value (what PTX
//! calls `cvt.rn.satfinite`), so that a generated input never holds an infinity by accident.
//!
//! | dtype | sign/exponent/mantissa bits | bias | largest finite | infinity | NaN |
//! |---|---|---|---|---|---|
//! | `f16` | 1/5/10 | 15 | 65504 | yes | yes |
//! | `bf16` | 1/8/7 | 127 | 3.39e38 | yes | yes |
//! | `e4m3` | 1/4/3 | 7 | 448 | no | `0x7f`, `0xff` |
//! | `e5m2` | 1/5/2 | 15 | 57344 | yes | yes |
//! | `e2m1` | 1/2/1 | 1 | 6 | no | no |
//!
//! Source of the 8- and 4-bit formats: the OCP specifications "8-bit Floating Point" (revision
//! 1.0) and "Microscaling Formats" (version 1.0).

use crate::{Dtype, Number};

/// One element, decoded without loss.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// An element of a floating-point dtype.
    Float(f64),
    /// An element of an integer dtype or `bool`.
    Int(i128),
}

impl Value {
    /// The nearest `f64`; integers beyond 2^53 are rounded.
    pub fn as_f64(self) -> f64 {
        match self {
            Value::Float(value) => value,
            Value::Int(value) => value as f64,
        }
    }
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Value::Float(value) => write!(f, "{value:?}"),
            Value::Int(value) => write!(f, "{value}"),
        }
    }
}

/// Layout of a float format narrower than f32.
struct Small {
    exponent_bits: u32,
    mantissa_bits: u32,
    max_finite: u64,
    infinity: Option<u64>,
    nan: Option<u64>,
}

impl Small {
    fn from_dtype(dtype: Dtype) -> Option<Small> {
        let (exponent_bits, mantissa_bits, max_finite, infinity, nan) = match dtype {
            Dtype::F16 => (5, 10, 0x7bff, Some(0x7c00), Some(0x7e00)),
            Dtype::Bf16 => (8, 7, 0x7f7f, Some(0x7f80), Some(0x7fc0)),
            Dtype::E4m3 => (4, 3, 0x7e, None, Some(0x7f)),
            Dtype::E5m2 => (5, 2, 0x7b, Some(0x7c), Some(0x7e)),
            Dtype::E2m1 => (2, 1, 0x7, None, None),
            _ => return None,
        };
        Some(Small { exponent_bits, mantissa_bits, max_finite, infinity, nan })
    }

    fn bias(&self) -> i32 {
        (1 << (self.exponent_bits - 1)) - 1
    }

    fn sign_bit(&self) -> u64 {
        1 << (self.exponent_bits + self.mantissa_bits)
    }

    fn encode(&self, value: f64) -> u64 {
        let sign = if value.is_sign_negative() { self.sign_bit() } else { 0 };
        if value.is_nan() {
            return self.nan.unwrap_or(self.max_finite);
        }
        if value.is_infinite() {
            return sign | self.infinity.unwrap_or(self.max_finite);
        }
        let bits = value.abs().to_bits();
        let exponent = (bits >> 52) as i32 - 1023;
        if exponent < -1022 {
            return sign; // f64's own subnormals are below every format's half step
        }
        let significand = (bits & ((1 << 52) - 1)) | (1 << 52);
        let smallest = 1 - self.bias();
        let below = (smallest - exponent).max(0) as u32;
        let shift = 52 - self.mantissa_bits + below;
        if shift > 53 {
            return sign;
        }
        let kept = significand >> shift;
        let rest = significand & ((1 << shift) - 1);
        let half = 1u64 << (shift - 1);
        let up = rest > half || (rest == half && kept & 1 == 1);
        // The implicit bit in `kept` adds one to the exponent field, and so does a carry.
        let field = (exponent - smallest).max(0) as u64;
        let code = (field << self.mantissa_bits) + kept + u64::from(up);
        sign | code.min(self.max_finite)
    }

    fn decode(&self, bits: u64) -> f64 {
        let code = bits & (self.sign_bit() - 1);
        let sign = if bits & self.sign_bit() != 0 { -1.0 } else { 1.0 };
        if code > self.max_finite {
            return if self.infinity == Some(code) { sign * f64::INFINITY } else { f64::NAN };
        }
        let mantissa = code & ((1 << self.mantissa_bits) - 1);
        let field = (code >> self.mantissa_bits) as i32;
        let (significand, exponent) = match field {
            0 => (mantissa, 1 - self.bias()),
            _ => (mantissa | (1 << self.mantissa_bits), field - self.bias()),
        };
        sign * significand as f64 * 2f64.powi(exponent - self.mantissa_bits as i32)
    }
}

impl Dtype {
    /// The bits of the nearest element; integers truncate towards zero and saturate, NaN is 0.
    pub fn encode_f64(self, value: f64) -> u64 {
        match self {
            Dtype::F64 => value.to_bits(),
            Dtype::F32 => {
                let narrow = value as f32;
                let narrow = if narrow.is_infinite() && value.is_finite() {
                    f32::MAX.copysign(narrow)
                } else {
                    narrow
                };
                u64::from(narrow.to_bits())
            }
            _ => match Small::from_dtype(self) {
                Some(small) => small.encode(value),
                None => self.encode_int(value as i128),
            },
        }
    }

    /// The bits of a whole number; integers saturate, `bool` is 1 for all but 0.
    pub fn encode_int(self, value: i128) -> u64 {
        let clamped = |lo: i128, hi: i128| value.clamp(lo, hi) as u64 & self.mask();
        match self {
            Dtype::I64 => clamped(i64::MIN.into(), i64::MAX.into()),
            Dtype::I32 => clamped(i32::MIN.into(), i32::MAX.into()),
            Dtype::I16 => clamped(i16::MIN.into(), i16::MAX.into()),
            Dtype::I8 => clamped(i8::MIN.into(), i8::MAX.into()),
            Dtype::U64 => clamped(0, u64::MAX.into()),
            Dtype::U32 => clamped(0, u32::MAX.into()),
            Dtype::U16 => clamped(0, u16::MAX.into()),
            Dtype::U8 => clamped(0, u8::MAX.into()),
            Dtype::Bool => u64::from(value != 0),
            _ => self.encode_f64(value as f64),
        }
    }

    /// The bits of a JSON number.
    pub fn encode(self, value: Number) -> u64 {
        match value {
            Number::Int(value) => self.encode_int(value.into()),
            Number::Float(value) => self.encode_f64(value),
        }
    }

    /// Decodes the bits of one element; bits above its width are ignored.
    pub fn decode(self, bits: u64) -> Value {
        let bits = bits & self.mask();
        match self {
            Dtype::F64 => Value::Float(f64::from_bits(bits)),
            Dtype::F32 => Value::Float(f32::from_bits(bits as u32).into()),
            Dtype::I64 => Value::Int((bits as i64).into()),
            Dtype::I32 => Value::Int((bits as i32).into()),
            Dtype::I16 => Value::Int((bits as i16).into()),
            Dtype::I8 => Value::Int((bits as i8).into()),
            _ => match Small::from_dtype(self) {
                Some(small) => Value::Float(small.decode(bits)),
                None => Value::Int(bits.into()),
            },
        }
    }

    /// The bits of element `index` of packed data; `None` when it lies beyond the end.
    pub fn bits_at(self, bytes: &[u8], index: usize) -> Option<u64> {
        if self.bits() == 4 {
            return Some(u64::from(*bytes.get(index / 2)? >> (index % 2 * 4) & 0xf));
        }
        let width = self.bits() as usize / 8;
        let start = index.checked_mul(width)?;
        let mut word = [0; 8];
        word[..width].copy_from_slice(bytes.get(start..start.checked_add(width)?)?);
        Some(u64::from_le_bytes(word))
    }

    /// Writes element `index` of packed data; `None` when it lies beyond the end.
    pub fn set_bits(self, bytes: &mut [u8], index: usize, bits: u64) -> Option<()> {
        if self.bits() == 4 {
            let byte = bytes.get_mut(index / 2)?;
            let shift = index % 2 * 4;
            *byte = *byte & !(0xf << shift) | (bits as u8 & 0xf) << shift;
            return Some(());
        }
        let width = self.bits() as usize / 8;
        let start = index.checked_mul(width)?;
        let place = bytes.get_mut(start..start.checked_add(width)?)?;
        place.copy_from_slice(&bits.to_le_bytes()[..width]);
        Some(())
    }

    fn mask(self) -> u64 {
        u64::MAX >> (64 - self.bits())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: [Dtype; 5] = [Dtype::F16, Dtype::Bf16, Dtype::E4m3, Dtype::E5m2, Dtype::E2m1];

    fn codes(dtype: Dtype) -> impl Iterator<Item = u64> {
        0..1u64 << dtype.bits()
    }

    #[test]
    fn every_small_float_survives_decoding_and_encoding() {
        for dtype in SMALL {
            for code in codes(dtype) {
                let value = dtype.decode(code).as_f64();
                if value.is_nan() {
                    assert!(dtype.decode(dtype.encode_f64(value)).as_f64().is_nan())
                } else {
                    assert_eq!(dtype.encode_f64(value), code, "{dtype} {code:#x}")
                }
            }
        }
    }

    /// The definition of rounding itself: between two neighbours the nearer one wins, and the
    /// midpoint goes to the even code.
    #[test]
    fn values_between_neighbours_round_to_the_nearest_even_code() {
        for dtype in SMALL {
            let finite: Vec<u64> = codes(dtype)
                .take(1 << (dtype.bits() - 1))
                .filter(|&code| dtype.decode(code).as_f64().is_finite())
                .collect();
            for pair in finite.windows(2) {
                let [lo, hi] = [pair[0], pair[1]].map(|code| dtype.decode(code).as_f64());
                let middle = (lo + hi) / 2.0;
                let even = if pair[0] % 2 == 0 { pair[0] } else { pair[1] };
                assert_eq!(dtype.encode_f64(middle), even, "{dtype} {middle}");
                assert_eq!(dtype.encode_f64(middle.next_down()), pair[0]);
                assert_eq!(dtype.encode_f64(middle.next_up()), pair[1]);
                let sign = 1 << (dtype.bits() - 1);
                assert_eq!(dtype.encode_f64(-middle), sign | even);
            }
        }
    }

    #[test]
    fn known_codes_of_each_format_are_right() {
        for (dtype, value, code) in [
            (Dtype::F64, 1.0, 0x3ff0_0000_0000_0000),
            (Dtype::F32, 1.0, 0x3f80_0000),
            (Dtype::F16, 1.0, 0x3c00),
            (Dtype::F16, 65504.0, 0x7bff),
            (Dtype::F16, 2f64.powi(-24), 0x0001),
            (Dtype::Bf16, 1.0, 0x3f80),
            (Dtype::Bf16, -2.0, 0xc000),
            (Dtype::E4m3, 1.0, 0x38),
            (Dtype::E4m3, 448.0, 0x7e),
            (Dtype::E4m3, 2f64.powi(-9), 0x01),
            (Dtype::E5m2, 1.0, 0x3c),
            (Dtype::E5m2, 57344.0, 0x7b),
            (Dtype::E2m1, 0.5, 0x1),
            (Dtype::E2m1, -6.0, 0xf),
        ] {
            assert_eq!(dtype.encode_f64(value), code, "{dtype} {value}");
            assert_eq!(dtype.decode(code).as_f64(), value, "{dtype} {code:#x}");
        }
    }

    #[test]
    fn finite_values_saturate_and_infinities_stay_where_the_format_has_them() {
        for dtype in SMALL {
            let max = dtype.decode(dtype.encode_f64(1e300)).as_f64();
            assert!(max.is_finite(), "{dtype}");
            let inf = dtype.decode(dtype.encode_f64(f64::NEG_INFINITY)).as_f64();
            match dtype {
                Dtype::E4m3 | Dtype::E2m1 => assert_eq!(inf, -max),
                _ => assert_eq!(inf, f64::NEG_INFINITY),
            }
        }
        assert_eq!(Dtype::F32.decode(Dtype::F32.encode_f64(-1e300)).as_f64(), f64::from(f32::MIN));
    }

    #[test]
    fn integers_truncate_saturate_and_keep_all_64_bits() {
        assert_eq!(Dtype::I8.encode_f64(-1.9), 0xff);
        assert_eq!(Dtype::U8.encode_f64(300.0), 0xff);
        assert_eq!(Dtype::U8.encode_int(-1), 0);
        assert_eq!(Dtype::Bool.encode_int(7), 1);
        let exact = i64::MAX - 1;
        let bits = Dtype::I64.encode(Number::Int(exact));
        assert_eq!(Dtype::I64.decode(bits), Value::Int(exact.into()));
        assert_eq!(Dtype::U64.decode(u64::MAX), Value::Int(u64::MAX.into()));
    }

    #[test]
    fn four_bit_elements_are_packed_low_nibble_first() {
        let mut bytes = [0; 2];
        for (index, code) in [0x1, 0x2, 0xf].into_iter().enumerate() {
            Dtype::E2m1.set_bits(&mut bytes, index, code).unwrap();
        }
        assert_eq!(bytes, [0x21, 0x0f]);
        assert_eq!(Dtype::E2m1.bits_at(&bytes, 2), Some(0xf));
        assert_eq!(Dtype::E2m1.bits_at(&bytes, 4), None);
    }

    #[test]
    fn wider_elements_are_little_endian_and_bounded() {
        let mut bytes = [0; 8];
        Dtype::U32.set_bits(&mut bytes, 1, 0x0102_0304).unwrap();
        assert_eq!(bytes, [0, 0, 0, 0, 4, 3, 2, 1]);
        assert_eq!(Dtype::U32.bits_at(&bytes, 1), Some(0x0102_0304));
        assert_eq!(Dtype::U32.set_bits(&mut bytes, 2, 0), None);
    }
}
