//! Estimated cost of profiling with ncu: passes, seconds and bytes of each launch.
//!
//! Measured on an H200 with ncu 2025.3.1: passes and bytes per launch of `full` (38; 1.1 to 2 MB),
//! `detailed` (20; 150 kB), `basic` and `minimal` (10; 60 and 55 kB); three launches of 4 ms took
//! 7, 4, 3 and 2 s. Sets that were not measured lie between their neighbours. The seconds are a
//! rule of thumb; the actual time of a run is in its ladder.

use super::request::Request;

/// The cost of one launch under a selection of sections.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LaunchCost {
    /// Passes over the launch.
    pub passes: u32,
    /// Bytes that the result adds to the report.
    pub bytes: u64,
}

/// Seconds of a pass without the kernel itself: saving and restoring memory, reading counters.
const PASS_OVERHEAD_S: f64 = 0.03;

/// Seconds of a launch without its passes.
const LAUNCH_OVERHEAD_S: f64 = 0.1;

/// Seconds that ncu takes to start and to write its report, without the program's own time.
const NCU_START_S: f64 = 2.0;

/// Passes and bytes of each set; the first is the fallback for sets that are not listed.
static SET_COSTS: &[(&str, LaunchCost)] = &[
    ("full", LaunchCost { passes: 38, bytes: 1_500_000 }),
    ("detailed", LaunchCost { passes: 20, bytes: 150_000 }),
    ("roofline", LaunchCost { passes: 14, bytes: 300_000 }),
    ("extended", LaunchCost { passes: 16, bytes: 120_000 }),
    ("basic", LaunchCost { passes: 10, bytes: 60_000 }),
    ("default", LaunchCost { passes: 10, bytes: 60_000 }),
    ("sol", LaunchCost { passes: 11, bytes: 80_000 }),
    ("minimal", LaunchCost { passes: 10, bytes: 55_000 }),
    ("pmsampling", LaunchCost { passes: 4, bytes: 300_000 }),
    ("nvlink", LaunchCost { passes: 4, bytes: 60_000 }),
    ("launchstats", LaunchCost { passes: 1, bytes: 20_000 }),
];

impl LaunchCost {
    /// The cost of one launch with the sections of `request`; `default_set` is used if it names no
    /// set, sections or metrics.
    pub fn estimate(request: &Request, default_set: &str) -> Self {
        let options = &request.ncu;
        let named = !options.sections.is_empty() || !options.metrics.is_empty();
        let set = match &options.set {
            Some(set) => Some(set.as_str()),
            None if named => None,
            None => Some(default_set),
        };
        let find =
            |name: &str| SET_COSTS.iter().find(|(set, _)| *set == name).or(SET_COSTS.first());
        let mut cost =
            set.and_then(find).map_or(LaunchCost { passes: 0, bytes: 20_000 }, |(_, cost)| *cost);
        let metrics = options.metrics.iter().flat_map(|list| list.split(',')).count() as u32;
        let sections = options.sections.len() as u32;
        // A section needs about four passes; about four metrics share one pass.
        cost.passes = (cost.passes + 4 * sections + metrics.div_ceil(4)).max(1);
        cost.bytes += 20_000 * u64::from(sections) + 500 * u64::from(metrics);
        cost
    }

    /// Seconds for one launch that takes `launch_s` without a tool.
    pub fn launch_seconds(&self, launch_s: f64) -> f64 {
        f64::from(self.passes) * (launch_s + PASS_OVERHEAD_S) + LAUNCH_OVERHEAD_S
    }

    /// Seconds for one run under ncu of a program that takes `program_s` without it, launches
    /// excluded.
    pub fn ncu_run_seconds(program_s: f64) -> f64 {
        NCU_START_S + program_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::ProfileMode;
    use crate::tool::{ProfileTarget, Program};

    #[test]
    fn more_sections_cost_more_and_metrics_share_passes() {
        let program = Program { name: "app".into(), ..Program::default() };
        let mut request = Request::new(ProfileMode::Deep, ProfileTarget::Program(program));
        let passes = |request: &Request| LaunchCost::estimate(request, "full").passes;
        assert_eq!(passes(&request), 38);
        request.ncu.set = Some("minimal".into());
        let minimal = passes(&request);
        assert!(minimal < 38);
        request.ncu.sections = vec!["SourceCounters".into()];
        assert!(passes(&request) > minimal);
        request.ncu.set = None;
        request.ncu.sections.clear();
        request.ncu.metrics = vec!["a,b,c,d,e".into()];
        assert_eq!(passes(&request), 2);
    }
}
