//! `junit.xml`: a test for each case, as CI systems read it. A case fails if it failed, and if it
//! is slower than expected. One that no GPU ran is skipped.

use std::time::Duration;

use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use rgpu_model::error::{Exit, Failure, Result};
use rgpu_model::suite::{RowState, SuiteRow, SuiteRun, SuiteVerdict};

/// Renders a suite as JUnit XML.
pub fn junit(run: &SuiteRun) -> Result<String> {
    let mut report = Report::new(run.id.as_str());
    let mut suites: Vec<TestSuite> = Vec::new();
    for row in &run.rows {
        let name = row.target.split(':').next().unwrap_or_default();
        let at = suites.iter().position(|suite| suite.name.as_str() == name);
        let case = case(row);
        match at {
            Some(at) => drop(suites[at].add_test_case(case)),
            None => {
                let mut suite = TestSuite::new(name);
                suite.add_test_case(case);
                suites.push(suite);
            }
        }
    }
    report.add_test_suites(suites);
    report
        .to_string()
        .map_err(|e| Failure::new(Exit::Bug, "bug", "the suite cannot be written as XML").cause(e))
}

fn case(row: &SuiteRow) -> TestCase {
    let slower = row.times.iter().find_map(|time| {
        let judged = time.against.as_ref()?;
        (judged.verdict == SuiteVerdict::Slower).then(|| {
            let speedup = judged.speedup.map(|x| format!(" ({x:.3}×)")).unwrap_or_default();
            format!("{} {} is slower than expected{speedup}", time.key.side, time.key.sizes)
        })
    });
    let status = match (row.state, slower) {
        (RowState::Ok, None) => TestCaseStatus::success(),
        (RowState::Ok, Some(slower)) => failed(NonSuccessKind::Failure, "slower", &slower, row),
        (RowState::Failed, _) => {
            let reason = row.reason.as_deref().unwrap_or_default();
            failed(NonSuccessKind::Error, reason, row.failure.as_deref().unwrap_or_default(), row)
        }
        (state, _) => skipped(state.as_str()),
    };
    let mut case = TestCase::new(row.case.as_str(), status);
    case.set_classname(row.target.as_str());
    case.set_time(Duration::from_secs_f64(row.seconds.max(0.0)));
    case
}

fn skipped(why: &str) -> TestCaseStatus {
    let mut status = TestCaseStatus::skipped();
    status.set_message(why);
    status
}

fn failed(kind: NonSuccessKind, reason: &str, message: &str, row: &SuiteRow) -> TestCaseStatus {
    let mut status = TestCaseStatus::non_success(kind);
    status.set_type(reason);
    status.set_message(message);
    status.set_description(format!("{message}\nagain: {}", row.again));
    status
}
