//! Registers did not suffice: values go through local memory.

use super::{Conclusion, Confidence, Kind, Rule};
use crate::analysis::threshold::SPILLS;
use crate::model::Launch;

pub(super) const RULE: Rule = Rule { id: "spills", category: "compute", kind: Kind::Cause, apply };

const SPILLING: &str = "sass__inst_executed_register_spilling";
const EXECUTED: &[&str] = &["smsp__inst_executed.sum", "sm__inst_executed.sum", "inst_executed"];

fn apply(launch: &Launch) -> Option<Conclusion> {
    let spilling = launch.number(SPILLING).filter(|count| *count > SPILLS.value)?;
    let (executed_id, executed) = launch.first_number(EXECUTED).filter(|(_, all)| *all > 0.0)?;
    let share = spilling / executed;
    let registers = launch.registers.map(|count| format!(" at {count} registers a thread"));
    Some(Conclusion {
        score: share.min(1.0),
        confidence: Confidence::High,
        evidence: vec![
            SPILLS.evidence(SPILLING, spilling, "inst"),
            SPILLS.evidence(executed_id, executed, "inst"),
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
