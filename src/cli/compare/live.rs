//! Builds, checks, times (with interleaved calls) and profiles two kernels in one job on one GPU.

use std::time::Instant;

use super::args::CompareMode;
use super::{CompareArgs, refused, show};
use crate::analysis::compare::{CompareOptions, compare};
use crate::bundle::{DEFAULT_MAX_BYTES, Packer};
use crate::cli::support::app::{App, Status, stdout_is_taken};
use crate::cli::support::dry_run::print_plan;
use crate::cli::support::fetch_consent::wants_nvcc;
use crate::cli::support::profile_request::{self, ProfileCommand};
use crate::cli::support::progress::LiveOutput;
use crate::cli::support::session::{self, OutputOptions};
use crate::cli::support::{nvdisasm, saved_comparison};
use crate::error::{ErrorDocument, Exit, Failure, Result};
use crate::model::Comparison;
use crate::model::comparison::Difference;
use crate::remote::RemoteSpec;
use crate::report;
use crate::run::{CompareRun, ComparisonOutcome, Reporter, RunContext, RunEvent, close};
use crate::store::{InputsRecord, RunFolder, RunRecord, RunState, Runs};
use crate::tool::{self, Target};

/// Runs a comparison and shows it.
pub(super) fn run(app: &App, args: &CompareArgs) -> Result<Status> {
    let [a, b] = args.kernel.as_slice() else {
        return Err(Failure::new(Exit::Usage, "usage", "a comparison needs `--kernel` twice")
            .hint("rgpu compare --kernel BASE --kernel NEW --remote h200"));
    };
    if args.run.events.as_deref() == Some("-") {
        return Err(stdout_is_taken());
    }
    let sides = [side(app, args, a)?, side(app, args, b)?];
    let differing = differing_sizes(&sides);
    if !differing.is_empty() {
        return Err(refused([a, b], &differing).hint("name the sizes: `--problem-sizes n=…`"));
    }
    if let (true, Some((name, all))) = (args.problem_sizes.is_empty(), default_case(&sides[0])) {
        app.say(&format!(
            "on `{name}`, the default of {all} sizes; `--problem-sizes all` compares on each"
        ));
    }
    let mode = args.mode.unwrap_or(CompareMode::Ncu);
    if args.run.dry_run {
        return dry_run(app, args, &sides, mode);
    }
    let now = jiff::Timestamp::now();
    let names = [sides[0].name.clone(), sides[1].name.clone()];
    let spec = session::spec(app, args.place.remote.as_deref())?;
    let (run, out) = (args.run.run_id.as_deref(), args.run.out.as_deref());
    let runs = Runs::new(&app.config.runs_dir.value);
    let name = format!("{}-{}-compare", names[0], names[1]);
    let (id, folder) = runs.create(run, &name, now, out)?;
    let record = RunRecord {
        title: format!("compare {} with {} ({})", names[0], names[1], mode.name()),
        mode: mode.name().to_owned(),
        kernel: format!("{}, {}", names[0], names[1]),
        ..session::record(app, &spec, id, "compare", now)
    };
    folder.save(&record)?;
    folder.write_json("inputs.json", &inputs(&sides))?;
    folder.write("config.toml", app.config.record(&spec).as_bytes())?;
    let (record, outcome) = carry_out(app, args, sides, &folder, record)?;
    finish(app, args, names, &folder, record, outcome)
}

/// Prints the first plan with its exact commands. Touches neither host nor disk.
fn dry_run(
    app: &App,
    args: &CompareArgs,
    sides: &[ProfileCommand; 2],
    mode: CompareMode,
) -> Result<Status> {
    let mut requests = sides.each_ref().map(|side| side.request.clone());
    let modes = mode.modes();
    if let Some(mode) = modes.first() {
        requests.iter_mut().for_each(|request| request.mode = *mode);
    }
    if let [_, later @ ..] = modes.as_slice()
        && !later.is_empty()
    {
        let names: Vec<&str> = later.iter().map(|mode| mode.name()).collect();
        app.say(&format!("this is the first plan; {} follows in its own plan", names.join(", ")));
    }
    print_plan(app, args.place.remote.as_deref(), |facts, toolbox, job| {
        let [a, b] = &requests;
        Ok(tool::plan_pair([Some(a), Some(b)], facts, toolbox, job)?.draft)
    })
}

/// The resolved command of one side.
fn side(app: &App, args: &CompareArgs, kernel: &str) -> Result<ProfileCommand> {
    let mut profile_command = profile_request::resolve(app, &args.side(kernel))?;
    for assumption in &profile_command.assumptions {
        app.say(&format!("assumed: {assumption}"));
    }
    // The interval must be narrow enough to find two equal kernels equal.
    profile_command.request.timing.ci_target =
        (args.threshold / 4.0).min(profile_command.request.timing.ci_target);
    tool::check(&profile_command.request)?;
    Ok(profile_command)
}

/// The kernel's default case and its number of cases. `None` if it has only one.
fn default_case(side: &ProfileCommand) -> Option<(&str, usize)> {
    let Target::Kernel { spec, .. } = &side.request.target else { return None };
    let all = spec.sizes.cases.len();
    spec.sizes.default.as_deref().filter(|_| all > 1).map(|name| (name, all))
}

/// Cases with the same name must have the same sizes, and both sides must have the same cases.
fn differing_sizes(sides: &[ProfileCommand; 2]) -> Vec<Difference> {
    let [a, b] = sides.each_ref().map(|side| &side.inputs.cases);
    if a == b {
        return Vec::new();
    }
    let shown = |cases: &[crate::store::CaseSizes]| {
        let one = |case: &crate::store::CaseSizes| {
            let row = |group: &Vec<i64>| {
                let pairs = case.vars.iter().zip(group).map(|(var, n)| format!("{var}={n}"));
                pairs.collect::<Vec<_>>().join(",")
            };
            let rows: Vec<String> = case.groups.iter().map(row).collect();
            format!("{} ({})", case.name, rows.join("; "))
        };
        cases.iter().map(one).collect::<Vec<_>>().join(" | ")
    };
    vec![Difference { what: "sizes".to_owned(), a: shown(a), b: shown(b) }]
}

/// The inputs of both sides: the common cases and the files of each.
fn inputs([a, b]: &[ProfileCommand; 2]) -> InputsRecord {
    let mut inputs = a.inputs.clone();
    for file in &b.inputs.files {
        if !inputs.files.contains(file) {
            inputs.files.push(file.clone());
        }
    }
    inputs
}

fn carry_out(
    app: &App,
    args: &CompareArgs,
    sides: [ProfileCommand; 2],
    folder: &RunFolder,
    mut record: RunRecord,
) -> Result<(RunRecord, Result<ComparisonOutcome>)> {
    let started_at = Instant::now();
    let spec = session::spec(app, Some(&record.remote))?;
    let live =
        if app.global.quiet || app.global.json { LiveOutput::Hidden } else { LiveOutput::Stderr };
    let id = record.id.clone();
    let events = args.run.events.as_deref();
    let output_options =
        OutputOptions { live, events, accept_new: args.place.accept_new, run: &id, row: None };
    let [mut a, mut b] = sides;
    for side in [&mut a, &mut b] {
        side.request.build.fetch |= wants_nvcc(app, &spec);
        side.request.build.fetch_here = wants_nvcc(app, &RemoteSpec::local());
    }
    let source_folder = a.folder.clone();
    let mode = args.mode.unwrap_or(CompareMode::Ncu);
    let outcome = app.block_on(async {
        let open = session::open(app, spec.clone(), output_options).await?;
        let session::OpenRemote { mut link, mut reporter, cancel, programs, .. } = open;
        let mut context = RunContext {
            folder,
            record: &mut record,
            reporter: &mut reporter,
            cancel,
            input: None,
        };
        let run = CompareRun {
            requests: [a.request, b.request],
            passes: mode.modes(),
            spec: &spec,
            cache: session::facts_cache(app, &spec),
            programs: &programs,
            project: &app.config.project,
            source_folder: &source_folder,
            thresholds: &app.config.thresholds.value,
            nvdisasm: &nvdisasm::candidates(app),
            now_s: jiff::Timestamp::now().as_second(),
            packer: Packer::new(DEFAULT_MAX_BYTES),
        };
        let outcome = run.run(&mut link, &mut context).await;
        let exit = outcome.as_ref().err().map_or(0, |failure| failure.exit as u8);
        reporter.report(&RunEvent::Finished { exit });
        close(link, &mut record).await;
        outcome
    });
    record.lasted(started_at.elapsed().as_secs_f64());
    Ok((record, outcome))
}

/// Writes the comparison into the run folder and shows it.
fn finish(
    app: &App,
    args: &CompareArgs,
    names: [String; 2],
    folder: &RunFolder,
    mut record: RunRecord,
    outcome: Result<ComparisonOutcome>,
) -> Result<Status> {
    let sides = match outcome {
        Ok(sides) => sides,
        Err(failure) => {
            record.state = match failure.exit {
                Exit::Cancelled if record.jobs.iter().all(|j| j.outcome.is_some()) => {
                    RunState::Cancelled
                }
                _ => RunState::Failed,
            };
            record.exit = Some(failure.exit as u8);
            let error_document = ErrorDocument::new(failure.clone(), failure.exit as u8);
            folder.end(&record, Some(&error_document))?;
            return Err(failure);
        }
    };
    let ComparisonOutcome { profiles: [(a, beside_a), (b, beside_b)], paired, parts } = sides;
    let options = CompareOptions {
        names: [&names[0], &names[1]],
        threshold: args.threshold,
        paired: &paired,
    };
    let mut comparison = compare(&a, &b, &options);
    comparison.parts = parts;
    for (name, profile, sidecars) in [("a", &a, &beside_a), ("b", &b, &beside_b)] {
        let side = folder.side(name)?;
        side.write_json("profile.json", profile)?;
        if let Some(hotspots) = &sidecars.hotspots {
            side.write_json("hotspots.json", hotspots)?;
        }
        if let Some(trace) = &sidecars.trace {
            side.write_json("trace.json", trace)?;
        }
    }
    comparison.a.profile = Some("a/profile.json".to_owned());
    comparison.b.profile = Some("b/profile.json".to_owned());
    keep(folder, &comparison)?;
    saved_comparison::show(app, &comparison)?;
    if !app.global.json {
        let path = folder.path().strip_prefix(&app.cwd).unwrap_or(folder.path());
        app.print(&format!("  run         {}\n", path.display()));
    }
    let status = show::status(app, args, &comparison)?;
    record.state = RunState::Done;
    record.exit = Some(status);
    folder.save(&record)?;
    Ok(status)
}

fn keep(folder: &RunFolder, comparison: &Comparison) -> Result<()> {
    folder.write_json("compare.json", comparison)?;
    folder.write("compare.md", report::comparison::markdown(comparison).as_bytes())?;
    Ok(())
}
