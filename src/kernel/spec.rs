//! What `kernel.toml` says, checked: names resolved, expressions parsed, paths joined.

use std::path::{Path, PathBuf};

use rgpu_case::{Dtype, Init, Number, Role, Setting, Tolerance};

use super::Mode;
use super::expr::Expr;

/// A kernel as the user describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelSpec {
    /// Its name: letters, digits and `. _ -`, so that it can be part of a file name.
    pub name: String,
    /// Name of its language, a member of [`super::LANGUAGES`].
    pub language: &'static str,
    /// The folder that its paths are relative to.
    pub folder: PathBuf,
    /// The kernel.toml; `None` when the spec was inferred from a source.
    pub file: Option<PathBuf>,
    /// The source file.
    pub source: PathBuf,
    /// What is launched.
    pub entry: Entry,
    /// The mode when the user names none.
    pub mode: Option<Mode>,
    /// Architectures to compile for (`sm_90a`); empty: that of the GPU found.
    pub arch: Vec<String>,
    /// Compiler flags, for nvcc and NVRTC alike.
    pub flags: Vec<String>,
    /// Parameters, in the kernel's order.
    pub args: Vec<ArgSpec>,
    /// Launch shape of a device entry.
    pub launch: Option<LaunchSpec>,
    /// Problem sizes.
    pub sizes: Sizes,
    /// What outputs are compared with.
    pub reference: Option<ReferenceSpec>,
    /// What the problem needs at least.
    pub work: Work,
    /// Further files that the source reads when it runs.
    pub extra_files: Vec<PathBuf>,
    /// The model that a Python kernel runs.
    pub model: Option<ModelSpec>,
}

/// What is launched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A `__global__` function of this name.
    Device(String),
    /// The functions of the host-entry ABI (`harness/runner/include/rgpu.h`).
    Host,
    /// A Python callable.
    Python(PythonFunction),
}

/// A Python callable, and how the harness calls it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PythonFunction {
    /// Its name in the source.
    pub function: String,
    /// A callable that makes what the function takes as `model`.
    pub prepare: Option<String>,
    /// New data for every timed call.
    pub fresh: bool,
}

/// `[model]`: what a Python kernel's `prepare` builds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelSpec {
    /// Its name: that of the architecture, most often.
    pub name: String,
    /// Which of its kind.
    pub variant: String,
    /// The dtype of its weights, in torch's words.
    pub dtype: String,
    /// Further keys, which `prepare` takes as parameters of their names.
    pub settings: Vec<(String, Setting)>,
}

/// One parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct ArgSpec {
    /// An identifier.
    pub name: String,
    /// Element type.
    pub dtype: Dtype,
    /// What the kernel does with it.
    pub role: Role,
    /// Row-major extents; empty for a scalar.
    pub shape: Vec<Expr>,
    /// How it is filled. The path of [`Init::File`] is as written, relative to the folder.
    pub init: Option<Init>,
    /// The value of a scalar.
    pub value: Option<ScalarValue>,
}

/// The value of a scalar.
#[derive(Clone, Debug, PartialEq)]
pub enum ScalarValue {
    /// Depends on the sizes.
    Expr(Expr),
    /// A number as written.
    Number(Number),
}

/// Launch shape: one to three expressions each, for x, y, z.
#[derive(Clone, Debug, PartialEq)]
pub struct LaunchSpec {
    /// Blocks.
    pub grid: Vec<Expr>,
    /// Threads of a block.
    pub block: Vec<Expr>,
    /// Blocks of a cluster.
    pub cluster: Option<Vec<Expr>>,
    /// Dynamic shared memory of a block in bytes.
    pub shared: Option<Expr>,
}

/// `[sizes]`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sizes {
    /// The variables.
    pub vars: Vec<String>,
    /// Whether a case is a list of groups.
    pub groups: bool,
    /// Named cases in the order written.
    pub cases: Vec<NamedCase>,
    /// The case when the user asks for none; `None` when the kernel has no variables.
    pub default: Option<String>,
}

/// A named case: its groups, each with a value for every variable in the order of
/// [`Sizes::vars`]; one group unless [`Sizes::groups`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedCase {
    /// Its name, which is also that of its data set.
    pub name: String,
    /// The groups.
    pub groups: Vec<Vec<i64>>,
}

/// `[reference]`: a C function on host memory, or a Python callable beside a Python entry.
#[derive(Clone, Debug, PartialEq)]
pub struct ReferenceSpec {
    /// The C or Python file.
    pub source: PathBuf,
    /// The function.
    pub function: String,
    /// Tolerance of every output.
    pub tolerance: Tolerance,
    /// A slow, plain kernel that stands in for the function at sizes where a CPU would take
    /// minutes, and that the function checks at small ones.
    pub device: Option<DeviceReference>,
}

/// A reference on the GPU, in the same source as the kernel itself.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceReference {
    /// The `__global__` function that takes the same arguments; for a host entry, a function that
    /// takes the same `rgpu_case` and launches by itself.
    pub function: String,
    /// Launch shape of a `__global__` function.
    pub launch: Option<LaunchSpec>,
    /// The named cases at which the function checks it.
    pub small: Vec<String>,
}

/// `[work]`: what one launch needs at least.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Work {
    /// Floating-point operations.
    pub flops: Option<Expr>,
    /// Bytes moved.
    pub bytes: Option<Expr>,
    /// Floating-point operations inside NVTX regions, by the region's name (`LLM@prefill`).
    pub regions: Vec<(String, Expr)>,
}

impl KernelSpec {
    /// What the entry is called: the `__global__` name, or `rgpu_launch`.
    pub fn entry_name(&self) -> &str {
        match &self.entry {
            Entry::Device(function) => function,
            Entry::Host => "rgpu_launch",
            Entry::Python(python) => &python.function,
        }
    }

    /// Whether the entry is Python's.
    pub fn is_python(&self) -> bool {
        matches!(self.entry, Entry::Python(_))
    }

    /// Every file of the user that a run of this kernel reads, absolute or relative as found:
    /// source, reference, data.
    pub fn files(&self) -> Vec<PathBuf> {
        let mut files: Vec<PathBuf> = self.file.iter().cloned().collect();
        files.push(self.source.clone());
        files.extend(self.reference.iter().map(|reference| reference.source.clone()));
        files.extend(self.extra_files.iter().cloned());
        files.extend(self.data_files().map(|(_, from)| from));
        files
    }

    /// The files that `init = { file = … }` names: their path beside the Case, and where they are.
    pub fn data_files(&self) -> impl Iterator<Item = (String, PathBuf)> + '_ {
        self.args.iter().filter_map(|arg| match &arg.init {
            Some(Init::File { path }) => Some((data_path(&arg.name, path), self.folder.join(path))),
            _ => None,
        })
    }
}

/// Where the data file of an argument lies beside the Case.
pub(super) fn data_path(arg: &str, path: &str) -> String {
    let extension = Path::new(path).extension().and_then(|e| e.to_str()).unwrap_or("bin");
    format!("data/{arg}.{extension}")
}
