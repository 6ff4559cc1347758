//! The memory system is what the kernel keeps busy.

use super::{Conclusion, Confidence, Rule};
use crate::analysis::concept::{
    DRAM_THROUGHPUT, L1_THROUGHPUT, L2_THROUGHPUT, MEMORY_THROUGHPUT, SM_THROUGHPUT,
};
use crate::analysis::threshold::{THROUGHPUT_APART, THROUGHPUT_LOW};
use crate::model::Launch;

pub(super) const RULE: Rule = Rule { id: "memory_bound", category: "memory", apply };

/// The levels, with what to do where one of them is the bound.
const LEVELS: &[(&str, &[&str], &str)] = &[
    (
        "DRAM",
        DRAM_THROUGHPUT,
        "move fewer bytes: reuse data in registers or shared memory, fuse neighbouring kernels, \
         use a narrower type",
    ),
    (
        "L2",
        L2_THROUGHPUT,
        "keep reused data closer: block the loops so that a tile stays in shared memory or L1",
    ),
    (
        "L1",
        L1_THROUGHPUT,
        "issue fewer and wider accesses: 16 bytes a thread, no bank conflicts, reuse in registers",
    ),
];

fn apply(launch: &Launch) -> Option<Conclusion> {
    let (memory_id, memory) = launch.first_number(MEMORY_THROUGHPUT)?;
    let (_, sm) = launch.first_number(SM_THROUGHPUT)?;
    if memory < THROUGHPUT_LOW.value || memory <= sm - THROUGHPUT_APART.value {
        return None;
    }
    let mut evidence = vec![THROUGHPUT_LOW.evidence(memory_id, memory, "%")];
    let levels = LEVELS.iter().filter_map(|(name, ids, hint)| {
        launch.first_number(ids).map(|(id, value)| (*name, id, value, *hint))
    });
    let busiest = levels.max_by(|a, b| a.2.total_cmp(&b.2));
    let (text, hint) = match busiest {
        Some((name, id, value, hint)) => {
            evidence.push(THROUGHPUT_LOW.evidence(id, value, "%"));
            (format!("memory runs at {memory:.0} % of its peak, {name} at {value:.0} %"), hint)
        }
        None => (format!("memory runs at {memory:.0} % of its peak"), LEVELS[0].2),
    };
    let confidence =
        if memory - sm >= THROUGHPUT_APART.value { Confidence::High } else { Confidence::Medium };
    Some(Conclusion { score: memory / 100.0, confidence, evidence, text, hint: hint.to_owned() })
}
