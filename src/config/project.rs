//! What a project may decide, and what it may not.
//!
//! A project is often somebody else's: a folder that was cloned. Its `rgpu.toml` may choose among
//! the user's remotes and say what is measured. It may not say where the user's secrets go, what
//! runs on the user's machine, or what is written outside the project. docs/settings.md has the
//! whole table, and tests/it/project_trust.rs a test for each row.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;

use super::{Config, LOCAL, Origin, Set};
use crate::analysis::Thresholds;
use crate::error::{Exit, Failure, Result, shell_word};
use crate::remote::{RemoteSpec, without_secret};

/// What a project's file may hold: everything but remotes.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProjectFile {
    pub(super) default_remote: Option<String>,
    pub(super) runs_dir: Option<PathBuf>,
    pub(super) keep: Option<usize>,
    pub(super) kernel_path: Option<Vec<PathBuf>>,
    #[serde(default)]
    pub(super) preset: BTreeMap<String, toml::Table>,
    #[serde(default)]
    pub(super) analysis: Thresholds,
}

/// The flags that a project's preset may set: what is measured, how long, and how it is judged.
/// None of them sends or writes a file, starts a program, or passes arguments on to a tool.
const PRESET_FLAGS: &[&str] = &[
    "arch",
    "at-least",
    "budget",
    "capture-range",
    "clock-control",
    "gpu",
    "gpus",
    "iters",
    "kernel-exclude",
    "kernel-name",
    "kernel-name-base",
    "label",
    "launch-count",
    "launch-skip",
    "light",
    "log-limit",
    "metrics",
    "mode",
    "note",
    "nvtx-include",
    "problem-sizes",
    "queue-timeout",
    "regions",
    REMOTE,
    "replay-mode",
    "sample",
    "section",
    "seed",
    "set",
    "strict",
    "target-processes",
    "timeout",
    "tool",
    "top",
    "trace",
    "warmup",
];

const REMOTE: &str = "remote";

impl Config {
    /// The remote that `file` of a project names: one of the user's settings, or `local`.
    ///
    /// # Errors
    /// Any other name: an address or an alias of `~/.ssh/config` (`is_alias`), which the project
    /// would define by it, with the line to type.
    pub fn remote_of_project(
        &self,
        name: &str,
        file: &Path,
        is_alias: impl FnOnce(&str) -> bool,
    ) -> Result<RemoteSpec> {
        let own = self.remotes.contains_key(name) || name == LOCAL;
        if own {
            return self.remote(name, |_| false);
        }
        // An address that holds a password is not repeated.
        without_secret(name).map_err(|failure| failure.file(file.display()))?;
        let address = match name.contains("://") {
            true => name.to_owned(),
            false if is_alias(name) => format!("ssh://{name}"),
            false => return self.remote(name, |_| false),
        };
        let what = format!("a project may not choose `{name}`: your settings have no such remote");
        Err(Failure::new(Exit::Config, "remote_of_project", what)
            .file(file.display())
            .hint(format!(
                "if you trust that host: `rgpu remote add NAME {}`, then `--remote NAME`",
                shell_word(&address)
            ))
            .hint("or name one that you have: `--remote NAME`; `rgpu remote list` shows them"))
    }

    /// The folder of this name beside the folder of runs: `artifacts/sass`.
    ///
    /// # Errors
    /// It is a link that leads out of the project, where the runs lie inside.
    pub fn folder_beside_runs(&self, name: &str) -> Result<PathBuf> {
        let runs_dir = &self.runs_dir.value;
        let folder = runs_dir.parent().unwrap_or(&self.project).join(name);
        if is_below(runs_dir, &self.project) && !is_below(&folder, &self.project) {
            let what = format!("`{}` leads out of the project", folder.display());
            return Err(Failure::new(Exit::Config, "folder_outside", what)
                .hint("name a folder yourself: `--out DIR`"));
        }
        Ok(folder)
    }

    /// Refuses what a preset of a project's `file` may not say. A preset of the user's own file
    /// may set every flag.
    ///
    /// # Errors
    /// A flag that only the user may set, or a remote that a project may not name.
    pub fn check_preset(
        &self,
        name: &str,
        preset: &Set<toml::Table>,
        is_alias: impl Fn(&str) -> bool,
    ) -> Result<()> {
        let Origin::Project(file) = &preset.origin else { return Ok(()) };
        for (key, value) in &preset.value {
            let flag = key.replace('_', "-");
            if !PRESET_FLAGS.contains(&flag.as_str()) {
                let what = format!("preset `{name}` of a project may not set `--{flag}`");
                return Err(Failure::new(Exit::Config, "preset_of_project", what)
                    .file(file.display())
                    .cause(format!("it may set `--{}`", PRESET_FLAGS.join("`, `--")))
                    .hint(format!(
                        "type the flag yourself, or write the preset into {}",
                        self.user_file.display()
                    )));
            }
            let remotes = value.as_str().filter(|_| flag == REMOTE).unwrap_or_default();
            for remote in remotes.split(',').filter(|remote| !remote.is_empty()) {
                self.remote_of_project(remote, file, &is_alias)?;
            }
        }
        Ok(())
    }
}

/// Refuses a folder of runs that leads out of the project, by its name or by a link: rgpu writes
/// there, and removes. The user's own word, in the environment or as an absolute path, counts.
pub(super) fn check_runs_dir(
    runs_dir: &Set<PathBuf>,
    project: &Path,
    user_file: &Path,
) -> Result<()> {
    let leads_out = |path: &Path| path.components().any(|part| part == Component::ParentDir);
    let by_user = match &runs_dir.origin {
        Origin::Env(_) => true,
        Origin::User(_) => {
            let inner = runs_dir.value.strip_prefix(project);
            inner.map_or(true, leads_out)
        }
        Origin::Project(_) | Origin::Default => false,
    };
    if by_user || is_below(&runs_dir.value, project) {
        return Ok(());
    }
    let shown = runs_dir.value.display();
    let what = format!("the runs of a project lie inside it, and `{shown}` does not");
    let failure = Failure::new(Exit::Config, "runs_outside", what);
    let failure = match &runs_dir.origin {
        Origin::Project(file) => failure.file(file.display()),
        _ => failure.cause("a link leads out of the project"),
    };
    Err(failure.hint(format!(
        "if you want them there: RGPU_RUNS_DIR={}, or an absolute `runs_dir` in {}",
        shell_word(shown),
        user_file.display()
    )))
}

/// Whether `path` lies below `folder` once links are followed; what does not exist yet counts by
/// its name.
pub fn is_below(path: &Path, folder: &Path) -> bool {
    let Ok(folder) = folder.canonicalize() else { return false };
    let mut missing = Vec::new();
    let mut there = path;
    let real = loop {
        match fs::symlink_metadata(there) {
            Ok(_) => match there.canonicalize() {
                Ok(real) => break real,
                // A link that leads nowhere yet.
                Err(_) => return false,
            },
            // Below a file nothing can be made: writing there says so.
            Err(e)
                if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
            Err(_) => return false,
        }
        // A path without a last name ends in `..`, or is the root.
        let (Some(parent), Some(name)) = (there.parent(), there.file_name()) else { return false };
        missing.push(name);
        there = parent;
    };
    let whole: PathBuf =
        std::iter::once(real.as_os_str()).chain(missing.into_iter().rev()).collect();
    whole != folder && whole.starts_with(&folder)
}
