//! Kept states as commits on `refs/rgpu/loop/<id>`. The user's branch, HEAD, index and files are not
//! touched. Without a repository there are no commits, and nothing else changes.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::program_answer::{MAX_LIST_BYTES, read_answer};
use crate::store::quiet_git;

/// Commits the project's files as they are, on top of `parent` or of HEAD, and returns the commit.
/// `None` without git, outside a repository, or if git fails.
pub(super) fn commit_files(
    project: &Path,
    name: &str,
    parent: Option<&str>,
    message: &str,
) -> Option<String> {
    let scratch = tempfile::tempdir().ok()?;
    let git = Git { project, index: scratch.path().join("index") };
    let head = || git.output(&["rev-parse", "--verify", "--quiet", "HEAD^{commit}"]);
    let parent = parent.map(str::to_owned).or_else(head);
    match &parent {
        Some(parent) => git.output(&["read-tree", parent])?,
        None => git.output(&["read-tree", "--empty"])?,
    };
    git.output(&["add", "--all", "--", "."])?;
    let tree = git.output(&["write-tree"])?;
    let parents: Vec<&str> = parent.iter().flat_map(|parent| ["-p", parent.as_str()]).collect();
    let commit =
        git.output(&[&["commit-tree", "-m", message], &parents[..], &[tree.as_str()]].concat())?;
    git.output(&["update-ref", &format!("refs/rgpu/loop/{name}"), &commit])?;
    Some(commit)
}

/// Removes the ref that holds a loop's commits, if there is one.
pub(super) fn remove_ref(project: &Path, name: &str) {
    let git = quiet_git(project);
    // Without git or outside a repository there is none.
    let _ = git.map(|mut git| {
        git.args(["update-ref", "-d", &format!("refs/rgpu/loop/{name}")]);
        git.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()
    });
}

/// git in the project with an index of our own.
struct Git<'a> {
    project: &'a Path,
    index: PathBuf,
}

impl Git<'_> {
    fn output(&self, args: &[&str]) -> Option<String> {
        let mut git: Command = quiet_git(self.project)?;
        git.args(args);
        git.env("GIT_INDEX_FILE", &self.index);
        for role in ["AUTHOR", "COMMITTER"] {
            git.env(format!("GIT_{role}_NAME"), "rgpu loop");
            git.env(format!("GIT_{role}_EMAIL"), "rgpu@localhost");
        }
        let output = read_answer(&mut git, MAX_LIST_BYTES).ok()?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        output.status.success().then_some(text)
    }
}

#[cfg(test)]
mod tests {
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
        assert_eq!(commit_files(project, "x", None, "start"), None);
        git(project, &["init", "-q"]);
        std::fs::write(project.join("k.cu"), "zero").unwrap();
        // A repository without a commit.
        let first = commit_files(project, "unborn", None, "start").unwrap();
        assert_eq!(git(project, &["show", &format!("{first}:k.cu")]), "zero");
        git(project, &["add", "-A"]);
        git(project, &["commit", "-q", "-m", "one"]);
        let head = git(project, &["rev-parse", "HEAD"]);
        git(project, &["checkout", "-q", "--detach"]);
        std::fs::write(project.join("k.cu"), "dirty").unwrap();
        std::fs::write(project.join("new"), "x").unwrap();
        git(project, &["add", "new"]);
        let status = git(project, &["status", "--porcelain"]);
        let start = commit_files(project, "x", None, "start").unwrap();
        std::fs::write(project.join("k.cu"), "better").unwrap();
        let kept = commit_files(project, "x", Some(&start), "iteration 1").unwrap();
        assert_eq!(git(project, &["status", "--porcelain"]), status);
        assert_eq!(git(project, &["rev-parse", "HEAD"]), head);
        let log = git(project, &["log", "--format=%s", "refs/rgpu/loop/x"]);
        assert_eq!(log, "iteration 1\nstart\none");
        assert_eq!(git(project, &["show", &format!("{kept}:k.cu")]), "better");
        assert_eq!(git(project, &["show", &format!("{start}:k.cu")]), "dirty");
    }
}
