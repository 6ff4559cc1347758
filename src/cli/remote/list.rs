//! `rgpu remote list`, and the document with the current settings.

use rgpu_protocol::HostFacts;
use schemars::JsonSchema;
use serde::Serialize;

use super::check::gpus;
use super::rental;
use crate::cli::support::app::{App, Status};
use crate::cli::support::session;
use rgpu_model::error::Result;
use rgpu_remote::{Price, RemoteSpec};
use rgpu_report::TextTable;
use rgpu_run::config::Config;

/// A state with less room than this, in characters, goes below the table.
const MIN_STATE_WIDTH: usize = 24;

/// The output of `remote list`, `add`, `default` and `remove` with `--json` (`rgpu.remotes/1`).
#[derive(Serialize, JsonSchema)]
pub(in crate::cli) struct RemoteList {
    /// Name and version of this schema: `rgpu.remotes/1`.
    schema: &'static str,
    /// The remote that commands use without `--remote`.
    default_remote: String,
    /// All remotes sorted by name, with `local` (this machine) last.
    remotes: Vec<RemoteLine>,
}

/// A remote in the user's settings.
#[serde_with::skip_serializing_none]
#[derive(Serialize, JsonSchema)]
struct RemoteLine {
    /// The remote's name.
    name: String,
    /// The remote's address.
    url: String,
    /// Whether it is the default remote.
    default: bool,
    /// Its price in US dollars per hour, if the user's settings have one.
    price_per_hour: Option<Price>,
    /// The state of a rented remote; only in `remote list`.
    rental: Option<rental::RentalState>,
    /// Facts about the host, from the last connection.
    host: Option<HostFacts>,
}

pub(super) fn list(app: &App) -> Result<Status> {
    let specs = specs(&app.config);
    let states = rental::states(app, &specs)?;
    let document = document(app, &app.config, &specs, states);
    if app.global.json {
        app.print_json(&document)?;
        return Ok(0);
    }
    // A platform's state may be long, so it gives way to the other columns.
    let mut table = TextTable::new("  remote | address | GPUs (last seen) | state");
    if !document.remotes.iter().any(|line| line.default) {
        app.print_note(&format!(
            "the default remote is `{}`, by {}",
            document.default_remote, app.config.default_remote.origin
        ));
    }
    for line in document.remotes {
        table.add_row([
            format!("{} {}", if line.default { "*" } else { " " }, line.name),
            line.url,
            line.host.as_ref().map(gpus).unwrap_or_default(),
            line.rental.as_ref().map(rental::RentalState::words).unwrap_or_default(),
        ]);
    }
    app.print(&table.without_empty_columns().fitted_with_words(
        app.columns(),
        0,
        "state",
        MIN_STATE_WIDTH,
    ));
    Ok(0)
}

/// With `--json`, prints the settings after a change of the user's file. Asks no platform.
pub(super) fn print_settings(app: &App) -> Result<Status> {
    if app.global.json {
        let config = app.reload_settings()?;
        let specs = specs(&config);
        let states = specs.iter().map(|_| None).collect();
        app.print_json(&document(app, &config, &specs, states))?;
    }
    Ok(0)
}

fn specs(config: &Config) -> Vec<RemoteSpec> {
    config.remotes.values().cloned().chain([RemoteSpec::local()]).collect()
}

fn document(
    app: &App,
    config: &Config,
    specs: &[RemoteSpec],
    states: Vec<Option<rental::RentalState>>,
) -> RemoteList {
    let now = jiff::Timestamp::now().as_second();
    let default = &config.default_remote.value;
    let line = |(rental, spec): (Option<rental::RentalState>, &RemoteSpec)| RemoteLine {
        name: spec.name.clone(),
        url: spec.url.clone(),
        default: spec.name == *default,
        price_per_hour: spec.price_per_hour,
        rental,
        host: session::facts_cache(app, spec).load(now),
    };
    RemoteList {
        schema: "rgpu.remotes/1",
        default_remote: default.clone(),
        remotes: states.into_iter().zip(specs).map(line).collect(),
    }
}
