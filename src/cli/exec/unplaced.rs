//! Pulled files that stay in the run folder alone. What comes from a host goes through no link of
//! this machine, and takes the place of nothing that was written here while the program ran.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rgpu_protocol::{Digest, Plan};
use schemars::JsonSchema;
use serde::Serialize;

use crate::run::{HostFile, digest_file};
use crate::store::{RunFolder, RunRecord};

/// A pulled file that was not put into the folder here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(in crate::cli) struct Unplaced {
    /// Its name, relative to where pulled files are put.
    pub(super) name: String,
    /// Why it was not put there.
    #[serde(flatten)]
    pub(super) why: Why,
    /// Where it lies: in the run folder.
    pub(super) file: PathBuf,
}

/// What stands in the way of a pulled file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(tag = "why", rename_all = "snake_case")]
pub(super) enum Why {
    /// The file of that name here was written since the run began: it stays.
    WrittenHere {},
    /// A folder above it is a symbolic link here: nothing is written through it.
    BehindLink {
        /// The link, relative to where pulled files are put.
        link: String,
    },
    /// It belongs to a git repository: git runs what lies there, so that a host could have its own
    /// hooks run here.
    OfGit {
        /// The `.git`, relative to where pulled files are put.
        git: String,
    },
}

/// What a pulled file finds in its place.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing, or what it may replace.
    Room,
    /// Itself: it was put there before.
    Itself,
    /// What it may not touch.
    Obstacle(Why),
}

/// The folder that pulled files of a run are put into.
pub(super) struct Ground<'a> {
    root: &'a Path,
    folder: &'a RunFolder,
    begun: Timestamp,
    sent: OnceCell<BTreeMap<String, Digest>>,
}

impl<'a> Ground<'a> {
    /// The folder `root`, for files of this run.
    pub(super) fn new(root: &'a Path, folder: &'a RunFolder, record: &RunRecord) -> Self {
        // Without a time everything counts as written since, and is looked at.
        let begun = record.started.parse().unwrap_or(Timestamp::UNIX_EPOCH);
        Self { root, folder, begun, sent: OnceCell::new() }
    }

    /// What the file finds under `name`.
    pub(super) fn find(&self, name: &str, file: &HostFile) -> Found {
        if let Some(why) = forbidden(self.root, name) {
            return Found::Obstacle(why);
        }
        let here = self.root.join(name);
        match fs::symlink_metadata(&here) {
            Ok(meta) if !meta.is_dir() && changed_since(&meta, self.begun) => {}
            _ => return Found::Room,
        }
        match digest_file(&here).map(|here| here.sha256) {
            Ok(digest) if digest.as_str() == file.artifact.sha256 => Found::Itself,
            Ok(digest) if self.sent().get(&file.host_path) == Some(&digest) => Found::Room,
            _ => Found::Obstacle(Why::WrittenHere {}),
        }
    }

    /// What the host was sent, by its path there.
    fn sent(&self) -> &BTreeMap<String, Digest> {
        self.sent.get_or_init(|| {
            let text = self.folder.read("plan-1.json").unwrap_or_default();
            let files = serde_json::from_slice(&text).map_or_else(|_| vec![], |p: Plan| p.files);
            files.into_iter().map(|file| (file.path, file.digest)).collect()
        })
    }
}

/// Why nothing from a host may be put under `name`, whatever is there.
pub(super) fn forbidden(root: &Path, name: &str) -> Option<Why> {
    let link = link_above(root, name).map(|link| Why::BehindLink { link });
    link.or_else(|| of_git(name).map(|git| Why::OfGit { git }))
}

/// The first folder above `name`, below `root`, that is a symbolic link.
fn link_above(root: &Path, name: &str) -> Option<String> {
    let mut folders = name.match_indices('/').map(|(at, _)| &name[..at]);
    folders.find(|folder| root.join(folder).is_symlink()).map(str::to_owned)
}

/// The first part of `name` that git takes for a repository's own, a file of that name too. Some
/// file systems do not tell `.GIT` from it.
fn of_git(name: &str) -> Option<String> {
    let ends = name.match_indices('/').map(|(at, _)| at).chain([name.len()]);
    let mut begins = 0;
    for end in ends {
        if name[begins..end].eq_ignore_ascii_case(".git") {
            return Some(name[..end].to_owned());
        }
        begins = end + 1;
    }
    None
}

/// Whether a file may have been written since then. The change of its entry counts: a time of
/// writing can be set to any other, and goes along where a file is moved.
fn changed_since(meta: &Metadata, then: Timestamp) -> bool {
    (meta.ctime(), meta.ctime_nsec()) > (then.as_second(), i64::from(then.subsec_nanosecond()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_protocol::plan::InputFile;
    use sha2::{Digest as _, Sha256};

    use crate::model::profile::Artifact;
    use crate::run::{ExecRequest, exec_draft};

    fn pulled(text: &str) -> HostFile {
        let digest = Digest::from_bytes(&Sha256::digest(text).into());
        HostFile {
            host_path: "here/f".to_owned(),
            rung: "exec".to_owned(),
            artifact: Artifact {
                path: "pulled/f".to_owned(),
                kind: "pulled".to_owned(),
                step: "exec".to_owned(),
                size: text.len() as u64,
                sha256: digest.as_str().to_owned(),
            },
        }
    }

    /// What `there`, made of `sent`, finds where `here` was written at the time `begun` or after.
    fn found(sent: Option<&str>, here: &str, there: &str, begun: &str) -> Found {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(dir.path(), "r", None).unwrap();
        let files = sent.map(|text| InputFile {
            path: "here/f".to_owned(),
            size: text.len() as u64,
            digest: Digest::from_bytes(&Sha256::digest(text).into()),
            blobs: Vec::new(),
            piece_bytes: 0,
            executable: false,
        });
        let request = ExecRequest::default();
        let mut plan = exec_draft(&request, "r.1".to_owned()).plan;
        plan.files = files.into_iter().collect();
        folder.write_json("plan-1.json", &plan).unwrap();
        let mut record = RunRecord::new("r".into(), "exec", Timestamp::UNIX_EPOCH);
        record.started = begun.to_owned();
        fs::write(dir.path().join("f"), here).unwrap();
        Ground::new(dir.path(), &folder, &record).find("f", &pulled(there))
    }

    #[test]
    fn what_was_written_here_since_the_run_began_stays_unless_it_is_what_was_sent() {
        const LATER: &str = "2200-01-01T00:00:00Z";
        const BEFORE: &str = "2020-01-01T00:00:00Z";
        let written = Found::Obstacle(Why::WrittenHere {});
        assert_eq!(found(None, "old", "new", LATER), Found::Room);
        assert_eq!(found(Some("sent"), "mine", "new", LATER), Found::Room);
        assert_eq!(found(None, "mine", "new", BEFORE), written);
        assert_eq!(found(Some("sent"), "mine", "new", BEFORE), written);
        assert_eq!(found(Some("sent"), "sent", "new", BEFORE), Found::Room);
        assert_eq!(found(None, "new", "new", BEFORE), Found::Itself);
        assert_eq!(found(None, "mine", "new", "no time"), written);
    }

    #[test]
    fn what_git_would_run_is_no_place_for_a_hosts_files() {
        let of = |name: &str| of_git(name);
        assert_eq!(of(".git/hooks/pre-commit").as_deref(), Some(".git"));
        assert_eq!(of("out/.git/config").as_deref(), Some("out/.git"));
        assert_eq!(of("out/.GIT").as_deref(), Some("out/.GIT"));
        for free in [".gitignore", "a.git/x", ".github/workflows/ci.yml", "git/.gitkeep"] {
            assert_eq!(of(free), None, "{free}");
        }
    }

    #[test]
    fn a_link_above_a_file_is_named_and_the_file_itself_may_be_one() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("a")).unwrap();
        std::os::unix::fs::symlink("nowhere", dir.path().join("a/link")).unwrap();
        assert_eq!(link_above(dir.path(), "a/link/b/c").as_deref(), Some("a/link"));
        for free in ["a/link", "a/b/c", "x", "x/y"] {
            assert_eq!(link_above(dir.path(), free), None, "{free}");
        }
    }
}
