//! Makes the program that runs on a host from the source read here. Compiles it here if the
//! language needs that, else with the host's tools.

#![expect(clippy::disallowed_methods, reason = "the program that cargo built for the user")]

use std::path::PathBuf;

use rgpu_protocol::HostFacts;
use rgpu_protocol::event::Stream;
use rgpu_protocol::plan::{GpuRequest, KnownGpu};

use super::ExecArgs;
use super::source::ExecSource;
use crate::cli::support::app::App;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_plan::exec::{BuildTools, Package};
use rgpu_plan::tool::{GpuSelection, PlanError, Program};
use rgpu_remote::why_not_runnable;
use rgpu_run::run::{CargoBuild, CargoCache, Reporter, RunEvent, record_output};
use rgpu_run::store::RunFolder;

/// The step under which the compiler's output is recorded.
const BUILD: &str = "build";

/// A program that was compiled here, or the reason why there is none.
pub(super) type CompiledProgram = Result<PathBuf, String>;

/// Compiles the package, or returns the result of an earlier build.
///
/// # Errors
/// It does not compile. The compiler's output has been reported already.
pub(super) async fn compile(
    app: &App,
    package: Option<&Package>,
    folder: &RunFolder,
    reporter: &mut dyn Reporter,
) -> Result<CompiledProgram> {
    let Some(package) = package else { return Ok(Err("it cannot be compiled here".to_owned())) };
    let cache = CargoCache::new(&app.cache, app.terminal.stderr_color);
    if let Some(found) = cache.find(package) {
        return Ok(Ok(found));
    }
    reporter.report(&RunEvent::Compiling { what: &package.title });
    match cache.build(package).await? {
        CargoBuild::NoCargo => Ok(Err("there is no cargo on this machine".to_owned())),
        CargoBuild::Program(program, output) => {
            record_compiler_output(folder, reporter, &output)?;
            Ok(Ok(program))
        }
        CargoBuild::Refused(output) if no_toolchain(&output) => Ok(Err(
            "cargo has no Rust toolchain on this machine (`rustup default stable` installs one)"
                .to_owned(),
        )),
        CargoBuild::Refused(output) => {
            record_compiler_output(folder, reporter, &output)?;
            Err(build_failure(package, folder, &output))
        }
    }
}

/// Whether cargo has no compiler: rustup without a toolchain, or cargo alone.
fn no_toolchain(output: &[u8]) -> bool {
    let text = String::from_utf8_lossy(output);
    [
        "rustup could not choose a version of",
        "no default is configured",
        "could not execute process `rustc",
    ]
    .iter()
    .any(|w| text.contains(w))
        || text.contains("toolchain '") && text.contains("is not installed")
}

fn record_compiler_output(
    folder: &RunFolder,
    reporter: &mut dyn Reporter,
    output: &[u8],
) -> Result<()> {
    if output.is_empty() {
        return Ok(());
    }
    Ok(record_output(&mut folder.recorder()?, reporter, (BUILD, Stream::Stderr), output)?)
}

fn build_failure(package: &Package, folder: &RunFolder, output: &[u8]) -> Failure {
    let text = String::from_utf8_lossy(output);
    let has = |word: &str| text.contains(word);
    let (code, problem, hint) = if has("edition2024") || has("requires rustc") {
        ("old_toolchain", "needs a newer Rust than this machine's", "`rustup update` installs it")
    } else if has("could not compile") {
        ("does_not_compile", "does not compile", "the compiler's messages are above")
    } else if has("failed to parse manifest") {
        ("bad_manifest", "has a manifest that cargo rejects", "cargo's messages are above")
    } else if ["resolve host", "download", "timed out", "network", "spurious"]
        .iter()
        .any(|w| has(w))
    {
        ("offline", "needs crates that cannot be fetched", "is this machine offline?")
    } else {
        (
            "dependency",
            "has dependencies that cargo cannot resolve",
            "look at `[dependencies]` at its head; cargo's messages are above",
        )
    };
    let first = text.lines().find(|line| line.contains("error")).unwrap_or_default().to_owned();
    Failure::new(Exit::Kernel, code, format!("`{}` {problem}", package.title))
        .cause(crate::cli::support::terminal::plain(&first))
        .step(BUILD)
        .log(folder.path().join(RunFolder::log_name(BUILD, Stream::Stderr)))
        .hint(hint)
}

/// The program on a host with these facts, as if it had been compiled.
pub(super) fn dry(
    args: &ExecArgs,
    source: &ExecSource,
    facts: &HostFacts,
    may_fetch_nvcc: bool,
) -> Result<Program> {
    match &source.snippet {
        None => Ok(source.command(args)),
        Some(snippet) => {
            let tools = BuildTools {
                facts: Some(facts),
                built: Ok(PathBuf::from(&snippet.name)),
                mounts: &source.mounts,
                args: &args.command,
                timeout_s: timeout_s(args),
                may_fetch_nvcc,
            };
            Ok(snippet.language.program(snippet, &tools)?)
        }
    }
}

/// The time limit of each step before the program, in seconds: at least a minute.
fn timeout_s(args: &ExecArgs) -> u64 {
    args.run.timeout.unwrap_or(super::DEFAULT_TIMEOUT).as_secs().max(60)
}

/// The program for this host.
pub(super) fn program(
    args: &ExecArgs,
    source: &ExecSource,
    facts: Option<&HostFacts>,
    built: CompiledProgram,
    may_fetch_nvcc: bool,
) -> Result<Program> {
    let timeout_s = timeout_s(args);
    let mut program = match &source.snippet {
        None => source.command(args),
        Some(snippet) => {
            // A program compiled here must fit the host's system.
            let built = built.and_then(|path| match facts {
                Some(facts) => {
                    let bytes = std::fs::read(&path).map_err(|e| e.to_string())?;
                    why_not_runnable(&bytes, &facts.agent).map_or(Ok(path), Err)
                }
                None => Ok(path),
            });
            let tools = BuildTools {
                facts,
                built,
                mounts: &source.mounts,
                args: &args.command,
                timeout_s,
                may_fetch_nvcc,
            };
            snippet.language.program(snippet, &tools)?
        }
    };
    // The snippet may also be part of a mount; the program's own files take precedence.
    let own_paths: Vec<String> = program.files.iter().map(|file| file.path.clone()).collect();
    let mounted = source.mounts.files.iter().filter(|file| !own_paths.contains(&file.path));
    program.files.extend(mounted.cloned());
    source.mounts.show_to(&mut program);
    if args.gpus == Some(GpuSelection::Number(0)) {
        program.env.insert("CUDA_VISIBLE_DEVICES".to_owned(), "".into());
    }
    Ok(program)
}

/// The GPUs to reserve. `None` without `--gpus` and `--gpu`.
pub(super) fn gpus(args: &ExecArgs, facts: Option<&HostFacts>) -> Result<Option<GpuRequest>> {
    let requested = match (&args.gpus, &args.place.gpu) {
        (Some(GpuSelection::Number(0)), _) | (None, None) => return Ok(None),
        (Some(requested), _) => requested.clone(),
        (None, Some(_)) => GpuSelection::default(),
    };
    let known: Vec<KnownGpu> = facts
        .into_iter()
        .flat_map(|facts| &facts.gpus)
        .map(|gpu| KnownGpu { index: gpu.index, uuid: gpu.uuid.clone(), name: gpu.name.clone() })
        .collect();
    let choice = args.place.gpu.as_deref().map(crate::cli::support::profile_request::gpu_choice);
    let choice = choice.unwrap_or_default();
    let (known, count) = requested.on_host(known, &choice).map_err(PlanError::from)?;
    Ok(Some(GpuRequest {
        choice,
        count,
        share: args.place.share_gpu,
        known,
        processes: facts
            .and_then(|facts| facts.tool("nvidia-smi"))
            .map(|tool| rgpu_plan::tool::gpu_processes(&tool.path))
            .unwrap_or_default(),
        setting: None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_without_a_compiler_is_told_from_a_file_that_does_not_compile() {
        // Messages of rustup 1.29, and of cargo 1.95 without rustc.
        for output in [
            "error: rustup could not choose a version of cargo to run, because one wasn't specified \
             explicitly, and no default is configured.\nhelp: run 'rustup default stable' to download \
             the latest stable release of Rust and set it as your default toolchain.\n",
            "error: could not execute process `rustc -vV` (never executed)\n\nCaused by:\n  No such \
             file or directory (os error 2)\n",
        ] {
            assert!(no_toolchain(output.as_bytes()), "{output}");
        }
        assert!(!no_toolchain(
            b"error: could not compile `x` (bin \"x\") due to 1 previous error\n"
        ));
    }
}
