"""The Triton side of build_dsl.py.

`compile_kernel` may return an `ASTSource`, a tuple `(function, signature, constexprs[, options])`, a
list or dict of these, or compile by itself, with `triton.compile` or `function.warmup(…)`. Every
compilation is recorded, and made for the requested architecture.
"""

import glob
import os

DUMPS = "dumps"


class NoDriver:
    """Replaces Triton's driver on a machine without a GPU."""

    def __init__(self, target):
        self.target = target

    def get_current_target(self):
        return self.target

    def get_current_device(self):
        return 0

    def get_current_stream(self, _=None):
        return 0


def target_of(build):
    from triton.backends.compiler import GPUTarget

    arch = build.job["arch"]
    number = int(arch.removeprefix("sm_").rstrip("af"))
    made = f"sm_{number}" + ("a" if number >= 90 else "")
    if made != arch:
        build.note(f"Triton compiles for {made}, not {arch}")
    return GPUTarget("cuda", number, 32)


def prepare(build):
    job = build.job
    os.environ.update({
        "TRITON_CACHE_DIR": os.path.abspath("cache"),
        "TRITON_KERNEL_DUMP": "1",
        "TRITON_DUMP_DIR": os.path.abspath(DUMPS),
        "TRITON_ALWAYS_COMPILE": "1",
    })
    if job["print_ir"]:
        os.environ["MLIR_ENABLE_DUMP"] = "1"
    if job["log_level"] is not None:
        build.note("Triton has no log level: `--print-ir` shows what its passes do")
    options = list(job["options"])
    if job["opt_level"] is not None:
        options = ["--opt-level", str(job["opt_level"]), *options]
    if options:
        os.environ["PTXAS_OPTIONS"] = " ".join(options)
    build.record["options"] = options
    import triton

    build.record["compiler"] = "triton " + triton.__version__
    hook(build, triton)


def hook(build, triton):
    target = target_of(build)
    plain = triton.compiler.compile

    def compile(source, target=None, options=None, **kwargs):
        made = plain(source, target=build.target, options=options, **kwargs)
        build.objects.append(made)
        return made

    build.target = target
    build.compile = compile
    triton.compile = triton.compiler.compile = compile
    import triton.compiler.compiler as inner

    inner.compile = compile
    # Skipped: a separate tool would make this part for each kernel, and rgpu lists the cubin itself.
    inner.get_sass = lambda *_: ""
    triton.runtime.driver.set_active(NoDriver(target))
    if not build.job["cubin"]:
        from triton.backends.nvidia.compiler import CUDABackend

        CUDABackend.make_cubin = lambda *_: b""


def take(build, made):
    import triton
    from triton.compiler import ASTSource

    jit = triton.runtime.jit.JITFunction
    if isinstance(made, ASTSource):
        build.compile(made)
    elif isinstance(made, tuple) and made and isinstance(made[0], jit):
        function, signature, constexprs, *options = made
        signature = {**signature, **{name: "constexpr" for name in constexprs}}
        build.compile(ASTSource(function, signature, constexprs), options=options[0] if options else None)
    elif isinstance(made, (list, tuple)):
        for one in made:
            take(build, one)
    elif isinstance(made, dict):
        for one in made.values():
            take(build, one)


def compile_all(build, module):
    build.compile_kernel(module, lambda made: take(build, made))
    if not build.objects:
        build.nothing()


def collect(build):
    job = build.job
    name = lambda extension: f"{job['stem']}.{job['arch']}.{extension}"
    for made in build.objects:
        unit = {"function": made.metadata.name}
        for extension, text in made.asm.items():
            kind = extension if extension in ("ptx", "cubin") else "ir"
            if not text or extension == "source" or kind == "ir" and not job["keep_ir"]:
                continue
            unit.setdefault(kind, build.keep(kind, name(extension), text))
        build.record["units"].append(unit)
    if build.record["status"] == "ok":
        return
    whole = {made.hash for made in build.objects}
    for path in sorted(glob.glob(f"{DUMPS}/*/*"), key=os.path.getmtime):
        extension = path.rsplit(".", 1)[-1]
        kind = extension if extension in ("ptx", "cubin") else "ir"
        if os.path.basename(os.path.dirname(path)) in whole or kind == "cubin" or not os.path.getsize(path):
            continue
        with open(path, "rb") as file:
            build.keep(kind, name(extension), file.read())
