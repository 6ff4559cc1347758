//! A plan before its files are hashed, and what the laptop may expect of it.

use std::path::PathBuf;

use rgpu_protocol::RungRecord;
use rgpu_protocol::plan::Plan;

use crate::error::{ANOTHER_HOST, Exit, Failure, Side, shell_word};
use crate::kernel::{KernelSpec, Mode};

/// What [`super::plan`] makes: bundle turns it into a plan with blobs.
#[derive(Clone, Debug, PartialEq)]
pub struct Draft {
    /// The plan; its files are only those that the host already has ([`super::Request::reuse`]).
    pub plan: Plan,
    /// Files to bring along.
    pub files: Vec<BundleFile>,
    /// What comes back.
    pub expect: Expectations,
}

/// A file of the job's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleFile {
    /// Relative to the job's folder.
    pub path: String,
    /// What is in it.
    pub content: Content,
    /// Whether it may be executed.
    pub executable: bool,
}

impl BundleFile {
    /// A file of this machine.
    pub fn copy(path: impl Into<String>, from: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), content: Content::Local(from.into()), executable: false }
    }

    /// A file that is made here.
    pub fn text(path: impl Into<String>, text: impl Into<Vec<u8>>) -> Self {
        Self { path: path.into(), content: Content::Bytes(text.into()), executable: false }
    }

    /// The same, executable.
    pub fn executable(self) -> Self {
        Self { executable: true, ..self }
    }
}

/// What a file holds.
#[derive(Clone, PartialEq, Eq)]
pub enum Content {
    /// A file of this machine.
    Local(PathBuf),
    /// These bytes.
    Bytes(Vec<u8>),
}

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Local(path) => write!(f, "Local({})", path.display()),
            Self::Bytes(bytes) => write!(f, "Bytes({})", bytes.len()),
        }
    }
}

/// What the laptop may expect of a plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Expectations {
    /// The architecture compiled for; empty for a program.
    pub arch: String,
    /// The compiled module in the job's folder (`build/k.cubin`, `build/libk.so`); empty for a
    /// program.
    pub module: String,
    /// Files of the job's folder that a later plan of this run may reuse.
    pub built: Vec<String>,
    /// Sources as compilers name them there, and where they are here.
    pub sources: Vec<SourceNames>,
    /// Rungs that cannot work on this host and were left out, with the reason, in ladder order.
    pub left_out: Vec<RungRecord>,
    /// Things the user should know before the job starts.
    pub notes: Vec<String>,
}

/// A source file's two names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceNames {
    /// As compilers on the host print it.
    pub there: String,
    /// The path on this machine.
    pub here: PathBuf,
}

impl Expectations {
    /// A compiler's message with the names of this machine.
    pub fn localize(&self, message: &str) -> String {
        self.sources.iter().fold(message.to_owned(), |text, source| {
            text.replace(&source.there, &source.here.display().to_string())
        })
    }
}

/// A request that no plan can meet.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// The runner for this host is not at hand.
    #[error("there is no `rgpu-runner` for `{arch}` at hand")]
    NoRunner {
        /// The host's architecture.
        arch: String,
    },
    /// The host lacks what Python kernels need.
    #[error("{}", no_python(.package, .python.as_deref()))]
    NoPython {
        /// `python3` or the package.
        package: &'static str,
        /// The Python that was found.
        python: Option<String>,
        /// The remote.
        remote: String,
    },
    /// Mode `torch` was asked for something that no harness of ours runs.
    #[error("mode `torch` needs a Python kernel")]
    TorchNeedsPython,
    /// A Python kernel cannot share a process with another kernel.
    #[error("kernels in Python cannot be timed interleaved with another")]
    PairOfPython,
    /// Nothing on the host compiles, and nothing was built elsewhere.
    #[error("the host has no CUDA compiler for `{source_name}`")]
    NoCompiler {
        /// The source.
        source_name: String,
        /// Whether NVRTC could do it.
        device: bool,
        /// The remote's name.
        remote: String,
    },
    /// A node to log in at: its GPUs are elsewhere, and it is no place to compute on.
    #[error("`{remote}` is a login node of a Slurm cluster: it has no GPU itself")]
    LoginNode {
        /// The remote's name.
        remote: String,
    },
    /// The kernel is not for this GPU.
    #[error("the kernel is for `{asked}`, but the GPU is `{gpu}`")]
    Arch {
        /// What kernel.toml or `--arch` asks for.
        asked: String,
        /// What the GPU is.
        gpu: String,
    },
    /// No GPU of the host fits `--gpu`.
    #[error("no GPU of the host is {asked}")]
    NoSuchGpu {
        /// In words.
        asked: String,
        /// Those that are there.
        known: Vec<String>,
    },
    /// An option's value is wrong.
    #[error("`{flag} {value}`: {problem}")]
    Option {
        /// The flag.
        flag: &'static str,
        /// Its value.
        value: String,
        /// What is wrong.
        problem: String,
        /// The nearest right values.
        near: Vec<String>,
    },
    /// Every rung was refused or cannot work there.
    #[error("no way is left to {title}")]
    NothingLeft {
        /// What was to be done.
        title: String,
        /// Why not, rung by rung.
        left_out: Vec<RungRecord>,
    },
    /// There is no GPU, and nothing that the CPU could run in the kernel's place.
    #[error("{}", no_gpu(.remote, .kernel, *.mode))]
    NoGpu {
        /// The remote's name.
        remote: String,
        /// The kernel's name.
        kernel: String,
        /// What was asked.
        mode: Mode,
        /// Why the CPU has nothing to run; empty where that would not help.
        why: String,
        /// What would give it something; empty where nothing would.
        advice: String,
    },
    /// The reference kernel cannot be launched at one of its small cases.
    #[error("the reference kernel cannot be checked: {problem}")]
    SmallCase {
        /// What is wrong.
        problem: String,
    },
}

impl PlanError {
    /// That neither a GPU nor the CPU can run this kernel there; `left_out` says why.
    pub fn no_gpu(remote: &str, spec: &KernelSpec, mode: Mode, left_out: &[RungRecord]) -> Self {
        // With a reference there would be no verdict either.
        let lowest = left_out.iter().find(|r| r.rung == "cpu" && !r.ok && !is_verdict(mode));
        let way = "with a reference the CPU runs that in its place (rung `cpu`):";
        let advice = match (lowest, &spec.file) {
            (Some(lowest), None) if lowest.code == "no_reference" => format!(
                "{way} `rgpu kernels new {}` writes a kernel.toml with a place for one",
                shell_word(spec.source.display())
            ),
            (Some(lowest), Some(_)) if lowest.code == "no_reference" => {
                format!("{way} name one under `[reference]` in its kernel.toml")
            }
            _ => String::new(),
        };
        Self::NoGpu {
            remote: remote.to_owned(),
            kernel: spec.name.clone(),
            mode,
            why: lowest.map(|lowest| lowest.words.clone()).unwrap_or_default(),
            advice,
        }
    }
}

/// Whether a mode's result is that nothing is wrong, which a run without a GPU must not look like.
fn is_verdict(mode: Mode) -> bool {
    matches!(mode, Mode::Verify | Mode::Sanitizer)
}

fn no_gpu(remote: &str, kernel: &str, mode: Mode) -> String {
    match is_verdict(mode) {
        true => format!("nothing was verified: `{remote}` has no GPU that works"),
        false => format!("`{remote}` has no GPU that works, and `{kernel}` cannot run without one"),
    }
}

fn no_python(package: &str, python: Option<&str>) -> String {
    match python {
        None => "the host has no Python, which this kernel needs".to_owned(),
        Some(python) => format!("`{python}` of the host has no {package}, which this kernel needs"),
    }
}

/// What helps where a host got something since it was last asked.
pub fn looks_again(remote: &str) -> String {
    format!("installed there since? `rgpu doctor {remote} --fresh` looks again")
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
                    (_, Some(python)) => failure.hint(format!("install it there: `{python} -m pip install torch`")),
                    (_, None) => failure.hint("install python3 and torch there"),
                };
                failure.hint(format!("another Python of the host: its folder under `path` of [remote.{remote}] in your settings"))
            }
            PlanError::TorchNeedsPython => Failure::new(Exit::Usage, "usage", what)
                .hint("`rgpu kernels list` shows which are; `--mode nsys` traces any program"),
            PlanError::PairOfPython => Failure::new(Exit::Usage, "usage", what)
                .hint("profile each, then compare the runs: `rgpu compare RUN RUN`"),
            PlanError::NoCompiler { device, remote, .. } => {
                let failure = Failure::new(Exit::Host, "no_compiler", what);
                let failure = match device {
                    true => failure.hint("install the CUDA toolkit there, or NVRTC here: `cargo xtask setup` in the source tree"),
                    false => failure.hint("a host entry needs nvcc and a C++ compiler there"),
                };
                let failure = failure.hint("`rgpu build` with `--yes` fetches NVIDIA's nvcc once, for profiles too; that needs python3 and a C++ compiler there");
                match remote.as_str() {
                    "local" => failure,
                    _ => failure.hint(looks_again(&remote)),
                }
            }
            PlanError::LoginNode { remote } => {
                let failure = Failure::new(Exit::Host, "login_node", what);
                match remote.as_str() {
                    "local" => failure.hint("start rgpu on a node with one: `srun --gres=gpu:1 --pty bash`, then rgpu there"),
                    _ => failure
                        .hint(format!("have Slurm start the agent on a node with one: `via = [\"srun\", \"--quiet\", \"--gres=gpu:1\"]` in [remote.{remote}]"))
                        .hint(format!("or hold a node with `salloc --gres=gpu:1`, and add it: `rgpu remote add NODE ssh://NODE --jump {remote}'s address`")),
                }
            }
            PlanError::Arch { gpu, .. } => Failure::new(Exit::Config, "arch_mismatch", what)
                .hint(format!("`--arch {gpu}` compiles for this GPU, if the source allows")),
            PlanError::NoSuchGpu { known, .. } => {
                Failure::new(Exit::Host, "no_such_gpu", what).hint(format!("there: {}", known.join("; ")))
            }
            PlanError::Option { near, .. } => {
                let failure = Failure::new(Exit::Usage, "bad_option", what);
                match near.is_empty() {
                    true => failure,
                    false => failure.hint(format!("did you mean `{}`?", near.join("`, `"))),
                }
            }
            PlanError::NothingLeft { left_out, .. } => {
                let why: Vec<String> =
                    left_out.iter().map(|r| format!("{}: {}", r.rung, r.words)).collect();
                let failure = Failure::new(Exit::Tool, "nothing_left", what).cause(why.join("; "));
                match left_out.first() {
                    Some(record) => failure.hint(super::reason::reason(&record.code).help),
                    None => failure,
                }
            }
            PlanError::NoGpu { mode, why, advice, .. } => {
                let exit = if is_verdict(mode) { Exit::Host } else { Exit::Tool };
                let failure = Failure::new(exit, "no_gpu", what)
                    .side(Side::Host)
                    .cause(why)
                    .hint(ANOTHER_HOST)
                    .hint("`rgpu build` and `rgpu disasm` need no GPU: they compile it and show its code");
                match advice.is_empty() {
                    true => failure,
                    false => failure.hint(advice),
                }
            }
            PlanError::SmallCase { .. } => Failure::new(Exit::Config, "bad_expression", what),
        }
    }
}
