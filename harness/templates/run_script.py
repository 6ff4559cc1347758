"""run_script.py HOW SCRIPT [ARG ...]: runs a Python file that does nothing, or not all, by itself.

HOW is one of
    benchmarks  calls each benchmark of `triton.testing.perf_report` in SCRIPT for all its values, and prints
                what it returns
    tests       runs the tests in SCRIPT with pytest; further arguments are pytest's
    plots       runs a script that plots such benchmarks; without matplotlib or pandas it prints them
    notebook    runs a notebook that was exported as a script; lines for IPython are told and left out
SCRIPT sees the folder and the arguments that it would see if Python ran it.
"""

import builtins
import importlib.util
import inspect
import os
import runpy
import sys


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


def run_plots(script):
    os.environ.setdefault("MPLBACKEND", "Agg")
    lacking = [name for name in ("matplotlib", "pandas") if importlib.util.find_spec(name) is None]
    if lacking:
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
    ways = {"benchmarks": run_benchmarks, "tests": run_tests, "plots": run_plots, "notebook": run_notebook}
    return ways[how](script)


if __name__ == "__main__":
    sys.exit(main())
