//! How the accesses of warps meet the hardware: sectors of global memory, banks of shared memory.
//!
//! A layout says which element each thread accesses. Its first mode counts threads and the others
//! count values, as in CuTe's thread-value layouts; a layout whose first mode is smaller than a
//! warp counts threads alone. Lanes of a warp are consecutive threads. The base is aligned to 128
//! bytes.
//!
//! Global memory has accesses of 32 bytes a lane since sm_100 (`ld.global.v8.b32`,
//! `st.global.v8.b32`; PTX ISA 8.8). Other accesses have at most 16.

mod search;

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;

use crate::element::ElementSize;
use crate::layout::Layout;
use crate::proof::Limits;
use crate::swizzle::Swizzle;

pub use search::{SearchError, StoreCandidate, StoreTile, search_stores};

/// Bytes of a sector, the unit of traffic with L2.
const SECTOR_BYTES: i64 = 32;
/// Bytes of a bank of shared memory.
const BANK_BYTES: i64 = 4;
/// Banks of shared memory.
const BANKS: i64 = 32;

/// Where the elements lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Space {
    /// Global memory: traffic is counted in sectors.
    Global,
    /// Shared memory: bank conflicts are counted.
    Shared,
}

/// How threads access the elements of a layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Access {
    /// The memory that is accessed, global or shared.
    pub space: Space,
    /// The size of an element.
    pub element_bytes: ElementSize,
    /// Active lanes of each warp, from lane 0.
    pub lanes: i64,
    /// Elements that one instruction accesses for a lane.
    pub vector: i64,
    /// A swizzle of byte addresses.
    pub swizzle: Swizzle,
}

/// The reason why accesses cannot be judged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// The lanes are no part of a warp.
    #[error("a warp has 1 to 32 active lanes, not {0}")]
    Lanes(i64),
    /// No instruction has this width.
    #[error(
        "{vector} elements of {element} bytes: an instruction accesses 1, 2, 4, 8 or 16 bytes for a lane, and 32 of global memory since sm_100"
    )]
    Width {
        /// Elements that the instruction accesses for a lane.
        vector: i64,
        /// The size of one.
        element: ElementSize,
    },
    /// A vector begins inside a byte.
    #[error("the vector of lane {lane} begins at element {offset}, in the middle of a byte")]
    HalfByte {
        /// The lane, from 0, within its warp.
        lane: i64,
        /// The offset of its first element.
        offset: i64,
    },
    /// The threads do not fill warps.
    #[error("the thread mode has {threads} threads, no multiple of {lanes} lanes")]
    Threads {
        /// Threads of the layout: its first mode, or all of it if that is no multiple of `lanes`.
        threads: i64,
        /// Lanes of a warp.
        lanes: i64,
    },
    /// The values of a thread do not fill vectors.
    #[error("a thread has {values} values, no multiple of the vector of {vector}")]
    Values {
        /// Values of each thread: the layout's size over its threads.
        values: i64,
        /// Elements of a vector.
        vector: i64,
    },
    /// The offsets are negative or their bytes do not fit.
    #[error("byte addresses go from 0 to 2^58 - 1")]
    Offsets,
    /// There are more accesses than the limit.
    #[error("the layout has more than {0} accesses; give one tile")]
    TooLarge(u64),
}

/// A lane of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LaneAddress {
    /// The request, from 0: all vectors of the first warp, then of the next.
    pub request: i64,
    /// The lane, from 0, within its warp.
    pub lane: i64,
    /// The byte address of its vector.
    pub address: i64,
}

/// Two lanes that cost a sector or a wavefront more than needed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ConflictPair {
    /// The earlier lane.
    pub first: LaneAddress,
    /// The later lane.
    pub second: LaneAddress,
    /// Why they cost more, as a sentence.
    pub reason: String,
}

/// The hardware's cost of all requests of a layout.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct AccessReport {
    /// Requests: one instruction of one warp each.
    pub requests: i64,
    /// Bytes of one lane in one request.
    pub lane_bytes: i64,
    /// The oldest GPU architecture that has such accesses. `None` if all have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub needs_arch: Option<&'static str>,
    /// The first lane whose vector does not begin at a multiple of its size. Such an access faults.
    pub misaligned: Option<LaneAddress>,
    /// The first lane whose elements do not follow one another. One instruction cannot access them.
    pub split_vector: Option<LaneAddress>,
    /// Sectors of all requests together (global memory).
    pub sectors: Option<RequestCounts>,
    /// Wavefronts of all requests together (shared memory).
    pub wavefronts: Option<RequestCounts>,
    /// Wavefronts of the worst request by those of a request without conflicts.
    pub conflict_ways: Option<f64>,
    /// Bytes that lanes asked for, of all bytes in the sectors (global memory).
    pub efficiency: Option<f64>,
    /// The first two lanes that cost a sector or a wavefront more than needed.
    pub first_conflict: Option<ConflictPair>,
}

/// Sectors or wavefronts, counted for each request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RequestCounts {
    /// All requests together.
    pub total: i64,
    /// The fewest that any order of the same bytes needs.
    pub ideal: i64,
    /// The smallest count of one request.
    pub least: i64,
    /// The largest count of one request.
    pub most: i64,
}

impl RequestCounts {
    fn add(count: &mut Option<Self>, value: i64, ideal: i64) {
        let new = count.get_or_insert(Self { total: 0, ideal: 0, least: value, most: value });
        new.total += value;
        new.ideal += ideal;
        new.least = new.least.min(value);
        new.most = new.most.max(value);
    }
}

impl Access {
    /// The bytes that an instruction accesses for a lane. `None` if there is no such instruction.
    pub fn lane_bytes(&self) -> Option<i64> {
        let widest = match self.space {
            Space::Global => 32,
            Space::Shared => 16,
        };
        let bits = self.vector.checked_mul(self.element_bytes.bits())?;
        let bytes = bits.checked_div(8).filter(|bytes| bytes * 8 == bits)?;
        ((1..=widest).contains(&bytes) && bytes.count_ones() == 1).then_some(bytes)
    }
}

/// Judges all accesses of a layout.
///
/// # Errors
/// If no instruction is like that, or the layout has more accesses than the limit of points.
pub fn check_access(
    layout: &Layout,
    access: Access,
    limits: Limits,
) -> Result<AccessReport, AccessError> {
    let Access { lanes, vector, element_bytes: element, space, swizzle } = access;
    if !(1..=32).contains(&lanes) {
        return Err(AccessError::Lanes(lanes));
    }
    let bits = element.bits();
    let lane_bytes = access.lane_bytes().ok_or(AccessError::Width { vector, element })?;
    let reach = layout.high().checked_add(vector).and_then(|end| end.checked_mul(bits));
    // Addresses in bits fit too.
    if layout.low() < 0 || reach.is_none_or(|end| end >= 1 << 61) {
        return Err(AccessError::Offsets);
    }
    if layout.size() as u64 > limits.points {
        return Err(AccessError::TooLarge(limits.points));
    }
    let first = layout.parts().first().map_or(1, Layout::size);
    let threads = if first % lanes == 0 { first } else { layout.size() };
    if threads % lanes != 0 {
        return Err(AccessError::Threads { threads, lanes });
    }
    let values = layout.size() / threads;
    // One value for each thread is the start of its vector.
    if values > 1 && values % vector != 0 {
        return Err(AccessError::Values { values, vector });
    }
    // The byte of an element, and its first bit there. The check above excludes what a swizzle
    // cannot act on.
    let place = |offset: i64| (swizzle.apply(offset * bits / 8), offset * bits % 8);
    let offsets: Vec<i64> = layout.offsets().collect();
    let offset = |thread: i64, value: i64| offsets[(value * threads + thread) as usize];
    let mut report = AccessReport {
        requests: 0,
        lane_bytes,
        needs_arch: (lane_bytes > 16).then_some("sm_100"),
        misaligned: None,
        split_vector: None,
        sectors: None,
        wavefronts: None,
        conflict_ways: None,
        efficiency: None,
        first_conflict: None,
    };
    let step = if values == 1 { 1 } else { vector };
    let mut asked = 0;
    for warp in 0..threads / lanes {
        for value in (0..values).step_by(step as usize) {
            let request = report.requests;
            report.requests += 1;
            let mut addresses = Vec::with_capacity(lanes as usize);
            for lane in 0..lanes {
                let offset = offset(warp * lanes + lane, value);
                let (address, 0) = place(offset) else {
                    return Err(AccessError::HalfByte { lane, offset });
                };
                addresses.push(LaneAddress { request, lane, address });
            }
            for at in &addresses {
                if at.address % lane_bytes != 0 {
                    report.misaligned.get_or_insert(*at);
                }
                let thread = warp * lanes + at.lane;
                let follows = |part: i64| {
                    let bit = part * bits;
                    values == 1
                        || place(offset(thread, value + part)) == (at.address + bit / 8, bit % 8)
                };
                if !(1..step).all(follows) {
                    report.split_vector.get_or_insert(*at);
                }
            }
            match space {
                Space::Global => asked += count_sectors(&mut report, &addresses, lane_bytes),
                Space::Shared => count_wavefronts(&mut report, &addresses, lane_bytes),
            }
        }
    }
    report.efficiency =
        report.sectors.map(|count| asked as f64 / (count.total * SECTOR_BYTES) as f64);
    let ideal = ideal_wavefronts(lane_bytes, lanes);
    report.conflict_ways = report.wavefronts.map(|count| count.most as f64 / ideal as f64);
    Ok(report)
}

/// Counts the sectors of a request. Returns the different bytes that its lanes ask for.
fn count_sectors(report: &mut AccessReport, lanes: &[LaneAddress], bytes: i64) -> i64 {
    let sectors: BTreeSet<i64> = lanes
        .iter()
        .flat_map(|at| at.address / SECTOR_BYTES..=(at.address + bytes - 1) / SECTOR_BYTES)
        .collect();
    let starts: BTreeSet<i64> = lanes.iter().map(|at| at.address).collect();
    // Vectors are aligned to their size, or the access faults, so different ones do not overlap.
    let asked = starts.len() as i64 * bytes;
    let ideal = (asked + SECTOR_BYTES - 1) / SECTOR_BYTES;
    let count = sectors.len() as i64;
    RequestCounts::add(&mut report.sectors, count, ideal);
    if count > ideal && report.first_conflict.is_none() {
        // The first neighbours that leave a part of a sector unused between them.
        report.first_conflict = lanes.windows(2).find_map(|pair| {
            let [first, second] = *pair else { return None };
            let gap = second.address - first.address;
            let new_sector = second.address / SECTOR_BYTES != first.address / SECTOR_BYTES;
            (gap != bytes && new_sector).then(|| ConflictPair {
                first,
                second,
                reason: format!("{gap} bytes apart, so lane {} opens another sector", second.lane),
            })
        });
    }
    asked
}

/// How many groups of lanes the hardware serves one after another, without conflicts.
fn ideal_wavefronts(bytes: i64, lanes: i64) -> i64 {
    let group = lanes_of_phase(bytes);
    (lanes + group - 1) / group
}

/// Lanes that together ask for at most one word of each bank: a half-warp for 8 bytes a lane, a
/// quarter for 16.
fn lanes_of_phase(bytes: i64) -> i64 {
    32 / (bytes / BANK_BYTES).max(1)
}

/// Counts the wavefronts of a request: in each phase, the most different words of one bank.
fn count_wavefronts(report: &mut AccessReport, lanes: &[LaneAddress], bytes: i64) {
    let mut wavefronts = 0;
    for phase in lanes.chunks(lanes_of_phase(bytes) as usize) {
        let mut words: BTreeMap<i64, BTreeMap<i64, LaneAddress>> = BTreeMap::new();
        for at in phase {
            for word in at.address / BANK_BYTES..=(at.address + bytes - 1) / BANK_BYTES {
                let bank = words.entry(word % BANKS).or_default();
                if let (Some(first), false) = (bank.values().next(), bank.contains_key(&word))
                    && report.first_conflict.is_none()
                {
                    let reason = format!("different words of bank {}", word % BANKS);
                    report.first_conflict =
                        Some(ConflictPair { first: *first, second: *at, reason });
                }
                bank.entry(word).or_insert(*at);
            }
        }
        wavefronts += words.values().map(BTreeMap::len).max().unwrap_or(0) as i64;
    }
    RequestCounts::add(
        &mut report.wavefronts,
        wavefronts,
        ideal_wavefronts(bytes, lanes.len() as i64),
    );
}
