//! `rgpu remote check`: shows a host's GPUs and tools within seconds.

use std::time::Instant;

use clap::Args;
use rgpu_protocol::HostFacts;
use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::support::app::{App, Status};
use crate::cli::support::host_text::host_text;
use crate::cli::support::progress::LiveOutput;
use crate::cli::support::session::{self, OutputOptions};
use rgpu_model::error::Result;
use rgpu_remote::RemoteSpec;
use rgpu_report::one_line;
use rgpu_run::run::{Reporter, RunEvent};

#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct CheckArgs {
    /// A remote [default: the default remote]
    pub remote: Option<String>,

    /// Accept the key of an unknown host
    #[arg(long)]
    pub accept_new: bool,

    /// Accept the key of an unknown host if it has this fingerprint (`SHA256:…`)
    #[arg(long, hide = true, value_name = "FINGERPRINT", conflicts_with = "accept_new")]
    pub host_key: Option<String>,
}

/// The output of `remote check --json` (`rgpu.host/1`).
#[derive(Serialize, JsonSchema)]
pub(in crate::cli) struct HostSummary {
    /// Name and version of this schema: `rgpu.host/1`.
    schema: &'static str,
    /// Facts about the host.
    #[serde(flatten)]
    host: HostFacts,
}

/// The GPUs of a host in a few words.
pub(super) fn gpus(host: &HostFacts) -> String {
    if host.gpus.is_empty() {
        return "no GPU".to_owned();
    }
    let mut names: Vec<(String, u32)> = Vec::new();
    for gpu in &host.gpus {
        match names.iter_mut().find(|(name, _)| *name == gpu.name) {
            Some((_, n)) => *n += 1,
            None => names.push((gpu.name.clone(), 1)),
        }
    }
    let list: Vec<String> = names
        .into_iter()
        .map(|(name, n)| if n > 1 { format!("{n} × {name}") } else { name })
        .collect();
    one_line(&list.join(", "))
}

/// Connects, asks for the facts and prints them.
pub(super) fn check(app: &App, spec: RemoteSpec, args: &CheckArgs) -> Result<Status> {
    let name = spec.name.clone();
    let output_options = OutputOptions {
        live: LiveOutput::Hidden,
        ..OutputOptions::with_progress_bar(app, None, args.accept_new)
    };
    let started_at = Instant::now();
    let facts = app.block_on(async {
        let key = args.host_key.as_deref();
        let mut session = session::open_with_key(app, spec, output_options, key).await?;
        let cache = session::facts_cache(app, &session.spec);
        let now = jiff::Timestamp::now().as_second();
        let facts = session.ask_facts(&cache, now).await;
        session.reporter.report(&RunEvent::Finished { exit: 0 });
        session.link.close().await;
        facts
    })?;
    if app.global.json {
        app.print_json(&HostSummary { schema: "rgpu.host/1", host: facts })?;
        return Ok(0);
    }
    app.print(&host_text(&name, &facts, started_at.elapsed().as_secs_f64(), app.columns()));
    Ok(0)
}
