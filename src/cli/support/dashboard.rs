//! The folders and hosts that the dashboard and the view of the terminal show.

use super::app::App;
use super::session;
use crate::dashboard::{DashboardContext, DashboardHost};
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_remote::RemoteSpec;

/// The project, its runs, and the hosts of the user's settings.
pub(in crate::cli) fn context(app: &App) -> Result<DashboardContext> {
    let program = std::env::current_exe().map_err(|e| {
        Failure::new(Exit::Config, "no_program", "the path of rgpu itself is unknown").cause(e)
    })?;
    let specs = app.config.remotes.values().cloned().chain([RemoteSpec::local()]);
    let host = |spec: RemoteSpec| DashboardHost {
        facts: session::facts_cache(app, &spec),
        default: spec.name == app.config.default_remote.value,
        name: spec.name,
        address: spec.url,
    };
    Ok(DashboardContext {
        program,
        project: app.config.project.clone(),
        runs: app.cwd.join(&app.config.runs_dir.value),
        own_ids: app.state_ids_file(),
        hosts: specs.map(host).collect(),
    })
}
