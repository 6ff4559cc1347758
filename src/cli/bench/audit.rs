//! `rgpu bench audit`.

use std::collections::BTreeSet;

use super::args::AuditArgs;
use super::{expect, list, saved};
use crate::cli::support::app::{App, Status};
use crate::cli::support::kernel_folders::kernel_folders;
use crate::cli::support::open_profile;
use rgpu_model::error::{Exit, Result};
use rgpu_model::suite::{SuiteRow, SuiteRun};
use rgpu_model::{Profile, Trace};
use rgpu_report::suite::MIN_REASON_WIDTH;
use rgpu_report::{BAD, TextTable};
use rgpu_work::suite::TargetSpec;
use rgpu_work::suite::audit::{LastSuite, audit};
use rgpu_work::suite::expectations::{self, Expectations};

/// Audits the suite of the project.
pub(super) fn run(app: &App, args: &AuditArgs) -> Result<Status> {
    let file = list::file(app, args.targets.file.as_deref())?;
    let ids = expect::case_ids(&file)?;
    let cases: BTreeSet<&str> = ids.iter().map(String::as_str).collect();
    let last = match saved::find(app, None) {
        Ok((_, run)) => Some(LastSuite { profiles: profiles(app, &run), run }),
        Err(failure) if failure.code == "no_suite" => None,
        Err(failure) => return Err(failure),
    };
    let mut known = Expectations::load_all(&expectations::folder(&app.config.project, None))?;
    let has_other_cases = !file.is_of_project(&app.config.project) && !known.is_empty();
    if has_other_cases {
        known.clear();
    }
    let generated = args.targets.include_generated;
    let targets: Vec<&TargetSpec> =
        file.targets.iter().filter(|target| generated || !target.generated).collect();
    let problems = list::problems(app, &file, &targets);
    let folders = kernel_folders(app);
    let mut audit = audit(&file, &folders, &problems, &known, last.as_ref(), &cases, generated);
    if has_other_cases {
        let gap =
            "the expectations are of the project's own bench.toml, so they were not looked at";
        audit.gaps.push(gap.to_owned());
    }
    let status = if audit.findings.is_empty() { 0 } else { Exit::Findings as u8 };
    if app.global.json {
        app.print_json(&audit)?;
        return Ok(status);
    }
    let mut grid = TextTable::new("finding | where | what");
    let codes: BTreeSet<String> = audit.findings.iter().map(|f| f.code.clone()).collect();
    for finding in audit.findings {
        let place = app.short(std::path::Path::new(&finding.place));
        grid.add_row([finding.code, place, finding.text]);
    }
    if grid.is_empty() {
        app.print("nothing was found\n")
    } else {
        let color_of = |word: &str| codes.contains(word).then_some(BAD);
        let grid = grid.fitted_with_words(app.columns(), 0, "what", MIN_REASON_WIDTH);
        app.print(&app.style().paint_words(&grid, color_of));
    }
    audit.gaps.iter().for_each(|gap| app.print_note(gap));
    Ok(status)
}

/// The profiles of a suite's cases. A case that has none was not profiled.
fn profiles(app: &App, run: &SuiteRun) -> Vec<(String, Profile, Option<Trace>)> {
    let runs = app.runs();
    let open = |row: &SuiteRow| {
        let folder = runs.find(row.run.as_deref()?).ok()?;
        let opened = open_profile::open_run(&folder).ok()?;
        Some((row.case.clone(), opened.profile, opened.sidecars.trace))
    };
    run.rows.iter().filter_map(open).collect()
}
