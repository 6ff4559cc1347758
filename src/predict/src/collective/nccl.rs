//! NCCL's own latencies and shares of a link, by algorithm and protocol.

use schemars::JsonSchema;
use serde::Serialize;

use super::{Op, Topology};

/// Where the numbers below come from. Its caps on rates are for V100 and A100 and are not used.
pub const SOURCE: &str =
    "NCCL, src/graph/tuning.cc at 01afd20a (baseLat, hwLat, and the shares of busBw by protocol)";

/// How NCCL packs data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// A flag with every 4 bytes.
    Ll,
    /// A flag with every 120 bytes.
    Ll128,
    /// Chunks with barriers.
    Simple,
}

/// All protocols, in the order of the arrays of latencies.
pub const PROTOCOLS: &[Protocol] = &[Protocol::Ll, Protocol::Ll128, Protocol::Simple];

/// A latency of each protocol, in us.
type ByProtocol = [f64; 3];

const BASE_TREE: ByProtocol = [4.4, 4.4, 0.0];
const BASE_RING: ByProtocol = [3.6, 10.0, 8.4];

/// A step's latency: NVLink, PCIe, network.
const STEP_TREE: [ByProtocol; 3] = [[0.52, 1.2, 28.0], [1.0, 1.9, 28.0], [5.0, 8.5, 50.0]];
const STEP_RING: [ByProtocol; 3] = [[0.47, 1.9, 3.4], [1.0, 2.5, 5.7], [2.7, 4.0, 9.6]];
const NVLINK: usize = 0;
const PCIE: usize = 1;
const NETWORK: usize = 2;
/// LL inside a node is slower when a network is part of the ring.
const LL_WITH_NETWORK: f64 = 1.8;

fn inside(topology: &Topology) -> usize {
    if topology.has_nvlink { NVLINK } else { PCIE }
}

fn step_inside(
    steps: &[ByProtocol; 3],
    protocol: Protocol,
    nodes: f64,
    topology: &Topology,
) -> f64 {
    let step = steps[inside(topology)][protocol as usize];
    if nodes > 1.0 && protocol == Protocol::Ll { step * LL_WITH_NETWORK } else { step }
}

/// The latency of a ring of `steps` steps, `between` of which cross nodes.
pub(super) fn ring_latency_ns(
    protocol: Protocol,
    steps: f64,
    between: f64,
    topology: &Topology,
) -> f64 {
    let nodes = if between > 0.0 { 2.0 } else { 1.0 };
    let near = step_inside(&STEP_RING, protocol, nodes, topology);
    let far = STEP_RING[NETWORK][protocol as usize];
    1e3 * (BASE_RING[protocol as usize] + (steps - between).max(0.0) * near + between * far)
}

/// The latency of a chain in each node and a tree over nodes, up and down.
pub(super) fn tree_latency_ns(
    protocol: Protocol,
    ranks: f64,
    nodes: f64,
    topology: &Topology,
) -> f64 {
    let near = step_inside(&STEP_TREE, protocol, nodes, topology);
    let far = STEP_TREE[NETWORK][protocol as usize];
    let between = if nodes > 1.0 { nodes.log2().ceil() * far } else { 0.0 };
    let steps = (ranks / nodes - 1.0) * near + between;
    1e3 * (BASE_TREE[protocol as usize] + 2.0 * steps)
}

/// The share of the link that a ring's data take.
pub(super) fn ring_share(protocol: Protocol, op: Op, nodes: f64) -> f64 {
    match protocol {
        Protocol::Ll if nodes > 1.0 || op == Op::AllReduce => 1.0 / 4.0,
        Protocol::Ll => 1.0 / 3.0,
        Protocol::Ll128 => 0.92,
        Protocol::Simple => 1.0,
    }
}

/// The share of the link that a tree's data take.
pub(super) fn tree_share(protocol: Protocol, nodes: f64) -> f64 {
    let of_protocol = match protocol {
        Protocol::Ll => 1.0 / 3.8,
        Protocol::Ll128 if nodes <= 1.0 => 7.0 / 9.0,
        Protocol::Ll128 => 0.915,
        Protocol::Simple => 1.0,
    };
    0.9 * of_protocol
}
