//! What the view shows, read from the settings, the run folders and the state database.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use crate::cli::support::app::App;
use crate::cli::support::session;
use crate::loops::{Heartbeat, LoopStatus, Loops, read_heartbeat};
use crate::queue::{Entry, Queue};
use crate::regular_file;
use crate::remote::RemoteSpec;
use crate::store::{RunState, Runs};

/// How much of the end of `run.log` is read.
const LOG_BYTES: u64 = 16 << 10;

/// All that the view shows.
#[derive(Clone, Debug, Default)]
pub(super) struct TopData {
    pub(super) project: String,
    pub(super) hosts: Vec<HostRow>,
    /// `None` without a queue.
    pub(super) queue: Option<QueueData>,
    /// `None` without a loop.
    pub(super) loop_data: Option<LoopData>,
    /// Why something could not be read.
    pub(super) problem: Option<String>,
}

/// A remote as it was last seen.
#[derive(Clone, Debug, Default)]
pub(super) struct HostRow {
    pub(super) name: String,
    pub(super) address: String,
    /// Its GPUs; empty if they are not known.
    pub(super) gpus: String,
    /// The project's runs that are running there.
    pub(super) running: Vec<String>,
}

/// The project's queue.
#[derive(Clone, Debug, Default)]
pub(super) struct QueueData {
    pub(super) entries: Vec<Entry>,
    pub(super) runner: Option<i32>,
    pub(super) is_paused: bool,
}

/// The project's newest loop.
#[derive(Clone, Debug)]
pub(super) struct LoopData {
    pub(super) status: LoopStatus,
    pub(super) heartbeat: Option<Heartbeat>,
    /// The last lines of `run.log`.
    pub(super) lines: Vec<String>,
}

impl TopData {
    /// Reads everything anew.
    pub(super) fn read(app: &App) -> Self {
        let mut data = Self {
            project: app.config.project.display().to_string(),
            hosts: hosts(app),
            ..Self::default()
        };
        match queue(app) {
            Ok(queue) => data.queue = queue,
            Err(problem) => data.problem = Some(problem),
        }
        match loop_data(app) {
            Ok(loop_data) => data.loop_data = loop_data,
            Err(problem) => data.problem = Some(problem),
        }
        data
    }
}

fn hosts(app: &App) -> Vec<HostRow> {
    let now = jiff::Timestamp::now().as_second();
    let mut running: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let records = Runs::new(&app.config.runs_dir.value).records().unwrap_or_default();
    for run in records.into_iter().filter(|run| run.state == RunState::Running) {
        running.entry(run.remote).or_default().push(run.title);
    }
    let specs = app.config.remotes.values().cloned().chain([RemoteSpec::local()]);
    specs
        .map(|spec| {
            let facts = session::facts_cache(app, &spec).load(now);
            let gpus = facts.map(|facts| {
                let names: Vec<String> = facts.gpus.into_iter().map(|gpu| gpu.name).collect();
                if names.is_empty() { "no GPU".to_owned() } else { names.join(", ") }
            });
            HostRow {
                gpus: gpus.unwrap_or_default(),
                running: running.remove(&spec.name).unwrap_or_default(),
                name: spec.name,
                address: spec.url,
            }
        })
        .collect()
}

fn queue(app: &App) -> Result<Option<QueueData>, String> {
    let own_ids = app.data.join("state-ids");
    let queue = match Queue::open_existing(&app.config.project, &own_ids) {
        Err(crate::queue::QueueError::NoQueue(_)) => return Ok(None),
        queue => queue.map_err(|e| e.to_string())?,
    };
    Ok(Some(QueueData {
        entries: queue.entries().map_err(|e| e.to_string())?,
        runner: queue.runner().map(|holder| holder.pid()),
        is_paused: queue.is_paused().map_err(|e| e.to_string())?,
    }))
}

fn loop_data(app: &App) -> Result<Option<LoopData>, String> {
    let own_ids = app.data.join("state-ids");
    let found = Loops::open_existing(&app.config.project, &own_ids)
        .and_then(|loops| loops.find(None).map(|row| (loops, row)));
    let (loops, row) = match found {
        Err(crate::loops::LoopError::NoLoop(_)) => return Ok(None),
        found => found.map_err(|e| e.to_string())?,
    };
    let folder = loops.folder(&row.id);
    let status = LoopStatus::of(&loops, &row).map_err(|e| e.to_string())?;
    Ok(Some(LoopData {
        status,
        heartbeat: read_heartbeat(&folder),
        lines: last_lines(&folder.join("run.log")),
    }))
}

/// The last lines of a log.
fn last_lines(path: &Path) -> Vec<String> {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file: File = regular_file::open(path)?;
        let size = file.metadata()?.len();
        file.seek(SeekFrom::Start(size.saturating_sub(LOG_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(LOG_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().unwrap_or_default();
    String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect()
}
