//! `rgpu runs clean`, and the automatic removal by the setting `keep`.

use clap::Args;

use super::super::support::app::{App, Status};
use super::super::support::cleaned::{CleanResult, require_consent};
use rgpu_model::error::{Result, shell_word};
use rgpu_model::number_form::counted;
use rgpu_report::bytes;
use rgpu_run::config::{Origin, is_below};
use rgpu_run::store::{RunLine, Runs, RunsToRemove};

/// Runs of `exec` that left nothing but their output: this many of the newest stay.
const KEPT_WITHOUT_RESULTS: usize = 20;

#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct CleanArgs {
    /// Remove these runs, by their whole ids, whoever made their folders [default: ended runs that
    /// rgpu made here for you, except the newest]
    #[arg(value_name = "RUN", conflicts_with_all = ["keep", "remote", "all"])]
    pub runs: Vec<String>,

    /// Keep this many of the newest
    #[arg(long, default_value_t = 20, conflicts_with = "remote")]
    pub keep: usize,

    /// Remove jobs of this remote that ended and whose results were fetched here
    #[arg(long, short, value_name = "REMOTE")]
    pub remote: Option<String>,

    /// Remove runs with a note too; with --remote every ended job, even if its results were not
    /// fetched
    #[arg(long)]
    pub all: bool,

    /// Remove without asking
    #[arg(long, conflicts_with = "dry_run")]
    pub yes: bool,

    /// Print what would be removed, and remove nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// Removes ended runs after the user agreed: the named ones, or all except the newest. Folders that
/// rgpu has not made here are removed only if they are named, or if the user says so at the
/// terminal.
pub(super) fn clean(app: &App, runs: &Runs, args: &CleanArgs) -> Result<Status> {
    let mut choice = choose(runs, args)?;
    let may_ask = !args.yes && !args.dry_run && app.may_ask();
    let mut foreign_count = choice.foreign.len();
    if may_ask {
        choice.old.append(&mut choice.foreign);
    }
    let total: u64 = choice.old.iter().map(|l| l.bytes).sum();
    let amount = format!("{}, {}", counted(choice.old.len(), "run", "runs"), bytes(total as f64));
    if !args.dry_run && !choice.old.is_empty() {
        let foreign = if may_ask { foreign_count } else { 0 };
        require_consent(app, args.yes, &amount, &question(args, &amount, foreign))?;
        runs.remove(&choice.old)?;
    }
    if may_ask {
        foreign_count = 0;
    }
    if app.global.json {
        let kept = choice.noted + foreign_count;
        let gone = choice.old.into_iter().map(|line| (line.record.id, line.bytes)).collect();
        app.print_json(&CleanResult::new(args.dry_run, gone, kept))?;
        return Ok(0);
    }
    let verb = if args.dry_run { "would remove" } else { "removed" };
    // A dry run is for reading what would go; afterwards the sum is enough.
    for line in choice.old.iter().filter(|_| args.dry_run) {
        app.print(&format!("{verb} {}  {}\n", line.record.id, bytes(line.bytes as f64)));
    }
    app.print_note(&format!("{verb} {amount}"));
    if choice.noted > 0 {
        app.print_note(&format!("{} with a note stay; `--all` removes them too", choice.noted));
    }
    if let (1.., Some(first)) = (foreign_count, choice.foreign.first()) {
        app.print_note(&format!(
            "{foreign_count} that rgpu has not made here stay; to remove one, name it: `rgpu runs \
             clean {}`",
            shell_word(&first.record.id)
        ));
    }
    Ok(0)
}

/// What `runs clean` may remove.
struct Choice {
    /// What it removes.
    old: Vec<RunLine>,
    /// What it removes only if the user is asked at the terminal.
    foreign: Vec<RunLine>,
    /// How many runs stay because they have a note.
    noted: usize,
}

fn choose(runs: &Runs, args: &CleanArgs) -> Result<Choice> {
    if !args.runs.is_empty() {
        let old = runs.ended_runs_named(&args.runs)?;
        return Ok(Choice { old, foreign: Vec::new(), noted: 0 });
    }
    let RunsToRemove { mut made, mut foreign } = runs.ended_runs_to_prune(args.keep)?;
    let all = made.len() + foreign.len();
    for lines in [&mut made, &mut foreign] {
        lines.retain(|line| args.all || line.record.note.is_empty());
    }
    let noted = all - made.len() - foreign.len();
    Ok(Choice { old: made, foreign, noted })
}

/// What the user is asked. `foreign` of the runs were not made here.
fn question(args: &CleanArgs, amount: &str, foreign: usize) -> String {
    let kept = if args.runs.is_empty() {
        format!(", and keep the newest {}", args.keep)
    } else {
        String::new()
    };
    let maker = match foreign {
        0 => String::new(),
        count => format!(" {count} of them rgpu has not made here: they came with the project."),
    };
    format!("Remove {amount}, with all their results{kept}?{maker}")
}

/// Removes ended runs after a command: those of `exec` without results beyond the newest, and by
/// the setting `keep`. Errors do not fail the command.
pub(in crate::cli) fn prune(app: &App) {
    prune_without_results(app);
    prune_by_setting(app);
}

/// Removes the oldest runs of `exec` that left nothing but their output, of those whose folders
/// rgpu has made here.
fn prune_without_results(app: &App) {
    let runs = app.runs();
    if runs.count() <= KEPT_WITHOUT_RESULTS {
        return;
    }
    let removed = runs
        .split_by_maker(runs.ended_runs_without_results())
        .and_then(|bare| runs.remove(bare.made.get(KEPT_WITHOUT_RESULTS..).unwrap_or_default()));
    if let Err(error) = removed {
        app.print_note(&format!("warning: old runs without results cannot be removed: {error}"));
    }
}

/// Removes the oldest ended runs without a note beyond the setting `keep`, if it is set, of those
/// whose folders rgpu has made here.
fn prune_by_setting(app: &App) {
    let Some(keep) = app.config.keep.value else { return };
    // A cloned project may clean its own run folder and no other.
    let is_project_setting = matches!(&app.config.keep.origin, Origin::Project(_));
    if is_project_setting && !is_below(&app.config.runs_dir.value, &app.config.project) {
        return;
    }
    let runs = app.runs();
    if runs.count() <= keep {
        return;
    }
    let pruned = runs.ended_runs_to_prune(keep).and_then(|mut old| {
        old.made.retain(|line| line.record.note.is_empty());
        runs.remove(&old.made)
    });
    if let Err(error) = pruned {
        app.print_note(&format!("warning: old runs cannot be removed (`keep = {keep}`): {error}"));
    }
}
