//! `layout umma`: the descriptors of `tcgen05.mma`, from fields to bits and back.

use clap::{Args, Subcommand, ValueEnum};
use rgpu_layout::sm100::{
    ElementFormat, InstructionDescriptor, MatrixDescriptor, ScaleType, SmemSwizzle,
};
use schemars::JsonSchema;
use serde::Serialize;

use super::document::{LayoutResult, line, print};
use super::input::usage;
use crate::cli::support::app::{App, Status};
use rgpu_model::error::{Failure, Result};

#[derive(Subcommand, Clone, Debug)]
pub(in crate::cli) enum UmmaCommand {
    /// The 64-bit descriptor of a matrix in shared memory
    #[command(after_long_help = examples!("rgpu layout umma matrix 0x4000404000010000"))]
    Matrix(MatrixArgs),
    /// The 32-bit descriptor of a block-scaled instruction
    #[command(after_long_help = examples!("rgpu layout umma instruction 0x08200480"))]
    Instruction(InstructionArgs),
}

#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct MatrixArgs {
    /// Bits to decode, as 0x4000404000010000 or decimal; without them, the fields are encoded
    #[arg(value_parser = bits::<u64>, conflicts_with_all =
          ["start", "leading", "stride", "swizzle", "base_offset", "absolute_leading"])]
    pub bits: Option<u64>,

    /// The start in shared memory
    #[arg(long, value_name = "BYTES", value_parser = bits::<u32>, default_value = "0")]
    pub start: u32,

    /// The offset along the leading dimension; K-major swizzled layouts do not use it
    #[arg(long, value_name = "BYTES", value_parser = bits::<u32>, default_value = "16")]
    pub leading: u32,

    /// The offset along the stride dimension: from 8 rows to the next
    #[arg(long, value_name = "BYTES", value_parser = bits::<u32>, default_value = "1024")]
    pub stride: u32,

    /// The swizzle of the matrix in shared memory
    #[arg(long, value_enum, default_value_t = MatrixSwizzle::B128)]
    pub swizzle: MatrixSwizzle,

    /// For a matrix that does not begin where its swizzle repeats
    #[arg(long, value_name = "0..7", default_value_t = 0)]
    pub base_offset: u32,

    /// The leading offset is an address
    #[arg(long)]
    pub absolute_leading: bool,
}

/// The version of descriptors of sm_100.
const VERSION: u32 = 1;

/// The swizzle of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum MatrixSwizzle {
    /// No swizzle
    None,
    /// S<1,4,3>
    #[value(name = "32b")]
    B32,
    /// S<2,4,3>
    #[value(name = "64b")]
    B64,
    /// S<3,4,3>
    #[value(name = "128b")]
    B128,
    /// S<2,5,2>
    #[value(name = "128b-base32b")]
    B128Base32,
}

impl MatrixSwizzle {
    fn field(self) -> SmemSwizzle {
        match self {
            Self::None => SmemSwizzle::None,
            Self::B32 => SmemSwizzle::B32,
            Self::B64 => SmemSwizzle::B64,
            Self::B128 => SmemSwizzle::B128,
            Self::B128Base32 => SmemSwizzle::B128Base32,
        }
    }
}

#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct InstructionArgs {
    /// Bits to decode, as 0x08200480 or decimal; without them, the fields are encoded
    #[arg(value_parser = bits::<u32>, conflicts_with_all =
          ["m", "n", "a", "b", "scale", "negate_a", "negate_b", "transpose_a", "transpose_b",
           "a_scale_id", "b_scale_id"])]
    pub bits: Option<u32>,

    /// The kind of the instruction, which gives formats their codes
    #[arg(long, value_enum, default_value_t = MmaKind::Mxf4nvf4)]
    pub kind: MmaKind,

    /// M: 128, or 256 over a pair of CTAs
    #[arg(long, required_unless_present = "bits")]
    pub m: Option<u32>,

    /// N: 8 to 256 in steps of 8, for a pair of CTAs 16
    #[arg(long, required_unless_present = "bits")]
    pub n: Option<u32>,

    /// The format of A
    #[arg(long, value_enum, default_value_t = Format::E2m1)]
    pub a: Format,

    /// The format of B
    #[arg(long, value_enum, default_value_t = Format::E2m1)]
    pub b: Format,

    /// The type of the scales [default: ue4m3 for mxf4nvf4, else ue8m0]
    #[arg(long, value_enum)]
    pub scale: Option<Scale>,

    /// Negate A
    #[arg(long)]
    pub negate_a: bool,

    /// Negate B
    #[arg(long)]
    pub negate_b: bool,

    /// A is M-major
    #[arg(long)]
    pub transpose_a: bool,

    /// B is N-major
    #[arg(long)]
    pub transpose_b: bool,

    /// The first byte of A's scales in their columns: 0 for UE4M3, 0 or 2 for UE8M0 of mxf4 and
    /// mxf4nvf4, 0 to 3 for mxf8f6f4
    #[arg(long, value_name = "0..3", default_value_t = 0)]
    pub a_scale_id: u32,

    /// The first byte of B's scales in their columns, as for A
    #[arg(long, value_name = "0..3", default_value_t = 0)]
    pub b_scale_id: u32,
}

/// A kind of block-scaled `tcgen05.mma`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum MmaKind {
    /// E2M1 with scales of either type
    Mxf4nvf4,
    /// E2M1 with UE8M0
    Mxf4,
    /// 8, 6 or 4 bits in a byte each, with UE8M0
    Mxf8f6f4,
}

/// A format of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum Format {
    /// 4 bits
    E2m1,
    /// 6 bits
    E2m3,
    /// 6 bits
    E3m2,
    /// 8 bits
    E4m3,
    /// 8 bits
    E5m2,
}

/// A type of scales.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum Scale {
    /// The scales of NVFP4
    Ue4m3,
    /// The scales of the MX formats
    Ue8m0,
}

/// The result of `layout umma`.
#[serde_with::skip_serializing_none]
#[derive(Serialize, JsonSchema)]
pub(super) struct UmmaResult {
    /// The bits in hexadecimal.
    bits: String,
    /// The fields of a matrix descriptor.
    matrix: Option<MatrixDescriptor>,
    /// The fields of an instruction descriptor.
    instruction: Option<InstructionDescriptor>,
}

pub(super) fn run(app: &App, command: &UmmaCommand) -> Result<Status> {
    let (result, text) = match command {
        UmmaCommand::Matrix(args) => {
            let (bits, matrix) = matrix(args)?;
            let bits = format!("{bits:#018x}");
            let text = format!("{bits}\n{}", matrix_text(&matrix));
            (UmmaResult { bits, matrix: Some(matrix), instruction: None }, text)
        }
        UmmaCommand::Instruction(args) => {
            let (bits, instruction) = instruction(args)?;
            let bits = format!("{bits:#010x}");
            let text = format!("{bits}\n{}", instruction_text(&instruction));
            (UmmaResult { bits, matrix: None, instruction: Some(instruction) }, text)
        }
    };
    print(app, LayoutResult::Umma(result), &text)?;
    Ok(0)
}

fn matrix(args: &MatrixArgs) -> Result<(u64, MatrixDescriptor)> {
    if let Some(bits) = args.bits {
        return Ok((bits, MatrixDescriptor::decode(bits).map_err(usage)?));
    }
    let descriptor = MatrixDescriptor {
        start_address: args.start,
        leading_bytes: args.leading,
        stride_bytes: args.stride,
        version: VERSION,
        base_offset: args.base_offset,
        absolute_leading: args.absolute_leading,
        swizzle: args.swizzle.field(),
    };
    Ok((descriptor.encode().map_err(usage)?, descriptor))
}

fn instruction(args: &InstructionArgs) -> Result<(u32, InstructionDescriptor)> {
    let packed = args.kind != MmaKind::Mxf8f6f4;
    let (bits, descriptor) = match args.bits {
        Some(bits) => (bits, InstructionDescriptor::decode(bits, packed).map_err(usage)?),
        None => {
            let descriptor = InstructionDescriptor {
                // Clap demands both if there are no bits.
                m: args.m.unwrap_or_default(),
                n: args.n.unwrap_or_default(),
                a_format: element(args.a, packed)?,
                b_format: element(args.b, packed)?,
                scale_type: match (args.scale, args.kind) {
                    (Some(Scale::Ue4m3), _) | (None, MmaKind::Mxf4nvf4) => ScaleType::Ue4m3,
                    _ => ScaleType::Ue8m0,
                },
                a_negate: args.negate_a,
                b_negate: args.negate_b,
                a_transpose: args.transpose_a,
                b_transpose: args.transpose_b,
                a_scale_id: args.a_scale_id,
                b_scale_id: args.b_scale_id,
            };
            (descriptor.encode().map_err(usage)?, descriptor)
        }
    };
    if packed && (descriptor.a_transpose || descriptor.b_transpose) {
        return Err(usage("packed E2M1 is K-major: neither operand can be transposed"));
    }
    if args.kind != MmaKind::Mxf4nvf4 && descriptor.scale_type == ScaleType::Ue4m3 {
        return Err(usage("only mxf4nvf4 has scales of UE4M3"));
    }
    Ok((bits, descriptor))
}

fn element(format: Format, packed: bool) -> Result<ElementFormat, Failure> {
    Ok(match format {
        Format::E2m1 if packed => ElementFormat::PackedE2m1,
        Format::E2m1 => ElementFormat::E2m1,
        _ if packed => {
            return Err(usage("mxf4 and mxf4nvf4 multiply E2M1 alone")
                .hint("`--kind mxf8f6f4` has the other formats"));
        }
        Format::E2m3 => ElementFormat::E2m3,
        Format::E3m2 => ElementFormat::E3m2,
        Format::E4m3 => ElementFormat::E4m3,
        Format::E5m2 => ElementFormat::E5m2,
    })
}

fn matrix_text(descriptor: &MatrixDescriptor) -> String {
    let bytes = |bytes: u32| format!("{bytes} bytes ({bytes:#x})");
    let swizzle = match descriptor.swizzle {
        SmemSwizzle::None => "none",
        SmemSwizzle::B32 => "32 bytes, S<1,4,3>",
        SmemSwizzle::B64 => "64 bytes, S<2,4,3>",
        SmemSwizzle::B128 => "128 bytes, S<3,4,3>",
        SmemSwizzle::B128Base32 => "128 bytes with an atom of 32, S<2,5,2>",
    };
    let absolute = if descriptor.absolute_leading { ", an address" } else { "" };
    line("start", bytes(descriptor.start_address))
        + &line("leading", format!("{}{absolute}", bytes(descriptor.leading_bytes)))
        + &line("stride", bytes(descriptor.stride_bytes))
        + &line("version", descriptor.version)
        + &line("base offset", descriptor.base_offset)
        + &line("swizzle", swizzle)
}

fn instruction_text(descriptor: &InstructionDescriptor) -> String {
    let operand = |format: ElementFormat, negate: bool, transpose: bool, scale_id: u32| {
        let name = match format {
            ElementFormat::PackedE2m1 => "E2M1, two in a byte",
            ElementFormat::E2m1 => "E2M1, one in a byte",
            ElementFormat::E2m3 => "E2M3",
            ElementFormat::E3m2 => "E3M2",
            ElementFormat::E4m3 => "E4M3",
            ElementFormat::E5m2 => "E5M2",
        };
        let negate = if negate { ", negated" } else { "" };
        let transpose = if transpose { ", transposed" } else { "" };
        format!("{name}{negate}{transpose}; scales in byte {scale_id}")
    };
    let d = descriptor;
    let scales = match d.scale_type {
        ScaleType::Ue4m3 => "UE4M3",
        ScaleType::Ue8m0 => "UE8M0",
    };
    line("M x N", format!("{} x {}", d.m, d.n))
        + &line("a", operand(d.a_format, d.a_negate, d.a_transpose, d.a_scale_id))
        + &line("b", operand(d.b_format, d.b_negate, d.b_transpose, d.b_scale_id))
        + &line("scales", scales)
}

/// Reads a number in decimal or, with `0x`, hexadecimal.
fn bits<T: TryFrom<u64>>(text: &str) -> std::result::Result<T, String> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(&digits.replace('_', ""), 16),
        None => text.parse(),
    };
    let number = number.map_err(|error| error.to_string())?;
    let wide = 8 * size_of::<T>();
    T::try_from(number).map_err(|_| format!("the number does not fit {wide} bits"))
}
