//! The work of each process of a trace, for the analysis of ranks.
//!
//! A process that did work on a GPU is a rank. Reports do not tell its number, so ranks of one
//! report are numbered by GPU, then by process id, as `torchrun` starts them.
//!
//! NCCL puts a range of its domain `NCCL` around each call. Its payload has the communicator and the
//! size of the message, which nsys's export has as JSON. Without it, the streams of NCCL's kernels
//! tell process groups apart: torch has one for each.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::attribute::AttributedWork;
use super::pieces::Call;
use super::rows::TraceRows;
use super::sums::copy_name;
use super::trace::{Trace, process};
use crate::import::event_list::NameTable;
use crate::import::region_tree::InnermostLookup;
use crate::model::rank_work::{
    GpuWork, GpuWorkKind, HostRange, JoinedRanks, RankCollective, RankWork,
};
use crate::model::ranks::{CollectiveOperation, RankLocation};

/// What a tool tells of the collective that a kernel carries out.
#[derive(Clone, Debug)]
pub(in crate::import) struct CollectiveFacts {
    /// The name of the process group; empty if the tool does not tell.
    pub(in crate::import) group: String,
    pub(in crate::import) operation: CollectiveOperation,
    /// Bytes by the convention of nccl-tests.
    pub(in crate::import) bytes: Option<u64>,
    pub(in crate::import) ranks: Option<u32>,
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

/// The ranks of a trace with their processes: all processes with work on a GPU, if there are several
/// or `is_rank`.
pub(super) fn read<R: TraceRows>(
    file: &R,
    trace: &Trace,
    placed: &AttributedWork,
    is_rank: bool,
    from: &str,
) -> Result<(Vec<u64>, Option<JoinedRanks>), R::Error> {
    let many = trace.pieces.process_count();
    if many == 0 || (many == 1 && !is_rank) {
        return Ok((Vec::new(), None));
    }
    let known = file.collectives();
    let mut reader = RankReader::new(trace, placed, &known);
    file.kernel_runs(|k| {
        let name = k.demangled.or(k.short).and_then(|id| trace.strings.get(id));
        let name = name.unwrap_or("(unnamed)");
        let kind = if is_nccl(name) { GpuWorkKind::Collective } else { GpuWorkKind::Compute };
        let row = (k.global_pid, k.correlation, k.device, k.stream);
        reader.add(row, (k.start_ns, k.end_ns), name, kind);
    })?;
    file.memcpys(|c| {
        let row = (c.global_pid, c.correlation, c.device, c.stream);
        reader.add(row, (c.start_ns, c.end_ns), &copy_name(c.kind), GpuWorkKind::Copy);
    })?;
    file.memsets(|s| {
        let row = (s.global_pid, s.correlation, s.device, s.stream);
        reader.add(row, (s.start_ns, s.end_ns), "memset", GpuWorkKind::Copy);
    })?;
    file.graph_launches(|g| {
        // The table has no device column.
        let row = (g.global_pid, g.correlation, None, g.stream);
        reader.add(row, (g.start_ns, g.end_ns), "graph", GpuWorkKind::Compute);
    })?;
    Ok(reader.finish(from))
}

/// Adds what a report tells of its host. With `start_ns`, times become those since 1970.
pub(super) fn add_rank_location(
    joined: &mut JoinedRanks,
    host: Option<String>,
    start_ns: Option<i64>,
) {
    for rank in &mut joined.ranks {
        rank.place.host.clone_from(&host);
        rank.shift(start_ns.unwrap_or(0));
    }
}

/// Process, correlation id, device and stream of a row.
type RowIds = (Option<i64>, Option<i64>, Option<u32>, Option<u32>);

struct RankReader<'a> {
    trace: &'a Trace,
    placed: &'a AttributedWork,
    innermost: InnermostLookup<'a>,
    known: &'a HashMap<i64, CollectiveFacts>,
    /// By the process that did the work.
    ranks: BTreeMap<u64, RankBuilder>,
    /// The ranges with a payload, by thread and start.
    messages: Vec<&'a NcclRange>,
    /// The index of the last piece whose call was looked up.
    last_piece: usize,
}

#[derive(Default)]
struct RankBuilder {
    work: RankWork,
    names: NameTable,
    /// The index of each region, by its number in the tree.
    regions: HashMap<usize, u32>,
    device: Option<u32>,
    /// Numbers of the streams with collectives, in order of use.
    streams: Vec<u32>,
    collectives: Vec<RankCollective>,
    /// The stream of each collective.
    stream_of: Vec<u32>,
}

impl RankBuilder {
    fn region(&mut self, placed: &AttributedWork, node: usize) -> u32 {
        let next = u32::try_from(self.work.regions.len()).unwrap_or(u32::MAX);
        *self.regions.entry(node).or_insert_with(|| {
            self.work.regions.push(placed.tree.path(node));
            next
        })
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
        RankReader {
            trace,
            placed,
            innermost: placed.tree.innermost(),
            known,
            ranks: BTreeMap::new(),
            messages,
            last_piece: 0,
        }
    }

    fn add(&mut self, ids: RowIds, time: (i64, i64), name: &str, kind: GpuWorkKind) {
        let (global_pid, correlation, device, stream) = ids;
        let process = process(global_pid);
        let pieces = &self.trace.pieces;
        let call = correlation.and_then(|id| pieces.call_near(process, id, &mut self.last_piece));
        let node =
            call.and_then(|call| self.innermost.around(call.process, call.thread, call.at_ns));
        let rank = self.ranks.entry(process).or_default();
        rank.device = rank.device.or(device);
        let region = node.map(|around| rank.region(self.placed, around.innermost.node));
        let piece = u32::try_from(rank.work.gpu_work.len()).unwrap_or(u32::MAX);
        rank.work.gpu_work.push(GpuWork {
            start_ns: time.0,
            end_ns: time.1.max(time.0),
            called_ns: call.map(|call| call.at_ns),
            name: rank.names.index(name),
            region,
            kind,
        });
        if kind == GpuWorkKind::Collective {
            let told = correlation.and_then(|id| self.known.get(&id));
            let message = call.and_then(|call| message_of(&self.messages, call));
            let outer = region.and_then(|at| rank.work.regions[at as usize].last());
            let collective = collective(piece, name, outer, told, message);
            rank.collectives.push(collective);
            rank.stream_of.push(stream.unwrap_or(0));
        }
    }

    fn finish(mut self, from: &str) -> (Vec<u64>, Option<JoinedRanks>) {
        for (range, index) in self.trace.ranges.iter().zip(0..) {
            let Some(rank) = self.ranks.get_mut(&range.process) else { continue };
            let node = self.placed.tree.of_range(index);
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
        all.sort_by_key(|(process, rank)| (rank.device, *process));
        let processes = all.iter().map(|(process, _)| *process).collect();
        let ranks = all.into_iter().zip(0..).map(|((process, rank), number)| {
            let pid = u32::try_from((process >> 24) & 0xff_ffff).ok();
            let place = RankLocation {
                rank: number,
                host: None,
                gpu: rank.device,
                pid,
                from: from.to_owned(),
            };
            RankWork { first_ns: self.trace.first_ns, ..rank.finish(place) }
        });
        let joined = JoinedRanks { ranks: ranks.collect(), ..JoinedRanks::default() };
        (processes, Some(joined))
    }
}

impl RankBuilder {
    /// The rank with its work in order of start.
    fn finish(mut self, place: RankLocation) -> RankWork {
        let mut work = self.work;
        let mut order: Vec<u32> = (0..work.gpu_work.len() as u32).collect();
        order.sort_by_key(|at| {
            let piece = &work.gpu_work[*at as usize];
            (piece.start_ns, piece.end_ns)
        });
        let mut moved = vec![0; order.len()];
        for (to, from) in (0..).zip(&order) {
            moved[*from as usize] = to;
        }
        work.gpu_work = order.iter().map(|at| work.gpu_work[*at as usize]).collect();
        for collective in &mut self.collectives {
            collective.piece = moved[collective.piece as usize];
        }
        let mut all: Vec<(RankCollective, u32)> =
            self.collectives.into_iter().zip(self.stream_of).collect();
        all.sort_by_key(|(collective, _)| collective.piece);
        for (collective, stream) in &mut all {
            if collective.group.is_empty() {
                let known = self.streams.iter().position(|known| known == stream);
                let number = known.unwrap_or_else(|| {
                    self.streams.push(*stream);
                    self.streams.len() - 1
                });
                collective.group = Arc::from(format!("group {}", number + 1));
            }
        }
        work.collectives = all.into_iter().map(|(collective, _)| collective).collect();
        work.ranges.sort_by_key(|range| (range.start_ns, std::cmp::Reverse(range.end_ns)));
        work.names = self.names.into_vec();
        work.place = place;
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

fn collective(
    piece: u32,
    kernel: &str,
    region: Option<&String>,
    told: Option<&CollectiveFacts>,
    message: Option<NcclMessage>,
) -> RankCollective {
    if let Some(told) = told {
        return RankCollective {
            piece,
            group: Arc::from(told.group.as_str()),
            operation: told.operation.clone(),
            bytes: told.bytes,
            bytes_of_rank: false,
            ranks: told.ranks,
        };
    }
    let mut operation = CollectiveOperation::of_name(kernel);
    if let (CollectiveOperation::Other(_), Some(range)) = (&operation, region) {
        operation = CollectiveOperation::of_name(range);
    }
    let group = message.and_then(|message| message.communicator);
    let group = group.map_or_else(String::new, |id| format!("communicator {id:#x}"));
    // Of these, NCCL tells the bytes that one rank gives or gets.
    let bytes_of_rank =
        matches!(operation, CollectiveOperation::AllGather | CollectiveOperation::ReduceScatter);
    RankCollective {
        piece,
        group: Arc::from(group),
        operation,
        bytes: message.and_then(|message| message.bytes),
        bytes_of_rank,
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
