//! Prints the plan of `--dry-run` for profile and compare: its commands and the files it sends;
//! with `--json` as JSON, with `-v` as both.

use rgpu_protocol::HostFacts;

use super::app::{App, Status};
use super::fetch_consent::allow_agreed_nvcc;
use super::session;
use rgpu_model::error::Result;
use rgpu_plan::bundle;
use rgpu_plan::tool::{self, Draft, HostBinaries, JobName, PrebuiltCode, ProfileTarget, Request};
use rgpu_remote::RemoteSpec;
use rgpu_report as report;
use rgpu_run::run::arch_to_compile_here;

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
    let notes = draft.info.notes.clone();
    let packed = bundle::Packer::new(bundle::DEFAULT_MAX_BYTES).pack(draft)?;
    if app.global.json {
        app.print_json(&packed.plan)?;
        return Ok(0);
    }
    notes.iter().for_each(|note| app.print_note(&format!("note: {note}")));
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

/// Lets the request's kernel be compiled by a fetched nvcc, as the run would. If the host has no
/// compiler for it and this machine may have one, says that it would be compiled here, and takes
/// that step out of the plan.
pub(in crate::cli) fn leave_out_compile_here(
    app: &App,
    spec: &RemoteSpec,
    request: &mut Request,
    facts: &HostFacts,
) -> Result<()> {
    allow_agreed_nvcc(app, spec, &mut request.build);
    let ProfileTarget::Kernel { spec: kernel, .. } = &request.target else { return Ok(()) };
    let Some(arch) = arch_to_compile_here(request, facts)? else { return Ok(()) };
    if session::is_local(spec) || lacks_compiler_here(app, request) {
        return Ok(());
    }
    app.print_note(&format!(
        "note: `{}` has no CUDA compiler, so `{}` is compiled for {arch} on this machine first; \
         that step is not shown",
        spec.name, kernel.name
    ));
    request.prebuilt.push(PrebuiltCode { arch, files: Vec::new() });
    Ok(())
}

/// Whether this machine was asked and has no compiler for the request's kernel. Unknown is `false`.
fn lacks_compiler_here(app: &App, request: &Request) -> bool {
    let ProfileTarget::Kernel { spec, .. } = &request.target else { return false };
    let known = session::facts_cache(app, &RemoteSpec::local()).last();
    known.is_some_and(|facts| {
        !request.build.fetch_here && tool::compilers(&facts, &spec.entry).is_empty()
    })
}
