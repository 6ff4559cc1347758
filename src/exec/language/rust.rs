//! Rust: one file, with its dependencies at its head where it has any, compiled on this machine and
//! sent as a program; compiled on the host where this machine's glibc is too new for it.

use std::collections::BTreeMap;

use rgpu_protocol::plan::{Arg, OnFailure, Rung, Step, Success};

use super::super::{ExecError, Package, Snippet, WORK_FOLDER};
use super::{BuildTools, Language, has_line, interpreter};
use crate::tool::{BundleFile, Program, compile_once, compiler_rows};

/// Where the program lies in the job's folder.
const BUILT: &str = "build/program";

/// Rust.
pub(super) struct Rust;

impl Language for Rust {
    fn name(&self) -> &'static str {
        "Rust"
    }

    fn words(&self) -> &'static [&'static str] {
        &["rs", "rust"]
    }

    fn fits(&self, text: &str) -> bool {
        match interpreter(text) {
            Some(name) => matches!(name, "cargo" | "rust-script"),
            None => has_line(text, &["fn main()", "use std::", "use rgpu_prelude", "---"]),
        }
    }

    fn asks(&self) -> bool {
        true
    }

    fn package(&self, snippet: &Snippet) -> Result<Option<Package>, ExecError> {
        Package::new(snippet).map(Some)
    }

    fn program(&self, snippet: &Snippet, shop: &BuildTools<'_>) -> Result<Program, ExecError> {
        let mut argv = vec![Arg::in_job(BUILT)];
        argv.extend(shop.args.iter().cloned().map(Arg::from));
        let mut program = Program {
            name: snippet.name.clone(),
            argv,
            cwd: WORK_FOLDER.to_owned(),
            env: libraries(shop),
            ..Program::default()
        };
        match &shop.built {
            Ok(built) => program.files.push(BundleFile::copy(BUILT, built).executable()),
            Err(why) => on_host(snippet, shop, why, &mut program)?,
        }
        Ok(program)
    }
}

/// cudarc opens NVRTC by its name alone: the folder where the host's lies.
fn libraries(shop: &BuildTools<'_>) -> BTreeMap<String, Arg> {
    let nvrtc = shop.facts.and_then(|facts| facts.tool("nvrtc"));
    let folder = nvrtc.and_then(|tool| tool.path.rsplit_once('/')).map(|(folder, _)| folder);
    folder.map(|f| ("LD_LIBRARY_PATH".to_owned(), Arg::text(f))).into_iter().collect()
}

/// Nothing compiles it here or there.
fn no_compiler(snippet: &Snippet, shop: &BuildTools<'_>, why: &str) -> ExecError {
    let name = &snippet.name;
    if shop.facts.is_some_and(|facts| facts.transport == "local") {
        return ExecError::NoCompiler {
            problem: format!("`{name}` cannot be compiled: {why}"),
            hint: "install Rust: https://rustup.rs".to_owned(),
        };
    }
    ExecError::NoCompiler {
        problem: format!("`{name}` cannot be compiled: {why}, and the host has no cargo"),
        hint: "install Rust here or there: https://rustup.rs; here it must be on a system as old as the host's"
            .to_owned(),
    }
}

/// The steps that compile it there.
fn on_host(
    snippet: &Snippet,
    shop: &BuildTools<'_>,
    why: &str,
    program: &mut Program,
) -> Result<(), ExecError> {
    let cargo = shop.facts.and_then(|f| f.tool("cargo")).filter(|cargo| cargo.problems.is_empty());
    let cargo = cargo.ok_or_else(|| no_compiler(snippet, shop, why))?;
    let package = Package::new(snippet)?;
    let files = package.files.iter().chain([&package.lock]).filter(|f| !f.text.is_empty());
    program
        .files
        .extend(files.map(|f| BundleFile::text(format!("rust/{}", f.path), f.text.clone())));
    let manifest = format!("rust/{}/Cargo.toml", package.name);
    let made = format!("$RGPU_JOB_FOLDER/../../../rust-target/debug/{}", package.name);
    // The target folder is the host's own, so that dependencies are compiled once there.
    let script = format!(
        "CARGO_TARGET_DIR=\"$RGPU_JOB_FOLDER/../../../rust-target\" \"$1\" build --quiet --manifest-path \"$2\" && cp \"{made}\" \"$3\""
    );
    let mut argv: Vec<Arg> = vec!["sh".into(), "-c".into(), script.into(), "sh".into()];
    argv.extend([cargo.path.as_str().into(), Arg::in_job(manifest), Arg::in_job(BUILT)]);
    let (argv, helper) = compile_once(argv, BUILT, Some(&[package.key.as_bytes()]));
    program.files.extend(helper);
    program.prepare.push(Step {
        id: "build".to_owned(),
        title: format!("compile {} on the host", snippet.name),
        gpu: false,
        needs: Vec::new(),
        on_failure: OnFailure::Stop,
        timeout_s: shop.timeout_s,
        stdin: Default::default(),
        rungs: vec![Rung {
            id: "build.cargo".to_owned(),
            needs: Vec::new(),
            argv,
            env: BTreeMap::new(),
            cwd: String::new(),
            success: Success { files: vec![BUILT.to_owned()], ..Success::default() },
            diagnosis: compiler_rows(),
            artifacts: Vec::new(),
            loses: String::new(),
        }],
    });
    Ok(())
}
