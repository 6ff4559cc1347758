//! `rgpu profile --sweep`: one kernel at all combinations of some values, as a suite of its own.

use std::collections::BTreeSet;

use super::args::ExpectArgs;
use super::expect;
use super::run::{begin, carry_out, cases};
use super::suite_work::SuiteWork;
use crate::cli::support::app::{App, Status};
use crate::cli::support::kernel_folders::kernel_folders;
use crate::cli::support::profile_args::ProfileArgs;
use crate::cli::support::terminal::escape_controls;
use rgpu_model::error::{Exit, Failure, Result, nearest, shell_word};
use rgpu_model::suite::{RowState, SuiteOptions, SuiteRow};
use rgpu_model::{Launch, Profile, SharedText};
use rgpu_plan::kernel::find;
use rgpu_report::suite::{PlotPoint, PlotSeries, plot_page, text_plot};
use rgpu_work::suite::{
    Axis, AxisKind, CaseSettings, MAX_CASES, Matrix, RunKind, SuiteFile, TargetKind, TargetSpec,
};

/// The names of the targets of sweeps begin with this.
pub(super) const SUITE_PREFIX: &str = "sweep:";

/// The number that `--plot time` draws.
const TIME: &str = "time";

/// Profiles a kernel at each combination.
pub(in crate::cli) fn run(app: &App, args: &ProfileArgs) -> Result<Status> {
    let name = args.kernel.as_deref().unwrap_or_default();
    refuse_single_run_flags(args)?;
    check_plot_axis(args)?;
    let expect = ExpectArgs { unmeasured: args.unmeasured, ..ExpectArgs::default() };
    expect::check(app, &expect)?;
    let spec = find::find(name, &kernel_folders(app))?.spec;
    let axes: Vec<Axis> = args
        .sweep
        .iter()
        .map(|(name, values)| {
            let is_size = spec.sizes.vars.contains(name);
            let kind = if is_size { AxisKind::Size } else { AxisKind::Define };
            Axis { kind, name: name.clone(), values: values.clone() }
        })
        .collect();
    let matrix = Matrix { axes, ..Matrix::default() };
    let target = TargetSpec {
        suite: "sweep".to_owned(),
        case: spec.name.clone(),
        work: TargetKind::Kernel(name.to_owned()),
        settings: CaseSettings {
            mode: args.mode.or(spec.mode),
            sizes: args.problem_sizes.clone(),
            ..CaseSettings::default()
        },
        matrix: matrix.clone(),
        ..TargetSpec::default()
    };
    let file = SuiteFile { targets: vec![target], max_cases: MAX_CASES, ..SuiteFile::default() };
    let options = SuiteOptions { remote: args.place.remote.clone(), ..SuiteOptions::default() };
    let cases = cases(app, &file, &options)?;
    app.print_note(&case_count_text(cases.len(), &matrix, args));
    let run_id = args.run.run_id.as_deref();
    let (mut work, mut record) = begin(app, run_id, &file, options, cases, args.place.accept_new)?;
    let base = ProfileArgs { problem_sizes: Vec::new(), sweep: Vec::new(), ..args.clone() };
    work.base = Some(base);
    work.with_suite(|suite| {
        suite.run.rows.iter_mut().for_each(|row| row.again = rerun_command(row, args));
    });
    let rows = work.with_suite(|suite| suite.rows_to_run(&RunKind::Open));
    let status = carry_out(app, &work, &mut record, rows, None, None, &expect)?;
    let drawn = plot(app, &work, args)?;
    Ok(if status > 0 { status } else { drawn })
}

/// How many cases the sweep has, for the user to know before they run.
fn case_count_text(count: usize, matrix: &Matrix, args: &ProfileArgs) -> String {
    let s = if count == 1 { "" } else { "s" };
    let remotes = args.place.remote.iter().flat_map(|names| names.split(',')).count();
    let mut text = format!("the sweep has {count} case{s}");
    if matrix.axes.len() > 1 || remotes > 1 {
        text += &format!(": {}", matrix.factors());
    }
    if remotes > 1 {
        text += &format!(" × {remotes} remotes");
    }
    text
}

/// Refuses flags that are about one run.
fn refuse_single_run_flags(args: &ProfileArgs) -> Result<()> {
    let given = [
        ("--events", args.run.events.is_some()),
        ("--out", args.run.out.is_some()),
        ("--detach", args.run.detach),
        ("--dry-run", args.run.dry_run),
    ];
    match given.into_iter().find(|(_, given)| *given) {
        Some((flag, _)) => {
            let what = format!("`{flag}` is for one run, not for a sweep");
            Err(Failure::new(Exit::Usage, "usage", what))
        }
        None => Ok(()),
    }
}

/// The command that profiles one combination alone.
fn rerun_command(row: &SuiteRow, args: &ProfileArgs) -> String {
    let mut words = vec![format!("rgpu profile --kernel {}", shell_word(&row.kernel))];
    let values = row.axes.iter().map(|(name, value)| format!("{name}={value}"));
    words.extend(values.map(|value| format!("--sweep {}", shell_word(value))));
    words.extend(args.mode.map(|mode| format!("--mode {mode}")));
    words.push(format!("--remote {}", shell_word(&row.remote)));
    words.join(" ")
}

/// Refuses to draw against an axis without numbers, before anything runs.
fn check_plot_axis(args: &ProfileArgs) -> Result<()> {
    let Some((axis, values)) = args.sweep.first().filter(|_| !args.plot.is_empty()) else {
        return Ok(());
    };
    if values.iter().any(|value| value.parse::<f64>().is_ok()) {
        return Ok(());
    }
    let what = format!("`--plot` draws against the first `--sweep`, and `{axis}` has no numbers");
    Err(Failure::new(Exit::Usage, "usage", what).hint("name a `--sweep` of numbers first"))
}

/// Draws the wanted numbers against the first axis: on the terminal, and in `plot.html`. Returns
/// the exit status: not 0 if no case has one of the numbers.
fn plot(app: &App, work: &SuiteWork<'_>, args: &ProfileArgs) -> Result<Status> {
    let Some((axis, _)) = args.sweep.first() else { return Ok(0) };
    let mut rows = work.with_suite(|suite| suite.run.rows.clone());
    rows.retain(|row| row.state == RowState::Ok);
    let mut plots = Vec::new();
    let mut status = 0;
    for wanted in &args.plot {
        let mut name = wanted.clone();
        let mut lines: Vec<PlotSeries> = Vec::new();
        for row in &rows {
            let Some((found, point)) = point(app, row, axis, wanted) else { continue };
            name = found;
            let others = row.axes.iter().filter(|(name, _)| *name != axis);
            let words: Vec<String> = others.map(|(name, v)| format!("{name}={v}")).collect();
            let line = words.join(" ");
            match lines.iter_mut().find(|known| known.name == line) {
                Some(known) => known.points.push(point),
                None => lines.push(PlotSeries { name: line, points: vec![point] }),
            }
        }
        if lines.is_empty() {
            let (text, exit) = missing_numbers_text(wanted, &metric_names(app, &rows));
            app.print_error(&text);
            status = status.max(exit as u8);
            continue;
        }
        lines.iter_mut().for_each(|line| line.points.sort_by(|a, b| a.x.total_cmp(&b.x)));
        if !app.global.json {
            app.print(&format!("\n{name} against {axis}\n"));
            for line in &lines {
                app.print(&escape_controls(text_plot(line, app.style().width).as_bytes()));
            }
        }
        plots.push((name, lines));
    }
    if plots.is_empty() {
        return Ok(status);
    }
    let title = format!("{} against {axis}", args.kernel.as_deref().unwrap_or_default());
    work.folder.write("plot.html", plot_page(&title, axis, &plots).as_bytes())?;
    let path = work.folder.path().join("plot.html");
    if !app.global.json {
        app.print(&format!("  plot        {}\n", app.short(&path)));
    }
    Ok(status)
}

/// Says that no case has a number for `--plot`, and what to do. `metrics` are the names of the
/// metrics that the cases have.
fn missing_numbers_text(wanted: &str, metrics: &BTreeSet<String>) -> (String, Exit) {
    let none = format!("no case has a number for `--plot {wanted}`, so it is not drawn");
    if wanted == TIME {
        return (format!("{none}: no kernel was timed on a GPU"), Exit::Tool);
    }
    if metrics.is_empty() {
        let why = "the cases have no metrics of launches; `--mode ncu` and `--mode deep` measure \
                   them where the host allows counters";
        return (format!("{none}: {why}"), Exit::Tool);
    }
    // Users know metrics by what is before the first dot.
    let short = metrics.iter().filter_map(|name| name.split('.').next());
    let known: BTreeSet<&str> = short.chain(metrics.iter().map(String::as_str)).collect();
    let near = nearest(wanted, known);
    let hint = if near.is_empty() {
        "`rgpu report RUN --format csv` on the run of a case lists them".to_owned()
    } else {
        format!("did you mean `{}`?", near.join("`, `"))
    };
    let count = metrics.len();
    (format!("{none}: none of their {count} metrics begins with that; {hint}"), Exit::Usage)
}

/// The names of all metrics that `--plot` can draw.
fn metric_names(app: &App, rows: &[SuiteRow]) -> BTreeSet<String> {
    let launches = rows.iter().filter_map(|row| longest_launch(app, row));
    let numbers = launches.flat_map(|launch| {
        let names = launch.metrics.keys().filter(|name| launch.number(name).is_some());
        names.map(SharedText::to_string).collect::<Vec<_>>()
    });
    numbers.collect()
}

/// The number of a row with its whole name; `None` if it has none, or its value is not a number.
fn point(app: &App, row: &SuiteRow, axis: &str, wanted: &str) -> Option<(String, PlotPoint)> {
    let x = row.axes.get(axis)?.parse::<f64>().ok()?;
    if wanted == TIME {
        let time = row.times.first()?;
        let point = PlotPoint {
            x,
            y: time.median_ns,
            interval: Some(time.ci95_ns),
            title: row.case.clone(),
            marked: false,
        };
        return Some(("time in ns".to_owned(), point));
    }
    let launch = longest_launch(app, row)?;
    let mut matching = launch.metrics.keys().filter(|name| name.starts_with(wanted));
    let (name, y) = matching.find_map(|name| Some((name, launch.number(name)?)))?;
    let title = format!("{}: {y}", row.case);
    Some((name.to_string(), PlotPoint { x, y, interval: None, title, marked: false }))
}

/// The launch of a case that took the longest, whose metrics `--plot` draws.
fn longest_launch(app: &App, row: &SuiteRow) -> Option<Launch> {
    let folder = app.runs().find(row.run.as_deref()?).ok()?;
    let profile: Profile =
        rgpu_run::saved_json::from_slice(&folder.read("profile.json").ok()?).ok()?;
    profile.launches.into_iter().max_by(|a, b| {
        a.duration_ns.unwrap_or_default().total_cmp(&b.duration_ns.unwrap_or_default())
    })
}
