//! The order of rungs, for `--at-least`.

use rgpu_protocol::RungRecord;

use crate::error::{ANOTHER_HOST, Exit, Failure};

/// Every rung from best to lowest, over all ladders.
pub(super) static RUNGS: &[&str] = &[
    // The same as the next, as root.
    "ncu.sudo",
    "ncu.asked",
    "ncu.app_range",
    "ncu.kernel",
    // By the provider's own ncu, on a machine of its choice.
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

/// Every rung that `--at-least` takes.
pub fn rungs() -> impl Iterator<Item = &'static str> {
    SANITIZER_RUNGS.iter().chain(["verify"].iter()).chain(RUNGS).copied()
}

/// Whether `rung` stands below `least`. Rungs of different ladders cannot be compared: neither is
/// below the other; no rung at all is below all.
pub fn is_below(rung: &str, least: &str) -> bool {
    let below = |ladder: &[&str]| {
        let place = |name: &str| ladder.iter().position(|r| *r == name);
        Some(place(rung)? > place(least)?)
    };
    rung == "none" || below(RUNGS).or_else(|| below(SANITIZER_RUNGS)).unwrap_or(false)
}

/// Whether a run on `rung` is less than what `least` asks for. One on the CPU measured nothing of a
/// GPU, whatever its rung is called.
pub fn falls_short(rung: &str, least: &str, on_cpu: bool) -> bool {
    (on_cpu && !matches!(least, "nvtx" | "cpu")) || is_below(rung, least)
}

/// The failure of a run below the rung that was asked for, with what kept it from more.
pub fn below_rung(what: String, ladder: &[RungRecord]) -> Failure {
    let mut left = ladder.iter().filter(|record| !record.ok);
    // Without a GPU all that is below follows from that.
    let no_gpu = left.clone().find(|record| record.code == "no_gpu");
    let last = left.next_back().filter(|last| Some(*last) != no_gpu);
    let why = no_gpu.into_iter().chain(last);
    let why: Vec<String> = why.map(|r| format!("{} ({}): {}", r.rung, r.code, r.words)).collect();
    let failure = Failure::new(Exit::Tool, "below_rung", what).cause(why.join("\n"));
    let failure = match no_gpu {
        Some(_) => failure.hint(ANOTHER_HOST),
        None => failure,
    };
    failure.hint("`rgpu doctor` says what each mode reaches on this host, and why not more")
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
