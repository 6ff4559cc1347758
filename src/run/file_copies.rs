//! Files that a job made are kept in the run folder, and some are wanted elsewhere too. Those copies
//! are written while the files come: hashing takes longer than writing twice.

use std::collections::BTreeMap;
use std::fs::File;

use crate::store::{Destination, PartialFile};

/// A shorter file is copied as fast as it is looked for.
const MIN_COPY_BYTES: u64 = 1 << 20;

type CopyFolder = dyn Fn(&str) -> Option<Destination> + Send + Sync;

/// The copies of one job's files.
#[derive(Default)]
pub struct FileCopies {
    whither: Option<Box<CopyFolder>>,
    whole: BTreeMap<String, PartialFile>,
}

impl std::fmt::Debug for FileCopies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Copies").field("whole", &self.whole).finish_non_exhaustive()
    }
}

impl FileCopies {
    /// Copies at the destinations that `whither` names, by a file's place in the run folder.
    pub fn to(whither: impl Fn(&str) -> Option<Destination> + Send + Sync + 'static) -> Self {
        Self { whither: Some(Box::new(whither)), whole: BTreeMap::new() }
    }

    /// A file for the copy of what will be `bytes` long at `place` in the run folder; `None`: there
    /// will be none, or nothing can be written there, which whoever copies it then says.
    pub(super) fn begin(&self, place: &str, bytes: u64) -> Option<(File, PartialFile)> {
        let destination = self.whither.as_ref().filter(|_| bytes > MIN_COPY_BYTES)?(place)?;
        destination.begin().ok()
    }

    /// The copy has all that the file at `place` has.
    pub(super) fn keep(&mut self, place: &str, copy: PartialFile) {
        self.whole.insert(place.to_owned(), copy);
    }

    /// Takes the copy of the file at `place`, if it was made.
    pub fn take(&mut self, place: &str) -> Option<PartialFile> {
        self.whole.remove(place)
    }
}
