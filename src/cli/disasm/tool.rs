//! Chooses an nvdisasm: one on this machine, else one on a remote, else none.

use std::path::PathBuf;

use super::args::{DisasmArgs, Tool};
use crate::cli::support::app::App;
use crate::cli::support::followed_run::FollowedRun;
use crate::cli::support::nvdisasm::search;
use crate::cli::support::session;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_remote::RemoteSpec;
use rgpu_run::disasm::{ImageTask, ListingRequest, Nvdisasm, cubin_listing_requests};
use rgpu_run::run::fetch_host_listings;

/// The tool for these files: on the host of `--remote`, else on this machine, else on the default
/// remote.
pub(super) fn chosen(
    app: &App,
    args: &DisasmArgs,
    files: &[PathBuf],
    task: &ImageTask,
) -> Result<Option<Nvdisasm>> {
    if matches!(args.tool, Tool::Rgpu | Tool::None) {
        return Ok(None);
    }
    if let Some(remote) = &args.remote {
        let spec = session::spec(app, Some(remote))?;
        let requests = cubin_listing_requests(files, task);
        if requests.is_empty() {
            return Ok(None);
        }
        return match ask(app, args, &spec, &requests)? {
            None if args.tool == Tool::Nvdisasm => {
                Err(no_tool(app, &format!("on `{}`", spec.name))
                    .hint(format!("`rgpu doctor {} --fresh` checks again", spec.name)))
            }
            None => {
                app.print_note(&format!(
                    "no nvdisasm on `{}`: listings come without operands",
                    spec.name
                ));
                Ok(None)
            }
            found => Ok(found),
        };
    }
    let search = search(app);
    if let Some(tool) = search.find() {
        return Ok(Some(tool.with_time_limit(args.timeout)));
    }
    let default = session::spec(app, None).ok().filter(|spec| !session::is_local(spec));
    let mut why = "no nvdisasm here".to_owned();
    let requests = if default.is_some() { cubin_listing_requests(files, task) } else { Vec::new() };
    if let Some(spec) = default.filter(|_| !requests.is_empty()) {
        match ask(app, args, &spec, &requests) {
            Ok(Some(tool)) => return Ok(Some(tool)),
            Ok(None) => why = format!("{why} or on `{}`", spec.name),
            Err(failure) if failure.exit == Exit::Cancelled => return Err(failure),
            Err(failure) => why = format!("{why}, and `{}` failed: {}", spec.name, failure.what),
        }
    }
    if args.tool == Tool::Nvdisasm {
        let tried: Vec<String> = search.paths.iter().map(|p| p.display().to_string()).collect();
        return Err(no_tool(app, "on this machine").cause(if tried.is_empty() {
            why
        } else {
            format!("none of these answers: {}", tried.join(", "))
        }));
    }
    app.print_note(&format!(
        "{why}: listings come without operands\n  help: {}",
        app.setup_nvdisasm()
    ));
    Ok(None)
}

fn no_tool(app: &App, place: &str) -> Failure {
    Failure::new(Exit::Tool, "no_nvdisasm", format!("there is no nvdisasm {place}"))
        .hint(app.setup_nvdisasm())
        .hint("`--tool rgpu` shows everything except operands")
}

/// Asks a host for all listings that the files need.
fn ask(
    app: &App,
    args: &DisasmArgs,
    spec: &RemoteSpec,
    requests: &[ListingRequest],
) -> Result<Option<Nvdisasm>> {
    FollowedRun::run_in_scratch_folder(
        app,
        spec,
        "disasm",
        "disasm".to_owned(),
        args.accept_new,
        async |session, context| fetch_host_listings(session, requests, context).await,
    )
}
