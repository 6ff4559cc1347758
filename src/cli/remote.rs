//! `rgpu remote`: manages the user's GPU hosts.

mod add;
mod check;
mod kind_settings;
mod list;
mod rental;

use clap::Subcommand;

use super::support::app::{App, Status};
use super::support::session;
use rgpu_model::error::{Exit, Failure, Result, nearest};
use rgpu_run::config::configured_remotes_hint;

#[cfg(test)]
pub(super) use check::HostSummary;
#[cfg(test)]
pub(super) use list::RemoteList;
#[cfg(test)]
pub(super) use rental::{Login, RentalStatus};

/// Name, list and check the GPU hosts you have
#[derive(Subcommand, Clone, Debug)]
pub(super) enum RemoteCommand {
    /// Name a host: rgpu remote add h200 ssh://root@gpu-box:2222
    #[command(after_long_help = examples!(
        "rgpu remote add h200 ssh://root@gpu-box:2222 --default",
        "rgpu remote add lab gpu-box --identity ~/.ssh/lab --price-per-hour 2.5",
        "rgpu remote add team https://gpu.example.org --token-file team.token",
        "rgpu remote add cloud modal --url https://me--rgpu.modal.run",
        "rgpu remote add cluster slurm --login ssh://me@login --partition gpu --gpus 1",
    ))]
    Add(Box<add::AddArgs>),
    /// List the remotes, with the state of rented ones
    #[command(after_long_help = examples!("rgpu remote list", "rgpu remote list --json"))]
    List,
    /// Log in to a platform: rgpu remote login wafer
    #[command(after_long_help = examples!("rgpu remote login wafer"))]
    Login {
        /// The platform, or a remote of it
        platform: String,
    },
    /// Create a rented remote if it does not exist, and wait until it runs; on a Slurm cluster,
    /// keep one node for several commands
    #[command(after_long_help = examples!("rgpu remote up cloud", "rgpu remote up cluster"))]
    Up {
        /// The name of the remote
        remote: String,
    },
    /// Destroy a rented remote and all its data; on a Slurm cluster, give back the node that is
    /// kept
    #[command(after_long_help = examples!("rgpu remote down cloud --yes"))]
    Down {
        /// The name of the remote
        remote: String,

        /// Do not ask before destroying
        #[arg(long)]
        yes: bool,
    },
    /// Connect, and show what the host has
    #[command(after_long_help = examples!(
        "rgpu remote check h200",
        "rgpu remote check ssh://root@gpu-box:2222 --accept-new",
    ))]
    Check(check::CheckArgs),
    /// Use this remote when --remote is not given
    #[command(after_long_help = examples!("rgpu remote default h200"))]
    Default {
        /// The name of the remote
        remote: String,
    },
    /// Remove a remote from your settings
    #[command(after_long_help = examples!("rgpu remote remove h200"))]
    Remove {
        /// The name of the remote
        remote: String,
    },
}

/// Runs a `remote` command.
pub(super) fn run(app: &App, command: &RemoteCommand) -> Result<Status> {
    match command {
        RemoteCommand::Add(args) => add::add(app, args),
        RemoteCommand::List => list::list(app),
        RemoteCommand::Login { platform } => rental::login(app, platform),
        RemoteCommand::Up { remote } => rental::up(app, remote),
        RemoteCommand::Down { remote, yes } => rental::down(app, remote, *yes),
        RemoteCommand::Check(args) => {
            let spec = session::spec(app, args.remote.as_deref())?;
            check::check(app, spec, args)
        }
        RemoteCommand::Default { remote: name } => {
            session::spec(app, Some(name))?;
            app.config.set_default(name)?;
            let set = app.reload_settings()?.default_remote;
            app.print_note(&format!("`{name}` is the default remote"));
            if set.value != *name {
                app.print_note(&format!("warning: here it is `{}`, by {}", set.value, set.origin));
            }
            list::print_settings(app)
        }
        RemoteCommand::Remove { remote: name } => {
            if !app.config.remove_remote(name)? {
                return Err(unknown_remote(app, name));
            }
            app.print_note(&format!("`{name}` is removed from your remotes"));
            list::print_settings(app)
        }
    }
}

/// The failure for a remote that is not in the settings, with the nearest names.
fn unknown_remote(app: &App, name: &str) -> Failure {
    let what = format!("your settings have no remote `{name}`");
    let failure = Failure::new(Exit::Config, "unknown_remote", what);
    let near = nearest(name, app.config.remotes.keys().map(String::as_str));
    if near.is_empty() {
        failure.hint(
            configured_remotes_hint(app.config.remotes.keys())
                .unwrap_or_else(|| "`rgpu remote list` shows those they have".to_owned()),
        )
    } else {
        failure.hint(format!("did you mean `{}`?", near.join("` or `")))
    }
}
