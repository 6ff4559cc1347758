//! The steps that compile the kernel and its reference.

use std::collections::BTreeMap;

use rgpu_protocol::HostFacts;
use rgpu_protocol::plan::{Arg, ArtifactSpec, OnFailure, Rung, Step, Success};

use super::draft::{PlanError, SourceNames};
use super::message_rows::{NextRungs, table};
use super::request::{BuildOptions, BuildProduct, path_of};
use super::wheels::WheelNvcc;
use crate::kernel::{EntryPoint, KernelSpec, SourceTree};
use crate::tool::nvcc;
use rgpu_model::RungId;
use rgpu_model::profile::ArtifactKind;

/// Folder of the sources in the job's folder, relative to [`BUILD`].
const SOURCES: &str = "../src";

/// Folder of the built files.
pub(super) const BUILD: &str = "build";

/// The shared library of the reference.
pub(super) const REFERENCE: &str = "build/reference.so";

/// A compiler that can build a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compiler {
    /// nvcc with a host compiler.
    Nvcc,
    /// NVRTC, through our runner; device entries only.
    Nvrtc,
}

/// The compilers of a host that can build `entry`, best first.
pub fn compilers(facts: &HostFacts, entry: &EntryPoint) -> Vec<Compiler> {
    let has = |tool| path_of(facts, tool).is_some();
    let mut found = Vec::new();
    if has("nvcc") && has("c++") {
        found.push(Compiler::Nvcc);
    }
    if has("nvrtc") && matches!(entry, EntryPoint::Device(_)) {
        found.push(Compiler::Nvrtc);
    }
    found
}

/// Path of the compiled kernel in the job's folder; empty for Python.
pub(super) fn module(spec: &KernelSpec) -> String {
    let stem = stem(spec);
    match spec.entry {
        EntryPoint::Device(_) if spec.is_compiled() => {
            let name = spec.source.file_name().unwrap_or_default().to_string_lossy();
            format!("src/{name}")
        }
        EntryPoint::Device(_) => format!("{BUILD}/{stem}.cubin"),
        EntryPoint::Host => format!("{BUILD}/lib{stem}.so"),
        // Python compiles the kernel when it runs.
        EntryPoint::Python(_) => String::new(),
    }
}

fn stem(spec: &KernelSpec) -> String {
    spec.source
        .file_stem()
        .map_or_else(|| "kernel".to_owned(), |s| s.to_string_lossy().into_owned())
}

/// Names of the sources on the host, longest first, so that replacing a name cannot hit a longer
/// one.
pub(super) fn source_names(sources: &SourceTree) -> Vec<SourceNames> {
    let mut names: Vec<SourceNames> = sources
        .files
        .iter()
        .map(|(there, here)| SourceNames {
            host_name: format!("{SOURCES}/{there}"),
            local_path: here.clone(),
        })
        .collect();
    names.sort_by_key(|name| std::cmp::Reverse(name.host_name.len()));
    names
}

/// The files that the build step leaves, for [`super::draft::DraftInfo::built`].
pub(super) fn built_files(spec: &KernelSpec) -> Vec<String> {
    let stem = stem(spec);
    match spec.entry {
        EntryPoint::Device(_) if spec.is_compiled() => Vec::new(),
        EntryPoint::Device(_) => vec![module(spec), format!("{BUILD}/{stem}.ptx")],
        EntryPoint::Host => vec![module(spec)],
        EntryPoint::Python(_) => Vec::new(),
    }
}

fn artifact(path: impl Into<String>, kind: ArtifactKind) -> ArtifactSpec {
    ArtifactSpec { path: path.into(), kind: kind.into() }
}

/// Whether to compile with nvcc from NVIDIA's wheels: the host has no other compiler for the
/// kernel, and the user allows fetching them.
pub(super) fn by_wheels(request: &CompileRequest<'_>, facts: &HostFacts) -> bool {
    request.options.fetch
        && compilers(facts, &request.spec.entry).is_empty()
        && lacks_for_wheels(facts).is_empty()
}

/// The tools that a host lacks to compile with nvcc from NVIDIA's wheels.
pub fn lacks_for_wheels(facts: &HostFacts) -> Vec<&'static str> {
    let lacks = |tool: &str| path_of(facts, tool).is_none();
    [("c++", "a C++ compiler (g++)"), ("python3", "python3 with venv")]
        .into_iter()
        .filter(|(tool, _)| lacks(tool))
        .map(|(_, name)| name)
        .collect()
}

/// The input of a build step.
pub(super) struct CompileRequest<'a> {
    pub(super) spec: &'a KernelSpec,
    pub(super) sources: &'a SourceTree,
    pub(super) arch: &'a str,
    pub(super) options: &'a BuildOptions,
}

impl CompileRequest<'_> {
    /// The file that the build must produce.
    fn product(&self) -> String {
        let stem = stem(self.spec);
        match self.options.output {
            BuildProduct::Module => module(self.spec),
            BuildProduct::Cubin => format!("{BUILD}/{stem}.cubin"),
            BuildProduct::Ptx => format!("{BUILD}/{stem}.ptx"),
        }
    }

    /// Flags from kernel.toml, then those from the command line.
    fn flags(&self) -> impl Iterator<Item = Arg> {
        let flags = self.spec.flags.iter().chain(&self.options.flags);
        flags.map(|flag| Arg::text(flag.as_str()))
    }

    /// Whether the product is a shared library.
    fn is_library(&self) -> bool {
        self.options.output == BuildProduct::Module && self.spec.entry == EntryPoint::Host
    }
}

/// The build step.
pub(super) fn step(
    request: &CompileRequest<'_>,
    facts: &HostFacts,
    timeout_s: u64,
) -> Result<Step, PlanError> {
    let CompileRequest { spec, sources, arch, .. } = request;
    let mut rungs: Vec<Rung> = compilers(facts, &spec.entry)
        .into_iter()
        .filter_map(|compiler| match compiler {
            Compiler::Nvcc => {
                Some(nvcc_rung(request, &RungId::BuildNvcc, vec![path_of(facts, "nvcc")?.into()]))
            }
            Compiler::Nvrtc => Some(nvrtc_rung(request, path_of(facts, "nvrtc")?)),
        })
        .collect();
    if by_wheels(request, facts) {
        rungs.push(nvcc_rung(request, &RungId::BuildWheels, WheelNvcc::new().argv));
    }
    if rungs.is_empty() {
        return Err(PlanError::NoCompiler {
            source_name: sources.source.clone(),
            device: matches!(spec.entry, EntryPoint::Device(_)),
            remote: facts.remote.clone(),
            lacks: lacks_for_wheels(facts).join(" and "),
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
        max_output_bytes: Some(Step::MAX_HELPER_OUTPUT_BYTES),
        stdin: Default::default(),
        rungs,
    })
}

/// Runs `nvcc` in the build folder, so that `--keep` leaves the PTX there.
fn nvcc_rung(request: &CompileRequest<'_>, id: &RungId, mut argv: Vec<Arg>) -> Rung {
    let CompileRequest { spec, sources, arch, options } = request;
    let stem = stem(spec);
    match options.output {
        _ if request.is_library() => argv.extend(["-shared", "-Xcompiler", "-fPIC"].map(Arg::from)),
        BuildProduct::Ptx => argv.push("-ptx".into()),
        BuildProduct::Module | BuildProduct::Cubin => argv.push("-cubin".into()),
    }
    argv.extend([format!("-arch={arch}").into(), "-lineinfo".into(), "--keep".into()]);
    argv.extend(["-I../include".into(), "-o".into()]);
    let product = request.product();
    argv.push(product.trim_start_matches("build/").into());
    argv.extend(request.flags());
    argv.push(format!("{SOURCES}/{}", sources.compiled()).into());
    let ptx = artifact(format!("{BUILD}/{stem}*.ptx"), ArtifactKind::Ptx);
    let mut artifacts = match options.output {
        // The library contains the code; the cubin that --keep leaves beside it is easier to read.
        _ if request.is_library() => vec![
            artifact(&product, ArtifactKind::Library),
            artifact(format!("{BUILD}/{stem}*.cubin"), ArtifactKind::Cubin),
            ptx,
        ],
        BuildProduct::Ptx => vec![ptx],
        BuildProduct::Module | BuildProduct::Cubin => {
            vec![artifact(&product, ArtifactKind::Cubin), ptx]
        }
    };
    if options.keep_ir {
        // The preprocessed source for the device compiler: nvcc leaves no later readable form.
        artifacts.push(artifact(format!("{BUILD}/{stem}*.cpp1.ii"), ArtifactKind::Ir));
    }
    rung(id, argv, BTreeMap::new(), product, artifacts)
}

/// Runs NVRTC through the runner.
fn nvrtc_rung(request: &CompileRequest<'_>, library: &str) -> Rung {
    let CompileRequest { spec, sources, arch, options } = request;
    let (folder, _) = library.rsplit_once('/').unwrap_or((".", library));
    let ptx = format!("{BUILD}/{}.ptx", stem(spec));
    let mut argv = vec![Arg::in_job(super::RUNNER), "nvrtc".into(), "--source".into()];
    argv.push(format!("{SOURCES}/{}", sources.compiled()).into());
    argv.extend(["--arch".into(), (*arch).into()]);
    if options.output != BuildProduct::Ptx {
        argv.extend(["--cubin".into(), Arg::in_job(request.product())]);
    }
    argv.extend(["--ptx".into(), Arg::in_job(&ptx)]);
    argv.extend(
        ["--library", library, "--include", "../include", "--", "-lineinfo"].map(Arg::from),
    );
    argv.extend(request.flags());
    // NVRTC loads its second library by name; it lies in the same folder.
    let env = BTreeMap::from([("LD_LIBRARY_PATH".to_owned(), Arg::text(folder))]);
    let mut artifacts = vec![artifact(ptx, ArtifactKind::Ptx)];
    if options.output != BuildProduct::Ptx {
        artifacts.insert(0, artifact(request.product(), ArtifactKind::Cubin));
    }
    let mut rung = rung(&RungId::BuildNvrtc, argv, env, request.product(), artifacts);
    rung.loses = "host code and some nvcc options".to_owned();
    rung
}

fn rung(
    id: &RungId,
    argv: Vec<Arg>,
    env: BTreeMap<String, Arg>,
    module: String,
    artifacts: Vec<ArtifactSpec>,
) -> Rung {
    Rung {
        id: id.to_string(),
        needs: Vec::new(),
        argv,
        env,
        cwd: BUILD.to_owned(),
        success: Success { files: vec![module], ..Success::default() },
        diagnosis: table(nvcc::MESSAGE_ROWS, NextRungs::default()),
        artifacts,
        loses: String::new(),
        stop: None,
        hang: None,
    }
}

/// The step that compiles the reference; `None` if there is no reference or the host has no C
/// compiler.
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
    let mut rung = rung(&RungId::BuildCc, argv, BTreeMap::new(), REFERENCE.to_owned(), Vec::new());
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
        max_output_bytes: Some(Step::MAX_HELPER_OUTPUT_BYTES),
        stdin: Default::default(),
        rungs: vec![rung],
    })
}
