//! Kept states as commits on `refs/rgpu/loop/<id>`. The user's branch, HEAD, index and files are
//! not touched. Without a repository there are no commits, and nothing else changes.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::LoopError;
use rgpu_model::program_answer::{MAX_LIST_BYTES, TREE_TIME, read_answer_within};
use rgpu_run::store::{QuietGit, inner_repositories};

/// Checks that a loop may write to the project's repository, if there is one.
pub(super) fn check_repository(project: &Path) -> Result<(), LoopError> {
    QuietGit::containing(project)?;
    Ok(())
}

/// Commits the project's files as they are, on top of `parent` or of HEAD, and returns the commit.
/// `None` without git, outside a repository, or if git fails or does not end in time.
pub(super) fn commit_files(
    project: &Path,
    name: &str,
    parent: Option<&str>,
    message: &str,
) -> Result<Option<String>, LoopError> {
    let Some(git) = QuietGit::containing(project)? else { return Ok(None) };
    let Ok(scratch) = tempfile::tempdir() else { return Ok(None) };
    let git = IndexedGit { git, index: scratch.path().join("index") };
    Ok(git.commit_files(name, parent, message))
}

/// Removes the ref that holds a loop's commits, if there is one.
pub(super) fn remove_ref(project: &Path, name: &str) {
    // Outside a repository, and where none may be written, there is none.
    if let Ok(Some(git)) = QuietGit::containing(project) {
        let reference = format!("refs/rgpu/loop/{name}");
        let mut git = git.command(&["update-ref", "--no-deref", "-d", &reference]);
        let _ = read_answer_within(&mut git, MAX_LIST_BYTES, TREE_TIME);
    }
}

/// git in the project with an index of our own.
struct IndexedGit {
    git: QuietGit,
    index: PathBuf,
}

impl IndexedGit {
    fn commit_files(&self, name: &str, parent: Option<&str>, message: &str) -> Option<String> {
        let head = || self.output(&["rev-parse", "--verify", "--quiet", "HEAD^{commit}"]);
        let parent = parent.map(str::to_owned).or_else(head);
        match &parent {
            Some(parent) => self.output(&["read-tree", parent])?,
            None => self.output(&["read-tree", "--empty"])?,
        };
        // git would start another git in an inner repository, with the settings of that one.
        let staged = self.bytes(&["ls-files", "--stage", "-z"])?;
        let mut add: Vec<OsString> = ["add", "--all", "--", "."].map(OsString::from).to_vec();
        for inner in inner_repositories(&staged) {
            let mut without = OsString::from(":(exclude,literal)");
            without.push(inner);
            add.push(without);
        }
        self.bytes(&add)?;
        let tree = self.output(&["write-tree"])?;
        let parents: Vec<&str> = parent.iter().flat_map(|parent| ["-p", parent.as_str()]).collect();
        let commit = [&["commit-tree", "-m", message], &parents[..], &[tree.as_str()]].concat();
        let commit = self.output(&commit)?;
        let reference = format!("refs/rgpu/loop/{name}");
        self.output(&["update-ref", "--no-deref", &reference, &commit])?;
        Some(commit)
    }

    fn output(&self, args: &[&str]) -> Option<String> {
        let bytes = self.bytes(args)?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    fn bytes<A: AsRef<OsStr>>(&self, args: &[A]) -> Option<Vec<u8>> {
        let mut git = self.git.command(args);
        git.env("GIT_INDEX_FILE", &self.index);
        for role in ["AUTHOR", "COMMITTER"] {
            git.env(format!("GIT_{role}_NAME"), "rgpu loop");
            git.env(format!("GIT_{role}_EMAIL"), "rgpu@localhost");
        }
        let output = read_answer_within(&mut git, MAX_LIST_BYTES, TREE_TIME).ok()?;
        output.status.success().then_some(output.stdout)
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn git(folder: &Path, args: &[&str]) -> String {
        let mut git = Command::new("git");
        git.arg("-C").arg(folder).args(["-c", "user.name=x", "-c", "user.email=x@x"]).args(args);
        let output = git.output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    #[test]
    fn commits_leave_branch_index_and_files_alone() {
        let dir = tempfile::tempdir().unwrap();
        let project = dir.path();
        let committed = |name: &str, parent: Option<&str>, message: &str| {
            commit_files(project, name, parent, message).unwrap()
        };
        assert_eq!(committed("x", None, "start"), None);
        git(project, &["init", "-q"]);
        std::fs::write(project.join("k.cu"), "zero").unwrap();
        // A repository without a commit.
        let first = committed("unborn", None, "start").unwrap();
        assert_eq!(git(project, &["show", &format!("{first}:k.cu")]), "zero");
        git(project, &["add", "-A"]);
        git(project, &["commit", "-q", "-m", "one"]);
        let head = git(project, &["rev-parse", "HEAD"]);
        git(project, &["checkout", "-q", "--detach"]);
        std::fs::write(project.join("k.cu"), "dirty").unwrap();
        std::fs::write(project.join("new"), "x").unwrap();
        git(project, &["add", "new"]);
        let status = git(project, &["status", "--porcelain"]);
        let start = committed("x", None, "start").unwrap();
        std::fs::write(project.join("k.cu"), "better").unwrap();
        let kept = committed("x", Some(&start), "iteration 1").unwrap();
        assert_eq!(git(project, &["status", "--porcelain"]), status);
        assert_eq!(git(project, &["rev-parse", "HEAD"]), head);
        let log = git(project, &["log", "--format=%s", "refs/rgpu/loop/x"]);
        assert_eq!(log, "iteration 1\nstart\none");
        assert_eq!(git(project, &["show", &format!("{kept}:k.cu")]), "better");
        assert_eq!(git(project, &["show", &format!("{start}:k.cu")]), "dirty");
    }
}
