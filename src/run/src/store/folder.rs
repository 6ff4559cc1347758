//! The folder of one run: creates and opens it, and reads and writes its files.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rgpu_protocol::Event;
use rgpu_protocol::event::Stream;
use rgpu_protocol::plan::{PULLED, valid_job_id, valid_relative_path};
use serde::de::Error as _;
use serde::{Deserialize, Serialize};

use super::error::{StoreError, follower_text, io_error};
use super::follower::{self, Follower, OtherFollower};
use super::{RunRecord, RunState, record};
use rgpu_model::beneath::{self, Folder};
use rgpu_model::error::ErrorDocument;
use rgpu_model::regular_file::MAX_FILE_BYTES;

/// The record of a run.
pub(super) const RECORD_FILE: &str = "run.json";

/// The result of a suite.
const SUITE_FILE: &str = "suite.json";

/// The file with the run's failure (`rgpu.error/1`).
const FAILURE_FILE: &str = "error.json";

/// The name that commands read as the newest run. In the root it is a link for people, which rgpu
/// never follows.
pub(super) const LATEST: &str = "latest";

/// The folder of one run.
///
/// One process at a time follows a run: it holds the folder's lock and writes there. A folder from
/// [`RunFolder::create`] is followed by this process until its last clone is dropped. An opened
/// folder is for reading, until [`RunFolder::follow`].
#[derive(Clone, Debug)]
pub struct RunFolder {
    files: Folder,
    follower: Option<Arc<Follower>>,
}

impl RunFolder {
    /// Creates `<root>/<id>`, or uses `out` if given. A run below `root` becomes the latest.
    pub fn create(root: &Path, id: &str, out: Option<&Path>) -> Result<Self, StoreError> {
        let folder = Self::create_without_latest(root, id, out)?;
        if out.is_none() {
            folder.becomes_latest()?;
        }
        Ok(folder)
    }

    /// As [`RunFolder::create`], without making it the latest.
    ///
    /// # Errors
    /// [`StoreError::Taken`], [`StoreError::NotEmpty`], [`StoreError::BadId`],
    /// [`StoreError::ReservedId`], [`StoreError::Followed`] or an I/O error.
    pub fn create_without_latest(
        root: &Path,
        id: &str,
        out: Option<&Path>,
    ) -> Result<Self, StoreError> {
        if !valid_job_id(id) {
            return Err(StoreError::BadId(id.to_owned()));
        }
        // Some file systems do not tell `Latest` from the file `latest` of the root.
        if id.eq_ignore_ascii_case(LATEST) {
            return Err(StoreError::ReservedId(id.to_owned()));
        }
        let files = match out {
            Some(out) => {
                let failed = io_error("create", out);
                let files = Folder::create(out).map_err(failed)?;
                if !files.entries().map_err(io_error("read", out))?.is_empty() {
                    return Err(StoreError::NotEmpty(out.to_owned()));
                }
                files
            }
            None => match super::list::prepare_root(root)?.new_folder(id) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                    return Err(StoreError::Taken(id.to_owned()));
                }
                made => made.map_err(io_error("create", &root.join(id)))?,
            },
        };
        Self { files, follower: None }.follow()
    }

    /// Follows the run, so that this process may write: no other process can follow it until this
    /// and all clones are dropped.
    pub fn follow(mut self) -> Result<Self, StoreError> {
        if self.follower.is_none() {
            refuse_links(&self.files)?;
            let followed = |OtherFollower { pid }| StoreError::Followed { run: self.name(), pid };
            self.follower = Some(Arc::new(Follower::begin(&self.files).map_err(followed)?));
        }
        Ok(self)
    }

    /// The other process that follows the run, as text; `None` if there is none.
    pub fn followed_by(&self) -> Option<String> {
        let other = follower::current(&self.files).filter(|_| self.follower.is_none());
        other.map(|OtherFollower { pid }| follower_text(pid))
    }

    /// Whether a process follows the run, which may be this one.
    pub fn is_followed(&self) -> bool {
        self.follower.is_some() || self.followed_by().is_some()
    }

    /// The name of the run on a command line: its id if that names the folder, else the path.
    fn name(&self) -> String {
        match self.record() {
            Ok(record) if self.path().file_name().is_some_and(|name| *name == *record.id) => {
                record.id
            }
            _ => self.path().display().to_string(),
        }
    }

    /// Makes this the run that `latest` names in its root.
    pub fn becomes_latest(&self) -> Result<(), StoreError> {
        let (Some(root), Some(id)) = (self.path().parent(), self.path().file_name()) else {
            return Ok(());
        };
        super::list::set_latest(&super::list::prepare_root(root)?, &id.to_string_lossy())
    }

    /// Opens the folder of a run that the user named, for reading. Nothing in it may be a link:
    /// readers open its files by their paths too.
    ///
    /// # Errors
    /// [`StoreError::NoRun`] if it has no `run.json`, [`StoreError::Unknown`] if there is no such
    /// folder, [`StoreError::LinkedFolder`].
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let unknown = || StoreError::Unknown(path.display().to_string());
        // An empty name is no name of the current folder.
        match Folder::open(path) {
            Ok(files) if !path.as_os_str().is_empty() => Self::checked(files),
            _ => Err(unknown()),
        }
    }

    /// Opens the run `id` of a root, as [`RunFolder::open`].
    pub(super) fn open_in(root: &Folder, id: &str) -> Result<Self, StoreError> {
        Self::checked(Self::folder_in(root, id)?)
    }

    /// As [`RunFolder::open_in`], without a look at all files: for the run's own documents alone.
    pub(super) fn look_in(root: &Folder, id: &str) -> Result<Self, StoreError> {
        let files = Self::folder_in(root, id)?;
        if files.is_file(RECORD_FILE) {
            Ok(Self { files, follower: None })
        } else {
            Err(StoreError::Unknown(id.to_owned()))
        }
    }

    fn folder_in(root: &Folder, id: &str) -> Result<Folder, StoreError> {
        root.folder(id).map_err(|e| match beneath::link_of(&e) {
            Some(link) => StoreError::LinkedFolder(link.to_owned()),
            None => StoreError::Unknown(id.to_owned()),
        })
    }

    fn checked(files: Folder) -> Result<Self, StoreError> {
        let has_record = files.stat(RECORD_FILE).is_ok_and(|record| record.is_some());
        if !has_record {
            let path = files.path().to_owned();
            return Err(StoreError::NoRun { inner: newest_run_in(&files), path });
        }
        refuse_links(&files)?;
        if files.is_file(RECORD_FILE) {
            Ok(Self { files, follower: None })
        } else {
            let odd = io::Error::other("it is not a regular file");
            Err(io_error("read", &files.path().join(RECORD_FILE))(odd))
        }
    }

    /// The folder of one side of a comparison; created if needed.
    pub fn side(&self, name: &str) -> Result<Self, StoreError> {
        let made = self.files.make_folder(name);
        let files = made.map_err(io_error("create", &self.path().join(name)))?;
        Ok(Self { files, follower: self.follower.clone() })
    }

    /// The path of the run folder.
    pub fn path(&self) -> &Path {
        self.files.path()
    }

    /// The open folder, from which all its files are reached.
    pub fn files(&self) -> &Folder {
        &self.files
    }

    /// Whether the run has a file of this name.
    pub fn has(&self, name: impl AsRef<Path>) -> bool {
        self.files.is_file(name)
    }

    /// Reads the run's record. The names of the run and its jobs are valid: they become parts of
    /// command lines in messages to the user.
    pub fn record(&self) -> Result<RunRecord, StoreError> {
        #[derive(Deserialize)]
        struct SchemaName {
            schema: String,
        }
        let path = self.path().join(RECORD_FILE);
        let bytes = self.read(RECORD_FILE)?;
        // Another schema may lack fields of this one, so its name is read before them.
        if let Ok(SchemaName { schema }) = serde_json::from_slice(&bytes)
            && schema != record::SCHEMA
        {
            return Err(StoreError::OtherSchema { path, schema });
        }
        let record = crate::saved_json::from_slice::<RunRecord>(&bytes).and_then(|record| {
            let names = record.jobs.iter().map(|job| &job.job).chain([&record.id]);
            let bad = names.into_iter().find(|name| !valid_job_id(name)).cloned();
            let refused = |name| serde_json::Error::custom(format!("`{name}` is not a run name"));
            bad.map_or(Ok(record), |name| Err(refused(name)))
        });
        record.map_err(|source| StoreError::BadRecord { path, source })
    }

    /// Reads the record and returns it with the state corrected; writes nothing. A command that was
    /// killed could not record that it never submitted a job, or that its suite was cancelled.
    pub fn current_record(&self) -> Result<RunRecord, StoreError> {
        let is_unsent = |record: &RunRecord| {
            record.state == RunState::Running && record.jobs.is_empty() && !record.is_fan_out()
        };
        let mut record = self.record()?;
        if is_unsent(&record) && self.followed_by().is_none() {
            // The command may have ended just now, after writing its record.
            record = self.record()?;
            if is_unsent(&record) {
                // The jobs of a suite are those of its cases, of which some may have ended.
                record.state = if self.has(SUITE_FILE) {
                    RunState::Cancelled
                } else {
                    RunState::NeverSubmitted
                };
            }
        }
        Ok(record)
    }

    /// Writes the run's record to `run.json`.
    pub fn save(&self, record: &RunRecord) -> Result<(), StoreError> {
        self.write_json(RECORD_FILE, record)
    }

    /// Whether all files fetched without waiting for fsync are still here at their full size.
    pub fn has_all_unsynced_files(&self, record: &RunRecord) -> bool {
        record.jobs.iter().flat_map(|job| &job.unsynced).all(|file| {
            let opened = self.files.open_file(&file.path).and_then(|file| file.metadata());
            opened.is_ok_and(|meta| meta.len() == file.size)
        })
    }

    /// How long the run's jobs took on their hosts, from the recorded events. For a detached run
    /// this is its duration.
    pub fn job_time(&self) -> Duration {
        #[derive(Deserialize)]
        struct At {
            job: String,
            at_ms: u64,
        }
        let text = self.read("events.jsonl").unwrap_or_default();
        let mut jobs: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for line in text.split(|b| *b == b'\n') {
            // A line that a crash cut short is skipped.
            let Ok(At { job, at_ms }) = serde_json::from_slice(line) else { continue };
            let (first, last) = jobs.entry(job).or_insert((at_ms, at_ms));
            (*first, *last) = ((*first).min(at_ms), (*last).max(at_ms));
        }
        Duration::from_millis(jobs.values().map(|(first, last)| last - first).sum())
    }

    /// Writes how the run ended: its failure, if any, as `--json` prints it, and its record.
    ///
    /// Errors while writing a failure are ignored, since a full disk is often its cause. The record
    /// then stays unchanged and the run can be resumed.
    pub fn end(
        &self,
        record: &RunRecord,
        failure: Option<&ErrorDocument>,
    ) -> Result<(), StoreError> {
        let Some(failure) = failure else {
            return match self.files.remove_file(FAILURE_FILE) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => {
                    Err(io_error("remove", &self.path().join(FAILURE_FILE))(e))
                }
                _ => self.save(record),
            };
        };
        let _ = self.write_json(FAILURE_FILE, failure).and_then(|()| self.save(record));
        Ok(())
    }

    /// The recorded failure of the run, if any.
    pub fn failure(&self) -> Option<ErrorDocument> {
        crate::saved_json::from_slice(&self.read(FAILURE_FILE).ok()?).ok()
    }

    /// Writes a file of the run.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        self.files.write(name, bytes).map_err(io_error("write", &self.path().join(name)))
    }

    /// Writes a value as indented JSON.
    pub fn write_json(&self, name: &str, value: &impl Serialize) -> Result<(), StoreError> {
        let path = self.path().join(name);
        let write = || -> io::Result<()> {
            let (file, new) = self.files.begin(name)?;
            // A trace can be many times as large as its values.
            let mut out = io::BufWriter::new(file);
            serde_json::to_writer_pretty(&mut out, value)?;
            out.write_all(b"\n")?;
            out.flush()?;
            new.finish()
        };
        write().map_err(io_error("write", &path))
    }

    /// Reads a file of the run.
    pub fn read(&self, name: &str) -> Result<Vec<u8>, StoreError> {
        let read = self.files.read(name, MAX_FILE_BYTES);
        read.map_err(io_error("read", &self.path().join(name)))
    }

    /// The path in the run folder for an artifact of a job, by its kind: below `raw/`, `cubin/`,
    /// `ptx/`, `sass/`, `ir/`, `compiled_attrs/` or `pulled/`, and for a comparison's sides in `a/`
    /// or `b/`.
    ///
    /// # Errors
    /// [`StoreError::HostileName`] for a path that would leave the folder, and for a pulled file
    /// from outside the program's working folder.
    pub fn artifact_path(&self, kind: &str, host_path: &str) -> Result<String, StoreError> {
        let hostile = || StoreError::HostileName(host_path.to_owned());
        if !valid_relative_path(host_path) {
            return Err(hostile());
        }
        // Files for `exec --pull`, by their path in the program's working folder.
        if kind == PULLED {
            let name = host_path.strip_prefix("here/").ok_or_else(hostile)?;
            return Ok(format!("pulled/{name}"));
        }
        // Each side of a comparison has its own folder, in the job and in the run.
        if let Some((side @ ("a" | "b"), inner)) = host_path.split_once('/') {
            return Ok(format!("{side}/{}", self.artifact_path(kind, inner)?));
        }
        let name = host_path.rsplit('/').next().unwrap_or(host_path);
        Ok(match kind {
            "cubin" | "ptx" | "sass" | "ir" | "compiled_attrs" => format!("{kind}/{name}"),
            _ => {
                let inner = ["raw/", "out/"].iter().find_map(|p| host_path.strip_prefix(p));
                format!("raw/{}", inner.unwrap_or(host_path))
            }
        })
    }

    /// The path in the run folder of the log of a step's output stream.
    pub fn log_name(step: &str, stream: Stream) -> String {
        format!("log/{step}.{}", stream.as_str())
    }

    /// The end of the log of a step's output stream, at most `max_bytes`. Empty if there is none.
    pub fn log_tail(&self, step: &str, stream: Stream, max_bytes: u64) -> String {
        let read = || -> io::Result<Vec<u8>> {
            let mut file = self.files.open_file(Self::log_name(step, stream))?;
            let end = file.metadata()?.len();
            file.seek(SeekFrom::Start(end.saturating_sub(max_bytes)))?;
            let mut bytes = Vec::new();
            file.take(max_bytes).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
    }

    /// Whether a job of the run has written events.
    pub fn has_events(&self) -> bool {
        let events = self.files.open_file("events.jsonl").and_then(|file| file.metadata());
        events.is_ok_and(|events| events.len() > 0)
    }

    /// Opens the event log for appending. Output logs are opened with their first bytes.
    pub fn recorder(&self) -> Result<Recorder, StoreError> {
        let path = self.path().join("events.jsonl");
        let log = self.path().join("log");
        self.files.make_folder("log").map_err(io_error("create", &log))?;
        // End a last line that a crash cut short, so that the next line is readable.
        let has_partial_line =
            self.read("events.jsonl").is_ok_and(|text| text.last().is_some_and(|b| *b != b'\n'));
        let mut events = open_for_append(&self.files, "events.jsonl")?;
        if has_partial_line {
            events.write_all(b"\n").map_err(io_error("write", &path))?;
        }
        Ok(Recorder { folder: self.files.clone(), events, logs: Vec::new() })
    }
}

/// Appends a job's events and output to the run folder as they arrive.
#[derive(Debug)]
pub struct Recorder {
    folder: Folder,
    events: File,
    logs: Vec<Log>,
}

/// An open output log.
#[derive(Debug)]
struct Log {
    name: String,
    path: PathBuf,
    file: File,
    len: u64,
}

/// The position of recorded output.
#[derive(Clone, Copy, Debug)]
pub struct LogPosition<'a> {
    /// The path of the log file.
    pub path: &'a Path,
    /// Offset in the log, in bytes.
    pub offset: u64,
    /// Length in bytes; less than was received if the disk is full.
    pub len: usize,
}

impl Recorder {
    /// Appends an event of a job to `events.jsonl`.
    pub fn event(&mut self, job: &str, event: &Event) -> Result<(), StoreError> {
        #[derive(Serialize)]
        struct Line<'a> {
            job: &'a str,
            #[serde(flatten)]
            event: &'a Event,
        }
        self.line(&Line { job, event })
    }

    /// Appends to `events.jsonl` that the link is lost and why, or with `None` that it is restored.
    /// Such a line has no job and no number, since it does not come from the host.
    pub fn link(&mut self, lost: Option<&str>) -> Result<(), StoreError> {
        #[derive(Serialize)]
        struct Line<'a> {
            event: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            title: Option<&'a str>,
        }
        let event = if lost.is_some() { "link_lost" } else { "link_back" };
        self.line(&Line { event, title: lost })
    }

    fn line(&mut self, line: &impl Serialize) -> Result<(), StoreError> {
        let path = || self.folder.path().join("events.jsonl");
        let mut line = serde_json::to_vec(line)
            .map_err(io::Error::other)
            .map_err(io_error("write", &path()))?;
        line.push(b'\n');
        self.events.write_all(&line).map_err(io_error("write", &path()))
    }

    /// Appends output of a step to its log: all of `bytes`, or the beginning if the disk is full.
    /// Returns the position, so that exactly the recorded part can be shown.
    ///
    /// # Errors
    /// [`StoreError::HostileName`], I/O errors; then nothing is recorded.
    pub fn output(
        &mut self,
        step: &str,
        stream: Stream,
        bytes: &[u8],
    ) -> Result<LogPosition<'_>, StoreError> {
        if !valid_job_id(step) {
            return Err(StoreError::HostileName(step.to_owned()));
        }
        let name = RunFolder::log_name(step, stream);
        let at = match self.logs.iter().position(|log| log.name == name) {
            Some(at) => at,
            None => {
                let path = self.folder.path().join(&name);
                let file = open_for_append(&self.folder, &name)?;
                let len = file.metadata().map_err(io_error("look at", &path))?.len();
                self.logs.push(Log { name, path, file, len });
                self.logs.len() - 1
            }
        };
        let log = &mut self.logs[at];
        let offset = log.len;
        let len = write_some(&mut log.file, bytes).map_err(io_error("write", &log.path))?;
        log.len += len as u64;
        Ok(LogPosition { path: &log.path, offset, len })
    }
}

/// Writes the beginning of `bytes`, at least one byte.
fn write_some(file: &mut File, bytes: &[u8]) -> io::Result<usize> {
    loop {
        match file.write(bytes) {
            Ok(0) if !bytes.is_empty() => return Err(io::ErrorKind::WriteZero.into()),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            written => return written,
        }
    }
}

fn open_for_append(folder: &Folder, name: &str) -> Result<File, StoreError> {
    folder.append(name, 0o666).map_err(io_error("open", &folder.path().join(name)))
}

/// Refuses a run folder that contains a link. rgpu makes none, but a run folder that came with a
/// clone may have one, and files of the user's would be read or written where it leads.
fn refuse_links(files: &Folder) -> Result<(), StoreError> {
    match files.first_link().map_err(io_error("read", files.path()))? {
        Some(link) => Err(StoreError::LinkedFolder(link)),
        None => Ok(()),
    }
}

/// The last run folder by name directly below a folder; ids that rgpu makes begin with the time.
fn newest_run_in(files: &Folder) -> Option<PathBuf> {
    let runs = files.entries().ok()?.into_iter().map(|entry| entry.path);
    let newest = runs.filter(|run| files.is_file(run.join(RECORD_FILE))).max();
    newest.map(|run| files.path().join(run))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_taken_id_is_refused_and_out_must_be_empty() {
        let dir = tempfile::tempdir().unwrap();
        RunFolder::create(dir.path(), "one", None).unwrap();
        assert!(matches!(RunFolder::create(dir.path(), "one", None), Err(StoreError::Taken(_))));
        assert!(matches!(RunFolder::create(dir.path(), "../x", None), Err(StoreError::BadId(_))));
        for id in ["latest", "Latest"] {
            let reserved = RunFolder::create(dir.path(), id, None);
            assert!(matches!(reserved, Err(StoreError::ReservedId(_))), "{id}");
        }
        let bad = RunFolder::create(dir.path(), "latest~1", None);
        assert!(matches!(bad, Err(StoreError::BadId(_))));
        RunFolder::create(dir.path(), "latest-good", None).unwrap();
        let out = dir.path().join("mine");
        RunFolder::create(dir.path(), "two", Some(&out)).unwrap().write("a", b"x").unwrap();
        let again = RunFolder::create(dir.path(), "three", Some(&out));
        assert!(matches!(again, Err(StoreError::NotEmpty(_))));
    }

    #[test]
    fn a_run_folder_with_links_is_not_written_through_them() {
        let dir = tempfile::tempdir().unwrap();
        let mine = dir.path().join("mine");
        fs::create_dir(&mine).unwrap();
        fs::write(mine.join("settings"), "mine").unwrap();
        let run = RunFolder::create(dir.path(), "one", None).unwrap();
        let open = || RunFolder::open(&dir.path().join("one"));
        run.write("run.json", b"{}").unwrap();
        drop(run.recorder().unwrap());
        drop(run);
        let before = open().unwrap().follow().unwrap();
        let log = dir.path().join("one/log");
        let output = log.join("exec.stdout");
        std::os::unix::fs::symlink(mine.join("settings"), &output).unwrap();
        assert!(matches!(open(), Err(StoreError::LinkedFolder(path)) if path == output));
        let mut recorder = before.recorder().unwrap();
        assert!(recorder.output("exec", Stream::Stdout, b"x").is_err());
        assert_eq!(fs::read(mine.join("settings")).unwrap(), b"mine");
        fs::remove_dir_all(&log).unwrap();
        std::os::unix::fs::symlink(&mine, &log).unwrap();
        assert!(matches!(open(), Err(StoreError::LinkedFolder(path)) if path == log));
        assert!(before.recorder().is_err());
        assert!(before.write("log/x", b"x").is_err() && before.read("log/settings").is_err());
    }

    #[test]
    fn names_from_a_host_never_leave_the_folder() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunFolder::create(dir.path(), "one", None).unwrap();
        assert_eq!(
            run.artifact_path("ncu_rep", "raw/report.ncu-rep").unwrap(),
            "raw/report.ncu-rep"
        );
        assert_eq!(
            run.artifact_path("cubin", "build/k.sm_90a.cubin").unwrap(),
            "cubin/k.sm_90a.cubin"
        );
        for bad in ["../../.bashrc", "/etc/passwd", "a\nb", "raw/../../x"] {
            assert!(
                matches!(run.artifact_path("file", bad), Err(StoreError::HostileName(_))),
                "{bad}"
            );
        }
        assert_eq!(run.artifact_path("pulled", "here/out/x").unwrap(), "pulled/out/x");
        for bad in ["out/x", "a/here/x", "here", "here/../x"] {
            assert!(
                matches!(run.artifact_path("pulled", bad), Err(StoreError::HostileName(_))),
                "{bad}"
            );
        }
        let mut recorder = run.recorder().unwrap();
        assert!(recorder.output("../x", Stream::Stdout, b"x").is_err());
    }

    #[test]
    fn a_runs_jobs_took_from_their_first_event_to_their_last() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunFolder::create(dir.path(), "one", None).unwrap();
        assert_eq!(run.job_time(), Duration::ZERO);
        let line =
            |job: &str, at_ms: u64| format!("{{\"job\":\"{job}\",\"seq\":1,\"at_ms\":{at_ms}}}\n");
        let text = [line("a.1", 1000), line("a.1", 3500), line("a.2", 9000), line("a.2", 9250)];
        run.write("events.jsonl", (text.concat() + "{\"job\":\"a.2\",\"at_m").as_bytes()).unwrap();
        assert_eq!(run.job_time(), Duration::from_millis(2750));
    }

    #[test]
    fn events_and_output_are_appended() {
        use rgpu_protocol::EventBody;
        let dir = tempfile::tempdir().unwrap();
        let run = RunFolder::create(dir.path(), "one", None).unwrap();
        for seq in 1..=2 {
            let mut recorder = run.recorder().unwrap();
            recorder
                .event("one.1", &Event { seq, at_ms: 5, body: EventBody::GpuReleased {} })
                .unwrap();
            recorder.output("build", Stream::Stderr, b"x\xff").unwrap();
        }
        assert_eq!(run.read("log/build.stderr").unwrap(), b"x\xffx\xff");
        let events = String::from_utf8(run.read("events.jsonl").unwrap()).unwrap();
        assert_eq!(events.lines().count(), 2);
        assert!(events.starts_with(r#"{"job":"one.1","seq":1,"at_ms":5,"event":"gpu_released"}"#));
    }
}
