//! Whether a frame is of the user's own code.

use std::collections::HashSet;

use rgpu_model::trace::CodeFrame;

/// Parts of paths that only packages and Python itself have.
const NOT_OWN: &[&str] = &[
    "/site-packages/",
    "/dist-packages/",
    "/lib/python",
    "/lib64/python",
    "/Lib/",
    // Code that torch and Triton generate.
    "/torchinductor_",
    "/.triton/",
];

/// Packages that are often used from a folder of sources, with what their users call.
const NOT_OWN_IN_SOURCES: &[&str] = &[
    "/torch/nn/",
    "/torch/optim/",
    "/torch/autograd/",
    "/torch/utils/",
    "/torch/cuda/",
    "/torch/_",
    "/torch/functional.py",
    "/torch/distributed/",
    "/torch/fx/",
    "/torch/amp/",
    "/jax/_src/",
    "/jaxlib/",
    "/cupy/_",
    "/numba/cuda/",
    "/triton/runtime/",
    "/triton/backends/",
];

/// Files of rgpu's own that run in the user's process.
const OURS: &[&str] = &["sitecustomize.py"];

/// Folders of libraries and tools.
const SYSTEM_FOLDERS: &[&str] =
    &["/usr/", "/lib/", "/lib64/", "/bin/", "/sbin/", "/opt/nvidia/", "/opt/cuda", "/opt/conda/"];

/// Beginnings of names of libraries, wherever they are.
const LIBRARIES: &[&str] = &[
    "ld-linux",
    "libc.so",
    "libc10",
    "libcu",
    "libgcc",
    "libm.so",
    "libnccl",
    "libnv",
    "libpthread",
    "libpython",
    "libstdc++",
    "libtorch",
    "libToolsInjection",
    "python",
];

/// Beginnings of functions that CUDA, compilers and templates put into the user's own executable.
const NOT_OWN_FUNCTIONS: &[&str] = &[
    "_start",
    "__",
    "std::",
    "thrust::",
    "cub::",
    "cuda::",
    "cudart::",
    "cudaLaunch",
    "libcudart_static",
    "start_thread",
    "clone",
];

/// Whether a frame is the user's own. `kernels` are the plain names of the trace's kernels.
pub(super) fn is_own(frame: &CodeFrame, kernels: &HashSet<&str>) -> bool {
    if frame.is_python {
        return is_own_python(&frame.file);
    }
    let file = frame.file.replace('\\', "/");
    let name = file.rsplit('/').next().unwrap_or_default();
    let function = plain_function(&frame.function);
    let is_system = SYSTEM_FOLDERS.iter().any(|folder| file.starts_with(folder))
        || NOT_OWN.iter().any(|part| file.contains(part))
        || LIBRARIES.iter().any(|start| name.starts_with(start));
    // A symbol that was not resolved is an address, and pages without a file are `[vdso]` and such.
    let has_name = !function.is_empty()
        && !function.starts_with("0x")
        && !name.is_empty()
        && !name.starts_with('[');
    has_name
        && !is_system
        && !NOT_OWN_FUNCTIONS.iter().any(|start| function.starts_with(start))
        && !is_call_of_cuda(function)
        && !kernels.contains(function)
}

fn is_own_python(file: &str) -> bool {
    let file = file.replace('\\', "/");
    let name = file.rsplit('/').next().unwrap_or_default();
    // `<frozen importlib._bootstrap>`, `<string>` of generated code, `<eval_with_key>.0`.
    !name.is_empty()
        && !file.starts_with('<')
        && !name.starts_with('<')
        && !NOT_OWN.iter().chain(NOT_OWN_IN_SOURCES).any(|part| file.contains(part))
        && !OURS.contains(&name)
}

/// `cudaMalloc`, `cuLaunchKernel`: calls of the runtime that is linked into the executable.
fn is_call_of_cuda(function: &str) -> bool {
    ["cuda", "cu"].iter().any(|start| {
        let rest = function.strip_prefix(start).unwrap_or_default();
        rest.starts_with(|first: char| first.is_ascii_uppercase())
    })
}

/// Whether a native function launches a kernel for the one that called it, which is a stub then.
pub(super) fn launches(function: &str) -> bool {
    function.contains("cudaLaunchKernel") || function.starts_with("__device_stub")
}

/// The name of a function or kernel without its result, parameters and arguments: `void
/// step<float>(int)` is `step`.
pub(super) fn plain_function(name: &str) -> &str {
    let name = name.strip_prefix("void ").unwrap_or(name);
    // `(anonymous namespace)::f` begins with a bracket.
    let at = name.match_indices(['(', '<']).map(|(at, _)| at).find(|at| {
        let rest = name.get(*at..).unwrap_or_default();
        let is_namespace = rest.starts_with("(anonymous") || rest.starts_with("<unnamed>");
        *at > 0 && !is_namespace
    });
    name.get(..at.unwrap_or(name.len())).unwrap_or(name).trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn native(file: &str, function: &str) -> bool {
        let frame = CodeFrame {
            file: file.into(),
            line: None,
            function: function.into(),
            is_python: false,
        };
        is_own(&frame, &HashSet::from(["hop"]))
    }

    #[test]
    fn packages_python_and_generated_code_are_not_the_users() {
        let own = [
            "/root/project/train.py",
            "/root/project/lib/model.py",
            "/home/me/torch/train.py",
            "train.py",
            "/tmp/ipykernel_71/2718.py",
        ];
        let others = [
            "/opt/torch/.venv/lib/python3.12/site-packages/torch/nn/modules/linear.py",
            "/usr/lib/python3/dist-packages/numpy/core.py",
            "/usr/lib/python3.12/contextlib.py",
            "/opt/pytorch/torch/nn/functional.py",
            "<frozen importlib._bootstrap>",
            "<string>",
            "<eval_with_key>.4",
            "/tmp/torchinductor_root/ab/cabc.py",
            "/job/sitecustomize.py",
            "",
        ];
        own.iter().for_each(|file| assert!(is_own_python(file), "{file}"));
        others.iter().for_each(|file| assert!(!is_own_python(file), "{file}"));
    }

    #[test]
    fn stubs_of_kernels_libraries_and_addresses_are_not_the_users() {
        assert!(native("/root/project/build/hops", "record(Chain const&)"));
        assert!(native("/root/project/build/hops", "main"));
        assert!(native("/root/project/libsolver.so", "(anonymous namespace)::solve<float>(int)"));
        let others = [
            ("/root/project/hops", "hop(float const*, float*, int)"),
            ("/root/project/hops", "__device_stub__Z3hopPKfPfi(float const*, float*, int)"),
            ("/root/project/hops", "cudaError cudaLaunchKernel<char>(char const*, dim3)"),
            ("/root/project/hops", "cudaMemcpyAsync"),
            ("/root/project/hops", "0x55d0c0ffee"),
            ("/root/project/hops", "_start"),
            ("/usr/lib/x86_64-linux-gnu/libc.so.6", "__libc_start_main"),
            ("/root/.venv/bin/python3.12", "_PyEval_EvalFrameDefault"),
            ("/somewhere/libtorch_cuda.so", "at::native::add()"),
            ("[vdso]", "clock_gettime"),
        ];
        for (file, function) in others {
            assert!(!native(file, function), "{function} of {file}");
        }
    }

    #[test]
    fn names_lose_results_types_and_arguments() {
        let names =
            ["void step<float>(int)", "hop(const float *)", "(anonymous namespace)::f(int)"];
        assert_eq!(names.map(plain_function), ["step", "hop", "(anonymous namespace)::f"]);
    }
}
