//! `env.json` and `inputs.json`: the environment and inputs of a run, for comparing it with
//! another.

use std::path::Path;

use rgpu_protocol::{Digest, HostFacts};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The content of `env.json` (`rgpu.env/1`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EnvRecord {
    /// `rgpu.env/1`.
    pub schema: String,
    /// Version of rgpu on the laptop.
    pub rgpu: String,
    /// The laptop's system, e.g. `linux x86_64`.
    pub laptop: String,
    /// The host with its GPUs, driver, CUDA and tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostFacts>,
    /// The repository that contains the kernel. Absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
    /// `rgpu.inputs/1`.
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
///
/// # Errors
/// The file cannot be read.
pub fn digest_file(path: &Path) -> std::io::Result<InputDigest> {
    let (size, sha256) = digest_of(std::fs::File::open(path)?)?;
    Ok(InputDigest { path: path.display().to_string(), size, sha256 })
}

/// Returns a reader's length in bytes and its sha256.
///
/// # Errors
/// The reader fails.
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

/// Settings under which git starts none of the programs that a repository configures. An unpacked
/// archive, or a bare repository among other files, has settings that somebody else chose.
const NO_PROGRAMS: [&str; 6] = [
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "safe.bareRepository=explicit",
];

/// The repository that contains `folder`, as reported by git; `None` without git or outside a
/// repository.
fn repository(folder: &Path) -> Option<Repository> {
    let git = |args: &[&str]| {
        let mut git = std::process::Command::new("git");
        let output = git.arg("-C").arg(folder).args(NO_PROGRAMS).args(args).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let commit = git(&["rev-parse", "HEAD"])?;
    let dirty = !git(&["status", "--porcelain", "--untracked-files=normal", "--", "."])?.is_empty();
    Some(Repository { commit, dirty })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_repositorys_own_settings_start_no_program() {
        let dir = tempfile::tempdir().unwrap();
        let (script, ran) = (dir.path().join("script"), dir.path().join("ran"));
        fs::write(&script, format!("#!/bin/sh\ntouch '{}'\n", ran.display())).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        let git = |folder: &Path, args: &[&str]| {
            let mut git = std::process::Command::new("git");
            git.arg("-C").arg(folder).args(["-c", "user.name=x", "-c", "user.email=x@x"]);
            assert!(git.args(args).output().unwrap().status.success(), "{args:?}");
        };
        // An unpacked repository with a file system monitor.
        let unpacked = dir.path().join("unpacked");
        fs::create_dir(&unpacked).unwrap();
        git(&unpacked, &["init", "-q"]);
        git(&unpacked, &["commit", "-q", "--allow-empty", "-m", "x"]);
        git(&unpacked, &["config", "core.fsmonitor", &script.display().to_string()]);
        git(&unpacked, &["status"]);
        assert!(ran.exists(), "git alone starts it");
        fs::remove_file(&ran).unwrap();
        assert!(repository(&unpacked).is_some_and(|repository| !repository.dirty));
        // A bare repository among another's files.
        let bare = dir.path().join("bare");
        git(dir.path(), &["clone", "-q", "--bare", "unpacked", "bare"]);
        for (key, value) in [("core.bare", "false"), ("core.worktree", "..")] {
            git(&bare, &["config", key, value]);
        }
        git(&bare, &["config", "core.fsmonitor", &script.display().to_string()]);
        assert_eq!(repository(&bare), None);
        assert!(!ran.exists());
    }
}
