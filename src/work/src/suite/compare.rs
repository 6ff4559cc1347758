//! Compares two runs of a suite, time by time.
//!
//! Short kernels are compared by their times inside CUDA graphs, if both suites have them: around a
//! kernel of a few µs, events add a time that changes by some percent from session to session. A
//! time in a graph has the step from one node to the next in it, which may change between sessions
//! too. On one H200, all nodes took 0.35 µs longer in some sessions, at the same clocks: a kernel
//! of 1.78 µs took 2.11 µs. The preparation that is subtracted is the same work in both sessions,
//! so its change tells by how much the calls may have changed without any cause in the kernel. Both
//! intervals are wider by that.

use std::collections::{BTreeMap, BTreeSet};

use super::expectations::{UNKNOWN_SPREAD, differences, judge_sessions};
use rgpu_model::comparison::SideTime;
use rgpu_model::profile::{CheckVerdict, GraphTiming};
use rgpu_model::suite::{
    COMPARISON_SCHEMA, ComparedRow, RowState, SuiteComparison, SuiteRow, SuiteRun, SuiteTime,
    SuiteVerdict, TimeJudgement,
};

/// Which of its times a kernel is compared by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeKind {
    /// Between two CUDA events.
    Events,
    /// Inside a CUDA graph.
    Graph,
}

impl TimeKind {
    /// The kind that both times have.
    fn for_times(a: &SuiteTime, b: &SuiteTime) -> Self {
        if a.graph.is_some() && b.graph.is_some() { Self::Graph } else { Self::Events }
    }

    fn side(self, time: &SuiteTime) -> SideTime {
        let side =
            |median_ns, ci95_ns, samples| SideTime { median_ns, ci95_ns: Some(ci95_ns), samples };
        match (self, &time.graph) {
            (Self::Graph, Some(graph)) => side(graph.median_ns, graph.ci95_ns, graph.samples),
            _ => side(time.median_ns, time.ci95_ns, time.samples),
        }
    }
}

/// How far apart the times of one kernel are without any change of it, as fractions; `None` if that
/// is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct KnownSpread {
    /// Between sessions on one device.
    pub sessions: Option<f64>,
    /// Between any two devices of this GPU.
    pub devices: Option<f64>,
}

impl KnownSpread {
    /// What is added to the threshold for times of these devices.
    fn between(self, a: &str, b: &str) -> Option<f64> {
        if a == b {
            self.sessions
        } else {
            Some(self.sessions.unwrap_or_default() + self.devices.unwrap_or(UNKNOWN_SPREAD))
        }
    }
}

/// Compares `b` with `a`. `spread` gives what is known of the spread of a time of `a`: it is added
/// to the threshold. Times under other conditions are compared only if `force`.
pub fn compare(
    a: &SuiteRun,
    b: &SuiteRun,
    threshold: f64,
    force: bool,
    spread: impl Fn(&SuiteTime, TimeKind) -> KnownSpread,
) -> SuiteComparison {
    let (times_of_a, times_of_b) = (times_by_work(a), times_by_work(b));
    let name = |time: &SuiteTime| {
        work_of(time).into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
    };
    let row = |time: &SuiteTime| {
        let base = times_of_a.get(&work_of(time)).copied();
        let judgement = match base {
            None => none(SuiteVerdict::New, String::new()),
            Some(base) => {
                let spread = spread(base, TimeKind::for_times(base, time));
                judge(base, time, threshold, spread, force)
            }
        };
        let kind = base.map_or(TimeKind::Events, |base| TimeKind::for_times(base, time));
        ComparedRow {
            case: time.key.case.clone(),
            side: time.key.side.clone(),
            sizes: time.key.sizes.clone(),
            a_ns: base.map(|base| kind.side(base).median_ns),
            b_ns: kind.side(time).median_ns,
            judgement,
        }
    };
    let is_ok = |row: &&SuiteRow| row.state.has_ended_well();
    let ok: BTreeSet<&str> = a.rows.iter().filter(is_ok).map(|row| row.case.as_str()).collect();
    let is_new = |row: &&SuiteRow| row.state == RowState::Failed && ok.contains(row.case.as_str());
    let failed = b.rows.iter().filter(is_new);
    let is_gone = |time: &&SuiteTime| !times_of_b.contains_key(&work_of(time));
    SuiteComparison {
        schema: COMPARISON_SCHEMA.to_owned(),
        a: a.id.clone(),
        b: b.id.clone(),
        threshold,
        rows: b.times().map(|(_, time)| row(time)).collect(),
        only_a: a.times().map(|(_, time)| time).filter(is_gone).map(name).collect(),
        newly_failed: failed
            .map(|row| format!("{}: {}", row.case, row.failure.as_deref().unwrap_or_default()))
            .collect(),
    }
}

/// The measured work of a time, without the conditions: case, side and sizes.
fn work_of(time: &SuiteTime) -> [&str; 3] {
    [&time.key.case, &time.key.side, &time.key.sizes]
}

/// The times of a suite by what they are of; the first of equal ones.
fn times_by_work(run: &SuiteRun) -> BTreeMap<[&str; 3], &SuiteTime> {
    let mut found = BTreeMap::new();
    for (_, time) in run.times() {
        found.entry(work_of(time)).or_insert(time);
    }
    found
}

fn judge(
    a: &SuiteTime,
    b: &SuiteTime,
    threshold: f64,
    spread: KnownSpread,
    force: bool,
) -> TimeJudgement {
    if [a, b].iter().any(|time| time.correctness == Some(CheckVerdict::Wrong)) {
        return none(SuiteVerdict::Incomparable, "the results are wrong".to_owned());
    }
    let differing = differences(&a.key, &b.key);
    if !differing.is_empty() && !force {
        return none(SuiteVerdict::Incomparable, format!("another {differing}"));
    }
    let spread = spread.between(&a.device, &b.device);
    let kind = TimeKind::for_times(a, b);
    let sides = [kind.side(a), kind.side(b)];
    let judge_sides = |[a, b]: [SideTime; 2]| judge_sessions(a, b, threshold, spread);
    let Some(judgement) = judge_sides(sides.clone()) else {
        return none(SuiteVerdict::Incomparable, "there is no time".to_owned());
    };
    let (judgement, in_graphs) = match a.graph.as_ref().zip(b.graph.as_ref()) {
        None => (judgement, None),
        Some((graph_a, graph_b)) => {
            let shift_ns = node_shift_ns(graph_a, graph_b);
            let sure = judge_sides(sides.map(|side| widened(side, shift_ns)));
            let sure = sure.unwrap_or_else(|| judgement.clone());
            let why = if sure.verdict == judgement.verdict {
                "in CUDA graphs".to_owned()
            } else {
                shift_text(graph_a, graph_b, shift_ns)
            };
            (sure, Some(why))
        }
    };
    let why = match (a.device == b.device, differing.is_empty()) {
        (_, false) => format!("another {differing}"),
        (false, true) => match judgement.threshold {
            Some(least) => {
                format!("another device of this GPU: only more than {:.0} % counts", 100.0 * least)
            }
            None => "another device of this GPU".to_owned(),
        },
        (true, true) if judgement.why.is_empty() => in_graphs.unwrap_or_default(),
        (true, true) => judgement.why,
    };
    TimeJudgement { why, ..judgement }
}

/// By how much the state of the GPU may have changed the time of a call between two sessions: as
/// the preparation changed, node by node. Where the nodes are not known, as the whole preparation.
fn node_shift_ns(a: &GraphTiming, b: &GraphTiming) -> f64 {
    let nodes = |graph: &GraphTiming| {
        let (call, prepare) = (graph.call_nodes?, graph.prepare_nodes?);
        (prepare > 0).then(|| call as f64 / prepare as f64)
    };
    let ratio = nodes(a).zip(nodes(b)).map_or(1.0, |(a, b)| a.max(b));
    (a.prepare_ns - b.prepare_ns).abs() * ratio
}

/// A time whose interval is wider on both sides. Without a positive bound it has no interval.
fn widened(side: SideTime, by_ns: f64) -> SideTime {
    let ci95_ns = side.ci95_ns.map(|[low, high]| [low - by_ns, high + by_ns]);
    SideTime { ci95_ns: ci95_ns.filter(|[low, _]| *low > 0.0), ..side }
}

fn shift_text(a: &GraphTiming, b: &GraphTiming, shift_ns: f64) -> String {
    format!(
        "in CUDA graphs; the preparation before each call took {:.2} µs, now {:.2} µs, so {:.2} µs of \
         the call may be the GPU's state",
        a.prepare_ns / 1e3,
        b.prepare_ns / 1e3,
        shift_ns / 1e3
    )
}

fn none(verdict: SuiteVerdict, why: String) -> TimeJudgement {
    TimeJudgement { verdict, speedup: None, ci95: None, threshold: None, why }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_sessions(spread: f64) -> KnownSpread {
        KnownSpread { sessions: Some(spread), devices: None }
    }
    use rgpu_model::profile::GraphTiming;
    use rgpu_model::suite::MeasurementKey;

    fn suite(id: &str, times: &[(&str, f64)]) -> SuiteRun {
        let row = |(case, ns): &(&str, f64)| SuiteRow {
            case: (*case).to_owned(),
            state: RowState::Ok,
            times: vec![SuiteTime {
                key: MeasurementKey {
                    case: (*case).to_owned(),
                    driver: "580".into(),
                    ..MeasurementKey::default()
                },
                median_ns: *ns,
                ci95_ns: [ns * 0.999, ns * 1.001],
                samples: 50,
                ..SuiteTime::default()
            }],
            ..SuiteRow::default()
        };
        SuiteRun { id: id.into(), rows: times.iter().map(row).collect(), ..SuiteRun::default() }
    }

    #[test]
    fn short_kernels_are_compared_by_their_times_in_graphs() {
        let (mut a, mut b) =
            (suite("a", &[("s:short", 4704.0)]), suite("b", &[("s:short", 4992.0)]));
        let verdict = |a: &SuiteRun, b: &SuiteRun| {
            let row = compare(a, b, 0.05, false, |_, _| of_sessions(0.0)).rows.remove(0);
            (row.judgement.verdict, row.b_ns, row.judgement.why)
        };
        assert_eq!(verdict(&a, &b), (SuiteVerdict::Slower, 4992.0, String::new()));
        let graph = |ns: f64| GraphTiming {
            median_ns: ns,
            ci95_ns: [ns - 10.0, ns + 10.0],
            samples: 200,
            ..GraphTiming::default()
        };
        a.rows[0].times[0].graph = Some(graph(2112.0));
        assert_eq!(verdict(&a, &b).0, SuiteVerdict::Slower, "only one has a time in a graph");
        b.rows[0].times[0].graph = Some(graph(2111.0));
        assert_eq!(verdict(&a, &b), (SuiteVerdict::Same, 2111.0, "in CUDA graphs".to_owned()));
    }

    /// vecadd in eight sessions on one H200 within six minutes, as its reports have it: the sizes
    /// in thousands, then median and interval in a graph, and the preparation.
    const SESSIONS: [(u32, f64, [f64; 2], f64); 16] = [
        (65, 2113.0, [2101.0, 2121.0], 30559.0),
        (65, 1780.0, [1773.0, 1788.0], 29833.0),
        (65, 1833.5, [1753.0, 2103.0], 29938.0),
        (65, 1771.0, [1762.0, 1779.0], 29831.0),
        (65, 1790.0, [1782.0, 2048.0], 29855.0),
        (65, 1770.5, [1761.0, 1778.0], 29822.0),
        (65, 2100.5, [2087.0, 2108.0], 30546.0),
        (65, 2101.0, [2087.0, 2108.0], 30547.0),
        (1048, 5759.5, [5720.0, 5769.0], 30799.0),
        (1048, 6081.0, [6064.0, 6114.0], 31539.0),
        (1048, 6093.5, [6076.0, 6124.0], 31518.0),
        (1048, 6095.0, [6059.0, 6112.0], 31516.0),
        (1048, 6080.0, [6061.0, 6098.0], 31551.0),
        (1048, 6081.0, [6065.0, 6115.0], 31532.0),
        (1048, 6088.5, [6077.0, 6097.0], 31530.0),
        (1048, 6100.0, [6080.0, 6124.0], 31530.0),
    ];

    fn in_graph(ns: f64, ci95_ns: [f64; 2], prepare_ns: f64, nodes: [u64; 2]) -> SuiteRun {
        let mut run = suite("a", &[("s:vecadd", 5600.0)]);
        let [call, prepare] = nodes;
        run.rows[0].times[0].graph = Some(GraphTiming {
            median_ns: ns,
            ci95_ns,
            samples: 184,
            prepare_ns,
            call_nodes: (call > 0).then_some(call),
            prepare_nodes: (prepare > 0).then_some(prepare),
            ..GraphTiming::default()
        });
        run
    }

    #[test]
    fn equal_kernels_in_other_states_of_the_gpu_are_neither_faster_nor_slower() {
        let verdict = |a: &SuiteRun, b: &SuiteRun, spread| {
            compare(a, b, 0.01, false, |_, _| KnownSpread { sessions: spread, devices: None })
                .rows
                .remove(0)
                .judgement
        };
        let mut same = 0;
        for nodes in [[1, 2], [0, 0]] {
            for (size, ns, ci95_ns, prepare_ns) in SESSIONS {
                let a = in_graph(ns, ci95_ns, prepare_ns, nodes);
                for (_, ns, ci95_ns, prepare_ns) in SESSIONS.iter().filter(|s| s.0 == size) {
                    let b = in_graph(*ns, *ci95_ns, *prepare_ns, nodes);
                    for spread in [None, Some(0.0), Some(0.005)] {
                        let judged = verdict(&a, &b, spread);
                        let held = [SuiteVerdict::Same, SuiteVerdict::Ambiguous];
                        assert!(held.contains(&judged.verdict), "{ns} {prepare_ns}: {judged:?}");
                        same += usize::from(judged.verdict == SuiteVerdict::Same);
                    }
                }
            }
        }
        assert!(same > 280, "{same} are SAME");
        let [(_, ns, ci, prepare), (_, other_ns, other_ci, other_prepare)] =
            [SESSIONS[0], SESSIONS[1]];
        let a = in_graph(ns, ci, prepare, [1, 2]);
        let b = in_graph(other_ns, other_ci, other_prepare, [1, 2]);
        let why = verdict(&a, &b, Some(0.0)).why;
        assert!(why.contains("took 30.56 µs, now 29.83 µs, so 0.36 µs of the call"), "{why}");
    }

    #[test]
    fn a_change_that_the_state_of_the_gpu_does_not_explain_counts() {
        let verdict = |a: &SuiteRun, b: &SuiteRun| {
            compare(a, b, 0.01, false, |_, _| of_sessions(0.005)).rows.remove(0).judgement
        };
        // The states differ by 0.36 µs for each node.
        let slow = in_graph(2113.0, [2101.0, 2121.0], 30559.0, [1, 2]);
        let halved = in_graph(1000.0, [995.0, 1005.0], 29833.0, [1, 2]);
        let judged = verdict(&slow, &halved);
        assert_eq!(judged.verdict, SuiteVerdict::Faster, "{judged:?}");
        assert_eq!(verdict(&halved, &slow).verdict, SuiteVerdict::Slower);
        // In one state, 5 % are seen.
        let other = in_graph(2219.0, [2207.0, 2228.0], 30547.0, [1, 2]);
        assert_eq!(verdict(&slow, &other).verdict, SuiteVerdict::Slower);
        // Of a call with four nodes, four times as much may be the state.
        let long = in_graph(8000.0, [7980.0, 8020.0], 30559.0, [4, 2]);
        let shorter = in_graph(6700.0, [6680.0, 6720.0], 29833.0, [4, 2]);
        assert_eq!(verdict(&long, &shorter).verdict, SuiteVerdict::Ambiguous);
        // A change as large as the time leaves no interval.
        let tiny = in_graph(300.0, [299.0, 301.0], 30559.0, [1, 2]);
        let tinier = in_graph(200.0, [199.0, 201.0], 29833.0, [1, 2]);
        let judged = verdict(&tiny, &tinier);
        assert_eq!((judged.verdict, judged.ci95), (SuiteVerdict::Ambiguous, None));
    }

    #[test]
    fn each_time_has_a_verdict_and_what_is_missing_is_named() {
        let a =
            suite("a", &[("s:same", 100.0), ("s:slow", 100.0), ("s:gone", 1.0), ("s:bad", 1.0)]);
        let mut b =
            suite("b", &[("s:same", 100.2), ("s:slow", 103.0), ("s:new", 1.0), ("s:bad", 1.0)]);
        b.rows[3].state = RowState::Failed;
        b.rows[3].failure = Some("it broke".into());
        b.rows[3].times.clear();
        let c = compare(&a, &b, 0.01, false, |_, _| of_sessions(0.0));
        let verdicts: Vec<_> = c.rows.iter().map(|row| row.judgement.verdict).collect();
        assert_eq!(verdicts, [SuiteVerdict::Same, SuiteVerdict::Slower, SuiteVerdict::New]);
        assert_eq!(c.only_a, ["s:gone", "s:bad"]);
        assert_eq!(c.newly_failed, ["s:bad: it broke"]);
        let noisy = compare(&a, &b, 0.01, false, |_, _| of_sessions(0.03));
        assert_eq!(noisy.count(SuiteVerdict::Slower), 0);
        let mut elsewhere = b.clone();
        elsewhere.rows[1].times[0].device = "GPU-2".into();
        let moved = compare(&a, &elsewhere, 0.01, false, |_, _| of_sessions(0.0));
        assert_eq!(moved.rows[1].judgement.verdict, SuiteVerdict::Same);
        let why = &moved.rows[1].judgement.why;
        assert!(why.contains("only more than 11 % counts"), "{why}");
        let known = KnownSpread { sessions: Some(0.001), devices: Some(0.005) };
        let moved = compare(&a, &elsewhere, 0.01, false, |_, _| known);
        assert_eq!(moved.rows[1].judgement.verdict, SuiteVerdict::Slower, "{moved:?}");
        let unknown = compare(&a, &b, 0.01, false, |_, _| KnownSpread::default());
        assert_eq!(unknown.rows[1].judgement.verdict, SuiteVerdict::Ambiguous);
        assert!(unknown.rows[1].judgement.why.contains("sessions"), "{unknown:?}");
        b.rows[0].times[0].key.driver = "590".into();
        let other = compare(&a, &b, 0.01, false, |_, _| KnownSpread::default());
        assert_eq!(other.rows[0].judgement.verdict, SuiteVerdict::Incomparable);
        let forced = compare(&a, &b, 0.01, true, |_, _| KnownSpread::default());
        assert_eq!(forced.rows[0].judgement.verdict, SuiteVerdict::Same);
    }
}
