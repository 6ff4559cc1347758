//! One SASS instruction of 128 bits and its fields: opcode, guard predicate, branch target.

use std::fmt;

/// An instruction of 128 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Instruction {
    /// Offset from the start of the code, in bytes.
    pub offset: u64,
    /// Bits 0 to 63 of the 128.
    pub low: u64,
    /// Bits 64 to 127 of the 128.
    pub high: u64,
}

/// Bytes of one instruction.
pub(super) const BYTES: u64 = 16;

/// The instructions of a function or section; incomplete trailing bytes are ignored.
pub fn decode(code: &[u8]) -> impl ExactSizeIterator<Item = Instruction> + Clone + '_ {
    let (code, _) = code.as_chunks::<16>();
    code.iter().enumerate().map(|(index, bits)| at(index, bits))
}

/// The instruction with these bits, at position `index` in the code.
#[inline]
pub(super) fn at(index: usize, bits: &[u8; 16]) -> Instruction {
    let bits = u128::from_le_bytes(*bits);
    Instruction { offset: index as u64 * BYTES, low: bits as u64, high: (bits >> 64) as u64 }
}

const BSSY: u16 = 0x945;
const BRANCHES: [u16; 6] = [0x947, 0x547, 0x944, 0x344, 0x948, 0x348];

/// Whether instructions of this opcode have a target in the code.
pub(super) const fn is_branch(opcode: u16) -> bool {
    let mut at = 0;
    while at < BRANCHES.len() {
        if opcode == BRANCHES[at] {
            return true;
        }
        at += 1;
    }
    opcode == BSSY
}

/// The guard predicate of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guard {
    /// 0-6, or 7 for "true".
    pub register: u8,
    /// Whether the instruction acts when the predicate is false.
    pub negated: bool,
}

impl fmt::Display for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.negated { "@!P" } else { "@P" })?;
        match self.register {
            7 => f.write_str("T"),
            n => write!(f, "{n}"),
        }
    }
}

/// Scheduling information from the compiler.
///
/// Displays as `[B0-----:R-:W2:y1:S04]`: barriers waited for, barrier set when the sources are
/// read, barrier set when the result is written, the raw yield bit, cycles to stall.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Control {
    /// Cycles before the next instruction of this warp may issue.
    pub stall: u8,
    /// Bit 109, whose meaning is not interpreted here.
    pub yield_bit: bool,
    /// The barrier that is released when the result is written.
    pub write_barrier: Option<u8>,
    /// The barrier that is released when the operands are read.
    pub read_barrier: Option<u8>,
    /// Barriers waited for, bit 0 for barrier 0.
    pub wait_mask: u8,
    /// Operand caches kept, bit 0 for operand a.
    pub reuse: u8,
}

impl fmt::Display for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[B")?;
        for barrier in 0..6 {
            match self.wait_mask >> barrier & 1 {
                1 => write!(f, "{barrier}")?,
                _ => f.write_str("-")?,
            }
        }
        for (letter, barrier) in [('R', self.read_barrier), ('W', self.write_barrier)] {
            match barrier {
                Some(n) => write!(f, ":{letter}{n}")?,
                None => write!(f, ":{letter}-")?,
            }
        }
        write!(f, ":y{}:S{:02}]", u8::from(self.yield_bit), self.stall)
    }
}

impl Instruction {
    /// The operation: bits 0 to 11.
    pub fn opcode(&self) -> u16 {
        (self.low & 0xfff) as u16
    }

    /// The guard; `None` if the instruction always acts.
    pub fn guard(&self) -> Option<Guard> {
        let guard =
            Guard { register: (self.low >> 12 & 7) as u8, negated: self.low >> 15 & 1 == 1 };
        (guard != Guard { register: 7, negated: false }).then_some(guard)
    }

    /// The scheduling fields, bits 105 to 125.
    pub fn control(&self) -> Control {
        let bits = |from: u32, count: u32| (self.high >> (from - 64) & ((1 << count) - 1)) as u8;
        let barrier = |from| Some(bits(from, 3)).filter(|n| *n != 7);
        Control {
            stall: bits(105, 4),
            yield_bit: bits(109, 1) == 1,
            write_barrier: barrier(110),
            read_barrier: barrier(113),
            wait_mask: bits(116, 6),
            reuse: bits(122, 4),
        }
    }

    /// Bytes that a memory access moves per thread, by bits 73-75.
    pub fn access_bytes(&self) -> u32 {
        match self.high >> 9 & 7 {
            0 | 1 => 1,
            2 | 3 => 2,
            4 => 4,
            5 => 8,
            _ => 16,
        }
    }

    /// The target of a direct branch or call, from the start of the code. `None` for other
    /// instructions, and for a target before the start.
    ///
    /// `sm` is the architecture's number.
    pub fn target(&self, sm: u32) -> Option<u64> {
        let all = u128::from(self.high) << 64 | u128::from(self.low);
        let signed = |value: u64, bits: u32| (value << (64 - bits)) as i64 >> (64 - bits);
        let distance = match self.opcode() {
            // The reconvergence flags are in the higher bits.
            BSSY => signed((all >> 34) as u64 & ((1 << 30) - 1), 30),
            op if BRANCHES.contains(&op) => {
                let far = signed((all >> 34) as u64 & ((1 << 48) - 1), 48);
                if sm >= 90 { far << 8 | (all >> 16) as i64 & 0xff } else { far }
            }
            _ => return None,
        };
        self.offset.checked_add(BYTES)?.checked_add_signed(distance.checked_mul(4)?)
    }
}
