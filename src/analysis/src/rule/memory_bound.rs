//! Memory bound: memory throughput is high and SM throughput is not higher.

use super::matrix::{computes_products, tensor_clause, tensor_use};
use super::{Conclusion, Confidence, GainLimit, Rule, VerdictRole};
use crate::concept::{
    DRAM_THROUGHPUT, L1_THROUGHPUT, L2_THROUGHPUT, MEMORY_THROUGHPUT, SM_THROUGHPUT,
};
use crate::roofs::{Unit, WorkLeft};
use crate::threshold::{Limits, TENSOR_BUSY, THROUGHPUT_APART, THROUGHPUT_LOW};
use rgpu_model::{Evidence, Launch};

pub(super) const RULE: Rule = Rule {
    id: "memory_bound",
    category: "memory",
    kind: VerdictRole::Bound,
    gain: GainLimit::Relief(work_left),
    plural_predicate: "are bound by memory",
    apply,
};

/// A level of the memory system.
struct Level {
    name: &'static str,
    /// Prefixes of the level's counters.
    counters: &'static [&'static str],
    /// The level's throughput metrics, used if the report lacks the counters.
    throughput: &'static [&'static str],
    /// What following the hint relieves.
    relieves: &'static [Unit],
    hint: &'static str,
}

const LEVELS: &[Level] = &[
    Level {
        name: "DRAM",
        counters: &["dram__", "dramc__", "fbpa__"],
        throughput: DRAM_THROUGHPUT,
        relieves: &[Unit::Dram],
        hint: "move fewer bytes: reuse data in registers or shared memory, fuse neighbouring \
               kernels, use a narrower type",
    },
    Level {
        name: "L2",
        counters: &["lts__", "ltc__"],
        throughput: L2_THROUGHPUT,
        relieves: &[Unit::L2],
        hint: "keep reused data closer: block the loops so that a tile stays in shared memory or \
               L1; coalesce the accesses",
    },
    Level {
        name: "L1",
        counters: &["l1tex__"],
        throughput: L1_THROUGHPUT,
        relieves: &[Unit::L1, Unit::Queue, Unit::Issue],
        hint: "issue fewer and wider accesses: 16 bytes a thread, no bank conflicts, reuse in \
               registers",
    },
];

const PERCENT: &str = ".avg.pct_of_peak_sustained_elapsed";

/// The busiest level, its deciding metric and that metric's value.
///
/// The memory throughput is the maximum over counters of all levels, so the counter that equals it
/// identifies the level. A level's own throughput includes further counters and is the fallback.
fn busiest(launch: &Launch, memory: f64) -> Option<(&'static Level, String, f64)> {
    for level in LEVELS {
        for (id, metric) in &launch.metrics {
            let known = level.counters.iter().any(|prefix| id.starts_with(prefix));
            let value = metric.value.as_f64().filter(|_| known && id.ends_with(PERCENT));
            if let Some(value) = value.filter(|value| (value - memory).abs() < 1e-6) {
                return Some((level, id.to_string(), value));
            }
        }
    }
    let levels = LEVELS.iter().filter_map(|level| {
        let (id, value) = launch.first_number(level.throughput)?;
        Some((level, id.to_owned(), value))
    });
    levels.max_by(|a, b| a.2.total_cmp(&b.2))
}

/// How much less the busiest level has to move is not known: perhaps nothing of its work is left,
/// perhaps all.
fn work_left(launch: &Launch) -> Vec<WorkLeft> {
    let memory = launch.first_number(MEMORY_THROUGHPUT).map(|(_, percent)| percent);
    let level = memory.and_then(|memory| busiest(launch, memory)).map(|(level, ..)| level);
    let relieved = level.map_or(&[][..], |level| level.relieves).iter().chain(&[Unit::Memory]);
    relieved.map(|unit| (*unit, [0.0, 1.0])).collect()
}

fn apply(launch: &Launch, limits: &Limits<'_>) -> Option<Conclusion> {
    let (memory_id, memory) = launch.first_number(MEMORY_THROUGHPUT)?;
    let (_, sm) = launch.first_number(SM_THROUGHPUT)?;
    if memory < limits.threshold(&THROUGHPUT_LOW).value
        || memory <= sm - limits.threshold(&THROUGHPUT_APART).value
    {
        return None;
    }
    let level = busiest(launch, memory);
    // Matrix instructions read their operands from shared memory, which the L1 counts.
    let feeds = level.as_ref().is_some_and(|(level, ..)| level.name == "L1")
        && computes_products(launch, limits)
        && tensor_use(launch, limits).is_some_and(|tensor| {
            tensor.percent >= limits.threshold(&TENSOR_BUSY).value
                && tensor.percent >= memory - limits.threshold(&THROUGHPUT_APART).value
        });
    if feeds {
        return None;
    }
    let mut evidence = vec![limits.threshold(&THROUGHPUT_LOW).evidence(memory_id, memory, "%")];
    let mut text = format!("memory runs at {memory:.0} % of its peak");
    let mut hint = LEVELS[0].hint;
    if let Some((level, id, value)) = level {
        text.push_str(&format!(", {} at {value:.0} %", level.name));
        hint = level.hint;
        evidence.push(Evidence::number(&id, value, "%"));
    }
    text.push_str(&tensor_clause(launch, limits));
    let confidence = if memory - sm >= limits.threshold(&THROUGHPUT_APART).value {
        Confidence::High
    } else {
        Confidence::Medium
    };
    Some(Conclusion { score: memory / 100.0, confidence, evidence, text, hint: hint.to_owned() })
}
