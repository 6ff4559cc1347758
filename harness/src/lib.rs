//! The files that rgpu sends to a GPU host beside its own programs: scripts, the parts of the
//! Python harness, the header of host entries, and the prelude of snippets.

/// The header that host entries include.
pub const RGPU_H: &str = include_str!("../include/rgpu.h");
/// Compiles a file of a Python DSL on the host.
pub const BUILD_DSL: &str = include_str!("../templates/build_dsl.py");
/// The part of `BUILD_DSL` for CuTe DSL.
pub const BUILD_CUTE: &str = include_str!("../templates/build_cute.py");
/// The part of `BUILD_DSL` for Triton.
pub const BUILD_TRITON: &str = include_str!("../templates/build_triton.py");
/// Writes the layouts of a CuTe DSL kernel.
pub const DUMP_LAYOUTS: &str = include_str!("../templates/dump_layouts.py");
/// Times collectives between the GPUs of a host.
pub const COLLECTIVES: &str = include_str!("../templates/collectives.py");
/// Builds the program of a folder with CMake or make.
pub const BUILD_PROGRAM: &str = include_str!("../templates/build_program.sh");
/// Keeps the output of a compiler under a key.
pub const COMPILE_ONCE: &str = include_str!("../templates/compile_once.sh");
/// Fetches and unpacks a tool on the host.
pub const HOST_TOOL: &str = include_str!("../templates/host_tool.sh");
/// Makes the links of mounted files, and removes them again.
pub const MOUNTED: &str = include_str!("../templates/mounted.sh");
/// Finds a Python environment; otherwise it runs `PYTHON_ENV_MAKE`.
pub const PYTHON_ENV_FIND: &str = include_str!("../templates/python_env.sh");
/// Makes a Python environment.
pub const PYTHON_ENV_MAKE: &str = include_str!("../templates/python_env.py");
/// Runs a Python file that does not run well by itself: benchmarks, tests, a notebook.
pub const RUN_SCRIPT: &str = include_str!("../templates/run_script.py");
/// The stand-in for the module `task`.
pub const TASK: &str = include_str!("../templates/task.py");
/// Starts torch's profiler in a program.
pub const TORCH_HOOK: &str = include_str!("../templates/torch_hook/sitecustomize.py");
/// Unpacks a tool from its wheel.
pub const WHEEL_TOOL: &str = include_str!("../templates/wheel_tool.py");

/// The parts of the Python harness, in the order in which they make one file.
pub const PYTHON_HARNESS: [&str; 15] = [
    include_str!("../templates/harness/head.py"),
    include_str!("../templates/harness/ranges.py"),
    include_str!("../templates/harness/data.py"),
    include_str!("../templates/harness/tree.py"),
    include_str!("../templates/harness/comparison.py"),
    include_str!("../templates/harness/made.py"),
    include_str!("../templates/harness/stand_ins.py"),
    include_str!("../templates/harness/kernel.py"),
    include_str!("../templates/harness/statistics.py"),
    include_str!("../templates/harness/author.py"),
    include_str!("../templates/harness/cage.py"),
    include_str!("../templates/harness/candidate.py"),
    include_str!("../templates/harness/judge.py"),
    include_str!("../templates/harness/board.py"),
    include_str!("../templates/harness/jobs.py"),
];

/// The files of the package that a snippet is compiled with, by their paths in it.
pub const PRELUDE: &[(&str, &str)] = &[
    ("Cargo.toml", include_str!("../prelude/snippet.toml")),
    ("src/lib.rs", include_str!("../prelude/src/lib.rs")),
    ("src/gpu.rs", include_str!("../prelude/src/gpu.rs")),
    ("src/nvtx.rs", include_str!("../prelude/src/nvtx.rs")),
];

/// The lock file with pinned versions of the prelude's dependencies.
pub const PRELUDE_LOCK: &str = include_str!("../prelude/snippet.lock");
