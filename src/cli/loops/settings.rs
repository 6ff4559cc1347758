//! Completes a loop's settings and checks them against the kernel, the project and the user's
//! remotes, before anything is measured.

use std::path::{Path, PathBuf};

use crate::cli::support::app::App;
use crate::cli::support::kernel_folders::kernel_folders;
use crate::cli::support::session;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_plan::kernel::{CaseSelection, KernelError, KernelSpec, MODES, ProfileMode, find};
use rgpu_work::loops::{ConfigOrigin, LoopConfig, LoopMode};

/// Makes `kernel_path` relative to the project folder, lets the loop's worker change the kernel's
/// source if loop.toml names no files, and refuses settings that are wrong for this kernel and
/// project.
pub(super) fn resolve(app: &App, config: &mut LoopConfig, origin: &ConfigOrigin) -> Result<()> {
    let project = canonical(&app.config.project);
    let path = &config.kernel_path;
    let is_name = path.components().count() == 1 && !project.join(path).exists();
    let given = if is_name { path.to_owned() } else { project.join(path) };
    let found = find::find(&given.to_string_lossy(), &kernel_folders(app));
    let spec = found.map_err(Failure::from)?.spec;
    let inside = |path: &Path| {
        let real = canonical(path);
        real.strip_prefix(&project).map(Path::to_owned).map_err(|_| {
            Failure::new(
                Exit::Config,
                "outside_project",
                format!("`{}` is not in the project `{}`", path.display(), project.display()),
            )
            .hint("a loop changes files of its project only: copy the kernel into it")
        })
    };
    config.kernel_path = match &spec.file {
        Some(file) => inside(file.parent().unwrap_or(file))?,
        None => inside(&spec.source)?,
    };
    check_kernel(config, origin, &spec)?;
    config.check_against_project(&project, origin)?;
    if config.mode != LoopMode::DryRun {
        check_remote(app, config, origin)?;
    }
    if config.allowed_paths.is_empty() {
        // With the slash the pattern is this one file, and not every file of that name.
        config.allowed_paths = vec![format!("/{}", inside(&spec.source)?.to_string_lossy())];
    }
    Ok(())
}

/// Refuses a remote that does not exist. A loop.toml may come with a project, so it names one of
/// the user's settings, or `local`; the command line may name any.
fn check_remote(app: &App, config: &LoopConfig, origin: &ConfigOrigin) -> Result<()> {
    let named = config.remote.as_deref();
    let Some(name) = named.filter(|_| !origin.is_typed("remote")) else {
        return session::spec(app, named).map(drop);
    };
    let found = app.config.remote_of_project(name, origin.file(), session::ssh_alias);
    found.map(drop).map_err(|mut failure| {
        for hint in &mut failure.hints {
            *hint = hint.replace("`--remote NAME`", "`remote=NAME`");
        }
        failure
    })
}

/// Checks what depends on the kernel.
fn check_kernel(config: &LoopConfig, origin: &ConfigOrigin, spec: &KernelSpec) -> Result<()> {
    let mode = config.profile_mode.as_str();
    if mode != "none" && ProfileMode::named(mode).is_none() {
        let names: Vec<&str> = MODES.iter().map(|info| info.name).chain(["none"]).collect();
        let why = format!("`{mode}` is not a mode; there are `{}`", names.join("`, `"));
        return Err(origin.error("profile_mode", why).into());
    }
    if config.problem_sizes.is_empty() {
        return Ok(());
    }
    let sizes = spec.cases(&CaseSelection::Given(config.problem_sizes.clone()));
    sizes.map(drop).map_err(|error| match error {
        KernelError::Sizes { given, problem, hint } => {
            let why = format!("`{given}`: {problem}; {hint}");
            origin.error("problem_sizes", why).into()
        }
        error => error.into(),
    })
}

fn canonical(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}
