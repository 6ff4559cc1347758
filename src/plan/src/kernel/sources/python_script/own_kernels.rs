//! The kernels that a Python file defines, by the names that profilers show.

use std::collections::BTreeSet;

use super::outline::{Outline, SourceText};
use crate::kernel::python_tokens::unescaped;
use crate::kernel::{cuda_source, is_identifier};

/// The most kernels of one program.
const MAX_KERNELS: usize = 200;

/// A way of defining a kernel by a decorator.
struct KernelDecorator {
    /// Full name of the decorator.
    name: &'static str,
    /// Name of the language.
    language: &'static str,
    /// What the language puts before the function's name.
    before: &'static str,
    /// What it puts behind it.
    after: &'static str,
}

const fn decorator(name: &'static str, language: &'static str) -> KernelDecorator {
    KernelDecorator { name, language, before: "", after: "" }
}

/// The decorators that make a kernel of a function.
const DECORATORS: &[KernelDecorator] = &[
    decorator("triton.jit", "Triton"),
    decorator("triton.runtime.jit", "Triton"),
    decorator("triton.runtime.jit.jit", "Triton"),
    decorator("triton.experimental.gluon.jit", "Gluon"),
    KernelDecorator { before: "kernel_cutlass_", ..decorator("cutlass.cute.kernel", "CuTe DSL") },
    KernelDecorator { before: "_helion_", ..decorator("helion.kernel", "Helion") },
    KernelDecorator { after: "_kernel", ..decorator("tilelang.language.prim_func", "TileLang") },
    decorator("numba.cuda.jit", "Numba"),
    decorator("cupyx.jit.rawkernel", "CuPy"),
    decorator("cupy.fuse", "CuPy"),
    decorator("warp.kernel", "Warp"),
];

/// Functions whose last string is the name of the kernel that they make.
const MAKERS: [(&str, &str); 3] = [
    ("cupy.ElementwiseKernel", "CuPy"),
    ("cupy.ReductionKernel", "CuPy"),
    ("cupy.RawKernel", "CuPy"),
];

/// The kernels of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct OwnKernels {
    /// Names as profilers show them, in their order.
    pub names: Vec<String>,
    /// The languages in which they are written.
    pub languages: BTreeSet<&'static str>,
}

impl OwnKernels {
    /// The kernels of the program's files. `cuda`: the texts of CUDA files that it compiles.
    pub(super) fn find(outlines: &[Outline<'_>], cuda: &[String]) -> Self {
        let mut found = Self::default();
        let is_launched =
            |name: &str| outlines.iter().any(|outline| outline.indexed.contains(name));
        for outline in outlines {
            found.take_functions(outline, is_launched);
            for (called, text) in &outline.calls {
                let maker = MAKERS.iter().find(|(name, _)| name == called);
                if let (Some((_, language)), Some(name)) = (maker, text) {
                    found.add((*name).to_owned(), language);
                }
            }
            for text in outline.texts.iter().filter(|text| text.text.contains("__global__")) {
                found.take_cuda(&cuda_text(text));
            }
        }
        for text in cuda {
            found.take_cuda(text);
        }
        found
    }

    /// Takes functions with a decorator. Functions that only kernels call have the same one: of
    /// those of one language, the launched ones are kernels, if any is seen to be launched.
    fn take_functions(&mut self, outline: &Outline<'_>, is_launched: impl Fn(&str) -> bool) {
        for kind in DECORATORS {
            let functions = outline.definitions.iter().filter(|definition| {
                let mut decorators = definition.decorators.iter();
                decorators.any(|own| own.name == kind.name && !own.is_for_device)
            });
            let names: Vec<&str> = functions.map(|definition| definition.name).collect();
            let launched: Vec<&str> =
                names.iter().copied().filter(|name| is_launched(name)).collect();
            for name in if launched.is_empty() { names } else { launched } {
                self.add(format!("{}{name}{}", kind.before, kind.after), kind.language);
            }
        }
    }

    /// Takes the `__global__` functions of a CUDA text.
    fn take_cuda(&mut self, text: &str) {
        for name in cuda_source::kernel_names(text) {
            self.add(name, "CUDA C++");
        }
    }

    fn add(&mut self, name: String, language: &'static str) {
        if is_identifier(&name) && self.names.len() < MAX_KERNELS && !self.names.contains(&name) {
            self.languages.insert(language);
            self.names.push(name);
        }
    }

    /// A pattern of ncu's `--kernel-name` for these kernels: what a compiler adds to a name begins
    /// with a character that is no letter and no digit.
    pub(super) fn pattern(&self) -> Option<String> {
        (!self.names.is_empty())
            .then(|| format!("regex:^({})([^A-Za-z0-9]|$)", self.names.join("|")))
    }
}

/// The CUDA text of a string. Computed parts stay in their braces.
pub(super) fn cuda_text(text: &SourceText<'_>) -> String {
    if text.has_escapes { unescaped(text.text) } else { text.text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> String {
        OwnKernels::find(&[Outline::read(text)], &[]).names.join(" ")
    }

    #[test]
    fn kernels_have_the_names_that_profilers_show() {
        for (text, found) in [
            ("import triton\n@triton.jit\ndef add(x): pass", "add"),
            ("import triton\n@triton.autotune(configs=[])\n@triton.jit\ndef add(x): pass", "add"),
            (
                "import triton\n@triton.jit\ndef helper(x): pass\n@triton.jit\ndef k(x): helper(x)\n\
                 def f(x):\n    k[(1,)](x)",
                "k",
            ),
            ("from triton.experimental import gluon\n@gluon.jit\ndef g(x): pass", "g"),
            (
                "import cutlass.cute as cute\nclass Gemm:\n    @cute.kernel\n    def kernel(self): pass",
                "kernel_cutlass_kernel",
            ),
            ("import helion\n@helion.kernel()\ndef add(x): pass", "_helion_add"),
            (
                "import tilelang.language as T\ndef make(n):\n    @T.prim_func\n    def main(a): pass",
                "main_kernel",
            ),
            ("from numba import cuda\n@cuda.jit\ndef a(x): pass", "a"),
            ("from numba import cuda\n@cuda.jit(device=True)\ndef a(x): pass", ""),
            ("import jax\n@jax.jit\ndef a(x): pass", ""),
            ("import cupy as cp\nk = cp.RawKernel(r'''__global__ void b(int n) {}''', 'b')", "b"),
            ("import cupy\nk = cupy.ElementwiseKernel('T x', 'T y', 'y = x', 'sq')", "sq"),
            ("src = '''\\n__global__ void c(int *x) {}\\n__global__ void d() {}'''", "c d"),
            ("src = f'''__global__ void e() {{ int n = {N}; }}'''", "e"),
            ("from cupyx import jit\n@jit.rawkernel()\ndef r(x): pass", "r"),
        ] {
            assert_eq!(names(text), found, "{text}");
        }
    }

    #[test]
    fn the_pattern_takes_what_compilers_add_to_names() {
        let kernels = OwnKernels::find(&[], &["__global__ void add() {}".to_owned()]);
        let pattern = kernels.pattern().unwrap();
        let regex = regex::Regex::new(&pattern["regex:".len()..]).unwrap();
        for name in ["add", "add_0d1d2d", "add[abi:v1,cw51cXTLSUwv1sCUt9Uw1VEw0NRRQ]"] {
            assert!(regex.is_match(name), "{name}");
        }
        for name in ["address", "vectorized_add", "add2"] {
            assert!(!regex.is_match(name), "{name}");
        }
        assert_eq!(OwnKernels::default().pattern(), None);
    }
}
