//! Element types: names, widths and the codes of `rgpu.h`.

use serde::{Deserialize, Serialize};

/// The element type of an argument.
///
/// The names are those of `kernel.toml` and of the input's JSON; [`Dtype::code`] is the `RGPU_*`
/// constant of the host-entry ABI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// IEEE 754 binary64.
    F64,
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// bfloat16: the upper half of a binary32.
    Bf16,
    /// OCP FP8 E4M3 (`e4m3fn`): no infinities, NaN is `S.1111.111`, largest finite value 448.
    E4m3,
    /// OCP FP8 E5M2: with infinities and NaNs, largest finite value 57344.
    E5m2,
    /// OCP FP4 E2M1: no infinities, no NaN, values 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives.
    E2m1,
    /// Signed 64-bit integer.
    I64,
    /// Signed 32-bit integer.
    I32,
    /// Signed 16-bit integer.
    I16,
    /// Signed 8-bit integer.
    I8,
    /// Unsigned 64-bit integer.
    U64,
    /// Unsigned 32-bit integer.
    U32,
    /// Unsigned 16-bit integer.
    U16,
    /// Unsigned 8-bit integer.
    U8,
    /// One byte, 0 or 1.
    Bool,
}

/// A dtype name that is not in [`Dtype::ALL`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownDtype(
    /// The name as it was written.
    pub String,
);

impl std::fmt::Display for UnknownDtype {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "unknown dtype `{}`; known are", self.0)?;
        for (i, dtype) in Dtype::ALL.iter().enumerate() {
            write!(f, "{} `{dtype}`", if i == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl std::error::Error for UnknownDtype {}

impl Dtype {
    /// Every dtype, in the order of the codes.
    pub const ALL: [Dtype; 16] = [
        Dtype::F64,
        Dtype::F32,
        Dtype::F16,
        Dtype::Bf16,
        Dtype::E4m3,
        Dtype::E5m2,
        Dtype::E2m1,
        Dtype::I64,
        Dtype::I32,
        Dtype::I16,
        Dtype::I8,
        Dtype::U64,
        Dtype::U32,
        Dtype::U16,
        Dtype::U8,
        Dtype::Bool,
    ];

    /// The constant of `rgpu.h` (`RGPU_F64` is 1, and so on); never renumbered.
    pub fn code(self) -> u32 {
        self as u32 + 1
    }

    /// The name used in `kernel.toml` and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Dtype::F64 => "f64",
            Dtype::F32 => "f32",
            Dtype::F16 => "f16",
            Dtype::Bf16 => "bf16",
            Dtype::E4m3 => "e4m3",
            Dtype::E5m2 => "e5m2",
            Dtype::E2m1 => "e2m1",
            Dtype::I64 => "i64",
            Dtype::I32 => "i32",
            Dtype::I16 => "i16",
            Dtype::I8 => "i8",
            Dtype::U64 => "u64",
            Dtype::U32 => "u32",
            Dtype::U16 => "u16",
            Dtype::U8 => "u8",
            Dtype::Bool => "bool",
        }
    }

    /// Width of one element in bits: 4 for `e2m1`, else a multiple of 8.
    pub fn bits(self) -> u32 {
        match self {
            Dtype::F64 | Dtype::I64 | Dtype::U64 => 64,
            Dtype::F32 | Dtype::I32 | Dtype::U32 => 32,
            Dtype::F16 | Dtype::Bf16 | Dtype::I16 | Dtype::U16 => 16,
            Dtype::E4m3 | Dtype::E5m2 | Dtype::I8 | Dtype::U8 | Dtype::Bool => 8,
            Dtype::E2m1 => 4,
        }
    }

    /// Bytes of `count` packed elements; a trailing half byte counts as a whole one.
    ///
    /// `None` when the size does not fit in 64 bits.
    pub fn bytes_for(self, count: u64) -> Option<u64> {
        Some(count.checked_mul(u64::from(self.bits()))?.div_ceil(8))
    }

    /// Whether this is a floating-point type.
    pub fn is_float(self) -> bool {
        use Dtype::*;
        matches!(self, F64 | F32 | F16 | Bf16 | E4m3 | E5m2 | E2m1)
    }
}

impl std::fmt::Display for Dtype {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Dtype {
    type Err = UnknownDtype;

    fn from_str(text: &str) -> Result<Self, UnknownDtype> {
        Dtype::ALL
            .into_iter()
            .find(|dtype| dtype.name() == text)
            .ok_or_else(|| UnknownDtype(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back_and_match_the_json_form() {
        for dtype in Dtype::ALL {
            assert_eq!(dtype.name().parse(), Ok(dtype));
            assert_eq!(serde_json::to_string(&dtype).unwrap(), format!("\"{dtype}\""));
        }
        assert!("f8".parse::<Dtype>().unwrap_err().to_string().contains("`e4m3`"));
    }

    #[test]
    fn codes_follow_the_table_and_start_at_one() {
        for (i, dtype) in Dtype::ALL.into_iter().enumerate() {
            assert_eq!(dtype.code() as usize, i + 1);
        }
    }

    #[test]
    fn an_odd_count_of_four_bit_elements_takes_the_next_whole_byte() {
        assert_eq!(Dtype::E2m1.bytes_for(3), Some(2));
        assert_eq!(Dtype::F64.bytes_for(3), Some(24));
        assert_eq!(Dtype::F64.bytes_for(u64::MAX), None);
    }
}
