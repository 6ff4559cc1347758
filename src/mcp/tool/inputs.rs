//! What several tools take: where to run, files of the client, and names of kernels and runs.

use std::ffi::OsString;
use std::path::PathBuf;

use serde::Serialize;
use serde_json::Value;

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

/// Adds the given fields of a tool's arguments as flags of the same names, but for `others`. A list
/// is a flag for each of its values.
pub(super) fn flags(line: &mut CommandLine, arguments: &impl Serialize, others: &[&str]) {
    let Ok(Value::Object(fields)) = serde_json::to_value(arguments) else { return };
    for (name, value) in fields {
        if others.contains(&name.as_str()) {
            continue;
        }
        let flag = name.replace('_', "-");
        let values = match value {
            Value::Array(values) => values,
            value => vec![value],
        };
        for value in values {
            match value {
                Value::Null | Value::Bool(false) => {}
                Value::Bool(true) => line.arg(format!("--{flag}")),
                Value::String(text) => line.flag(&flag, Some(text)),
                value => line.flag(&flag, Some(value.to_string())),
            }
        }
    }
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
