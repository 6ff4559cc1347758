//! `rgpu mcp`: rgpu for agents, over the Model Context Protocol (revisions 2025-06-18 to
//! 2026-07-28).
//!
//! A tool call runs the command that a user would type, as a process of its own with `--json`. So a
//! tool can do what the command line can and no more, its results are the documents of the command
//! line, and work goes on when the client or this server ends. What takes long returns the id of
//! its run; everything about a run is read from its folder, so a new server knows it too.
//!
//! Clients show results to a language model, so each result is at most [`MAX_RESULT_BYTES`] long:
//! the most important fields, and how to get the rest. Text of programs and hosts in it is data;
//! nothing of it is asked for, executed or taken for an answer of the user.

mod answer;
mod arguments;
mod call;
mod compare_result;
mod consent;
mod files;
mod hint;
mod http;
mod limit;
mod program_output;
mod prompt;
mod resource;
mod run_result;
mod server;
mod stdio;
mod sweep_cases;
mod task;
mod tool;

use std::path::PathBuf;

pub use http::serve_http;
pub use limit::MAX_RESULT_BYTES;
pub use server::serve_stdio;
pub use tool::{TOOLS, ToolInfo, tools};

use rgpu_model::beneath::{Folder, link_of};
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_run::store::StartedRuns;
use rgpu_work::own_command::OwnProgram;

/// The skill that tells agents how to work with rgpu.
pub const SKILL: &str = include_str!("mcp/SKILL.md");

/// The folders and the program that the tools work with.
#[derive(Clone, Debug)]
pub struct McpContext {
    /// rgpu itself.
    pub program: PathBuf,
    /// The project's folder. Commands run there, and files outside of it are not read.
    pub project: PathBuf,
    /// The same, as it was when the server began. No command runs in a folder that replaced it.
    pub project_folder: Folder,
    /// The folder with the project's runs.
    pub runs: PathBuf,
    /// A folder of this user for the files that clients send.
    pub scratch: PathBuf,
    /// The runs that were started on this machine. The records of others may be forged.
    pub started: StartedRuns,
}

impl McpContext {
    /// Refuses to read where another folder has replaced the project's, or a link has replaced a
    /// folder between it and its runs: an agent could lead the server elsewhere.
    fn check_folders(&self) -> Result<()> {
        self.own_program().check_folder()?;
        let Ok(inner) = self.runs.strip_prefix(&self.project) else { return Ok(()) };
        match self.project_folder.folder(inner) {
            Err(error) if link_of(&error).is_some() => {
                let what = "the folder of the runs cannot be used";
                Err(Failure::new(Exit::Config, "linked_runs", what)
                    .file(self.runs.display())
                    .cause(error)
                    .hint("ask your user: `RGPU_RUNS_DIR` names a folder elsewhere"))
            }
            _ => Ok(()),
        }
    }

    fn own_program(&self) -> OwnProgram {
        OwnProgram {
            path: self.program.clone(),
            folder: self.project.clone(),
            agent_folder: Some(self.project_folder.clone()),
        }
    }
}
