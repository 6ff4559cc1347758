//! After each rung: the files it was to bring, hashed and announced.
//!
//! Small ones also go to the blob store, so that the next plan of the run can name them as inputs
//! without their having travelled. Those that the user asked for by name are announced of a
//! cancelled program, too, and of one whose supervisor has died.

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
use crate::blob;
use crate::host_fault::DoingContext;
use crate::inside::open_regular;

/// Files up to this size also become blobs.
const BLOB_LIMIT: u64 = 64 << 20;

/// Pieces of a file that were read and wait to be hashed, as part of the whole or by themselves.
const MAX_QUEUED_PIECES: usize = 4;

/// Threads that hash pieces by themselves and make blobs of them: one does not keep up with the
/// hashing of the whole.
const PIECE_THREADS: usize = 2;

/// More files than this are not looked at: a program that writes that many is at fault.
const MAX_FILES: usize = 100_000;

/// What was announced, to tell a file that a later rung wrote anew.
#[derive(Debug, Default)]
pub(crate) struct AnnouncedFiles {
    files: HashMap<String, (u64, u64, i64, i64)>,
}

/// A file that a spec matched.
struct MatchedFile {
    path: String,
    kind: String,
}

/// A file of more than one piece.
struct LongFile<'a> {
    path: &'a Path,
    /// Whether its pieces become blobs.
    keep: bool,
    /// Whether the user asked for it by name, so that it is told of even when the job is cancelled.
    asked: bool,
}

/// Names that a spec matched but that are not brought back.
type RefusedNames = Vec<(String, &'static str)>;

impl Supervisor {
    /// Announces the files of a rung that are new or changed.
    pub(crate) fn announce_artifacts(
        &mut self,
        step: &Step,
        rung: &Rung,
        work: &Path,
    ) -> Result<(), EarlyEnd> {
        self.announce_all(step, find(&rung.artifacts, work), work)
    }

    /// Announces what a program that was cancelled has made of what the user asked for by name.
    pub(crate) fn announce_pulled(
        &mut self,
        step: &Step,
        rung: &Rung,
        work: &Path,
    ) -> Result<(), EarlyEnd> {
        let asked: Vec<_> = rung.artifacts.iter().filter(|s| s.kind == PULLED).cloned().collect();
        self.announce_all(step, find(&asked, work), work)
    }

    fn announce_all(
        &mut self,
        step: &Step,
        (found, refused): (Vec<MatchedFile>, RefusedNames),
        work: &Path,
    ) -> Result<(), EarlyEnd> {
        for (name, why) in refused {
            let text = format!("`{}` is not brought: it is {why}", name.escape_debug());
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
        let meta = file.metadata().doing("look at", &path)?;
        let mark = (meta.len(), meta.ino(), meta.mtime(), meta.mtime_nsec());
        if self.announced.files.insert(found.path.clone(), mark) == Some(mark) {
            return Ok(());
        }
        let mut piece = Vec::new();
        (&mut file).take(PIECE_BYTES).read_to_end(&mut piece).doing("read", &path)?;
        let FileDigests { size, digest, composite } = if (piece.len() as u64) < PIECE_BYTES {
            let digest = blob::hash(&piece);
            // Only saves an upload later.
            let _ = self.blobs.store(&digest, &piece);
            FileDigests { size: piece.len() as u64, digest, composite: None }
        } else {
            let long = LongFile {
                path: &path,
                keep: meta.len() <= BLOB_LIMIT,
                asked: found.kind == PULLED,
            };
            self.hash_long(piece, file, &long)?
        };
        let (step, kind) = (step.id.clone(), found.kind);
        let path = found.path;
        Ok(self.emit(EventBody::Artifact { step, path, kind, size, digest, composite })?)
    }
}

/// What is told of a file that was read to its end.
struct FileDigests {
    size: u64,
    digest: Digest,
    composite: Option<Digest>,
}

impl Supervisor {
    /// Hashes a file of which the first piece has been read, as a whole and by pieces, side by side.
    /// The pieces of one that is to be kept become blobs meanwhile.
    fn hash_long(
        &mut self,
        first: Vec<u8>,
        mut file: File,
        long: &LongFile<'_>,
    ) -> Result<FileDigests, EarlyEnd> {
        let LongFile { path, keep, asked } = *long;
        let blobs = self.blobs.clone();
        let (to_pieces, pieces) = sync_channel::<(usize, Arc<Vec<u8>>)>(MAX_QUEUED_PIECES);
        let pieces = Mutex::new(pieces);
        let next_piece = || pieces.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let by_piece = || {
            let mut hashed = Vec::new();
            while let Ok((at, piece)) = next_piece() {
                let raw = sha256(&piece);
                hashed.push((at, raw));
                if keep {
                    // Only saves an upload later.
                    let _ = blobs.store(&Digest::from_bytes(&raw), &piece);
                }
            }
            hashed
        };
        std::thread::scope(|threads| {
            // Theirs too, so that the threads end with it however this ends.
            let to_pieces = to_pieces;
            let start = |_| std::thread::Builder::new().spawn_scoped(threads, by_piece).ok();
            let by_piece: Vec<_> = (0..PIECE_THREADS).filter_map(start).collect();
            let (to_whole, pieces) = sync_channel::<Arc<Vec<u8>>>(MAX_QUEUED_PIECES);
            let whole = std::thread::Builder::new().spawn_scoped(threads, move || {
                let mut whole = Sha256::new();
                pieces.iter().for_each(|piece| whole.update(&*piece));
                Digest::from_bytes(&whole.finalize().into())
            });
            let whole = whole.doing("hash", path)?;
            let (mut size, mut count) = (0, 0);
            let mut piece = first;
            while !piece.is_empty() {
                size += piece.len() as u64;
                let read = Arc::new(std::mem::take(&mut piece));
                if !by_piece.is_empty() {
                    let _ = to_pieces.send((count, read.clone()));
                }
                count += 1;
                // It takes all that comes.
                let _ = to_whole.send(read);
                self.hub.wait(&[], Duration::ZERO)?;
                if !asked {
                    self.check_stop()?;
                }
                (&mut file).take(PIECE_BYTES).read_to_end(&mut piece).doing("read", path)?;
            }
            drop((to_pieces, to_whole));
            let failed = |_| io::Error::other("a hashing thread has failed");
            let mut pieces = Vec::new();
            for thread in by_piece {
                pieces.extend(thread.join().map_err(failed).doing("hash", path)?);
            }
            pieces.sort_unstable_by_key(|(at, _)| *at);
            let pieces: Vec<_> = pieces.into_iter().map(|(_, raw)| raw).collect();
            let all = count > 1 && pieces.len() == count;
            Ok(FileDigests {
                size,
                digest: whole.join().map_err(failed).doing("hash", path)?,
                composite: all.then(|| Digest::composite(&pieces)),
            })
        })
    }
}

/// What there is, of a job whose supervisor has died, of the files that the user asked for by name.
pub(crate) fn left_behind(plan: &Plan, work: &Path) -> impl Iterator<Item = EventBody> {
    let asked_of = |step: &Step| {
        let specs = step.rungs.iter().flat_map(|rung| &rung.artifacts);
        let asked: Vec<_> = specs.filter(|spec| spec.kind == PULLED).cloned().collect();
        (step.id.clone(), asked)
    };
    let asked = plan.steps.iter().map(asked_of).filter(|(_, specs)| !specs.is_empty());
    asked.flat_map(move |(step, specs)| {
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

/// The files that match, in the order of the specs and then of their names.
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
        for (name, what) in listing.get_or_insert_with(|| list(work)).iter() {
            if !matches(&spec.path, name) {
                continue;
            }
            match what {
                Ok(()) if found.iter().any(|f| f.path == *name) => {}
                Ok(()) => found.push(MatchedFile { path: name.clone(), kind: spec.kind.clone() }),
                Err(why) => refused.push((name.clone(), *why)),
            }
        }
    }
    (found, refused)
}

/// All files below `work`, sorted, and why some are not to be brought.
fn list(work: &Path) -> Vec<(String, Result<(), &'static str>)> {
    let mut all = Vec::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(work.join(&folder)).into_iter().flatten().flatten() {
            if all.len() >= MAX_FILES {
                return all;
            }
            let plain = entry.file_name().to_str().is_some();
            let name = format!("{folder}{}", entry.file_name().to_string_lossy());
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() {
                if plain {
                    folders.push(format!("{name}/"));
                }
            } else if kind.is_symlink() {
                all.push((name, Err("a link, which is not followed")));
            } else if !kind.is_file() {
                all.push((name, Err("no regular file")));
            } else if !plain || !valid_relative_path(&name) {
                all.push((name, Err("no name that can be written on every system")));
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
