//! From a fresh clone to a working `rgpu`, and on to the tests.

use crate::command::{self, CommandError};
use crate::cuda::{self, CudaError};
use crate::dist::{self, DistError};
use crate::environment::EnvironmentError;
use crate::oracle;
use crate::packages::{self, PackageError};
use crate::workspace::Workspace;
use std::process::{Command, ExitCode};

/// Set-up stopped.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SetupError {
    /// Something is missing on this machine.
    #[error(transparent)]
    Package(#[from] PackageError),
    /// NVIDIA's compiler is missing.
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// What tests compare with could not be brought.
    #[error(transparent)]
    Oracle(#[from] EnvironmentError),
    /// What travels to hosts could not be built.
    #[error(transparent)]
    Dist(#[from] DistError),
    /// Cargo, a test or `rgpu` failed.
    #[error(transparent)]
    Command(#[from] CommandError),
}

/// Whether CUDA's compiler is fetched where no toolkit is installed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cuda {
    Wanted,
    Unwanted,
}

/// Makes everything that `rgpu` needs; quick when it is there.
pub(crate) fn everything(workspace: &Workspace, cuda: Cuda) -> Result<(), SetupError> {
    build(workspace, cuda, &[])
}

/// Builds the whole workspace. `targets` are cargo's flags for further targets: the tests need them
/// in the same build, since their features would otherwise compile shared dependencies again.
fn build(workspace: &Workspace, cuda: Cuda, targets: &[&str]) -> Result<(), SetupError> {
    packages::for_build()?;
    if cuda == Cuda::Wanted {
        cuda::provide(workspace)?;
    }
    command::run(workspace.cargo().args(["build", "--workspace"]).args(targets))?;
    dist::copy_debug_builds(workspace)?;
    Ok(())
}

/// Sets up and runs `rgpu` as a user would; its exit status is ours.
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> Result<ExitCode, SetupError> {
    everything(workspace, Cuda::Wanted)?;
    let rgpu = workspace.target.join("debug/rgpu");
    let code = match command::run(Command::new(rgpu).args(arguments)) {
        // What went wrong was said by rgpu itself.
        Err(CommandError::Failed { status, .. }) => status.code().unwrap_or(1),
        other => other.map(|()| 0)?,
    };
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

/// Sets up and runs all tests of all crates.
pub(crate) fn test(workspace: &Workspace, arguments: &[String]) -> Result<(), SetupError> {
    packages::for_tests()?;
    oracle::provide(workspace)?;
    build(workspace, Cuda::Wanted, &["--lib", "--bins", "--tests", "--examples"])?;
    let mut tests = workspace.cargo();
    if command::answers("cargo-nextest", "--version") {
        command::run(
            tests.args(["nextest", "run", "--workspace", "--no-fail-fast"]).args(arguments),
        )?;
        // nextest leaves the examples in the documentation out.
        command::run(workspace.cargo().args(["test", "--workspace", "--doc", "--quiet"]))?;
    } else {
        command::run(tests.args(["test", "--workspace", "--no-fail-fast"]).args(arguments))?;
    }
    Ok(())
}
