//! `env.json` and `inputs.json`: the environment and inputs of a run, for comparing it with
//! another.

use std::path::Path;

use rgpu_protocol::{Digest, HostFacts};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::git::QuietGit;
use rgpu_model::regular_file;

/// The content of `env.json` (`rgpu.env/1`).
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EnvRecord {
    /// Name and version of this schema: `rgpu.env/1`.
    pub schema: String,
    /// Version of rgpu on the laptop.
    pub rgpu: String,
    /// The laptop's system, e.g. `linux x86_64`.
    pub laptop: String,
    /// The host with its GPUs, driver, CUDA and tools.
    pub host: Option<HostFacts>,
    /// The repository that contains the kernel. Absent if there is none.
    pub repository: Option<Repository>,
}

/// A git work tree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Repository {
    /// The commit that HEAD points to.
    pub commit: String,
    /// Whether tracked files differ from that commit, or there are untracked files.
    pub dirty: bool,
}

/// The content of `inputs.json` (`rgpu.inputs/1`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InputsRecord {
    /// Name and version of this schema: `rgpu.inputs/1`.
    pub schema: String,
    /// Seed of the generated inputs.
    pub seed: u64,
    /// Cases with their sizes.
    pub cases: Vec<CaseSizes>,
    /// Every file that the run read.
    pub files: Vec<InputDigest>,
}

/// The sizes of a case.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CaseSizes {
    /// The name of the case.
    pub name: String,
    /// Names of the variables.
    pub vars: Vec<String>,
    /// Their values, one row for each group.
    pub groups: Vec<Vec<i64>>,
}

/// A file and its digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InputDigest {
    /// The file's path, as it was found.
    pub path: String,
    /// Size in bytes.
    pub size: u64,
    /// The sha256 of the content.
    pub sha256: Digest,
}

impl EnvRecord {
    /// Records this machine, the host and the repository that contains `folder`.
    pub fn new(host: Option<HostFacts>, folder: &Path) -> Self {
        Self { repository: repository(folder), ..Self::without_repository(host) }
    }

    /// The same without the repository: asking git takes longer than a small program runs.
    pub fn without_repository(host: Option<HostFacts>) -> Self {
        Self {
            schema: "rgpu.env/1".to_owned(),
            rgpu: env!("CARGO_PKG_VERSION").to_owned(),
            laptop: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            host,
            repository: None,
        }
    }
}

/// Digests a file on this machine.
pub fn digest_file(path: &Path) -> std::io::Result<InputDigest> {
    let (size, sha256) = digest_of(regular_file::open(path)?)?;
    Ok(InputDigest { path: path.display().to_string(), size, sha256 })
}

/// Returns a reader's length in bytes and its sha256.
pub fn digest_of(mut reader: impl std::io::Read) -> std::io::Result<(u64, Digest)> {
    let mut hash = Sha256::new();
    let mut size = 0;
    let mut buffer = vec![0; 1 << 20];
    loop {
        match reader.read(&mut buffer)? {
            0 => return Ok((size, Digest::from_bytes(&hash.finalize().into()))),
            n => {
                hash.update(&buffer[..n]);
                size += n as u64;
            }
        }
    }
}

/// The repository that contains `folder`, as reported by git; `None` without git, outside a
/// repository, or if the repository does not belong to its work tree.
pub fn repository(folder: &Path) -> Option<Repository> {
    let git = QuietGit::containing(folder).ok()??;
    let commit = git.output(&["rev-parse", "HEAD"])?;
    // For changes inside a submodule, git would start another git with the submodule's settings.
    let flags = ["--porcelain", "--untracked-files=normal", "--ignore-submodules=dirty"];
    let status = git.output(&[&["status"], &flags[..], &["--", "."]].concat())?;
    Some(Repository { commit: commit.trim().to_owned(), dirty: !status.trim().is_empty() })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use super::*;

    /// A script that leaves a mark when it runs, and the mark.
    fn marking_script(folder: &Path) -> (PathBuf, PathBuf) {
        let (script, ran) = (folder.join("script"), folder.join("ran"));
        fs::write(&script, format!("#!/bin/sh\ntouch '{}'\n", ran.display())).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        (script, ran)
    }

    fn user_git(folder: &Path, args: &[&str]) {
        let mut git = std::process::Command::new("git");
        git.arg("-C").arg(folder).args(["-c", "user.name=x", "-c", "user.email=x@x"]);
        assert!(git.args(args).output().unwrap().status.success(), "{args:?}");
    }

    /// A repository with one committed file.
    fn committed(folder: &Path) {
        fs::create_dir_all(folder).unwrap();
        user_git(folder, &["init", "-q"]);
        fs::write(folder.join("file"), "one").unwrap();
        user_git(folder, &["add", "-A"]);
        user_git(folder, &["commit", "-q", "-m", "x"]);
    }

    #[test]
    fn a_repositorys_filters_submodules_and_remotes_start_no_program() {
        let dir = tempfile::tempdir().unwrap();
        let (script, ran) = marking_script(dir.path());
        let script = script.display().to_string();
        let top = dir.path().join("unpacked");
        committed(&top);
        // A changed file runs the filter that `.gitattributes` names.
        // It has the committed file's length: at another length git runs no filter to see a change.
        for (name, key, text) in
            [("x", "clean", "two"), ("a.b", "process", "six"), ("c=d", "clean", "ten")]
        {
            let attributes = format!("* filter={name}\n");
            fs::write(top.join(".gitattributes"), attributes).unwrap();
            fs::write(top.join("file"), text).unwrap();
            user_git(&top, &["config", &format!("filter.{name}.{key}"), &script]);
            user_git(&top, &["config", &format!("filter.{name}.required"), "true"]);
            let _ = std::process::Command::new("git").arg("-C").arg(&top).arg("status").output();
            assert!(ran.exists(), "git alone starts `{key}`");
            fs::remove_file(&ran).unwrap();
            let repository = repository(&top);
            assert!(repository.is_none_or(|repository| repository.dirty));
            assert!(!ran.exists(), "{name} {key}");
        }
        user_git(&top, &["config", "--remove-section", "filter.c=d"]);
        // A submodule has settings of its own.
        let inner = top.join("inner");
        committed(&inner);
        let head = repository(&inner).unwrap().commit;
        user_git(&top, &["update-index", "--add", "--cacheinfo", &format!("160000,{head},inner")]);
        user_git(&inner, &["config", "core.fsmonitor", &script]);
        user_git(&top, &["status"]);
        assert!(ran.exists(), "git alone starts it");
        fs::remove_file(&ran).unwrap();
        assert!(repository(&top).is_some());
        assert!(!ran.exists());
        // In a partial clone, a missing object is fetched by a program.
        let partial = dir.path().join("partial");
        committed(&partial);
        for (key, value) in [
            ("core.repositoryFormatVersion", "1"),
            ("extensions.partialClone", "origin"),
            ("remote.origin.promisor", "true"),
            ("remote.origin.url", "."),
            ("remote.origin.uploadpack", &script),
        ] {
            user_git(&partial, &["config", key, value]);
        }
        let objects = walkdir::WalkDir::new(partial.join(".git/objects")).into_iter().flatten();
        let tree = std::process::Command::new("git")
            .arg("-C")
            .arg(&partial)
            .args(["rev-parse", "HEAD^{tree}"])
            .output()
            .unwrap();
        let tree = String::from_utf8(tree.stdout).unwrap();
        let name = tree.trim()[2..].to_owned();
        let lost = objects.filter(|entry| entry.file_name().to_string_lossy() == name);
        lost.for_each(|entry| fs::remove_file(entry.path()).unwrap());
        fs::remove_file(partial.join(".git/index")).unwrap();
        let _ = std::process::Command::new("git").arg("-C").arg(&partial).arg("status").output();
        assert!(ran.exists(), "git alone starts it");
        fs::remove_file(&ran).unwrap();
        assert_eq!(repository(&partial), None);
        assert!(!ran.exists());
    }

    #[test]
    fn a_repositorys_own_settings_start_no_program() {
        let dir = tempfile::tempdir().unwrap();
        let (script, ran) = marking_script(dir.path());
        // An unpacked repository with a file system monitor.
        let unpacked = dir.path().join("unpacked");
        committed(&unpacked);
        user_git(&unpacked, &["config", "core.fsmonitor", &script.display().to_string()]);
        user_git(&unpacked, &["status"]);
        assert!(ran.exists(), "git alone starts it");
        fs::remove_file(&ran).unwrap();
        assert!(repository(&unpacked).is_some_and(|repository| !repository.dirty));
        // A bare repository among another's files.
        let bare = dir.path().join("bare");
        user_git(dir.path(), &["clone", "-q", "--bare", "unpacked", "bare"]);
        for (key, value) in [("core.bare", "false"), ("core.worktree", "..")] {
            user_git(&bare, &["config", key, value]);
        }
        user_git(&bare, &["config", "core.fsmonitor", &script.display().to_string()]);
        assert_eq!(repository(&bare), None);
        assert!(!ran.exists());
    }
}
