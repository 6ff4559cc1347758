//! Chooses an nvdisasm: one on this machine, else one on a remote, else none.

use std::path::PathBuf;

use super::args::{DisasmArgs, Tool};
use crate::cli::support::app::App;
use crate::cli::support::followed_run::FollowedRun;
use crate::cli::support::nvdisasm::search;
use crate::cli::support::session::{self, OutputOptions, RemoteSession};
use crate::disasm::{ImageTask, ListingRequest, Nvdisasm, cubin_listing_requests};
use crate::error::{Exit, Failure, Result};
use crate::remote::RemoteSpec;
use crate::run::{RunStart, fetch_host_listings};
use crate::store::{RunFolder, RunRecord, Runs};

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
        return Ok(Some(tool.within(args.timeout)));
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
        return Err(no_tool(app, "on this machine").cause(match tried.is_empty() {
            true => why,
            false => format!("none of these answers: {}", tried.join(", ")),
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
    let now = jiff::Timestamp::now();
    let id = Runs::fresh_id("disasm", now);
    // The job's events and log are not needed once the listings are here.
    let scratch = tempfile::Builder::new().prefix("rgpu-disasm-").tempdir().map_err(|e| {
        Failure::new(Exit::Disk, "disk", "a temporary folder cannot be made").cause(e)
    })?;
    let folder = RunFolder::create(scratch.path(), &id, Some(&scratch.path().join("run")))?;
    let record = RunRecord {
        title: "disasm".to_owned(),
        ..session::record(app, spec, id.clone(), "disasm", now)
    };
    let mut run = FollowedRun { folder, record, start: RunStart::New };
    let output_options = OutputOptions::with_progress_bar(app, None, args.accept_new);
    let status = |answer: &Result<_>| {
        answer.as_ref().err().map_or(0, |failure: &Failure| failure.exit as u8)
    };
    app.block_on(async {
        let session = session::open(app, spec.clone(), output_options).await?;
        let ask = async |session: &mut RemoteSession, run: &mut FollowedRun| {
            let (mut run_session, mut context) = run.session_and_context(app, session);
            fetch_host_listings(&mut run_session, requests, &mut context).await
        };
        run.run_connected(session, status, ask).await
    })
}
