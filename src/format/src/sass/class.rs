//! Classifies instructions by name.

use super::mnemonic::Mnemonic;

/// How an instruction accesses memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Access {
    /// Reads the memory.
    Load,
    /// Writes the memory.
    Store,
    /// An atomic read and write.
    Atomic,
    /// Copies between memories, prefetches, or manages a cache.
    Copy,
}

/// A class of instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// Single precision (FADD, FFMA …).
    Fp32,
    /// Double precision (DADD, DFMA …).
    Fp64,
    /// Half precision and bfloat16, in pairs.
    Fp16,
    /// Integers, bits and addresses.
    Integer,
    /// Integer work on the uniform datapath, once per warp.
    Uniform,
    /// Conversions between number formats.
    Convert,
    /// Reciprocals, roots, exponentials, sines.
    Special,
    /// Moves, selections and special registers.
    Move,
    /// Logic on predicates, and moves of them.
    Predicate,
    /// Warp-wide exchange and votes.
    Warp,
    /// Global memory and generic addresses.
    Global(Access),
    /// Shared memory, of this block or of the cluster.
    Shared(Access),
    /// Local memory: stack and spills.
    Local(Access),
    /// Loads from constant banks.
    Constant,
    /// Texture and surface accesses.
    Texture,
    /// The tensor memory accelerator and bulk copies.
    Tma,
    /// Tensor cores, one warp (HMMA and similar).
    Tensor,
    /// Tensor cores, a warp group (HGMMA and similar).
    TensorGroup,
    /// Fifth-generation tensor cores (UTCHMMA and similar).
    TensorBlock,
    /// Tensor memory: loads, stores, copies, allocation.
    TensorMemory,
    /// Barriers, fences and waits.
    Barrier,
    /// Branches, calls and exits.
    Control,
    /// No operation (`NOP`).
    Nop,
    /// The name is in no table.
    Unknown,
}

impl Class {
    /// A stable name in snake_case.
    pub fn name(self) -> &'static str {
        use Access::{Atomic, Copy, Load, Store};
        match self {
            Class::Fp32 => "fp32",
            Class::Fp64 => "fp64",
            Class::Fp16 => "fp16",
            Class::Integer => "integer",
            Class::Uniform => "uniform",
            Class::Convert => "convert",
            Class::Special => "special",
            Class::Move => "move",
            Class::Predicate => "predicate",
            Class::Warp => "warp",
            Class::Global(Load) => "global_load",
            Class::Global(Store) => "global_store",
            Class::Global(Atomic) => "global_atomic",
            Class::Global(Copy) => "global_copy",
            Class::Shared(Load) => "shared_load",
            Class::Shared(Store) => "shared_store",
            Class::Shared(Atomic) => "shared_atomic",
            Class::Shared(Copy) => "shared_copy",
            Class::Local(Load) => "local_load",
            Class::Local(Store) => "local_store",
            Class::Local(Atomic) => "local_atomic",
            Class::Local(Copy) => "local_copy",
            Class::Constant => "constant_load",
            Class::Texture => "texture",
            Class::Tma => "tma",
            Class::Tensor => "tensor_warp",
            Class::TensorGroup => "tensor_warpgroup",
            Class::TensorBlock => "tensor_tcgen05",
            Class::TensorMemory => "tensor_memory",
            Class::Barrier => "barrier",
            Class::Control => "control",
            Class::Nop => "nop",
            Class::Unknown => "unknown",
        }
    }

    /// The class of an instruction by its name; `Unknown` for names that are opcode numbers.
    pub fn named(name: &str) -> Class {
        if name.starts_with("op_0x") { Class::Unknown } else { by_name(name) }
    }

    /// The class of an instruction by its name.
    pub fn from_mnemonic(mnemonic: Mnemonic) -> Class {
        match mnemonic {
            Mnemonic::Known(name) => by_name(name),
            Mnemonic::Unknown(_) => Class::Unknown,
        }
    }
}

fn by_name(name: &str) -> Class {
    use Access::{Atomic, Copy, Load, Store};
    match name {
        "FADD" | "FFMA" | "FMUL" | "FMNMX" | "FMNMX3" | "FSEL" | "FSET" | "FSETP" | "FCHK"
        | "FADD2" | "FFMA2" | "FMUL2" | "FSWZADD" => Class::Fp32,
        "DADD" | "DFMA" | "DMUL" | "DSETP" | "DMNMX" => Class::Fp64,
        "HADD2" | "HFMA2" | "HMUL2" | "HMNMX2" | "HSET2" | "HSETP2" => Class::Fp16,
        "F2F" | "F2FP" | "F2I" | "F2IP" | "I2F" | "I2FP" | "I2I" | "I2IP" | "FRND" => {
            Class::Convert
        }
        "MUFU" => Class::Special,
        "BMSK" | "BREV" | "FLO" | "IABS" | "IADD" | "IADD3" | "IDP" | "IMAD" | "IMNMX"
        | "ISETP" | "LEA" | "LOP" | "LOP3" | "POPC" | "SGXT" | "SHF" | "SHL" | "SHR"
        | "VABSDIFF" | "VABSDIFF4" | "VIADD" | "VIADDMNMX" | "VIMNMX" | "VIMNMX3" | "QSPC" => {
            Class::Integer
        }
        "MOV" | "PRMT" | "SEL" | "S2R" | "CS2R" | "R2UR" | "S2UR" | "CS2UR" | "B2R" | "R2B"
        | "LEPC" | "RPCMOV" | "BMOV" | "MOVM" | "GETLMEMBASE" => Class::Move,
        "PLOP3" | "P2R" | "R2P" | "PSETP" => Class::Predicate,
        "SHFL" | "VOTE" | "VOTEU" | "MATCH" | "REDUX" | "CREDUX" | "ELECT" => Class::Warp,
        "LDG" | "LD" | "LDGMC" => Class::Global(Load),
        "STG" | "ST" => Class::Global(Store),
        "ATOM" | "ATOMG" | "RED" | "REDG" => Class::Global(Atomic),
        "LDGSTS" | "CCTL" | "CCTLL" | "CCTLT" => Class::Global(Copy),
        "LDS" | "LDSM" => Class::Shared(Load),
        "STS" | "STSM" | "STAS" => Class::Shared(Store),
        "ATOMS" | "REDAS" => Class::Shared(Atomic),
        "LDL" => Class::Local(Load),
        "STL" => Class::Local(Store),
        "LDC" | "LDCU" | "ULDC" => Class::Constant,
        "TEX" | "TLD" | "TLD4" | "TMML" | "TXD" | "TXQ" | "SULD" | "SUST" | "SURED" | "SUATOM" => {
            Class::Texture
        }
        "HMMA" | "IMMA" | "DMMA" | "BMMA" | "QMMA" | "OMMA" => Class::Tensor,
        "HGMMA" | "IGMMA" | "QGMMA" | "BGMMA" => Class::TensorGroup,
        "UTCHMMA" | "UTCIMMA" | "UTCQMMA" | "UTCOMMA" | "UTCMXQMMA" => Class::TensorBlock,
        "LDTM" | "STTM" | "UTCCP" | "UTCSHIFT" | "UTCATOMSWS" | "LDT" | "STT" => {
            Class::TensorMemory
        }
        "BAR" | "SYNCS" | "ARRIVES" | "DEPBAR" | "LDGDEPBAR" | "MEMBAR" | "FENCE" | "ERRBAR"
        | "CGAERRBAR" | "UCGABAR_ARV" | "UCGABAR_WAIT" | "WARPGROUP" | "WARPSYNC" | "UTCBAR"
        | "ACQBULK" | "PREEXIT" | "ENDCOLLECTIVE" | "UTMACMDFLUSH" | "USETMAXREG" | "YIELD"
        | "NANOSLEEP" | "WARPGROUPSET" | "WARPGROUPDEPBAR" => Class::Barrier,
        "BRA" | "BRX" | "BRXU" | "JMP" | "JMX" | "JMXU" | "CALL" | "RET" | "EXIT" | "BREAK"
        | "BSSY" | "BSYNC" | "KILL" | "BPT" | "RTT" | "PMTRIG" | "UVIRTCOUNT" => Class::Control,
        "NOP" => Class::Nop,
        _ if name.starts_with("UTMA") || name.starts_with("UBLK") => Class::Tma,
        _ if name.starts_with('U') => Class::Uniform,
        _ => Class::Unknown,
    }
}
