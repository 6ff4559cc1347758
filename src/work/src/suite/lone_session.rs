//! Finds the one session of a case whose time is far from that of all others, so that the user can
//! look at it: it alone makes the spread between sessions large.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::expectations::{MIN_SESSIONS, UNKNOWN_SESSION_SPREAD};
use rgpu_model::suite_history::HistoryPoint;

/// The session is told if it makes the spread this many times as large.
const LEAST_FACTOR: f64 = 3.0;

/// A session whose time is far from that of all others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoneSession {
    /// Id of its suite's run.
    pub run: String,
    /// Its median in nanoseconds.
    pub median_ns: f64,
    /// The shortest and the longest median of the others.
    pub others_ns: [f64; 2],
    /// Number of sessions, with this one.
    pub sessions: u64,
}

/// The session that is far from all others; `None` if there is none, or if there are too few to say
/// so.
pub(super) fn lone_session(sessions: &[&HistoryPoint]) -> Option<LoneSession> {
    if sessions.len() < MIN_SESSIONS {
        return None;
    }
    let mut by_time = sessions.to_vec();
    by_time.sort_by(|a, b| a.median_ns.total_cmp(&b.median_ns));
    let spread = |part: &[&HistoryPoint]| match part {
        [first, .., last] => last.median_ns / first.median_ns - 1.0,
        _ => 0.0,
    };
    let whole = spread(&by_time);
    let (first, last) = (by_time.split_first()?, by_time.split_last()?);
    let (lone, others) = if spread(first.1) < spread(last.1) { first } else { last };
    let is_far = whole > UNKNOWN_SESSION_SPREAD && whole > LEAST_FACTOR * spread(others);
    is_far.then(|| LoneSession {
        run: lone.run.clone(),
        median_ns: lone.median_ns,
        others_ns: [others[0].median_ns, others[others.len() - 1].median_ns],
        sessions: sessions.len() as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lone(medians: &[f64]) -> Option<(f64, [f64; 2])> {
        let point = |(at, median_ns): (usize, &f64)| HistoryPoint {
            run: format!("night-{at}"),
            median_ns: *median_ns,
            ..HistoryPoint::default()
        };
        let points: Vec<HistoryPoint> = medians.iter().enumerate().map(point).collect();
        let found = lone_session(&points.iter().collect::<Vec<_>>())?;
        let at = medians.iter().position(|median| *median == found.median_ns).unwrap();
        assert_eq!((found.run, found.sessions), (format!("night-{at}"), medians.len() as u64));
        Some((found.median_ns, found.others_ns))
    }

    #[test]
    fn one_session_far_from_all_others_is_found_and_a_wide_spread_is_not() {
        assert_eq!(lone(&[72.0, 375.0, 60.0, 70.0]), Some((375.0, [60.0, 72.0])));
        assert_eq!(lone(&[100.0, 101.0, 50.0]), Some((50.0, [100.0, 101.0])));
        for none in [
            &[60.0, 375.0][..],
            &[60.0, 65.0, 72.0, 80.0],
            &[60.0, 61.0, 370.0, 375.0],
            &[100.0, 100.1, 103.0],
            &[100.0; 5],
            &[],
        ] {
            assert_eq!(lone(none), None, "{none:?}");
        }
    }
}
