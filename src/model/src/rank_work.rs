//! The GPU work of every rank, as the analysis of ranks needs it. It is not written anywhere: the
//! profile has the result ([`super::ranks::Ranks`]), and `trace.json` lists the first events.
//!
//! All times are nanoseconds on the common clock, if there is one ([`RankClock`]); else on the
//! rank's own clock.

use std::sync::Arc;

use super::ranks::{CollectiveOperation, RankClock, RankLocation};

/// Ranks of one program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JoinedRanks {
    /// The ranks, by number.
    pub ranks: Vec<RankWork>,
    /// Collectives that every rank of their group called.
    pub collectives: Vec<MatchedCollective>,
    /// How the clocks are related.
    pub clock: RankClock,
    /// Number of calls of collectives without a match.
    pub unmatched: u64,
}

/// The work of one rank.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RankWork {
    /// The rank's number, and where it ran as far as the report tells.
    pub location: RankLocation,
    /// Names of work and ranges.
    pub names: Vec<String>,
    /// Paths of regions, each from the outermost name.
    pub regions: Vec<Vec<String>>,
    /// Work on the GPU, in order of start.
    pub gpu_work: Vec<GpuWork>,
    /// Ranges of the host, in order of start.
    pub ranges: Vec<HostRange>,
    /// The time at which the report's `trace.json` begins.
    pub first_ns: i64,
    /// Collectives among the GPU work, in order of start.
    pub collectives: Vec<RankCollective>,
    /// Whether the report tells the rank's number.
    pub is_numbered: bool,
    /// Number of ranks of the program, if the report tells.
    pub world_size: Option<u32>,
}

/// The kind of a [`GpuWork`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuWorkKind {
    /// A kernel or graph that computes.
    Compute,
    /// A kernel of a collective.
    Collective,
    /// A copy or memset.
    Copy,
}

/// One piece of work on the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuWork {
    /// Start, in nanoseconds on the clock of [`JoinedRanks::clock`].
    pub start_ns: i64,
    /// End, on the same clock.
    pub end_ns: i64,
    /// Start of the call that submitted it.
    pub called_ns: Option<i64>,
    /// The work's name, as an index into [`RankWork::names`].
    pub name: u32,
    /// Index into [`RankWork::regions`] of the innermost region in which it was launched.
    pub region: Option<u32>,
    /// The kind of work.
    pub kind: GpuWorkKind,
}

/// A range of a host thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostRange {
    /// Start, in nanoseconds on the clock of [`JoinedRanks::clock`].
    pub start_ns: i64,
    /// End, on the same clock.
    pub end_ns: i64,
    /// The range's name, as an index into [`RankWork::names`].
    pub name: u32,
    /// The region of the range, as an index into [`RankWork::regions`].
    pub region: u32,
    /// Number of ranges of this thread around it.
    pub depth: u32,
}

/// One call of a collective on one rank.
#[derive(Clone, Debug, PartialEq)]
pub struct RankCollective {
    /// The kernel of the collective, as an index into [`RankWork::gpu_work`].
    pub gpu_work: u32,
    /// The process group. Equal on all its ranks.
    pub group: Arc<str>,
    /// The collective operation.
    pub operation: CollectiveOperation,
    /// Size as nccl-tests counts it, or the data of one rank; see `bytes_are_per_rank`.
    pub bytes: Option<u64>,
    /// Whether `bytes` is the data of one rank although nccl-tests counts that of all ranks.
    pub bytes_are_per_rank: bool,
    /// Number of ranks in the group, if the report tells.
    pub ranks: Option<u32>,
}

/// One call of a collective by all ranks of its group.
#[derive(Clone, Debug, PartialEq)]
pub struct MatchedCollective {
    /// The process group, as its ranks name it.
    pub group: Arc<str>,
    /// What the calls do with the data.
    pub operation: CollectiveOperation,
    /// Index among the calls of the group.
    pub number: u64,
    /// Size as nccl-tests counts it; `None` if no report gives it.
    pub bytes: Option<u64>,
    /// The call of each rank: indices into [`JoinedRanks::ranks`] and [`RankWork::gpu_work`].
    pub calls: Vec<(u32, u32)>,
}

impl RankWork {
    /// Moves all times later by `ns`.
    pub fn shift(&mut self, ns: i64) {
        self.map_times(|at| at.saturating_add(ns));
    }

    /// Replaces every time of the rank by `time` of it.
    pub fn map_times(&mut self, time: impl Fn(i64) -> i64) {
        for piece in &mut self.gpu_work {
            (piece.start_ns, piece.end_ns) = (time(piece.start_ns), time(piece.end_ns));
            piece.called_ns = piece.called_ns.map(&time);
        }
        for range in &mut self.ranges {
            (range.start_ns, range.end_ns) = (time(range.start_ns), time(range.end_ns));
        }
        self.first_ns = time(self.first_ns);
    }

    /// The name at an index of `names`; empty if out of range.
    pub fn name(&self, at: u32) -> &str {
        self.names.get(at as usize).map_or("", String::as_str)
    }
}
