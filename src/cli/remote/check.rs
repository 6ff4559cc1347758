//! `rgpu remote check`: shows a host's GPUs and tools within seconds.

use std::time::Instant;

use clap::Args;
use rgpu_protocol::HostFacts;
use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::support::app::{App, Status};
use crate::cli::support::progress::LiveOutput;
use crate::cli::support::session::{self, OutputOptions};
use crate::cli::support::terminal::safe;
use crate::error::Result;
use crate::remote::RemoteSpec;
use crate::report::{Align, Grid, wrap};
use crate::run::{Reporter, RunEvent};

/// `remote check`.
#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct CheckArgs {
    /// A remote [default: the default remote]
    pub remote: Option<String>,

    /// Accept the key of a host never seen before
    #[arg(long)]
    pub accept_new: bool,
}

/// What `remote check --json` prints (`rgpu.host/1`).
#[derive(Serialize, JsonSchema)]
pub(in crate::cli) struct HostSummary {
    /// `rgpu.host/1`.
    schema: &'static str,
    /// The host.
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
    safe(list.join(", ").as_bytes())
}

/// Connects, asks for the facts and prints them.
pub(super) fn check(app: &App, spec: RemoteSpec, accept_new: bool) -> Result<Status> {
    let name = spec.name.clone();
    let output_options =
        OutputOptions { live: LiveOutput::Hidden, events: None, accept_new, run: "", row: None };
    let started_at = Instant::now();
    let facts = app.block_on(async {
        let mut open = session::open(app, spec, output_options).await?;
        let cache = session::facts_cache(app, &open.spec);
        let now = jiff::Timestamp::now().as_second();
        let facts = open.ask(&cache, now).await;
        open.reporter.report(&RunEvent::Finished { exit: 0 });
        open.link.close().await;
        facts
    })?;
    if app.global.json {
        app.print_json(&HostSummary { schema: "rgpu.host/1", host: facts })?;
        return Ok(0);
    }
    app.print(&host_text(&name, &facts, started_at.elapsed().as_secs_f64(), app.columns()));
    Ok(0)
}

/// The facts of a host in a few lines of `width` columns.
pub(in crate::cli) fn host_text(
    name: &str,
    facts: &HostFacts,
    seconds: f64,
    width: usize,
) -> String {
    let clean = |text: &str| safe(text.as_bytes());
    let agent = &facts.agent;
    let head = format!(
        "{name}  {} ({}, {} CPUs, {}), as {}  [{seconds:.1} s]",
        clean(&agent.os),
        clean(&agent.arch),
        agent.cpus,
        crate::report::bytes(agent.memory_bytes as f64),
        clean(&agent.user),
    );
    let mut out = lines(&head, width, "  ");
    for gpu in &facts.gpus {
        let line = format!(
            "  GPU {}      {}, {}, sm_{}  {}",
            gpu.index,
            clean(&gpu.name),
            crate::report::bytes(gpu.memory_bytes as f64),
            gpu.sm,
            clean(&gpu.uuid),
        );
        out += &lines(&line, width, "             ");
    }
    match &facts.driver {
        Some(driver) => {
            let cuda =
                facts.cuda.as_deref().map(|c| format!(", CUDA {}", clean(c))).unwrap_or_default();
            out += &format!("  driver     {}{cuda}\n", clean(driver));
        }
        None => out += "  driver     none: no GPU work can run there\n",
    }
    let mut grid =
        Grid::new(&[("tool", Align::Left), ("version", Align::Left), ("path", Align::Left)]);
    for tool in &facts.tools {
        grid.row([clean(&tool.name), clean(&tool.version), clean(&tool.path)]);
        for problem in &tool.problems {
            grid.row([String::new(), String::new(), clean(problem)]);
        }
    }
    out += "\n";
    out += &grid.fitted(width, 2);
    out
}

/// Wraps a line at blanks and indents the following lines.
fn lines(text: &str, width: usize, indent: &str) -> String {
    let wrapped = wrap(text, width.saturating_sub(indent.len()));
    let mut out = String::new();
    for (at, line) in wrapped.iter().enumerate() {
        out += &format!("{}{line}\n", if at == 0 { "" } else { indent });
    }
    out
}
