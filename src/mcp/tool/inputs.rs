//! What several tools take: where to run, files of the client, and names of kernels and runs.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::mcp::McpContext;
use crate::mcp::arguments::{argument_error, check_inside_project};
use crate::mcp::files::{InlineFile, SentFiles};
use rgpu_model::error::Result;
use rgpu_work::own_command::{CommandLine, check_argument};

/// Adds `--remote`. One remote a call, so that a call is one run.
pub(super) fn remote(line: &mut CommandLine, remote: Option<&str>) -> Result<()> {
    if let Some(remote) = remote {
        check_argument("remote", remote)?;
        if remote.contains(',') {
            return Err(argument_error("`remote`: one remote a call")
                .hint("call once for each, and compare"));
        }
        line.flag("remote", Some(remote));
    }
    Ok(())
}

/// The files of a call, written, and where each name leads: to one of them, else into the project.
pub(super) struct InputFiles {
    pub(super) files: Option<SentFiles>,
}

impl InputFiles {
    /// Writes the files.
    pub(super) fn new(context: &McpContext, files: &[InlineFile]) -> Result<Self> {
        Ok(Self { files: SentFiles::write(context, files)? })
    }

    /// The word for a kernel or file.
    pub(super) fn word(&self, context: &McpContext, name: &str, text: &str) -> Result<OsString> {
        if let Some(path) = self.sent(text) {
            return Ok(path.into());
        }
        check_inside_project(context, name, text)?;
        Ok(text.into())
    }

    /// The path of a sent file.
    pub(super) fn sent(&self, text: &str) -> Option<PathBuf> {
        self.files.as_ref().and_then(|files| files.find(text))
    }
}
