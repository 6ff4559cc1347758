//! `rgpu bench run` and `rgpu bench resume`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rgpu_protocol::GpuChoice;

use super::args::{ExpectArgs, ResumeArgs, RunArgs};
use super::suite_work::{SuiteWork, seconds_since};
use super::{expect, list, saved, sweep};
use crate::cli::support::app::{App, Status};
use crate::cli::support::kernel_folders::kernel_folders;
use crate::cli::support::profile_request::gpu_choice;
use crate::cli::support::{local_consent, session, started_here, suite_index};
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_model::number_form::{by_number, counted};
use rgpu_model::suite::{RowState, SuiteOptions, SuiteRun, SuiteState};
use rgpu_plan::kernel::{KernelFolders, ProfileMode, find};
use rgpu_remote::RemoteSpec;
use rgpu_run::store::{Cost, InputsRecord, RunFolder, RunRecord, RunState, repository};
use rgpu_work::suite::{MAX_SUITE_ID_CHARS, RunKind, RunningSuite, SuiteCase, SuiteFile, select};

pub(super) fn run(app: &App, args: &RunArgs) -> Result<Status> {
    expect::check(app, &args.expect)?;
    if let Some(suite) = &args.failed {
        let (folder, run) = saved::find(app, suite.as_deref())?;
        let kind = RunKind::Failed(args.reason.clone());
        let taken_up = TakenUp { accept_new: args.place.accept_new, yes: false };
        let (work, mut record) = take_up(app, folder, run, &taken_up)?;
        let rows = work.with_suite(|suite| suite.rows_to_run(&kind));
        if rows.is_empty() {
            if let Some(failure) = other_reasons(&work, args.reason.as_deref()) {
                return Err(failure);
            }
            let id = work.with_suite(|suite| suite.run.id.clone());
            let note = format!("nothing of `{id}` failed: nothing was run");
            return show_unchanged(app, &work, &args.expect, &note);
        }
        return carry_out(app, &work, &mut record, rows, args.until_clean, None, &args.expect);
    }
    let options = options(app, args)?;
    let file = list::file(app, args.targets.file.as_deref())?;
    let cases = cases(app, &file, &options)?;
    if cases.is_empty() {
        return Err(Failure::new(
            Exit::Config,
            "no_targets",
            "every target that matches is generated",
        )
        .hint("`--include-generated` runs them"));
    }
    if file.file.is_none() && args.targets.target.is_empty() && !args.dry_run {
        confirm_every_kernel(app, &cases)?;
    }
    list::refuse_problems(app, &file, cases.iter().map(|(case, _)| case))?;
    if args.dry_run {
        list::print_planned(app, &file, cases)?;
        return Ok(0);
    }
    let here = cases.iter().map(|(_, spec)| spec).find(|spec| session::is_local(spec));
    if let (true, Some(spec)) = (file.is_problem_set(), here) {
        let remote = args.place.remote.as_deref();
        local_consent::require_for(app, spec, remote, "a set of problems with submissions")?;
    }
    if options.parallel.is_some() {
        cases.iter().try_for_each(|(case, spec)| check_can_spread(case, spec, &options))?;
    }
    let (run_id, accept_new) = (args.run_id.as_deref(), args.place.accept_new);
    let (work, mut record) = begin(app, run_id, &file, options, cases, accept_new)?;
    let rows = work.with_suite(|suite| suite.rows_to_run(&RunKind::Open));
    carry_out(app, &work, &mut record, rows, args.until_clean, args.budget, &args.expect)
}

/// Says that every kernel is a case because there is no bench.toml, and asks if some are not the
/// project's own.
fn confirm_every_kernel(app: &App, cases: &[(SuiteCase, RemoteSpec)]) -> Result<()> {
    let own = KernelFolders { kernel_path: Vec::new(), shipped: None, ..kernel_folders(app) };
    let own: Vec<String> = find::list(&own).into_iter().map(|kernel| kernel.name).collect();
    let is_own = |case: &SuiteCase| {
        let name = case.target.split_once(':').map_or("", |(_, name)| name);
        own.iter().any(|own| own == name)
    };
    let foreign = cases.iter().filter(|(case, _)| !is_own(case)).count();
    let all = counted(cases.len(), "case", "cases");
    if foreign == 0 {
        app.print_note(&format!("no bench.toml: every kernel of this project is a case ({all})"));
        return Ok(());
    }
    let what = format!(
        "this project has no bench.toml, and {foreign} of {all} are kernels of `kernel_path`"
    );
    if app.agrees(&format!("{what}. Run all?")) {
        return Ok(());
    }
    Err(Failure::new(Exit::Usage, "not_confirmed", what)
        .hint("`rgpu bench run -t NAME` runs one that `rgpu bench list` shows; `-t '*'` runs all")
        .hint("for cases of your own: `rgpu help bench`"))
}

/// Goes on with a suite.
pub(super) fn resume(app: &App, args: &ResumeArgs) -> Result<Status> {
    expect::check(app, &args.expect)?;
    let (folder, run) = saved::find(app, args.run.as_deref())?;
    // Otherwise a command that was killed left it, and its reports are still to be written.
    let is_done = run.state == SuiteState::Done && run.rows.iter().all(|row| row.state.has_ended());
    let taken_up = TakenUp { accept_new: args.accept_new, yes: args.yes };
    let (work, mut record) = take_up(app, folder, run, &taken_up)?;
    if is_done {
        let id = work.with_suite(|suite| suite.run.id.clone());
        let failed = work.with_suite(|suite| suite.run.count(RowState::Failed));
        let again = match failed {
            0 => String::new(),
            _ => format!("; `rgpu bench run --failed {id}` runs failed ones again"),
        };
        let note = format!("nothing to resume: every case of `{id}` has ended{again}");
        return show_unchanged(app, &work, &args.expect, &note);
    }
    let rows = work.with_suite(|suite| suite.rows_to_run(&RunKind::Open));
    carry_out(app, &work, &mut record, rows, None, args.budget, &args.expect)
}

/// Shows a suite that has nothing to run, after a note that says so, and changes nothing of it. Its
/// times can still become expectations.
fn show_unchanged(
    app: &App,
    work: &SuiteWork<'_>,
    expect: &ExpectArgs,
    note: &str,
) -> Result<Status> {
    let (mut run, status) = work.with_suite(|suite| (suite.run.clone(), suite.status()));
    app.print_note(note);
    let judged = expect::judge(app, work, expect)?;
    run.updates = work.with_suite(|suite| suite.run.updates.clone());
    saved::print(app, &work.folder, &run)?;
    let found = judged.finish(app, expect)?;
    Ok(if status > 0 { status } else { found })
}

/// Refuses to spread cases over the GPUs of one machine if a case names the one that it needs.
fn check_can_spread(case: &SuiteCase, spec: &RemoteSpec, options: &SuiteOptions) -> Result<()> {
    let gpu = options.gpu.as_ref().or(case.settings.gpu.as_ref());
    let Some(gpu) = gpu.filter(|_| !has_many_hosts(spec)) else { return Ok(()) };
    match gpu_choice(gpu) {
        GpuChoice::Any | GpuChoice::Name(_) => Ok(()),
        GpuChoice::Index(_) | GpuChoice::Uuid(_) => {
            let what = format!(
                "`{}` is one machine, and `{}` needs its GPU `{gpu}`: `--parallel` has no second one",
                spec.name, case.id
            );
            Err(Failure::new(Exit::Usage, "one_gpu", what)
                .hint("leave the GPU out, or give a part of its name: `--gpu H200`"))
        }
    }
}

/// Whether each connection to a remote may have a host of its own.
pub(super) fn has_many_hosts(spec: &RemoteSpec) -> bool {
    spec.kind().is_some_and(|kind| kind.has_many_hosts)
}

/// The command line's part of the settings.
fn options(app: &App, args: &RunArgs) -> Result<SuiteOptions> {
    let absolute = |path: &PathBuf| app.cwd.join(path).display().to_string();
    Ok(SuiteOptions {
        targets: args.targets.target.clone(),
        file: args.targets.file.as_ref().map(absolute),
        level: args.level,
        mode: args.mode.map(|mode| mode.name().to_owned()),
        remote: args.place.remote.clone(),
        gpu: args.place.gpu.clone(),
        share_gpu: args.place.share_gpu,
        strict: args.strict,
        lock_clocks_mhz: args.lock_clocks,
        parallel: args.parallel.filter(|count| *count > 1),
        include_generated: args.targets.include_generated,
        iters: args.iters,
        timeout_s: args.timeout.map(|time| time.as_secs().max(1)),
        verify_timeout_s: args.verify_timeout.map(|time| time.as_secs().max(1)),
        min_speedup: args.min_speedup,
        threshold: args.threshold,
    })
}

/// The cases that the options select, with their remotes. With several remotes on the command line
/// every case runs on each.
pub(super) fn cases(
    app: &App,
    file: &SuiteFile,
    options: &SuiteOptions,
) -> Result<Vec<(SuiteCase, RemoteSpec)>> {
    cases_on(app, file, options, &|name| session::spec(app, Some(name)))
}

/// As [`cases`]; `spec` finds the remotes that the options name.
fn cases_on(
    app: &App,
    file: &SuiteFile,
    options: &SuiteOptions,
    spec: &dyn Fn(&str) -> Result<RemoteSpec>,
) -> Result<Vec<(SuiteCase, RemoteSpec)>> {
    let selected = select(file, &options.targets, options.include_generated)?;
    let mode = options.mode.as_deref().and_then(|mode| mode.parse::<ProfileMode>().ok());
    let selected = selected
        .into_iter()
        .flat_map(|case| if case.is_compared(mode) { vec![case] } else { case.sides() });
    let given: Vec<&str> = options.remote.iter().flat_map(|names| names.split(',')).collect();
    let mut cases = Vec::new();
    for case in selected {
        let specs = match (given.as_slice(), &case.settings.remote) {
            ([], None) => vec![session::spec(app, None)?],
            ([], Some(name)) => vec![list::remote_of_case(app, file, &case, name)?],
            (names, _) => names.iter().map(|name| spec(name)).collect::<Result<_>>()?,
        };
        let several = specs.len() > 1;
        for spec in specs {
            let id = if several { format!("{}@{}", case.id, spec.name) } else { case.id.clone() };
            cases.push((SuiteCase { id, ..case.clone() }, spec));
        }
    }
    Ok(cases)
}

/// Creates the suite's folder with everything that is known before anything runs.
pub(super) fn begin<'a>(
    app: &'a App,
    run_id: Option<&str>,
    file: &SuiteFile,
    options: SuiteOptions,
    cases: Vec<(SuiteCase, RemoteSpec)>,
    accept_new: bool,
) -> Result<(SuiteWork<'a>, RunRecord)> {
    let now = jiff::Timestamp::now();
    let runs = app.runs();
    if run_id.is_some_and(|id| id.len() > MAX_SUITE_ID_CHARS) {
        let what = format!("`--run-id` of a suite has at most {MAX_SUITE_ID_CHARS} characters");
        return Err(Failure::new(Exit::Usage, "bad_run_id", what)
            .hint("the ids of its runs begin with it, and have the case behind it"));
    }
    let (id, folder) = runs.create(run_id, "bench", now, None)?;
    let remotes = cases.iter().fold(Vec::<&str>::new(), |mut names, (_, spec)| {
        if !names.contains(&spec.name.as_str()) {
            names.push(&spec.name);
        }
        names
    });
    let level = options.mode.clone().or(options.level.map(|level| level.as_str().to_owned()));
    let record = RunRecord {
        title: match cases.len() {
            1 => "bench, 1 case".to_owned(),
            count => format!("bench, {count} cases"),
        },
        mode: level.unwrap_or_default(),
        argv: app.argv.clone(),
        parent: app.parent.clone(),
        remote: remotes.join(" "),
        cost: Cost::default(),
        ..RunRecord::new(id.clone(), "bench", now)
    };
    started_here::remember(app, &record);
    folder.save(&record)?;
    folder.write_json(
        "inputs.json",
        &InputsRecord { schema: "rgpu.inputs/1".to_owned(), ..InputsRecord::default() },
    )?;
    let shown = file
        .file
        .as_deref()
        .map(|path| path.strip_prefix(&app.config.project).unwrap_or(path).display().to_string());
    let names: Vec<(SuiteCase, String)> =
        cases.iter().map(|(case, spec)| (case.clone(), spec.name.clone())).collect();
    let repository = repository(&app.config.project);
    let suite =
        RunningSuite::begin(&id, now.to_string(), shown, repository, options.clone(), &names);
    let work = SuiteWork {
        app,
        folder,
        cases: cases.into_iter().enumerate().collect(),
        suite: Mutex::new(suite),
        index: Mutex::new(suite_index::open(app)),
        file_folder: file.folder().map(Path::to_owned),
        options,
        accept_new,
        base: None,
    };
    work.save()?;
    Ok((work, record))
}

/// How a suite is resumed.
struct TakenUp {
    accept_new: bool,
    /// Whether the user agreed to continue with a suite that was not started here.
    yes: bool,
}

/// The remotes that the files of a suite name. A suite may come with a project, so they are ones of
/// the user's settings, unless the suite was started here on them.
struct SuiteRemotes<'a> {
    app: &'a App,
    file: PathBuf,
    /// The remotes that the suite was started on, if it was started here.
    started_on: Vec<String>,
}

impl<'a> SuiteRemotes<'a> {
    fn new(app: &'a App, folder: &RunFolder, record: &RunRecord) -> Self {
        let started_on = if started_here::is_known(app, record) {
            record.remote.split(' ').map(str::to_owned).collect()
        } else {
            Vec::new()
        };
        Self { app, file: folder.path().join("suite.json"), started_on }
    }

    /// The remote that the suite's files name so.
    fn spec(&self, name: &str) -> Result<RemoteSpec> {
        if self.started_on.iter().any(|own| own == name) {
            session::spec(self.app, Some(name))
        } else {
            session::spec_of_record(self.app, name, &self.file)
        }
    }

    /// Refuses a suite that names another remote anywhere.
    fn check(&self, run: &SuiteRun, record: &RunRecord) -> Result<()> {
        let chosen = run.options.remote.iter().flat_map(|names| names.split(','));
        let of_rows = run.rows.iter().map(|row| row.remote.as_str());
        let named: BTreeSet<&str> = chosen.chain(of_rows).chain(record.remote.split(' ')).collect();
        let mut named = named.into_iter().filter(|name| !name.is_empty());
        named.try_for_each(|name| self.spec(name).map(drop))
    }
}

/// Takes up a suite with the options that it was begun with.
fn take_up<'a>(
    app: &'a App,
    folder: RunFolder,
    run: SuiteRun,
    taken_up: &TakenUp,
) -> Result<(SuiteWork<'a>, RunRecord)> {
    let record = folder.record()?;
    if run.rows.iter().any(|row| row.target.starts_with(sweep::SUITE_PREFIX)) {
        let what = format!("`{}` is a sweep, whose cases are in no file", record.id);
        let again = shlex::try_join(record.argv.iter().skip(1).map(String::as_str));
        let again = again.unwrap_or_default();
        return Err(Failure::new(Exit::Usage, "is_sweep", what)
            .hint(format!("repeat its command: rgpu {again}")));
    }
    let remotes = SuiteRemotes::new(app, &folder, &record);
    // The user's consent makes it a suite that was started here, on the remotes of its record.
    if taken_up.yes && !started_here::is_known(app, &record) {
        remotes.check(&run, &record)?;
    }
    started_here::check(app, &record, taken_up.yes).map_err(|mut failure| {
        failure.hints.retain(|hint| !hint.contains("runs attach"));
        failure.hint(format!("if that is yours: `rgpu bench resume {} --yes`", record.id))
    })?;
    let folder = folder.follow()?;
    let file = list::file(app, run.options.file.as_deref().map(Path::new))?;
    let options = run.options.clone();
    let now = cases_on(app, &file, &options, &|name| remotes.spec(name))?;
    let mut now: BTreeMap<String, (SuiteCase, RemoteSpec)> =
        now.into_iter().map(|case| (case.0.id.clone(), case)).collect();
    let mut suite = RunningSuite { run };
    let mut cases = BTreeMap::new();
    for (at, row) in suite.run.rows.iter_mut().enumerate() {
        match now.remove(&row.case) {
            Some((case, spec)) => {
                // The remote that the case began on has its open job.
                let spec =
                    if spec.name == row.remote { spec } else { remotes.spec(&row.remote)? };
                cases.insert(at, (case, spec));
            }
            None if !row.state.has_ended() => {
                row.state = RowState::Failed;
                row.exit = Some(Exit::Config as u8);
                row.reason = Some("unknown_target".to_owned());
                row.failure = Some("the suite has no such case any more".to_owned());
            }
            None => {}
        }
    }
    let work = SuiteWork {
        app,
        folder,
        cases,
        suite: Mutex::new(suite),
        index: Mutex::new(suite_index::open(app)),
        file_folder: file.folder().map(Path::to_owned),
        options,
        accept_new: taken_up.accept_new,
        base: None,
    };
    Ok((work, record))
}

/// Runs the rows, repeats those that fail if told to, judges the times and writes the reports.
pub(super) fn carry_out(
    app: &App,
    work: &SuiteWork<'_>,
    record: &mut RunRecord,
    mut rows: Vec<usize>,
    until_clean: Option<u32>,
    budget: Option<Duration>,
    expect: &ExpectArgs,
) -> Result<Status> {
    let started_at = Instant::now();
    if budget.is_some() {
        work.with_time_estimates(|suite, known| suite.order_by_estimated_time(&mut rows, known));
    }
    let end = budget.map(|budget| started_at + budget);
    work.with_suite(|suite| {
        suite.run.state = SuiteState::Running;
    });
    let mut ended = work.run_rows(&rows, end);
    let mut repeats = until_clean.unwrap_or(0);
    while ended.is_ok() && repeats > 0 {
        let failed = work.with_suite(|suite| suite.rows_to_run(&RunKind::Failed(None)));
        if failed.is_empty() {
            break;
        }
        app.print_note(&format!("failed cases that run again: {}", failed.len()));
        repeats -= 1;
        ended = work.run_rows(&failed, end);
    }
    let judged = expect::judge(app, work, expect);
    work.with_suite(|suite| suite.finish(seconds_since(started_at)));
    work.save()?;
    let run = work.with_suite(|suite| suite.run.clone());
    let status = work.with_suite(|suite| suite.status());
    saved::write_reports(app, &work.folder, &run)?;
    record.seconds = run.seconds;
    record.state = match (&ended, run.state) {
        (Err(failure), _) if failure.exit == Exit::Cancelled => RunState::Cancelled,
        (Err(_), _) => RunState::Failed,
        (Ok(()), _) if status > 0 => RunState::Failed,
        (Ok(()), _) => RunState::Done,
    };
    let exit = ended.as_ref().err().map_or(status, |failure| failure.exit as u8);
    record.exit = Some(exit);
    work.folder.save(record)?;
    if let Err(failure) = ended {
        let id = &run.id;
        let done = run.rows.iter().filter(|row| row.state.has_ended()).count();
        let are = by_number(done, "is", "are");
        return Err(failure.hint(format!(
            "{done} of {} cases {are} kept; `rgpu bench resume {id}` continues it",
            run.rows.len()
        )));
    }
    saved::print(app, &work.folder, &run)?;
    let found = judged?.finish(app, expect)?;
    Ok(if status > 0 { status } else { found })
}

/// The failure of `--reason` if cases failed, and none for that reason; `None` if none failed.
fn other_reasons(work: &SuiteWork<'_>, reason: Option<&str>) -> Option<Failure> {
    work.with_suite(|suite| {
        let reasons = suite.reasons();
        let reason = reason.filter(|_| !reasons.is_empty())?;
        let known: Vec<String> =
            reasons.iter().map(|(reason, count)| format!("{reason} ({count})")).collect();
        let what = format!("nothing failed in `{}` for the reason `{reason}`", suite.run.id);
        let failure = Failure::new(Exit::Usage, "nothing_failed", what);
        Some(failure.hint(format!("the reasons of its failed cases: {}", known.join(", "))))
    })
}
