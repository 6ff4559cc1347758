//! The copies of the project that a loop keeps: `start`, `best` and `candidate`. Their files are
//! recorded when they are made, and checked before they count.

use std::path::PathBuf;

use super::driver::LoopRunner;
use super::state::KeptState;
use super::{FOLDER, LoopError, tree};

impl LoopRunner {
    /// The folder of a copy: `start`, `best` or `candidate`.
    pub(super) fn copy(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The kernel in a copy.
    pub(super) fn kernel_in(&self, name: &str) -> PathBuf {
        self.copy(name).join(&self.config.kernel_path)
    }

    /// Records the files of a copy that was just made, and returns the digest of all.
    pub(super) fn record_copy(&mut self, name: &'static str) -> Result<String, LoopError> {
        let digests = tree::file_digests(&self.loops.files, &self.copy(name))?;
        let digest = tree::digest_of(&digests);
        self.digests.insert(name, digests);
        Ok(digest)
    }

    /// Checks that a copy has the files that were recorded.
    pub(super) fn check_copy(&mut self, name: &'static str) -> Result<(), LoopError> {
        let now = tree::file_digests(&self.loops.files, &self.copy(name))?;
        let damaged = |file: PathBuf, recorded: String, found: String| LoopError::Damaged {
            id: self.id.clone(),
            file,
            recorded,
            found,
        };
        if let Some(recorded) = self.digests.get(name) {
            return match tree::first_difference(recorded, &now) {
                Some((path, recorded, found)) => {
                    let file = format!("{FOLDER}/{}/{name}/{}", self.id, path.display());
                    Err(damaged(PathBuf::from(file), recorded, found))
                }
                None => Ok(()),
            };
        }
        // An earlier process recorded the digest of all.
        let kept = |state: &Option<KeptState>| state.as_ref().map(|kept| kept.digest.clone());
        let recorded = match name {
            "start" => kept(&self.state.start),
            "best" => kept(&self.state.best),
            _ => Some(self.state.proposal.digest.clone()).filter(|digest| !digest.is_empty()),
        };
        let found = tree::digest_of(&now);
        match recorded {
            Some(recorded) if recorded != found => {
                let folder = PathBuf::from(format!("{FOLDER}/{}/{name}", self.id));
                Err(damaged(folder, format!("sha256 {recorded}"), format!("sha256 {found}")))
            }
            Some(_) => {
                self.digests.insert(name, now);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Checks all copies: what is compared, and with what.
    pub(super) fn check_copies(&mut self) -> Result<(), LoopError> {
        ["start", "best", "candidate"].into_iter().try_for_each(|name| self.check_copy(name))
    }

    /// Checks that a run measured the source that was recorded. `source` and `sha256` are what the
    /// run says.
    pub(super) fn check_measured(&self, source: &str, sha256: &str) -> Result<(), LoopError> {
        let source = self.loops.project.join(source);
        for (name, digests) in &self.digests {
            let inner = source.strip_prefix(self.copy(name)).ok();
            let Some(recorded) = inner.and_then(|inner| digests.get(inner)) else { continue };
            if !recorded.ends_with(sha256) {
                return Err(LoopError::Damaged {
                    id: self.id.clone(),
                    file: source,
                    recorded: recorded.clone(),
                    found: format!("sha256 {sha256} as it was measured"),
                });
            }
        }
        Ok(())
    }

    /// Gives the project the files of the best.
    pub(super) fn restore(&mut self) -> Result<(), LoopError> {
        if self.state.best.is_none() {
            return Ok(());
        }
        self.check_copy("best")?;
        let backup = self.iteration_folder().join("changed");
        tree::restore(&self.loops.files, &self.copy("best"), &backup)
    }
}
