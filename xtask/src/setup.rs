//! Prepares a fresh clone: builds `rgpu`, and on request runs it or the tests.

use crate::command::{self, CommandError};
use crate::cuda::{self, CudaError};
use crate::dist::{self, DistError};
use crate::environment::EnvironmentError;
use crate::oracle;
use crate::packages::{self, PackageError};
use crate::workspace::Workspace;
use std::panic::resume_unwind;
use std::process::{Command, ExitCode};
use std::thread;

/// The reason why set-up stopped.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SetupError {
    /// A package is missing on this machine.
    #[error(transparent)]
    Package(#[from] PackageError),
    /// NVIDIA's compiler is missing.
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// The reference for the tests could not be installed.
    #[error(transparent)]
    Oracle(#[from] EnvironmentError),
    /// The binaries for hosts could not be built.
    #[error(transparent)]
    Dist(#[from] DistError),
    /// Cargo, a test or `rgpu` failed.
    #[error(transparent)]
    Command(#[from] CommandError),
}

/// Whether to fetch CUDA's compiler if no toolkit is installed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cuda {
    Wanted,
    Unwanted,
}

/// Prepares everything that `rgpu` needs; fast if it is already there.
pub(crate) fn everything(workspace: &Workspace, cuda: Cuda) -> Result<(), SetupError> {
    build(workspace, cuda, &[])
}

/// Builds the whole workspace. `targets` are cargo's flags for further targets: the tests need them
/// in the same build, since their features would otherwise compile shared dependencies again.
fn build(workspace: &Workspace, cuda: Cuda, targets: &[&str]) -> Result<(), SetupError> {
    packages::for_build()?;
    let is_needed = cuda == Cuda::Wanted && cuda::is_needed(workspace)?;
    // The wheels come over the network while Cargo compiles.
    thread::scope(|scope| {
        let wheels = is_needed.then(|| scope.spawn(|| cuda::install(workspace)));
        let built = command::run(workspace.cargo().args(["build", "--workspace"]).args(targets));
        wheels
            .map_or(Ok(()), |wheels| wheels.join().unwrap_or_else(|panic| resume_unwind(panic)))?;
        built.map_err(SetupError::from)
    })?;
    dist::copy_debug_builds(workspace)?;
    Ok(())
}

/// Sets up and runs `rgpu` as a user would; its exit status becomes ours.
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> Result<ExitCode, SetupError> {
    everything(workspace, Cuda::Wanted)?;
    let rgpu = workspace.target.join("debug/rgpu");
    let code = match command::run(Command::new(rgpu).args(arguments)) {
        // rgpu has already printed the error.
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
        command::run(tests.args(["nextest", "run", "--workspace"]).args(arguments))?;
        // nextest does not run the examples in the documentation.
        if !arguments.iter().any(|argument| argument == "--no-run") {
            command::run(workspace.cargo().args(["test", "--workspace", "--doc", "--quiet"]))?;
        }
    } else {
        command::run(tests.args(["test", "--workspace", "--no-fail-fast"]).args(arguments))?;
    }
    Ok(())
}
