//! Compares two runs of a suite, time by time.

use std::collections::{BTreeMap, BTreeSet};

use super::expectations::{UNKNOWN_SPREAD, differences, judge_sessions};
use crate::model::comparison::SideTime;
use crate::model::profile::CheckVerdict;
use crate::model::suite::{
    COMPARISON_SCHEMA, ComparedRow, RowState, SuiteComparison, SuiteRow, SuiteRun, SuiteTime,
    SuiteVerdict, TimeJudgement,
};

/// Compares `b` with `a`. `spread` gives what is known of the spread between sessions of a time of
/// `a`, as a fraction: it is added to the threshold. Times under other conditions are compared only
/// if `force`.
pub fn compare(
    a: &SuiteRun,
    b: &SuiteRun,
    threshold: f64,
    force: bool,
    spread: impl Fn(&SuiteTime) -> Option<f64>,
) -> SuiteComparison {
    let (times_of_a, times_of_b) = (times_by_work(a), times_by_work(b));
    let name = |time: &SuiteTime| {
        work_of(time).into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
    };
    let row = |time: &SuiteTime| {
        let base = times_of_a.get(&work_of(time)).copied();
        let judgement = match base {
            None => none(SuiteVerdict::New, String::new()),
            Some(base) => judge(base, time, threshold, spread(base), force),
        };
        ComparedRow {
            case: time.key.case.clone(),
            side: time.key.side.clone(),
            sizes: time.key.sizes.clone(),
            a_ns: base.map(|base| judged(base, time).0.median_ns),
            b_ns: base.map_or(time.median_ns, |base| judged(base, time).1.median_ns),
            judgement,
        }
    };
    let is_ok = |row: &&SuiteRow| row.state == RowState::Ok;
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

/// What a time is of, whatever it was measured under: case, side and sizes.
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
    spread: Option<f64>,
    force: bool,
) -> TimeJudgement {
    if [a, b].iter().any(|time| time.correctness == Some(CheckVerdict::Wrong)) {
        return none(SuiteVerdict::Incomparable, "the results are wrong".to_owned());
    }
    let differing = differences(&a.key, &b.key);
    if !differing.is_empty() && !force {
        return none(SuiteVerdict::Incomparable, format!("another {differing}"));
    }
    let spread = match a.device == b.device {
        true => spread,
        false => Some(spread.unwrap_or_default() + UNKNOWN_SPREAD),
    };
    let (side_a, side_b, in_graphs) = judged(a, b);
    let Some(judgement) = judge_sessions(side_a, side_b, threshold, spread) else {
        return none(SuiteVerdict::Incomparable, "there is no time".to_owned());
    };
    let why = match (a.device == b.device, differing.is_empty()) {
        (_, false) => format!("another {differing}"),
        (false, true) => "another device of this GPU".to_owned(),
        (true, true) if in_graphs && judgement.why.is_empty() => "in CUDA graphs".to_owned(),
        (true, true) => judgement.why,
    };
    TimeJudgement { why, ..judgement }
}

/// What is compared of two times: those inside CUDA graphs, which the third value says, if both have
/// one. Around a kernel of a few µs, events add a time that changes by some percent from session to
/// session.
fn judged(a: &SuiteTime, b: &SuiteTime) -> (SideTime, SideTime, bool) {
    let side =
        |median_ns, ci95_ns, samples| SideTime { median_ns, ci95_ns: Some(ci95_ns), samples };
    let of = |time: &SuiteTime| match time.graph.as_ref().filter(|_| b.graph.is_some()) {
        Some(graph) if a.graph.is_some() => side(graph.median_ns, graph.ci95_ns, graph.samples),
        _ => side(time.median_ns, time.ci95_ns, time.samples),
    };
    (of(a), of(b), a.graph.is_some() && b.graph.is_some())
}

fn none(verdict: SuiteVerdict, why: String) -> TimeJudgement {
    TimeJudgement { verdict, speedup: None, ci95: None, threshold: None, why }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::profile::GraphTiming;
    use crate::model::suite::MeasurementKey;

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
            let row = compare(a, b, 0.05, false, |_| Some(0.0)).rows.remove(0);
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

    #[test]
    fn each_time_has_a_verdict_and_what_is_missing_is_named() {
        let a =
            suite("a", &[("s:same", 100.0), ("s:slow", 100.0), ("s:gone", 1.0), ("s:bad", 1.0)]);
        let mut b =
            suite("b", &[("s:same", 100.2), ("s:slow", 103.0), ("s:new", 1.0), ("s:bad", 1.0)]);
        b.rows[3].state = RowState::Failed;
        b.rows[3].failure = Some("it broke".into());
        b.rows[3].times.clear();
        let c = compare(&a, &b, 0.01, false, |_| Some(0.0));
        let verdicts: Vec<_> = c.rows.iter().map(|row| row.judgement.verdict).collect();
        assert_eq!(verdicts, [SuiteVerdict::Same, SuiteVerdict::Slower, SuiteVerdict::New]);
        assert_eq!(c.only_a, ["s:gone", "s:bad"]);
        assert_eq!(c.newly_failed, ["s:bad: it broke"]);
        let noisy = compare(&a, &b, 0.01, false, |_| Some(0.03));
        assert_eq!(noisy.count(SuiteVerdict::Slower), 0);
        let unknown = compare(&a, &b, 0.01, false, |_| None);
        assert_eq!(unknown.rows[1].judgement.verdict, SuiteVerdict::Ambiguous);
        assert!(unknown.rows[1].judgement.why.contains("sessions"), "{unknown:?}");
        b.rows[0].times[0].key.driver = "590".into();
        let other = compare(&a, &b, 0.01, false, |_| None);
        assert_eq!(other.rows[0].judgement.verdict, SuiteVerdict::Incomparable);
        let forced = compare(&a, &b, 0.01, true, |_| None);
        assert_eq!(forced.rows[0].judgement.verdict, SuiteVerdict::Same);
    }
}
