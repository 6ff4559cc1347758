#!/usr/bin/env python3
"""Compiles every CUDA kernel of kernels/ for each architecture with two generations of NVIDIA's compiler.

    tests/nvidia/compile.py NVIDIA13 NVIDIA12 OUT [ARCH ...]
        NVIDIA13  the folder `nvidia/cu13` of the wheels nvidia-cuda-nvcc, -crt, -runtime, -cccl, -nvvm, -nvtx
        NVIDIA12  the folder `nvidia` of nvidia-cuda-nvrtc-cu12==12.9.* and nvidia-cuda-nvcc-cu12==12.9.*

Writes OUT/13/NAME.ARCH.cubin and OUT/12/NAME.ARCH.cubin, beside each what the compiler's `-v` said (.log),
OUT/13/NAME.fatbin with every architecture's cubin and PTX, and for NAMEs of HOST a shared library, each with
OUT/12 through NVRTC; a file with host code, which NVRTC does not take, through the PTX of the newer compiler,
called PTX 8.8, and ptxas 12.9. Prints one JSON document: what was compiled, what was not and why.
"""
import concurrent.futures
import ctypes
import json
import os
import pathlib
import re
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
ARCHS = ["sm_80", "sm_90a", "sm_100a", "sm_103a", "sm_120"]
HOST = ("host-entry", "vecadd")


class Refused(Exception):
    """The compiler did not take it; says its first error."""


def run(argv):
    """What a compiler said."""
    done = subprocess.run([str(word) for word in argv], capture_output=True, text=True)
    said = done.stdout + done.stderr
    if done.returncode:
        errors = [line for line in said.splitlines() if re.search("error|fatal", line, re.I)]
        raise Refused((errors or said.splitlines() or ["no word"])[0][:200])
    return said


def kernels():
    """(name, source, flags) of each CUDA kernel."""
    for file in sorted(ROOT.glob("kernels/*/kernel.toml")):
        spec = tomllib.loads(file.read_text())
        if spec["language"] == "cuda":
            yield spec["name"], file.parent / spec["source"], spec.get("flags", [])


def nvcc(home, source, flags, arch, cubin):
    """A cubin and its PTX."""
    os.environ["CUDA_HOME"] = str(home)
    include = ["-I", ROOT / "harness/include"]
    whole = [home / "bin/nvcc", "-std=c++17", "-lineinfo", "-arch", arch, *include, *flags, source]
    run([*whole, "-ptx", "-o", cubin.with_suffix(".ptx")])
    return run([*whole, "-cubin", "-Xptxas", "-v", "-o", cubin])


def nvrtc(library, source, flags, arch, cubin):
    """A cubin by NVRTC, in a process of its own: `NVRTC_LIBRARY ...` below."""
    return run([sys.executable, __file__, "--nvrtc", library, source, cubin, f"-arch={arch}", *flags])


def compile_here(library, source, cubin, *options):
    """One call of NVRTC; its log is printed."""
    rtc = ctypes.CDLL(library)
    options = [*options, "-lineinfo", "-default-device", "--ptxas-options=-v"]
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    text = pathlib.Path(source).read_bytes()
    rtc.nvrtcCreateProgram(ctypes.byref(program), text, os.path.basename(source).encode(), 0, None, None)
    array = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    status = rtc.nvrtcCompileProgram(program, len(options), array)
    for what in ("ProgramLog", "CUBIN"):
        getattr(rtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
        data = ctypes.create_string_buffer(size.value)
        getattr(rtc, f"nvrtcGet{what}")(program, data)
        if what == "ProgramLog":
            print(data.value.decode())
            if status:
                return status
        else:
            pathlib.Path(cubin).write_bytes(data.raw[: size.value])
    return 0


def older(nvidia12, source, flags, arch, cubin, ptx):
    """A cubin by compiler 12.9, and which way it came."""
    library = next((nvidia12 / "cuda_nvrtc/lib").glob("libnvrtc.so.*"))
    if "#include" not in source.read_text():
        return "nvrtc", nvrtc(library, source, flags, arch, cubin)
    text, count = re.subn(r"(?m)^\.version \d+\.\d+", ".version 8.8", ptx.read_text(), count=1)
    lowered = cubin.with_suffix(".ptx")
    lowered.write_text(text)
    assert count == 1, ptx
    caps = [flag for flag in flags if "maxrregcount" in flag]
    assembler = nvidia12 / "cuda_nvcc/bin/ptxas"
    return "ptxas", run([assembler, "-v", "-lineinfo", "-arch", arch, *caps, lowered, "-o", cubin])


def one(home, nvidia12, out, kernel, arch):
    """Both generations of one kernel for one architecture: {"13": way or why not, "12": ...}."""
    name, source, flags = kernel
    result = {}
    files = {generation: out / generation / f"{name}.{arch}.cubin" for generation in ("13", "12")}
    for generation, cubin in files.items():
        try:
            if generation == "13":
                way, log = "nvcc", nvcc(home, source, flags, arch, cubin)
            else:
                ptx = files["13"].with_suffix(".ptx")
                way, log = older(nvidia12, source, flags, arch, cubin, ptx)
            cubin.with_suffix(".log").write_text(log)
            result[generation] = way
        except (Refused, FileNotFoundError) as error:
            result[generation] = f"not compiled: {error}"
    return name, arch, result


def containers(home, out, name, source, flags, archs):
    """A fatbin in three compressions, and for some kernels an object and a shared library."""
    images = []
    for arch in archs:
        number = arch.removeprefix("sm_")
        for kind, ending in (("elf", "cubin"), ("ptx", "ptx")):
            file = out / "13" / f"{name}.{arch}.{ending}"
            if file.exists():
                images.append(f"--image3=kind={kind},sm={number},file={file}")
    for mode in ("none", "speed", "size"):
        run([home / "bin/fatbinary", "-64", f"--compress-mode={mode}", *images,
             f"--create={out / '13' / f'{name}.{mode}.fatbin'}"])
    if name in HOST:
        codes = [f"-gencode=arch=compute_{a[3:]},code=[sm_{a[3:]},compute_{a[3:]}]" for a in archs]
        whole = [home / "bin/nvcc", "-std=c++17", *codes, "-I", ROOT / "harness/include",
                 *flags, "-Xcompiler", "-fPIC", source]
        run([*whole, "-c", "-o", out / "13" / f"{name}.o"])
        run([*whole, "-shared", f"-L{home / 'lib'}", "-o", out / "13" / f"{name}.so"])


def main(home, nvidia12, out, *archs):
    """Prints one JSON document."""
    home, nvidia12, out = (pathlib.Path(path).resolve() for path in (home, nvidia12, out))
    archs = archs or ARCHS
    for generation in ("13", "12"):
        (out / generation).mkdir(parents=True, exist_ok=True)
    found = list(kernels())
    table = {name: {} for name, *_ in found}
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(one, home, nvidia12, out, kernel, arch) for kernel in found for arch in archs]
        for job in jobs:
            name, arch, result = job.result()
            table[name][arch] = result
            print(name, arch, result, file=sys.stderr, flush=True)
    for name, source, flags in found:
        try:
            containers(home, out, name, source, flags, archs)
        except Refused as error:
            table[name]["containers"] = f"not made: {error}"
    print(json.dumps(table, indent=1))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--nvrtc"]:
        sys.exit(compile_here(*sys.argv[2:]))
    sys.exit(main(*sys.argv[1:]) if len(sys.argv) > 3 else __doc__)
