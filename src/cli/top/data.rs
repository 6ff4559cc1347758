//! The data of the view: the hosts and runs as the dashboard has them, the queue and the newest
//! loop. Separate threads read it, so that neither many runs nor a locked database delays a key
//! press.

use std::fs::File;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;

use crate::dashboard::{DashboardContext, HostState, HostsAndRuns, ProjectReader, RunningRun};
use rgpu_run::store::live::tail_of;
use rgpu_work::loops::{Heartbeat, LoopStatus, Loops};
use rgpu_work::queue::{Entry, Queue};

/// How long to wait between two readings.
const READ_INTERVAL: Duration = Duration::from_secs(1);

/// How much of the end of `run.log` is read.
const LOG_BYTES: u64 = 16 << 10;

/// All that the view shows.
#[derive(Clone, Debug, Default)]
pub(super) struct TopData {
    pub(super) project: String,
    /// The moment of this reading.
    pub(super) now: Timestamp,
    pub(super) hosts: Vec<HostState>,
    /// The newest of the runs that run or are detached.
    pub(super) running: Vec<RunningRun>,
    /// The number of all of these runs.
    pub(super) running_count: usize,
    /// Whether runs are still being read for the first time.
    pub(super) reading: bool,
    /// `None` without a queue.
    pub(super) queue: Option<QueueData>,
    /// `None` without a loop.
    pub(super) loop_data: Option<LoopData>,
    /// Why something could not be read.
    pub(super) problem: Option<String>,
}

/// The queue as the view shows it.
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

/// Reads what the view shows, until the process ends.
pub(super) struct TopReader {
    latest: Arc<Mutex<Option<Arc<TopData>>>>,
}

impl TopReader {
    pub(super) fn start(context: DashboardContext) -> Self {
        let latest = Arc::new(Mutex::new(None));
        let project = Arc::new(ProjectReader::new(context.clone()));
        let (own, filled) = (Arc::clone(&project), Arc::clone(&latest));
        std::thread::spawn(move || {
            loop {
                own.refresh();
                std::thread::sleep(READ_INTERVAL);
            }
        });
        std::thread::spawn(move || {
            loop {
                let data = Arc::new(TopData::read(&context, &project));
                *filled.lock().unwrap_or_else(PoisonError::into_inner) = Some(data);
                std::thread::sleep(READ_INTERVAL);
            }
        });
        Self { latest }
    }

    /// The latest data; `None` until the first reading has ended.
    pub(super) fn latest(&self) -> Option<Arc<TopData>> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl TopData {
    fn read(context: &DashboardContext, project: &ProjectReader) -> Self {
        let queue = queue(context);
        let loop_data = loop_data(context);
        let entries = queue.as_ref().ok().and_then(Option::as_ref).map(|queue| &queue.entries);
        let HostsAndRuns { hosts, running, running_count, reading, problem } =
            project.hosts_and_runs(entries.map(Vec::as_slice).unwrap_or_default());
        let problems = [loop_data.as_ref().err(), queue.as_ref().err(), problem.as_ref()];
        let problem = problems.into_iter().flatten().next().cloned();
        Self {
            project: context.project.display().to_string(),
            now: Timestamp::now(),
            hosts,
            running,
            running_count,
            reading,
            problem,
            queue: queue.unwrap_or_default(),
            loop_data: loop_data.unwrap_or_default(),
        }
    }
}

fn queue(context: &DashboardContext) -> Result<Option<QueueData>, String> {
    let queue = match Queue::open_existing(&context.project, &context.own_ids) {
        Err(rgpu_work::queue::QueueError::NoQueue(_)) => return Ok(None),
        queue => queue.map_err(|e| e.to_string())?,
    };
    Ok(Some(QueueData {
        entries: queue.entries().map_err(|e| e.to_string())?,
        runner: queue.runner().map(|holder| holder.pid()),
        is_paused: queue.is_paused().map_err(|e| e.to_string())?,
    }))
}

fn loop_data(context: &DashboardContext) -> Result<Option<LoopData>, String> {
    let found = Loops::open_existing(&context.project, &context.own_ids)
        .and_then(|loops| loops.find(None).map(|row| (loops, row)));
    let (loops, row) = match found {
        Err(rgpu_work::loops::LoopError::NoLoop(_)) => return Ok(None),
        found => found.map_err(|e| e.to_string())?,
    };
    let folder = loops.folder(&row.id);
    let status = LoopStatus::for_row(&loops, &row).map_err(|e| e.to_string())?;
    Ok(Some(LoopData {
        status,
        heartbeat: loops.heartbeat(&row.id),
        lines: last_lines(loops.files().open_file(folder.join("run.log")).ok()),
    }))
}

/// The last lines of a log.
fn last_lines(log: Option<File>) -> Vec<String> {
    let (text, _) = log.and_then(|log| tail_of(log, LOG_BYTES)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}
