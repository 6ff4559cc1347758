//! `rgpu mcp`: serves agents over the Model Context Protocol, on standard input and output or over
//! HTTP.

use std::net::{Ipv4Addr, SocketAddr};

use clap::Args;

use super::support::app::{App, Status};
use crate::mcp::{McpContext, TOOLS, serve_http, serve_stdio, tools};
use rgpu_model::beneath::Folder;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_plan::kernel::CALLS_FOLDER;
use rgpu_report::wrap;
use rgpu_run::store::StartedRuns;
use rgpu_run::store::state::random_id;

/// The variable with the token of `--http`.
const TOKEN_VARIABLE: &str = "RGPU_MCP_TOKEN";

/// The server refuses shorter tokens.
const MIN_TOKEN_BYTES: usize = 16;

/// Serve agents over the Model Context Protocol
///
/// A client starts it and speaks with it over standard input and output. Its tools run rgpu's own
/// commands in the current project, with this user's settings.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = examples!(
    "rgpu mcp --list",
    "rgpu mcp --http 127.0.0.1:8787",
    "rgpu mcp",
))]
pub(super) struct McpArgs {
    /// Serve several clients at this loopback address or port, with the token of RGPU_MCP_TOKEN or
    /// a new one
    #[arg(long, value_name = "ADDRESS", value_parser = address, conflicts_with = "list")]
    pub http: Option<SocketAddr>,

    /// Print the tools as a client sees them
    #[arg(long)]
    pub list: bool,
}

pub(super) fn run(app: &App, args: &McpArgs) -> Result<Status> {
    if args.list {
        list(app)?;
        return Ok(0);
    }
    if app.global.json {
        let what = "stdout belongs to the protocol";
        return Err(Failure::new(Exit::Usage, "usage", what)
            .hint("`rgpu mcp --list --json` prints the tools"));
    }
    let context = context(app)?;
    match args.http {
        None => app.block_on(serve_stdio(context))?,
        Some(address) => {
            let (token, is_new) = token()?;
            let shown = token.clone();
            app.block_on(serve_http(context, address, token, |address| {
                if is_new {
                    app.print_note(&format!("token: {shown}"));
                }
                app.print_note(&format!("serves http://{address}/mcp"));
            }))?;
        }
    }
    Ok(0)
}

fn context(app: &App) -> Result<McpContext> {
    let program = std::env::current_exe().map_err(|e| {
        Failure::new(Exit::Config, "no_program", "the path of rgpu itself is unknown").cause(e)
    })?;
    let project = app.config.project.clone();
    let project_folder = Folder::open(&project).map_err(|e| {
        Failure::new(Exit::Config, "no_folder", "the project's folder cannot be opened")
            .file(project.display())
            .cause(e)
    })?;
    Ok(McpContext {
        program,
        project,
        project_folder,
        runs: app.cwd.join(&app.config.runs_dir.value),
        scratch: app.cache.join(CALLS_FOLDER),
        started: StartedRuns::in_cache(&app.cache),
    })
}

/// An address, or a port of 127.0.0.1.
fn address(text: &str) -> Result<SocketAddr, String> {
    let of_port = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let address = text.parse().or_else(|_| text.parse().map(of_port));
    address.map_err(|_| "write an address with a port, as 127.0.0.1:8787, or a port".to_owned())
}

/// The token of the environment, else a new one; and whether it is new.
fn token() -> Result<(String, bool)> {
    match std::env::var(TOKEN_VARIABLE) {
        Ok(token) if token.len() >= MIN_TOKEN_BYTES => Ok((token, false)),
        Ok(token) => {
            let what = format!("the token of {TOKEN_VARIABLE} can be guessed");
            Err(Failure::new(Exit::Config, "unfit_token", what)
                .cause(format!(
                    "it has {} bytes; at least {MIN_TOKEN_BYTES} are needed",
                    token.len()
                ))
                .hint("unset it: a new token is made and shown"))
        }
        Err(_) => Ok((random_id()?, true)),
    }
}

fn list(app: &App) -> Result<()> {
    if app.global.json {
        return app.print_json(&tools());
    }
    let width = app.style().width;
    for tool in TOOLS {
        let text = wrap(&tool.description(), width - 2).join("\n  ");
        app.print(&format!("{}\n  {text}\n", tool.name));
    }
    Ok(())
}
