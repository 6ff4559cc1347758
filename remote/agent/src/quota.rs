//! Disk use on the host. Results that are older than their plan allows are removed first; then,
//! while the quota is exceeded, the oldest ended jobs and the blobs unused for longest. Running
//! jobs are never touched.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::job::{DRAFT_PREFIX, JobFolder, remove_tree};
use crate::job_state::{JobState, state};
use crate::journal::now_ms;

/// Bytes that a user's blobs and jobs may take, unless [`QUOTA_VARIABLE`] is set.
const QUOTA_BYTES: u64 = 20 << 30;

/// Sets another quota, in bytes.
const QUOTA_VARIABLE: &str = "RGPU_AGENT_QUOTA";

/// Blobs and abandoned files younger than this stay: a plan that needs them may be on its way.
const UNSWEPT_AGE: Duration = Duration::from_secs(3600);

/// Shortest time between two regular sweeps.
const SWEEP_EVERY: Duration = Duration::from_secs(600);

/// Why a plan gets no space.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum QuotaError {
    /// The quota is exceeded even after a sweep. All values are bytes.
    #[error(
        "your jobs and their inputs use {used} of your {quota} bytes on this host; the plan would \
         add {needed}, and the rest cannot be removed because it is running or was used within \
         the hour"
    )]
    Over { used: u64, quota: u64, needed: u64 },
    /// The quota setting is invalid.
    #[error("`{QUOTA_VARIABLE}` is `{0}` on the host, which is not a number of bytes")]
    Setting(String),
}

impl QuotaError {
    /// Returns the reason code.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Over { .. } => "quota",
            Self::Setting(_) => "bad_setting",
        }
    }
}

/// The last known disk use, so that most calls need not walk the folders. `<root>/swept` holds the
/// time of the last sweep, and the bytes in use after it plus those of jobs that have ended since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct UsageRecord {
    swept_ms: u64,
    bytes: u64,
}

impl UsageRecord {
    fn read(root: &Path) -> Self {
        let text = fs::read_to_string(root.join("swept")).unwrap_or_default();
        let mut numbers = text.split_whitespace().map_while(|word| word.parse().ok());
        let mut next = || numbers.next().unwrap_or(0);
        Self { swept_ms: next(), bytes: next() }
    }

    /// Writes the record. Returns false if that fails.
    fn write(self, root: &Path) -> bool {
        let text = format!("{} {}\n", self.swept_ms, self.bytes);
        let mut options = fs::OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600);
        file.open(root.join("swept")).is_ok_and(|mut file| file.write_all(text.as_bytes()).is_ok())
    }

    /// Returns whether a sweep is due, also after the clock was set back.
    fn is_old(self) -> bool {
        let every = u64::try_from(SWEEP_EVERY.as_millis()).unwrap_or(u64::MAX);
        now_ms().checked_sub(self.swept_ms).is_none_or(|age| age >= every)
    }
}

/// Returns the quota in bytes. An invalid setting gives the default here; submitting a plan reports
/// it.
pub(crate) fn limit() -> u64 {
    setting(std::env::var_os(QUOTA_VARIABLE)).unwrap_or(QUOTA_BYTES)
}

fn setting(value: Option<OsString>) -> Result<u64, QuotaError> {
    match value.filter(|value| !value.is_empty()) {
        None => Ok(QUOTA_BYTES),
        Some(value) => value
            .to_str()
            .and_then(|text| text.trim().parse().ok())
            .ok_or_else(|| QuotaError::Setting(value.to_string_lossy().into_owned())),
    }
}

/// Sweeps if none was done recently.
pub(crate) fn sweep_if_due(root: &Path) {
    if UsageRecord::read(root).is_old() {
        sweep(root, limit(), None);
    }
}

/// Adds an ended job to the recorded disk use, and sweeps if that is too much. The job itself
/// stays: its client has not heard of its end yet.
pub(crate) fn job_ended(root: &Path, job: &Path) {
    let mut record = UsageRecord::read(root);
    record.bytes = record.bytes.saturating_add(tree_bytes(job));
    if record.bytes > limit() || record.is_old() || !record.write(root) {
        sweep(root, limit(), Some(job));
    }
}

/// Makes space for `needed` more bytes.
pub(crate) fn ensure_space(root: &Path, needed: u64) -> Result<(), QuotaError> {
    let quota = setting(std::env::var_os(QUOTA_VARIABLE))?;
    if UsageRecord::read(root).bytes.saturating_add(needed) <= quota {
        return Ok(());
    }
    let used = sweep(root, quota.saturating_sub(needed), None);
    if used.saturating_add(needed) <= quota {
        return Ok(());
    }
    Err(QuotaError::Over { used, quota, needed })
}

/// Removes old results, and then more until at most `quota` bytes are used, but not the job in
/// `kept`. Returns the bytes in use afterwards.
fn sweep(root: &Path, quota: u64, kept: Option<&Path>) -> u64 {
    // Written first, so that connections do not sweep at the same time.
    let mut record = UsageRecord { swept_ms: now_ms(), ..UsageRecord::read(root) };
    if !record.write(root) {
        return record.bytes;
    }
    record.bytes = remove_surplus(root, quota, kept);
    record.write(root);
    record.bytes
}

/// The current time by the clock of the file system: it may lie on another machine, whose clock
/// differs. A sweep has just written `swept`. If that has no time, every file counts as new.
fn file_system_now(root: &Path) -> SystemTime {
    let written = fs::metadata(root.join("swept")).and_then(|meta| meta.modified());
    written.unwrap_or(UNIX_EPOCH)
}

fn remove_surplus(root: &Path, quota: u64, kept: Option<&Path>) -> u64 {
    let files_now = file_system_now(root);
    remove_abandoned(root, files_now);
    let mut ended = ended_jobs(root);
    ended.retain(|job| Some(job.folder.path()) != kept);
    ended.sort_by_key(|job| job.ended_ms);
    let now = now_ms();
    ended.retain(|job| {
        let kept_for = job.keep_s.saturating_mul(1000);
        let expired = job.ended_ms.saturating_add(kept_for) < now;
        !(expired && job.folder.remove().is_ok())
    });
    let mut blobs = stale_blobs(root, files_now);
    let mut total = tree_bytes(root);
    for job in ended {
        if total <= quota {
            return total;
        }
        if job.folder.remove().is_ok() {
            total = total.saturating_sub(job.bytes);
        }
    }
    blobs.sort();
    for (_, bytes, path) in blobs {
        if total <= quota {
            return total;
        }
        if fs::remove_file(path).is_ok() {
            total = total.saturating_sub(bytes);
        }
    }
    total
}

struct EndedJob {
    folder: JobFolder,
    ended_ms: u64,
    keep_s: u64,
    bytes: u64,
}

fn ended_jobs(root: &Path) -> Vec<EndedJob> {
    let jobs = JobFolder::all(root).into_iter();
    jobs.filter_map(|folder| {
        let JobState::Ended { at_ms, .. } = state(&folder).ok()? else { return None };
        // A plan that cannot be read now says nothing about its results.
        let keep_s = folder.plan().map(|plan| plan.limits).unwrap_or_default().keep_s;
        let bytes = tree_bytes(folder.path());
        Some(EndedJob { folder, ended_ms: at_ms, keep_s, bytes })
    })
    .collect()
}

/// Removes hidden job folders, temporary blobs and temporary folders of no running job that have
/// not changed for [`UNSWEPT_AGE`].
fn remove_abandoned(root: &Path, now: SystemTime) {
    let mut running = JobFolder::all(root);
    running.retain(|job| !matches!(state(job), Ok(JobState::Ended { .. })));
    for part in ["jobs", "blobs/tmp", "tmp"] {
        for entry in fs::read_dir(root.join(part)).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let in_use = match part {
                "jobs" => !name.as_encoded_bytes().starts_with(b"."),
                "tmp" => running.iter().any(|job| job.tmp() == entry.path()),
                _ => false,
            };
            if !in_use && age(&entry.path(), now).is_some_and(|age| age > UNSWEPT_AGE) {
                let is_draft = name.as_encoded_bytes().starts_with(DRAFT_PREFIX.as_bytes());
                // If this fails, the next sweep tries again.
                let _ = match entry.file_type() {
                    // Renamed first: a draft that becomes a job at this moment stays whole.
                    Ok(_) if is_draft => JobFolder::at(entry.path()).remove().is_ok(),
                    Ok(t) if t.is_dir() => remove_tree(&entry.path()).is_ok(),
                    _ => fs::remove_file(entry.path()).is_ok(),
                };
            }
        }
    }
}

/// Returns the blobs that were not used recently: last use, bytes, path.
fn stale_blobs(root: &Path, now: SystemTime) -> Vec<(u64, u64, PathBuf)> {
    let folders = fs::read_dir(root.join("blobs")).into_iter().flatten().flatten();
    let files = folders
        .filter(|f| f.file_name().len() == 2)
        .flat_map(|f| fs::read_dir(f.path()).into_iter().flatten().flatten());
    files
        .filter_map(|file| {
            let path = file.path();
            let meta = fs::symlink_metadata(&path).ok()?;
            let used = meta.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
            (age(&path, now)? > UNSWEPT_AGE).then(|| (used.as_secs(), disk_bytes(&meta), path))
        })
        .collect()
}

fn age(path: &Path, now: SystemTime) -> Option<Duration> {
    let modified = fs::symlink_metadata(path).ok()?.modified().ok()?;
    now.duration_since(modified).ok()
}

fn disk_bytes(meta: &fs::Metadata) -> u64 {
    // `blocks` counts units of 512 bytes on every file system.
    meta.blocks() * 512
}

/// Returns the disk use of a folder in bytes. Links are not followed.
pub(crate) fn tree_bytes(folder: &Path) -> u64 {
    let mut total = 0;
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let Ok(meta) = fs::symlink_metadata(entry.path()) else { continue };
            total += disk_bytes(&meta);
            if meta.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use rgpu_protocol::{EventBody, Outcome};

    use super::*;
    use crate::journal::Journal;

    #[test]
    fn what_is_new_stays_where_the_hosts_clock_is_days_ahead_of_its_file_systems() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let (draft, blob) = (root.join("jobs/.new-1-0"), root.join("blobs/tmp/1"));
        fs::create_dir_all(draft.join("work")).unwrap();
        fs::create_dir_all(root.join("blobs/tmp")).unwrap();
        fs::write(&blob, "part").unwrap();
        assert!(UsageRecord::default().write(root));
        let mode = fs::metadata(root.join("swept")).unwrap().mode();
        assert_eq!(mode & 0o077, 0, "for its owner alone");
        let set_age = |path: &Path, age: Duration| {
            let file = fs::File::open(path).unwrap();
            file.set_modified(SystemTime::now() - age).unwrap();
        };
        let days = Duration::from_secs(3 * 86_400);
        for path in [&draft, &blob, &root.join("swept")] {
            set_age(path, days);
        }
        remove_surplus(root, u64::MAX, None);
        assert!(draft.exists() && blob.exists());
        // Two hours old, by the clock of the file system.
        for path in [&draft, &blob] {
            set_age(path, days + 2 * UNSWEPT_AGE);
        }
        remove_surplus(root, u64::MAX, None);
        assert!(!draft.exists() && !blob.exists());
        assert_eq!(fs::read_dir(root.join("jobs")).unwrap().count(), 0);
    }

    #[test]
    fn a_job_is_not_removed_by_its_own_end_or_because_its_plan_cannot_be_read() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let job = root.join("jobs/run.1");
        fs::create_dir_all(&job).unwrap();
        fs::write(job.join("plan.json"), "{").unwrap();
        let (mut journal, _) = Journal::open(&job.join("events.jsonl")).unwrap();
        journal.append(EventBody::Ended { outcome: Outcome::Done }).unwrap();
        std::thread::sleep(Duration::from_millis(5));
        remove_surplus(root, u64::MAX, None);
        assert!(job.exists(), "its results are young");
        remove_surplus(root, 0, Some(&job));
        assert!(job.exists(), "its client has not heard of its end");
        remove_surplus(root, 0, None);
        assert!(!job.exists());
    }

    #[test]
    fn a_quota_is_a_number_of_bytes_or_a_fault_that_names_it() {
        for (value, quota) in [(None, QUOTA_BYTES), (Some(""), QUOTA_BYTES), (Some(" 7 "), 7)] {
            assert_eq!(setting(value.map(Into::into)), Ok(quota));
        }
        for value in ["20GB", "-1", "1e9"] {
            let fault = setting(Some(value.into())).unwrap_err();
            assert_eq!(fault.code(), "bad_setting");
            assert!(fault.to_string().contains(&format!("is `{value}` on the host")), "{fault}");
        }
    }
}
