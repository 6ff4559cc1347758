//! Output of `rgpu profile`: the table, the JSON, and the plan of `--dry-run`.

use std::path::Path;

use rgpu_protocol::HostFacts;

use super::ProfileArgs;
use super::request::ProfileCommand;
use crate::bundle;
use crate::cli::support::app::{App, Status};
use crate::cli::support::session;
use crate::error::Result;
use crate::model::Profile;
use crate::report;
use crate::store::RunFolder;
use crate::tool::{self, Draft, JobName, Toolbox};

/// Prints the result on stdout, or on stderr if `--events -` uses stdout.
pub(super) fn result(app: &App, args: &ProfileArgs, profile: &Profile, folder: &RunFolder) {
    let id = if app.global.json { "json" } else { "table" };
    let Some(report) = report::report(id) else { return };
    let mut text = report.text(&profile.into(), &app.style());
    if !app.global.json {
        text += &format!("  run         {}\n", short(app, folder.path()));
    }
    match args.run.events.as_deref() {
        Some("-") => app.say(text.trim_end()),
        _ => app.print(&text),
    }
}

/// The path relative to the current folder, if it is inside.
pub(super) fn short(app: &App, path: &Path) -> String {
    path.strip_prefix(&app.cwd).unwrap_or(path).display().to_string()
}

/// Prints the plan, the harness and the exact commands. Touches neither host nor disk.
pub(super) fn dry_run(
    app: &App,
    args: &ProfileArgs,
    profile_command: &ProfileCommand,
) -> Result<Status> {
    planned(app, args.place.remote.as_deref(), |facts, toolbox, job| {
        let mut request = profile_command.request.clone();
        if crate::run::first_plan(&mut request, facts) {
            app.say("this is the first plan: what it sees decides what ncu is then asked for");
        }
        Ok(tool::plan(&request, facts, toolbox, job)?)
    })
}

/// Prints a plan made from the saved facts of a host.
pub(in crate::cli) fn planned(
    app: &App,
    remote: Option<&str>,
    plan: impl Fn(&HostFacts, &Toolbox, &JobName) -> Result<Draft>,
) -> Result<Status> {
    let spec = session::spec(app, remote)?;
    let known = session::facts_cache(app, &spec).last();
    if known.is_none() {
        app.say(&format!(
            "nothing is known of `{}` yet, so this is the plan for a host with a GPU and every tool; `rgpu remote check {}` asks it",
            spec.name, spec.name
        ));
    }
    let facts = known.unwrap_or_else(|| tool::assumed(&spec.name, std::env::consts::ARCH));
    let toolbox = session::programs(app)?.toolbox(&facts.agent.arch);
    let job = JobName { run: "dry-run".to_owned(), sequence: 1 };
    let draft = plan(&facts, &toolbox, &job)?;
    let packed = bundle::Packer::new(bundle::DEFAULT_MAX_BYTES).pack(draft)?;
    if app.global.json {
        app.print_json(&packed.plan)?;
        return Ok(0);
    }
    app.print(&bundle::commands(&packed.plan));
    for file in &packed.plan.files {
        app.print(&format!("# sends {}  {}\n", file.path, report::bytes(file.size as f64)));
    }
    if app.global.verbose > 0 {
        app.print_json(&packed.plan)?;
    }
    Ok(0)
}
