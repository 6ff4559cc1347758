//! Compares two runs of a suite, time by time.

use super::expectations::{UNKNOWN_SPREAD, differences, judge_sessions};
use crate::model::comparison::SideTime;
use crate::model::profile::CheckVerdict;
use crate::model::suite::{
    COMPARISON_SCHEMA, ComparedRow, RowState, SuiteComparison, SuiteRun, SuiteTime, SuiteVerdict,
    TimeJudgement,
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
    let same = |x: &SuiteTime, y: &SuiteTime| {
        x.key.case == y.key.case && x.key.side == y.key.side && x.key.sizes == y.key.sizes
    };
    let name = |time: &SuiteTime| {
        let words = [time.key.case.as_str(), &time.key.side, &time.key.sizes];
        words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
    };
    let row = |time: &SuiteTime| {
        let base = a.times().map(|(_, base)| base).find(|base| same(base, time));
        let judgement = match base {
            None => none(SuiteVerdict::New, String::new()),
            Some(base) => judge(base, time, threshold, spread(base), force),
        };
        ComparedRow {
            case: time.key.case.clone(),
            side: time.key.side.clone(),
            sizes: time.key.sizes.clone(),
            a_ns: base.map(|base| base.median_ns),
            b_ns: time.median_ns,
            judgement,
        }
    };
    let ok = |case: &str| a.rows.iter().any(|r| r.case == case && r.state == RowState::Ok);
    let failed = b.rows.iter().filter(|r| r.state == RowState::Failed && ok(&r.case));
    let is_gone = |time: &&SuiteTime| !b.times().any(|(_, other)| same(time, other));
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
    let side = |time: &SuiteTime| SideTime {
        median_ns: time.median_ns,
        ci95_ns: Some(time.ci95_ns),
        samples: time.samples,
    };
    let Some(judgement) = judge_sessions(side(a), side(b), threshold, spread) else {
        return none(SuiteVerdict::Incomparable, "there is no time".to_owned());
    };
    let why = match (a.device == b.device, differing.is_empty()) {
        (_, false) => format!("another {differing}"),
        (false, true) => "another device of this GPU".to_owned(),
        (true, true) => judgement.why,
    };
    TimeJudgement { why, ..judgement }
}

fn none(verdict: SuiteVerdict, why: String) -> TimeJudgement {
    TimeJudgement { verdict, speedup: None, ci95: None, threshold: None, why }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::suite::{MeasurementKey, SuiteRow};

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
