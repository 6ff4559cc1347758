//! `rgpu bench compare`: two runs of a suite, time by time.

use super::args::{CompareArgs, FailOn};
use super::expect;
use super::saved::{self, cases_of};
use crate::cli::support::app::{App, Status};
use crate::cli::support::suite_index;
use crate::cli::support::terminal::escape_but_own_colors;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_model::number_form::by_number;
use rgpu_model::suite::{SuiteTime, SuiteVerdict};
use rgpu_model::suite_history::HistoryPoint;
use rgpu_report::suite::comparison_table;
use rgpu_run::store::RunFolder;
use rgpu_work::suite::expectations::{self, Expectation, Expectations};
use rgpu_work::suite::{KnownSpread, PointsByKey, TimeKind, compare, sessions};

pub(super) fn run(app: &App, args: &CompareArgs) -> Result<Status> {
    let (folder_a, a) = saved::find(app, Some(&args.a))?;
    let (folder_b, b) = saved::find(app, Some(&args.b))?;
    let real = |folder: &RunFolder| folder.path().canonicalize().ok();
    if real(&folder_a) == real(&folder_b) {
        let what = format!("`{}` and `{}` are the same suite, `{}`", args.a, args.b, a.id);
        return Err(Failure::new(Exit::Usage, "usage", what)
            .hint("`rgpu bench compare latest~1 latest` compares the last two"));
    }
    let folder = expectations::folder(&app.config.project, None);
    let mut known: Vec<Expectations> = Vec::new();
    for (_, time) in b.times() {
        if !time.key.gpu.is_empty() && !known.iter().any(|e| e.gpu == time.key.gpu) {
            known.push(Expectations::load(&folder, &time.key.gpu)?);
        }
    }
    let points = match suite_index::open_existing(app)? {
        Some(index) => index.points_of(&cases_of(&a))?,
        None => PointsByKey::new(),
    };
    // Earlier sessions show how far sessions are apart; where there are none, the expectations do.
    // A verdict stays the same when later suites are added.
    let until = a.started.as_str().max(b.started.as_str());
    let spread = |time: &SuiteTime, kind: TimeKind| {
        let mut sessions = sessions(&points, time);
        sessions.retain(|session| session.run != b.id && session.started.as_str() <= until);
        if kind == TimeKind::Graph {
            return KnownSpread { sessions: graph_spread(time, &sessions), devices: None };
        }
        let own = Expectation::from_sessions(time, &sessions, "");
        let mut entries = known.iter().flat_map(|expected| &expected.entries);
        let expected = entries.find(|entry| entry.key == time.key);
        let of_sessions = own.spread(&time.device);
        // That of one device to the middle of all: two devices may be twice as far apart.
        let of_devices = own.device_spread.or_else(|| expected?.device_spread);
        KnownSpread {
            sessions: of_sessions.or_else(|| expected?.spread(&time.device)),
            devices: of_devices.map(|spread| 2.0 * spread),
        }
    };
    let comparison = compare(&a, &b, args.threshold, args.force, spread);
    if app.global.json {
        app.print_json(&comparison)?;
    } else {
        app.print(&escape_but_own_colors(comparison_table(&comparison, &app.style()).as_bytes()));
    }
    let verdicts: Vec<SuiteVerdict> =
        comparison.rows.iter().map(|row| row.judgement.verdict).collect();
    if args.fail_on.contains(&FailOn::Slower) && !comparison.newly_failed.is_empty() {
        app.print_note(&format!(
            "`--fail-on`: {} {} only in `{}`",
            comparison.newly_failed.len(),
            by_number(comparison.newly_failed.len(), "case fails", "cases fail"),
            comparison.b
        ));
        return Ok(Exit::Findings as u8);
    }
    if verdicts.is_empty() {
        let what = format!("no time of `{}` can be compared with one of `{}`", b.id, a.id);
        // Otherwise a host that has lost its GPU passes every condition.
        if !args.fail_on.is_empty() {
            app.print_error(&format!("{what}: there is nothing to judge"));
            return Ok(Exit::Tool as u8);
        }
        app.print_note(&what);
    }
    Ok(expect::status(app, &args.fail_on, &verdicts))
}

/// How far apart the times in CUDA graphs of these sessions are, as a fraction.
fn graph_spread(time: &SuiteTime, sessions: &[&HistoryPoint]) -> Option<f64> {
    let in_graph = |point: &&HistoryPoint| {
        Some(HistoryPoint { median_ns: point.graph_ns?, ..(*point).clone() })
    };
    let sessions: Vec<HistoryPoint> = sessions.iter().filter_map(in_graph).collect();
    let sessions: Vec<&HistoryPoint> = sessions.iter().collect();
    Expectation::from_sessions(time, &sessions, "").spread(&time.device)
}
