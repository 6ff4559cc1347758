//! The outline of small files.

use super::*;

fn acts(text: &str) -> bool {
    Outline::read(text).acts
}

#[test]
fn a_file_acts_if_running_it_does_more_than_define_and_set_up() {
    for text in [
        "def f(): pass\nf()",
        "def f(x): return x\ny = f(1)",
        "import torch\nprint(torch.__version__)",
        "k = cp.RawKernel(code, 'k')\nk((1,), (1,), (x,))",
        "for i in range(3): pass",
        "@triton.jit\ndef k(): pass\nk[(1,)](x)",
        "@triton.testing.perf_report(b)\ndef bench(n): pass\nbench.run(print_data=True)",
        "def f(x): return x\nassert torch.allclose(f(a), b)",
        "if True:\n    main()",
        "model.train()",
        "x = (\n  1,\n)\nmain(\n  x,\n)",
    ] {
        assert!(acts(text), "{text}");
    }
    for text in [
        "import torch\nDEVICE = torch.device('cuda')\ntorch.manual_seed(0)",
        "def f(): pass\ndef g():\n    f()\n    print(1)",
        "class A:\n    def f(self):\n        print(1)\n    x = 3",
        "sys.path.append('x')\nos.environ['A'] = 'b'\nwarnings.filterwarnings('ignore')",
        "ext = load_inline('x', cuda_sources=code)",
        "@triton.jit\ndef k(\n    x,\n    y,\n):\n    tl.store(x)\n",
        "'''text\nmain()\n'''\n# main()",
        "configs = [triton.Config({'A': 1})]",
        "torch.backends.cuda.matmul.allow_tf32 = True",
        "",
    ] {
        assert!(!acts(text), "{text}");
    }
}

#[test]
fn decorators_have_the_names_of_their_modules() {
    let text = "import triton as tr\nfrom numba import cuda\nimport cutlass.cute as cute\n\
                from triton import jit\nfrom triton.testing import (perf_report, Benchmark as B)\n\
                @tr.jit\ndef a(): pass\n@cuda.jit(device=True)\ndef b(): pass\n\
                class G:\n    @cute.kernel\n    def c(self): pass\n@jit\ndef d(): pass\n\
                @perf_report(\n  B())\ndef e(n, provider='x'): pass";
    let outline = Outline::read(text);
    let found: Vec<String> = outline
        .definitions
        .iter()
        .map(|d| {
            let names: Vec<&str> = d.decorators.iter().map(|d| d.name.as_str()).collect();
            format!("{}:{}", d.name, names.join("+"))
        })
        .collect();
    let expected = [
        "a:triton.jit",
        "b:numba.cuda.jit",
        "G:",
        "c:cutlass.cute.kernel",
        "d:triton.jit",
        "e:triton.testing.perf_report",
    ];
    assert_eq!(found, expected);
    assert!(outline.definitions[1].decorators[0].is_for_device);
    assert_eq!(outline.definitions[5].required, ["n"]);
}

#[test]
fn names_of_calls_and_launches_are_found() {
    let text = "import cupy as cp\nadd = cp.ElementwiseKernel('T x', 'T y', 'y = x', 'add_one', preamble='int f();')\n\
                def f(x):\n    grid = lambda m: (cdiv(n, m['B']),)\n    k[grid](x, x[0])\n";
    let outline = Outline::read(text);
    let call = outline.calls.iter().find(|(name, _)| name == "cupy.ElementwiseKernel");
    assert_eq!(call.and_then(|(_, text)| *text), Some("add_one"));
    assert_eq!(outline.indexed.iter().copied().collect::<Vec<_>>(), ["k"]);
    let f = outline.definitions.iter().find(|d| d.name == "f").unwrap();
    assert_eq!(f.indexed.len(), 1);
}

#[test]
fn texts_of_cuda_have_their_lines() {
    let outline = Outline::read("a = 1\nb = r'''\n__global__ void k() {}\n'''\n");
    let text = outline.texts.iter().find(|text| text.text.contains("__global__")).unwrap();
    assert_eq!((text.line, text.has_escapes, text.is_computed), (2, false, false));
}

proptest::proptest! {
    #[test]
    fn no_text_panics(text in "[a-z @.'\"\\\\\n(){}=,:#é\\[\\]]{0,200}") {
        Outline::read(&text);
        Outline::read(&format!("@{text}\ndef {text}({text}\n  x[{text}"));
    }
}

#[test]
fn repeated_beginnings_take_linear_time() {
    for part in ["open(", "a[", "f(a[0](", "x = f('a', ", "def f(", "(a, "] {
        let text = format!("f = 1\nif __name__ == '__main__':\n    {}", part.repeat(200_000));
        let started = std::time::Instant::now();
        Outline::read(&text);
        let seconds = started.elapsed().as_secs();
        assert!(seconds < 15, "`{part}` took {seconds} s");
    }
}
