//! `[program]` of a project's `rgpu.toml`: the program that `rgpu profile` and `rgpu exec` run where
//! none is typed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::bad_file;
use super::project::{is_below, link_below};
use rgpu_model::error::Result;

/// The keys of the table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProgramTable {
    folder: Option<PathBuf>,
    #[serde(default)]
    environment: BTreeMap<String, String>,
    command: Vec<String>,
}

/// The program of a project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectProgram {
    /// The `rgpu.toml` that describes it.
    pub file: PathBuf,
    /// The folder that is sent and becomes its working folder, inside the project.
    pub folder: Option<PathBuf>,
    /// Variables of its environment.
    pub environment: BTreeMap<String, String>,
    /// The program and its arguments; the paths of both are relative to `folder`, or else to the
    /// project.
    pub command: Vec<String>,
}

impl ProjectProgram {
    /// The folder that the words of its command are relative to.
    pub fn base(&self) -> &Path {
        let project = self.file.parent().unwrap_or(Path::new("."));
        self.folder.as_deref().unwrap_or(project)
    }
}

impl ProgramTable {
    /// Checks the table of `file`, which lies in `project`.
    ///
    /// # Errors
    /// There is no command, a variable has no usable name, or the folder lies outside of the
    /// project or behind a link, which may have come with the project.
    pub(super) fn checked(self, file: &Path, project: &Path) -> Result<ProjectProgram> {
        let bad = |problem: &str| Err(bad_file(file, problem));
        if self.command.first().is_none_or(String::is_empty) {
            return bad("`command` of `[program]` names no program");
        }
        if self.environment.keys().any(|name| name.is_empty() || name.contains(['=', '\0'])) {
            return bad("`environment` of `[program]` has a variable without a usable name");
        }
        let folder = self.folder.map(|folder| project.join(folder));
        if let Some(folder) = &folder {
            let is_project = folder.canonicalize().ok() == project.canonicalize().ok();
            if link_below(project, folder).is_some() || !(is_project || is_below(folder, project)) {
                return bad("`folder` of `[program]` leads out of the project, or through a link");
            }
        }
        Ok(ProjectProgram {
            file: file.to_owned(),
            folder,
            environment: self.environment,
            command: self.command,
        })
    }
}
