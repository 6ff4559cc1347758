//! `rgpu loop start`, `resume` and `stop`.

use std::path::PathBuf;

use clap::Args;

use super::{LoopArgs, exit_status, settings, show};
use crate::cli::support::app::{App, Status};
use rgpu_model::error::{Exit, Failure, Result, shell_word};
use rgpu_work::loops::{LoopConfig, LoopMode, LoopRunner, LoopSetup, LoopStatus, Phase};

#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct StartArgs {
    /// The file with the loop's settings
    #[arg(value_name = "loop.toml")]
    pub file: PathBuf,

    /// Keys of loop.toml that replace those of the file, such as max_iterations=600
    #[arg(value_name = "KEY=VALUE")]
    pub overrides: Vec<String>,

    /// Who proposes and reviews [default: `mode` of the file, else manual]
    #[arg(long, value_enum)]
    pub mode: Option<LoopMode>,

    /// Keep changes although the kernel could have changed its own time (`unprotected`)
    #[arg(long)]
    pub allow_unprotected: bool,

    /// Leave an unfinished loop, and begin with the project as it is
    #[arg(long)]
    pub fresh: bool,
}

/// Starts a loop and runs it until it stops.
pub(super) fn start(app: &App, args: &StartArgs) -> Result<Status> {
    let mut overrides = args.overrides.clone();
    overrides.extend(args.mode.map(|mode| format!("mode={}", mode.as_str())));
    overrides.extend(args.allow_unprotected.then(|| "allow_unprotected=true".to_owned()));
    let (mut config, origin) = LoopConfig::read(&args.file, &overrides)?;
    let file = shell_word(args.file.display());
    config.refuse_commands_of_agent(&format!("start {file}"))?;
    if let Err(failure) = settings::resolve(app, &mut config, &origin) {
        // A loop that was killed while it restored files has left the kernel incomplete.
        if let (false, Ok(loops)) = (args.fresh, super::open_existing(app)) {
            loops.refuse_unfinished()?;
        }
        return Err(failure);
    }
    let loops = super::open(app)?;
    let runner = LoopRunner::start(loops, config, args.fresh, setup(app))?;
    end(app, runner.run()?)
}

/// Goes on with a loop.
pub(super) fn resume(app: &App, args: &LoopArgs) -> Result<Status> {
    let loops = super::open_existing(app)?;
    loops.find(args.id.as_deref())?.config.refuse_commands_of_agent("resume")?;
    let runner = LoopRunner::resume(loops, args.id.as_deref(), setup(app))?;
    end(app, runner.run()?)
}

/// Asks a loop to stop. If no process runs it, this one ends it.
pub(super) fn stop(app: &App, args: &LoopArgs) -> Result<Status> {
    let mut loops = super::open_existing(app)?;
    let row = loops.find(args.id.as_deref())?;
    if row.state.phase == Phase::Stopped {
        let failure = Failure::new(Exit::Usage, "wrong_state", "the loop has stopped already");
        return Err(failure.hint("`rgpu loop report` shows how it went"));
    }
    loops.ask_to_stop(row.number)?;
    if loops.holder().is_some() {
        app.print_note(
            "stop requested; the loop ends running commands and compares the best with the start",
        );
        if app.global.json {
            app.print_json(&LoopStatus::for_row(&loops, &row)?)?;
        }
        return Ok(0);
    }
    loops.ask_to_stop(row.number)?;
    let runner = LoopRunner::resume(loops, Some(&row.id), setup(app))?;
    end(app, runner.run()?).map(|_| 0)
}

fn end(app: &App, status: LoopStatus) -> Result<Status> {
    let exit = exit_status(&status);
    show::print_status(app, &status)?;
    Ok(exit)
}

fn setup(app: &App) -> LoopSetup {
    let is_quiet = app.global.quiet;
    LoopSetup {
        program: PathBuf::from("/proc/self/exe"),
        runs_dir: app.config.runs_dir.value.clone(),
        on_line: Box::new(move |line| {
            if !is_quiet {
                crate::cli::support::terminal::write_stderr(&format!("{line}\n"));
            }
        }),
    }
}
