//! The order of rungs, for `--at-least`.

use rgpu_protocol::RungRecord;

use crate::error::{ANOTHER_HOST, Exit, Failure};

/// Every rung from best to lowest, over all ladders.
pub(super) static RUNGS: &[&str] = &[
    // As `ncu.asked`, but run as root.
    "ncu.sudo",
    "ncu.asked",
    "ncu.app_range",
    "ncu.kernel",
    // By the provider's ncu, on a machine that it chooses.
    "ncu.service",
    "ncu.basic",
    "ncu.launch",
    "ncu.service_launch",
    "nsys.full",
    "nsys.cuda",
    "torch",
    "cupti",
    "nsys.nvtx",
    "ncu.times",
    "nvtx",
    "events",
    "host",
    "cpu",
];

/// The sanitizer's ladder.
pub(super) static SANITIZER_RUNGS: &[&str] = &["sanitizer", "guard"];

/// Every rung that `--at-least` accepts.
pub fn rungs() -> impl Iterator<Item = &'static str> {
    SANITIZER_RUNGS.iter().chain(["verify"].iter()).chain(RUNGS).copied()
}

/// Whether `rung` is below `least`. Between rungs of different ladders this is false; `none` is
/// below every rung.
pub fn is_below(rung: &str, least: &str) -> bool {
    let below = |ladder: &[&str]| {
        let index = |name: &str| ladder.iter().position(|r| *r == name);
        Some(index(rung)? > index(least)?)
    };
    rung == "none" || below(RUNGS).or_else(|| below(SANITIZER_RUNGS)).unwrap_or(false)
}

/// Whether a run on `rung` misses the required rung `least`. On a CPU no GPU was measured, whatever
/// the rung's name.
pub fn falls_short(rung: &str, least: &str, on_cpu: bool) -> bool {
    (on_cpu && !matches!(least, "nvtx" | "cpu")) || is_below(rung, least)
}

/// The failure of a run below the required rung, with the reasons from its ladder.
pub fn below_rung(what: String, ladder: &[RungRecord]) -> Failure {
    let mut not_reached = ladder.iter().filter(|record| !record.ok);
    // Without a GPU, the other reasons follow from that.
    let no_gpu = not_reached.clone().find(|record| record.code == "no_gpu");
    let last = not_reached.next_back().filter(|last| Some(*last) != no_gpu);
    let reasons = no_gpu.into_iter().chain(last);
    let reasons: Vec<String> =
        reasons.map(|r| format!("{} ({}): {}", r.rung, r.code, r.words)).collect();
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
            words: "so it is".to_owned(),
            ..RungRecord::default()
        };
        let both = [record("events", "no_gpu"), record("cpu", "no_reference")];
        let cause =
            |ladder: &[RungRecord]| below_rung(String::new(), ladder).cause.unwrap_or_default();
        assert_eq!(cause(&both), "events (no_gpu): so it is\ncpu (no_reference): so it is");
        assert_eq!(cause(&both[..1]), "events (no_gpu): so it is");
        assert_eq!(cause(&both[1..]), "cpu (no_reference): so it is");
        assert_eq!(cause(&[]), "");
    }

    #[test]
    fn rungs_are_ordered_and_no_rung_is_below_all() {
        assert!(is_below("ncu.basic", "ncu.asked"));
        assert!(!is_below("ncu.asked", "ncu.basic"));
        assert!(!is_below("events", "events"));
        assert!(is_below("cpu", "nvtx"));
        assert!(is_below("none", "cpu"));
        assert!(is_below("guard", "sanitizer"));
        assert!(!is_below("sanitizer", "nsys.full"));
        assert!(falls_short("nvtx", "events", true) && !falls_short("nvtx", "nvtx", true));
        assert!(!falls_short("events", "events", false));
    }
}
