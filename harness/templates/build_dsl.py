"""build_dsl.py JOB: compiles the kernels of a Python file with no GPU.

JOB is a JSON file: dsl (`cute` or `triton`), file, stem, arch, cases (lists of tuples of sizes),
cubin, keep_ir, opt_level, options, log_level, print_ir. The compiled code goes to ptx/, cubin/ and
ir/ below the current folder, and a report to dsl.json. The file is imported; if it has a
`compile_kernel(problem_sizes)`, that is called once for each case. The exit status is 1 if anything
failed to compile; earlier output is kept, including the attributes of the compiled objects.
"""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import json
import os
import re
import sys
import traceback
import types

RECORD = "dsl.json"


class NothingCompiled(Exception):
    """The file requests no compilation."""


class Absent:
    """An attribute of a module that is not installed; usable only in annotations."""

    def __init__(self, name):
        self._name = name

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self._name}.{name}")

    def __getitem__(self, _):
        return self

    def __or__(self, _):
        return self

    __ror__ = __or__

    def __call__(self, *_, **__):
        module = self._name.split(".")[0]
        raise ModuleNotFoundError(f"`{self._name}` was called, and there is no module `{module}` here", name=module)


class AbsentModule(types.ModuleType):
    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return object if self.__name__ == "task" else Absent(f"{self.__name__}.{name}")


class StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Replaces modules that kernels import but compiling does not need, if they are not installed.
    Only for the user's own files: the DSL itself checks which modules exist."""

    NAMES = ("torch", "task")

    def __init__(self, folder):
        self.folder = os.path.abspath(folder)
        self.used = []

    def is_asked_by_user(self):
        frame = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename.startswith("<"):
            frame = frame.f_back
        return frame is not None and os.path.abspath(frame.f_code.co_filename).startswith(self.folder + os.sep)

    def find_spec(self, name, path=None, target=None):
        first = name.split(".")[0]
        if first not in self.NAMES or not (first in self.used or self.is_asked_by_user()):
            return None
        if first not in self.used:
            self.used.append(first)
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return AbsentModule(spec.name)

    def exec_module(self, module):
        pass


class Build:
    """The request and its results."""

    def __init__(self, job):
        self.job = job
        self.record = {"status": "ok", "compiler": "", "python": sys.version.split()[0], "units": [], "notes": [], "options": []}
        self.objects = []

    def keep(self, kind, name, data):
        """Writes one file; names never collide."""
        os.makedirs(kind, exist_ok=True)
        name = re.sub(r"[^A-Za-z0-9._-]", "_", name)[:120]
        base, dot, rest = name.partition(".")
        at, path = 1, os.path.join(kind, name)
        while os.path.exists(path):
            at += 1
            path = os.path.join(kind, f"{base}-{at}{dot}{rest}")
        with open(path, "wb") as file:
            file.write(data.encode() if isinstance(data, str) else bytes(data))
        return path

    def note(self, text):
        if text not in self.record["notes"]:
            self.record["notes"].append(text)

    def compile_kernel(self, module, take):
        """Calls the module's `compile_kernel` for each case; `take` gets the result."""
        function = getattr(module, "compile_kernel", None)
        if function is None:
            return False
        wants = len(inspect.signature(function).parameters)
        for case in self.job["cases"] or [[]]:
            take(function([tuple(group) for group in case]) if wants else function())
        return True

    def nothing(self):
        raise NothingCompiled(
            "nothing was compiled: the file has no `compile_kernel(problem_sizes)` that compiles, and importing it compiled nothing"
        )

    def attributes(self):
        """Attributes of compiled objects, to diagnose a failure."""
        for at, thing in enumerate(self.objects, 1):
            named = dict(getattr(thing, "asm", None) or {})
            for name in ("mlir", "ptx", "cubin"):
                value = getattr(thing, f"__{name}__", None)
                if value is not None:
                    named[name] = value if isinstance(value, (str, bytes)) else str(value)
            for name, value in named.items():
                if isinstance(value, (str, bytes)) and value:
                    self.keep("compiled_attrs", f"{at}.{name}", value)


def words(error):
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip()
    return text or type(error).__name__


def chain(error):
    """An error and its causes, the root cause first."""
    seen = []
    while error is not None and error not in seen:
        seen.append(error)
        error = getattr(error, "cause", None) or error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return [{"class": type(e).__name__, "message": words(e)} for e in reversed(seen)]


def users_traceback(error, folder):
    """The traceback of an error and its causes, with the frames of the user's files only."""
    whole = link = traceback.TracebackException.from_exception(error)
    scripts = ("build_dsl.py", "build_cute.py", "build_triton.py")
    while link is not None:
        frames = []
        for frame in link.stack:
            inner = os.path.relpath(frame.filename, folder).split(os.sep)
            is_ours = inner[-1] in scripts or frame.filename.startswith("<")
            if not is_ours and inner[0] != os.pardir and "site-packages" not in inner:
                frames.append(frame)
        link.stack = traceback.StackSummary.from_list(frames)
        link = link.__cause__ or link.__context__
    return "".join(whole.format())


def load(path):
    folder = os.path.dirname(path)
    sys.path.insert(0, folder)
    name = os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_file_location(re.sub(r"\W", "_", name), path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        build = Build(json.load(file))
    build.job["file"] = os.path.abspath(build.job["file"])
    sys.dont_write_bytecode = True
    stand_ins = StandIns(os.path.dirname(build.job["file"]))
    sys.meta_path.append(stand_ins)
    backend = importlib.import_module("build_" + build.job["dsl"])
    try:
        backend.prepare(build)
        backend.compile_all(build, load(build.job["file"]))
    except BaseException as error:  # a kernel may call sys.exit
        build.record["status"] = "failed"
        build.record["error"] = {
            "class": type(error).__name__,
            "message": words(error),
            "chain": chain(error),
            "traceback": re.sub(r"\x1b\[[0-9;]*m", "", traceback.format_exc()),
        }
        # A file that compiles nothing, and Ctrl-C, have no place in the code to show.
        if not isinstance(error, (NothingCompiled, KeyboardInterrupt)):
            print(users_traceback(error, os.path.dirname(build.job["file"])), end="", file=sys.stderr)
        print(f"build_dsl: {type(error).__name__}: {words(error).splitlines()[0]}", file=sys.stderr)
    try:
        backend.collect(build)
    finally:
        if build.record["status"] != "ok":
            build.attributes()
        for name in stand_ins.used:
            build.note(f"`{name}` is not in this environment: a stand-in was imported, good for annotations")
        with open(RECORD, "w", encoding="utf-8") as file:
            json.dump(build.record, file, indent=1)
    sys.stdout.flush()
    return 0 if build.record["status"] == "ok" else 1


if __name__ == "__main__":
    # This file and its backends must see the same classes.
    sys.modules["build_dsl"] = sys.modules["__main__"]
    sys.exit(main())
