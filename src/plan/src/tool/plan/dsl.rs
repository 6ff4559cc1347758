//! The plan of `rgpu build --dsl`: compiles kernels of Python DSLs without a GPU.
//!
//! It has two steps: one makes the pinned environment on first use; in the other, `build`,
//! `harness/templates/build_dsl.py` imports the user's file and keeps the compiled files. It works
//! on any machine with Python and needs no driver.

use clap::ValueEnum;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rgpu_protocol::Plan;
use rgpu_protocol::plan::{Arg, ArtifactSpec, Limits, OnFailure, Rung, Step, Success};
use serde::Serialize;

use super::draft::{BundleFile, Draft, DraftInfo, SourceNames};
use super::message_rows::{MessageRow, NextRungs, RowAction, table};
use super::python_env::PythonEnv;
use super::request::JobName;
use super::wheels::{CUTE, TRITON, Wheels};
use crate::kernel::{
    KernelError, KernelFolders, OwnFiles, imports as python_imports, is_private, name_of,
};
use rgpu_model::profile::ArtifactKind;
use rgpu_model::regular_file::{self, MAX_SOURCE_BYTES};

/// Scripts that run on the host.
pub(super) const MAIN: &str = rgpu_harness::BUILD_DSL;
const FOR_CUTE: &str = rgpu_harness::BUILD_CUTE;
pub(super) const LAYOUTS: &str = rgpu_harness::DUMP_LAYOUTS;
const FOR_TRITON: &str = rgpu_harness::BUILD_TRITON;

/// Folder of the compiled files and of the record.
const OUT: &str = "out";
/// The script's record of the build, in the job's folder.
pub const DSL_RECORD: &str = "out/dsl.json";

/// Errors that our script reports for code that does not compile.
static MESSAGE_ROWS: &[MessageRow] = &[
    MessageRow("build_dsl: NothingCompiled: ", "nothing_compiled", RowAction::FailedStop),
    MessageRow("build_dsl: ", "does_not_compile", RowAction::FailedStop),
];

/// A Python DSL for GPU kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Dsl {
    /// NVIDIA's CuTe DSL, module `cutlass`.
    #[value(help = "NVIDIA's CuTe DSL")]
    Cute,
    /// Triton, module `triton`.
    #[value(help = "Triton")]
    Triton,
}

impl Dsl {
    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cute => "cute",
            Self::Triton => "triton",
        }
    }

    /// The wheels with its compiler.
    pub fn wheels(self) -> &'static Wheels {
        match self {
            Self::Cute => &CUTE,
            Self::Triton => &TRITON,
        }
    }
}

/// A file of a DSL to compile.
#[derive(Clone, Debug)]
pub struct DslBuild {
    /// The DSL of the file.
    pub dsl: Dsl,
    /// The path of the Python file.
    pub file: PathBuf,
    /// The architecture, e.g. `sm_100a`.
    pub arch: String,
    /// Arguments for `compile_kernel`: cases of groups of values.
    pub cases: Vec<Vec<Vec<i64>>>,
    /// Whether to make cubins, not only PTX.
    pub cubin: bool,
    /// Whether to bring back the IR.
    pub keep_ir: bool,
    /// Optimisation level, 0 to 3.
    pub opt_level: Option<u8>,
    /// Additional options for `cute.compile` or for Triton's ptxas.
    pub options: Vec<String>,
    /// Level of the DSL's own log, as in Python's `logging` (10: everything).
    pub log_level: Option<u32>,
    /// Whether the DSL prints its IR.
    pub print_ir: bool,
    /// Time limit for compiling, in seconds.
    pub timeout_s: u64,
    /// Bytes kept of each output stream.
    pub log_bytes: Option<u64>,
}

/// The script's input, written to `job.json`.
#[derive(Serialize)]
struct Job<'a> {
    dsl: &'a str,
    file: String,
    stem: &'a str,
    arch: &'a str,
    cases: &'a [Vec<Vec<i64>>],
    cubin: bool,
    keep_ir: bool,
    opt_level: Option<u8>,
    options: &'a [String],
    log_level: Option<u32>,
    print_ir: bool,
}

/// Time limit for making the environment, which fetches hundreds of megabytes.
pub(super) const FETCH_TIMEOUT_S: u64 = 45 * 60;

impl DslBuild {
    /// The kernel's name, and the first part of its files' names.
    pub fn stem(&self) -> String {
        name_of(&self.file)
    }

    /// The plan of the job that compiles it.
    ///
    /// # Errors
    /// [`KernelError::OutsideProject`] for a module outside of the file's own repository or
    /// project.
    pub fn plan(&self, job: &JobName) -> Result<Draft, KernelError> {
        let environment = self.dsl.wheels().environment();
        let sources = modules(&self.file)?;
        let file_name = |path: &Path| path.file_name().map(|n| n.to_string_lossy().into_owned());
        let script = Job {
            dsl: self.dsl.name(),
            file: format!("../src/{}", file_name(&self.file).unwrap_or_default()),
            stem: &self.stem(),
            arch: &self.arch,
            cases: &self.cases,
            cubin: self.cubin,
            keep_ir: self.keep_ir,
            opt_level: self.opt_level,
            options: &self.options,
            log_level: self.log_level,
            print_ir: self.print_ir,
        };
        let backend = match self.dsl {
            Dsl::Cute => FOR_CUTE,
            Dsl::Triton => FOR_TRITON,
        };
        let mut files = environment.files();
        files.extend([
            BundleFile::text("harness/build_dsl.py", MAIN),
            BundleFile::text(format!("harness/build_{}.py", self.dsl.name()), backend),
            // Plain data with text keys: it always serialises.
            BundleFile::text("job.json", serde_json::to_vec(&script).unwrap_or_default()),
        ]);
        let relative = |path: &Path| {
            let folder = self.file.parent().unwrap_or(Path::new(""));
            path.strip_prefix(folder).unwrap_or(path).display().to_string()
        };
        if self.dsl == Dsl::Cute {
            files.push(BundleFile::text("harness/dump_layouts.py", LAYOUTS));
        }
        files.extend(sources.iter().map(|s| BundleFile::copy(format!("src/{}", relative(s)), s)));
        let localized = sources
            .iter()
            .map(|s| SourceNames {
                host_name: format!("../src/{}", relative(s)),
                local_path: s.clone(),
            })
            .collect();
        let mut limits = Limits::default();
        limits.log_bytes = self.log_bytes.unwrap_or(limits.log_bytes);
        let title = format!("build {} for {}", self.stem(), self.arch);
        let info =
            DraftInfo { arch: self.arch.clone(), sources: localized, ..DraftInfo::default() };
        let plan = Plan {
            job: job.job(),
            title,
            facts: None,
            files: Vec::new(),
            steps: vec![environment.step(FETCH_TIMEOUT_S), self.step()],
            gpu: None,
            env: BTreeMap::new(),
            secrets: Vec::new(),
            origin: None,
            limits,
        };
        Ok(Draft { plan, files, info })
    }

    fn step(&self) -> Step {
        let argv = [PythonEnv::python(), Arg::in_job("harness/build_dsl.py")];
        let artifact = |path: &str, kind: ArtifactKind| ArtifactSpec {
            path: format!("{OUT}/{path}"),
            kind: kind.into(),
        };
        let rung = Rung {
            id: format!("build.{}", self.dsl.name()),
            needs: Vec::new(),
            argv: argv.into_iter().chain([Arg::in_job("job.json")]).collect(),
            env: BTreeMap::from([("PYTHONUNBUFFERED".to_owned(), "1".into())]),
            cwd: OUT.to_owned(),
            success: Success { files: vec![DSL_RECORD.to_owned()], ..Success::default() },
            diagnosis: table(MESSAGE_ROWS, NextRungs::default()),
            artifacts: vec![
                artifact("cubin/*", ArtifactKind::Cubin),
                artifact("ptx/*", ArtifactKind::Ptx),
                artifact("ir/*", ArtifactKind::Ir),
                artifact("compiled_attrs/*", ArtifactKind::CompiledAttrs),
                artifact("layouts.json*", ArtifactKind::Dsl),
                ArtifactSpec { path: DSL_RECORD.to_owned(), kind: ArtifactKind::Dsl.into() },
            ],
            loses: String::new(),
            stop: None,
            hang: None,
        };
        Step {
            id: "build".to_owned(),
            title: format!("compile {} for {}", self.stem(), self.arch),
            gpu: false,
            needs: vec![PythonEnv::STEP.to_owned()],
            on_failure: OnFailure::Stop,
            timeout_s: self.timeout_s,
            max_output_bytes: Some(Step::MAX_HELPER_OUTPUT_BYTES),
            stdin: Default::default(),
            rungs: vec![rung],
        }
    }
}

/// Limit on the modules sent along: a kernel does not have more of its own.
const MAX_MODULES: usize = 500;

/// The file and the modules beside it that it imports, directly or indirectly. The user named the
/// file, so it may lie anywhere; a module may be a link, and must be the project's own.
pub(super) fn modules(file: &Path) -> Result<Vec<PathBuf>, KernelError> {
    let folder = file.parent().unwrap_or(Path::new(""));
    let own_files = OwnFiles::find(folder, &KernelFolders::default());
    let mut found: Vec<PathBuf> = Vec::new();
    let mut queue = vec![file.to_owned()];
    while let Some(path) = queue.pop() {
        if found.contains(&path) || found.len() >= MAX_MODULES {
            continue;
        }
        if path != file {
            own_files.check(&path, None)?;
            if path.canonicalize().is_ok_and(|real| is_private(&real)) {
                continue;
            }
        }
        let text = regular_file::read(&path, MAX_SOURCE_BYTES).unwrap_or_default();
        for name in imports(&String::from_utf8_lossy(&text)) {
            let beside = folder.join(format!("{name}.py"));
            if beside.is_file() {
                queue.push(beside);
            } else if folder.join(&name).join("__init__.py").is_file() {
                queue.extend(package(&folder.join(&name)));
            }
        }
        found.push(path);
    }
    found.sort();
    Ok(found)
}

/// Every module of a package.
fn package(folder: &Path) -> Vec<PathBuf> {
    let entries = walkdir::WalkDir::new(folder).into_iter().filter_map(Result::ok);
    let files = entries.filter(|entry| entry.file_type().is_file());
    let python = files.filter(|entry| entry.path().extension().is_some_and(|e| e == "py"));
    python.take(MAX_MODULES).map(walkdir::DirEntry::into_path).collect()
}

/// The top-level names of the modules that a Python source imports.
pub(super) fn imports(text: &str) -> Vec<String> {
    let imports = python_imports(text).into_iter();
    let names = imports.map(|import| import.module.trim_start_matches('.').to_owned());
    let names = names.map(|name| name.split('.').next().unwrap_or_default().to_owned());
    names.filter(|name| !name.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_that_leads_to_a_file_of_others_does_not_travel() {
        let folder = tempfile::tempdir().unwrap();
        let clone = folder.path().join("clone");
        for (path, text) in [
            ("secret.py", "key"),
            ("package/__init__.py", ""),
            ("clone/k.py", "import helper"),
            ("clone/own.py", ""),
            ("clone/id_ed25519", "key"),
        ] {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let helper = clone.join("helper.py");
        let link = |target: &str, link: &Path| {
            std::os::unix::fs::symlink(folder.path().join(target), link).unwrap();
        };
        let file = clone.join("k.py");
        link("secret.py", &helper);
        assert!(matches!(modules(&file), Err(KernelError::OutsideProject { .. })));
        std::fs::remove_file(&helper).unwrap();
        link("package", &clone.join("helper"));
        assert!(matches!(modules(&file), Err(KernelError::OutsideProject { .. })));
        link("clone/id_ed25519", &helper);
        assert_eq!(modules(&file).unwrap(), std::slice::from_ref(&file));
        std::fs::remove_file(&helper).unwrap();
        link("clone/own.py", &helper);
        assert_eq!(modules(&file).unwrap(), [helper, file]);
    }

    #[test]
    fn a_plan_brings_the_file_and_the_modules_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
            path
        };
        let file = write("k.py", "import os, tiles\nfrom lib.more import x\n");
        write("tiles.py", "import k\n");
        write("lib/__init__.py", "");
        write("lib/more.py", "x = 1\n");
        write("other.py", "");
        let build = DslBuild {
            dsl: Dsl::Triton,
            file,
            arch: "sm_100a".into(),
            cases: vec![vec![vec![1, 2]]],
            cubin: true,
            keep_ir: false,
            opt_level: None,
            options: Vec::new(),
            log_level: None,
            print_ir: false,
            timeout_s: 600,
            log_bytes: None,
        };
        let draft = build.plan(&JobName { run: "r".into(), sequence: 1 }).unwrap();
        let sources = draft.files.iter().map(|f| f.path.as_str()).filter(|p| p.starts_with("src/"));
        let sources: Vec<&str> = sources.collect();
        assert_eq!(sources, ["src/k.py", "src/lib/__init__.py", "src/lib/more.py", "src/tiles.py"]);
        let steps: Vec<_> = draft.plan.steps.iter().map(|s| s.id.as_str()).collect();
        assert_eq!(steps, ["python", "build"]);
        let job = draft.files.iter().find(|f| f.path == "job.json").unwrap();
        let super::super::draft::JobFileContent::Bytes(bytes) = &job.content else { panic!() };
        let job: serde_json::Value = serde_json::from_slice(bytes).unwrap();
        assert_eq!(job["file"], "../src/k.py");
        assert_eq!(job["cases"][0][0][1], 2);
    }
}
