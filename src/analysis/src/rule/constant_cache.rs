//! Lanes of a warp load constants from different addresses, which are served one after another.

use super::{Conclusion, Confidence, GainLimit, Rule, VerdictRole};
use crate::concept::INSTRUCTIONS;
use crate::roofs::{Unit, WorkLeft};
use crate::threshold::{CONSTANT_BUSY, CONSTANT_REQUESTS, Limits};
use rgpu_model::Launch;

pub(super) const RULE: Rule = Rule {
    id: "constant_cache",
    category: "memory",
    kind: VerdictRole::Cause,
    gain: GainLimit::Relief(work_left),
    plural_predicate: "index constant memory differently in the lanes of a warp",
    apply,
};

const BUSY: &str = "idc__request_cycles_active.avg.pct_of_peak_sustained_elapsed";
const REQUESTS: &str = "idc__requests.sum";

/// Another memory serves the loads.
fn work_left(_: &Launch) -> Vec<WorkLeft> {
    vec![(Unit::Constants, [0.0; 2])]
}

/// A request serves one address. No counter of the report has the number of loads, but it is below
/// that of all instructions: where a load comes with as much as one other instruction, more than
/// half a request for each of all instructions means that loads take several.
fn apply(launch: &Launch, limits: &Limits<'_>) -> Option<Conclusion> {
    let busy = launch.number(BUSY)?;
    let requests = launch.number(REQUESTS)?;
    let (_, instructions) = launch.first_number(INSTRUCTIONS).filter(|(_, all)| *all > 0.0)?;
    let each = requests / instructions;
    let (busy_limit, limit) =
        (limits.threshold(&CONSTANT_BUSY), limits.threshold(&CONSTANT_REQUESTS));
    if busy < busy_limit.value || each < limit.value {
        return None;
    }
    Some(Conclusion {
        score: busy / 100.0,
        confidence: Confidence::Medium,
        evidence: vec![
            busy_limit.evidence(BUSY, busy, "%"),
            limit.evidence(REQUESTS, each, "request/inst"),
        ],
        text: format!(
            "loads from constant memory keep its cache busy for {busy:.0} % of the time: it serves \
             one address at a time, and the lanes of a warp ask for different ones ({each:.2} \
             requests an instruction of any kind)"
        ),
        hint: "keep a table that lanes index differently in shared or global memory (a plain \
               `__device__ const` array or a pointer argument, not `__constant__`), where a warp \
               reads it together"
            .to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Thresholds;
    use crate::roofs::Roofs;

    fn launch(busy: f64, requests: f64, instructions: f64) -> Launch {
        Launch::from_numbers(&[
            (BUSY, busy),
            (REQUESTS, requests),
            (INSTRUCTIONS[0], instructions),
            ("sm__mio_inst_issued.avg.pct_of_peak_sustained_elapsed", 24.7),
            ("lts__throughput.avg.pct_of_peak_sustained_elapsed", 14.1),
        ])
    }

    fn concluded(launch: &Launch) -> Option<Conclusion> {
        apply(launch, &Limits::new(&Thresholds::default(), Some(9)))
    }

    /// Two kernels of one program on an H200. `grade` took 221 µs; with the table in global memory,
    /// the program's step of both took 146 µs less.
    #[test]
    fn a_table_that_lanes_index_differently_is_told_and_uniform_constants_are_not() {
        let grade = launch(88.0, 25_251_913.0, 25_165_824.0);
        let told = concluded(&grade).unwrap();
        assert!(told.text.contains("1.00 requests an instruction"), "{}", told.text);
        let gain = Roofs::new(&grade).gain(&work_left(&grade)).unwrap();
        let [least, most] = [gain.least.unwrap(), gain.most].map(|part| 221.0 * part);
        assert!(least < 146.0 && 146.0 < most, "{least} to {most}");
        assert_eq!(concluded(&launch(5.2, 786_432.0, 80_216_064.0)), None);
        assert_eq!(concluded(&launch(60.0, 1e6, 4e6)), None, "one load in four instructions");
        assert_eq!(concluded(&launch(88.0, 1e6, 0.0)), None);
    }
}
