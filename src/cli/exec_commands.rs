//! The parts of `rgpu exec` that `profile` and `build` do.

use super::build::{self, BuildArgs};
use super::exec::ExecCommands;
use super::profile;

/// Functions of `profile` and `build` that `exec` calls.
pub(super) const EXEC_COMMANDS: ExecCommands = ExecCommands {
    profile: |app, args, profile_command, resumed| match resumed {
        None => profile::run_resolved(app, args, profile_command, "exec"),
        Some(run) => profile::follow(app, args, profile_command, run),
    },
    build: |app, file, remote_args, run, resumed| {
        let args = BuildArgs::of_file(file, remote_args, run);
        match resumed {
            None => build::run(app, &args),
            Some(run) => build::attach(app, &args, run),
        }
    },
};
