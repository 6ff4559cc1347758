//! The rung that `--at-least` requires, and the order of rungs.

use rgpu_protocol::RungRecord;

use rgpu_model::RungId;
use rgpu_model::error::{ANOTHER_HOST, Exit, Failure};
use rgpu_plan::tool::{RUNGS, RungInfo, RungTool};

/// Every rung that `--at-least` accepts.
pub fn rung_names() -> impl Iterator<Item = &'static str> {
    RUNGS.iter().map(|info| info.id.as_str())
}

/// Whether `rung` is below `required`. Between rungs with different purposes this is false;
/// [`RungId::None`] is below every rung.
pub fn is_below(rung: &RungId, required: &RungId) -> bool {
    let position = |id: &RungId| RUNGS.iter().position(|info| info.id == *id);
    let same_purpose = || Some(RungInfo::find(rung)?.purpose == RungInfo::find(required)?.purpose);
    *rung == RungId::None || same_purpose() == Some(true) && position(rung) > position(required)
}

/// Whether a run on `rung` misses the rung `required`. On a CPU no GPU was measured, whatever
/// the rung's name.
pub fn misses_rung(rung: &RungId, required: &RungId, on_cpu: bool) -> bool {
    (on_cpu && !matches!(required, RungId::Nvtx | RungId::Cpu)) || is_below(rung, required)
}

/// Whether the rung is one of this tool.
pub(super) fn is_rung_of(rung: &RungId, tool: RungTool) -> bool {
    RungInfo::find(rung).is_some_and(|info| info.tool == tool)
}

/// The failure of a run below the required rung, with the reasons from its ladder.
pub fn below_rung_failure(what: String, ladder: &[RungRecord]) -> Failure {
    let mut not_reached = ladder.iter().filter(|record| !record.ok);
    // Without a GPU, the other reasons follow from that.
    let no_gpu = not_reached.clone().find(|record| record.code == "no_gpu");
    let last = not_reached.next_back().filter(|last| Some(*last) != no_gpu);
    let reasons = no_gpu.into_iter().chain(last);
    let reasons: Vec<String> =
        reasons.map(|r| format!("{} ({}): {}", r.rung, r.code, r.message)).collect();
    let failure = Failure::new(Exit::Tool, "below_rung", what).cause(reasons.join("\n"));
    let failure = match no_gpu {
        Some(_) => failure.hint(ANOTHER_HOST),
        None => failure,
    };
    failure.hint("`rgpu doctor` shows which rung each mode reaches on this host, and why")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_there_is_no_gpu_that_is_the_first_reason() {
        let record = |rung: &str, code: &str| RungRecord {
            rung: rung.to_owned(),
            code: code.to_owned(),
            message: "so it is".to_owned(),
            ..RungRecord::default()
        };
        let both = [record("events", "no_gpu"), record("cpu", "no_reference")];
        let cause = |ladder: &[RungRecord]| {
            below_rung_failure(String::new(), ladder).cause.unwrap_or_default()
        };
        assert_eq!(cause(&both), "events (no_gpu): so it is\ncpu (no_reference): so it is");
        assert_eq!(cause(&both[..1]), "events (no_gpu): so it is");
        assert_eq!(cause(&both[1..]), "cpu (no_reference): so it is");
        assert_eq!(cause(&[]), "");
    }

    #[test]
    fn rungs_are_ordered_and_no_rung_is_below_all() {
        let is_below = |rung: &str, required: &str| is_below(&rung.into(), &required.into());
        let misses_rung = |rung: &str, required: &str, on_cpu| {
            misses_rung(&rung.into(), &required.into(), on_cpu)
        };
        assert!(is_below("ncu.basic", "ncu.asked"));
        assert!(!is_below("ncu.asked", "ncu.basic"));
        assert!(!is_below("events", "events"));
        assert!(is_below("cpu", "nvtx"));
        assert!(is_below("none", "cpu"));
        assert!(is_below("guard", "sanitizer"));
        assert!(!is_below("sanitizer", "nsys.full"));
        assert!(misses_rung("nvtx", "events", true) && !misses_rung("nvtx", "nvtx", true));
        assert!(!misses_rung("events", "events", false));
    }
}
