//! Theoretical occupancy: how many blocks of a kernel fit on an SM, and what limits the number.
//!
//! `rgpu disasm` and `rgpu build` use it for code that never ran. Tests compare it with the values
//! of ncu. The limits come from the table of technical
//! specifications of the CUDA C++ Programming Guide (12.9 and 13.0); granularities are those of
//! `cuda_occupancy.h` in the toolkit: registers are handed out to warps in units of 256 within each
//! of four partitions, shared memory in units of 128 bytes (256 before compute capability 8.0), and
//! the system keeps 1 KiB a block from 8.0 on.

/// The resources of an SM of one compute capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmLimits {
    /// Compute capability, major and minor.
    pub compute: (u32, u32),
    /// Most resident warps of an SM.
    pub warps: u32,
    /// Most resident blocks of an SM.
    pub blocks: u32,
    /// Shared memory in bytes with the largest carve-out.
    pub shared_bytes: u64,
    /// Allocation granularity of shared memory, in bytes.
    pub shared_unit: u64,
    /// Shared memory that the system reserves per block, in bytes.
    pub shared_reserved: u64,
}

const fn sm(compute: (u32, u32), warps: u32, blocks: u32, shared_kib: u64) -> SmLimits {
    let ampere = compute.0 >= 8;
    SmLimits {
        compute,
        warps,
        blocks,
        shared_bytes: shared_kib << 10,
        shared_unit: if ampere { 128 } else { 256 },
        shared_reserved: if ampere { 1024 } else { 0 },
    }
}

/// Every compute capability from Volta to Blackwell. The values for 9.0 were checked against ncu;
/// the others are from the guide only.
static LIMITS: &[SmLimits] = &[
    sm((7, 0), 64, 32, 96),
    sm((7, 2), 64, 32, 96),
    sm((7, 5), 32, 16, 64),
    sm((8, 0), 64, 32, 164),
    sm((8, 6), 48, 16, 100),
    sm((8, 7), 48, 16, 164),
    sm((8, 9), 48, 24, 100),
    sm((9, 0), 64, 32, 228),
    sm((10, 0), 64, 32, 228),
    sm((10, 1), 48, 24, 228),
    sm((10, 3), 64, 32, 228),
    sm((11, 0), 48, 24, 228),
    sm((12, 0), 48, 24, 100),
    sm((12, 1), 48, 24, 100),
];

const WARP_LANES: u32 = 32;
const SM_PARTITIONS: u32 = 4;
const REGISTERS_PER_SM: u32 = 64 << 10;
const REGISTER_UNIT: u32 = 256;
const MAX_THREADS: u32 = 1024;
const MAX_REGISTERS: u32 = 255;

/// The limits of a compute capability; `None` for one that is not in the table.
pub fn limits(major: u32, minor: u32) -> Option<&'static SmLimits> {
    LIMITS.iter().find(|row| row.compute == (major, minor))
}

/// The limits of an architecture as compilers spell it: `sm_90a`, `sm_100f`, `compute_80`.
pub fn limits_of_arch(arch: &str) -> Option<&'static SmLimits> {
    let number = arch.rsplit_once('_')?.1.trim_end_matches(|c: char| c.is_ascii_lowercase());
    let number: u32 = number.parse().ok()?;
    limits(number / 10, number % 10)
}

/// The resources that one block needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockResources {
    /// Threads per block.
    pub threads: u32,
    /// Registers per thread.
    pub registers: u32,
    /// Static and dynamic shared memory in bytes, without the system's reservation.
    pub shared_bytes: u64,
    /// The SM's shared-memory carve-out for the launch, in bytes. If `None`, the largest carve-out
    /// is assumed.
    pub carve_out: Option<u64>,
}

/// The resource that limits the number of resident blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limiter {
    /// The SM's maximum number of warps.
    Warps,
    /// The registers of an SM.
    Registers,
    /// The shared memory of an SM.
    SharedMemory,
    /// The SM's maximum number of blocks.
    Blocks,
}

impl Limiter {
    /// The name in `rgpu disasm` and `rgpu build`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Warps => "the block's size",
            Self::Registers => "registers",
            Self::SharedMemory => "shared memory",
            Self::Blocks => "the number of blocks",
        }
    }
}

/// The theoretical occupancy of an SM.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SmOccupancy {
    /// Resident blocks per SM.
    pub blocks: u32,
    /// Resident warps per SM.
    pub warps: u32,
    /// Resident warps in percent of the SM's maximum.
    pub percent: f64,
    /// The limiter that allows the fewest blocks; the first one if several are equal.
    pub limiter: Limiter,
    /// The number of blocks that each limiter alone would allow.
    pub by_limiter: [(Limiter, u32); 4],
}

/// The theoretical occupancy for identical blocks.
///
/// `None` for a block that the SM cannot run: no threads, more than 1024 threads, more than 255
/// registers per thread, or more shared memory or registers than the SM has.
pub fn occupancy(sm: &SmLimits, block: &BlockResources) -> Option<SmOccupancy> {
    if block.threads == 0 || block.threads > MAX_THREADS || block.registers > MAX_REGISTERS {
        return None;
    }
    let warps = block.threads.div_ceil(WARP_LANES);
    // Each partition of the SM has its own registers, and a warp stays in one partition.
    let registers_per_warp = (block.registers * WARP_LANES).next_multiple_of(REGISTER_UNIT);
    let by_registers = match registers_per_warp {
        0 => u32::MAX, // no registers: no limit
        registers_per_warp => REGISTERS_PER_SM / SM_PARTITIONS / registers_per_warp * SM_PARTITIONS,
    };
    let shared = block.shared_bytes.checked_add(sm.shared_reserved)?;
    let shared = shared.checked_next_multiple_of(sm.shared_unit)?;
    let available = block.carve_out.unwrap_or(sm.shared_bytes).min(sm.shared_bytes);
    let by_shared = match shared {
        0 => u64::from(sm.blocks),
        shared => available / shared,
    };
    let by_limiter = [
        (Limiter::Warps, sm.warps / warps),
        (Limiter::Registers, by_registers / warps),
        (Limiter::SharedMemory, u32::try_from(by_shared).unwrap_or(u32::MAX)),
        (Limiter::Blocks, sm.blocks),
    ];
    let (limiter, blocks) = by_limiter.into_iter().min_by_key(|(_, blocks)| *blocks)?;
    let resident = blocks * warps;
    (blocks > 0).then(|| SmOccupancy {
        blocks,
        warps: resident,
        percent: f64::from(resident) / f64::from(sm.warps) * 100.0,
        limiter,
        by_limiter,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(arch: &str, threads: u32, registers: u32, shared_bytes: u64) -> Option<SmOccupancy> {
        let block = BlockResources { threads, registers, shared_bytes, carve_out: None };
        occupancy(limits_of_arch(arch)?, &block)
    }

    #[test]
    fn each_resource_can_be_what_limits() {
        let limiter = |threads, registers, shared| {
            of("sm_90a", threads, registers, shared).map(|o| (o.limiter, o.blocks, o.warps))
        };
        assert_eq!(limiter(256, 32, 0), Some((Limiter::Warps, 8, 64)));
        assert_eq!(limiter(256, 255, 0), Some((Limiter::Registers, 1, 8)));
        assert_eq!(limiter(128, 32, 100 << 10), Some((Limiter::SharedMemory, 2, 8)));
        assert_eq!(limiter(32, 16, 0), Some((Limiter::Blocks, 32, 32)));
    }

    #[test]
    fn an_architecture_decides_how_many_warps_fit() {
        let percent = |arch, threads| of(arch, threads, 32, 0).map(|o| o.percent);
        assert_eq!(percent("sm_90", 1024), Some(100.0));
        // A maximum of 48 warps leaves room for one block of 32.
        assert_eq!(percent("sm_89", 1024).map(f64::round), Some(67.0));
        assert_eq!(percent("sm_75", 1024), Some(100.0));
        assert_eq!(percent("sm_120f", 512), Some(100.0));
    }

    #[test]
    fn the_system_keeps_shared_memory_from_ampere_on() {
        let blocks = |arch, shared| of(arch, 64, 16, shared).map(|o| o.blocks);
        assert_eq!(blocks("sm_70", 48 << 10), Some(2));
        assert_eq!(blocks("sm_80", 82 << 10), Some(1));
        assert_eq!(blocks("sm_80", 81 << 10), Some(2));
    }

    #[test]
    fn what_no_sm_can_run_has_no_occupancy() {
        assert_eq!(of("sm_90", 0, 32, 0), None);
        assert_eq!(of("sm_90", 1025, 32, 0), None);
        assert_eq!(of("sm_90", 1024, 128, 0), None);
        assert_eq!(of("sm_90", 64, 32, u64::MAX), None);
        assert_eq!(of("sm_90", 64, 32, 229 << 10), None);
        assert_eq!(limits_of_arch("sm_61"), None);
        assert_eq!(limits_of_arch("nonsense"), None);
    }
}
