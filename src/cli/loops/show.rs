//! `rgpu loop status`, `best` and `report`.

use super::LoopArgs;
use crate::cli::support::app::{App, Status};
use rgpu_model::error::{Exit, Failure, Result, indent_continuation};
use rgpu_report::{TextTable, time_span, timestamp};
use rgpu_work::loops::{
    AwaitedAnswer, IterationRecord, KeptState, LoopStatus, MeasuredTime, Phase,
};

fn load(app: &App, args: &LoopArgs) -> Result<LoopStatus> {
    let loops = super::open_existing(app)?;
    let row = loops.find(args.id.as_deref())?;
    Ok(LoopStatus::for_row(&loops, &row)?)
}

/// Shows the state of a loop.
pub(super) fn status(app: &App, args: &LoopArgs) -> Result<Status> {
    print_status(app, &load(app, args)?)?;
    Ok(0)
}

/// Prints a loop's state.
pub(super) fn print_status(app: &App, status: &LoopStatus) -> Result<()> {
    if app.global.json {
        return app.print_json(status);
    }
    app.print(&status_text(status));
    Ok(())
}

/// The state in a few lines.
pub(in crate::cli) fn status_text(status: &LoopStatus) -> String {
    let mut text = format!("{}\n", status.id);
    let mut row = |name: &str, value: String| {
        if !value.is_empty() {
            text += &format!("  {name:<9}{}\n", indent_continuation(&value, 11));
        }
    };
    let phase = match status.phase {
        Phase::Stopped | Phase::Init => status.state.clone(),
        phase => format!("{} ({})", status.state, phase.as_str()),
    };
    let iteration = format!("iteration {} of {}", status.iteration, status.max_iterations);
    row("state", format!("{phase}, {iteration}"));
    row("stop", status.stop.as_ref().map(stop_text).unwrap_or_default());
    row("kernel", status.kernel_path.clone());
    row(
        "process",
        match (status.pid, status.phase) {
            (_, Phase::Stopped) => String::new(),
            (Some(pid), _) => pid.to_string(),
            (None, _) => "none; `rgpu loop resume` continues it".to_owned(),
        },
    );
    let awaited =
        |answer: &AwaitedAnswer| format!("{}; the prompt is {}", answer.file, answer.prompt);
    row("awaits", status.awaited.as_ref().map(awaited).unwrap_or_default());
    let failure = |why: &String| {
        let count = status.infra_failures.max(1);
        let ends = if count == 1 { "" } else { "s" };
        format!("{why} ({count} failure{ends} in a row; it is tried again)")
    };
    row("failure", status.failure.as_ref().map(failure).unwrap_or_default());
    row("start", kept_time(status.start.as_ref()));
    row("best", best_text(status));
    let target = status.target.threshold.map(|threshold| {
        let metric = status.target.metric.as_str();
        let reached = if status.target.reached { "reached" } else { "not reached" };
        format!("{metric} {threshold}, {reached}")
    });
    row("target", target.unwrap_or_default());
    row("kept", format!("{} of {}", status.kept, status.iterations.len()));
    row("time", format!("{} of {}", time_span(status.active_s), time_span(status.max_active_s)));
    row("files", status.folder.clone());
    let last = status.final_comparison.as_ref();
    row("final", last.map(|last| last.summary.clone()).unwrap_or_default());
    text
}

fn stop_text(stop: &rgpu_work::loops::Stop) -> String {
    format!("{}: {}", stop.reason.as_str(), stop.text)
}

/// A time in a few words: `85.10 µs [84.90, 85.30]`.
fn time_text(time: &MeasuredTime) -> String {
    let interval = time.interval_us.map(|[low, high]| format!(" [{low:.2}, {high:.2}]"));
    format!("{:.2} µs{}", time.gmean_us, interval.unwrap_or_default())
}

fn kept_time(kept: Option<&KeptState>) -> String {
    let Some(kept) = kept else { return String::new() };
    kept.time.as_ref().map_or_else(|| "not measured".to_owned(), time_text)
}

fn best_text(status: &LoopStatus) -> String {
    let Some(best) = &status.best else { return String::new() };
    match best.iteration {
        0 => "the start".to_owned(),
        iteration => {
            let factor = status.speedup().map(|factor| format!(", {factor:.2} times as fast"));
            let factor = factor.unwrap_or_default();
            format!("{} (iteration {iteration}{factor})", kept_time(Some(best)))
        }
    }
}

/// Shows the best state.
pub(super) fn best(app: &App, args: &LoopArgs) -> Result<Status> {
    let status = load(app, args)?;
    let Some(best) = &status.best else {
        let what = "the loop has not measured its start yet";
        return Err(
            Failure::new(Exit::Usage, "no_best", what).hint("`rgpu loop status` shows its phase")
        );
    };
    if app.global.json {
        app.print_json(&status)?;
        return Ok(0);
    }
    let mut text = String::new();
    let mut row = |name: &str, value: String| {
        if !value.is_empty() {
            text += &format!("{name:<9}{}\n", indent_continuation(&value, 9));
        }
    };
    row("iteration", format!(" {}", best.iteration));
    row("time", kept_time(Some(best)));
    row("files", best.files.clone());
    row("commit", best.commit.clone().unwrap_or_default());
    row("profile", best.profile.clone().unwrap_or_default());
    row("cubin", best.cubins.join("\n"));
    app.print(&text);
    Ok(0)
}

pub(super) fn report(app: &App, args: &LoopArgs) -> Result<Status> {
    let status = load(app, args)?;
    if app.global.json {
        app.print_json(&status)?;
        return Ok(0);
    }
    app.print(&status_text(&status));
    if !status.iterations.is_empty() {
        app.print(&format!("\n{}", table(app, &status.iterations)));
    }
    app.print(&format!("\n{}\n", final_comparison_text(&status)));
    app.print_note(&format!("started {}", timestamp(&status.started)));
    Ok(0)
}

/// The iterations as a table, with the reason of each.
fn table(app: &App, iterations: &[IterationRecord]) -> String {
    let mut table = TextTable::new("iter: | outcome | speedup: | again: | claimed: | why");
    for record in iterations {
        let factor = |comparison: &Option<rgpu_work::loops::LoopComparison>| {
            comparison.as_ref().map(|it| format!("{:.3}", it.speedup)).unwrap_or_default()
        };
        let claimed = record.claim.as_ref().and_then(|claim| claim.metric_value);
        table.add_row([
            record.iteration.to_string(),
            record.outcome.as_str().to_owned(),
            factor(&record.comparison),
            factor(&record.confirmation),
            claimed.map(|value| value.to_string()).unwrap_or_default(),
            record.reason.lines().next().unwrap_or_default().to_owned(),
        ]);
    }
    table.without_empty_columns().fitted(app.columns(), 5)
}

/// How the best compares with the start, in a line.
fn final_comparison_text(status: &LoopStatus) -> String {
    match (&status.final_comparison, status.kept) {
        (Some(last), _) => format!("best against start, measured again: {}", last.summary),
        (None, 0) => "nothing was kept: the project is as it was".to_owned(),
        (None, _) if status.phase == Phase::Stopped => {
            "the best was not compared with the start".to_owned()
        }
        (None, _) => "the best is compared with the start when the loop stops".to_owned(),
    }
}
