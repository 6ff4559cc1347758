//! The flags that say what a program gets besides its own words: files and variables.

use clap::{Args, ValueHint};

use super::app::App;
use super::program_files::note_left_out;
use rgpu_model::byte_size::bytes;
use rgpu_model::error::Result;
use rgpu_plan::exec::{ExecError, MAX_MOUNT_BYTES, Mount, Snapshot, snapshot};

/// What `rgpu exec` and `rgpu profile` send and fetch for a program.
#[derive(Args, Clone, Debug, Default)]
pub(in crate::cli) struct FileArgs {
    /// Send a folder or file too; the first folder becomes the working folder and contains the
    /// others
    #[arg(long, value_name = "SRC[:DEST]", value_hint = ValueHint::AnyPath)]
    pub mount: Vec<String>,

    /// Most bytes in all mounts together, e.g. 2GB [default: 268MB]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub mount_limit: Option<u64>,

    /// Fetch new and changed files that match, e.g. 'out/**'; relative to the working folder
    #[arg(long, value_name = "PATTERN")]
    pub pull: Vec<String>,

    /// Set an environment variable for the program
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    pub env: Vec<(String, String)>,
}

impl FileArgs {
    /// The first of these flags that was given.
    pub(in crate::cli) fn first_given(&self) -> Option<&'static str> {
        let flags = [
            ("--mount", !self.mount.is_empty()),
            ("--mount-limit", self.mount_limit.is_some()),
            ("--pull", !self.pull.is_empty()),
            ("--env", !self.env.is_empty()),
        ];
        flags.iter().find(|(_, is_given)| *is_given).map(|(flag, _)| *flag)
    }

    /// The files of the mounts, as they are now. Tells what of them is not sent.
    ///
    /// # Errors
    /// A mount does not exist, has no files, or they are too large together.
    pub(in crate::cli) fn mounts(&self, app: &App) -> Result<Snapshot> {
        if self.mount.is_empty() {
            return Ok(Snapshot::default());
        }
        let mut mounts = Vec::new();
        for (index, text) in self.mount.iter().enumerate() {
            let mount = Mount::parse(text, index == 0, &app.cwd)?;
            if mount.leads_out_of(&app.cwd) {
                let name = text.split(':').next().unwrap_or(text);
                let from = mount.from.display();
                app.print_note(&format!(
                    "warning: `{name}` is a link: the files of {from} are sent"
                ));
            }
            mounts.push(mount);
        }
        let contents = snapshot(&mounts, self.mount_limit.unwrap_or(MAX_MOUNT_BYTES))?;
        note_left_out(app, &contents);
        if contents.files.is_empty() {
            let (text, problem) = (self.mount.join(" "), "it has no files to send".to_owned());
            return Err(ExecError::Mount { text, problem }.into());
        }
        Ok(contents)
    }
}

fn variable(text: &str) -> std::result::Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() && !name.contains('\0') => {
            Ok((name.to_owned(), value.to_owned()))
        }
        _ => Err("write NAME=VALUE".to_owned()),
    }
}
