//! `rgpu dashboard`: hosts, runs, suites, queue, loops and predictions on one local page.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

use super::support::app::{App, Status};
use super::support::dashboard::context;
use super::support::desktop::open_secret_link;
use super::support::overwrite;
use super::support::terminal::write_stderr;
use crate::dashboard::{ExportOptions, ServeOptions, export, serve};
use rgpu_model::error::{Exit, Failure, Result};

/// Show hosts, runs, suites, queue, loops and predictions on one local page
///
/// The page is served to this machine only, and the link works once: its browser gets a session.
/// The page starts rgpu's own commands. They continue when the dashboard ends.
#[derive(Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_long_help = examples!(
    "rgpu dashboard",
    "rgpu dashboard --open --read-only",
    "rgpu dashboard export page/",
))]
pub(super) struct DashboardArgs {
    #[command(subcommand)]
    pub command: Option<DashboardCommand>,

    /// The loopback address; with port 0 the system chooses one [default: 127.0.0.1:8710, or the
    /// next free port]
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<SocketAddr>,

    /// Open the page in the browser
    #[arg(long)]
    pub open: bool,

    /// Make the page read-only: it can start no commands
    #[arg(long)]
    pub read_only: bool,
}

#[derive(Subcommand, Clone, Debug)]
pub(super) enum DashboardCommand {
    /// Write the page as static files that need no server
    #[command(after_long_help = examples!("rgpu dashboard export page/ --reports 50"))]
    Export(ExportArgs),
}

#[derive(Args, Clone, Debug)]
pub(super) struct ExportArgs {
    /// The folder; it is made if needed
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub folder: PathBuf,

    /// Include the details and the report of this many of the newest runs
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub reports: usize,

    /// Overwrite an index.html that is not an earlier export
    #[arg(long)]
    pub force: bool,
}

/// The first bytes of every page that rgpu writes.
const PAGE_HEAD: &[u8] = b"<!doctype html><meta name=\"generator\" content=\"rgpu ";

/// Serves or exports the page.
pub(super) fn run(app: &App, args: &DashboardArgs) -> Result<Status> {
    match &args.command {
        Some(DashboardCommand::Export(own)) => {
            let folder = app.cwd.join(&own.folder);
            app.config.check_output_folder(&folder)?;
            if !own.force {
                overwrite::check(&folder.join("index.html"), PAGE_HEAD)?;
            }
            let options = ExportOptions { folder, reports: own.reports };
            let exported = app.block_on(export(context(app)?, &options))?;
            if app.global.json {
                app.print_json(&exported)?
            } else {
                app.print(&format!("{}\n", app.short(exported.page.as_ref())))
            }
            for run in &exported.left_out {
                app.print_note(&format!("`{run}` is left out: it was removed meanwhile"));
            }
        }
        None if app.global.json => {
            let what = "the page has no JSON";
            return Err(Failure::new(Exit::Usage, "usage", what)
                .hint("`rgpu runs list --json`, `rgpu queue list --json` and others have it"));
        }
        None => {
            let options = ServeOptions { listen: args.listen, read_only: args.read_only };
            let mut redirect = None;
            let print_link = |link: &str| {
                app.print(&format!("{link}\n"));
                app.print_note("the link works once; Ctrl-C ends the dashboard");
                if args.open {
                    match open_secret_link("rgpu dashboard", link) {
                        Ok(file) => redirect = Some(file),
                        Err(failure) => {
                            app.print_note(&format!("{}: open the link yourself", failure.what));
                        }
                    }
                }
            };
            let ended = app.block_on(serve(context(app)?, options, print_link, |warning| {
                write_stderr(&format!("{warning}\n"));
            }));
            drop(redirect);
            ended?;
        }
    }
    Ok(0)
}
