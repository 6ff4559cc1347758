//! Paths of the workspace: the repository, cargo's output folder, and the host's triple.

use crate::command::{self, CommandError};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

/// The repository and the toolchain that builds it.
pub(crate) struct Workspace {
    /// The folder of the root `Cargo.toml`.
    pub(crate) root: PathBuf,
    /// Cargo's output folder, which the user may have moved.
    pub(crate) target: PathBuf,
    /// The host's target triple.
    pub(crate) triple: String,
    /// What the package `rgpu` says about itself.
    pub(crate) rgpu: PackageMetadata,
}

/// What a package says about itself in its manifest.
pub(crate) struct PackageMetadata {
    description: String,
    license: String,
    repository: String,
}

impl PackageMetadata {
    /// The head of a wheel's METADATA (packaging.python.org, "Core metadata specifications"). The
    /// description in Markdown follows.
    pub(crate) fn metadata(&self, version: &str) -> String {
        let Self { description, license, repository } = self;
        format!(
            "Metadata-Version: 2.4\nName: rgpu\nVersion: {version}\nSummary: {description}\n\
             License-Expression: {license}\nLicense-File: LICENSE-APACHE\n\
             License-File: LICENSE-MIT\nRequires-Python: >=3.9\n\
             Project-URL: Repository, {repository}\n\
             Description-Content-Type: text/markdown\n\n"
        )
    }
}

impl Workspace {
    /// Queries cargo and rustc.
    pub(crate) fn find() -> Result<Self, CommandError> {
        let mut metadata = cargo();
        metadata.args(["metadata", "--no-deps", "--format-version=1"]);
        let answer = command::output(&mut metadata)?;
        let parsed: serde_json::Value = serde_json::from_str(&answer).unwrap_or_default();
        let path = |key: &str| {
            let path = parsed.get(key).and_then(serde_json::Value::as_str).map(PathBuf::from);
            path.ok_or_else(|| unexpected(&metadata, &answer))
        };

        let packages = parsed.get("packages").and_then(serde_json::Value::as_array);
        let is_rgpu =
            |package: &&serde_json::Value| package.get("name").is_some_and(|n| n == "rgpu");
        let rgpu = packages.and_then(|packages| packages.iter().find(is_rgpu));
        let about = |key: &str| {
            let text = rgpu.and_then(|package| package.get(key)?.as_str());
            text.map(str::to_owned).ok_or_else(|| unexpected(&metadata, &answer))
        };
        let rgpu = PackageMetadata {
            description: about("description")?,
            license: about("license")?,
            repository: about("repository")?,
        };
        let (root, target) = (path("workspace_root")?, path("target_directory")?);

        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| OsString::from("rustc"));
        let mut version = Command::new(rustc);
        version.arg("-vV");
        let answer = command::output(&mut version)?;
        let triple = answer.lines().find_map(|line| line.strip_prefix("host: "));
        Ok(Self {
            root,
            target,
            triple: triple.ok_or_else(|| unexpected(&version, &answer))?.to_owned(),
            rgpu,
        })
    }

    /// Cargo, run in the repository root.
    pub(crate) fn cargo(&self) -> Command {
        let mut command = cargo();
        command.current_dir(&self.root);
        command
    }

    /// The folder in which `rgpu` looks for the files to send to a host with this triple.
    pub(crate) fn dist_folder(&self, triple: &str) -> PathBuf {
        self.target.join("dist").join(triple)
    }
}

fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")))
}

fn unexpected(command: &Command, answer: &str) -> CommandError {
    let answer = answer.chars().take(200).collect();
    CommandError::Answer { line: command::line(command), answer }
}
