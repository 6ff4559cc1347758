//! Number formats: how many bytes they take, and which peak their products run at.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::nearest;

/// A number format of weights, activations or a KV cache.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// 32-bit floats.
    Fp32,
    /// 32 bits in memory, multiplied with 19.
    Tf32,
    /// 16 bits, 5 of them exponent.
    Fp16,
    /// 16 bits, 8 of them exponent.
    Bf16,
    /// 8 bits, E4M3 or E5M2.
    Fp8,
    /// 8-bit integers.
    Int8,
    /// 8-bit elements with one 8-bit scale for 32 of them.
    Mxfp8,
    /// 4-bit elements with one 8-bit scale for 16 of them.
    Nvfp4,
    /// 4-bit elements with one 8-bit scale for 32 of them.
    Mxfp4,
    /// 4-bit integers; their scales are not counted, since their block size differs by method.
    Int4,
}

/// The arithmetic of a product. Formats of one kind share a peak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MathKind {
    /// FP32 on the vector units.
    Fp32,
    /// TF32 on tensor cores.
    Tf32,
    /// FP16 and BF16 on tensor cores.
    Half,
    /// FP8.
    Fp8,
    /// INT8.
    Int8,
    /// FP4 with block scales.
    Fp4,
}

impl MathKind {
    /// Number of kinds; [`MathKind::index`] is below it.
    pub const COUNT: usize = 6;

    /// The name in tables and files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Fp32 => "fp32",
            Self::Tf32 => "tf32",
            Self::Half => "bf16",
            Self::Fp8 => "fp8",
            Self::Int8 => "int8",
            Self::Fp4 => "fp4",
        }
    }

    /// The index in tables by kind.
    #[must_use]
    pub fn index(self) -> usize {
        self as usize
    }
}

impl Dtype {
    /// All formats, with their names.
    pub const ALL: &'static [(Self, &'static str)] = &[
        (Self::Fp32, "fp32"),
        (Self::Tf32, "tf32"),
        (Self::Fp16, "fp16"),
        (Self::Bf16, "bf16"),
        (Self::Fp8, "fp8"),
        (Self::Int8, "int8"),
        (Self::Mxfp8, "mxfp8"),
        (Self::Nvfp4, "nvfp4"),
        (Self::Mxfp4, "mxfp4"),
        (Self::Int4, "int4"),
    ];

    /// The name in flags and files.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(dtype, _)| *dtype == self).map_or("", |(_, name)| name)
    }

    /// The size of an element without its scale.
    #[must_use]
    pub fn bits(self) -> u32 {
        match self {
            Self::Fp32 | Self::Tf32 => 32,
            Self::Fp16 | Self::Bf16 => 16,
            Self::Fp8 | Self::Int8 | Self::Mxfp8 => 8,
            Self::Nvfp4 | Self::Mxfp4 | Self::Int4 => 4,
        }
    }

    /// Number of elements that share one scale of a byte. `None` if there are no scales.
    #[must_use]
    pub fn scale_block(self) -> Option<u64> {
        match self {
            Self::Nvfp4 => Some(16),
            Self::Mxfp8 | Self::Mxfp4 => Some(32),
            _ => None,
        }
    }

    /// The bytes of `rows` rows of `columns` elements, with their scales along the columns.
    #[must_use]
    pub fn bytes(self, rows: f64, columns: f64) -> f64 {
        let scales = self.scale_block().map_or(0.0, |block| (columns / block as f64).ceil());
        rows * (columns * f64::from(self.bits()) / 8.0 + scales)
    }

    /// The arithmetic of products of this format.
    #[must_use]
    pub fn math(self) -> MathKind {
        match self {
            Self::Fp32 => MathKind::Fp32,
            Self::Tf32 => MathKind::Tf32,
            // INT4 weights are widened to the activations' format.
            Self::Fp16 | Self::Bf16 | Self::Int4 => MathKind::Half,
            Self::Fp8 | Self::Mxfp8 => MathKind::Fp8,
            Self::Int8 => MathKind::Int8,
            Self::Nvfp4 | Self::Mxfp4 => MathKind::Fp4,
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is not a number format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{typed}` is not a number format; the nearest is `{nearest}`")]
pub struct UnknownDtype {
    /// The name that was given.
    pub typed: String,
    /// The most similar name.
    pub nearest: &'static str,
}

impl FromStr for Dtype {
    type Err = UnknownDtype;

    fn from_str(text: &str) -> Result<Self, UnknownDtype> {
        let lower = text.to_lowercase();
        // The names of PyTorch and of other tools for the same formats.
        let name = match lower.as_str() {
            "float32" | "float" | "f32" => "fp32",
            "float16" | "half" | "f16" => "fp16",
            "bfloat16" => "bf16",
            "float8" | "float8_e4m3fn" | "float8_e5m2" | "e4m3" | "e5m2" | "f8e4m3" | "f8e5m2" => {
                "fp8"
            }
            "i8" | "s8" => "int8",
            "fp4" | "e2m1" => "nvfp4",
            name => name,
        };
        let found = Self::ALL.iter().find(|(_, known)| *known == name).map(|(dtype, _)| *dtype);
        found.ok_or_else(|| UnknownDtype {
            typed: text.to_owned(),
            nearest: nearest(name, Self::ALL.iter().map(|(_, known)| *known)).unwrap_or("bf16"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_part_of_the_size() {
        assert_eq!(Dtype::Nvfp4.bytes(1.0, 16.0), 9.0);
        assert_eq!(Dtype::Mxfp4.bytes(1.0, 32.0), 17.0);
        assert_eq!(Dtype::Bf16.bytes(3.0, 5.0), 30.0);
        // A block that is not full has a scale too.
        assert_eq!(Dtype::Nvfp4.bytes(2.0, 8.0), 10.0);
    }

    #[test]
    fn names_are_read_and_the_nearest_is_suggested() {
        assert_eq!("BFloat16".parse(), Ok(Dtype::Bf16));
        assert_eq!("fp4".parse(), Ok(Dtype::Nvfp4));
        let error = "nvfp5".parse::<Dtype>().unwrap_err();
        assert_eq!(error.nearest, "nvfp4");
        for (dtype, name) in Dtype::ALL {
            assert_eq!(name.parse(), Ok(*dtype));
            assert_eq!(dtype.to_string(), *name);
        }
    }
}
