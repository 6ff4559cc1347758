//! What NVIDIA's names of warp states mean.

/// Stall reason, and what a warp waits for.
const AWAITED: &[(&str, &str)] = &[
    ("barrier", "`__syncthreads`"),
    ("branch_resolving", "branches"),
    ("dispatch_stall", "the dispatcher"),
    ("drain", "its stores and other memory accesses at the kernel's end"),
    ("gmma", "warpgroup matrix operations"),
    ("imc_miss", "constants that miss the cache of immediate constants"),
    ("lg_throttle", "the queue for local and global memory"),
    ("long_scoreboard", "global, local or texture memory (L1, L2 or DRAM)"),
    ("math_pipe_throttle", "a busy arithmetic pipe"),
    ("membar", "memory fences"),
    ("mio_throttle", "the queue for shared memory and special functions"),
    ("misc", "a rare cause that has no name of its own"),
    ("no_instruction", "instruction fetch"),
    ("short_scoreboard", "shared memory, indexed constants or special functions"),
    ("sleeping", "`nanosleep`"),
    ("tex_throttle", "the queue for textures"),
    ("wait", "fixed latencies"),
    ("warpgroup_arrive", "its warpgroup (`warpgroup.arrive`, `warpgroup.wait`)"),
];

/// What a warp with this stall reason waits for; `None` if it waits for nothing, or the name is not
/// known.
pub fn awaited(reason: &str) -> Option<&'static str> {
    AWAITED.iter().find(|row| row.0 == reason).map(|row| row.1)
}

/// What this stall reason says of a warp, as a predicate; `None` if the name is not known.
pub fn stall_meaning(reason: &str) -> Option<String> {
    match reason {
        "selected" => Some("issues an instruction, which is no stall".to_owned()),
        "not_selected" => Some("is ready, but another warp issues an instruction".to_owned()),
        _ => awaited(reason).map(|what| format!("waits for {what}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_says_what_a_warp_waits_for_if_it_waits() {
        let meaning = stall_meaning("long_scoreboard");
        assert_eq!(
            meaning.as_deref(),
            Some("waits for global, local or texture memory (L1, L2 or DRAM)")
        );
        assert!(awaited("selected").is_none() && stall_meaning("selected").is_some());
        assert_eq!(stall_meaning("a_later_name"), None);
    }
}
