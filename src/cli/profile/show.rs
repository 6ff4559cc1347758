//! Output of `rgpu profile`: the table, the JSON, and the plan of `--dry-run`.

use crate::cli::support::app::{App, Status};
use crate::cli::support::dry_run::{leave_out_compile_here, print_plan};
use crate::cli::support::profile_args::ProfileArgs;
use crate::cli::support::profile_request::ProfileCommand;
use crate::cli::support::session;
use rgpu_model::Profile;
use rgpu_model::error::Result;
use rgpu_plan::tool;
use rgpu_report as report;
use rgpu_run::store::RunFolder;

/// Prints the result on stdout, or on stderr if `--events -` uses stdout.
pub(super) fn result(app: &App, args: &ProfileArgs, profile: &Profile, folder: &RunFolder) {
    let id = if app.global.json { "json" } else { "table" };
    let Some(report) = report::report(id) else { return };
    let mut text = report.text(&profile.into(), &app.style());
    if !app.global.json {
        text += &format!("  run         {}\n", app.short(folder.path()));
    }
    match args.run.events.as_deref() {
        Some("-") => app.print_note(text.trim_end()),
        _ => app.print(&text),
    }
}

/// Prints the plan of `--dry-run`: its commands and the files it sends; with `--json` as JSON, with
/// `-v` as both. Touches neither host nor disk.
pub(super) fn dry_run(
    app: &App,
    args: &ProfileArgs,
    profile_command: &ProfileCommand,
) -> Result<Status> {
    let remote = args.place.remote.as_deref();
    let spec = session::spec(app, remote)?;
    print_plan(app, remote, |facts, binaries, job| {
        let mut request = profile_command.request.clone();
        leave_out_compile_here(app, &spec, &mut request, facts)?;
        if rgpu_run::run::first_plan(&mut request, facts) {
            app.print_note(
                "this is the first plan; its result decides what ncu is asked to collect",
            );
        }
        Ok(tool::plan(&request, facts, binaries, job)?)
    })
}
