//! Register spills: values are stored in local memory because there are too few registers.

use super::{Conclusion, Confidence, GainLimit, Rule, VerdictRole};
use crate::concept::{INSTRUCTIONS, SPILLING};
use crate::threshold::{Limits, SPILLS};
use rgpu_model::{Evidence, Launch};

pub(super) const RULE: Rule = Rule {
    id: "spills",
    category: "compute",
    kind: VerdictRole::Cause,
    gain: GainLimit::Work,
    plural_predicate: "spill registers",
    apply,
};

fn apply(launch: &Launch, limits: &Limits<'_>) -> Option<Conclusion> {
    let spilling =
        launch.number(SPILLING).filter(|count| *count > limits.threshold(&SPILLS).value)?;
    let (executed_id, executed) =
        launch.first_number(INSTRUCTIONS).filter(|(_, all)| *all > 0.0)?;
    let share = spilling / executed;
    let registers = launch.registers.map(|count| format!(" at {count} registers a thread"));
    Some(Conclusion {
        score: share.min(1.0),
        confidence: Confidence::High,
        evidence: vec![
            limits.threshold(&SPILLS).evidence(SPILLING, spilling, "inst"),
            Evidence::number(executed_id, executed, "inst"),
        ],
        text: format!(
            "{:.1} % of the executed instructions move spilled registers{}",
            share * 100.0,
            registers.unwrap_or_default()
        ),
        hint: "allow more registers (`--maxrregcount`, `__launch_bounds__`), or keep fewer values \
               alive: smaller tiles, less unrolling"
            .to_owned(),
    })
}
