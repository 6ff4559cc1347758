//! The dashboard as static files: one page that has every answer, and the reports of the newest
//! runs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};

use super::access::AccessControl;
use super::export_folder::ExportFolder;
use super::page::{PageDocument, PageSettings};
use super::run_query::RunQuery;
use super::run_summary::RunSummary;
use super::run_table::Snapshot;
use super::{DashboardContext, Server, host, overview, queue_and_loops, run_detail, suites};
use rgpu_model::error::{Exit, Failure, Result};

/// The most runs that an export lists.
const MAX_RUNS: usize = 2000;

/// The most suites, entries and loops whose details an export has.
const MAX_DETAILS: usize = 100;

/// How an export is made.
#[derive(Clone, Debug)]
pub struct ExportOptions {
    /// The folder; it is made if needed.
    pub folder: PathBuf,
    /// For how many of the newest runs the details and the report are included.
    pub reports: usize,
}

/// The output of `dashboard export --json` (`rgpu.dashboard-export/1`).
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DashboardExport {
    /// Name and version of this schema: `rgpu.dashboard-export/1`.
    pub schema: &'static str,
    /// The path of the page.
    pub page: String,
    /// The number of listed runs.
    pub runs: usize,
    /// The number of reports.
    pub reports: usize,
    /// Size of all files in bytes.
    pub bytes: u64,
    /// The ids of runs that were removed while the export was made; it has nothing of them.
    pub left_out: Vec<String>,
}

/// Writes the files. An earlier export in the folder is replaced; other files in it stay.
///
/// # Errors
/// The project cannot be read, the folder cannot be written, or SIGINT or SIGTERM came. Nothing is
/// left behind then, and an earlier export stays.
pub async fn export(context: DashboardContext, options: &ExportOptions) -> Result<DashboardExport> {
    let mut terminate = signal(SignalKind::terminate()).map_err(no_signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(no_signals)?;
    tokio::select! {
        exported = write_export(context, options) => exported,
        _ = terminate.recv() => Err(interrupted()),
        _ = interrupt.recv() => Err(interrupted()),
    }
}

fn no_signals(error: std::io::Error) -> Failure {
    Failure::new(Exit::Bug, "bug", "signals cannot be waited for").cause(error)
}

fn interrupted() -> Failure {
    Failure::new(Exit::Cancelled, "cancelled", "the export was cancelled; nothing of it was kept")
}

async fn write_export(
    context: DashboardContext,
    options: &ExportOptions,
) -> Result<DashboardExport> {
    let server = Server::new(context, AccessControl::new(([127, 0, 0, 1], 0).into(), true)?);
    let folder = ExportFolder::begin(&options.folder)?;
    let mut snapshot = read_runs(&server).await?;
    let mut details = BTreeMap::new();
    let mut left_out = Vec::new();
    let (mut bytes, mut reports) = (0, 0);
    for run in snapshot.runs.iter().take(options.reports) {
        let run = &run.summary;
        let read = details_of(&server.context, run)?;
        let page = if run_detail::has_page(run) {
            run_detail::report_page(&server, &run.id).await.ok()
        } else {
            None
        };
        let is_whole = read.is_some() && page.is_some() == run_detail::has_page(run);
        // A run that cannot be read now is listed all the same, as is one whose report fails.
        if !is_whole && !read_runs(&server).await?.runs.iter().any(|now| now.summary.id == run.id) {
            left_out.push(run.id.clone());
            continue;
        }
        details.extend(read.into_iter().flatten());
        if let Some(page) = page {
            bytes += folder.write_report(&run.id, &page)?;
            reports += 1;
        }
    }
    if !left_out.is_empty() {
        snapshot = Arc::new(snapshot.without(&left_out));
    }
    let (context, listed) = (server.context.clone(), Arc::clone(&snapshot));
    let problem = server.table.problem();
    let mut answers = on_thread(move || answers(&context, &listed, problem)).await??;
    answers.append(&mut details);
    let answers: Value = serde_json::Map::from_iter(answers).into();
    let document = PageDocument::new(&PageSettings::exported(&server.context, answers));
    let (page, page_bytes) = folder.finish(document.html())?;
    bytes += page_bytes;
    Ok(DashboardExport {
        schema: "rgpu.dashboard-export/1",
        // Without `..`, so that the link can be given to others.
        page: page.canonicalize().unwrap_or(page).display().to_string(),
        runs: snapshot.runs.len().min(MAX_RUNS),
        reports,
        bytes,
        left_out,
    })
}

/// All runs as they are now.
async fn read_runs(server: &Server) -> Result<Arc<Snapshot>> {
    let table = Arc::clone(&server.table);
    on_thread(move || {
        table.refresh();
        table.snapshot()
    })
    .await
}

/// Does what takes long, or waits for the database, on a thread of its own, so that a signal ends
/// the export meanwhile.
async fn on_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|e| Failure::new(Exit::Bug, "bug", "a document cannot be made").cause(e))
}

/// A run and its logs, by address; `None` if it cannot be read.
fn details_of(
    context: &DashboardContext,
    run: &RunSummary,
) -> Result<Option<BTreeMap<String, Value>>> {
    let Ok(detail) = run_detail::detail(context, &run.id) else { return Ok(None) };
    let mut details = BTreeMap::new();
    for log in &detail.logs {
        if let Ok(text) = run_detail::log(context, &run.id, &log.name) {
            details.insert(format!("/runs/{}/log/{}", run.id, log.name), value(&text)?);
        }
    }
    details.insert(format!("/runs/{}", run.id), value(&detail)?);
    Ok(Some(details))
}

/// The answers to the requests of the page, by address.
fn answers(
    context: &DashboardContext,
    snapshot: &Snapshot,
    problem: Option<String>,
) -> Result<BTreeMap<String, Value>> {
    let mut answers = BTreeMap::new();
    let state = queue_and_loops::for_overview(context);
    let entries: Vec<i64> = state.entries.iter().map(|entry| entry.id).collect();
    let hosts = host::hosts(context, snapshot, &state.entries);
    answers.insert("/hosts".to_owned(), value(&hosts)?);
    let overview = overview::overview(context, snapshot, state, problem);
    let loops: Vec<String> = overview.loops.iter().map(|line| line.id.clone()).collect();
    answers.insert("/overview".to_owned(), value(&overview)?);
    let mut all = RunQuery::default().first(snapshot, MAX_RUNS);
    for (line, run) in all.runs.iter_mut().zip(&snapshot.runs) {
        line.search_text.clone_from(&run.text);
    }
    answers.insert("/runs".to_owned(), value(&all)?);
    let suites = suites::suites(snapshot);
    for line in suites.suites.iter().take(MAX_DETAILS) {
        if let Ok(suite) = suites::suite(&context.runs.join(&line.id)) {
            answers.insert(format!("/suites/{}", line.id), value(&suite)?);
        }
    }
    answers.insert("/suites".to_owned(), value(&suites)?);
    if let Ok(history) = suites::history(context, "*", "") {
        answers.insert("/history".to_owned(), value(&history)?);
    }
    if let Ok(queue) = queue_and_loops::queue(context) {
        answers.insert("/queue".to_owned(), value(&queue)?);
        for id in entries.into_iter().rev().take(MAX_DETAILS) {
            if let Ok(entry) = queue_and_loops::entry(context, snapshot, id) {
                answers.insert(format!("/queue/{id}"), value(&entry)?);
            }
        }
    }
    if let Ok(list) = queue_and_loops::loops(context) {
        answers.insert("/loops".to_owned(), value(&list)?);
    }
    for id in loops {
        let Ok(status) = queue_and_loops::loop_status(context, &id) else { continue };
        for iteration in &status.iterations {
            if let Ok(patch) = queue_and_loops::patch(context, &id, iteration.iteration) {
                let path = format!("/loops/{id}/iterations/{}/patch", iteration.iteration);
                answers.insert(path, value(&patch)?);
            }
        }
        answers.insert(format!("/loops/{id}"), value(&status)?);
    }
    answers.insert("/model".to_owned(), value(&suites::predictions(snapshot))?);
    Ok(answers)
}

fn value(document: &impl Serialize) -> Result<Value> {
    serde_json::to_value(document).map_err(|e| {
        Failure::new(Exit::Bug, "bug", "a document cannot be written as JSON").cause(e)
    })
}
