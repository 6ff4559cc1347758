//! Builds a program on the host before it runs.

use std::sync::LazyLock;

use regex::{Captures, Regex};
use rgpu_protocol::plan::{Arg, ArtifactSpec, OnFailure, PULLED, Rung, Step, Success};
use rgpu_protocol::probe::GpuFacts;
use rgpu_protocol::{DiagnosisRule, HostFacts};

use super::compile_cache::{compile_once, compiler_rows};
use super::draft::{BundleFile, JobFileContent, PlanError};
use super::ladder::artifact;
use super::message_rows::{MessageRow, NextRungs, RowAction, table};
use super::request::{Program, Request, path_of};
use super::wheels::WheelNvcc;
use super::{arch, build};
use crate::kernel::ProfileMode;
use crate::kernel::sources::{FolderBuild, NvccBuild, ProgramBuild};
use rgpu_model::RungId;
use rgpu_model::profile::ArtifactKind;

/// Path of a program's working folder in the job's folder.
pub const WORK_FOLDER: &str = "here";

/// Path of a program that was built, in the job's folder.
pub(crate) const PROGRAM_PATH: &str = "build/program";

/// The script that builds the program of a folder.
const BUILD_SCRIPT: &str = rgpu_harness::BUILD_PROGRAM;
const BUILD_SCRIPT_PATH: &str = "bin/build_program.sh";

/// Meanings of messages of builds; those of compilers come after them.
static MESSAGE_ROWS: &[MessageRow] = &[
    MessageRow("build_program: the host has no ", "no_build_tool", RowAction::FailedStop),
    MessageRow("build_program: *makes no program", "nothing_built", RowAction::FailedStop),
    MessageRow("fatal error: helper_*No such file", "missing_cuda_samples", RowAction::FailedStop),
    MessageRow("fatal error: cutlass/*No such file", "missing_cutlass", RowAction::FailedStop),
    MessageRow("fatal error: cute/*No such file", "missing_cutlass", RowAction::FailedStop),
    MessageRow("fatal error: cublas*No such file", "missing_toolkit", RowAction::FailedStop),
    MessageRow("fatal error: cufft*No such file", "missing_toolkit", RowAction::FailedStop),
    MessageRow("fatal error: curand*No such file", "missing_toolkit", RowAction::FailedStop),
    MessageRow("fatal error: cusparse*No such file", "missing_toolkit", RowAction::FailedStop),
    MessageRow("fatal error: cusolver*No such file", "missing_toolkit", RowAction::FailedStop),
    MessageRow("fatal error: *No such file", "missing_header", RowAction::FailedStop),
    MessageRow("cannot find -l", "missing_library", RowAction::FailedStop),
];

/// Meanings of messages of CMake and make, where no compiler says more.
static BUILD_ROWS: &[MessageRow] = &[
    MessageRow("CMake Error", "build_failed", RowAction::FailedStop),
    MessageRow("make*: * Error ", "build_failed", RowAction::FailedStop),
    MessageRow("make*: * Stop.", "build_failed", RowAction::FailedStop),
    MessageRow("build_program: the build failed", "build_failed", RowAction::FailedStop),
];

/// The codes of failed builds that have a title and the build's own message.
pub const PROGRAM_BUILD_CODES: &[&str] = &[
    "no_build_tool",
    "nothing_built",
    "missing_cuda_samples",
    "missing_cutlass",
    "missing_toolkit",
    "missing_header",
    "missing_library",
    "build_failed",
];

fn message_rows() -> Vec<DiagnosisRule> {
    let rows = |rows| table(rows, NextRungs::default());
    rows(MESSAGE_ROWS).into_iter().chain(compiler_rows()).chain(rows(BUILD_ROWS)).collect()
}

/// The steps that build a program, with the files that they need.
pub(crate) struct BuildSteps {
    pub(crate) steps: Vec<Step>,
    pub(crate) files: Vec<BundleFile>,
}

/// The program with the steps that build it on this host, and what was changed for it, in words.
///
/// # Errors
/// [`PlanError::NoCompiler`]
pub(super) fn with_build_steps(
    program: &Program,
    request: &Request,
    facts: &HostFacts,
    gpu: Option<&GpuFacts>,
) -> Result<(Program, Vec<String>), PlanError> {
    let mut built = Program { build: None, ..program.clone() };
    let step = NvccStep {
        title: format!("build {}", program.name),
        facts,
        arch: gpu.map(|gpu| arch::native(gpu.sm)),
        may_fetch: request.build.fetch,
        timeout_s: request.timeout_s,
    };
    let mut notes = Vec::new();
    let steps = match &program.build {
        None => return Ok((built, notes)),
        Some(ProgramBuild::Nvcc(nvcc)) => {
            let sources: Vec<String> =
                nvcc.sources.iter().map(|source| in_work_folder(source)).collect();
            compile_steps(&sources, nvcc, &step)
        }
        Some(ProgramBuild::Folder(folder)) => {
            // Without a GPU it is built for the default of kernels.
            let sm = gpu.map_or(90, |gpu| gpu.sm);
            notes.extend(set_architectures(&mut built.files, sm));
            notes.extend(set_toolkit(&mut built.files, path_of(facts, "nvcc")));
            notes.extend(ask_nvbench(&mut built, request.mode));
            folder_steps(folder, &step)
        }
    };
    let BuildSteps { steps, files } = steps.ok_or_else(|| PlanError::NoCompiler {
        source_name: program.name.clone(),
        device: false,
        remote: facts.remote.clone(),
        lacks: build::lacks_for_wheels(facts).join(" and "),
    })?;
    built.prepare.extend(steps);
    built.files.extend(files);
    Ok((built, notes))
}

/// nvcc of a host: that of its toolkit, or of NVIDIA's wheels.
struct HostNvcc {
    rung: RungId,
    argv: Vec<Arg>,
    /// The step that fetches the wheels, with its files.
    fetch: Option<WheelNvcc>,
}

impl HostNvcc {
    /// `None`: the host has none, and none may be fetched or could work.
    fn find(step: &NvccStep<'_>) -> Option<Self> {
        if let Some(nvcc) = path_of(step.facts, "nvcc") {
            return Some(Self { rung: RungId::BuildNvcc, argv: vec![nvcc.into()], fetch: None });
        }
        let can_fetch = step.may_fetch && path_of(step.facts, "c++").is_some();
        let wheels = can_fetch.then(WheelNvcc::new)?;
        Some(Self { rung: RungId::BuildWheels, argv: wheels.argv.clone(), fetch: Some(wheels) })
    }

    /// The steps of a build that runs `argv` in `folder`.
    fn steps(
        self,
        step: &NvccStep<'_>,
        argv: Vec<Arg>,
        folder: &str,
        files: impl IntoIterator<Item = BundleFile>,
    ) -> BuildSteps {
        let build = Step {
            id: "build".to_owned(),
            title: step.title.clone(),
            gpu: false,
            needs: Vec::new(),
            on_failure: OnFailure::Stop,
            timeout_s: step.timeout_s,
            max_output_bytes: Some(Step::MAX_HELPER_OUTPUT_BYTES),
            stdin: Default::default(),
            rungs: vec![Rung {
                id: self.rung.to_string(),
                needs: Vec::new(),
                argv,
                env: Default::default(),
                cwd: folder.to_owned(),
                success: Success { files: vec![PROGRAM_PATH.to_owned()], ..Success::default() },
                diagnosis: message_rows(),
                artifacts: Vec::new(),
                loses: String::new(),
                stop: None,
                hang: None,
            }],
        };
        let (fetch, wheel_files) = self.fetch.map(|nvcc| (nvcc.step, nvcc.files)).unzip();
        BuildSteps {
            steps: fetch.into_iter().chain([build]).collect(),
            files: files.into_iter().chain(wheel_files.into_iter().flatten()).collect(),
        }
    }
}

/// What else decides a step with nvcc.
pub(crate) struct NvccStep<'a> {
    pub(crate) title: String,
    pub(crate) facts: &'a HostFacts,
    /// The architecture of the GPU; `None`: nvcc's default.
    pub(crate) arch: Option<String>,
    /// Whether NVIDIA's wheels may be fetched to a host that has no nvcc.
    pub(crate) may_fetch: bool,
    pub(crate) timeout_s: u64,
}

/// The place in the job's folder of what has this place below the working folder.
pub(crate) fn in_work_folder(place: &str) -> String {
    if place.is_empty() { WORK_FOLDER.to_owned() } else { format!("{WORK_FOLDER}/{place}") }
}

/// The files of the working folder that come back, by these patterns (`--pull`).
pub fn pulled_artifacts(patterns: &[String]) -> Vec<ArtifactSpec> {
    let artifact = |pattern: &String| ArtifactSpec {
        path: in_work_folder(pattern.trim_start_matches("./")),
        kind: PULLED.to_owned(),
    };
    patterns.iter().map(artifact).collect()
}

/// The steps that compile a program to [`PROGRAM_PATH`]. `sources` are places in the job's folder.
/// `None`: the host has no nvcc, and none may be fetched or could work.
pub(crate) fn compile_steps(
    sources: &[String],
    build: &NvccBuild,
    step: &NvccStep<'_>,
) -> Option<BuildSteps> {
    let nvcc = HostNvcc::find(step)?;
    let mut argv = nvcc.argv.clone();
    let first = sources.first().map(String::as_str).unwrap_or_default();
    let (folder, name) = first.rsplit_once('/').unwrap_or(("", first));
    // nvcc would go by the file extension otherwise.
    argv.extend(["-x", "cu", "-lineinfo"].map(Arg::from));
    let is_given = |beginnings: [&str; 2]| {
        build.flags.iter().any(|flag| beginnings.iter().any(|b| flag.starts_with(b)))
    };
    for (default, beginnings) in [("-O3", ["-O", "--optimize"]), ("-std=c++17", ["-std", "--std"])]
    {
        if !is_given(beginnings) {
            argv.push(default.into());
        }
    }
    argv.extend(step.arch.iter().map(|arch| Arg::text(format!("-arch={arch}"))));
    argv.extend([
        Arg::text("-I"),
        Arg::in_job(WORK_FOLDER),
        Arg::text("-o"),
        Arg::in_job(PROGRAM_PATH),
        Arg::text(name),
    ]);
    argv.extend(sources.iter().skip(1).map(Arg::in_job));
    argv.extend(build.flags.iter().map(|flag| Arg::text(flag.as_str())));
    let inputs = build.inputs.as_ref().map(|digest| [digest.as_bytes()]);
    let (argv, helper) =
        compile_once(argv, PROGRAM_PATH, inputs.as_ref().map(|inputs| inputs.as_slice()));
    Some(nvcc.steps(step, argv, folder, helper))
}

/// The steps that build a folder and link its program as [`PROGRAM_PATH`]. `None` as for
/// [`compile_steps`].
fn folder_steps(build: &FolderBuild, step: &NvccStep<'_>) -> Option<BuildSteps> {
    let nvcc = HostNvcc::find(step)?;
    let arch = step.arch.as_deref().and_then(|arch| arch.strip_prefix("sm_"));
    let mut argv = vec![Arg::text("sh"), Arg::in_job(BUILD_SCRIPT_PATH)];
    argv.extend([
        Arg::text(build.system.command()),
        Arg::text(build.name.as_str()),
        Arg::text(build.target.as_deref().unwrap_or_default()),
        Arg::text(arch.unwrap_or_default()),
        Arg::in_job(PROGRAM_PATH),
    ]);
    argv.extend(nvcc.argv.iter().cloned());
    let script = BundleFile::text(BUILD_SCRIPT_PATH, BUILD_SCRIPT);
    Some(nvcc.steps(step, argv, &in_work_folder(&build.folder), [script]))
}

/// Makes build files compile for the GPU of compute capability `sm` (times ten) and no other:
/// they often name older ones, which the host's compiler or GPU may not know. Only the copies that
/// are sent change. Returns what was changed, in words.
fn set_architectures(files: &mut [BundleFile], sm: u32) -> Option<String> {
    let names = change_build_files(files, |text| with_architecture(text, sm))?;
    Some(format!("{names}: the copy on the host compiles for sm_{sm} in place of other GPUs"))
}

/// Where a program of nvbench writes its results, in the job's folder.
const NVBENCH_REPORT: &str = "raw/nvbench.json";

/// Lets a program of nvbench write its results for the profile; under a tool that measures single
/// launches it runs each state once. Returns what was added, in words. `None`: it is no such
/// program, or the user has chosen.
fn ask_nvbench(program: &mut Program, mode: ProfileMode) -> Option<String> {
    let is_benchmark = |file: &BundleFile| {
        let is_source = [".cu", ".cpp", ".cc", ".cuh"].iter().any(|end| file.path.ends_with(end));
        let JobFileContent::Bytes(bytes) = &file.content else { return false };
        is_source && String::from_utf8_lossy(bytes).contains("NVBENCH_BENCH")
    };
    let is_typed = |word: &Arg| matches!(word, Arg::Text(word) if word == "--profile" || word.starts_with("--json"));
    if !program.files.iter().any(is_benchmark) || program.argv.iter().any(is_typed) {
        return None;
    }
    if mode.collects_counters() {
        program.argv.push("--profile".into());
        return Some("nvbench runs each state once (`--profile`)".to_owned());
    }
    program.argv.extend(["--json".into(), Arg::in_job(NVBENCH_REPORT)]);
    program.reports.push(artifact(NVBENCH_REPORT, ArtifactKind::NvbenchJson));
    Some("the times that nvbench measures are in the profile (`--json`), a case a state".to_owned())
}

/// Makes build files use the host's toolkit where they name the usual place of another version.
/// `nvcc`: the path of the host's compiler. Returns what was changed, in words.
fn set_toolkit(files: &mut [BundleFile], nvcc: Option<&str>) -> Option<String> {
    let root = nvcc.and_then(|nvcc| nvcc.strip_suffix("/bin/nvcc"));
    let names = change_build_files(files, |text| with_toolkit(text, root))?;
    Some(format!(
        "{names}: the copy on the host uses its toolkit in place of the one that is named"
    ))
}

/// The usual place of a toolkit, with its compiler.
static TOOLKIT: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"/usr/local/cuda(?:-[0-9]+(?:\.[0-9]+)?)?\b(?P<nvcc>/bin/nvcc\b)?").ok()
});

/// The text of a build file with the toolkit in `root`; without one its compiler is called by its
/// name.
fn with_toolkit(text: &str, root: Option<&str>) -> String {
    let Some(regex) = TOOLKIT.as_ref() else { return text.to_owned() };
    let replaced =
        regex.replace_all(text, |found: &Captures<'_>| match (root, found.name("nvcc")) {
            (Some(root), Some(_)) => format!("{root}/bin/nvcc"),
            (Some(root), None) => root.to_owned(),
            (None, Some(_)) => "nvcc".to_owned(),
            (None, None) => found[0].to_owned(),
        });
    replaced.into_owned()
}

/// Changes the texts of CMake's and make's files. Returns the names of those that changed; `None`:
/// there are none.
fn change_build_files(files: &mut [BundleFile], change: impl Fn(&str) -> String) -> Option<String> {
    let mut changed: Vec<String> = Vec::new();
    for file in files {
        let JobFileContent::Bytes(bytes) = &mut file.content else { continue };
        let name = file.path.rsplit('/').next().unwrap_or_default();
        let is_cmake = name == "CMakeLists.txt" || name.ends_with(".cmake");
        let is_make = name.to_lowercase().starts_with("makefile")
            || name == "GNUmakefile"
            || name.ends_with(".mk");
        let Ok(text) = std::str::from_utf8(bytes) else { continue };
        if !is_cmake && !is_make {
            continue;
        }
        let replaced = change(text);
        if replaced != text {
            changed.push(format!("`{name}`"));
            *bytes = replaced.into_bytes();
        }
    }
    changed.sort();
    changed.dedup();
    (!changed.is_empty()).then(|| changed.join(", "))
}

/// The numbers of architectures in flags, of lists in variables of make, and of CMake's property.
static ARCHITECTURES: LazyLock<[Option<Regex>; 3]> = LazyLock::new(|| {
    let number = r"[0-9]{2,3}[af]?(?:-real|-virtual)?";
    let list = format!(r"{number}(?:[ \t,;]+{number})*");
    [
        Regex::new(r"\b(?P<head>sm_|compute_)(?P<list>[0-9]{2,3}[af]?)\b(?P<tail>)").ok(),
        Regex::new(&format!(
            r"(?m)^(?P<head>[ \t]*(?:export[ \t]+)?(?:SMS?|COMPUTE|[A-Z_]*ARCH[A-Z_]*|[A-Z_]*CAPABILITY)[ \t]*[?:]?=[ \t]*)(?P<list>{list})(?P<tail>[ \t]*(?:#.*)?)$"
        ))
        .ok(),
        Regex::new(&format!(
            r#"(?P<head>CUDA_ARCHITECTURES[ \t]+"?)(?P<list>{list})(?P<tail>[ \t"\n)])"#
        ))
        .ok(),
    ]
});

/// The text of a build file with its architectures replaced by that of `sm`. One that is this
/// GPU's already stays as it is, with its suffix.
fn with_architecture(text: &str, sm: u32) -> String {
    let mut text = text.to_owned();
    for regex in ARCHITECTURES.iter().flatten() {
        let replaced = regex.replace_all(&text, |found: &Captures<'_>| {
            let part = |name| found.name(name).map(|part| part.as_str()).unwrap_or_default();
            let number = |word: &&str| {
                let digits = word.trim_end_matches(|c: char| !c.is_ascii_digit());
                digits.parse() == Ok(sm)
            };
            let words = || part("list").split([' ', '\t', ',', ';']).filter(|w| !w.is_empty());
            let own = words().find(number).map_or_else(|| sm.to_string(), str::to_owned);
            let is_same = words().all(|word| number(&word));
            if is_same {
                return found[0].to_owned();
            }
            format!("{}{own}{}", part("head"), part("tail"))
        });
        text = replaced.into_owned();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_nvbench_writes_its_results_for_the_profile() {
        let source = BundleFile::text("here/bench.cu", "NVBENCH_BENCH(copy).add_axis();\n");
        let program = Program { files: vec![source], ..Program::default() };
        let mut timed = program.clone();
        assert!(ask_nvbench(&mut timed, ProfileMode::Nsys).is_some());
        assert_eq!(timed.argv, ["--json".into(), Arg::in_job(NVBENCH_REPORT)]);
        assert_eq!(timed.reports[0].kind, "nvbench_json");
        let mut counted = program.clone();
        assert!(ask_nvbench(&mut counted, ProfileMode::Ncu).is_some());
        assert_eq!((counted.argv, counted.reports.len()), (vec!["--profile".into()], 0));
        let mut typed = Program { argv: vec!["--json=x".into()], ..program };
        assert_eq!(ask_nvbench(&mut typed, ProfileMode::Nsys), None);
        assert_eq!(ask_nvbench(&mut Program::default(), ProfileMode::Nsys), None);
    }

    #[test]
    fn build_files_use_the_toolkit_of_the_host() {
        let text = "NVCC = /usr/local/cuda-10.2/bin/nvcc\nINC = -I/usr/local/cuda/include\n\
                    X = /usr/local/cudart\n";
        let opt = "NVCC = /opt/cuda/bin/nvcc\nINC = -I/opt/cuda/include\nX = /usr/local/cudart\n";
        let without = "NVCC = nvcc\nINC = -I/usr/local/cuda/include\nX = /usr/local/cudart\n";
        for (root, expected) in [(Some("/opt/cuda"), opt), (None, without)] {
            assert_eq!(with_toolkit(text, root), expected);
        }
        let usual = "/usr/local/cuda/bin/nvcc -L/usr/local/cuda/lib64";
        assert_eq!(with_toolkit(usual, Some("/usr/local/cuda")), usual);
    }

    #[test]
    fn build_files_compile_for_the_gpu_that_there_is() {
        for (text, expected) in [
            ("NVCCFLAGS = -O3 -arch=sm_70\n", "NVCCFLAGS = -O3 -arch=sm_90\n"),
            (
                "-gencode arch=compute_80,code=sm_80 -gencode arch=compute_90a,code=sm_90a",
                "-gencode arch=compute_90,code=sm_90 -gencode arch=compute_90a,code=sm_90a",
            ),
            ("SMS ?= 50 60 70\nX = 7\n", "SMS ?= 90\nX = 7\n"),
            ("  CUDA_ARCH := 75 # Turing\n", "  CUDA_ARCH := 90 # Turing\n"),
            ("TARGET_ARCH ?= x86_64\n", "TARGET_ARCH ?= x86_64\n"),
            ("set(CMAKE_CUDA_ARCHITECTURES 75 80 90a)\n", "set(CMAKE_CUDA_ARCHITECTURES 90a)\n"),
            ("CUDA_ARCHITECTURES \"70;80\" X", "CUDA_ARCHITECTURES \"90\" X"),
            ("CUDA_ARCHITECTURES native)", "CUDA_ARCHITECTURES native)"),
            ("set(CMAKE_CUDA_ARCHITECTURES 90)\n", "set(CMAKE_CUDA_ARCHITECTURES 90)\n"),
            ("sm_count = my_sm_70x", "sm_count = my_sm_70x"),
        ] {
            assert_eq!(with_architecture(text, 90), expected);
        }
        let mut files = [
            BundleFile::text("here/Makefile", "A = sm_70"),
            BundleFile::text("here/x.cu", "// sm_70"),
        ];
        let note = set_architectures(&mut files, 90).unwrap();
        assert!(note.starts_with("`Makefile`:"), "{note}");
        assert_eq!(files[1], BundleFile::text("here/x.cu", "// sm_70"));
    }
}
