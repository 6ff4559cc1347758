//! The steps that compile: the kernel, and its reference.

use std::collections::BTreeMap;

use rgpu_protocol::HostFacts;
use rgpu_protocol::plan::{Arg, ArtifactSpec, OnFailure, Rung, Step, Success};

use super::draft::{PlanError, SourceNames};
use super::message_rows::{NextRungs, table};
use super::python_env::PythonEnv;
use super::request::{BuildOptions, Output, path_of};
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
pub(super) fn localized(sources: &SourceTree) -> Vec<SourceNames> {
    let mut names: Vec<SourceNames> = sources
        .files
        .iter()
        .map(|(there, here)| SourceNames {
            there: format!("{SOURCES}/{there}"),
            here: here.clone(),
        })
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

/// Runs a program of NVIDIA's wheels.
pub(super) const WHEEL_TOOL: &str = "bin/wheel_tool.py";
pub(super) const WHEEL_TOOL_TEXT: &str = include_str!("../../../harness/templates/wheel_tool.py");

/// Seconds that fetching the wheels may take.
pub(super) const FETCH_TIMEOUT_S: u64 = 30 * 60;

/// Whether the kernel is compiled by nvcc out of NVIDIA's wheels: the host has no other compiler
/// for it, and the user wants them.
pub(super) fn by_wheels(wanted: &CompileRequest<'_>, facts: &HostFacts) -> bool {
    wanted.options.fetch
        && compilers(facts, &wanted.spec.entry).is_empty()
        && path_of(facts, "cc").is_some()
}

/// What to compile.
pub(super) struct CompileRequest<'a> {
    pub(super) spec: &'a KernelSpec,
    pub(super) sources: &'a SourceTree,
    pub(super) arch: &'a str,
    pub(super) options: &'a BuildOptions,
}

impl CompileRequest<'_> {
    /// The file without which the build failed.
    fn product(&self) -> String {
        let stem = stem(self.spec);
        match self.options.output {
            Output::Module => module(self.spec),
            Output::Cubin => format!("{BUILD}/{stem}.cubin"),
            Output::Ptx => format!("{BUILD}/{stem}.ptx"),
        }
    }

    /// The user's flags: kernel.toml's, then those of the command line.
    fn flags(&self) -> impl Iterator<Item = Arg> {
        let flags = self.spec.flags.iter().chain(&self.options.flags);
        flags.map(|flag| Arg::text(flag.as_str()))
    }

    /// Whether a shared library is made.
    fn library(&self) -> bool {
        self.options.output == Output::Module && self.spec.entry == Entry::Host
    }
}

/// The build step.
///
/// # Errors
/// [`PlanError::NoCompiler`] when the host has none that could.
pub(super) fn step(
    wanted: &CompileRequest<'_>,
    facts: &HostFacts,
    timeout_s: u64,
) -> Result<Step, PlanError> {
    let CompileRequest { spec, sources, arch, .. } = wanted;
    let mut rungs: Vec<Rung> = compilers(facts, &spec.entry)
        .into_iter()
        .filter_map(|compiler| match compiler {
            Compiler::Nvcc => {
                Some(nvcc_rung(wanted, "build.nvcc", vec![path_of(facts, "nvcc")?.into()]))
            }
            Compiler::Nvrtc => Some(nvrtc_rung(wanted, path_of(facts, "nvrtc")?)),
        })
        .collect();
    if by_wheels(wanted, facts) {
        let nvcc = vec![PythonEnv::python(), Arg::in_job(WHEEL_TOOL), "nvcc".into()];
        rungs.push(nvcc_rung(wanted, "build.wheels", nvcc));
    }
    if rungs.is_empty() {
        return Err(PlanError::NoCompiler {
            source_name: sources.source.clone(),
            device: matches!(spec.entry, Entry::Device(_)),
            remote: facts.remote.clone(),
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
fn nvcc_rung(wanted: &CompileRequest<'_>, id: &str, mut argv: Vec<Arg>) -> Rung {
    let CompileRequest { spec, sources, arch, options } = wanted;
    let stem = stem(spec);
    match options.output {
        _ if wanted.library() => argv.extend(["-shared", "-Xcompiler", "-fPIC"].map(Arg::from)),
        Output::Ptx => argv.push("-ptx".into()),
        Output::Module | Output::Cubin => argv.push("-cubin".into()),
    }
    argv.extend([format!("-arch={arch}").into(), "-lineinfo".into(), "--keep".into()]);
    argv.extend(["-I../include".into(), "-o".into()]);
    let product = wanted.product();
    argv.push(product.trim_start_matches("build/").into());
    argv.extend(wanted.flags());
    argv.push(format!("{SOURCES}/{}", sources.source).into());
    let ptx = artifact(format!("{BUILD}/{stem}*.ptx"), "ptx");
    let mut artifacts = match options.output {
        // The library holds the code; what --keep left beside it is easier to read.
        _ if wanted.library() => vec![
            artifact(&product, "library"),
            artifact(format!("{BUILD}/{stem}*.cubin"), "cubin"),
            ptx,
        ],
        Output::Ptx => vec![ptx],
        Output::Module | Output::Cubin => vec![artifact(&product, "cubin"), ptx],
    };
    if options.keep_ir {
        // The source as the device's compiler takes it: nvcc has no later form that can be read.
        artifacts.push(artifact(format!("{BUILD}/{stem}*.cpp1.ii"), "ir"));
    }
    rung(id, argv, BTreeMap::new(), product, artifacts)
}

/// NVRTC through the runner.
fn nvrtc_rung(wanted: &CompileRequest<'_>, library: &str) -> Rung {
    let CompileRequest { spec, sources, arch, options } = wanted;
    let (folder, _) = library.rsplit_once('/').unwrap_or((".", library));
    let ptx = format!("{BUILD}/{}.ptx", stem(spec));
    let mut argv = vec![Arg::in_job(super::RUNNER), "nvrtc".into(), "--source".into()];
    argv.push(format!("{SOURCES}/{}", sources.source).into());
    argv.extend(["--arch".into(), (*arch).into()]);
    if options.output != Output::Ptx {
        argv.extend(["--cubin".into(), Arg::in_job(wanted.product())]);
    }
    argv.extend(["--ptx".into(), Arg::in_job(&ptx)]);
    argv.extend(
        ["--library", library, "--include", "../include", "--", "-lineinfo"].map(Arg::from),
    );
    argv.extend(wanted.flags());
    // Its own second library, which it loads by name, lies beside it.
    let env = BTreeMap::from([("LD_LIBRARY_PATH".to_owned(), Arg::text(folder))]);
    let mut artifacts = vec![artifact(ptx, "ptx")];
    if options.output != Output::Ptx {
        artifacts.insert(0, artifact(wanted.product(), "cubin"));
    }
    let mut rung = rung("build.nvrtc", argv, env, wanted.product(), artifacts);
    rung.loses = "host code and some nvcc options".to_owned();
    rung
}

fn rung(
    id: &str,
    argv: Vec<Arg>,
    env: BTreeMap<String, Arg>,
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
        diagnosis: table(nvcc::ROWS, NextRungs::default()),
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
    let mut argv: Vec<Arg> = [cc, "-O2", "-shared", "-fPIC", "-I../include", "-o", "reference.so"]
        .map(Arg::from)
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
