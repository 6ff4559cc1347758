//! Builds, checks, times (with interleaved calls) and profiles two kernels in one job on one GPU.

use super::args::CompareMode;
use super::{CompareArgs, refused, show};
use crate::cli::support::app::{App, Status, show_failure, stdout_is_taken};
use crate::cli::support::comparison_result::write_comparison;
use crate::cli::support::dry_run::{leave_out_compile_here, print_plan};
use crate::cli::support::fetch_consent::allow_agreed_nvcc;
use crate::cli::support::followed_run::{FollowedRun, NewRun};
use crate::cli::support::profile_request::{self, ProfileCommand};
use crate::cli::support::session::{self, OutputOptions};
use crate::cli::support::{local_consent, nvdisasm, saved_comparison, unmeasured};
use rgpu_model::comparison::Difference;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_plan::tool::{self, ProfileTarget};
use rgpu_remote::HostRequest;
use rgpu_run::run::{CompareRun, ComparisonOutcome};
use rgpu_run::store::{InputsRecord, RunRecord};

/// Runs a comparison and shows it.
pub(super) fn run(app: &App, args: &CompareArgs) -> Result<Status> {
    let sides = sides(app, args)?;
    for assumption in sides.iter().flat_map(|side| &side.assumptions) {
        app.print_note(&format!("assumed: {assumption}"));
    }
    if let (true, Some((name, all))) = (args.problem_sizes.is_empty(), default_case(&sides[0])) {
        app.print_note(&format!(
            "on `{name}`, the default of {all} sizes; `--problem-sizes all` compares on each"
        ));
    }
    let mode = args.mode.unwrap_or(CompareMode::Ncu);
    if args.run.dry_run {
        return dry_run(app, args, &sides, mode);
    }
    if let Some(foreign) = sides.iter().find_map(|side| side.foreign.as_deref()) {
        local_consent::require(app, args.place.remote.as_deref(), foreign)?;
    }
    let spec = session::spec(app, args.place.remote.as_deref())?;
    let [a, b] = sides.each_ref().map(|side| side.name.as_str());
    let new = NewRun {
        command: "compare",
        name: &format!("{a}-{b}-compare"),
        run_id: args.run.run_id.as_deref(),
        out: args.run.out.as_deref(),
        detach: false,
    };
    let run = FollowedRun::begin(app, &spec, &new, &inputs(&sides), |record| RunRecord {
        title: format!("compare {a} with {b} ({})", mode.name()),
        mode: mode.name().to_owned(),
        kernel: format!("{a}, {b}"),
        ..record
    })?;
    follow(app, args, sides, run)
}

/// Resumes a comparison whose command has gone.
pub(in crate::cli) fn attach(app: &App, args: &CompareArgs, run: FollowedRun) -> Result<Status> {
    follow(app, args, sides(app, args)?, run)
}

/// Follows a comparison to its end, and shows it.
fn follow(
    app: &App,
    args: &CompareArgs,
    sides: [ProfileCommand; 2],
    mut run: FollowedRun,
) -> Result<Status> {
    let names = sides.each_ref().map(|side| side.name.clone());
    match carry_out(app, args, sides, &mut run) {
        Ok(outcome) => finish(app, args, names, run, outcome),
        Err(failure) => {
            run.record_end(Some(&failure), failure.exit as u8)?;
            Err(failure)
        }
    }
}

/// The resolved commands of both sides.
fn sides(app: &App, args: &CompareArgs) -> Result<[ProfileCommand; 2]> {
    let [a, b] = args.kernel.as_slice() else {
        return Err(Failure::new(Exit::Usage, "usage", "a comparison needs `--kernel` twice")
            .hint("rgpu compare --kernel BASE --kernel NEW --remote h200"));
    };
    if args.run.events.as_deref() == Some("-") {
        return Err(stdout_is_taken());
    }
    let sides = [side(app, args, a)?, side(app, args, b)?];
    let differing = differing_sizes(&sides);
    if differing.is_empty() {
        Ok(sides)
    } else {
        let mut failure = refused([a, b], &differing);
        // Kernels in one job get the same sizes, also with `--force`.
        failure.hints = vec![sizes_hint(&sides)];
        Err(failure)
    }
}

/// What to type for two kernels whose sizes differ.
fn sizes_hint(sides: &[ProfileCommand; 2]) -> String {
    let vars = sides.each_ref().map(|side| side.inputs.cases.first().map(|case| &case.vars[..]));
    common_sizes_hint(vars.map(Option::unwrap_or_default))
}

/// As [`sizes_hint`], for the size variables of both kernels.
fn common_sizes_hint([a, b]: [&[String]; 2]) -> String {
    let is_same = a.len() == b.len() && a.iter().all(|var| b.contains(var));
    if is_same && !a.is_empty() {
        let values: Vec<String> = a.iter().map(|var| format!("{var}=…")).collect();
        format!("name the sizes for both: `--problem-sizes {}`", values.join(","))
    } else {
        "no `--problem-sizes` fits both kernels: profile each, then `rgpu compare latest~1 \
                  latest --force` compares the two runs"
            .to_owned()
    }
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
        app.print_note(&format!(
            "this is the first plan; {} follows in its own plan",
            names.join(", ")
        ));
    }
    let remote = args.place.remote.as_deref();
    let spec = session::spec(app, remote)?;
    print_plan(app, remote, |facts, binaries, job| {
        let mut requests = requests.clone();
        for request in &mut requests {
            leave_out_compile_here(app, &spec, request, facts)?;
        }
        let [a, b] = &requests;
        Ok(tool::plan_pair([Some(a), Some(b)], facts, binaries, job)?.draft)
    })
}

/// The resolved command of one side.
fn side(app: &App, args: &CompareArgs, kernel: &str) -> Result<ProfileCommand> {
    let mut profile_command = profile_request::resolve(app, &args.side(kernel))?;
    if !matches!(profile_command.request.target, ProfileTarget::Kernel { .. }) {
        let what = format!("`{kernel}` is a program, and kernels are compared side by side");
        return Err(Failure::new(Exit::Usage, "usage", what)
            .hint("profile each, then `rgpu compare latest~1 latest` compares the two runs"));
    }
    // The interval must be narrow enough to find two equal kernels equal.
    profile_command.request.timing.ci_target =
        (args.threshold / 4.0).min(profile_command.request.timing.ci_target);
    tool::check(&profile_command.request)?;
    Ok(profile_command)
}

/// The kernel's default case and its number of cases. `None` if it has only one.
fn default_case(side: &ProfileCommand) -> Option<(&str, usize)> {
    let ProfileTarget::Kernel { spec, .. } = &side.request.target else { return None };
    let all = spec.sizes.cases.len();
    spec.sizes.default.as_deref().filter(|_| all > 1).map(|name| (name, all))
}

/// Cases with the same name must have the same sizes, and both sides must have the same cases.
fn differing_sizes(sides: &[ProfileCommand; 2]) -> Vec<Difference> {
    let [a, b] = sides.each_ref().map(|side| &side.inputs.cases);
    if a == b {
        return Vec::new();
    }
    let shown = |cases: &[rgpu_run::store::CaseSizes]| {
        let one = |case: &rgpu_run::store::CaseSizes| {
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
    run: &mut FollowedRun,
) -> Result<ComparisonOutcome> {
    let spec = session::spec(app, Some(&run.record.remote))?;
    let [mut a, mut b] = sides;
    for side in [&mut a, &mut b] {
        allow_agreed_nvcc(app, &spec, &mut side.request.build);
    }
    let compare_run = CompareRun {
        requests: [a.request, b.request],
        passes: args.mode.unwrap_or(CompareMode::Ncu).modes(),
        project: &app.config.project,
        source_folder: &a.folder,
        thresholds: &app.config.thresholds.value,
        nvdisasm: &nvdisasm::search(app),
    };
    let events = args.run.events.as_deref();
    let output_options = OutputOptions {
        host: HostRequest::with_queue_timeout(args.run.queue_timeout),
        ..OutputOptions::with_progress_bar(app, events, args.place.accept_new)
    };
    let status = |outcome: &Result<ComparisonOutcome>| {
        outcome.as_ref().err().map_or(0, |failure| failure.exit as u8)
    };
    run.connect_and_run(app, &spec, output_options, status, async |run_session, context| {
        compare_run.run(run_session, context).await
    })
}

/// Writes the comparison into the run folder and shows it.
fn finish(
    app: &App,
    args: &CompareArgs,
    names: [String; 2],
    mut run: FollowedRun,
    outcome: ComparisonOutcome,
) -> Result<Status> {
    let names = names.each_ref().map(String::as_str);
    let not_measured = outcome
        .profiles
        .iter()
        .find_map(|(profile, _)| unmeasured::not_measured(app, profile, None, args.unmeasured));
    let (comparison, _) = write_comparison(&run.folder, names, args.threshold, outcome)?;
    saved_comparison::show(app, &comparison)?;
    if !app.global.json {
        app.print(&format!("  run         {}\n", app.short(run.folder.path())));
    }
    if let Some(failure) = not_measured {
        show_failure(&failure, failure.exit as u8, false);
        run.record_end(Some(&failure), failure.exit as u8)?;
        return Ok(failure.exit as u8);
    }
    let status = show::status(app, args, &comparison)?;
    run.record_end(None, status)?;
    Ok(status)
}

#[cfg(test)]
mod tests {
    use super::common_sizes_hint;

    #[test]
    fn the_hint_names_sizes_only_where_both_kernels_have_them() {
        let vars = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let (n, rows_cols, cols_rows) =
            (vars(&["n"]), vars(&["rows", "cols"]), vars(&["cols", "rows"]));
        let hint = common_sizes_hint([&rows_cols, &cols_rows]);
        assert_eq!(hint, "name the sizes for both: `--problem-sizes rows=…,cols=…`");
        for pair in [[&n, &rows_cols], [&rows_cols, &n], [&n, &Vec::new()]] {
            let hint = common_sizes_hint(pair.map(Vec::as_slice));
            assert!(hint.contains("no `--problem-sizes` fits both kernels"), "{hint}");
        }
    }
}
