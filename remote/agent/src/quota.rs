//! Room on the host: results older than their plan allows go first, then, while all of it is over
//! the quota, the oldest ended jobs and the blobs unused for longest. What runs is never touched.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::job::{JobFolder, remove_tree};
use crate::journal::now_ms;
use crate::settle::{State, state};

/// What all blobs and jobs of a user may take, unless [`QUOTA_VARIABLE`] says otherwise.
const QUOTA_BYTES: u64 = 20 << 30;

/// Another quota, in bytes.
const QUOTA_VARIABLE: &str = "RGPU_AGENT_QUOTA";

/// Left alone by [`sweep`]: a plan that needs them may be on its way.
const FRESH: Duration = Duration::from_secs(3600);

/// How often a sweep is worth its walk.
const SWEEP_EVERY: Duration = Duration::from_secs(600);

/// Sweeps if nobody did for a while.
pub(crate) fn sweep_now_and_then(root: &Path) {
    let named = std::env::var(QUOTA_VARIABLE).ok().and_then(|q| q.parse().ok());
    let quota = named.unwrap_or(QUOTA_BYTES);
    let stamp = root.join("swept");
    if age(&stamp).is_some_and(|age| age < SWEEP_EVERY) {
        return;
    }
    // Written first, so that connections do not sweep at the same time.
    if fs::write(&stamp, "").is_ok() {
        sweep(root, quota);
    }
}

/// Removes what is too old or too much.
fn sweep(root: &Path, quota: u64) {
    remove_abandoned(root);
    let mut ended = ended_jobs(root);
    ended.sort_by_key(|job| job.ended_ms);
    let now = now_ms();
    ended.retain(|job| {
        let kept_for = job.keep_s.saturating_mul(1000);
        let expired = job.ended_ms.saturating_add(kept_for) < now;
        !(expired && job.folder.remove().is_ok())
    });
    let mut blobs = stale_blobs(root);
    let mut total = tree_bytes(root);
    for job in ended {
        if total <= quota {
            return;
        }
        if job.folder.remove().is_ok() {
            total = total.saturating_sub(job.bytes);
        }
    }
    blobs.sort();
    for (_, bytes, path) in blobs {
        if total <= quota {
            return;
        }
        if fs::remove_file(path).is_ok() {
            total = total.saturating_sub(bytes);
        }
    }
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
        let State::Ended { at_ms, .. } = state(&folder).ok()? else { return None };
        let keep_s = folder.plan().map_or(0, |p| p.limits.keep_s);
        let bytes = tree_bytes(folder.path());
        Some(EndedJob { folder, ended_ms: at_ms, keep_s, bytes })
    })
    .collect()
}

/// Half-made and half-removed folders, and temporary blobs, of processes that are gone.
fn remove_abandoned(root: &Path) {
    let mut running = JobFolder::all(root);
    running.retain(|job| !matches!(state(job), Ok(State::Ended { .. })));
    for part in ["jobs", "blobs/tmp", "tmp"] {
        for entry in fs::read_dir(root.join(part)).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let in_use = match part {
                "jobs" => !name.as_encoded_bytes().starts_with(b"."),
                "tmp" => running.iter().any(|job| job.tmp() == entry.path()),
                _ => false,
            };
            if !in_use && age(&entry.path()).is_some_and(|age| age > FRESH) {
                // Tried again at the next sweep.
                let _ = match entry.file_type() {
                    Ok(t) if t.is_dir() => remove_tree(&entry.path()).is_ok(),
                    _ => fs::remove_file(entry.path()).is_ok(),
                };
            }
        }
    }
}

/// Blobs that nothing has used lately: last use, bytes, path.
fn stale_blobs(root: &Path) -> Vec<(u64, u64, PathBuf)> {
    let folders = fs::read_dir(root.join("blobs")).into_iter().flatten().flatten();
    let files = folders
        .filter(|f| f.file_name().len() == 2)
        .flat_map(|f| fs::read_dir(f.path()).into_iter().flatten().flatten());
    files
        .filter_map(|file| {
            let path = file.path();
            let meta = fs::symlink_metadata(&path).ok()?;
            let used = meta.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
            (age(&path)? > FRESH).then(|| (used.as_secs(), disk_bytes(&meta), path))
        })
        .collect()
}

fn age(path: &Path) -> Option<Duration> {
    let modified = fs::symlink_metadata(path).ok()?.modified().ok()?;
    SystemTime::now().duration_since(modified).ok()
}

fn disk_bytes(meta: &fs::Metadata) -> u64 {
    // Blocks of 512 bytes, whatever the file system's own are.
    meta.blocks() * 512
}

/// Bytes that a folder takes on disk; links are not followed.
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
