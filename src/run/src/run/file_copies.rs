//! Copies of fetched files outside the run folder, written while the files arrive: copying later
//! would mean hashing them again, which takes longer than writing twice.

use std::collections::BTreeMap;
use std::fs::File;

use crate::store::{Destination, NewFile};

/// Smaller files are not copied while fetching: a copy afterwards is as fast.
const MIN_COPY_BYTES: u64 = 1 << 20;

type CopyFolder = dyn Fn(&str) -> Option<Destination> + Send + Sync;

/// The copies of one job's files.
#[derive(Default)]
pub struct FileCopies {
    destination_of: Option<Box<CopyFolder>>,
    complete: BTreeMap<String, NewFile>,
}

impl std::fmt::Debug for FileCopies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileCopies").field("complete", &self.complete).finish_non_exhaustive()
    }
}

impl FileCopies {
    /// Copies files to where `destination_of` says, by their path in the run folder.
    pub fn to(
        destination_of: impl Fn(&str) -> Option<Destination> + Send + Sync + 'static,
    ) -> Self {
        Self { destination_of: Some(Box::new(destination_of)), complete: BTreeMap::new() }
    }

    /// Opens a copy for a file of `bytes` bytes at `path` in the run folder. `None` if it needs
    /// none or cannot be written; the later copy then reports the error.
    pub(super) fn begin(&self, path: &str, bytes: u64) -> Option<(File, NewFile)> {
        let destination = self.destination_of.as_ref().filter(|_| bytes > MIN_COPY_BYTES)?(path)?;
        destination.begin().ok()
    }

    /// Marks the copy of the file at `path` as complete.
    pub(super) fn keep(&mut self, path: &str, copy: NewFile) {
        self.complete.insert(path.to_owned(), copy);
    }

    /// Takes the copy of the file at `path`, if one is complete.
    pub fn take(&mut self, path: &str) -> Option<NewFile> {
        self.complete.remove(path)
    }
}
