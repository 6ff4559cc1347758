//! From what was read here to the program on a host: compiled where it must be, with what the
//! host has.

use std::path::PathBuf;

use rgpu_protocol::HostFacts;
use rgpu_protocol::event::Stream;
use rgpu_protocol::plan::{GpuRequest, KnownGpu};

use super::ExecArgs;
use super::source::ExecSource;
use crate::cli::app::App;
use crate::error::{Exit, Failure, Result};
use crate::exec::{BuildTools, Package};
use crate::remote::unfit;
use crate::run::{CargoBuild, CargoCache, Reporter, RunEvent, record_output};
use crate::store::RunFolder;
use crate::tool::Program;

/// The step under which the compiler's words are kept.
const BUILD: &str = "build";

/// A program that was compiled here, or why there is none.
pub(super) type CompiledProgram = Result<PathBuf, String>;

/// Compiles the package, unless that was done before.
///
/// # Errors
/// It does not compile: the compiler's words have been passed on.
pub(super) async fn compile(
    app: &App,
    package: Option<&Package>,
    folder: &RunFolder,
    reporter: &mut dyn Reporter,
) -> Result<CompiledProgram> {
    let Some(package) = package else { return Ok(Err("it is not compiled here".to_owned())) };
    let cache = CargoCache::new(&app.cache, app.terminal.stderr_color);
    if let Some(found) = cache.find(package) {
        return Ok(Ok(found));
    }
    reporter.say(&RunEvent::Compiling { what: &package.title });
    match cache.build(package).await? {
        CargoBuild::NoCargo => Ok(Err("there is no cargo on this machine".to_owned())),
        CargoBuild::Program(program, words) => {
            tell(folder, reporter, &words)?;
            Ok(Ok(program))
        }
        CargoBuild::Refused(words) if no_toolchain(&words) => Ok(Err(
            "cargo has no Rust toolchain on this machine (`rustup default stable` brings one)"
                .to_owned(),
        )),
        CargoBuild::Refused(words) => {
            tell(folder, reporter, &words)?;
            Err(refused(package, folder, &words))
        }
    }
}

/// Whether cargo is there and the compiler is not: rustup without a toolchain, or cargo alone.
fn no_toolchain(words: &[u8]) -> bool {
    let text = String::from_utf8_lossy(words);
    [
        "rustup could not choose a version of",
        "no default is configured",
        "could not execute process `rustc",
    ]
    .iter()
    .any(|w| text.contains(w))
        || text.contains("toolchain '") && text.contains("is not installed")
}

fn tell(folder: &RunFolder, reporter: &mut dyn Reporter, words: &[u8]) -> Result<()> {
    if words.is_empty() {
        return Ok(());
    }
    Ok(record_output(&mut folder.recorder()?, reporter, (BUILD, Stream::Stderr), words)?)
}

fn refused(package: &Package, folder: &RunFolder, words: &[u8]) -> Failure {
    let text = String::from_utf8_lossy(words);
    let has = |word: &str| text.contains(word);
    let (code, what, hint) = if has("edition2024") || has("requires rustc") {
        ("old_toolchain", "needs a newer Rust than this machine's", "`rustup update` brings it")
    } else if has("could not compile") {
        ("does_not_compile", "does not compile", "the compiler's messages are above")
    } else if has("failed to parse manifest") {
        ("bad_manifest", "has a manifest that cargo does not take", "cargo's messages are above")
    } else if ["resolve host", "download", "timed out", "network", "spurious"]
        .iter()
        .any(|w| has(w))
    {
        ("offline", "needs crates that cannot be fetched", "is this machine offline?")
    } else {
        (
            "dependency",
            "asks for what cargo cannot resolve",
            "look at `[dependencies]` at its head; cargo's messages are above",
        )
    };
    let first = text.lines().find(|line| line.contains("error")).unwrap_or_default().to_owned();
    Failure::new(Exit::Kernel, code, format!("`{}` {what}", package.title))
        .cause(crate::cli::terminal::plain(&first))
        .step(BUILD)
        .log(folder.path().join(RunFolder::log_name(BUILD, Stream::Stderr)))
        .hint(hint)
}

/// The program on a host of these facts, as if it had been compiled.
///
/// # Errors
/// What the language refuses.
pub(super) fn dry(args: &ExecArgs, source: &ExecSource, facts: &HostFacts) -> Result<Program> {
    match &source.snippet {
        None => Ok(source.command(args)),
        Some(snippet) => {
            let shop = BuildTools {
                facts: Some(facts),
                built: Ok(PathBuf::from(&snippet.name)),
                mounts: &source.mounts,
                args: &args.command,
                timeout_s: timeout_s(args),
            };
            Ok(snippet.language.program(snippet, &shop)?)
        }
    }
}

/// What each step before the program may take: never less than a minute.
fn timeout_s(args: &ExecArgs) -> u64 {
    args.run.timeout.unwrap_or(super::TIMEOUT).as_secs().max(60)
}

/// The program on this host.
///
/// # Errors
/// What the language refuses, or nothing can compile.
pub(super) fn program(
    args: &ExecArgs,
    source: &ExecSource,
    facts: Option<&HostFacts>,
    built: CompiledProgram,
) -> Result<Program> {
    let timeout_s = timeout_s(args);
    let mut program = match &source.snippet {
        None => source.command(args),
        Some(snippet) => {
            // A program of ours must fit the host's system.
            let built = built.and_then(|path| match facts {
                Some(facts) => {
                    let bytes = std::fs::read(&path).map_err(|e| e.to_string())?;
                    unfit(&bytes, &facts.agent).map_or(Ok(path), Err)
                }
                None => Ok(path),
            });
            let shop =
                BuildTools { facts, built, mounts: &source.mounts, args: &args.command, timeout_s };
            snippet.language.program(snippet, &shop)?
        }
    };
    // The snippet is part of a mount, or lies beside it; what it brings itself goes first.
    let brought: Vec<String> = program.files.iter().map(|file| file.path.clone()).collect();
    let mounted = source.mounts.files.iter().filter(|file| !brought.contains(&file.path));
    program.files.extend(mounted.cloned());
    source.mounts.show_to(&mut program);
    if args.gpus == Some(0) {
        program.env.insert("CUDA_VISIBLE_DEVICES".to_owned(), "".into());
    }
    Ok(program)
}

/// The GPUs to hold.
///
/// # Errors
/// The host has fewer.
pub(super) fn gpus(args: &ExecArgs, facts: Option<&HostFacts>) -> Result<Option<GpuRequest>> {
    let wanted = match (args.gpus, &args.place.gpu) {
        (Some(0), _) | (None, None) => return Ok(None),
        (Some(n), _) => n,
        (None, Some(_)) => 1,
    };
    let known: Vec<KnownGpu> = facts
        .into_iter()
        .flat_map(|facts| &facts.gpus)
        .map(|gpu| KnownGpu { index: gpu.index, uuid: gpu.uuid.clone(), name: gpu.name.clone() })
        .collect();
    if known.len() < wanted as usize {
        return Err(Failure::new(
            Exit::Host,
            "no_such_gpu",
            format!("the host has {} GPUs, {wanted} are wanted", known.len()),
        )
        .hint("`rgpu remote check` lists them"));
    }
    let choice = args.place.gpu.as_deref().map(crate::cli::profile::gpu_choice);
    Ok(Some(GpuRequest {
        choice: choice.unwrap_or_default(),
        count: wanted,
        share: args.place.share_gpu,
        known,
        processes: facts
            .and_then(|facts| facts.tool("nvidia-smi"))
            .map(|tool| crate::tool::gpu_processes(&tool.path))
            .unwrap_or_default(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_without_a_compiler_is_told_from_a_file_that_does_not_compile() {
        // The words of rustup 1.29, and of cargo 1.95 without rustc.
        for words in [
            "error: rustup could not choose a version of cargo to run, because one wasn't specified \
             explicitly, and no default is configured.\nhelp: run 'rustup default stable' to download \
             the latest stable release of Rust and set it as your default toolchain.\n",
            "error: could not execute process `rustc -vV` (never executed)\n\nCaused by:\n  No such \
             file or directory (os error 2)\n",
        ] {
            assert!(no_toolchain(words.as_bytes()), "{words}");
        }
        assert!(!no_toolchain(
            b"error: could not compile `x` (bin \"x\") due to 1 previous error\n"
        ));
    }
}
