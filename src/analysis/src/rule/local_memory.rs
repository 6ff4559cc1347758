//! Local memory without spills: per-thread arrays that are not held in registers, be they the
//! program's own or those of a library function.

use super::{Conclusion, Confidence, GainLimit, Rule, VerdictRole};
use crate::concept::{INSTRUCTIONS, L1_THROUGHPUT, L2_THROUGHPUT, LOCAL, SPILLING};
use crate::roofs::{PER_INSTRUCTION, Unit, WorkLeft};
use crate::threshold::{LOCAL_MEMORY, LOCAL_TRAFFIC, Limits};
use rgpu_model::{Evidence, Launch};

pub(super) const RULE: Rule = Rule {
    id: "local_memory",
    category: "memory",
    kind: VerdictRole::Cause,
    gain: GainLimit::Relief(work_left),
    plural_predicate: "access local memory",
    apply,
};

/// Sectors in L1: loads and stores of local and of global memory.
const L1_LOCAL: [&str; 2] = [
    "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum",
];
const L1_GLOBAL: [&str; 2] = [
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
];
/// Sectors that local accesses move to and from L2: L1 writes stores through.
const L2_LOCAL: [&str; 2] = [
    "l1tex__t_sectors_pipe_lsu_mem_local_op_ld_lookup_miss.sum",
    "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum",
];
const L2_ALL: &str = "lts__t_sectors_srcunit_tex.sum";

/// `sinf`, `cosf` and `tanf` of large arguments (from about 105615 on) multiply the argument with
/// 2/π in an array of seven words: each call stores seven times and loads three times.
const TRIG_STORES: f64 = 7.0;
const TRIG_LOADS: f64 = 3.0;
/// Instructions of one such call that one with a small argument does not execute: estimated from one recording on sm_90
/// (CUDA 13.0); other compilers unroll the loop differently.
const TRIG_INSTRUCTIONS: [f64; 2] = [140.0, 100.0];

/// What local accesses are a part of, 0 to 1.
struct LocalShares {
    instructions: f64,
    /// Of the sectors in L1 and L2; 0 where they are not counted.
    l1: f64,
    l2: f64,
    /// Calls with the slow path of `sinf`, `cosf` and `tanf`, for each executed instruction.
    trig_calls: Option<f64>,
    /// Local accesses, all instructions, and their metrics.
    counts: [(&'static str, f64); 2],
}

impl LocalShares {
    fn new(launch: &Launch) -> Option<LocalShares> {
        let (id, loads, stores) = LOCAL.iter().find_map(|(loads, stores)| {
            Some((*loads, launch.number(loads)?, launch.number(stores)?))
        })?;
        let local = loads + stores;
        let all = launch.first_number(INSTRUCTIONS).filter(|(_, all)| *all > 0.0)?;
        // The `spills` rule reports spills.
        let spilled = launch.number(SPILLING).unwrap_or_default();
        let own = (local - spilled) / local;
        let sum = |ids: &[&str]| ids.iter().map(|id| launch.number(id)).sum::<Option<f64>>();
        let part = |some: Option<f64>, all: Option<f64>| {
            let share = own * some? / all?;
            share.is_finite().then(|| share.clamp(0.0, 1.0))
        };
        let l1_local = sum(&L1_LOCAL);
        let l1_all = l1_local.zip(sum(&L1_GLOBAL)).map(|(local, global)| local + global);
        let slow = (stores * TRIG_LOADS - loads * TRIG_STORES).abs() < 0.01 * stores * TRIG_LOADS;
        Some(LocalShares {
            instructions: (local - spilled) / all.1,
            l1: part(l1_local, l1_all).unwrap_or_default(),
            l2: part(sum(&L2_LOCAL), launch.number(L2_ALL)).unwrap_or_default(),
            trig_calls: (slow && spilled == 0.0).then(|| stores / TRIG_STORES / all.1),
            counts: [(id, local), all],
        })
    }
}

/// No local access is left, and no instruction of the slow path.
fn work_left(launch: &Launch) -> Vec<WorkLeft> {
    let Some(shares) = LocalShares::new(launch) else { return Vec::new() };
    let mut left = vec![(Unit::L1, [1.0 - shares.l1; 2]), (Unit::L2, [1.0 - shares.l2; 2])];
    if let Some(calls) = shares.trig_calls {
        let ends = TRIG_INSTRUCTIONS.map(|each| 1.0 - calls * each);
        left.extend(PER_INSTRUCTION.iter().map(|unit| (*unit, ends)));
    }
    left
}

fn apply(launch: &Launch, limits: &Limits<'_>) -> Option<Conclusion> {
    let shares = LocalShares::new(launch)?;
    let share = shares.instructions;
    let busy = |ids| launch.first_number(ids).map_or(0.0, |(_, percent)| percent / 100.0);
    let in_l1 = ("L1", shares.l1 * busy(L1_THROUGHPUT), shares.l1);
    let in_l2 = ("L2", shares.l2 * busy(L2_THROUGHPUT), shares.l2);
    let (level, traffic, of_level) = if in_l2.1 >= in_l1.1 { in_l2 } else { in_l1 };
    let (limit, traffic_limit) =
        (limits.threshold(&LOCAL_MEMORY), limits.threshold(&LOCAL_TRAFFIC));
    if share <= limit.value && traffic < traffic_limit.value {
        return None;
    }
    let [(id, local), (all_id, all)] = shares.counts;
    let mut evidence = vec![
        limit.share_evidence("local.share", share, "of the instructions"),
        Evidence::number(id, local, "inst"),
        Evidence::number(all_id, all, "inst"),
    ];
    let mut text =
        format!("{:.1} % of the executed instructions go to local memory", share * 100.0);
    if traffic >= traffic_limit.value {
        let of = format!("of the {level}'s peak");
        evidence.push(traffic_limit.share_evidence("local.traffic", traffic, &of));
        text += &format!(" and are {:.0} % of the traffic in {level}", of_level * 100.0);
    }
    let hint = if shares.trig_calls.is_some() {
        text +=
            ": `sinf`, `cosf` or `tanf` of large arguments (seven stores and three loads a call)";
        "bring the argument to one turn before the call (subtract whole turns in double, or keep \
         a phase between 0 and 1 and use `sincospif`); `__sinf` only of such small arguments: \
         beyond 105615 the function takes a slow path with an array in local memory"
    } else if launch.number(SPILLING) == Some(0.0) {
        "index arrays of a thread with constants only (unroll the loops fully), or keep them in \
         shared memory; if the kernel has no array, look for `sin`, `cos` or `tan` of large \
         arguments: bring them to one turn first"
    } else {
        "index arrays of a thread with constants only (unroll the loops fully), or keep them in \
         shared memory"
    };
    Some(Conclusion {
        score: share.max(traffic).min(1.0),
        confidence: if launch.number(SPILLING).is_some() {
            Confidence::High
        } else {
            Confidence::Medium
        },
        evidence,
        text,
        hint: hint.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Thresholds;
    use crate::roofs::Roofs;

    /// The kernel `render` on an H200: `sinf` twice a thread, of millions of radians.
    fn render(stores: f64) -> Launch {
        Launch::from_numbers(&[
            (LOCAL[1].0, 12_582_912.0),
            (LOCAL[1].1, stores),
            (INSTRUCTIONS[0], 732_135_424.0),
            (SPILLING, 0.0),
            (L1_LOCAL[0], 50_331_608.0),
            (L1_LOCAL[1], 117_442_868.0),
            (L1_GLOBAL[0], 27_262_976.0),
            (L1_GLOBAL[1], 8_388_608.0),
            (L2_LOCAL[0], 448.0),
            (L2_ALL, 125_934_958.0),
            (L1_THROUGHPUT[0], 54.2),
            (L2_THROUGHPUT[0], 87.9),
            ("sm__issue_active.avg.pct_of_peak_sustained_elapsed", 78.8),
            ("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", 6.0),
        ])
    }

    fn concluded(launch: &Launch) -> Option<Conclusion> {
        apply(launch, &Limits::new(&Thresholds::default(), Some(9)))
    }

    /// With the phase within one turn, the program took 73 % less time.
    #[test]
    fn the_slow_path_of_sinf_is_told_by_its_stores_and_loads() {
        let launch = render(29_360_128.0);
        let told = concluded(&launch).unwrap();
        assert!((told.score - 0.82).abs() < 0.01, "{}", told.score);
        assert!(told.text.contains("93 % of the traffic in L2: `sinf`"), "{}", told.text);
        let gain = Roofs::new(&launch).gain(&work_left(&launch)).unwrap();
        assert!(gain.most > 0.73 && gain.least.is_some_and(|least| least < 0.73), "{gain:?}");
    }

    #[test]
    fn other_arrays_are_worth_their_traffic() {
        let launch = render(20_000_000.0);
        let told = concluded(&launch).unwrap();
        assert!(told.text.ends_with("in L2") && told.hint.contains("has no array"), "{told:?}");
        let gain = Roofs::new(&launch).gain(&work_left(&launch)).unwrap();
        assert!((gain.most - 0.212).abs() < 0.001, "the issue slots are next: {gain:?}");
    }

    #[test]
    fn spills_and_little_use_are_not_told_here() {
        let mut spilling = render(29_360_128.0);
        spilling.metrics.insert(SPILLING.into(), rgpu_model::Value::Float(41_943_040.0).into());
        assert_eq!(concluded(&spilling), None);
        let metrics = [(LOCAL[1].0, 10.0), (LOCAL[1].1, 10.0), (INSTRUCTIONS[0], 1e6)];
        assert_eq!(concluded(&Launch::from_numbers(&metrics)), None);
    }
}
