//! The order of rungs, for `--at-least`.

/// Every rung from best to lowest, over all ladders.
pub static RUNGS: &[&str] = &[
    // The same as the next, as root.
    "ncu.sudo",
    "ncu.asked",
    "ncu.app_range",
    "ncu.kernel",
    "ncu.basic",
    "ncu.launch",
    "nsys.full",
    "nsys.cuda",
    "nsys.nvtx",
    "cupti",
    "nvtx",
    "events",
    "host",
    "cpu",
];

/// Whether `rung` stands below `least`. A rung of another ladder (a sanitizer's) is never below;
/// no rung at all always is.
pub fn is_below(rung: &str, least: &str) -> bool {
    let place = |name: &str| RUNGS.iter().position(|r| *r == name);
    match (place(rung), place(least)) {
        (Some(rung), Some(least)) => rung > least,
        _ => rung == "none",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rungs_are_ordered_and_no_rung_is_below_all() {
        assert!(is_below("ncu.basic", "ncu.asked"));
        assert!(!is_below("ncu.asked", "ncu.basic"));
        assert!(!is_below("events", "events"));
        assert!(is_below("cpu", "nvtx"));
        assert!(is_below("none", "cpu"));
    }
}
