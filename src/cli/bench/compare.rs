//! `rgpu bench compare`: two runs of a suite, time by time.

use super::args::{CompareArgs, FailOn};
use super::expect;
use super::saved::{self, cases_of};
use crate::cli::support::app::{App, Status};
use crate::cli::support::suite_index;
use crate::cli::support::terminal::escape_controls;
use crate::error::{Exit, Result};
use crate::model::suite::{SuiteTime, SuiteVerdict};
use crate::report::suite::comparison_table;
use crate::suite::expectations::{Expectation, Expectations};
use crate::suite::{PointsByKey, compare, sessions};

/// Compares two suites.
pub(super) fn run(app: &App, args: &CompareArgs) -> Result<Status> {
    let (_, a) = saved::find(app, Some(&args.a))?;
    let (_, b) = saved::find(app, Some(&args.b))?;
    let mut known: Vec<Expectations> = Vec::new();
    for (_, time) in b.times() {
        if !time.key.gpu.is_empty() && !known.iter().any(|e| e.gpu == time.key.gpu) {
            known.push(Expectations::load(&app.config.project, &time.key.gpu)?);
        }
    }
    let points = match suite_index::open_existing(app)? {
        Some(index) => index.points_of(&cases_of(&a))?,
        None => PointsByKey::new(),
    };
    // Earlier sessions show how far sessions are apart; where there are none, the expectations do.
    let spread = |time: &SuiteTime| {
        let mut sessions = sessions(&points, time);
        sessions.retain(|session| session.run != b.id);
        let own = Expectation::from_sessions(time, &sessions, "").spread(&time.device);
        let mut entries = known.iter().flat_map(|expected| &expected.entries);
        own.or_else(|| entries.find(|entry| entry.key == time.key)?.spread(&time.device))
    };
    let comparison = compare(&a, &b, args.threshold, args.force, spread);
    if app.global.json {
        app.print_json(&comparison)?;
    } else {
        app.print(&escape_controls(comparison_table(&comparison, &app.style()).as_bytes()));
    }
    let verdicts: Vec<SuiteVerdict> =
        comparison.rows.iter().map(|row| row.judgement.verdict).collect();
    if args.fail_on.contains(&FailOn::Slower) && !comparison.newly_failed.is_empty() {
        app.print_note(&format!(
            "failed as asked: {} cases fail only in `{}`",
            comparison.newly_failed.len(),
            comparison.b
        ));
        return Ok(Exit::Findings as u8);
    }
    Ok(expect::status(app, &args.fail_on, &verdicts))
}
