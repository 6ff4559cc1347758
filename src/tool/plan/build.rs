//! The steps that compile: the kernel, and its reference.

use std::collections::BTreeMap;

use rgpu_protocol::HostFacts;
use rgpu_protocol::plan::{ArtifactSpec, OnFailure, Rung, Step, Success, Word};

use super::draft::{Localized, PlanError};
use super::request::path_of;
use super::rows::{Ways, table};
use crate::kernel::{Entry, KernelSpec, SourceTree};
use crate::tool::nvcc;

/// Where sources lie in the job's folder, as seen from [`BUILD`].
const SOURCES: &str = "../src";

/// Where built files go.
pub(super) const BUILD: &str = "build";

/// The shared library of the reference.
pub(super) const REFERENCE: &str = "build/reference.so";

/// A compiler of a host that can build a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compiler {
    /// nvcc with a host compiler.
    Nvcc,
    /// NVRTC, through our runner; device entries only.
    Nvrtc,
}

/// The compilers of a host that can build `entry`, best first.
pub fn compilers(facts: &HostFacts, entry: &Entry) -> Vec<Compiler> {
    let has = |tool| path_of(facts, tool).is_some();
    let mut found = Vec::new();
    if has("nvcc") && has("cc") {
        found.push(Compiler::Nvcc);
    }
    if has("nvrtc") && matches!(entry, Entry::Device(_)) {
        found.push(Compiler::Nvrtc);
    }
    found
}

/// The file that the kernel becomes.
pub(super) fn module(spec: &KernelSpec) -> String {
    let stem = stem(spec);
    match spec.entry {
        Entry::Device(_) => format!("{BUILD}/{stem}.cubin"),
        Entry::Host => format!("{BUILD}/lib{stem}.so"),
        // Nothing is built before it runs.
        Entry::Python(_) => String::new(),
    }
}

fn stem(spec: &KernelSpec) -> String {
    spec.source
        .file_stem()
        .map_or_else(|| "kernel".to_owned(), |s| s.to_string_lossy().into_owned())
}

/// Sources as compilers name them, longest first so that no name is part of one before it.
pub(super) fn localized(sources: &SourceTree) -> Vec<Localized> {
    let mut names: Vec<Localized> = sources
        .files
        .iter()
        .map(|(there, here)| Localized { there: format!("{SOURCES}/{there}"), here: here.clone() })
        .collect();
    names.sort_by_key(|name| std::cmp::Reverse(name.there.len()));
    names
}

/// The files that building leaves, for [`super::draft::Expectations::built`].
pub(super) fn built(spec: &KernelSpec) -> Vec<String> {
    let stem = stem(spec);
    match spec.entry {
        Entry::Device(_) => vec![module(spec), format!("{BUILD}/{stem}.ptx")],
        Entry::Host => vec![module(spec)],
        Entry::Python(_) => Vec::new(),
    }
}

fn artifact(path: impl Into<String>, kind: &str) -> ArtifactSpec {
    ArtifactSpec { path: path.into(), kind: kind.to_owned() }
}

/// The build step.
///
/// # Errors
/// [`PlanError::NoCompiler`] when the host has none that could.
pub(super) fn step(
    spec: &KernelSpec,
    sources: &SourceTree,
    arch: &str,
    facts: &HostFacts,
    timeout_s: u64,
) -> Result<Step, PlanError> {
    let mut rungs: Vec<Rung> = compilers(facts, &spec.entry)
        .into_iter()
        .filter_map(|compiler| match compiler {
            Compiler::Nvcc => Some(nvcc_rung(spec, sources, arch, path_of(facts, "nvcc")?)),
            Compiler::Nvrtc => Some(nvrtc_rung(spec, sources, arch, path_of(facts, "nvrtc")?)),
        })
        .collect();
    if rungs.is_empty() {
        return Err(PlanError::NoCompiler {
            source_name: sources.source.clone(),
            device: matches!(spec.entry, Entry::Device(_)),
        });
    }
    if let Some(first) = rungs.first_mut() {
        first.loses.clear();
    }
    Ok(Step {
        id: "build".to_owned(),
        title: format!("compile {} for {arch}", spec.name),
        gpu: false,
        needs: Vec::new(),
        on_failure: OnFailure::Stop,
        timeout_s,
        stdin: Default::default(),
        rungs,
    })
}

/// `nvcc`, in the build folder so that `--keep` leaves the PTX there.
fn nvcc_rung(spec: &KernelSpec, sources: &SourceTree, arch: &str, nvcc: &str) -> Rung {
    let stem = stem(spec);
    let mut argv: Vec<Word> = vec![nvcc.into()];
    match spec.entry {
        Entry::Device(_) => argv.push("-cubin".into()),
        Entry::Host | Entry::Python(_) => {
            argv.extend(["-shared", "-Xcompiler", "-fPIC"].map(Word::from));
        }
    }
    argv.extend([format!("-arch={arch}").into(), "-lineinfo".into(), "--keep".into()]);
    argv.extend(["-I../include".into(), "-o".into()]);
    let module = module(spec);
    argv.push(module.trim_start_matches("build/").into());
    argv.extend(spec.flags.iter().map(|flag| Word::text(flag.as_str())));
    argv.push(format!("{SOURCES}/{}", sources.source).into());
    let artifacts = match spec.entry {
        Entry::Device(_) => {
            vec![artifact(&module, "cubin"), artifact(format!("{BUILD}/{stem}*.ptx"), "ptx")]
        }
        // The library holds the code; what --keep left beside it is easier to read.
        Entry::Host | Entry::Python(_) => vec![
            artifact(&module, "library"),
            artifact(format!("{BUILD}/{stem}*.cubin"), "cubin"),
            artifact(format!("{BUILD}/{stem}*.ptx"), "ptx"),
        ],
    };
    rung("build.nvcc", argv, BTreeMap::new(), module, artifacts)
}

/// NVRTC through the runner.
fn nvrtc_rung(spec: &KernelSpec, sources: &SourceTree, arch: &str, library: &str) -> Rung {
    let (folder, _) = library.rsplit_once('/').unwrap_or((".", library));
    let ptx = format!("{BUILD}/{}.ptx", stem(spec));
    let mut argv = vec![Word::in_job(super::RUNNER), "nvrtc".into(), "--source".into()];
    argv.push(format!("{SOURCES}/{}", sources.source).into());
    argv.extend(["--arch".into(), arch.into()]);
    argv.extend(["--cubin".into(), Word::in_job(module(spec))]);
    argv.extend(["--ptx".into(), Word::in_job(&ptx)]);
    argv.extend(
        ["--library", library, "--include", "../include", "--", "-lineinfo"].map(Word::from),
    );
    argv.extend(spec.flags.iter().map(|flag| Word::text(flag.as_str())));
    // Its own second library, which it loads by name, lies beside it.
    let env = BTreeMap::from([("LD_LIBRARY_PATH".to_owned(), Word::text(folder))]);
    let artifacts = vec![artifact(module(spec), "cubin"), artifact(ptx, "ptx")];
    let mut rung = rung("build.nvrtc", argv, env, module(spec), artifacts);
    rung.loses = "host code and some nvcc options".to_owned();
    rung
}

fn rung(
    id: &str,
    argv: Vec<Word>,
    env: BTreeMap<String, Word>,
    module: String,
    artifacts: Vec<ArtifactSpec>,
) -> Rung {
    Rung {
        id: id.to_owned(),
        needs: Vec::new(),
        argv,
        env,
        cwd: BUILD.to_owned(),
        success: Success { files: vec![module], ..Success::default() },
        diagnosis: table(nvcc::ROWS, Ways::default()),
        artifacts,
        loses: String::new(),
    }
}

/// The step that compiles the reference; `None` where the host has no C compiler.
pub(super) fn reference_step(
    sources: &SourceTree,
    facts: &HostFacts,
    on_failure: OnFailure,
    timeout_s: u64,
) -> Option<Step> {
    let source = sources.reference.as_ref()?;
    let cc = path_of(facts, "cc")?;
    let mut argv: Vec<Word> = [cc, "-O2", "-shared", "-fPIC", "-I../include", "-o", "reference.so"]
        .map(Word::from)
        .to_vec();
    argv.extend([format!("{SOURCES}/{source}").into(), "-lm".into()]);
    let mut rung = rung("build.cc", argv, BTreeMap::new(), REFERENCE.to_owned(), Vec::new());
    for row in &mut rung.diagnosis {
        if row.code == "does_not_compile" {
            row.code = "reference_does_not_compile".to_owned();
        }
    }
    Some(Step {
        id: "reference".to_owned(),
        title: "compile the reference".to_owned(),
        gpu: false,
        needs: Vec::new(),
        on_failure,
        timeout_s,
        stdin: Default::default(),
        rungs: vec![rung],
    })
}
