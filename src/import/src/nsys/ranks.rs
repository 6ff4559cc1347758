//! The work of each process of a trace, for the analysis of ranks.
//!
//! A process that did work on a GPU is a rank. Reports do not tell its number, so ranks of one
//! report are numbered by GPU, then by process id, as `torchrun` starts them.
//!
//! NCCL puts a range of its domain `NCCL` around each call. Its payload has the communicator and
//! the size of the message, which nsys's export has as JSON. Without it, the streams of NCCL's
//! kernels tell process groups apart: torch has one for each.

use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use super::attribute::AttributedWork;
use super::pieces::{Call, PieceKind, RankPiece};
use super::sums::SmallIntHasher;
use super::trace::{OtherWork, Trace};
use crate::region_tree::InnermostLookup;
use crate::trace_events::NameTable;
use rgpu_model::profile::Gap;
use rgpu_model::rank_work::{
    GpuWork, GpuWorkKind, HostRange, JoinedRanks, RankCollective, RankWork,
};
use rgpu_model::ranks::{CollectiveOperation, RankLocation};

/// A tool's facts about the collective that a kernel carries out.
#[derive(Clone, Debug)]
pub(crate) struct CollectiveFacts {
    /// The name of the process group; empty if the tool does not tell.
    pub(crate) group: String,
    pub(crate) operation: CollectiveOperation,
    /// Bytes by the convention of nccl-tests.
    pub(crate) bytes: Option<u64>,
    pub(crate) ranks: Option<u32>,
}

/// The payload of a range of NCCL.
#[derive(Clone, Copy, Debug)]
pub(super) struct NcclRange {
    pub(super) thread: u64,
    pub(super) start_ns: i64,
    pub(super) end_ns: i64,
    pub(super) message: NcclMessage,
}

/// Communicator and bytes of a message of NCCL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NcclMessage {
    communicator: Option<u64>,
    bytes: Option<u64>,
}

impl NcclMessage {
    /// Reads a payload. NCCL names its fields `NCCL communicator ID` and `Message size [bytes]`.
    pub(super) fn read(json: &str) -> Option<NcclMessage> {
        let fields: serde_json::Map<String, serde_json::Value> = serde_json::from_str(json).ok()?;
        let number = |word: &str| {
            let value = fields.iter().find(|(key, _)| key.contains(word))?.1;
            value.as_u64().or_else(|| {
                let text = value.as_str()?;
                let hex = text.strip_prefix("0x").map(|hex| u64::from_str_radix(hex, 16).ok());
                hex.unwrap_or_else(|| text.parse().ok())
            })
        };
        let message =
            NcclMessage { communicator: number("communicator"), bytes: number("essage size") };
        (message != NcclMessage::default()).then_some(message)
    }
}

/// NCCL's kernels are `ncclDevKernel_AllReduce_…`, earlier `ncclKernel_…`.
fn is_nccl(name: &str) -> bool {
    name.trim_start_matches("void ").starts_with("nccl")
}

/// Most processes of one report that are compared as ranks. A report is of one host, so its ranks
/// are hundreds at most; more processes are programs that ran one after another.
const MAX_PROCESSES: usize = 1024;

/// The number of each rank, by its process.
pub(super) type RankNumbers = HashMap<u64, u32>;

/// The gap of a trace with more processes than can be ranks; `None` for any other.
pub(super) fn too_many_processes(trace: &Trace, from: &str) -> Option<Gap> {
    let count = trace.pieces.process_count();
    (count > MAX_PROCESSES).then(|| Gap {
        code: "ranks_capped".to_owned(),
        text: format!(
            "{from}: {count} processes used a GPU; rgpu compares at most {MAX_PROCESSES} of one \
             report as ranks, so these are read as one program"
        ),
    })
}

/// The ranks of a trace with their numbers: all processes with work on a GPU, if there are
/// several or `is_rank`. `known` are the collectives that the tool tells of.
pub(super) fn read(
    trace: &Trace,
    placed: &AttributedWork,
    known: &HashMap<i64, CollectiveFacts>,
    is_rank: bool,
    from: &str,
) -> (RankNumbers, Option<JoinedRanks>) {
    let process_count = trace.pieces.process_count();
    if !(1..=MAX_PROCESSES).contains(&process_count) || (process_count == 1 && !is_rank) {
        return (RankNumbers::new(), None);
    }
    let mut reader = RankReader::new(trace, placed, known);
    for piece in trace.pieces.rank_pieces() {
        reader.add(&piece);
    }
    reader.finish(from)
}

/// Adds what a report tells of its host. With `start_ns`, times become those since 1970.
pub(super) fn add_rank_location(
    joined: &mut JoinedRanks,
    host: Option<String>,
    start_ns: Option<i64>,
) {
    for rank in &mut joined.ranks {
        rank.location.host.clone_from(&host);
        rank.shift(start_ns.unwrap_or(0));
    }
}

struct RankReader<'a> {
    trace: &'a Trace,
    placed: &'a AttributedWork,
    innermost: InnermostLookup<'a>,
    known: &'a HashMap<i64, CollectiveFacts>,
    /// The operation of each kernel of NCCL, by the number of its name.
    operations: Vec<Option<CollectiveOperation>>,
    /// By the process that did the work.
    ranks: BTreeMap<u64, RankBuilder>,
    /// The ranges with a payload, by thread and start.
    messages: Vec<&'a NcclRange>,
}

#[derive(Default)]
struct RankBuilder {
    work: RankWork,
    names: NameTable,
    /// The index of each name among those of the rank.
    name_of: HashMap<u32, u32, BuildHasherDefault<SmallIntHasher>>,
    /// The index of each region, by its number in the tree.
    regions: HashMap<usize, u32>,
    last_region: Option<(usize, u32)>,
    /// Numbers of the streams with collectives, in order of use.
    streams: Vec<u32>,
    collectives: Vec<FoundCollective>,
}

/// A collective whose piece may still move.
struct FoundCollective {
    call: RankCollective,
    stream: u32,
    /// Start and end of its piece.
    time: (i64, i64),
}

impl RankBuilder {
    fn region(&mut self, placed: &AttributedWork, node: usize) -> u32 {
        if let Some((_, region)) = self.last_region.filter(|(last, _)| *last == node) {
            return region;
        }
        let next = u32::try_from(self.work.regions.len()).unwrap_or(u32::MAX);
        let region = *self.regions.entry(node).or_insert_with(|| {
            self.work.regions.push(placed.tree.path(node));
            next
        });
        self.last_region = Some((node, region));
        region
    }

    fn name(&mut self, what: PieceKind, name: impl Fn() -> String) -> u32 {
        let names = &mut self.names;
        *self.name_of.entry(what.number()).or_insert_with(|| names.index(&name()))
    }
}

impl<'a> RankReader<'a> {
    fn new(
        trace: &'a Trace,
        placed: &'a AttributedWork,
        known: &'a HashMap<i64, CollectiveFacts>,
    ) -> RankReader<'a> {
        let mut messages: Vec<&NcclRange> = trace.messages.iter().collect();
        messages.sort_by_key(|range| (range.thread, range.start_ns));
        let operation = |name: &String| is_nccl(name).then(|| CollectiveOperation::from_name(name));
        RankReader {
            trace,
            placed,
            innermost: placed.tree.innermost(),
            known,
            operations: trace.kernels.iter().map(operation).collect(),
            ranks: BTreeMap::new(),
            messages,
        }
    }

    fn add(&mut self, piece: &RankPiece) {
        let RankPiece { process, call, what, .. } = *piece;
        let trace = self.trace;
        let node =
            call.and_then(|call| self.innermost.around(call.process, call.thread, call.at_ns));
        let operation = match what {
            PieceKind::Kernel(name) => self.operations.get(name as usize).and_then(Option::as_ref),
            PieceKind::Other(_) => None,
        };
        let kind = match (what, operation) {
            (_, Some(_)) => GpuWorkKind::Collective,
            (PieceKind::Kernel(_), None) => GpuWorkKind::Compute,
            (PieceKind::Other(number), None) => match trace.pieces.other(number) {
                Some(OtherWork::Copy(_) | OtherWork::Set) => GpuWorkKind::Copy,
                Some(OtherWork::Graph) | None => GpuWorkKind::Compute,
            },
        };
        let is_only = trace.pieces.process_count() == 1;
        let rank = self.ranks.entry(process).or_insert_with(|| {
            let mut rank = RankBuilder::default();
            rank.work.gpu_work.reserve_exact(if is_only { trace.pieces.len() } else { 0 });
            rank
        });
        let region = node.map(|around| rank.region(self.placed, around.innermost.node));
        let name = rank.name(what, || trace.name(what));
        let time = (piece.start_ns, piece.start_ns.saturating_add_unsigned(piece.ns));
        rank.work.gpu_work.push(GpuWork {
            start_ns: time.0,
            end_ns: time.1,
            called_ns: call.map(|call| call.at_ns),
            name,
            region,
            kind,
        });
        if let Some(operation) = operation {
            let facts = piece.correlation.and_then(|id| self.known.get(&id));
            let message = call.and_then(|call| message_of(&self.messages, call));
            let outer = region.and_then(|at| rank.work.regions[at as usize].last());
            let call = collective(operation, outer, facts, message);
            rank.collectives.push(FoundCollective { call, stream: piece.stream, time });
        }
    }

    fn finish(mut self, from: &str) -> (RankNumbers, Option<JoinedRanks>) {
        for (range, index) in self.trace.ranges.iter().zip(0..) {
            let Some(rank) = self.ranks.get_mut(&range.process) else { continue };
            let node = self.placed.tree.region_of_range(index);
            let (depth, ..) = self.placed.tree.region_key(node);
            let region = rank.region(self.placed, node);
            rank.work.ranges.push(HostRange {
                start_ns: range.start_ns,
                end_ns: range.end_ns,
                name: rank.names.index(&range.part),
                region,
                depth: u32::try_from(depth).unwrap_or(u32::MAX),
            });
        }
        let mut all: Vec<(u64, RankBuilder)> = self.ranks.into_iter().collect();
        let device_of = |process: u64| self.trace.pieces.device_of(process);
        all.sort_by_key(|(process, _)| (device_of(*process), *process));
        let numbers =
            all.iter().zip(0..).map(|((process, _), number)| (*process, number)).collect();
        let ranks = all.into_iter().zip(0..).map(|((process, rank), number)| {
            let pid = u32::try_from((process >> 24) & 0xff_ffff).ok();
            let location = RankLocation {
                rank: number,
                host: None,
                gpu: device_of(process),
                pid,
                from: from.to_owned(),
            };
            RankWork { first_ns: self.trace.first_ns, ..rank.finish(location) }
        });
        let joined = JoinedRanks { ranks: ranks.collect(), ..JoinedRanks::default() };
        (numbers, Some(joined))
    }
}

impl RankBuilder {
    /// The rank with its work in order of start.
    fn finish(mut self, location: RankLocation) -> RankWork {
        let mut work = self.work;
        work.gpu_work.sort_by_key(|piece| (piece.start_ns, piece.end_ns));
        // Both sorts are stable, so that the k-th collective is the k-th of the work.
        self.collectives.sort_by_key(|found| found.time);
        let pieces = work.gpu_work.iter().zip(0..);
        let pieces = pieces.filter(|(piece, _)| piece.kind == GpuWorkKind::Collective);
        for (found, (_, at)) in self.collectives.iter_mut().zip(pieces) {
            found.call.gpu_work = at;
            if found.call.group.is_empty() {
                let known = self.streams.iter().position(|known| *known == found.stream);
                let number = known.unwrap_or_else(|| {
                    self.streams.push(found.stream);
                    self.streams.len() - 1
                });
                found.call.group = Arc::from(format!("group {}", number + 1));
            }
        }
        work.collectives = self.collectives.into_iter().map(|found| found.call).collect();
        work.ranges.sort_by_key(|range| (range.start_ns, std::cmp::Reverse(range.end_ns)));
        work.names = self.names.into_vec();
        work.location = location;
        work
    }
}

/// The message of the innermost range of NCCL around a call.
fn message_of(messages: &[&NcclRange], call: Call) -> Option<NcclMessage> {
    let key = (call.thread, call.at_ns);
    let until = messages.partition_point(|range| (range.thread, range.start_ns) <= key);
    // Ranges of NCCL nest in its group calls at most.
    let near = messages[..until].iter().rev().take(4);
    let around = near.filter(|range| range.thread == call.thread);
    around.into_iter().find(|range| range.end_ns >= call.at_ns).map(|range| range.message)
}

/// The collective of a kernel; its piece is not known yet.
fn collective(
    of_kernel: &CollectiveOperation,
    region: Option<&String>,
    facts: Option<&CollectiveFacts>,
    message: Option<NcclMessage>,
) -> RankCollective {
    if let Some(facts) = facts {
        return RankCollective {
            gpu_work: 0,
            group: Arc::from(facts.group.as_str()),
            operation: facts.operation.clone(),
            bytes: facts.bytes,
            bytes_are_per_rank: false,
            ranks: facts.ranks,
        };
    }
    let operation = match (of_kernel, region) {
        (CollectiveOperation::Other(_), Some(range)) => CollectiveOperation::from_name(range),
        (known, _) => known.clone(),
    };
    let group = message.and_then(|message| message.communicator);
    let group = group.map_or_else(String::new, |id| format!("communicator {id:#x}"));
    // Of these, NCCL tells the bytes that one rank gives or gets.
    let bytes_are_per_rank =
        matches!(operation, CollectiveOperation::AllGather | CollectiveOperation::ReduceScatter);
    RankCollective {
        gpu_work: 0,
        group: Arc::from(group),
        operation,
        bytes: message.and_then(|message| message.bytes),
        bytes_are_per_rank,
        ranks: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_of_nccl_has_its_communicator_and_size() {
        let read = NcclMessage::read(
            r#"{"NCCL communicator ID":"0x1f","Message size [bytes]":4096,"Reduction operation":"Sum"}"#,
        );
        assert_eq!(read, Some(NcclMessage { communicator: Some(31), bytes: Some(4096) }));
        assert_eq!(NcclMessage::read(r#"{"value":3}"#), None);
        assert_eq!(NcclMessage::read("no JSON"), None);
    }
}
