//! A plan before its files are hashed, what we know of it beyond the plan, and the errors of
//! planning.

use std::path::PathBuf;

use rgpu_protocol::RungRecord;
use rgpu_protocol::plan::Plan;

use crate::kernel::{KernelSpec, ProfileMode};
use rgpu_model::RungId;
use rgpu_model::error::{ANOTHER_HOST, Exit, Failure, Side, shell_word};

/// The result of [`super::plan`]; bundle turns it into a plan with blobs.
#[derive(Clone, Debug, PartialEq)]
pub struct Draft {
    /// The plan; its files are only those that the host already has ([`super::Request::reuse`]).
    pub plan: Plan,
    /// Files to send along.
    pub files: Vec<BundleFile>,
    /// Facts about the plan that are not in the plan itself.
    pub info: DraftInfo,
}

/// A file of the job's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleFile {
    /// Path, relative to the job's folder.
    pub path: String,
    /// Source of its bytes.
    pub content: JobFileContent,
    /// Whether it gets the executable bit.
    pub executable: bool,
}

impl BundleFile {
    /// A copy of a file on this machine.
    pub fn copy(path: impl Into<String>, from: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), content: JobFileContent::Local(from.into()), executable: false }
    }

    /// A file with the given content.
    pub fn text(path: impl Into<String>, text: impl Into<Vec<u8>>) -> Self {
        Self { path: path.into(), content: JobFileContent::Bytes(text.into()), executable: false }
    }

    /// The same file with the executable bit.
    pub fn executable(self) -> Self {
        Self { executable: true, ..self }
    }
}

/// Source of a file's bytes.
#[derive(Clone, PartialEq, Eq)]
pub enum JobFileContent {
    /// The content of a file on this machine.
    Local(PathBuf),
    /// Content that is in memory.
    Bytes(Vec<u8>),
}

impl std::fmt::Debug for JobFileContent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Local(path) => write!(f, "Local({})", path.display()),
            Self::Bytes(bytes) => write!(f, "Bytes({})", bytes.len()),
        }
    }
}

/// Facts about a plan that only the laptop has, for reading its results.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DraftInfo {
    /// Architecture that the code is compiled for; empty for a program.
    pub arch: String,
    /// Path of the compiled module in the job's folder (`build/k.cubin`, `build/libk.so`); empty
    /// for a program.
    pub module: String,
    /// Files of the job's folder that a later plan of this run may reuse.
    pub built: Vec<String>,
    /// Names of the sources on the host, with their paths here.
    pub sources: Vec<SourceNames>,
    /// Rungs left out because they cannot work on this host, with the reason, in ladder order.
    pub left_out: Vec<RungRecord>,
    /// Messages for the user before the job starts.
    pub notes: Vec<String>,
    /// The reports that the runner or the harness leaves, one for each rung that runs a kernel.
    pub reports: Vec<ExpectedReport>,
}

/// The report that a rung's runner or harness leaves when its job is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedReport {
    /// Id of the step.
    pub step: String,
    /// The rung of that step.
    pub rung: RungId,
    /// Path of the report in the job's folder.
    pub path: String,
    /// Names of the cases that the report must have.
    pub cases: Vec<String>,
}

/// The names of a source file on the host and here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceNames {
    /// Name as compilers on the host print it.
    pub host_name: String,
    /// Path on this machine.
    pub local_path: PathBuf,
}

impl DraftInfo {
    /// Replaces the host's names of source files in a compiler's message with the paths here.
    pub fn localize(&self, message: &str) -> String {
        self.sources.iter().fold(message.to_owned(), |text, source| {
            text.replace(&source.host_name, &source.local_path.display().to_string())
        })
    }
}

/// A reason why a request cannot become a plan.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// This machine has no runner for the host's architecture.
    #[error("there is no `rgpu-runner` for `{arch}` on this machine")]
    NoRunner {
        /// The architecture of the host.
        arch: String,
    },
    /// The host lacks Python or a package that Python kernels need.
    #[error("{}", no_python(.package, .python.as_deref()))]
    NoPython {
        /// The missing package, or `python3`.
        package: &'static str,
        /// Path of the Python that was found.
        python: Option<String>,
        /// Name of the remote.
        remote: String,
    },
    /// The host does not have the GPUs that `--gpus` asks for.
    #[error(transparent)]
    MissingGpus(#[from] super::gpu_selection::MissingGpus),
    /// No tool can be placed before the program that its launcher starts.
    #[error(transparent)]
    Launcher(#[from] super::launcher::LauncherError),
    /// Mode `torch` was requested for a kernel that is not in Python.
    #[error("mode `torch` needs a Python kernel or a program")]
    TorchNeedsPython,
    /// The host has no compiler for the kernel, and nothing was built elsewhere.
    #[error("the host has no CUDA compiler for `{source_name}`")]
    NoCompiler {
        /// Name of the source.
        source_name: String,
        /// Whether NVRTC could compile it.
        device: bool,
        /// Name of the remote.
        remote: String,
        /// What it lacks for NVIDIA's wheels; empty if nothing.
        lacks: String,
    },
    /// The host is a login node of a Slurm cluster: its GPUs are on other nodes.
    #[error("`{remote}` is a login node of a Slurm cluster: it has no GPU itself")]
    LoginNode {
        /// Name of the remote.
        remote: String,
    },
    /// The kernel cannot be compiled for this GPU.
    #[error("the kernel is for `{requested}`, but the GPU is `{gpu}`")]
    Arch {
        /// The architecture from kernel.toml or `--arch`.
        requested: String,
        /// The architecture of the GPU.
        gpu: String,
    },
    /// No GPU of the host matches `--gpu`.
    #[error("no GPU of the host is {requested}")]
    NoSuchGpu {
        /// The requested GPU, in words.
        requested: String,
        /// The GPUs of the host.
        known: Vec<String>,
    },
    /// An option has a wrong value.
    #[error("`{flag} {value}`: {problem}")]
    Option {
        /// The flag with the invalid value.
        flag: &'static str,
        /// The value as the user gave it.
        value: String,
        /// The problem with it.
        problem: String,
        /// The nearest valid values.
        near: Vec<String>,
    },
    /// Every rung was refused or cannot work on the host.
    #[error("nothing on this host can {title}")]
    NoUsableRung {
        /// The task, in words.
        title: String,
        /// The rungs, each with its reason.
        left_out: Vec<RungRecord>,
    },
    /// The host has no GPU, and the CPU has nothing to run in the kernel's place.
    #[error("{}", no_gpu(.remote, .kernel, *.mode))]
    NoGpu {
        /// Name of the remote.
        remote: String,
        /// Name of the kernel.
        kernel: String,
        /// The mode that cannot run.
        mode: ProfileMode,
        /// Why the CPU has nothing to run; empty if a reference would not help.
        why: String,
        /// How to give the CPU something to run; empty if nothing would help.
        advice: String,
    },
    /// The reference kernel cannot be launched at one of its small cases.
    #[error("the reference kernel cannot be checked: {problem}")]
    SmallCase {
        /// The problem with it.
        problem: String,
    },
}

impl PlanError {
    /// The error that neither a GPU nor the CPU of a host can run this kernel.
    pub fn no_gpu(
        remote: &str,
        spec: &KernelSpec,
        mode: ProfileMode,
        left_out: &[RungRecord],
    ) -> Self {
        // In a mode that gives a verdict, a reference on the CPU would not help.
        let lowest =
            left_out.iter().find(|r| r.rung == RungId::Cpu && !r.ok && !mode.info().is_verdict);
        let way = "if the kernel has a reference, rgpu runs it on the CPU (rung `cpu`):";
        let advice = match (lowest, &spec.file) {
            (Some(lowest), None) if lowest.code == "no_reference" => format!(
                "{way} `rgpu kernels new {}` writes a kernel.toml with a place for one",
                shell_word(spec.source.display())
            ),
            (Some(lowest), Some(_)) if lowest.code == "no_reference" => {
                format!("{way} name one under `[reference]` in its kernel.toml")
            }
            (Some(lowest), _) if lowest.code == "tool_missing" => NEEDS_C_COMPILER.to_owned(),
            _ => String::new(),
        };
        Self::NoGpu {
            remote: remote.to_owned(),
            kernel: spec.name.clone(),
            mode,
            why: lowest.map(|lowest| lowest.message.clone()).unwrap_or_default(),
            advice,
        }
    }
}

fn no_gpu(remote: &str, kernel: &str, mode: ProfileMode) -> String {
    if mode.info().is_verdict {
        format!("nothing was verified: `{remote}` has no working GPU")
    } else {
        format!("`{remote}` has no working GPU, and `{kernel}` cannot run without one")
    }
}

fn no_python(package: &str, python: Option<&str>) -> String {
    match python {
        None => "the host has no Python, which this kernel needs".to_owned(),
        Some(python) => format!("`{python}` of the host has no {package}, which this kernel needs"),
    }
}

/// The hint for a kernel whose reference could run on the CPU, if the host had a compiler.
const NEEDS_C_COMPILER: &str = "its reference can run on the CPU (rung `cpu`): `apt-get install gcc` on the host (Debian, Ubuntu), or your system's C compiler";

/// The hint for a host on which something was installed since it was last probed.
pub fn probe_again_hint(remote: &str) -> String {
    format!("if it was installed since, run `rgpu doctor {remote} --fresh`")
}

impl From<PlanError> for Failure {
    fn from(error: PlanError) -> Self {
        let what = error.to_string();
        match error {
            PlanError::NoRunner { arch } => Failure::new(Exit::Config, "no_runner", what).hint(format!(
                "`cargo xtask dist` builds the binaries for GPU hosts; a release has them under libexec/rgpu/{arch}"
            )),
            PlanError::NoPython { python, remote, .. } => {
                let failure = Failure::new(Exit::Host, "no_torch", what);
                let failure = match (remote.as_str(), python) {
                    ("local", Some(python)) => failure
                        .hint(format!("install it: `{python} -m pip install torch`, or start rgpu in an environment that has it")),
                    (_, Some(python)) => failure.hint(format!("install it on the host: `{python} -m pip install torch`")),
                    (_, None) => failure.hint("install python3 and torch on the host"),
                };
                failure.hint(format!("another Python of the host: its folder under `path` of [remote.{remote}] in your settings"))
            }
            PlanError::TorchNeedsPython => Failure::new(Exit::Usage, "usage", what)
                .hint("`rgpu kernels show NAME` shows a kernel's entry; `--mode nsys` traces any program"),
            PlanError::NoCompiler { device, remote, lacks, .. } => {
                let failure = if lacks.is_empty() { Failure::new(Exit::Host, "no_compiler", what).hint("`rgpu build` with `--yes` fetches NVIDIA's nvcc once, for profiles too") } else { Failure::new(Exit::Host, "lacks_compiler", what).hint(format!(
                        "install {lacks} on the host (Debian, Ubuntu: `apt-get install g++ python3-venv`); then `rgpu build` with `--yes` fetches NVIDIA's nvcc once, for profiles too"
                    )) };
                let failure = if device { failure.hint("or install the CUDA toolkit on the host") } else { failure.hint("or install the CUDA toolkit on the host; NVRTC is not enough for a host entry") };
                match remote.as_str() {
                    "local" => failure,
                    _ => failure.hint(probe_again_hint(&remote)),
                }
            }
            PlanError::LoginNode { remote } => {
                Failure::new(Exit::Host, "login_node", what)
                    .hint(format!("let each run get a node from Slurm: `rgpu remote add CLUSTER slurm --login {remote}'s address`"))
                    .hint(format!("or hold a node with `salloc --gres=gpu:1`, and add it: `rgpu remote add NODE ssh://NODE --jump {remote}'s address`"))
            }
            PlanError::Arch { gpu, .. } => Failure::new(Exit::Config, "arch_mismatch", what)
                .hint(format!("`--arch {gpu}` compiles for this GPU, if the source allows")),
            PlanError::MissingGpus(_) => Failure::new(Exit::Host, "no_such_gpu", what)
                .hint("`rgpu remote check` lists those there are; `--remote NAME` chooses another host"),
            PlanError::Launcher(_) => Failure::new(Exit::Usage, "usage", what),
            PlanError::NoSuchGpu { known, .. } => {
                Failure::new(Exit::Host, "no_such_gpu", what).hint(format!("GPUs of the host: {}", known.join("; ")))
            }
            PlanError::Option { near, .. } => {
                let failure = Failure::new(Exit::Usage, "bad_option", what);
                if near.is_empty() { failure } else { failure.hint(format!("did you mean `{}`?", near.join("`, `"))) }
            }
            PlanError::NoUsableRung { left_out, .. } => {
                let why: Vec<String> =
                    left_out.iter().map(|r| format!("{}: {}", r.rung, r.message)).collect();
                let failure = Failure::new(Exit::Tool, "nothing_left", what).cause(why.join("; "));
                match left_out.first() {
                    Some(record) => failure.hint(super::reason::reason(&record.code).help),
                    None => failure,
                }
            }
            PlanError::NoGpu { mode, why, advice, .. } => {
                let exit = if mode.info().is_verdict { Exit::Host } else { Exit::Tool };
                let failure = Failure::new(exit, "no_gpu", what).side(Side::Host).cause(why);
                // A compiler is all that the first profile of a new user lacks.
                let (first, last) = if advice == NEEDS_C_COMPILER { (Some(advice), None) } else { (None, Some(advice).filter(|advice| !advice.is_empty())) };
                let failure = first.into_iter().fold(failure, Failure::hint).hint(ANOTHER_HOST);
                let failure = failure.hint(
                    "`rgpu build` and `rgpu disasm` need no GPU: they compile it and show its code",
                );
                last.into_iter().fold(failure, Failure::hint)
            }
            PlanError::SmallCase { .. } => Failure::new(Exit::Config, "bad_expression", what),
        }
    }
}
