//! `rgpu setup ncu|nsys|sanitizer`: installs a profiler on a host, in the user's own folder.

use clap::Args;
use rgpu_protocol::HostFacts;

use super::super::support::app::{App, Status};
use super::super::support::followed_run::FollowedRun;
use super::super::support::session::{self, OutputOptions};
use super::{SetupResult, consent, show};
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_plan::tool::HostTool;
use rgpu_remote::RemoteSpec;
use rgpu_run::run::install_host_tool;

/// The flags of all three.
#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct HostToolArgs {
    /// The host: a remote of `rgpu remote list`, an alias of ~/.ssh/config, or ssh://user@host:port
    /// [default: that of RGPU_REMOTE, or of your settings]
    #[arg(long, short, value_name = "REMOTE")]
    pub remote: Option<String>,

    /// Fetch without asking
    #[arg(long, short)]
    pub yes: bool,

    /// Accept the key of an unknown host
    #[arg(long)]
    pub accept_new: bool,
}

/// Installs the tool with this name in the facts.
pub(super) fn run(app: &App, args: &HostToolArgs, name: &'static str) -> Result<Status> {
    let Some(tool) = HostTool::named(name) else {
        return Err(Failure::new(
            Exit::Bug,
            "bug",
            format!("`{name}` is not in the list of tools"),
        ));
    };
    let spec = session::spec(app, args.remote.as_deref())?;
    let facts = ask_facts(app, &spec, args.accept_new)?;
    let there = facts.tool(name);
    if let Some(own) = there.filter(|found| tool.is_at(&found.path) && !found.version.is_empty()) {
        let (version, path) = (own.version.as_str(), own.path.clone());
        return show(app, SetupResult { tool: name, version, path, fetched: false });
    }
    if let Some(other) = there {
        app.print_note(&format!("`{}` has {name} {}: {}", spec.name, other.version, other.path));
    }
    if facts.gpus.is_empty() {
        app.print_note(&format!(
            "warning: `{}` has no GPU that its driver knows: {name} can measure nothing there",
            spec.name
        ));
    }
    let arch = &facts.agent.arch;
    let Some(megabytes) = tool.megabytes(arch) else {
        let what = format!("NVIDIA publishes no {name} for {arch}");
        return Err(Failure::new(Exit::Host, "not_installed", what));
    };
    let about = format!(
        "{} is NVIDIA's, under its licence: {}\n\
         `{}` fetches it from NVIDIA ({megabytes} MB) into ~/.local/share/rgpu/tools",
        tool.title,
        tool.licence(),
        spec.name
    );
    let command = format!("rgpu setup {} --remote {} --yes", tool.command, spec.name);
    consent(app, args.yes, about, &command)?;
    let installed = FollowedRun::run_in_scratch_folder(
        app,
        &spec,
        "setup",
        format!("setup {name}"),
        args.accept_new,
        async |session, context| install_host_tool(session, tool, context).await,
    )?;
    let (version, path) = (installed.version.as_str(), installed.path.clone());
    show(app, SetupResult { tool: name, version, path, fetched: true })
}

/// Asks the host for its facts now.
pub(super) fn ask_facts(app: &App, spec: &RemoteSpec, accept_new: bool) -> Result<HostFacts> {
    let output_options = OutputOptions::with_progress_bar(app, None, accept_new);
    app.block_on(async {
        let mut session = session::open(app, spec.clone(), output_options).await?;
        let cache = session::facts_cache(app, &session.spec);
        let facts = session.ask_facts(&cache, jiff::Timestamp::now().as_second()).await?;
        session.run_and_close(async |_| Ok(facts)).await
    })
}
