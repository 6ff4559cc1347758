//! The runs of a project: creates, lists, finds and removes them.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rustix::fs::FileType;

use super::error::io_error;
use super::folder::{LATEST, RECORD_FILE};
use super::follower::{self, Follower};
use super::made::{self, MadeFolders};
use super::{RunFolder, RunRecord, RunState, StoreError};
use rgpu_model::beneath::Folder;

/// The file of the root with the id of the latest run.
const LATEST_FILE: &str = ".latest";

/// Longer than any id with its newline.
const MAX_LATEST_BYTES: u64 = 1024;

/// The documents of which a run with a result has one.
const RESULTS: [&str; 3] = ["profile.json", "compare.json", "fan-out.json"];

/// The document of a suite. Its results are those of its cases, which are runs of their own.
const SUITE: &str = "suite.json";

/// The runs below one root folder.
#[derive(Clone, Debug)]
pub struct Runs {
    root: PathBuf,
    made: Option<MadeFolders>,
}

/// Ended runs that may be removed, newest first.
#[derive(Debug, Default)]
pub struct RunsToRemove {
    /// Those whose folders this user's rgpu has made.
    pub made: Vec<RunLine>,
    /// The others: they came with the project, were copied, or an earlier version made them.
    pub foreign: Vec<RunLine>,
}

/// A run in a list.
#[derive(Clone, Debug)]
pub struct RunLine {
    /// The path of the run folder.
    pub folder: PathBuf,
    /// The content of its `run.json`.
    pub record: RunRecord,
    /// Size on disk in bytes.
    pub bytes: u64,
}

impl Runs {
    /// The runs below `root`, which may not exist yet.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), made: None }
    }

    /// The same, with the list in which the folders are recorded that it makes. Without such a list
    /// no folder counts as made here.
    pub fn recorded_in(self, made: MadeFolders) -> Self {
        Self { made: Some(made), ..self }
    }

    /// The folder that contains the runs.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Creates a run with the id `chosen`, else with a fresh id that contains `name`, in `out` if
    /// given, else below the root. It becomes the latest.
    pub fn create(
        &self,
        chosen: Option<&str>,
        name: &str,
        now: Timestamp,
        out: Option<&Path>,
    ) -> Result<(String, RunFolder), StoreError> {
        let (id, folder) = self.claim(chosen, name, now, out)?;
        if out.is_none() {
            folder.becomes_latest()?;
        }
        Ok((id, folder))
    }

    /// As [`Runs::create`], without making it the latest.
    pub fn claim(
        &self,
        chosen: Option<&str>,
        name: &str,
        now: Timestamp,
        out: Option<&Path>,
    ) -> Result<(String, RunFolder), StoreError> {
        let (id, folder) = match chosen {
            Some(id) => (id.to_owned(), RunFolder::create_without_latest(&self.root, id, out)?),
            None => loop {
                let id = Self::fresh_id(name, now);
                match RunFolder::create_without_latest(&self.root, &id, out) {
                    // Another run got the same time and random number.
                    Err(StoreError::Taken(_)) => {}
                    claimed => break (id, claimed?),
                }
            },
        };
        if let (Some(made), None) = (&self.made, out) {
            // A folder that cannot be recorded is not removed without asking.
            let _ = made.add(folder.files());
        }
        Ok((id, folder))
    }

    /// A fresh id that sorts by time: `20261120-101502-vecadd-ncu-3f2a1c`. The random number
    /// distinguishes runs that start in the same second, on any machine.
    pub fn fresh_id(name: &str, now: Timestamp) -> String {
        let stamp = now.strftime("%Y%m%d-%H%M%S");
        let word: String = name
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
            .take(40)
            .collect();
        let random = RandomState::new().build_hasher().finish() & 0xff_ffff;
        format!("{stamp}-{}-{random:06x}", word.trim_matches('-'))
    }

    /// All runs, newest first, without folders that have no readable record.
    pub fn list(&self) -> Result<Vec<RunLine>, StoreError> {
        Ok(self.list_with_unreadable()?.0)
    }

    /// All runs, newest first, and why the records of other folders cannot be read.
    pub fn list_with_unreadable(&self) -> Result<(Vec<RunLine>, Vec<StoreError>), StoreError> {
        let (mut lines, mut unreadable) = (Vec::new(), Vec::new());
        let Some(root) = self.open_root()? else { return Ok((lines, unreadable)) };
        for id in ids_in(&root)? {
            // A folder that was removed meanwhile is no run any more.
            let Ok(folder) = RunFolder::look_in(&root, &id) else { continue };
            match folder.current_record() {
                Ok(record) => lines.push(RunLine {
                    bytes: bytes_of(folder.files()),
                    folder: folder.path().into(),
                    record,
                }),
                Err(error) => unreadable.push(error),
            }
        }
        lines.sort_by(|a, b| b.record.started.cmp(&a.record.started).then(b.folder.cmp(&a.folder)));
        Ok((lines, unreadable))
    }

    /// The records of all runs, newest first. Unlike [`Runs::list`], it does not look at their
    /// sizes.
    pub fn records(&self) -> Result<Vec<RunRecord>, StoreError> {
        let Some(root) = self.open_root()? else { return Ok(Vec::new()) };
        let record = |id: String| RunFolder::look_in(&root, &id).ok()?.current_record().ok();
        let mut records: Vec<RunRecord> = ids_in(&root)?.into_iter().filter_map(record).collect();
        records.sort_by(|a, b| b.started.cmp(&a.started));
        Ok(records)
    }

    /// Finds a run by path, id, unique prefix, `latest` or `latest~N`.
    pub fn find(&self, name: &str) -> Result<RunFolder, StoreError> {
        self.find_among(name, |_| true)
    }

    /// As [`Runs::find`], but `latest` and `latest~N` pass over suites, and over runs that ended
    /// without a result, such as commands and failures. If all did, the latest is returned.
    pub fn find_result(&self, name: &str) -> Result<RunFolder, StoreError> {
        let has_result = |folder: &RunFolder| {
            let ended =
                |record: RunRecord| !matches!(record.state, RunState::Running | RunState::Detached);
            RESULTS.iter().any(|file| folder.has(file))
                || !folder.has(SUITE) && !folder.record().is_ok_and(ended)
        };
        self.find_preferring(name, has_result)
    }

    /// As [`Runs::find`], but `latest` and `latest~N` pass over runs that `counts` refuses. If it
    /// refuses all, the latest is returned.
    pub fn find_preferring(
        &self,
        name: &str,
        counts: impl Fn(&RunFolder) -> bool,
    ) -> Result<RunFolder, StoreError> {
        match self.find_among(name, counts) {
            Err(StoreError::Unknown(_)) => self.find(name),
            found => found,
        }
    }

    /// As [`Runs::find`], but `latest` and `latest~N` count only runs that `counts` accepts.
    pub fn find_among(
        &self,
        name: &str,
        counts: impl Fn(&RunFolder) -> bool,
    ) -> Result<RunFolder, StoreError> {
        // A folder in the current one may be given without a slash.
        let unknown = || match RunFolder::open(Path::new(name)) {
            Err(no_run @ StoreError::NoRun { .. }) => no_run,
            _ => StoreError::Unknown(name.to_owned()),
        };
        if name.contains('/')
            || name.contains(std::path::MAIN_SEPARATOR)
            || Path::new(name).join("run.json").is_file()
        {
            let path = Path::new(name);
            // The link for people.
            return match (path.file_name() == Some(LATEST.as_ref()), path.parent()) {
                (true, Some(root)) => Self::new(root).find(LATEST),
                _ => RunFolder::open(path),
            };
        }
        let root = || self.open_root()?.ok_or_else(unknown);
        let back = match name.strip_prefix("latest") {
            Some("") => Some(0),
            Some(rest) => {
                rest.strip_prefix('~').map(|n| n.parse().map_err(|_| unknown())).transpose()?
            }
            None => None,
        };
        if let Some(back) = back {
            let root = root()?;
            let last = latest_in(&root).unwrap_or_default();
            let ids = newest_first(&root, ids_in(&root)?);
            let at = ids.iter().position(|id| id == last.trim()).unwrap_or(0);
            let is_counted =
                |id: &&String| RunFolder::look_in(&root, id).as_ref().map_or(true, &counts);
            let id = ids[at..].iter().filter(is_counted).nth(back).ok_or_else(unknown)?;
            return RunFolder::open_in(&root, id);
        }
        // The folder of a whole id is there without a look at all others.
        let is_one_word = Path::new(name).file_name().is_some_and(|word| word == name);
        let root = root()?;
        if is_one_word {
            match RunFolder::open_in(&root, name) {
                Err(StoreError::Unknown(_) | StoreError::NoRun { .. }) => {}
                opened => return opened,
            }
        }
        let mut fits: Vec<String> =
            ids_in(&root)?.into_iter().filter(|id| id.starts_with(name)).collect();
        fits.sort();
        match (fits.len(), name.is_empty()) {
            (1, false) => RunFolder::open_in(&root, &fits.remove(0)),
            (0, _) | (_, true) => Err(unknown()),
            _ => Err(StoreError::Ambiguous { name: name.to_owned(), fits }),
        }
    }

    /// The run whose whole id this is. `None` if there is none.
    pub fn find_id(&self, id: &str) -> Option<Result<RunFolder, StoreError>> {
        let is_one_word = Path::new(id).file_name().is_some_and(|word| word == id);
        let root = self.open_root().ok()?.filter(|_| is_one_word)?;
        let is_run = root.is_file(Path::new(id).join(RECORD_FILE));
        is_run.then(|| RunFolder::open_in(&root, id))
    }

    /// The ended runs without the newest `keep` of them. Runs that may still continue, or that a
    /// process follows, are not included. Runs whose folders were not made here do not count among
    /// the newest of those that were: their records may name any time.
    pub fn ended_runs_to_prune(&self, keep: usize) -> Result<RunsToRemove, StoreError> {
        let mut ended = self.list()?;
        ended.retain(|line| !line.record.state.is_active());
        let newest: Vec<PathBuf> =
            ended.iter().take(keep).map(|line| line.folder.clone()).collect();
        let mut old = self.split_by_maker(ended)?;
        old.made = old.made.into_iter().skip(keep).filter(|line| !is_followed(line)).collect();
        old.foreign.retain(|line| !newest.contains(&line.folder) && !is_followed(line));
        Ok(old)
    }

    /// Splits runs by who made their folders.
    pub fn split_by_maker(&self, lines: Vec<RunLine>) -> Result<RunsToRemove, StoreError> {
        let Some(root) = self.open_root()? else { return Ok(RunsToRemove::default()) };
        let marks = self.made.as_ref().map(MadeFolders::marks).unwrap_or_default();
        let is_made = |line: &RunLine| {
            let folder = line.folder.file_name().and_then(|id| root.folder(id).ok());
            folder.is_some_and(|folder| made::mark(&folder).is_ok_and(|mark| marks.contains(&mark)))
        };
        let (made, foreign) = lines.into_iter().partition(is_made);
        Ok(RunsToRemove { made, foreign })
    }

    /// The ended runs with these whole ids, whoever made their folders. Links in the folders do not
    /// matter: a folder is removed with them.
    ///
    /// # Errors
    /// [`StoreError::Unknown`]; [`StoreError::NotEnded`] if a run may continue or a process follows
    /// it; I/O errors.
    pub fn ended_runs_named(&self, ids: &[String]) -> Result<Vec<RunLine>, StoreError> {
        let all = self.list()?;
        let mut named = Vec::new();
        for id in ids {
            let is_named =
                |line: &&RunLine| line.folder.file_name().is_some_and(|name| *name == **id);
            let line = all.iter().find(is_named);
            let Some(line) = line else { return Err(self.why_not_listed(id)) };
            if line.record.state.is_active() || is_followed(line) {
                return Err(StoreError::NotEnded(id.clone()));
            }
            if !named.iter().any(|other: &RunLine| other.folder == line.folder) {
                named.push(line.clone());
            }
        }
        Ok(named)
    }

    /// The ended runs of `rgpu exec` that left nothing but their record and their output, newest
    /// first: without results, note, label or a command that started them. Their sizes are 0.
    pub fn ended_runs_without_results(&self) -> Vec<RunLine> {
        let mut lines = Vec::new();
        let Ok(Some(root)) = self.open_root() else { return lines };
        // Only folders with the name of such a run are read: a project may have thousands of runs.
        let ids = ids_in(&root).unwrap_or_default().into_iter().filter(|id| id.contains("-exec-"));
        for id in ids {
            let Ok(folder) = RunFolder::look_in(&root, &id) else { continue };
            let Ok(record) = folder.current_record() else { continue };
            let is_bare = record.command == "exec"
                && record.mode.is_empty()
                && record.note.is_empty()
                && record.labels.is_empty()
                && record.parent.is_none();
            let is_ended = !record.state.is_active() && follower::current(folder.files()).is_none();
            if is_bare && is_ended && has_only_records(folder.files()) {
                lines.push(RunLine { folder: folder.path().into(), record, bytes: 0 });
            }
        }
        lines.sort_by(|a, b| b.record.started.cmp(&a.record.started).then(b.folder.cmp(&a.folder)));
        lines
    }

    /// Why no run with this whole id is in the list: there is none, or its folder or record is a
    /// link or no file.
    fn why_not_listed(&self, id: &str) -> StoreError {
        let unknown = || StoreError::Unknown(id.to_owned());
        let is_one_word = Path::new(id).file_name().is_some_and(|word| word == id);
        match self.open_root() {
            Ok(Some(root)) if is_one_word => RunFolder::open_in(&root, id)
                .and_then(|run| run.record())
                .err()
                .unwrap_or_else(unknown),
            Ok(_) => unknown(),
            Err(error) => error,
        }
    }

    /// Removes these runs, except those that a process follows. If the latest was removed, `latest`
    /// then names the newest that is left.
    pub fn remove(&self, lines: &[RunLine]) -> Result<(), StoreError> {
        let Some(root) = self.open_root()? else { return Ok(()) };
        for line in lines {
            let Some(id) = line.folder.file_name() else { continue };
            // Another command may have removed it first.
            let Ok(folder) = root.folder(id) else { continue };
            let Ok(_alone) = Follower::begin(&folder) else { continue };
            match root.remove_folder(id) {
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                other => other.map_err(io_error("remove", &line.folder))?,
            }
        }
        repair_latest(&root)
    }

    /// Opens the root. `None` if there is none yet.
    fn open_root(&self) -> Result<Option<Folder>, StoreError> {
        match Folder::open(&self.root) {
            Ok(root) => Ok(Some(root)),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(io_error("read", &self.root)(e)),
        }
    }

    /// The number of runs.
    pub fn count(&self) -> usize {
        self.ids().map_or(0, |ids| ids.len())
    }

    /// The ids of the suites among the runs, in the order of [`Runs::ids`].
    pub fn suite_ids(&self) -> Result<Vec<String>, StoreError> {
        let Some(root) = self.open_root()? else { return Ok(Vec::new()) };
        let mut ids = ids_in(&root)?;
        ids.retain(|id| root.is_file(Path::new(id).join(SUITE)));
        Ok(ids)
    }

    /// The ids of all runs, in no order.
    pub fn ids(&self) -> Result<Vec<String>, StoreError> {
        self.open_root()?.map_or(Ok(Vec::new()), |root| ids_in(&root))
    }
}

/// Whether a process follows the run.
fn is_followed(line: &RunLine) -> bool {
    Folder::open(&line.folder).is_ok_and(|folder| follower::current(&folder).is_some())
}

/// The ids of the runs below a root, in no order. A link to a run is none.
fn ids_in(root: &Folder) -> Result<Vec<String>, StoreError> {
    let entries = root.entries().map_err(io_error("read", root.path()))?;
    let folders = entries.into_iter().filter(|entry| entry.kind == FileType::Directory);
    let runs = folders.filter(|entry| root.is_file(entry.path.join(RECORD_FILE)));
    Ok(runs.filter_map(|entry| entry.path.into_os_string().into_string().ok()).collect())
}

/// Sorted by start time, newest first: ids given by the user do not contain it.
fn newest_first(root: &Folder, ids: Vec<String>) -> Vec<String> {
    let started = |id: &String| {
        let record = RunFolder::look_in(root, id).and_then(|run| run.record());
        record.map(|record| record.started).unwrap_or_default()
    };
    let mut dated: Vec<(String, String)> = ids.into_iter().map(|id| (started(&id), id)).collect();
    dated.sort_by(|a, b| b.cmp(a));
    dated.into_iter().map(|(_, id)| id).collect()
}

/// The id of the latest run, with its newline.
fn latest_in(root: &Folder) -> Option<String> {
    let recorded = root.read_to_string(LATEST_FILE, MAX_LATEST_BYTES);
    // Earlier versions had a file `latest` instead of the link.
    recorded.or_else(|_| root.read_to_string(LATEST, MAX_LATEST_BYTES)).ok()
}

/// Records the latest run, and makes the link for people.
pub(super) fn set_latest(root: &Folder, id: &str) -> Result<(), StoreError> {
    let written = root.write(LATEST_FILE, format!("{id}\n").as_bytes());
    // The link may stand on a file system without links. rgpu does not need it.
    let _ = root.link(id, LATEST);
    written.map_err(io_error("write", &root.path().join(LATEST_FILE)))
}

fn repair_latest(root: &Folder) -> Result<(), StoreError> {
    let Some(last) = latest_in(root) else { return Ok(()) };
    let ids = ids_in(root)?;
    if ids.iter().any(|id| id == last.trim()) {
        return Ok(());
    }
    if let Some(id) = newest_first(root, ids).first() {
        return set_latest(root, id);
    }
    for name in [LATEST, LATEST_FILE] {
        match root.remove_file(name) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(io_error("remove", &root.path().join(name))(e));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Creates the root folder, with a `.gitignore` so that runs are never committed by accident.
pub(super) fn prepare_root(path: &Path) -> Result<Folder, StoreError> {
    let root = Folder::create(path).map_err(io_error("create", path))?;
    let ignore = path.join(".gitignore");
    if root.stat(".gitignore").map_err(io_error("read", &ignore))?.is_none() {
        root.write(".gitignore", b"*\n").map_err(io_error("write", &ignore))?;
    }
    Ok(root)
}

fn bytes_of(folder: &Folder) -> u64 {
    let files = folder.walk().unwrap_or_default();
    let files = files.iter().filter(|entry| entry.kind == FileType::RegularFile);
    files.map(|entry| entry.bytes).sum()
}

/// Whether a run folder holds only what every run writes.
fn has_only_records(folder: &Folder) -> bool {
    const RECORDS: &[&str] = &[
        "commands.sh",
        "config.toml",
        "env.json",
        "error.json",
        "events.jsonl",
        "inputs.json",
        "log",
        "run.json",
    ];
    let Ok(entries) = folder.entries() else { return false };
    for entry in entries {
        let name = entry.path.to_string_lossy();
        let is_plan = name.starts_with("plan-") && name.ends_with(".json");
        if !is_plan && !RECORDS.contains(&&*name) {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::JobRecord;

    fn run(root: &Path, id: &str, state: RunState) {
        let job = JobRecord {
            job: format!("{id}.1"),
            remote: "local".into(),
            last_seq: 0,
            outcome: None,
            unsynced: Vec::new(),
        };
        let record = RunRecord {
            jobs: vec![job],
            started: format!("2026-01-01T00:00:{:02}Z", id.len()),
            remote: "local".into(),
            state,
            ..RunRecord::new(id.into(), "profile", Timestamp::UNIX_EPOCH)
        };
        RunFolder::create(root, id, None).unwrap().save(&record).unwrap();
    }

    #[test]
    fn runs_are_found_by_prefix_latest_and_path() {
        let dir = tempfile::tempdir().unwrap();
        let runs = Runs::new(dir.path());
        assert!(matches!(runs.find("latest"), Err(StoreError::Unknown(_))));
        for id in ["20260101-a", "20260102-bb", "20260103-ccc"] {
            run(dir.path(), id, RunState::Done);
        }
        let found = |name: &str| runs.find(name).map(|f| f.record().unwrap().id);
        assert_eq!(found("latest").unwrap(), "20260103-ccc");
        assert_eq!(found("latest~2").unwrap(), "20260101-a");
        assert_eq!(found("20260102").unwrap(), "20260102-bb");
        assert!(matches!(found("2026"), Err(StoreError::Ambiguous { .. })));
        assert!(matches!(found("latest~9"), Err(StoreError::Unknown(_))));
        assert!(matches!(found(""), Err(StoreError::Unknown(_))));
        // The first to start, whatever its name.
        run(dir.path(), "z", RunState::Done);
        set_latest(&Folder::open(dir.path()).unwrap(), "20260103-ccc").unwrap();
        assert_eq!(found("latest~3").unwrap(), "z");
        let path = dir.path().join("20260101-a");
        assert_eq!(found(path.to_str().unwrap()).unwrap(), "20260101-a");
    }

    #[test]
    fn the_latest_run_that_counts_is_preferred_to_the_latest() {
        let dir = tempfile::tempdir().unwrap();
        let runs = Runs::new(dir.path());
        for id in ["a", "bb", "ccc"] {
            run(dir.path(), id, RunState::Done);
        }
        let preferred = |name: &str, wanted: &[&str]| {
            let counts = |folder: &RunFolder| wanted.contains(&&*folder.record().unwrap().id);
            runs.find_preferring(name, counts).unwrap().record().unwrap().id
        };
        assert_eq!(preferred("latest", &["a", "bb"]), "bb");
        assert_eq!(preferred("latest~1", &["a", "bb"]), "a");
        assert_eq!(preferred("latest", &[]), "ccc");
        assert_eq!(preferred("ccc", &["a"]), "ccc");
    }

    #[test]
    fn a_run_that_ended_without_a_result_is_not_the_latest_result() {
        let dir = tempfile::tempdir().unwrap();
        let runs = Runs::new(dir.path());
        let results = |name: &str| runs.find_result(name).map(|f| f.record().unwrap().id);
        run(dir.path(), "a", RunState::Failed);
        assert_eq!(results("latest").unwrap(), "a");
        run(dir.path(), "bb", RunState::Running);
        run(dir.path(), "ccc", RunState::Failed);
        run(dir.path(), "dddd", RunState::Done);
        assert_eq!(results("latest").unwrap(), "bb");
        assert_eq!(runs.find("latest").unwrap().record().unwrap().id, "dddd");
        // A profile with a failure, such as wrong results, is a result.
        std::fs::write(dir.path().join("ccc/profile.json"), "{}").unwrap();
        assert_eq!(results("latest").unwrap(), "ccc");
        assert_eq!(results("latest~1").unwrap(), "bb");
        assert_eq!(results("dddd").unwrap(), "dddd");
    }

    #[test]
    fn cleaning_keeps_the_newest_and_never_touches_a_running_one() {
        let dir = tempfile::tempdir().unwrap();
        let data = tempfile::tempdir().unwrap();
        let made = MadeFolders::in_data(data.path());
        for (id, state) in
            [("a", RunState::Running), ("bb", RunState::Done), ("ccc", RunState::Failed)]
        {
            run(dir.path(), id, state);
            made.add(&Folder::open(&dir.path().join(id)).unwrap()).unwrap();
        }
        // This one came with the project, and says that it is the newest.
        run(dir.path(), "dddd", RunState::Done);
        let runs = Runs::new(dir.path()).recorded_in(made);
        // Its results are still being fetched.
        let followed = runs.find("bb").unwrap().follow().unwrap();
        assert!(runs.ended_runs_to_prune(1).unwrap().made.is_empty());
        drop(followed);
        let old = runs.ended_runs_to_prune(1).unwrap();
        assert!(old.foreign.is_empty());
        runs.remove(&old.made).unwrap();
        assert_eq!(old.made.iter().map(|l| l.record.id.as_str()).collect::<Vec<_>>(), ["bb"]);
        assert!(dir.path().join("a").exists() && dir.path().join("ccc").exists());
        let latest = || {
            let id = std::fs::read_to_string(dir.path().join(LATEST_FILE))?;
            let link = std::fs::read_link(dir.path().join("latest"))?;
            assert_eq!(link, Path::new(id.trim()));
            std::io::Result::Ok(id)
        };
        let old = runs.ended_runs_to_prune(0).unwrap();
        assert_eq!(old.foreign.iter().map(|l| l.record.id.as_str()).collect::<Vec<_>>(), ["dddd"]);
        runs.remove(&old.made).unwrap();
        assert!(dir.path().join("dddd").exists());
        runs.remove(&runs.ended_runs_named(&["dddd".to_owned()]).unwrap()).unwrap();
        assert_eq!(latest().unwrap(), "a\n");
        let named = |id: &str| runs.ended_runs_named(&[id.to_owned()]).unwrap_err();
        assert!(matches!(named("a"), StoreError::NotEnded(_)));
        assert!(matches!(named("../data"), StoreError::Unknown(_)));
    }

    #[test]
    fn runs_of_one_moment_have_folders_of_their_own() {
        let dir = tempfile::tempdir().unwrap();
        let runs = Runs::new(dir.path());
        let begin = || runs.claim(None, "exec-true", Timestamp::UNIX_EPOCH, None).unwrap().0;
        let ids: std::collections::BTreeSet<_> = (0..100).map(|_| begin()).collect();
        assert!(ids.len() == 100 && ids.iter().all(|id| dir.path().join(id).is_dir()), "{ids:?}");
        let chosen = |id| runs.create(Some(id), "", Timestamp::UNIX_EPOCH, None);
        assert_eq!(chosen("one").unwrap().0, "one");
        assert!(matches!(chosen("one"), Err(StoreError::Taken(_))));
    }

    #[test]
    fn ids_sort_by_time_and_name_the_kernel() {
        let at = |s: &str| s.parse::<Timestamp>().unwrap();
        let a = Runs::fresh_id("Tiled Matmul", at("2026-11-20T10:15:02Z"));
        let b = Runs::fresh_id("vecadd", at("2026-11-20T10:15:03Z"));
        assert!(a.starts_with("20261120-101502-tiled-matmul-") && a < b, "{a} {b}");
    }
}
