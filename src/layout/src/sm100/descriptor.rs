//! Matrix descriptors of shared memory and instruction descriptors of block-scaled `tcgen05.mma`.
//!
//! The bits are those of the PTX ISA: "Shared memory descriptor" and the instruction descriptor of
//! `.kind::mxf8f6f4`, `.kind::mxf4` and `.kind::mxf4nvf4`.

use schemars::JsonSchema;
use serde::Serialize;

/// The swizzle of a matrix in shared memory, bits 61 to 63 of its descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SmemSwizzle {
    /// No swizzle.
    None,
    /// 128 bytes with an atom of 32 bytes.
    B128Base32,
    /// 128 bytes.
    B128,
    /// 64 bytes.
    B64,
    /// 32 bytes.
    B32,
}

impl SmemSwizzle {
    fn code(self) -> u64 {
        match self {
            Self::None => 0,
            Self::B128Base32 => 1,
            Self::B128 => 2,
            Self::B64 => 4,
            Self::B32 => 6,
        }
    }

    fn from_code(code: u64) -> Option<Self> {
        [Self::None, Self::B128Base32, Self::B128, Self::B64, Self::B32]
            .into_iter()
            .find(|swizzle| swizzle.code() == code)
    }
}

/// The reason why a descriptor cannot be encoded or decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DescriptorError {
    /// A byte count is no multiple of 16 or does not fit.
    #[error("the {field} of {bytes} bytes: a descriptor holds multiples of 16 below 2^18")]
    Bytes {
        /// The field's name in the message, such as `leading offset`.
        field: &'static str,
        /// The rejected number of bytes.
        bytes: u32,
    },
    /// A small field does not fit its bits.
    #[error("the {field} {value} does not fit its {bits} bits")]
    Field {
        /// The field's name in the message: `version` or `base offset`.
        field: &'static str,
        /// The rejected number, `2^bits` or more.
        value: u32,
        /// The bits that it has.
        bits: u32,
    },
    /// A field of the instruction is not allowed.
    #[error("{field} is {value}: {allowed}")]
    Value {
        /// M, N or the id of scales.
        field: &'static str,
        /// The rejected value.
        value: u32,
        /// The allowed values, as the message ends with them.
        allowed: &'static str,
    },
    /// Bits have no meaning.
    #[error("the bits of the {field} have no meaning: {code}")]
    Code {
        /// The field's name in a sentence: `swizzle`, `element format`.
        field: &'static str,
        /// The bits of the field, shifted down to bit 0.
        code: u64,
    },
    /// Reserved bits are set.
    #[error("reserved bits are set: {0:#x}")]
    Reserved(u64),
}

/// The 64-bit descriptor of a matrix in shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct MatrixDescriptor {
    /// The start in bytes, a multiple of 16 below 2^18.
    pub start_address: u32,
    /// The leading dimension's offset in bytes.
    pub leading_bytes: u32,
    /// The stride dimension's offset in bytes.
    pub stride_bytes: u32,
    /// 1 for sm_100.
    pub version: u32,
    /// The offset of a matrix that does not begin at a repetition of its swizzle, below 8.
    pub base_offset: u32,
    /// Whether the leading offset is absolute.
    pub absolute_leading: bool,
    /// The swizzle of the matrix in shared memory.
    pub swizzle: SmemSwizzle,
}

impl MatrixDescriptor {
    /// The bits.
    ///
    /// # Errors
    /// If a field does not fit.
    pub fn encode(self) -> Result<u64, DescriptorError> {
        let start = sixteenths("start address", self.start_address)?;
        let leading = sixteenths("leading offset", self.leading_bytes)?;
        let stride = sixteenths("stride offset", self.stride_bytes)?;
        let version = fits("version", self.version, 2)?;
        let base = fits("base offset", self.base_offset, 3)?;
        Ok(start
            | leading << 16
            | stride << 32
            | version << 46
            | base << 49
            | u64::from(self.absolute_leading) << 52
            | self.swizzle.code() << 61)
    }

    /// The fields of these bits.
    ///
    /// # Errors
    /// If reserved bits are set, or the swizzle has no meaning.
    pub fn decode(bits: u64) -> Result<Self, DescriptorError> {
        let reserved = 3 << 14 | 3 << 30 | 1 << 48 | 0xff << 53;
        if bits & reserved != 0 {
            return Err(DescriptorError::Reserved(bits & reserved));
        }
        let field = |low: u32, width: u32| (bits >> low & ((1 << width) - 1)) as u32;
        let code = bits >> 61;
        Ok(Self {
            start_address: field(0, 14) << 4,
            leading_bytes: field(16, 14) << 4,
            stride_bytes: field(32, 14) << 4,
            version: field(46, 2),
            base_offset: field(49, 3),
            absolute_leading: field(52, 1) == 1,
            swizzle: SmemSwizzle::from_code(code)
                .ok_or(DescriptorError::Code { field: "swizzle", code })?,
        })
    }
}

fn sixteenths(field: &'static str, bytes: u32) -> Result<u64, DescriptorError> {
    if !bytes.is_multiple_of(16) || bytes >= 1 << 18 {
        return Err(DescriptorError::Bytes { field, bytes });
    }
    Ok(u64::from(bytes >> 4))
}

fn fits(field: &'static str, value: u32, bits: u32) -> Result<u64, DescriptorError> {
    if value >= 1 << bits {
        return Err(DescriptorError::Field { field, value, bits });
    }
    Ok(u64::from(value))
}

/// The format of operand elements in block-scaled instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ElementFormat {
    /// E2M1 of `mxf4` and `mxf4nvf4`, two in a byte.
    PackedE2m1,
    /// E4M3 of `mxf8f6f4`.
    E4m3,
    /// E5M2 of `mxf8f6f4`.
    E5m2,
    /// E2M3 of `mxf8f6f4`.
    E2m3,
    /// E3M2 of `mxf8f6f4`.
    E3m2,
    /// E2M1 of `mxf8f6f4`, one in a byte.
    E2m1,
}

impl ElementFormat {
    fn code(self) -> u32 {
        match self {
            Self::E4m3 => 0,
            Self::PackedE2m1 | Self::E5m2 => 1,
            Self::E2m3 => 3,
            Self::E3m2 => 4,
            Self::E2m1 => 5,
        }
    }

    fn from_code(code: u32, packed: bool) -> Option<Self> {
        let all: &[Self] = if packed {
            &[Self::PackedE2m1]
        } else {
            &[Self::E4m3, Self::E5m2, Self::E2m3, Self::E3m2, Self::E2m1]
        };
        all.iter().copied().find(|format| format.code() == code)
    }
}

/// The type of scale factors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ScaleType {
    /// UE4M3, that of NVFP4.
    Ue4m3,
    /// UE8M0, that of the MX formats.
    Ue8m0,
}

/// The 32-bit descriptor of a block-scaled `tcgen05.mma`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct InstructionDescriptor {
    /// M of the instruction, over both CTAs of a pair: 128 or 256.
    pub m: u32,
    /// N: 8 to 256 in steps of 8.
    pub n: u32,
    /// The format of A.
    pub a_format: ElementFormat,
    /// The format of B.
    pub b_format: ElementFormat,
    /// The type of the scales.
    pub scale_type: ScaleType,
    /// Whether A is negated.
    pub a_negate: bool,
    /// Whether B is negated.
    pub b_negate: bool,
    /// Whether A is M-major; packed E2M1 is K-major.
    pub a_transpose: bool,
    /// Whether B is N-major.
    pub b_transpose: bool,
    /// The first byte of A's scales in a column: 0 to 3 for one scale, 0 or 2 for two, 0 for four.
    pub a_scale_id: u32,
    /// The first byte of B's scales, as that of A's.
    pub b_scale_id: u32,
}

impl InstructionDescriptor {
    /// The bits.
    ///
    /// # Errors
    /// If an extent or a scale id is not allowed, or the formats do not go together.
    pub fn encode(self) -> Result<u32, DescriptorError> {
        if self.m != 128 && self.m != 256 {
            let allowed = "128 with one CTA, 128 or 256 with a pair";
            return Err(DescriptorError::Value { field: "M", value: self.m, allowed });
        }
        if !self.n.is_multiple_of(8) || !(8..=256).contains(&self.n) {
            let allowed = "8 to 256 in steps of 8 (with a pair of CTAs, 16)";
            return Err(DescriptorError::Value { field: "N", value: self.n, allowed });
        }
        if self.m == 256 && !self.n.is_multiple_of(16) {
            let allowed = "a pair of CTAs (M of 256) has 16 to 256 in steps of 16";
            return Err(DescriptorError::Value { field: "N", value: self.n, allowed });
        }
        let packed = |format| format == ElementFormat::PackedE2m1;
        if packed(self.a_format) != packed(self.b_format) {
            let code = u64::from(self.b_format.code());
            return Err(DescriptorError::Code { field: "format with packed E2M1", code });
        }
        let first_bytes: (&[u32], _) = match (packed(self.a_format), self.scale_type) {
            (true, ScaleType::Ue4m3) => (&[0], "0, because four scales of UE4M3 fill a column"),
            (true, ScaleType::Ue8m0) => (&[0, 2], "0 or 2, because two scales follow one another"),
            (false, _) => (&[0, 1, 2, 3], "0 to 3, the byte of the one scale"),
        };
        let (ids, allowed) = first_bytes;
        for (field, value) in
            [("the scale id of A", self.a_scale_id), ("the scale id of B", self.b_scale_id)]
        {
            if !ids.contains(&value) {
                return Err(DescriptorError::Value { field, value, allowed });
            }
        }
        Ok(self.b_scale_id << 4
            | self.a_format.code() << 7
            | self.b_format.code() << 10
            | u32::from(self.a_negate) << 13
            | u32::from(self.b_negate) << 14
            | u32::from(self.a_transpose) << 15
            | u32::from(self.b_transpose) << 16
            | (self.n >> 3) << 17
            | u32::from(self.scale_type == ScaleType::Ue8m0) << 23
            | (self.m >> 4) << 24
            | self.a_scale_id << 29)
    }

    /// The fields of these bits. `packed` says whether the instruction is `mxf4` or `mxf4nvf4`: the
    /// codes of formats differ from those of `mxf8f6f4`.
    ///
    /// # Errors
    /// If reserved bits are set, a format has no meaning, or an extent is not allowed.
    pub fn decode(bits: u32, packed: bool) -> Result<Self, DescriptorError> {
        // Sparsity (0 to 2) and the K of sparse instructions (31) are not supported.
        let reserved = 0xf | 1 << 6 | 1 << 31;
        if bits & reserved != 0 {
            return Err(DescriptorError::Reserved(u64::from(bits & reserved)));
        }
        let field = |low: u32, width: u32| bits >> low & ((1 << width) - 1);
        let format = |low: u32| {
            let code = field(low, 3);
            ElementFormat::from_code(code, packed)
                .ok_or(DescriptorError::Code { field: "element format", code: u64::from(code) })
        };
        let descriptor = Self {
            m: field(24, 5) << 4,
            n: field(17, 6) << 3,
            a_format: format(7)?,
            b_format: format(10)?,
            scale_type: if field(23, 1) == 1 { ScaleType::Ue8m0 } else { ScaleType::Ue4m3 },
            a_negate: field(13, 1) == 1,
            b_negate: field(14, 1) == 1,
            a_transpose: field(15, 1) == 1,
            b_transpose: field(16, 1) == 1,
            a_scale_id: field(29, 2),
            b_scale_id: field(4, 2),
        };
        descriptor.encode().map(|_| descriptor)
    }
}
