//! Rust: one file, with its dependencies in an embedded manifest if it has any. It is compiled on
//! this machine and sent as a program, or compiled on the host if this machine's glibc is too new
//! for it.

use std::collections::BTreeMap;

use rgpu_protocol::plan::{Arg, OnFailure, Rung, Step, Success};

use super::super::{ExecError, Package, Snippet, WORK_FOLDER};
use super::{BuildTools, Language, has_line, interpreter};
use crate::tool::{BundleFile, Program, compile_once, compiler_rows};
use rgpu_model::RungId;
use rgpu_model::agent_files;

/// Path of the program in the job's folder.
const PROGRAM_PATH: &str = "build/program";

pub(super) struct Rust;

impl Language for Rust {
    fn name(&self) -> &'static str {
        "Rust"
    }

    fn names(&self) -> &'static [&'static str] {
        &["rs", "rust"]
    }

    fn fits(&self, text: &str) -> bool {
        match interpreter(text) {
            Some(name) => matches!(name, "cargo" | "rust-script"),
            None => has_line(text, &["fn main()", "use std::", "use rgpu_prelude", "---"]),
        }
    }

    fn needs_facts(&self) -> bool {
        true
    }

    fn package(&self, snippet: &Snippet) -> Result<Option<Package>, ExecError> {
        Package::new(snippet).map(Some)
    }

    fn program(&self, snippet: &Snippet, tools: &BuildTools<'_>) -> Result<Program, ExecError> {
        let mut argv = vec![Arg::in_job(PROGRAM_PATH)];
        argv.extend(tools.args.iter().cloned().map(Arg::from));
        let mut program = Program {
            name: snippet.name.clone(),
            argv,
            cwd: WORK_FOLDER.to_owned(),
            env: library_path_env(tools),
            ..Program::default()
        };
        match &tools.built {
            Ok(built) => {
                agent_files::trust(built);
                program.files.push(BundleFile::copy(PROGRAM_PATH, built).executable());
            }
            Err(why) => add_host_build(snippet, tools, why, &mut program)?,
        }
        Ok(program)
    }
}

/// cudarc opens NVRTC by its name alone, so this adds the folder of the host's NVRTC.
fn library_path_env(tools: &BuildTools<'_>) -> BTreeMap<String, Arg> {
    let nvrtc = tools.facts.and_then(|facts| facts.tool("nvrtc"));
    let folder = nvrtc.and_then(|tool| tool.path.rsplit_once('/')).map(|(folder, _)| folder);
    folder.map(|f| ("LD_LIBRARY_PATH".to_owned(), Arg::text(f))).into_iter().collect()
}

/// The error if neither this machine nor the host can compile the file.
fn no_compiler(snippet: &Snippet, tools: &BuildTools<'_>, why: &str) -> ExecError {
    let name = &snippet.name;
    if tools.facts.is_some_and(|facts| facts.transport == "local") {
        return ExecError::NoCompiler {
            problem: format!("`{name}` cannot be compiled: {why}"),
            hint: "install Rust: https://rustup.rs".to_owned(),
        };
    }
    ExecError::NoCompiler {
        problem: format!("`{name}` cannot be compiled: {why}, and the host has no cargo"),
        hint: "install Rust on this machine or on the host: https://rustup.rs; this machine's system must be as old as the host's"
            .to_owned(),
    }
}

/// Adds the steps that compile the file on the host.
fn add_host_build(
    snippet: &Snippet,
    tools: &BuildTools<'_>,
    why: &str,
    program: &mut Program,
) -> Result<(), ExecError> {
    let cargo = tools.facts.and_then(|f| f.tool("cargo")).filter(|cargo| cargo.problems.is_empty());
    let cargo = cargo.ok_or_else(|| no_compiler(snippet, tools, why))?;
    let package = Package::new(snippet)?;
    let files = package.files.iter().chain([&package.lock]).filter(|f| !f.text.is_empty());
    program
        .files
        .extend(files.map(|f| BundleFile::text(format!("rust/{}", f.path), f.text.clone())));
    let manifest = format!("rust/{}/Cargo.toml", package.name);
    let binary = format!("$RGPU_JOB_FOLDER/../../../rust-target/debug/{}", package.name);
    // All jobs of the host share the target folder, so that dependencies are compiled once there.
    let script = format!(
        "CARGO_TARGET_DIR=\"$RGPU_JOB_FOLDER/../../../rust-target\" \"$1\" build --quiet --manifest-path \"$2\" && cp \"{binary}\" \"$3\""
    );
    let mut argv: Vec<Arg> = vec!["sh".into(), "-c".into(), script.into(), "sh".into()];
    argv.extend([cargo.path.as_str().into(), Arg::in_job(manifest), Arg::in_job(PROGRAM_PATH)]);
    let (argv, helper) = compile_once(argv, PROGRAM_PATH, Some(&[package.key.as_bytes()]));
    program.files.extend(helper);
    program.prepare.push(Step {
        id: "build".to_owned(),
        title: format!("compile {} on the host", snippet.name),
        gpu: false,
        needs: Vec::new(),
        on_failure: OnFailure::Stop,
        timeout_s: tools.timeout_s,
        max_output_bytes: Some(Step::MAX_HELPER_OUTPUT_BYTES),
        stdin: Default::default(),
        rungs: vec![Rung {
            id: RungId::BuildCargo.to_string(),
            needs: Vec::new(),
            argv,
            env: BTreeMap::new(),
            cwd: String::new(),
            success: Success { files: vec![PROGRAM_PATH.to_owned()], ..Success::default() },
            diagnosis: compiler_rows(),
            artifacts: Vec::new(),
            loses: String::new(),
            stop: None,
            hang: None,
        }],
    });
    Ok(())
}
