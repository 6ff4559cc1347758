"""run_script.py HOW SCRIPT [ARG ...]: runs a Python file that does nothing, or not all, by itself.

HOW is one of
    benchmarks  calls each benchmark of `triton.testing.perf_report` in SCRIPT for all its values, and prints
                what it returns
    tests       runs the tests in SCRIPT with pytest; further arguments are pytest's
    calls       calls the functions of SCRIPT that launch its kernels, with data that fit their parameters:
                the first form that they take, three times
    script      runs a script that measures with Triton or uses Numba: repeats of `do_bench` take a tenth of their time,
                benchmarks are printed where there is no matplotlib or pandas, and names that newer versions of
                NumPy dropped are there again for Numba
    notebook    runs a notebook that was exported as a script; lines for IPython are told and left out
SCRIPT sees the folder and the arguments that it would see if Python ran it.
"""

import ast
import builtins
import importlib.util
import inspect
import os
import runpy
import sys
import textwrap


def say(text):
    print("run_script: " + text, file=sys.stderr, flush=True)


def load(script):
    """The module of the script, which is not `__main__`."""
    name = os.path.splitext(os.path.basename(script))[0]
    if not name.isidentifier() or name in sys.modules:
        name = "script_" + "".join(c if c.isalnum() else "_" for c in name)
    spec = importlib.util.spec_from_file_location(name, script)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def shown(value):
    """A benchmark returns a number, or a median with its bounds."""
    if isinstance(value, (list, tuple)) and value:
        value = value[0]
    return f"{value:.6g}" if isinstance(value, (int, float)) else str(value)


def run_benchmark(name, mark, more=None):
    benchmarks = mark.benchmarks if isinstance(mark.benchmarks, (list, tuple)) else [mark.benchmarks]
    for bench in benchmarks:
        title = bench.plot_name or name
        print(f"{title} ({bench.ylabel or 'as it returns'})", flush=True)
        for x in bench.x_vals:
            values = list(x) if isinstance(x, (list, tuple)) else [x] * len(bench.x_names)
            where = dict(zip(bench.x_names, values))
            results = []
            for line, line_name in zip(bench.line_vals, bench.line_names or bench.line_vals):
                result = mark.fn(**where, **{bench.line_arg: line}, **bench.args, **(more or {}))
                results.append(f"{line_name} {shown(result)}")
            print("  " + " ".join(f"{k}={v}" for k, v in where.items()) + ": " + ", ".join(results), flush=True)


def run_benchmarks(script):
    module = load(script)
    found = 0
    for name, mark in list(vars(module).items()):
        if hasattr(mark, "benchmarks") and hasattr(mark, "fn") and callable(getattr(mark, "run", None)):
            run_benchmark(name, mark)
            found += 1
    if not found:
        say("there is no benchmark of `triton.testing.perf_report` in " + os.path.basename(script))
        return 1
    return 0


def call_tests(script):
    """Calls the tests that take no arguments, where there is no pytest."""
    found = 0
    for name, test in list(vars(load(script)).items()):
        if not name.startswith("test_") or not callable(test):
            continue
        try:
            inspect.signature(test).bind()
        except TypeError:
            say(f"left out: `{name}` takes arguments, which pytest would give: install pytest on the host")
            continue
        test()
        print(f"{name} passed", flush=True)
        found += 1
    return 0 if found else 1


def run_tests(script):
    try:
        import pytest
    except ImportError:
        return call_tests(script)
    # Nothing is written beside the script, and the first failure ends the run.
    return int(pytest.main(["-q", "-x", "-p", "no:cacheprovider", script, *sys.argv[1:]]))


# The forms of tensors that are tried, and the values of whole numbers for one, two, three and more of them.
FORMS = [((1024, 1024), "float32"), ((1 << 20,), "float32"), ((4, 16, 1024, 64), "float16"), ((1024, 1024), "float16"),
         ((8, 1024, 1024), "float32"), ((1 << 20,), "int32")]
NUMBERS = [1 << 20, 1024, 256, 64]
# Shapes of tensors of which only the number of dimensions is known.
SHAPES = {1: (1024,), 2: (1024, 1024), 3: (8, 1024, 1024), 4: (4, 16, 1024, 64)}
# Parameters that are vectors beside a matrix.
VECTORS = {"weight", "bias", "gamma", "beta", "w", "b"}


def launchers(script):
    """Names of the functions that launch a kernel: `kernel[grid](...)`."""
    with open(script, encoding="utf-8", errors="replace") as file:
        tree = ast.parse(file.read())
    is_launch = lambda node: isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript)
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and not node.decorator_list]
    return [node.name for node in functions if any(is_launch(inner) for inner in ast.walk(node))]


def kind_of(parameter):
    """What a parameter takes: `tensor`, `int`, `float`, `bool`, or none if it cannot be told."""
    note, name = str(parameter.annotation).lower(), parameter.name.lower()
    for word, kind in (("tensor", "tensor"), ("array", "tensor"), ("bool", "bool"), ("int", "int"), ("float", "float")):
        if word in note:
            return kind
    if parameter.annotation is not parameter.empty:
        return None
    if name in ("eps", "epsilon", "scale", "alpha", "p", "sm_scale", "momentum"):
        return "float"
    is_number = name in ("m", "n", "k", "size", "length", "n_elements", "rows", "cols") or name.startswith(("num_", "n_"))
    return "int" if is_number or parameter.name in ("M", "N", "K", "B", "H", "D", "T", "C") else "tensor"


def dimensions(function):
    """The dimensions of parameters, as far as the function's text has them: by `a, b = x.shape` or `x.size()`,
    else at least as many as the largest index of `x.shape[1]`, `x.size(1)` or `x.stride(1)`."""
    exact, least = {}, {}
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return {}

    def reads(node, members):
        is_member = isinstance(node, ast.Attribute) and node.attr in members
        return node.value.id if is_member and isinstance(node.value, ast.Name) else None

    def note_index(name, index):
        try:
            at = ast.literal_eval(index)
        except ValueError:
            return
        if name and type(at) is int:
            least[name] = max(least.get(name, 1), at + 1 if at >= 0 else -at)

    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], (ast.Tuple, ast.List)):
            parts = node.targets[0].elts
            is_size = isinstance(node.value, ast.Call) and not node.value.args
            name = reads(node.value.func, ("size",)) if is_size else reads(node.value, ("shape",))
            if name and not any(isinstance(part, ast.Starred) for part in parts):
                exact[name] = len(parts)
        elif isinstance(node, ast.Subscript):
            note_index(reads(node.value, ("shape",)), node.slice)
        elif isinstance(node, ast.Call) and len(node.args) == 1:
            note_index(reads(node.func, ("size", "stride")), node.args[0])
    return {**least, **exact}


def arguments(required, shape, dtype, known):
    """Values for parameters, by name. With whole numbers a tensor is as large as their product, so that no
    kernel reads beyond it. `known`: the dimensions of parameters; other shapes stay."""
    import torch

    kinds = {p.name: kind_of(p) for p in required}
    numbers = [name for name, kind in kinds.items() if kind == "int"]
    number = NUMBERS[min(len(numbers), len(NUMBERS)) - 1] if numbers else 0
    if numbers:
        shape = (number ** len(numbers),) if len(shape) == 1 else None
    if shape is None:
        return None
    values = {}
    for name, kind in kinds.items():
        if kind == "tensor":
            own = shape[-1:] if name.lower() in VECTORS and len(shape) > 1 else shape
            if not numbers and known.get(name, len(own)) != len(own):
                own = SHAPES.get(known[name], own)
            real = torch.rand(own, device="cuda")
            values[name] = (real * 100).to(torch.int32) if dtype == "int32" else real.to(getattr(torch, dtype))
        else:
            values[name] = {"int": number, "float": 1e-5 if name.startswith("eps") else 1.0, "bool": False}[kind]
    return values


def in_words(values):
    return ", ".join(f"{name}={'x'.join(map(str, v.shape))} {str(v.dtype)[6:]}" if hasattr(v, "shape") else f"{name}={v}"
                     for name, v in values.items())


def call_one(name, function):
    """Calls a function in the first form that it takes. Whether it took one."""
    import torch

    parameters = inspect.signature(function).parameters.values()
    required = [p for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY, p.POSITIONAL_ONLY)]
    unknown = [p.name for p in required if kind_of(p) is None]
    if unknown:
        say(f"`{name}` is not called: what `{unknown[0]}` takes cannot be told")
        return False
    first, known = None, dimensions(function)
    for shape, dtype in FORMS:
        values = arguments(required, shape, dtype, known)
        if values is None:
            continue
        try:
            for _ in range(3):
                function(*values.values())
            torch.cuda.synchronize()
        except Exception as error:
            first = first or f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:300]}"
            if "CUDA error" in str(error) or "illegal memory" in str(error):
                say(f"`{name}({in_words(values)})` ends with {first}")
                raise
            continue
        print(f"called {name}({in_words(values)})", flush=True)
        return True
    say(f"`{name}` takes none of the forms that were tried: {first}")
    return False


def run_calls(script):
    module = load(script)
    called = [call_one(name, getattr(module, name)) for name in launchers(script) if callable(getattr(module, name, None))]
    if not any(called):
        say("nothing was called: write a call with its inputs at the end of the file")
        return 1
    return 0


# Milliseconds of `triton.testing.do_bench` for warming up and for measuring: a profile needs few calls.
WARMUP_MS, REPEAT_MS = 5, 10
# Names that NumPy dropped and that Numba of the time before looks up.
DROPPED_NAMES = {"row_stack": "vstack", "in1d": "isin", "trapz": "trapezoid"}


def shorten_benchmarks():
    """Lets Triton's benchmarks and its autotuner repeat calls for a shorter time."""
    try:
        import triton.testing
    except ImportError:
        return
    original = getattr(triton.testing, "do_bench", None)
    if original is None:
        return

    def do_bench(fn, warmup=25, rep=100, **options):
        return original(fn, warmup=min(warmup, WARMUP_MS), rep=min(rep, REPEAT_MS), **options)

    triton.testing.do_bench = do_bench


def give_back_names():
    """Gives NumPy the names that it dropped, if there is a Numba that may need them."""
    if importlib.util.find_spec("numba") is None:
        return
    import numpy

    for name, now in DROPPED_NAMES.items():
        if not hasattr(numpy, name) and hasattr(numpy, now):
            setattr(numpy, name, getattr(numpy, now))


def run_as_script(script):
    give_back_names()
    shorten_benchmarks()
    os.environ.setdefault("MPLBACKEND", "Agg")
    lacking = [name for name in ("matplotlib", "pandas") if importlib.util.find_spec(name) is None]
    if lacking and importlib.util.find_spec("triton") is not None:
        import triton.testing

        own = ("show_plots", "print_data", "save_path", "return_df", "diff_col")

        def run(self, *_, **options):
            more = {name: value for name, value in options.items() if name not in own}
            run_benchmark(getattr(self.fn, "__name__", "benchmark"), self, more)

        say("the host has no " + " and no ".join(lacking) + ": benchmarks are printed and not plotted")
        triton.testing.Mark.run = run
    runpy.run_path(script, run_name="__main__")
    return 0


class Shell:
    """What an exported notebook calls in place of IPython."""

    def __getattr__(self, name):
        def left_out(*words, **_):
            line = " ".join(str(word).splitlines()[0] for word in words if str(word).strip())
            say(f"left out: {line or name}")

        return left_out


def run_notebook(script):
    builtins.get_ipython = Shell
    builtins.display = print
    runpy.run_path(script, run_name="__main__")
    return 0


def main():
    how, script = sys.argv[1:3]
    script = os.path.abspath(script)
    sys.argv[:] = [script, *sys.argv[3:]]
    sys.path[0] = os.path.dirname(script)
    ways = {"benchmarks": run_benchmarks, "tests": run_tests, "calls": run_calls, "script": run_as_script, "notebook": run_notebook}
    return ways[how](script)


if __name__ == "__main__":
    sys.exit(main())
