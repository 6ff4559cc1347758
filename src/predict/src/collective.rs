//! Collectives: α-β by algorithm and protocol, on a topology.
//!
//! The bound is the volume that must leave each GPU over its link: without reductions inside the
//! switch. The time adds NCCL's own latencies ([`nccl`]), and is the least over algorithms and
//! protocols, so a message's size decides which regime it is in.

pub mod nccl;
pub mod topology;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use nccl::Protocol;
pub use topology::Topology;

use crate::calibration::Calibration;
use crate::nearest;
use crate::term::{Input, Term};

/// A collective operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// Every rank gets the sum. The size is one rank's buffer.
    AllReduce,
    /// Every rank gets all parts. The size is the whole result.
    AllGather,
    /// Every rank gets its part of the sum. The size is the whole input.
    ReduceScatter,
    /// Every rank sends a part to every other. The size is one rank's buffer.
    AllToAll,
    /// Point to point: one rank sends to another.
    P2p,
}

/// A name that is not a collective.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{typed}` is not a collective that can be predicted; the nearest is `{nearest}`")]
pub struct UnknownCollective {
    /// The name that was given.
    pub typed: String,
    /// The most similar name.
    pub nearest: &'static str,
}

impl Op {
    /// All collectives, with their names.
    pub const ALL: &'static [(Self, &'static str)] = &[
        (Self::AllReduce, "all_reduce"),
        (Self::AllGather, "all_gather"),
        (Self::ReduceScatter, "reduce_scatter"),
        (Self::AllToAll, "all_to_all"),
        (Self::P2p, "p2p"),
    ];

    /// The name in flags and files.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(op, _)| *op == self).map_or("", |(_, name)| name)
    }

    /// Which part of the size crosses each GPU's link.
    #[must_use]
    pub fn volume(self, ranks: f64) -> f64 {
        match self {
            Self::AllReduce => 2.0 * (ranks - 1.0) / ranks,
            Self::AllGather | Self::ReduceScatter | Self::AllToAll => (ranks - 1.0) / ranks,
            Self::P2p => 1.0,
        }
    }

    /// The number of steps of a ring.
    fn steps(self, ranks: f64) -> f64 {
        match self {
            Self::AllReduce => 2.0 * (ranks - 1.0),
            Self::AllGather | Self::ReduceScatter | Self::AllToAll => ranks - 1.0,
            Self::P2p => 1.0,
        }
    }
}

impl std::str::FromStr for Op {
    type Err = UnknownCollective;

    fn from_str(text: &str) -> Result<Self, UnknownCollective> {
        let lower = text.to_lowercase().replace('-', "_");
        let name = match lower.as_str() {
            "allreduce" => "all_reduce",
            "allgather" => "all_gather",
            "reducescatter" => "reduce_scatter",
            "alltoall" | "a2a" => "all_to_all",
            "sendrecv" | "send_recv" => "p2p",
            name => name,
        };
        let found = Self::ALL.iter().find(|(_, known)| *known == name).map(|(op, _)| *op);
        found.ok_or_else(|| UnknownCollective {
            typed: text.to_owned(),
            nearest: nearest(name, Self::ALL.iter().map(|(_, known)| *known))
                .unwrap_or("all_reduce"),
        })
    }
}

/// The route of a collective's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Algorithm {
    /// One ring through all ranks.
    Ring,
    /// A chain in each node, and a tree over nodes.
    Tree,
    /// Inside nodes, then between nodes, then inside nodes.
    Hierarchical,
    /// Each rank sends directly to the other ranks.
    Direct,
    /// Taken from a calibration, which does not record the algorithm.
    Measured,
}

/// The bound and the predicted time of a collective.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CollectiveTime {
    /// The collective.
    pub op: Op,
    /// The size in bytes; see [`Op`] for what it counts.
    pub bytes: f64,
    /// Number of ranks.
    pub ranks: f64,
    /// Bytes that cross each GPU's link.
    pub volume: f64,
    /// The rate of that link, one way, in B/s.
    pub link: f64,
    /// The speed-of-light bound, in ns.
    pub bound_ns: f64,
    /// The part of the time that does not depend on the size, in ns.
    pub latency_ns: f64,
    /// The part of the time that grows with the size, in ns.
    pub transfer_ns: f64,
    /// The fastest algorithm.
    pub algorithm: Algorithm,
    /// The NCCL protocol of that algorithm.
    pub protocol: Protocol,
    /// Whether a measured latency and rate were used.
    pub is_calibrated: bool,
}

impl CollectiveTime {
    /// A collective of one rank, which takes no time.
    #[must_use]
    pub fn none(op: Op) -> Self {
        Self {
            op,
            bytes: 0.0,
            ranks: 1.0,
            volume: 0.0,
            link: f64::INFINITY,
            bound_ns: 0.0,
            latency_ns: 0.0,
            transfer_ns: 0.0,
            algorithm: Algorithm::Direct,
            protocol: Protocol::Simple,
            is_calibrated: true,
        }
    }

    /// The predicted time in ns.
    #[must_use]
    pub fn time_ns(&self) -> f64 {
        self.latency_ns + self.transfer_ns
    }

    /// The rate that nccl-tests would print: size over time, corrected for what crosses a link.
    #[must_use]
    pub fn bus_bandwidth(&self) -> f64 {
        self.volume / (self.time_ns() / 1e9)
    }

    /// The terms, with formulas and sources.
    #[must_use]
    pub fn terms(&self, link_source: &str) -> Vec<Term> {
        let latency_source = if self.is_calibrated { "calibration" } else { nccl::SOURCE };
        vec![
            Term {
                name: "bound_link",
                ns: self.bound_ns,
                counts: false,
                formula: "V / B",
                inputs: vec![
                    Input::computed("V", self.volume, "B"),
                    Input::with_source("B", self.link, "B/s", link_source),
                ],
            },
            Term {
                name: "latency",
                ns: self.latency_ns,
                counts: true,
                formula: "base + steps * alpha",
                inputs: vec![
                    Input::with_source("alpha_total", self.latency_ns, "ns", latency_source),
                    Input::computed("n", self.ranks, "ranks"),
                ],
            },
            Term {
                name: "transfer",
                ns: self.transfer_ns,
                counts: true,
                formula: "V / (B * eta_protocol)",
                inputs: vec![
                    Input::computed("V", self.volume, "B"),
                    Input::with_source("B", self.link, "B/s", link_source),
                    Input::with_source(
                        "eta_protocol",
                        if self.transfer_ns > 0.0 { self.bound_ns / self.transfer_ns } else { 1.0 },
                        "1",
                        latency_source,
                    ),
                ],
            },
        ]
    }
}

/// The bound and the time of a collective of `ranks` GPUs that follow each other in `topology`.
#[must_use]
pub fn predict(
    op: Op,
    bytes: f64,
    ranks: f64,
    topology: &Topology,
    calibration: Option<&Calibration>,
) -> CollectiveTime {
    if ranks <= 1.0 {
        return CollectiveTime::none(op);
    }
    let nodes = topology.nodes(ranks);
    let volume = bytes * op.volume(ranks);
    let bound_ns = match op {
        Op::AllToAll | Op::P2p if nodes > 1.0 => {
            // What leaves the domain goes over this GPU's own part of the network.
            let share = if op == Op::P2p { 1.0 } else { (ranks - topology.domain) / ranks };
            let out = bytes * share;
            let near = (volume - out).max(0.0) / topology.inside;
            near.max(out / (topology.network / topology.oversubscription)) * 1e9
        }
        _ => volume / topology.link(ranks) * 1e9,
    };
    let link = if bound_ns > 0.0 { volume / bound_ns * 1e9 } else { topology.link(ranks) };
    let mut best = CollectiveTime {
        op,
        bytes,
        ranks,
        volume,
        link,
        bound_ns,
        latency_ns: f64::INFINITY,
        transfer_ns: 0.0,
        algorithm: Algorithm::Ring,
        protocol: Protocol::Simple,
        is_calibrated: false,
    };
    let measured = calibration.and_then(|c| c.collective(op.name(), ranks as u32, bytes));
    if let Some(fit) = measured {
        return CollectiveTime {
            latency_ns: fit.alpha_ns,
            transfer_ns: bound_ns / fit.bandwidth,
            algorithm: Algorithm::Measured,
            is_calibrated: true,
            ..best
        };
    }
    let mut consider = |algorithm, protocol, latency_ns: f64, transfer_ns: f64| {
        if latency_ns + transfer_ns < best.latency_ns + best.transfer_ns {
            best = CollectiveTime { algorithm, protocol, latency_ns, transfer_ns, ..best };
        }
    };
    for protocol in nccl::PROTOCOLS {
        if *protocol == Protocol::Ll128 && !topology.has_ll128(nodes) {
            continue;
        }
        let share = nccl::ring_share(*protocol, op, nodes);
        let latency = nccl::ring_latency_ns(*protocol, op.steps(ranks), op.steps(nodes), topology);
        match op {
            Op::AllToAll | Op::P2p => {
                // NCCL sends these with its own pairs of ranks; LL128 is not used.
                if *protocol != Protocol::Ll128 {
                    consider(Algorithm::Direct, *protocol, latency, bound_ns / share);
                }
            }
            _ => consider(Algorithm::Ring, *protocol, latency, bound_ns / share),
        }
        if op == Op::AllReduce {
            let latency = nccl::tree_latency_ns(*protocol, ranks, nodes, topology);
            let share = nccl::tree_share(*protocol, nodes);
            // The buffer goes up the tree and down again.
            let transfer = 2.0 * bytes / link * 1e9 / share;
            consider(Algorithm::Tree, *protocol, latency, transfer);
        }
    }
    if op == Op::AllReduce && nodes > 1.0 {
        let inside = topology.node();
        let local = (ranks / nodes).max(1.0);
        let scatter = predict(Op::ReduceScatter, bytes, local, &inside, None);
        let gather = predict(Op::AllGather, bytes, local, &inside, None);
        let across = predict(Op::AllReduce, bytes / local, nodes, &topology.between_nodes(), None);
        let parts = [scatter, across, gather];
        consider(
            Algorithm::Hierarchical,
            across.protocol,
            parts.iter().map(|part| part.latency_ns).sum(),
            parts.iter().map(|part| part.transfer_ns).sum(),
        );
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hw::find;

    fn h200() -> Topology {
        Topology::for_gpu(&find("h200").unwrap().gpu().unwrap()).unwrap()
    }

    #[test]
    fn the_bound_of_an_all_reduce_is_worked_by_hand() {
        // 64 MiB, 8 GPUs: 2·7/8·67,108,864 / 450e9 = 260.98 us.
        let time = predict(Op::AllReduce, 67_108_864.0, 8.0, &h200(), None);
        assert!((time.bound_ns / 1e3 - 260.98).abs() < 0.01, "{}", time.bound_ns);
        assert!(time.time_ns() > time.bound_ns);
    }

    #[test]
    fn small_messages_take_a_latency_protocol_and_large_ones_simple() {
        let small = predict(Op::AllReduce, 1024.0, 8.0, &h200(), None);
        let large = predict(Op::AllReduce, 1e9, 8.0, &h200(), None);
        assert_eq!(small.protocol, Protocol::Ll);
        assert_eq!((large.algorithm, large.protocol), (Algorithm::Ring, Protocol::Simple));
        assert!(small.latency_ns > 10.0 * small.transfer_ns);
    }

    #[test]
    fn a_second_node_and_a_narrow_switch_cost_time() {
        let topology = h200();
        let one = predict(Op::AllReduce, 64e6, 8.0, &topology, None);
        let two = predict(Op::AllReduce, 64e6, 16.0, &topology, None);
        assert!(two.time_ns() > one.time_ns());
        let narrow = Topology { oversubscription: 4.0, ..topology };
        let crowded = predict(Op::AllReduce, 64e6, 16.0, &narrow, None);
        assert!(crowded.time_ns() > two.time_ns());
    }

    #[test]
    fn one_rank_sends_nothing() {
        assert_eq!(predict(Op::AllReduce, 1e9, 1.0, &h200(), None).time_ns(), 0.0);
    }

    #[test]
    fn names_of_other_tools_are_read() {
        assert_eq!("allreduce".parse(), Ok(Op::AllReduce));
        assert_eq!("all-to-all".parse(), Ok(Op::AllToAll));
        assert_eq!("all_reduse".parse::<Op>().unwrap_err().nearest, "all_reduce");
    }
}
