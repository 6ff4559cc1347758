//! Judges the times of a suite against the expected ones, and updates those.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use super::args::{ExpectArgs, FailOn};
use super::case_runner::THRESHOLD;
use super::saved::cases_of;
use super::suite_work::SuiteWork;
use crate::cli::support::app::{App, Status, show_failure};
use crate::cli::support::kernel_folders::kernel_folders;
use crate::cli::support::session;
use crate::cli::support::terminal::write_stderr;
use crate::cli::support::unmeasured::UnmeasuredArgs;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_model::number_form::{by_number, counted};
use rgpu_model::suite::{
    ExpectationUpdate, MeasurementKey, RowState, SuiteRow, SuiteRun, SuiteTime, SuiteVerdict,
};
use rgpu_model::suite_history::HistoryPoint;
use rgpu_report::suite::MIN_REASON_WIDTH;
use rgpu_report::{TextTable, duration};
use rgpu_work::suite::expectations::{self, Expectations, UpdatedEntry, Validity};
use rgpu_work::suite::{LoneSession, PointsByKey, SuiteFile, select, sessions};

/// The verdicts on a suite's times, the expectations without a case, and the files that were
/// updated.
pub(super) struct ExpectationResult {
    verdicts: Vec<SuiteVerdict>,
    orphans: Vec<MeasurementKey>,
    updated: Vec<(PathBuf, Vec<UpdatedEntry>)>,
    /// Number of cases that ended well and that no GPU ran.
    without_gpu: usize,
    /// Set if no case has a number from a GPU.
    not_measured: Option<Failure>,
}

/// Refuses expectations that cannot be read, and a baseline that does not exist, before anything
/// runs: every time would be NEW.
pub(super) fn check(app: &App, args: &ExpectArgs) -> Result<()> {
    let folder = expectations::folder(&app.config.project, args.baseline.as_deref());
    Expectations::load_all(&folder)?;
    let Some(name) = args.baseline.as_deref().filter(|_| !args.update_expectations) else {
        return Ok(());
    };
    if folder.is_dir() {
        return Ok(());
    }
    let what = format!("there is no baseline `{name}`");
    Err(Failure::new(Exit::Config, "unknown_baseline", what)
        .file(folder.display())
        .hint("`--update-expectations` writes it from at least 3 sessions"))
}

/// Judges every time of the suite that has no verdict yet, and updates the expectations if told to.
/// Times of an earlier command keep the verdict that it gave them.
pub(super) fn judge(
    app: &App,
    work: &SuiteWork<'_>,
    args: &ExpectArgs,
) -> Result<ExpectationResult> {
    let folder = expectations::folder(&app.config.project, args.baseline.as_deref());
    let mut run = work.with_suite(|suite| suite.run.clone());
    let gpus: BTreeSet<String> = run.times().map(|(_, time)| time.key.gpu.clone()).collect();
    let mut known = BTreeMap::new();
    for gpu in gpus.into_iter().filter(|gpu| !gpu.is_empty()) {
        known.insert(gpu.clone(), Expectations::load(&folder, &gpu)?);
    }
    let threshold = run.options.threshold.unwrap_or(THRESHOLD);
    let mut verdicts = Vec::new();
    for row in &mut run.rows {
        let case = row.case_of_any_remote().to_owned();
        for time in &mut row.times {
            if let Some(kept) = &time.against {
                verdicts.push(kept.verdict);
                continue;
            }
            let Some(expected) = known.get(&time.key.gpu) else { continue };
            let judgement = expected.judge(&time_as_case(time, &case), threshold, args.validity);
            verdicts.push(judgement.verdict);
            time.against = Some(judgement);
        }
    }
    let updated = if args.update_expectations {
        update(work, &run, known.clone(), &folder, args)?
    } else {
        Vec::new()
    };
    // A command without the flag keeps what an earlier one of the suite wrote and refused.
    if args.update_expectations {
        run.updates = updates_of(app, &updated);
    }
    let orphans = orphans(app, &run, &known)?;
    run.orphans.clone_from(&orphans);
    let without_gpu = run.count(RowState::NoGpu);
    let not_measured = not_measured(app, work, &run, args.unmeasured);
    work.with_suite(|suite| suite.run = run);
    Ok(ExpectationResult { verdicts, orphans, updated, without_gpu, not_measured })
}

/// The failure of a suite whose cases ended well and of which no GPU ran one.
fn not_measured(
    app: &App,
    work: &SuiteWork<'_>,
    run: &SuiteRun,
    args: UnmeasuredArgs,
) -> Option<Failure> {
    let ended: Vec<usize> =
        (0..run.rows.len()).filter(|at| run.rows[*at].state.has_ended_well()).collect();
    if ended.iter().any(|at| run.rows[*at].state != RowState::NoGpu) {
        return None;
    }
    let mut specs = ended.iter().filter_map(|at| work.cases.get(at).map(|(_, spec)| spec));
    specs.find_map(|spec| {
        let facts = session::facts_cache(app, spec).last();
        args.failure(spec, facts.and_then(|facts| facts.driver).as_deref())
    })
}

/// The updates of all files as the suite's document has them.
fn updates_of(app: &App, files: &[(PathBuf, Vec<UpdatedEntry>)]) -> Vec<ExpectationUpdate> {
    let update = |path: &Path, entry: &UpdatedEntry| ExpectationUpdate {
        case: entry.key.case.clone(),
        side: entry.key.side.clone(),
        sizes: entry.key.sizes.clone(),
        file: path.strip_prefix(&app.config.project).unwrap_or(path).display().to_string(),
        written_ns: entry.after_ns,
        refused: entry.refused.map(|refusal| refusal.name().to_owned()),
        why: entry.refused.map(|refusal| refusal.text().to_owned()).unwrap_or_default(),
    };
    let of_file = |(path, entries): &(PathBuf, Vec<UpdatedEntry>)| {
        entries.iter().map(|entry| update(path, entry)).collect::<Vec<_>>()
    };
    files.iter().flat_map(of_file).collect()
}

/// The time as that of `case`, as which it is expected: expectations are of a GPU, not of a remote.
fn time_as_case(time: &SuiteTime, case: &str) -> SuiteTime {
    let key = MeasurementKey { case: case.to_owned(), ..time.key.clone() };
    SuiteTime { key, ..time.clone() }
}

/// Expected times of cases that the project's own suite does not have. Another suite has cases of
/// its own: a file that `--file` names, every kernel where there is no bench.toml, or a sweep.
fn orphans(
    app: &App,
    run: &SuiteRun,
    known: &BTreeMap<String, Expectations>,
) -> Result<Vec<MeasurementKey>> {
    if run.file.is_none() {
        return Ok(Vec::new());
    }
    let chosen = run.options.file.as_deref().map(Path::new);
    let file = SuiteFile::load(chosen, &kernel_folders(app))?;
    if !file.is_of_project(&app.config.project) {
        return Ok(Vec::new());
    }
    let ids = case_ids(&file)?;
    let here: BTreeSet<&str> = run
        .rows
        .iter()
        .map(SuiteRow::case_of_any_remote)
        .chain(ids.iter().map(String::as_str))
        .collect();
    Ok(known.values().flat_map(|e| e.entries_without_case(&here).into_iter().cloned()).collect())
}

/// The ids of every case of the file.
pub(super) fn case_ids(file: &SuiteFile) -> Result<BTreeSet<String>> {
    Ok(select(file, &[], true)?.into_iter().map(|case| case.id).collect())
}

fn update(
    work: &SuiteWork<'_>,
    run: &SuiteRun,
    known: BTreeMap<String, Expectations>,
    folder: &Path,
    args: &ExpectArgs,
) -> Result<Vec<(PathBuf, Vec<UpdatedEntry>)>> {
    let index = work.index.lock().unwrap_or_else(PoisonError::into_inner);
    let mut cases = cases_of(run);
    cases.extend(run.rows.iter().map(SuiteRow::case_of_any_remote));
    let points = match index.as_ref() {
        Some(index) => index.points_of(&cases)?,
        None => PointsByKey::new(),
    };
    let mut files = Vec::new();
    for (gpu, mut expected) in known {
        let before = expected.clone();
        // Remotes with this GPU have one expectation of a case, from the sessions of all.
        let mut times: BTreeMap<MeasurementKey, (SuiteTime, Vec<&HistoryPoint>)> = BTreeMap::new();
        for (row, time) in run.times().filter(|(_, time)| time.key.gpu == gpu) {
            let plain = time_as_case(time, row.case_of_any_remote());
            let of_remote =
                if plain.key == time.key { Vec::new() } else { sessions(&points, time) };
            let (_, found) = times
                .entry(plain.key.clone())
                .or_insert_with(|| (plain.clone(), sessions(&points, &plain)));
            found.extend(of_remote);
        }
        let mut entries = Vec::new();
        for (time, sessions) in times.values() {
            let commit = run.commit.as_deref();
            entries.push(expected.update(time, sessions, commit, run.dirty, &args.accept));
        }
        let path = if expected == before {
            Expectations::path(folder, &gpu)
        } else {
            expected.save(folder)?
        };
        files.push((path, entries));
    }
    Ok(files)
}

impl ExpectationResult {
    /// Shows the updates, and gives the exit status of what was found.
    pub(super) fn finish(self, app: &App, args: &ExpectArgs) -> Result<Status> {
        for (path, entries) in &self.updated {
            show_update(app, &app.short(path), entries);
        }
        if let Some(first) = self.orphans.first() {
            app.print_error(&format!(
                "{} {} no case; the first: `{}` on `{}`; `rgpu bench audit` lists all",
                self.orphans.len(),
                by_number(self.orphans.len(), "expected time has", "expected times have"),
                first.case,
                first.gpu
            ));
            return Ok(Exit::Config as u8);
        }
        let mut fail_on = args.fail_on.clone();
        if args.validity == Validity::Strict && !args.update_expectations {
            fail_on.extend([FailOn::New, FailOn::Incomparable]);
        }
        // Otherwise a host that has lost its GPU passes every condition.
        if self.without_gpu > 0 && (args.update_expectations || !fail_on.is_empty()) {
            app.print_error(&format!(
                "no kernel was timed in {}, since the host has no GPU: there is nothing to judge or to \
                 expect",
                counted(self.without_gpu, "case", "cases")
            ));
            return Ok(Exit::Tool as u8);
        }
        if let Some(failure) = self.not_measured {
            show_failure(&failure, failure.exit as u8, false);
            return Ok(failure.exit as u8);
        }
        Ok(status(app, &fail_on, &self.verdicts))
    }
}

/// 1 if a verdict is one that fails.
pub(super) fn status(app: &App, fail_on: &[FailOn], verdicts: &[SuiteVerdict]) -> Status {
    let verdict = |on: &FailOn| match on {
        FailOn::Slower => SuiteVerdict::Slower,
        FailOn::Ambiguous => SuiteVerdict::Ambiguous,
        FailOn::New => SuiteVerdict::New,
        FailOn::Incomparable => SuiteVerdict::Incomparable,
    };
    for on in fail_on.iter().map(verdict) {
        let count = verdicts.iter().filter(|verdict| **verdict == on).count();
        if count > 0 {
            app.print_note(&format!("`--fail-on`: {count} × {}", on.as_str()));
            return Exit::Findings as u8;
        }
    }
    0
}

fn show_update(app: &App, path: &str, entries: &[UpdatedEntry]) {
    let mut table = TextTable::new("case | side | sizes | before: | now: | change: | kept because");
    for entry in entries {
        let change = entry.before_ns.zip(entry.after_ns);
        table.add_row([
            entry.key.case.clone(),
            entry.key.side.clone(),
            entry.key.sizes.clone(),
            entry.before_ns.map(duration).unwrap_or_default(),
            entry.after_ns.map(duration).unwrap_or_default(),
            change.map(|(a, b)| format!("{:+.1} %", (b / a - 1.0) * 100.0)).unwrap_or_default(),
            entry.refused.map(|refusal| refusal.text().to_owned()).unwrap_or_default(),
        ]);
    }
    let changed = entries.iter().filter(|entry| entry.after_ns.is_some()).count();
    // A refusal is told with `--quiet`, too: the exit status does not tell it.
    let is_told = !app.global.quiet || changed < entries.len();
    let tell = |text: &str| {
        if is_told {
            write_stderr(&format!("{text}\n"));
        }
    };
    tell(&format!("{path}: {changed} of {} expected times written", entries.len()));
    if !app.global.quiet {
        let table = table.without_empty_columns();
        let kept = "kept because";
        write_stderr(&table.fitted_with_words(app.columns(), 2, kept, MIN_REASON_WIDTH));
    }
    for (entry, lone) in
        entries.iter().filter_map(|entry| Some((entry, entry.lone_session.as_ref()?)))
    {
        app.print_note(&lone_text(&entry.key, lone));
    }
    let mut refused: Vec<&str> =
        entries.iter().filter_map(|entry| entry.refused).map(|refusal| refusal.name()).collect();
    refused.sort_unstable();
    refused.dedup();
    if !refused.is_empty() {
        tell(&format!("`--accept {}` writes the others too", refused.join(",")));
    }
}

/// Says that one session is far from all others, which alone makes the spread large.
fn lone_text(key: &MeasurementKey, lone: &LoneSession) -> String {
    let LoneSession { run, median_ns, others_ns: [least, most], sessions } = lone;
    let side = if key.side == "kernel" { String::new() } else { format!(" {}", key.side) };
    format!(
        "`{}`{side} at {}: one of {sessions} sessions took {} (`{run}`), the others {} to {}; it \
         alone makes the expected spread large",
        key.case,
        key.sizes,
        duration(*median_ns),
        duration(*least),
        duration(*most)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_session_far_from_all_others_is_told_with_its_run() {
        let key = MeasurementKey {
            case: "gemm:wagmiv67".into(),
            side: "baseline".into(),
            sizes: "m=80".into(),
            ..MeasurementKey::default()
        };
        let lone = LoneSession {
            run: "night".into(),
            median_ns: 375_000.0,
            others_ns: [60_000.0, 72_000.0],
            sessions: 5,
        };
        assert_eq!(
            lone_text(&key, &lone),
            "`gemm:wagmiv67` baseline at m=80: one of 5 sessions took 375 µs (`night`), the others \
             60.0 µs to 72.0 µs; it alone makes the expected spread large"
        );
    }
}
