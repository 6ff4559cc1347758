//! After each rung: the files it was to bring, hashed and announced.
//!
//! Small ones also go to the blob store, so that the next plan of the run can name them as inputs
//! without their having travelled.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use rgpu_protocol::plan::{ArtifactSpec, valid_relative_path};
use rgpu_protocol::{BLOB_BYTES, Digest, EventBody, Rung, Step};
use sha2::{Digest as _, Sha256};

use super::{Halt, Supervisor};
use crate::blob;
use crate::fault::Doing;
use crate::inside::{matches, open_regular};

/// Files up to this size also become blobs.
const BLOB_LIMIT: u64 = 64 << 20;

/// Pieces of a file that wait to become blobs while the whole is hashed.
const PASSED: usize = 1;

/// More files than this are not looked at: a program that writes that many is at fault.
const MOST_FILES: usize = 100_000;

/// What was announced, to tell a file that a later rung wrote anew.
#[derive(Debug, Default)]
pub(crate) struct Announced {
    files: HashMap<String, (u64, u64, i64, i64)>,
}

/// A file that a spec matched.
struct Found {
    path: String,
    kind: String,
}

/// Names that a spec matched but that are not brought back.
type Refused = Vec<(String, &'static str)>;

impl Supervisor {
    /// Announces the files of a rung that are new or changed.
    pub(crate) fn announce_artifacts(
        &mut self,
        step: &Step,
        rung: &Rung,
        work: &Path,
    ) -> Result<(), Halt> {
        let (found, refused) = find(&rung.artifacts, work);
        for (name, why) in refused {
            self.warn("artifact_refused", format!("`{}` is {why}", name.escape_debug()))?;
        }
        for file in found {
            self.announce_one(step, file, work)?;
        }
        Ok(())
    }

    fn announce_one(&mut self, step: &Step, found: Found, work: &Path) -> Result<(), Halt> {
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
        (&mut file).take(BLOB_BYTES).read_to_end(&mut piece).doing("read", &path)?;
        let (size, digest) = if (piece.len() as u64) < BLOB_BYTES {
            let digest = blob::hash(&piece);
            // Only saves an upload later.
            let _ = self.blobs.store(&digest, &piece);
            (piece.len() as u64, digest)
        } else {
            self.hash_long(piece, file, &path, meta.len() <= BLOB_LIMIT)?
        };
        let (step, kind) = (step.id.clone(), found.kind);
        Ok(self.emit(EventBody::Artifact { step, path: found.path, kind, size, digest })?)
    }
}

impl Supervisor {
    /// Size and digest of a file of which the first piece has been read. The pieces of one that is
    /// to be kept become blobs meanwhile.
    fn hash_long(
        &mut self,
        first: Vec<u8>,
        mut file: File,
        path: &Path,
        keep: bool,
    ) -> Result<(u64, Digest), Halt> {
        let blobs = self.blobs.clone();
        std::thread::scope(|threads| {
            let (pass, pieces) = sync_channel::<Arc<Vec<u8>>>(PASSED);
            let storing = keep.then(|| {
                std::thread::Builder::new().spawn_scoped(threads, move || {
                    for piece in pieces {
                        // Only saves an upload later.
                        let _ = blobs.store(&blob::hash(&piece), &piece);
                    }
                })
            });
            let mut whole = Sha256::new();
            let mut size = 0;
            let mut piece = first;
            while !piece.is_empty() {
                size += piece.len() as u64;
                let read = Arc::new(std::mem::take(&mut piece));
                if matches!(storing, Some(Ok(_))) {
                    let _ = pass.send(read.clone());
                }
                whole.update(&*read);
                drop(read);
                self.hub.wait(&[], Duration::ZERO)?;
                self.check_stop()?;
                (&mut file).take(BLOB_BYTES).read_to_end(&mut piece).doing("read", path)?;
            }
            Ok((size, Digest::from_bytes(&whole.finalize().into())))
        })
    }
}

/// The files that match, in the order of the specs and then of their names.
fn find(specs: &[ArtifactSpec], work: &Path) -> (Vec<Found>, Refused) {
    let mut found: Vec<Found> = Vec::new();
    let mut refused = Vec::new();
    let mut listing = None;
    for spec in specs {
        if !spec.path.contains('*') {
            if fs::symlink_metadata(work.join(&spec.path)).is_ok() {
                found.push(Found { path: spec.path.clone(), kind: spec.kind.clone() });
            }
            continue;
        }
        for (name, what) in listing.get_or_insert_with(|| list(work)).iter() {
            if !matches(&spec.path, name) {
                continue;
            }
            match what {
                Ok(()) if found.iter().any(|f| f.path == *name) => {}
                Ok(()) => found.push(Found { path: name.clone(), kind: spec.kind.clone() }),
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
            if all.len() >= MOST_FILES {
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
