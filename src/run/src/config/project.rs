//! The settings that a project may and may not make.
//!
//! A project is often somebody else's: a cloned folder. Its `rgpu.toml` may choose among the user's
//! remotes and set what is measured. It may not set where the user's secrets go, what runs on the
//! user's machine, or what is written outside the project. docs/settings.md has the whole table,
//! and tests/it/project_trust.rs has a test for each row.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;

use super::{Config, ConfigValue, LOCAL, Origin};
use rgpu_analysis::Thresholds;
use rgpu_model::beneath;
use rgpu_model::error::{Exit, Failure, Result, nearest, shell_word};
use rgpu_plan::tool::TOOL_FLAGS_OF_PROJECTS;
use rgpu_remote::{RemoteSpec, without_secret};

/// The keys of a project's file: all but remotes.
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

/// The flags that a project's preset may set, besides [`TOOL_FLAGS_OF_PROJECTS`]: what is measured,
/// for how long, and how it is judged. None of them sends or writes a file, starts a program, or
/// passes arguments to a tool.
const PRESET_FLAGS: &[&str] = &[
    "arch",
    "at-least",
    "gpu",
    "gpus",
    "iters",
    "label",
    "log-limit",
    "mode",
    "note",
    "problem-sizes",
    "queue-timeout",
    REMOTE,
    "seed",
    "strict",
    "timeout",
    "warmup",
];

/// Every flag that a project's preset may set, by name.
fn preset_flags() -> Vec<&'static str> {
    let mut flags = [PRESET_FLAGS, TOOL_FLAGS_OF_PROJECTS].concat();
    flags.sort_unstable();
    flags
}

const REMOTE: &str = "remote";

impl Config {
    /// The remote that a project's `file` names: one of the user's settings, or `local`.
    ///
    /// # Errors
    /// Any other name, since an address or an alias of `~/.ssh/config` (`is_alias`) would be a
    /// definition by the project. The failure has the command that adds the remote.
    pub fn remote_of_project(
        &self,
        name: &str,
        file: &Path,
        is_alias: impl FnOnce(&str) -> bool,
    ) -> Result<RemoteSpec> {
        self.configured_remote(name, Some(file), is_alias)
    }

    /// The remote that an agent names: one of the user's settings, or `local`.
    pub fn remote_of_agent(
        &self,
        name: &str,
        is_alias: impl FnOnce(&str) -> bool,
    ) -> Result<RemoteSpec> {
        self.configured_remote(name, None, is_alias)
    }

    /// The remote that a project's `file` names, or an agent.
    fn configured_remote(
        &self,
        name: &str,
        file: Option<&Path>,
        is_alias: impl FnOnce(&str) -> bool,
    ) -> Result<RemoteSpec> {
        let is_users = self.remotes.contains_key(name) || name == LOCAL;
        if is_users {
            return self.remote(name, |_| false);
        }
        // An address with a password is not repeated.
        without_secret(name).map_err(|failure| match file {
            Some(file) => failure.file(file.display()),
            None => failure,
        })?;
        let address = match name.contains("://") {
            true => name.to_owned(),
            false if is_alias(name) => format!("ssh://{name}"),
            false => return self.remote(name, |_| false),
        };
        let (who, code) = match file {
            Some(_) => ("a project", "remote_of_project"),
            None => ("an agent", "remote_of_agent"),
        };
        let what = format!("{who} may not choose `{name}`: your settings have no such remote");
        let mut failure = Failure::new(Exit::Config, code, what);
        if let Some(file) = file {
            failure = failure.file(file.display());
        }
        Err(failure
            .hint(format!(
                "if you trust that host: `rgpu remote add NAME {}`, then `--remote NAME`",
                shell_word(&address)
            ))
            .hint("or name one that you have: `--remote NAME`; `rgpu remote list` shows them"))
    }

    /// The folder `name` beside the runs folder, e.g. `artifacts/sass`.
    pub fn folder_beside_runs(&self, name: &str) -> Result<PathBuf> {
        let runs_dir = &self.runs_dir.value;
        let folder = runs_dir.parent().unwrap_or(&self.project).join(name);
        if is_below(runs_dir, &self.project) {
            let what = if let Some(link) = link_below(&self.project, &folder) {
                format!("`{}` is a symbolic link, which is not followed", link.display())
            } else if !is_below(&folder, &self.project) {
                format!("`{}` leads out of the project", folder.display())
            } else {
                return Ok(folder);
            };
            return Err(Failure::new(Exit::Config, "folder_outside", what)
                .hint("name a folder yourself: `--out DIR`"));
        }
        Ok(folder)
    }

    /// Refuses a folder for output that the user names inside the project, and that a link leads
    /// to: the link may have come with the project.
    pub fn check_output_folder(&self, folder: &Path) -> Result<()> {
        match link_below(&self.project, folder) {
            None => Ok(()),
            Some(link) => {
                let what =
                    format!("`{}` is a symbolic link, which is not followed", link.display());
                Err(Failure::new(Exit::Config, "folder_outside", what)
                    .hint("if the link is yours, name the folder that it leads to"))
            }
        }
    }

    /// Refuses a file or folder to read that the user names in `folder` if a link below
    /// `artifacts`, `.rgpu` or the runs leads to it: they may have come with the project.
    pub fn check_input(&self, folder: &Path, typed: &Path) -> Result<()> {
        let path = folder.join(typed);
        let runs = folder.join(&self.runs_dir.value);
        let own = ["artifacts", ".rgpu"].map(|name| self.project.join(name));
        let of_project = link_below(&self.project, &path)
            .filter(|link| own.iter().chain([&runs]).any(|folder| link.starts_with(folder)));
        match of_project.or_else(|| link_below(&runs, &path)) {
            None => Ok(()),
            Some(link) => {
                let what =
                    format!("`{}` is a symbolic link, which is not followed", link.display());
                Err(Failure::new(Exit::Artifact, "linked_input", what)
                    .hint("name the file that it leads to, or the run by its id"))
            }
        }
    }

    /// Refuses flags that a preset of a project's file may not set. A preset of the user's own file
    /// may set every flag.
    pub fn check_preset(
        &self,
        name: &str,
        preset: &ConfigValue<toml::Table>,
        is_alias: impl Fn(&str) -> bool,
    ) -> Result<()> {
        let Origin::Project(file) = &preset.origin else { return Ok(()) };
        for (key, value) in &preset.value {
            let flag = key.replace('_', "-");
            let allowed = preset_flags();
            if !allowed.contains(&flag.as_str()) {
                let what = format!("preset `{name}` of a project may not set `--{flag}`");
                let mut failure = Failure::new(Exit::Config, "preset_of_project", what);
                let near = nearest(&flag, allowed.iter().copied());
                if !near.is_empty() {
                    failure = failure.hint(format!("did you mean `--{}`?", near.join("` or `--")));
                }
                return Err(failure
                    .file(file.display())
                    .cause(format!("it may set `--{}`", allowed.join("`, `--")))
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

/// The first link below the project on the way to a path, wherever the path begins: each `..` and
/// each link outside the project is resolved as the kernel does. Parts may be missing.
fn link_below(project: &Path, path: &Path) -> Option<PathBuf> {
    let real_project = project.canonicalize().ok()?;
    let mut reached = PathBuf::new();
    for part in project.join(path).components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                reached.pop();
            }
            Component::Prefix(_) | Component::RootDir => reached.push(part),
            Component::Normal(name) => {
                let below_project = reached.strip_prefix(&real_project).map(|at| at.join(name));
                reached.push(name);
                let is_link = fs::symlink_metadata(&reached).is_ok_and(|meta| meta.is_symlink());
                if !is_link {
                    continue;
                }
                if let Ok(link) = below_project {
                    return Some(project.join(link));
                }
                // A dangling link outside the project is the user's own.
                reached = reached.canonicalize().unwrap_or(reached);
            }
        }
    }
    None
}

/// Refuses a runs folder outside the project, and one behind a link, because rgpu writes and
/// deletes there. The user may choose any in the environment or by an absolute path.
pub(super) fn check_runs_dir(
    runs_dir: &ConfigValue<PathBuf>,
    project: &Path,
    user_file: &Path,
) -> Result<()> {
    let leads_out = |path: &Path| path.components().any(|part| part == Component::ParentDir);
    let chosen_by_user = match &runs_dir.origin {
        Origin::Env(_) => true,
        Origin::User(_) => {
            let below_project = runs_dir.value.strip_prefix(project);
            below_project.map_or(true, leads_out)
        }
        Origin::Project(_) | Origin::Default => false,
    };
    let link = link_below(project, &runs_dir.value);
    if chosen_by_user {
        return Ok(());
    }
    if link.is_none() && is_below(&runs_dir.value, project) {
        hold_runs_dir(project, &runs_dir.value);
        return Ok(());
    }
    let shown = runs_dir.value.display();
    let failure = match &link {
        Some(link) => {
            let what = format!("`{}` is a symbolic link, which is not followed", link.display());
            Failure::new(Exit::Config, "runs_outside", what)
        }
        None => {
            let what = format!("the runs of a project lie inside it, and `{shown}` does not");
            Failure::new(Exit::Config, "runs_outside", what)
        }
    };
    let failure = match &runs_dir.origin {
        Origin::Project(file) => failure.file(file.display()),
        _ => failure.cause("a project may come with links that lead to your other files"),
    };
    let chosen = runs_dir.value.canonicalize().unwrap_or_else(|_| runs_dir.value.clone());
    Err(failure
        .hint(format!("to keep runs there: export RGPU_RUNS_DIR={}", shell_word(chosen.display())))
        .hint(format!("or an absolute `runs_dir` in {}", user_file.display())))
}

/// Has the runs and what lies beside them, such as `artifacts/sass`, opened without a link.
fn hold_runs_dir(project: &Path, runs_dir: &Path) {
    let Ok(inner) = runs_dir.strip_prefix(project) else { return };
    let is_plain = inner.components().all(|part| matches!(part, Component::Normal(_)));
    if let Some(first) = inner.components().next().filter(|_| is_plain) {
        beneath::hold(project, first.as_ref());
    }
}

/// Whether `path` is below `folder` after links are resolved. Parts that do not exist yet count by
/// name.
pub fn is_below(path: &Path, folder: &Path) -> bool {
    let Ok(folder) = folder.canonicalize() else { return false };
    let mut missing = Vec::new();
    let mut existing = path;
    let resolved = loop {
        match fs::symlink_metadata(existing) {
            Ok(_) => match existing.canonicalize() {
                Ok(resolved) => break resolved,
                // A dangling link.
                Err(_) => return false,
            },
            // Nothing can be created below a file. Writing there reports that.
            Err(e)
                if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
            Err(_) => return false,
        }
        // A path without a last name ends in `..` or is the root.
        let (Some(parent), Some(name)) = (existing.parent(), existing.file_name()) else {
            return false;
        };
        missing.push(name);
        existing = parent;
    };
    let full: PathBuf =
        std::iter::once(resolved.as_os_str()).chain(missing.into_iter().rev()).collect();
    full != folder && full.starts_with(&folder)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::{link_below, preset_flags};
    use rgpu_analysis::threshold::TABLE;

    #[test]
    fn a_link_below_the_project_is_found_however_the_path_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let (project, outer) = (dir.path().join("project"), dir.path().join("outer"));
        fs::create_dir_all(project.join("sub")).unwrap();
        fs::create_dir(&outer).unwrap();
        symlink(&outer, project.join("link")).unwrap();
        symlink(&project, dir.path().join("alias")).unwrap();
        symlink("nowhere", project.join("sub/dangling")).unwrap();
        let found = |path: &str| link_below(&project, path.as_ref());
        let link = Some(project.join("link"));
        for path in ["link", "link/new", "sub/../link/a", "missing/../link", "./sub/./../link"] {
            assert_eq!(found(path), link, "{path}");
        }
        for path in ["../project/link", "../alias/link/a", "../outer/../project/sub/../link"] {
            assert_eq!(found(path), link, "{path}");
            let absolute = project.join(path);
            assert_eq!(link_below(&project, &absolute), link, "{path}");
        }
        assert_eq!(found("sub/dangling/a"), Some(project.join("sub/dangling")));
        for path in ["new", "sub/../new/a", "../outer/a", "../alias", "../alias/sub/a", "../../x"] {
            assert_eq!(found(path), None, "{path}");
        }
    }

    #[test]
    fn the_schema_for_editors_has_the_flags_of_presets_and_the_thresholds() {
        let schema: serde_json::Value =
            serde_json::from_str(include_str!("../../../../schemas/rgpu-toml.json")).unwrap();
        let keys = |pointer: &str| -> Vec<String> {
            schema.pointer(pointer).unwrap().as_object().unwrap().keys().cloned().collect()
        };
        assert_eq!(keys("/properties/preset/additionalProperties/properties"), preset_flags());
        let own = ["default_remote", "runs_dir", "keep", "kernel_path", "preset", "analysis"];
        assert_eq!(keys("/properties"), own);
        let thresholds: Vec<&str> = TABLE.iter().map(|row| row.key).collect();
        assert_eq!(keys("/properties/analysis/properties"), thresholds);
    }
}
