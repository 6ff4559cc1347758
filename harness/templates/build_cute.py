"""The CuTe DSL side of build_dsl.py.

The DSL compiles, writes its dumps, and only then loads the module, which needs a driver. Without
one, version 4.4 raises `CudaDriverDependencyError` at that point. The compilation is complete
nevertheless, and the kernel file continues with an object that cannot be launched.
"""

import glob
import json
import os
import shlex
import subprocess
import sys

DUMPS = "dumps"
LAYOUTS = "layouts.json"
LAYOUTS_SECONDS = 120


class NotLoaded:
    """A compiled function that was not loaded, because this machine has no driver. It has the same
    attributes as a loaded one, read from the dumps."""

    def __init__(self, paths):
        for path in paths:
            with open(path, "rb") as file:
                setattr(self, f"__{path.rsplit('.', 1)[1]}__", file.read())

    def __call__(self, *_, **__):
        raise RuntimeError("the kernel was compiled for another machine, and cannot be called here")


def prepare(build):
    job = build.job
    os.makedirs(DUMPS, exist_ok=True)
    settings = {
        "CUTE_DSL_ARCH": job["arch"],
        "CUTE_DSL_DUMP_DIR": os.path.abspath(DUMPS),
        "CUTE_DSL_KEEP_PTX": "1",
        "CUTE_DSL_KEEP_CUBIN": "1" if job["cubin"] else "0",
        # If compiling fails, the IR is the only output.
        "CUTE_DSL_KEEP_IR": "1",
        "CUTE_DSL_DISABLE_FILE_CACHING": "1",
        "CUTE_DSL_LINEINFO": "1",
        "CUTE_DSL_PRINT_IR": "1" if job["print_ir"] else "0",
    }
    if job["log_level"] is not None:
        settings |= {"CUTE_DSL_LOG_TO_CONSOLE": "1", "CUTE_DSL_LOG_LEVEL": str(job["log_level"])}
    os.environ.update(settings)
    options = list(job["options"])
    if job["opt_level"] is not None:
        options = ["--opt-level", str(job["opt_level"]), *options]
    build.record["options"] = options
    import cutlass
    from cutlass.base_dsl import compiler

    build.record["compiler"] = "nvidia-cutlass-dsl " + getattr(cutlass, "__version__", "")
    hook(build, compiler, options)


def hook(build, compiler, options):
    """Adds the options to every `cute.compile`, and accepts a compilation without a driver."""
    plain = compiler.CompileCallable._compile

    def compile(self, function, *args, **kwargs):
        given = kwargs.get("options")
        if options and (given is None or isinstance(given, str)):
            kwargs["options"] = " ".join([given or "", shlex.join(options)]).strip()
        before, had = products(), dumped()
        try:
            made = plain(self, function, *args, **kwargs)
        except Exception as error:
            if not for_want_of_a_driver(error) or products() == before:
                raise
            build.note("the compiled module was not loaded: this machine has no CUDA driver")
            made = NotLoaded(sorted(set(dumped()) - set(had)))
        build.objects.append(made)
        return made

    compiler.CompileCallable._compile = compile


def products():
    return [path for path in dumped() if not path.endswith(".mlir")]


def dumped():
    return sorted(path for kind in ("ptx", "cubin", "mlir") for path in glob.glob(f"{DUMPS}/*.{kind}"))


def for_want_of_a_driver(error):
    while error is not None:
        if type(error).__name__ == "CudaDriverDependencyError":
            return True
        error = getattr(error, "cause", None) or error.__cause__ or error.__context__
    return False


def compile_all(build, module):
    build.compile_kernel(module, lambda made: None)
    if not products():
        build.nothing()
    keep_layouts(build, module)


def keep_layouts(build, module):
    """Keeps the layouts of a block-scaled kernel whose constants name its tile and its scales."""
    import dump_layouts

    if not dump_layouts.names_its_layouts(module):
        return
    sizes = next((group for case in build.job["cases"] for group in case if len(group) == 4), None)
    job = {
        "file": build.job["file"], "out": os.path.abspath(LAYOUTS), "shape": sizes, "tile": None, "stages": None,
        "cta_group": 1, "load_columns": None, "probes": ["with_module_ip"], "try_tma_partition": False, "epilogue": True,
    }
    with open("layouts-job.json", "w", encoding="utf-8") as file:
        json.dump(job, file)
    try:
        subprocess.run([sys.executable, dump_layouts.__file__, "layouts-job.json"], check=True, timeout=LAYOUTS_SECONDS)
    except (OSError, subprocess.SubprocessError) as error:
        build.note(f"the layouts were not kept: {error}")


def collect(build):
    """Sorts the dumps by kind; a unit is the output of one compilation."""
    job = build.job
    files = sorted(glob.glob(f"{DUMPS}/*"), key=os.path.getmtime)
    units = {}
    for path in files:
        name = os.path.basename(path)
        if name.endswith(".mlir"):
            key = name.removeprefix("cute_dsl_").removesuffix(".mlir")
        else:
            key = name.rsplit(".", 2)[0]
        units.setdefault(key, []).append(path)
    failed = build.record["status"] != "ok"
    for key, paths in units.items():
        unit = {"function": key}
        for path in paths:
            extension = path.rsplit(".", 1)[1]
            kind = "ir" if extension == "mlir" else extension
            # A failed ptxas leaves an empty cubin.
            if kind not in ("ir", "ptx", "cubin") or not os.path.getsize(path):
                continue
            if kind == "ir" and not (job["keep_ir"] or failed):
                continue
            with open(path, "rb") as file:
                unit[kind] = build.keep(kind, f"{job['stem']}.{job['arch']}.{extension}", file.read())
        build.record["units"].append(unit)
