//! Listings that nvdisasm made on this machine before. It takes half a second even for a small
//! cubin, and most runs bring back a cubin that an earlier run had too.
//!
//! A file of the cache is a line with the sha256 of the listing, then the listing. Its name is the
//! sha256 of all that the listing depends on. A cache that cannot be read or written is no cache.
//!
//! The compiler stores the absolute paths of sources in the cubin, and thus the id of the job. It
//! is left out of what is hashed and kept, so that the same code is found again after the next job.

#![expect(clippy::disallowed_methods, reason = "rgpu's own cache")]

use std::borrow::Cow;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rgpu_protocol::Digest;
use rgpu_protocol::plan::valid_job_id;

use crate::store::atomic;

/// The longest listing in bytes that is kept.
const MAX_LISTING_BYTES: usize = 4 << 20;

/// The limit on all listings in bytes. The oldest are removed.
const MAX_CACHE_BYTES: u64 = 128 << 20;

/// The cached listing of one call of nvdisasm.
pub(super) struct CachedListing {
    path: PathBuf,
    /// The job that compiled the cubin, if its paths name one.
    job: Option<String>,
}

/// The part of a job's paths before its id, and the part after it: `…/jobs/ID/work/…`.
const JOB_FOLDER: (&str, &str) = ("/jobs/", "/work/");

impl CachedListing {
    /// The place in `folder` of the listing that `program` makes of `cubin`; `None` if the program
    /// cannot be looked at. Another file at the program's path is another program.
    pub(super) fn new(
        folder: &Path,
        program: &Path,
        cubin: &[u8],
        flags: &[&str],
        symbols: &[usize],
    ) -> Option<Self> {
        let file = fs::metadata(program).ok()?;
        let identity = (file.dev(), file.ino(), file.len(), file.mtime(), file.mtime_nsec());
        let (job, digest) = match without_job(cubin) {
            Some((job, cubin)) => (Some(job), Digest::sha256(&cubin)),
            None => (None, Digest::sha256(cubin)),
        };
        let call = (identity, flags, symbols, digest);
        let key = Digest::sha256(&serde_json::to_vec(&call).ok()?);
        Some(Self { path: folder.join(key.as_str()), job })
    }

    /// The listing, if it is there and undamaged.
    pub(super) fn read(&self) -> Option<String> {
        let text = fs::read_to_string(&self.path).ok()?;
        let (digest, listing) = text.split_once('\n')?;
        if Digest::sha256(listing.as_bytes()).as_str() != digest {
            return None;
        }
        Some(match &self.job {
            Some(job) => listing.replace(&job_folder(""), &job_folder(job)),
            None => listing.to_owned(),
        })
    }

    /// Keeps a listing of at most [`MAX_LISTING_BYTES`], and at times removes the oldest ones.
    /// Errors are ignored: a lost listing is made again.
    pub(super) fn write(&self, listing: &str) {
        if listing.len() > MAX_LISTING_BYTES {
            return;
        }
        let listing = match &self.job {
            Some(job) => Cow::Owned(listing.replace(&job_folder(job), &job_folder(""))),
            None => Cow::Borrowed(listing),
        };
        let digest = Digest::sha256(listing.as_bytes());
        let parts = [digest.as_str().as_bytes(), b"\n", listing.as_bytes()];
        // A listing that is not kept is only made again.
        let _ = atomic::write_parts(&self.path, parts);
        // Reading the whole folder for each of many listings would take long.
        let is_sixteenth =
            self.path.file_name().is_some_and(|n| n.as_encoded_bytes().starts_with(b"0"));
        if let Some(folder) = self.path.parent().filter(|_| is_sixteenth) {
            remove_oldest(folder, MAX_CACHE_BYTES);
        }
    }
}

/// The folder of a job in a path.
fn job_folder(id: &str) -> String {
    let (before, after) = JOB_FOLDER;
    format!("{before}{id}{after}")
}

/// The id of the job whose folder the cubin's paths name, and the cubin without it. `None`: they
/// name no job, or several.
fn without_job(cubin: &[u8]) -> Option<(String, Vec<u8>)> {
    let (before, after) = JOB_FOLDER;
    let mut found: Option<&str> = None;
    let mut rest = Vec::with_capacity(cubin.len());
    let mut copied = 0;
    let starts = cubin.windows(before.len()).enumerate().filter(|(_, w)| *w == before.as_bytes());
    for start in starts.map(|(at, _)| at + before.len()) {
        let word = cubin[start..].split(|byte| *byte == b'/').next().unwrap_or_default();
        let end = start + word.len();
        let Some(id) = std::str::from_utf8(word).ok().filter(|id| valid_job_id(id)) else {
            continue;
        };
        if !cubin[end..].starts_with(after.as_bytes()) {
            continue;
        }
        if *found.get_or_insert(id) != id {
            return None;
        }
        rest.extend_from_slice(&cubin[copied..start]);
        copied = end;
    }
    rest.extend_from_slice(&cubin[copied..]);
    Some((found?.to_owned(), rest))
}

/// Removes the oldest files of a folder until the rest take at most `limit` bytes.
fn remove_oldest(folder: &Path, limit: u64) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let mut files: Vec<(SystemTime, u64, PathBuf)> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let metadata = entry.metadata().ok()?;
            Some((metadata.modified().ok()?, metadata.len(), entry.path()))
        })
        .collect();
    files.sort_by(|a, b| b.cmp(a));
    let mut kept = 0_u64;
    for (_, bytes, path) in files {
        kept = kept.saturating_add(bytes);
        if kept > limit {
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_is_read_back_for_the_same_call_alone_and_only_whole() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("nvdisasm");
        fs::write(&program, "one").unwrap();
        let folder = dir.path().join("listings");
        let at = |cubin: &[u8], flags: &[&str], symbols: &[usize]| {
            CachedListing::new(&folder, &program, cubin, flags, symbols).unwrap()
        };
        assert_eq!(at(b"cubin", &["-c"], &[]).read(), None);
        at(b"cubin", &["-c"], &[]).write("MOV R1;\n");
        assert_eq!(at(b"cubin", &["-c"], &[]).read().as_deref(), Some("MOV R1;\n"));
        for other in
            [at(b"other", &["-c"], &[]), at(b"cubin", &[], &[]), at(b"cubin", &["-c"], &[1])]
        {
            assert_eq!(other.read(), None);
        }
        let before = at(b"cubin", &["-c"], &[]);
        let text = fs::read(&before.path).unwrap();
        fs::write(&before.path, &text[..text.len() - 1]).unwrap();
        assert_eq!(before.read(), None, "half of it");
        // Another program, or none.
        before.write("MOV R1;\n");
        fs::write(&program, "another").unwrap();
        assert_eq!(at(b"cubin", &["-c"], &[]).read(), None);
        fs::remove_file(&program).unwrap();
        assert!(CachedListing::new(&folder, &program, b"cubin", &[], &[]).is_none());
    }

    #[test]
    fn a_listing_is_found_again_after_another_job_with_that_jobs_paths() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("nvdisasm");
        fs::write(&program, "one").unwrap();
        let path = |job: &str| format!("/home/u/.cache/rgpu/jobs/{job}/work/build/../src");
        let cubin = |jobs: &[&str], code: &str| {
            let paths = jobs.iter().map(|job| path(job));
            format!("\x7fELF{}\0{code}", paths.collect::<Vec<_>>().join("\0")).into_bytes()
        };
        let at = |cubin: &[u8]| CachedListing::new(dir.path(), &program, cubin, &[], &[]).unwrap();
        let listing = |job: &str| format!("//## File \"{}/k.cu\", line 8\nMOV R1;\n", path(job));
        at(&cubin(&["20261121-k-1f2e.1"; 2], "code")).write(&listing("20261121-k-1f2e.1"));
        let next = at(&cubin(&["20261122-k-03.1"; 2], "code"));
        assert_eq!(next.read(), Some(listing("20261122-k-03.1")));
        assert_eq!(at(&cubin(&["20261122-k-03.1"; 2], "other")).read(), None);
        // Paths of two jobs are not the same as those of one.
        assert_eq!(at(&cubin(&["20261121-k-1f2e.1", "20261122-k-03.1"], "code")).read(), None);
        assert_eq!(without_job(b"/jobs/a b/work/ /jobs/a/other /jobs/"), None);
    }

    #[test]
    fn the_oldest_go_first_and_long_ones_are_not_kept() {
        let dir = tempfile::tempdir().unwrap();
        for (age, name) in ["oldest", "old", "new"].into_iter().enumerate() {
            let path = dir.path().join(name);
            fs::write(&path, [b'x'; 100]).unwrap();
            let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(age as u64);
            fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
        }
        remove_oldest(dir.path(), 250);
        assert!(!dir.path().join("oldest").exists());
        assert!(dir.path().join("old").exists() && dir.path().join("new").exists());
        let long = CachedListing { path: dir.path().join("long"), job: None };
        long.write(&"x".repeat(MAX_LISTING_BYTES + 1));
        assert!(!long.path.exists());
    }
}
