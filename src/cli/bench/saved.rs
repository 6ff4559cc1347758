//! Reads, shows and reports the suite of a run folder.

use std::collections::BTreeSet;
use std::io::Write;

use super::args::ShowArgs;
use super::case_runner::THRESHOLD;
use crate::cli::support::app::{App, Status};
use crate::cli::support::suite_index;
use crate::cli::support::terminal::escape_but_own_colors;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_model::number_form::counted;
use rgpu_model::suite::SuiteRun;
use rgpu_report::{OneLineRows, suite};
use rgpu_run::store::{RunFolder, Runs, StoreError};
use rgpu_work::suite::history;

/// The file of a suite's result.
const FILE: &str = "suite.json";

/// The suite that the user named, else the latest. `latest` and `latest~N` pass over the runs of
/// single cases, which are newer than their suite, and a prefix counts suites only.
pub(super) fn find(app: &App, name: Option<&str>) -> Result<(RunFolder, SuiteRun)> {
    let runs = app.runs();
    let folder = match name {
        Some(name) => match runs.find_among(name, |run| run.path().join(FILE).is_file()) {
            Err(StoreError::Ambiguous { name, fits }) => only_suite(&runs, name, fits)?,
            Err(StoreError::Unknown(_)) => return Err(unknown_suite(&runs, name)?),
            found => found?,
        },
        None => suites(&runs)?.pop().ok_or_else(no_suite)?,
    };
    let path = folder.path().join(FILE);
    if !path.is_file() {
        return Err(unknown_suite(&runs, name.unwrap_or_default())?);
    }
    let run = rgpu_run::saved_json::from_slice(&folder.read(FILE)?).map_err(|e| {
        Failure::new(Exit::Artifact, "bad_suite", "the suite's result cannot be read")
            .file(path.display())
            .cause(e)
    })?;
    Ok((folder, run))
}

/// The only suite among the runs whose ids begin with `name`: the runs of its cases do, too.
fn only_suite(runs: &Runs, name: String, fits: Vec<String>) -> Result<RunFolder> {
    let is_suite = |id: &String| runs.root().join(id).join(FILE).is_file();
    let suites: Vec<String> = fits.iter().filter(|id| is_suite(id)).cloned().collect();
    match suites.as_slice() {
        [suite] => Ok(runs.find(suite)?),
        [] => Err(StoreError::Ambiguous { name, fits }.into()),
        _ => Err(StoreError::Ambiguous { name, fits: suites }.into()),
    }
}

/// The failure for a name that no suite has.
fn unknown_suite(runs: &Runs, name: &str) -> Result<Failure> {
    let count = suites(runs)?.len();
    if count == 0 {
        return Ok(no_suite());
    }
    let here = counted(count, "suite has", "suites have");
    let what = format!("there is no suite `{name}`; {here} run here");
    Ok(Failure::new(Exit::Usage, "unknown_suite", what)
        .hint(
            "a suite is named by its id, a prefix that no other suite has, `latest`, `latest~1` (the \
             one before it) or its folder",
        )
        .hint("`rgpu runs list` shows the runs; those of suites are called `bench, … cases`"))
}

fn no_suite() -> Failure {
    Failure::new(Exit::Usage, "no_suite", "no suite has run here")
        .hint("`rgpu bench run` runs the suite of this project")
}

/// All suites, the one that started last at the end.
fn suites(runs: &Runs) -> Result<Vec<RunFolder>> {
    let mut found: Vec<(String, RunFolder)> = Vec::new();
    for id in runs.suite_ids()? {
        let folder = runs.find(&id)?;
        let record = folder.record()?;
        found.push((record.started, folder));
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(found.into_iter().map(|(_, folder)| folder).collect())
}

/// The cases of a suite, each once.
pub(super) fn cases_of(run: &SuiteRun) -> BTreeSet<&str> {
    run.rows.iter().map(|row| row.case.as_str()).collect()
}

/// Writes the reports into the suite's folder.
pub(super) fn write_reports(app: &App, folder: &RunFolder, run: &SuiteRun) -> Result<()> {
    // The page has the history if there is an index.
    let index = suite_index::open_existing(app).ok().flatten();
    let points = index.and_then(|index| index.points_of(&cases_of(run)).ok());
    let history = history(points.unwrap_or_default(), THRESHOLD, None);
    for (name, text) in [
        ("report.md", suite::markdown(run)),
        ("suite.csv", suite::csv(run)),
        ("junit.xml", suite::junit(run)?),
        ("index.html", suite::html(run, &history, &app.config.project)),
    ] {
        folder.write(name, text.as_bytes())?;
    }
    Ok(())
}

/// Prints a suite: the table, or the document with `--json`.
pub(super) fn print(app: &App, folder: &RunFolder, run: &SuiteRun) -> Result<()> {
    if app.global.json {
        return app.print_json(run);
    }
    app.print(&escape_but_own_colors(suite::table(run, &app.style()).as_bytes()));
    app.print(&format!("  run         {}\n", app.short(folder.path())));
    Ok(())
}

/// Shows a suite again.
pub(super) fn show(app: &App, args: &ShowArgs) -> Result<Status> {
    app.check_one_format(args.format.as_deref())?;
    let (folder, run) = find(app, args.run.as_deref())?;
    match args.format.as_deref() {
        None => print(app, &folder, &run)?,
        Some("json") => app.print_json(&run)?,
        Some("markdown") => app.print(&suite::markdown(&run)),
        Some("csv") => {
            let table = suite::csv(&run);
            app.print_pieces(&|out| OneLineRows::new(out).write_all(table.as_bytes()))?;
        }
        Some("junit") => app.print(&suite::junit(&run)?),
        Some("html") => {
            write_reports(app, &folder, &run)?;
            app.print(&format!("{}\n", app.short(&folder.path().join("index.html"))));
        }
        Some(_) => app.print(&escape_but_own_colors(suite::table(&run, &app.style()).as_bytes())),
    }
    Ok(0)
}
