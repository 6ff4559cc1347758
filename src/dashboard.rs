//! `rgpu dashboard`: hosts, runs, suites, queue, loops and predictions on one local page.
//!
//! ```text
//! run folders ─▶ RunTable ─┐
//! .rgpu/state.db ──────────┼─▶ documents ─▶ /api/v1 ─▶ the page, or the files of an export
//! facts of hosts ──────────┘
//! ```
//!
//! Nothing here measures anything: what the page starts are rgpu's own commands, as processes of
//! their own. The only thing that is written is the index of runs in the state database, also if
//! the page is read-only. Documents of other commands are served as those commands print them; what
//! only the page needs has types here.

mod access;
mod action;
mod export;
mod export_folder;
mod field_names;
mod host;
mod live;
mod overview;
mod page;
mod project_reader;
mod queue_and_loops;
mod run_detail;
mod run_query;
mod run_summary;
mod run_table;
mod server;
mod suites;
mod text_document;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, watch};

use access::AccessControl;
use live::Revision;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_run::run::FactsCache;
use rgpu_work::own_command::{CommandLine, CommandRegistry, CommandResult, OwnProgram};
use run_table::RunTable;

pub use export::{DashboardExport, ExportOptions, export};
#[cfg(test)]
pub(crate) use host::FailedHostTry;
pub(crate) use host::{HealthLevel, HostState};
pub(crate) use overview::RunningRun;
pub(crate) use project_reader::{HostsAndRuns, ProjectReader};
pub(crate) use run_summary::RunSummary;
pub use server::{ServeOptions, serve};

/// Time limit for reading a document. Another process may have locked the state database.
const READ_LIMIT: Duration = Duration::from_secs(3);

/// Documents that are read at once, including those that wait for a lock.
const MAX_CONCURRENT_READS: usize = 16;

/// Commands that run at once while a request waits for their result.
const MAX_CONCURRENT_COMMANDS: usize = 4;

/// The folders, the program and the hosts that the page shows.
#[derive(Clone)]
pub struct DashboardContext {
    /// The path of rgpu's own program, which actions start.
    pub program: PathBuf,
    /// The folder of the project.
    pub project: PathBuf,
    /// The folder with the project's runs.
    pub runs: PathBuf,
    /// The file with the ids of this user's state databases.
    pub own_ids: PathBuf,
    /// The hosts of the user's settings, and this machine.
    pub hosts: Arc<[DashboardHost]>,
}

/// A host of the user's settings.
pub struct DashboardHost {
    /// The name in the user's settings.
    pub name: String,
    /// The address in the user's settings.
    pub address: String,
    /// Whether commands use it if none is named.
    pub default: bool,
    /// The facts of its last check.
    pub facts: FactsCache,
}

/// The state that all requests share.
struct Server {
    context: DashboardContext,
    table: Arc<RunTable>,
    access: AccessControl,
    started_commands: CommandRegistry,
    reads: Arc<Semaphore>,
    commands: Arc<Semaphore>,
    revision: watch::Sender<Revision>,
    numbers: AtomicU64,
    last_request: Mutex<Instant>,
    page: page::PageDocument,
}

impl Server {
    fn new(context: DashboardContext, access: AccessControl) -> Self {
        let table = RunTable::new(&context.runs, &context.project, &context.own_ids);
        Self {
            table: Arc::new(table),
            page: page::PageDocument::new(&page::PageSettings::for_server(&context, &access)),
            context,
            access,
            started_commands: CommandRegistry::default(),
            reads: Arc::new(Semaphore::new(MAX_CONCURRENT_READS)),
            commands: Arc::new(Semaphore::new(MAX_CONCURRENT_COMMANDS)),
            revision: watch::Sender::new(Revision::default()),
            numbers: AtomicU64::new(0),
            last_request: Mutex::new(Instant::now()),
        }
    }

    fn own_program(&self) -> OwnProgram {
        let context = &self.context;
        OwnProgram {
            path: context.program.clone(),
            folder: context.project.clone(),
            agent_folder: None,
        }
    }

    fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Reads files or the database on a thread that may wait.
    async fn blocking<T: Send + 'static>(
        &self,
        read: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let busy = || {
            let what = "the project's files or its state database are busy";
            Failure::new(Exit::Disk, "busy", what)
                .hint("another process holds them; this page asks again by itself")
        };
        let permit = Arc::clone(&self.reads).try_acquire_owned().map_err(|_| busy())?;
        let read = tokio::task::spawn_blocking(move || {
            let result = read();
            drop(permit);
            result
        });
        match tokio::time::timeout(READ_LIMIT, read).await {
            Ok(Ok(result)) => result,
            Ok(Err(e)) => Err(Failure::new(Exit::Bug, "bug", "a document cannot be made").cause(e)),
            Err(_) => Err(busy()),
        }
    }

    /// Runs a command to its end. If the client goes away, it is stopped.
    async fn run_command(&self, line: CommandLine, limit: Duration) -> Result<CommandResult> {
        let failed = |e| Failure::new(Exit::Bug, "bug", "no command can be started").cause(e);
        let permit = Arc::clone(&self.commands).acquire_owned().await.map_err(failed)?;
        line.run_with_permit(&self.own_program(), limit, permit).await
    }
}
