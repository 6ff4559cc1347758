//! Prints the plan of `--dry-run` for profile and compare: its commands and the files it sends; with
//! `--json` as JSON, with `-v` as both.

use rgpu_protocol::HostFacts;

use super::app::{App, Status};
use super::session;
use crate::bundle;
use crate::error::Result;
use crate::report;
use crate::tool::{self, Draft, HostBinaries, JobName};

/// Prints a plan made from the saved facts of a host.
pub(in crate::cli) fn print_plan(
    app: &App,
    remote: Option<&str>,
    plan: impl Fn(&HostFacts, &HostBinaries, &JobName) -> Result<Draft>,
) -> Result<Status> {
    let spec = session::spec(app, remote)?;
    let known = session::facts_cache(app, &spec).last();
    if known.is_none() {
        app.print_note(&format!(
            "nothing is known about `{}` yet, so this is the plan for a host with a GPU and the \
             usual tools; run `rgpu remote check {}` to ask the host",
            spec.name, spec.name
        ));
    }
    let facts = known.unwrap_or_else(|| tool::assumed(&spec.name, std::env::consts::ARCH));
    let binaries = session::programs(app)?.host_binaries(&facts.agent.arch);
    let job = JobName { run: "dry-run".to_owned(), sequence: 1 };
    let draft = plan(&facts, &binaries, &job)?;
    let packed = bundle::Packer::new(bundle::DEFAULT_MAX_BYTES).pack(draft)?;
    if app.global.json {
        app.print_json(&packed.plan)?;
        return Ok(0);
    }
    app.print(&bundle::commands(&packed.plan));
    for file in &packed.plan.files {
        app.print(&format!("# rgpu sends {}  {}\n", file.path, report::bytes(file.size as f64)));
    }
    if facts.gpus.is_empty() {
        let assumed = tool::assumed(&spec.name, &facts.agent.arch);
        let draft = plan(&assumed, &binaries, &job)?;
        let packed = bundle::Packer::new(bundle::DEFAULT_MAX_BYTES).pack(draft)?;
        app.print(&format!(
            "\n# assumed: `{}` has no GPU; with one (sm_90) and the usual tools, the commands would be\n{}",
            spec.name,
            bundle::commands(&packed.plan)
        ));
    }
    if app.global.verbose > 0 {
        app.print_json(&packed.plan)?;
    }
    Ok(0)
}
