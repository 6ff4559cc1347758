//! Lost and restored links, in the events of the run's folder. Whoever follows the folder, such as
//! the dashboard or an agent, then sees why no news comes.

use rgpu_protocol::plan::valid_job_id;

use super::{Reporter, RunEvent};
use crate::store::{RunFolder, Runs};

/// Appends lost and restored links to the `events.jsonl` of a run, if the run has a folder.
pub struct LinkRecord {
    runs: Runs,
    run: String,
}

impl LinkRecord {
    /// For the run `run` below `runs`.
    pub fn new(runs: Runs, run: &str) -> Self {
        Self { runs, run: run.to_owned() }
    }

    fn folder(&self) -> Option<RunFolder> {
        let is_name = valid_job_id(&self.run);
        is_name.then(|| RunFolder::open(&self.runs.root().join(&self.run)).ok()).flatten()
    }
}

impl Reporter for LinkRecord {
    fn report(&mut self, event: &RunEvent<'_>) {
        let why = match event {
            // Without the wait: it is the first one, and later attempts wait longer.
            RunEvent::LinkLost { why, .. } => Some(why.as_str()),
            // A run that nobody followed is resumed.
            RunEvent::LinkBack {} | RunEvent::Connected { .. } => None,
            _ => return,
        };
        let Some(folder) = self.folder() else { return };
        if why.is_some() || folder.has_events() {
            // The run's own events report a full disk.
            let _ = folder.recorder().and_then(|mut recorder| recorder.link(why));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::live::phase;

    #[test]
    fn a_lost_link_is_the_phase_of_the_run_until_it_is_back() {
        let root = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(root.path(), "one", None).unwrap();
        folder.write("run.json", b"{}").unwrap();
        let mut record = LinkRecord::new(Runs::new(root.path()), "one");
        let lost = RunEvent::LinkLost { why: "cut".to_owned(), retry_s: 1 };
        record.report(&RunEvent::Connected { ms: 1 });
        assert!(!folder.has_events(), "a new run has no lost link to end");
        record.report(&lost);
        assert_eq!(phase(&folder).as_deref(), Some("the link is lost: cut"));
        for back in [RunEvent::LinkBack {}, RunEvent::Connected { ms: 1 }] {
            folder
                .write("events.jsonl", b"{\"event\":\"step_started\",\"title\":\"ncu\"}\n")
                .unwrap();
            record.report(&lost);
            record.report(&back);
            assert_eq!(phase(&folder).as_deref(), Some("ncu"));
        }
    }

    #[test]
    fn a_command_without_a_run_folder_records_nothing() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("runs")).unwrap();
        for run in ["absent", "", "..", "../runs"] {
            let mut record = LinkRecord::new(Runs::new(root.path().join("runs")), run);
            record.report(&RunEvent::LinkLost { why: "cut".to_owned(), retry_s: 1 });
        }
        let left: Vec<_> = walkdir::WalkDir::new(root.path()).into_iter().flatten().collect();
        assert_eq!(left.len(), 2, "{left:?}");
    }
}
