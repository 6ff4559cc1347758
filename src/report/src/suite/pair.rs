//! What the rows of a suite's times tell of their pair: each the speedup of its own size, and one
//! more the mean of several sizes.

use rgpu_model::comparison::TimeVerdict;
use rgpu_model::suite::{PairResult, SuiteRow, SuiteTime};

/// The side of a pair whose rows have the speedups.
const OPTIMISED: &str = "optimised";

/// The speedup and the verdict that one row shows.
pub(super) struct PairCell {
    pub(super) speedup: Option<f64>,
    pub(super) verdict: TimeVerdict,
    /// Whether the pair is too close to call; only where the pair as a whole is told.
    pub(super) too_close: bool,
}

impl PairCell {
    fn from_pair(pair: &PairResult) -> Self {
        Self { speedup: pair.speedup, verdict: pair.verdict, too_close: pair.too_close }
    }

    /// The verdict in words.
    pub(super) fn verdict_text(&self) -> String {
        if self.too_close {
            format!("{}, too close", self.verdict.as_str())
        } else {
            self.verdict.as_str().to_owned()
        }
    }
}

/// How many sizes of the optimised side were timed.
fn size_count(row: &SuiteRow) -> usize {
    row.times.iter().filter(|time| time.key.side == OPTIMISED).count()
}

/// What the row of a time shows: `None` on the baseline, and where the speedup of its size is not
/// known.
pub(super) fn at_size(row: &SuiteRow, time: &SuiteTime) -> Option<PairCell> {
    let pair = row.pair.as_ref().filter(|_| time.key.side == OPTIMISED)?;
    if size_count(row) == 1 {
        return Some(PairCell::from_pair(pair));
    }
    let own = pair.sizes.iter().find(|one| one.size == time.size)?;
    Some(PairCell { speedup: Some(own.speedup), verdict: own.verdict, too_close: false })
}

/// The mean of a pair with several sizes, and what it is the mean of.
pub(super) fn over_sizes(row: &SuiteRow) -> Option<(String, PairCell)> {
    let pair = row.pair.as_ref()?;
    let count = size_count(row);
    (count > 1).then(|| (format!("geomean of {count}"), PairCell::from_pair(pair)))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::Style;
    use crate::suite::{csv, html, markdown, table};
    use rgpu_model::comparison::TimeVerdict;
    use rgpu_model::suite::{PairResult, RowState, SizeSpeedup, SuiteRow, SuiteRun, SuiteTime};
    use rgpu_model::suite_history::History;

    /// A pair of two sizes: one twice as fast, the other as slow as before.
    fn pair_of_two_sizes() -> SuiteRun {
        let time = |size: &str, side: &str| {
            let mut time = SuiteTime { size: size.into(), ..SuiteTime::default() };
            time.key.side = side.into();
            time.median_ns = 1000.0;
            time.ci95_ns = [990.0, 1010.0];
            time
        };
        let of_size = |size: &str, speedup, verdict| SizeSpeedup {
            size: size.into(),
            speedup,
            ci95: None,
            verdict,
        };
        let pair = PairResult {
            verdict: TimeVerdict::Faster,
            speedup: Some(1.414),
            ci95: None,
            too_close: true,
            summary: "`b` is faster".into(),
            parts: Vec::new(),
            grown: Vec::new(),
            sizes: vec![
                of_size("small", 2.0, TimeVerdict::Faster),
                of_size("large", 1.0, TimeVerdict::Same),
            ],
        };
        let sides = ["baseline", "optimised"];
        let row = SuiteRow {
            case: "s:pair".into(),
            state: RowState::Ok,
            times: sides.iter().flat_map(|s| [time("small", s), time("large", s)]).collect(),
            pair: Some(pair),
            ..SuiteRow::default()
        };
        SuiteRun { id: "night".into(), rows: vec![row], ..SuiteRun::default() }
    }

    #[test]
    fn each_size_has_its_own_speedup_and_the_mean_is_told_once() {
        let mut run = pair_of_two_sizes();
        let style = Style { width: 120, ..Style::default() };
        let shown = table(&run, &style);
        let line = |words: [&str; 3]| {
            let has_all = |line: &&str| words.iter().all(|word| line.contains(word));
            shown.lines().filter(has_all).count()
        };
        assert_eq!(line(["small", "optimised", "2.000×  FASTER"]), 1, "{shown}");
        assert_eq!(line(["large", "optimised", "1.000×  SAME"]), 1, "{shown}");
        assert_eq!(line(["geomean of 2", "1.414×", "FASTER, too close"]), 1, "{shown}");
        for text in [&shown, &markdown(&run), &html(&run, &History::default(), Path::new("/"))] {
            assert_eq!(text.matches("1.414×").count(), 1, "{text}");
            assert_eq!(text.matches("2.000×").count(), 1, "{text}");
        }
        let text = csv(&run);
        let cells: Vec<[&str; 3]> = text
            .lines()
            .map(|line| line.split(',').collect::<Vec<_>>())
            .map(|cells| [cells[21], cells[22], cells[26]])
            .collect();
        let head = ["speedup", "pair", "mean_speedup"];
        let none = ["", "", ""];
        let (small, large) = (["2", "FASTER", "1.414"], ["1", "SAME", ""]);
        assert_eq!(cells, [head, none, none, small, large]);
        // A suite of an earlier version has no speedups of its sizes.
        run.rows[0].pair.as_mut().unwrap().sizes.clear();
        assert_eq!(table(&run, &style).matches('×').count(), 1);
        // With one size the pair is told beside it.
        run.rows[0].times.retain(|time| time.size == "small");
        let shown = table(&run, &style);
        assert!(shown.contains("1.414×  FASTER, too close"), "{shown}");
        assert!(!shown.contains("geomean"), "{shown}");
    }
}
