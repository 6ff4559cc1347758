//! One run: its record, environment, failure, phase and logs, and the page of its report.

#![expect(clippy::disallowed_methods, reason = "a temporary folder of its own")]

use rustix::fs::FileType;
use schemars::JsonSchema;
use serde::Serialize;

use super::run_summary::{self, ResultKind, RunSummary};
use super::suites::{history, suite};
use super::text_document::TextDocument;
use super::{DashboardContext, Server};
use rgpu_model::beneath::Entry;
use rgpu_model::error::{ErrorDocument, Exit, Failure, Result};
use rgpu_model::fan_out::FanOutRow;
use rgpu_model::ranks::Ranks;
use rgpu_run::store::{EnvRecord, RunFolder, RunRecord, Runs, live};
use rgpu_work::own_command::CommandLine;

/// At most this many bytes at the end of a log are shown.
const MAX_LOG_BYTES: u64 = 256 << 10;

/// How long the page of a report may take.
const REPORT_LIMIT: std::time::Duration = std::time::Duration::from_secs(120);

/// A run (`rgpu.dashboard-run/1`).
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct RunDetail {
    /// Name and version of this schema: `rgpu.dashboard-run/1`.
    pub(super) schema: &'static str,
    /// What lists show of it.
    pub(super) run: RunSummary,
    /// Its `run.json`.
    pub(super) record: RunRecord,
    /// Its `env.json`, without the answers of the host's probes. Absent if there is none.
    pub(super) env: Option<EnvRecord>,
    /// Its failure. Absent if it did not fail.
    pub(super) failure: Option<ErrorDocument>,
    /// What it does at the moment. Absent if it has ended.
    pub(super) phase: Option<String>,
    /// The process that follows it. Absent if none does.
    pub(super) followed_by: Option<String>,
    /// The results of each remote, of a run on several. Each has a run of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) remotes: Vec<FanOutRow>,
    /// The ranks of its program, as `rgpu.profile/1` has them. Absent for one process.
    pub(super) ranks: Option<Ranks>,
    /// The logs of its steps.
    pub(super) logs: Vec<LogFile>,
}

/// A log of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(super) struct LogFile {
    /// The file's name: the step and the stream.
    pub(super) name: String,
    /// Size in bytes.
    pub(super) bytes: u64,
}

/// The folder of a run by its whole id.
pub(super) fn find(context: &DashboardContext, id: &str) -> Result<RunFolder> {
    let is_id = rgpu_protocol::plan::valid_job_id(id);
    match Runs::new(&context.runs).find_id(id) {
        Some(found) if is_id => Ok(found?),
        _ => Err(Failure::new(Exit::Usage, "unknown_run", format!("there is no run `{id}`"))
            .hint("it may have been removed: `rgpu runs list` shows those there are")),
    }
}

/// A run.
pub(super) fn detail(context: &DashboardContext, id: &str) -> Result<RunDetail> {
    let folder = find(context, id)?;
    let record = folder.current_record()?;
    let run = RunSummary::from_folder(&folder)?;
    let env = folder.read("env.json").ok();
    let mut env = env.and_then(|bytes| rgpu_run::saved_json::from_slice::<EnvRecord>(&bytes).ok());
    if let Some(host) = env.as_mut().and_then(|env| env.host.as_mut()) {
        host.agent.answers.clear();
    }
    Ok(RunDetail {
        schema: "rgpu.dashboard-run/1",
        phase: if run.is_active() { live::phase(&folder) } else { None },
        followed_by: folder.followed_by(),
        failure: folder.failure(),
        logs: logs(&folder),
        remotes: run_summary::remotes(&context.runs, folder.path(), &record),
        ranks: run.ranks.and_then(|_| run_summary::ranks(folder.path())),
        env,
        record,
        run,
    })
}

/// The logs of a run folder, by name.
pub(super) fn logs(folder: &RunFolder) -> Vec<LogFile> {
    let entries = folder.files().folder("log").and_then(|log| log.entries());
    let log = |entry: Entry| {
        let name = entry.path.into_os_string().into_string().ok()?;
        let is_log =
            entry.kind == FileType::RegularFile && rgpu_protocol::plan::valid_job_id(&name);
        is_log.then_some(LogFile { name, bytes: entry.bytes })
    };
    entries.unwrap_or_default().into_iter().filter_map(log).collect()
}

/// The end of a log.
pub(super) fn log(context: &DashboardContext, id: &str, name: &str) -> Result<TextDocument> {
    let folder = find(context, id)?;
    let logs = logs(&folder);
    if !logs.iter().any(|log| log.name == name) {
        let what = format!("the run has no log `{name}`");
        let names: Vec<&str> = logs.iter().map(|log| log.name.as_str()).collect();
        return Err(Failure::new(Exit::Usage, "unknown_log", what)
            .hint(format!("its logs: {}", names.join(", "))));
    }
    TextDocument::from_end(folder.files(), format!("log/{name}"), name, MAX_LOG_BYTES)
}

/// The page of a run's report, as `rgpu report --format html` and `rgpu bench show --format html`
/// write it. A profile may be large, so a process of its own reads it.
pub(super) async fn report_page(server: &Server, id: &str) -> Result<String> {
    let folder = find(&server.context, id)?;
    match ResultKind::in_folder(folder.path()) {
        Some(ResultKind::Suite) => {
            let context = server.context.clone();
            let path = folder.path().to_owned();
            server
                .blocking(move || {
                    let run = suite(&path)?;
                    let history = history(&context, "*", "").unwrap_or_default();
                    Ok(rgpu_report::suite::html(&run, &history, &context.project))
                })
                .await
        }
        Some(ResultKind::Profile | ResultKind::Comparison) => {
            let scratch = tempfile::tempdir().map_err(|e| {
                Failure::new(Exit::Disk, "disk", "cannot make a temporary folder").cause(e)
            })?;
            let out = scratch.path().join("report.html");
            let mut line = CommandLine::new(["report", id, "--format=html"]);
            line.flag("out", Some(&out));
            line.json = false;
            let ended = server.run_command(line, REPORT_LIMIT).await?;
            std::fs::read_to_string(&out).map_err(|e| {
                Failure::new(Exit::Artifact, "no_report", "the report cannot be made")
                    .cause(if ended.messages.is_empty() { e.to_string() } else { ended.messages })
            })
        }
        _ => Err(Failure::new(Exit::Usage, "no_report", "the run has no report")),
    }
}

/// Whether a run has a page of its report.
pub(super) fn has_page(run: &RunSummary) -> bool {
    use ResultKind::{Comparison, Profile, Suite};
    run.problem.is_none() && matches!(run.result, Some(Profile | Comparison | Suite))
}
