//! Hashes and announces a rung's artifacts after it has ended.
//!
//! Small files are also stored as blobs, so that the next plan of the run can use them as inputs
//! without a transfer. Files that the user named are announced even if the program was cancelled or
//! its supervisor died.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rgpu_protocol::digest::sha256;
use rgpu_protocol::glob::matches;
use rgpu_protocol::plan::{ArtifactSpec, PULLED, valid_relative_path};
use rgpu_protocol::{Digest, EventBody, PIECE_BYTES, Plan, Rung, Step};
use sha2::{Digest as _, Sha256};

use super::{EarlyEnd, Supervisor};
use crate::host_fault::IoContext;
use crate::inside::open_regular;

/// Files up to this size are also stored as blobs.
const BLOB_LIMIT: u64 = 64 << 20;

/// Pieces that were read and wait for each of the hashers.
const MAX_QUEUED_PIECES: usize = 4;

/// Threads that hash and store pieces. One alone is slower than hashing the whole file.
const PIECE_THREADS: usize = 2;

/// Most files examined. A program that writes more is faulty.
const MAX_FILES: usize = 100_000;

/// Files already announced, to detect which ones a later rung has changed.
#[derive(Debug, Default)]
pub(crate) struct AnnouncedFiles {
    files: HashMap<String, (u64, u64, i64, i64)>,
}

/// A file that matches a spec.
struct MatchedFile {
    path: String,
    kind: String,
}

/// A file of at least one full piece.
struct LongFile<'a> {
    path: &'a Path,
    /// Whether its pieces are stored as blobs.
    store_blobs: bool,
    /// Whether the user named the file, so that it is announced even if the job is cancelled.
    pulled: bool,
}

/// Names that match a spec but are not announced, and why.
type RefusedNames = Vec<(String, &'static str)>;

impl Supervisor {
    /// Announces the rung's new or changed files.
    pub(crate) fn announce_artifacts(
        &mut self,
        step: &Step,
        rung: &Rung,
        work: &Path,
    ) -> Result<(), EarlyEnd> {
        self.announce_all(step, find(&rung.artifacts, work), work)
    }

    /// Announces the files that the user named, after a program was cancelled.
    pub(crate) fn announce_pulled(
        &mut self,
        step: &Step,
        rung: &Rung,
        work: &Path,
    ) -> Result<(), EarlyEnd> {
        let pulled: Vec<_> = rung.artifacts.iter().filter(|s| s.kind == PULLED).cloned().collect();
        self.announce_all(step, find(&pulled, work), work)
    }

    fn announce_all(
        &mut self,
        step: &Step,
        (found, refused): (Vec<MatchedFile>, RefusedNames),
        work: &Path,
    ) -> Result<(), EarlyEnd> {
        for (name, why) in refused {
            let text = format!("`{}` is not fetched: it is {why}", name.escape_debug());
            self.warn("artifact_refused", text)?;
        }
        for file in found {
            self.announce_one(step, file, work)?;
        }
        Ok(())
    }

    fn announce_one(
        &mut self,
        step: &Step,
        found: MatchedFile,
        work: &Path,
    ) -> Result<(), EarlyEnd> {
        let Ok(mut file) = open_regular(work, &found.path) else {
            let text = format!("`{}` cannot be read", found.path.escape_debug());
            return Ok(self.warn("artifact_refused", text)?);
        };
        let path = work.join(&found.path);
        let meta = file.metadata().context("look at", &path)?;
        let stamp = (meta.len(), meta.ino(), meta.mtime(), meta.mtime_nsec());
        if self.announced.files.insert(found.path.clone(), stamp) == Some(stamp) {
            return Ok(());
        }
        let mut piece = Vec::new();
        (&mut file).take(PIECE_BYTES).read_to_end(&mut piece).context("read", &path)?;
        let FileDigests { size, digest, composite } = if (piece.len() as u64) < PIECE_BYTES {
            let digest = Digest::sha256(&piece);
            // This only saves a later upload.
            let _ = self.blobs.store(&digest, &piece);
            FileDigests { size: piece.len() as u64, digest, composite: None }
        } else {
            let long = LongFile {
                path: &path,
                store_blobs: meta.len() <= BLOB_LIMIT,
                pulled: found.kind == PULLED,
            };
            self.hash_long(piece, file, &long)?
        };
        let (step, kind) = (step.id.clone(), found.kind);
        let path = found.path;
        Ok(self.emit(EventBody::Artifact { step, path, kind, size, digest, composite })?)
    }
}

/// Size and digests of a file.
struct FileDigests {
    size: u64,
    digest: Digest,
    composite: Option<Digest>,
}

impl Supervisor {
    /// Hashes a file whose first piece has been read, as a whole and by pieces in parallel, and
    /// stores the pieces as blobs if requested.
    fn hash_long(
        &mut self,
        first: Vec<u8>,
        mut file: File,
        long: &LongFile<'_>,
    ) -> Result<FileDigests, EarlyEnd> {
        let LongFile { path, store_blobs, pulled } = *long;
        let blobs = self.blobs.clone();
        let (piece_sender, pieces) = sync_channel::<(usize, Arc<Vec<u8>>)>(MAX_QUEUED_PIECES);
        let pieces = Mutex::new(pieces);
        let next_piece = || pieces.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let hash_pieces = || {
            let mut hashed = Vec::new();
            while let Ok((at, piece)) = next_piece() {
                let raw = sha256(&piece);
                hashed.push((at, raw));
                if store_blobs {
                    // This only saves a later upload.
                    let _ = blobs.store(&Digest::from_bytes(&raw), &piece);
                }
            }
            hashed
        };
        std::thread::scope(|threads| {
            // Owned by this scope, so that the threads end with it in any case.
            let piece_sender = piece_sender;
            let start = |_| std::thread::Builder::new().spawn_scoped(threads, hash_pieces).ok();
            let piece_threads: Vec<_> = (0..PIECE_THREADS).filter_map(start).collect();
            let (whole_sender, pieces) = sync_channel::<Arc<Vec<u8>>>(MAX_QUEUED_PIECES);
            let whole = std::thread::Builder::new().spawn_scoped(threads, move || {
                let mut whole = Sha256::new();
                pieces.iter().for_each(|piece| whole.update(&*piece));
                Digest::from_bytes(&whole.finalize().into())
            });
            let whole = whole.context("hash", path)?;
            let (mut size, mut count) = (0, 0);
            let mut piece = first;
            while !piece.is_empty() {
                size += piece.len() as u64;
                let read = Arc::new(std::mem::take(&mut piece));
                if !piece_threads.is_empty() {
                    let _ = piece_sender.send((count, read.clone()));
                }
                count += 1;
                // The thread receives until the channel closes.
                let _ = whole_sender.send(read);
                self.clients.wait(&[], Duration::ZERO)?;
                if !pulled {
                    self.check_stop()?;
                }
                (&mut file).take(PIECE_BYTES).read_to_end(&mut piece).context("read", path)?;
            }
            drop((piece_sender, whole_sender));
            let failed = |_| io::Error::other("a hashing thread has failed");
            let mut pieces = Vec::new();
            for thread in piece_threads {
                pieces.extend(thread.join().map_err(failed).context("hash", path)?);
            }
            pieces.sort_unstable_by_key(|(at, _)| *at);
            let pieces: Vec<_> = pieces.into_iter().map(|(_, raw)| raw).collect();
            let complete = count > 1 && pieces.len() == count;
            Ok(FileDigests {
                size,
                digest: whole.join().map_err(failed).context("hash", path)?,
                composite: complete.then(|| Digest::composite(&pieces)),
            })
        })
    }
}

/// Returns events for the files that the user named in a job whose supervisor died.
pub(crate) fn left_behind(plan: &Plan, work: &Path) -> impl Iterator<Item = EventBody> {
    let pulled_of = |step: &Step| {
        let specs = step.rungs.iter().flat_map(|rung| &rung.artifacts);
        let pulled: Vec<_> = specs.filter(|spec| spec.kind == PULLED).cloned().collect();
        (step.id.clone(), pulled)
    };
    let pulled = plan.steps.iter().map(pulled_of).filter(|(_, specs)| !specs.is_empty());
    pulled.flat_map(move |(step, specs)| {
        let event = move |MatchedFile { path, kind }| {
            let (size, digest) = hash_whole(work, &path).ok()?;
            let (step, composite) = (step.clone(), None);
            Some(EventBody::Artifact { step, path, kind, size, digest, composite })
        };
        find(&specs, work).0.into_iter().filter_map(event)
    })
}

fn hash_whole(work: &Path, path: &str) -> io::Result<(u64, Digest)> {
    let mut file = open_regular(work, path)?;
    let (mut whole, mut size) = (Sha256::new(), 0);
    let mut piece = Vec::new();
    while (&mut file).take(PIECE_BYTES).read_to_end(&mut piece)? > 0 {
        whole.update(&piece);
        size += piece.len() as u64;
        piece.clear();
    }
    Ok((size, Digest::from_bytes(&whole.finalize().into())))
}

/// Returns the matching files, in the order of the specs and then by name.
fn find(specs: &[ArtifactSpec], work: &Path) -> (Vec<MatchedFile>, RefusedNames) {
    let mut found: Vec<MatchedFile> = Vec::new();
    let mut refused = Vec::new();
    let mut listing = None;
    for spec in specs {
        if !spec.path.contains('*') {
            if fs::symlink_metadata(work.join(&spec.path)).is_ok() {
                found.push(MatchedFile { path: spec.path.clone(), kind: spec.kind.clone() });
            }
            continue;
        }
        for (name, verdict) in listing.get_or_insert_with(|| list(work)).iter() {
            if !matches(&spec.path, name) {
                continue;
            }
            match verdict {
                Ok(()) if found.iter().any(|f| f.path == *name) => {}
                Ok(()) => found.push(MatchedFile { path: name.clone(), kind: spec.kind.clone() }),
                Err(why) => refused.push((name.clone(), *why)),
            }
        }
    }
    (found, refused)
}

/// Returns all files below `work`, sorted, with the reason for those that cannot be announced.
fn list(work: &Path) -> Vec<(String, Result<(), &'static str>)> {
    let mut all = Vec::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(work.join(&folder)).into_iter().flatten().flatten() {
            if all.len() >= MAX_FILES {
                return all;
            }
            let is_utf8 = entry.file_name().to_str().is_some();
            let name = format!("{folder}{}", entry.file_name().to_string_lossy());
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() {
                if is_utf8 {
                    folders.push(format!("{name}/"));
                }
            } else if kind.is_symlink() {
                all.push((name, Err("a link, which is not followed")));
            } else if !kind.is_file() {
                all.push((name, Err("not a regular file")));
            } else if !is_utf8 || !valid_relative_path(&name) {
                all.push((name, Err("a file whose name is not valid on every system")));
            } else {
                all.push((name, Ok(())));
            }
        }
    }
    all.sort();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_odd_names_are_refused_and_the_rest_comes_sorted() {
        let dir = tempfile::tempdir().unwrap();
        let work = dir.path();
        fs::create_dir(work.join("raw")).unwrap();
        for name in ["raw/b", "raw/a", "raw/new\nline"] {
            fs::write(work.join(name), "x").unwrap();
        }
        std::os::unix::fs::symlink("/etc/passwd", work.join("raw/link")).unwrap();
        let specs =
            ["raw/a", "raw/*"].map(|path| ArtifactSpec { path: path.into(), kind: "k".into() });
        let (found, refused) = find(&specs, work);
        let paths: Vec<_> = found.iter().map(|f| f.path.as_str()).collect();
        assert_eq!(paths, ["raw/a", "raw/b"]);
        let names: Vec<_> = refused.iter().map(|(n, _)| n.as_str()).collect();
        assert_eq!(names, ["raw/link", "raw/new\nline"]);
    }
}
