//! The hosts and what runs there, for a terminal: `rgpu top` shows of them what the page shows.

use super::DashboardContext;
use super::host::{HostState, hosts};
use super::overview::{RunningRun, running_runs};
use super::run_table::RunTable;
use rgpu_work::queue::Entry;

/// Reads the hosts and runs of a project again and again. Of the runs, only what has changed is
/// read.
pub(crate) struct ProjectReader {
    context: DashboardContext,
    table: RunTable,
}

/// The hosts and the runs that may go on there.
pub(crate) struct HostsAndRuns {
    /// The hosts of the user's settings, and this machine.
    pub(crate) hosts: Vec<HostState>,
    /// The newest of the runs that run or are detached.
    pub(crate) running: Vec<RunningRun>,
    /// The number of all of these runs.
    pub(crate) running_count: usize,
    /// Whether runs are still being read for the first time.
    pub(crate) reading: bool,
    /// Why the runs cannot be read, or their index cannot be kept.
    pub(crate) problem: Option<String>,
}

impl ProjectReader {
    pub(crate) fn new(context: DashboardContext) -> Self {
        let table = RunTable::new(&context.runs, &context.project, &context.own_ids);
        Self { context, table }
    }

    /// Reads the runs that have changed. The first time may take seconds, and a database that
    /// another process holds is waited for. Meanwhile [`ProjectReader::hosts_and_runs`] has what is
    /// read already.
    pub(crate) fn refresh(&self) {
        self.table.refresh();
    }

    /// The hosts and runs as they were last read. `entries` are those of the queue.
    pub(crate) fn hosts_and_runs(&self, entries: &[Entry]) -> HostsAndRuns {
        let snapshot = self.table.snapshot();
        HostsAndRuns {
            hosts: hosts(&self.context, &snapshot, entries).hosts,
            running: running_runs(&self.context, &snapshot),
            running_count: snapshot.running.len(),
            reading: snapshot.reading,
            problem: self.table.problem(),
        }
    }
}
