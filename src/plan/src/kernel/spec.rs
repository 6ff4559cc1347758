//! A checked `kernel.toml`: names resolved, expressions parsed, paths joined.

use std::path::{Path, PathBuf};

use rgpu_case::{Baseline, BoardRules, Dtype, Init, Number, Role, RunnerJob, Setting, Tolerance};

use super::ProfileMode;
use super::expr::Expr;

/// The description of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelSpec {
    /// Name: letters, digits and `. _ -`, so that it can be part of a file name.
    pub name: String,
    /// Name of its language, a member of [`super::LANGUAGES`].
    pub language: &'static str,
    /// The folder that its paths are relative to.
    pub folder: PathBuf,
    /// The kernel.toml; `None` when the spec was inferred from a source.
    pub file: Option<PathBuf>,
    /// The source file that kernel.toml names.
    pub source: PathBuf,
    /// The function to launch.
    pub entry: EntryPoint,
    /// The mode if the command line names none.
    pub mode: Option<ProfileMode>,
    /// Architectures to compile for (`sm_90a`); empty: that of the GPU.
    pub arch: Vec<String>,
    /// Compiler flags, for both nvcc and NVRTC.
    pub flags: Vec<String>,
    /// Parameters, in the kernel's order.
    pub args: Vec<ArgSpec>,
    /// Launch shape of a device entry.
    pub launch: Option<LaunchSpec>,
    /// The problem sizes and the named cases.
    pub sizes: Sizes,
    /// The reference that outputs are compared with.
    pub reference: Option<ReferenceSpec>,
    /// The least work that the problem needs.
    pub work: DeclaredWork,
    /// Additional files that the source reads at run time.
    pub extra_files: Vec<PathBuf>,
    /// The model that a Python kernel runs.
    pub model: Option<ModelSpec>,
    /// The leaderboard's task that it solves.
    pub task: Option<TaskSpec>,
}

/// A task of a leaderboard: its files and its rules.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskSpec {
    /// The files by the names that they have for the task's programs, all in one folder.
    pub files: Vec<(String, PathBuf)>,
    /// How it is scored. The program is one of `files`.
    pub rules: BoardRules,
}

/// The function to launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryPoint {
    /// A `__global__` function of this name, as people write it: `ns::matmul<float, 16>` for an
    /// instance of a template.
    Device(String),
    /// The functions of the host-entry ABI (`harness/include/rgpu.h`).
    Host,
    /// A Python function, which our harness calls.
    Python(PythonFunction),
}

/// A Python callable, and how the harness calls it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PythonFunction {
    /// Name of the callable in the source.
    pub function: String,
    /// A callable whose result is passed as the parameter `model`.
    pub prepare: Option<String>,
    /// Whether every timed call gets new data.
    pub fresh: bool,
    /// The functions that make the data, where they are not the popcorn convention's.
    pub inputs: Option<InputsSpec>,
    /// Forms of the reference whose time is measured, too.
    pub baselines: Vec<Baseline>,
}

/// The Python functions that make a kernel's data. They are in the reference's source; without a
/// reference, in the kernel's own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InputsSpec {
    /// The callable that makes the data of a case.
    pub function: String,
    /// The callable that makes the arguments for the constructors of entry and reference, where
    /// these are classes.
    pub constructor: Option<String>,
    /// Whether the data is a list of arguments; otherwise it is the only argument.
    pub spread: bool,
}

/// `[model]`: the model that a Python kernel's `prepare` builds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelSpec {
    /// Name of the model, usually that of its architecture.
    pub name: String,
    /// Variant of the model, such as its size.
    pub variant: String,
    /// Dtype of its weights, by torch's name.
    pub dtype: String,
    /// Further keys; `prepare` takes them as parameters of the same names.
    pub settings: Vec<(String, Setting)>,
}

/// A parameter of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct ArgSpec {
    /// Name, a C identifier.
    pub name: String,
    /// The type of the elements.
    pub dtype: Dtype,
    /// How the kernel uses it.
    pub role: Role,
    /// Row-major extents; empty for a scalar.
    pub shape: Vec<Expr>,
    /// Initial values. The path of [`Init::File`] is as written, relative to the folder.
    pub init: Option<Init>,
    /// The value of a scalar; `None` for a tensor.
    pub value: Option<ScalarValue>,
}

/// The value that a scalar argument gets.
#[derive(Clone, Debug, PartialEq)]
pub enum ScalarValue {
    /// An expression of the sizes.
    Expr(Expr),
    /// A number from kernel.toml.
    Number(Number),
}

/// Launch shape: one to three expressions each, for x, y, z.
#[derive(Clone, Debug, PartialEq)]
pub struct LaunchSpec {
    /// Number of blocks in each dimension.
    pub grid: Vec<Expr>,
    /// Threads per block in each dimension.
    pub block: Vec<Expr>,
    /// Blocks per cluster in each dimension. `None` launches without clusters.
    pub cluster: Option<Vec<Expr>>,
    /// Dynamic shared memory per block in bytes.
    pub shared: Option<Expr>,
}

/// `[sizes]`: the size variables and the named cases.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sizes {
    /// The names of the size variables.
    pub vars: Vec<String>,
    /// Whether a case is a list of groups.
    pub groups: bool,
    /// Named cases in the order written.
    pub cases: Vec<NamedCase>,
    /// Name of the case to run if the user selects none; `None` if the kernel has no variables.
    pub default: Option<String>,
}

/// A named case: its groups, each with a value for every variable in the order of
/// [`Sizes::vars`]; one group unless [`Sizes::groups`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NamedCase {
    /// Name of the case.
    pub name: String,
    /// The values of the variables, one list for each group.
    pub groups: Vec<Vec<i64>>,
    /// Parameters of the functions that make the data, in the order written; they need not be
    /// whole numbers.
    pub values: Vec<(String, Setting)>,
    /// The jobs that take the case; empty: all of them.
    pub jobs: Vec<RunnerJob>,
}

/// `[reference]`: a C function on host memory, or a Python function.
#[derive(Clone, Debug, PartialEq)]
pub struct ReferenceSpec {
    /// The C or Python file.
    pub source: PathBuf,
    /// The name of the reference function.
    pub function: String,
    /// Tolerance of every output.
    pub tolerance: Tolerance,
    /// Tolerance of outputs in formats of 16 bits, where it is another one.
    pub half_tolerance: Option<Tolerance>,
    /// A Python function of the same source that judges a result from the data and the result; the
    /// values are then not compared with those of `function`.
    pub checker: Option<String>,
    /// A slow, simple kernel that replaces the function at sizes where a CPU would take minutes.
    /// The function checks it at small sizes.
    pub device: Option<DeviceReference>,
}

/// A reference on the GPU, in the same source as the kernel itself.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceReference {
    /// The `__global__` function, which takes the same arguments; for a host entry, a function that
    /// takes the same `rgpu_case` and does its own launch.
    pub function: String,
    /// Launch shape of a `__global__` function.
    pub launch: Option<LaunchSpec>,
    /// Names of the cases at which the C function checks it.
    pub small: Vec<String>,
}

/// `[work]`: the least work that one launch needs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeclaredWork {
    /// Number of floating-point operations that the problem needs.
    pub flops: Option<Expr>,
    /// Number of bytes that the problem must move.
    pub bytes: Option<Expr>,
    /// Floating-point operations inside NVTX regions, by the region's name (`LLM@prefill`).
    pub regions: Vec<(String, Expr)>,
}

/// Extensions of files with compiled code.
pub(super) const COMPILED_EXTENSIONS: [&str; 3] = ["cubin", "fatbin", "ptx"];

/// The innermost name of a kernel without its template arguments: `matmul` of
/// `ns::matmul<float, 16>`.
pub fn plain_kernel_name(entry: &str) -> &str {
    let head = entry.split('<').next().unwrap_or(entry).trim();
    head.rsplit("::").next().unwrap_or(head)
}

impl KernelSpec {
    /// Name of the entry: the `__global__` function, `rgpu_launch`, or the Python callable.
    pub fn entry_name(&self) -> &str {
        match &self.entry {
            EntryPoint::Device(function) => function,
            EntryPoint::Host => "rgpu_launch",
            EntryPoint::Python(python) => &python.function,
        }
    }

    /// Whether the source is compiled code: a cubin, a fatbin, or PTX.
    pub fn is_compiled(&self) -> bool {
        let extension = self.source.extension().and_then(|extension| extension.to_str());
        self.language == "cuda" && extension.is_some_and(|e| COMPILED_EXTENSIONS.contains(&e))
    }

    /// Whether the entry is a Python callable.
    pub fn is_python(&self) -> bool {
        matches!(self.entry, EntryPoint::Python(_))
    }

    /// Every file of the user that a run of this kernel reads: kernel.toml, source, reference,
    /// data. Paths are absolute or relative, as they were found.
    pub fn files(&self) -> Vec<PathBuf> {
        let mut files: Vec<PathBuf> = self.file.iter().cloned().collect();
        files.push(self.source.clone());
        files.extend(self.reference.iter().map(|reference| reference.source.clone()));
        files.extend(self.extra_files.iter().cloned());
        files.extend(self.task.iter().flat_map(|task| &task.files).map(|(_, from)| from.clone()));
        files.extend(self.data_files().map(|(_, from)| from));
        files
    }

    /// The files named by `init = { file = … }`: path beside the runner input, and path on this
    /// machine.
    pub fn data_files(&self) -> impl Iterator<Item = (String, PathBuf)> + '_ {
        self.args.iter().filter_map(|arg| match &arg.init {
            Some(Init::File { path }) => Some((data_path(&arg.name, path), self.folder.join(path))),
            _ => None,
        })
    }
}

/// Path of an argument's data file beside the runner input.
pub(super) fn data_path(arg: &str, path: &str) -> String {
    let extension = Path::new(path).extension().and_then(|e| e.to_str()).unwrap_or("bin");
    format!("data/{arg}.{extension}")
}
