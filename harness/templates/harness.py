"""The harness of one Python kernel, made by rgpu: fills its inputs, runs it, times it, checks it.

    python3 harness.py JOB [options]      in a folder that has the kernel's sources under src/

  verify   two calls on the same data, each into poisoned outputs, compared with the reference
  time     calls timed one by one, L2 overwritten before each, every output compared on the device
  once     warm up, then call once per data set inside the range `timed`: what tools look at
  torch    the same under torch.profiler; its trace goes to --trace FILE
  cpu      verify and time on the CPU (Triton kernels in Triton's interpreter)

  --out FILE     the report, as JSON; there from the start, replaced as the job goes on
  --ranges FILE  a log of the ranges, as JSON lines
  --host-clock   time with the host's clock in place of CUDA events
  --strict       end before any timing where the GPU is held back
  --warmup N     in place of the Case's own

CASE says what to call with what. Inputs depend on the seed alone and are those that rgpu's own
runner makes (an element of `normal` may differ in its last bit). NVTX ranges: domain `rgpu`, the
phase (`setup`, `warmup`, `verify`, `timed`), inside it the data set. The kernel's own ranges:

    from rgpu_harness import region
    with region("prefill", domain="LLM"): ...
"""

import argparse
import contextlib
import ctypes
import glob
import importlib.util
import inspect
import json
import math
import os
import sys
import time
import traceback
import types

CASE = {}  # rgpu puts the kernel's Case here

ABI = 1
HERE = os.path.dirname(os.path.abspath(__file__))
TIMING = CASE.get("timing", {})
ENTRY = CASE.get("entry", {}).get("python", {})
REFERENCE = (CASE.get("reference") or {}).get("python")
SEED = CASE.get("seed", 0)
# Seeds of fresh data are this far apart, as in the popcorn harness.
SEED_STEP = 42
# Calls of one data set under torch.profiler.
TRACED_CALLS = 3

# Exit statuses by the class of the failure, as the runner has them.
STATUS = {
    "wrong_result": 1, "usage": 2, "bad_case": 3, "missing_file": 3, "no_driver": 4, "load": 5,
    "launch": 6, "out_of_memory": 6, "illegal_access": 7, "crash": 7, "host_entry": 8,
    "reference": 9, "host_unfit": 11, "cuda": 12, "output": 13, "compile": 14, "internal": 70,
}


class Fault(Exception):
    """Ends the job: a class of STATUS, and one sentence."""

    def __init__(self, kind, text):
        super().__init__(text)
        self.kind, self.text = kind, text


def options():
    parser = argparse.ArgumentParser(usage="harness.py JOB [options]", add_help=False)
    parser.add_argument("job", choices=["verify", "time", "once", "torch", "cpu"])
    for name in ("--out", "--ranges", "--trace"):
        parser.add_argument(name)
    for name in ("--host-clock", "--strict"):
        parser.add_argument(name, action="store_true")
    parser.add_argument("--warmup", type=int, default=TIMING.get("warmup", 5))
    if "-h" in sys.argv or "--help" in sys.argv:
        print(__doc__)
        sys.exit(0)
    return parser.parse_args()


# --- ranges and report -------------------------------------------------------------------------


class Attributes(ctypes.Structure):
    """nvtxEventAttributes_t, versions 2 and 3."""

    _fields_ = [
        ("version", ctypes.c_uint16), ("size", ctypes.c_uint16), ("category", ctypes.c_uint32),
        ("color_type", ctypes.c_int32), ("color", ctypes.c_uint32),
        ("payload_type", ctypes.c_int32), ("reserved", ctypes.c_int32),
        ("payload", ctypes.c_uint64), ("message_type", ctypes.c_int32), ("message", ctypes.c_char_p),
    ]


def nvtx_library():
    """The library that has NVTX's functions: torch's wheels and the toolkit bring one."""
    folders = [os.path.join(path, "nvidia", "*", "lib") for path in sys.path if path]
    folders += ["/usr/local/cuda/lib64", "/usr/local/cuda/targets/*/lib", "/usr/lib/x86_64-linux-gnu"]
    for name in ("libnvtx3interop.so*", "libnvToolsExt.so*"):
        for path in [p for folder in folders for p in sorted(glob.glob(os.path.join(folder, name)))]:
            with contextlib.suppress(OSError, AttributeError):
                library = ctypes.CDLL(path)
                library.nvtxDomainCreateA.restype = ctypes.c_void_p
                library.nvtxDomainRangePushEx.argtypes = [ctypes.c_void_p, ctypes.POINTER(Attributes)]
                library.nvtxDomainRangePop.argtypes = [ctypes.c_void_p]
                return library
    return None


class Ranges:
    """Opens ranges: for tools by NVTX, in torch's own trace, and in a log."""

    def __init__(self, log):
        self.log = open(log, "w", encoding="utf-8") if log else None  # closed with the process
        self.nvtx, self.domains, self.stack, self.annotate = nvtx_library(), {}, [], False
        self.begin = time.time_ns() - time.perf_counter_ns()
        self.line({"rgpu_ranges": 1, "clock": "unix_ns", "pid": os.getpid()})

    def line(self, what):
        if self.log:
            print(json.dumps(what), file=self.log, flush=True)

    @contextlib.contextmanager
    def open(self, name, domain=""):
        text = "".join(c if c.isascii() and c != "\0" else "?" for c in name)
        handle = None
        if self.nvtx:
            if domain and domain not in self.domains:
                self.domains[domain] = self.nvtx.nvtxDomainCreateA(domain.encode("ascii", "replace"))
            handle = self.domains.get(domain)
            attributes = Attributes(version=3, size=ctypes.sizeof(Attributes), message_type=1, message=text.encode())
            self.nvtx.nvtxDomainRangePushEx(handle, ctypes.byref(attributes))
        self.stack.append((domain, name))
        start = time.perf_counter_ns() + self.begin
        shown = torch.profiler.record_function(f"{domain}@{text}" if domain else text) if self.annotate else contextlib.nullcontext()
        try:
            with shown:
                yield
        finally:
            end = time.perf_counter_ns() + self.begin
            domains, path = [d for d, _ in self.stack], [n for _, n in self.stack]
            self.line({"domain": "rgpu", "domains": domains, "path": path, "start_ns": start, "end_ns": end})
            self.stack.pop()
            if self.nvtx:
                self.nvtx.nvtxDomainRangePop(handle)


def region(name, domain=""):
    """A range of the kernel's own."""
    return RANGES.open(name, domain)


class Journal:
    """The report in the making. Until the end it holds the error that is true if nothing more is
    written: a signal that kills the process leaves a report that says where it was."""

    def __init__(self, job, out):
        self.out, self.phase, self.data_set = out, None, None
        self.report = {"abi": ABI, "runner": "harness.py", "kernel": CASE.get("kernel", ""), "job": job,
                       "data_sets": [], "warnings": [], "gaps": []}

    def gap(self, text):
        if text not in self.report["gaps"]:
            print(f"gap: {text}", flush=True)
            self.report["gaps"].append(text)

    def warn(self, kind, text):
        print(f"warning: {text}", flush=True)
        self.report["warnings"].append({"kind": kind, "text": text})

    def record(self, data_set, **what):
        sets = self.report["data_sets"]
        known = next((s for s in sets if s["name"] == data_set["name"]), None)
        if known is None:
            known = {"name": data_set["name"]}
            sets.append(known)
        known.update(what)

    @contextlib.contextmanager
    def enter(self, phase, data_set=None):
        self.phase, self.data_set = phase, data_set and data_set["name"]
        where = f"`{phase}` of `{self.data_set}`" if data_set else f"`{phase}`"
        if data_set:
            self.record(data_set)
        self.write(Fault("crash", f"the process ended during {where} without a word: a signal, most likely"))
        with contextlib.ExitStack() as open_ranges:
            open_ranges.enter_context(RANGES.open(phase, "rgpu"))
            if data_set:
                name = data_set["name"].replace(",", " ").replace("+", "&")
                open_ranges.enter_context(RANGES.open(name, "rgpu"))
            yield

    def write(self, fault=None):
        if not self.out:
            return
        report = dict(self.report)
        if fault:
            error = {"class": fault.kind, "text": fault.text, "phase": self.phase, "data_set": self.data_set}
            report["error"] = {key: value for key, value in error.items() if value}
        with open(self.out + ".new", "w", encoding="utf-8") as file:
            json.dump(finite(report), file)
            file.write("\n")
        os.replace(self.out + ".new", self.out)


def finite(value):
    """Without what JSON has no word for."""
    if isinstance(value, dict):
        return {key: finite(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [finite(inner) for inner in value]
    return sys.float_info.max if isinstance(value, float) and not math.isfinite(value) else value


# --- data --------------------------------------------------------------------------------------

DTYPES = {
    "f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2", "i64": "int64", "i32": "int32", "i16": "int16", "i8": "int8",
    "u64": "uint64", "u32": "uint32", "u16": "uint16", "u8": "uint8", "bool": "bool",
    "e2m1": "uint8",  # two to a byte, low nibble first
}
BITS = {"f64": 64, "i64": 64, "u64": 64, "f32": 32, "i32": 32, "u32": 32, "f16": 16, "bf16": 16,
        "i16": 16, "u16": 16, "e2m1": 4}  # the others: 8
GAMMA, MIX1, MIX2, ALL = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, (1 << 64) - 1
CHUNK = 1 << 24


def signed(bits):
    return bits - (1 << 64) if bits >> 63 else bits


def right(z, n):
    """A shift that brings in zeros."""
    return (z >> n) & ((1 << (64 - n)) - 1)


def mix(z):
    """SplitMix64's finaliser, on Python's integers or on int64 tensors, which wrap."""
    if isinstance(z, int):
        z = ((z ^ (z >> 30)) * MIX1) & ALL
        z = ((z ^ (z >> 27)) * MIX2) & ALL
        return z ^ (z >> 31)
    z = (z ^ right(z, 30)) * signed(MIX1)
    z = (z ^ right(z, 27)) * signed(MIX2)
    return z ^ right(z, 31)


def draw(key, index):
    return mix(index * signed(GAMMA) + signed((key + GAMMA) & ALL))


def unit(bits):
    return right(bits, 11).to(torch.float64) * 2.0**-53


def narrow(values, dtype):
    """float64 to a dtype, to nearest even; finite values beyond its range become its largest."""
    target = getattr(torch, DTYPES[dtype])
    if not target.is_floating_point:
        info = torch.iinfo(torch.int64 if dtype in ("u64", "bool") else target)
        return whole(values.trunc().clamp(info.min, info.max).to(torch.int64), dtype)
    if dtype == "f64":
        return values
    most = torch.finfo(target).max
    values = values.clamp(-most, most)
    single = values.to(torch.float32)
    if dtype == "f32":
        return single
    # Rounded to odd in between, so that the second rounding is the only one that counts.
    up = single.to(torch.float64).abs() > values.abs()
    bits = single.view(torch.int32) - up.to(torch.int32)
    bits |= (single.to(torch.float64) != values).to(torch.int32)
    return bits.view(torch.float32).to(target)


def whole(values, dtype):
    """int64 to a dtype; what does not fit becomes the nearest that does."""
    target = getattr(torch, DTYPES[dtype])
    if dtype == "bool":
        return values != 0
    if dtype not in ("i64", "u64"):
        info = torch.iinfo(target)
        values = values.clamp(info.min, info.max)
    if dtype in ("u16", "u32", "u64"):
        same = {"u16": torch.int16, "u32": torch.int32, "u64": torch.int64}[dtype]
        return values.to(same).view(target)
    return values.to(target)


def elements(arg, key, first, count):
    """`count` elements of an argument from `first` on."""
    dtype = arg["dtype"]
    (kind, how), = arg["init"].items() if isinstance(arg["init"], dict) else [(arg["init"], None)]
    i = torch.arange(first, first + count, dtype=torch.int64, device=DEVICE)
    if kind == "zeros":
        return narrow(torch.zeros(count, dtype=torch.float64, device=DEVICE), dtype)
    if kind == "const":
        value = how["value"]
        if isinstance(value, int):
            return whole(torch.full((count,), value, dtype=torch.int64, device=DEVICE), dtype) if dtype[0] in "iub" and dtype != "bf16" \
                else narrow(torch.full((count,), float(value), dtype=torch.float64, device=DEVICE), dtype)
        return narrow(torch.full((count,), value, dtype=torch.float64, device=DEVICE), dtype)
    if kind == "uniform":
        return narrow(how["lo"] + (how["hi"] - how["lo"]) * unit(draw(key, i)), dtype)
    if kind == "normal":
        radius = (-2.0 * (unit(draw(key, 2 * i)) + 2.0**-53).log()).sqrt()
        angle = math.tau * unit(draw(key, 2 * i + 1))
        return narrow(how["mean"] + how["sd"] * radius * angle.cos(), dtype)
    if kind == "ints":
        span = how["hi"] - how["lo"] + 1
        if span >= 1 << 31:
            raise Fault("bad_case", f"argument `{arg['name']}`: ints over more than 2^31 values are not for Python kernels")
        bits = draw(key, i)
        values = how["lo"] + right(right(bits, 32) * span + right((bits & 0xFFFFFFFF) * span, 32), 32)
        return whole(values, dtype) if dtype[0] in "iu" or dtype == "bool" else narrow(values.to(torch.float64), dtype)
    if kind == "bits":
        width = BITS.get(dtype, 8)
        bits = right(draw(key, i), 64 - width) & how["mask"] if width < 64 else draw(key, i) & signed(how["mask"])
        if width == 4:
            return bits.to(torch.uint8)
        same = {8: torch.uint8, 16: torch.int16, 32: torch.int32, 64: torch.int64}[width]
        values = bits.to(same).view(getattr(torch, DTYPES[dtype]))
        if values.dtype.is_floating_point:
            values = torch.where(values.to(torch.float64).isfinite(), bits, 0).to(same).view(values.dtype)
        return values
    raise Fault("bad_case", f"argument `{arg['name']}`: the init `{kind}` is unknown")


def shape(arg):
    if arg["dtype"] != "e2m1":
        return arg["dims"]
    if arg["dims"][-1] % 2:
        raise Fault("bad_case", f"argument `{arg['name']}`: an odd row of e2m1 does not fill its last byte")
    return [*arg["dims"][:-1], arg["dims"][-1] // 2]


def contents(arg, group, position, seed):
    """The initial contents of an `in` or `inout` tensor."""
    target = getattr(torch, DTYPES[arg["dtype"]])
    if isinstance(arg["init"], dict) and "file" in arg["init"]:
        path = os.path.join(HERE, arg["init"]["file"]["path"])
        with open(path, "rb") as file:
            data = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)
        wanted = math.prod(shape(arg)) * target.itemsize
        if data.numel() != wanted:
            raise Fault("bad_case", f"`{path}` has {data.numel()} bytes, but argument `{arg['name']}` takes {wanted}")
        return data.view(target).reshape(shape(arg)).to(DEVICE)
    key = mix(arg["seed"] & ALL) if "seed" in arg else mix((mix((mix(seed & ALL) + group) & ALL) + position) & ALL)
    count = math.prod(arg["dims"])
    tensor = torch.empty(count, dtype=target, device=DEVICE)
    for first in range(0, count, CHUNK):
        here = min(CHUNK, count - first)
        tensor[first:first + here] = elements(arg, key, first, here)
    if arg["dtype"] == "e2m1":
        tensor = tensor[0::2] | tensor[1::2] << 4
    return tensor.reshape(shape(arg))


def raw(tensor):
    """The bytes of a tensor, in the order of its memory."""
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    dense = tensor if tensor.is_contiguous() else tensor.contiguous()
    return dense.reshape(-1).view(torch.uint8)


def poison(tensor, pattern):
    """Bytes that no result has: NaN in floats first, an ordinary number for the second pattern."""
    is_float = tensor.dtype.is_floating_point
    byte = (0xFF, 0x3F)[pattern] if is_float else (0xA5, 0x5A)[pattern]
    storage = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())
    if tensor.is_contiguous():
        start = tensor.storage_offset() * tensor.element_size()
        storage[start:start + tensor.numel() * tensor.element_size()].fill_(byte)
    else:
        fill = torch.full((tensor.element_size(),), byte, dtype=torch.uint8, device=tensor.device).view(tensor.dtype)
        tensor.copy_(fill.expand(tensor.shape))


def unwritten(first, second):
    """Elements that hold the first pattern after a call on it, and the second after one on that."""
    is_float = first.dtype.is_floating_point
    patterns = (0xFF, 0x3F) if is_float else (0xA5, 0x5A)
    size = first.element_size()
    left = [(raw(t) == byte).reshape(-1, size).all(dim=1) for t, byte in zip((first, second), patterns)]
    return int((left[0] & left[1]).sum())


# --- comparison --------------------------------------------------------------------------------


def wide(tensor):
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    return tensor.reshape(-1).to(torch.float64)


def difference(actual, expected):
    """On the device: how many elements lie outside the tolerance, and the largest errors."""
    tolerance = CASE.get("tolerance", {})
    bad = torch.zeros((), dtype=torch.int64, device=actual.device)
    most_abs = torch.zeros((), dtype=torch.float64, device=actual.device)
    most_rel = torch.zeros((), dtype=torch.float64, device=actual.device)
    flat, wanted = actual.reshape(-1), expected.reshape(-1)
    for first in range(0, flat.numel(), CHUNK):
        a, e = wide(flat[first:first + CHUNK]), wide(wanted[first:first + CHUNK])
        same = (a == e) | (a.isnan() & e.isnan())
        error = torch.where(same | ~(a - e).isfinite(), 0.0, (a - e).abs())
        allowed = tolerance.get("abs", 0.0) + tolerance.get("rel", 0.0) * e.abs()
        bad += (~same & ~((a - e).isfinite() & ((a - e).abs() <= allowed))).sum()
        most_abs = torch.maximum(most_abs, error.max())
        most_rel = torch.maximum(most_rel, torch.where(e != 0, error / e.abs(), 0.0).nan_to_num(0.0).max())
    return bad, most_abs, most_rel


def first_mismatch(actual, expected):
    tolerance = CASE.get("tolerance", {})
    a, e = wide(actual), wide(expected)
    same = (a == e) | (a.isnan() & e.isnan())
    allowed = tolerance.get("abs", 0.0) + tolerance.get("rel", 0.0) * e.abs()
    wrong = ~same & ~((a - e).isfinite() & ((a - e).abs() <= allowed))
    index = int(wrong.to(torch.uint8).argmax())
    rest, coordinates = index, []
    for extent in reversed(actual.shape):
        coordinates.insert(0, rest % extent)
        rest //= extent
    spelled = {"nan": "NaN"}
    shown = [spelled.get(str(x), str(x)) for x in (a[index].item(), e[index].item())]
    return {"index": index, "coordinates": coordinates, "actual": shown[0], "expected": shown[1]}


def passes(mismatches, count):
    return mismatches <= CASE.get("tolerance", {}).get("mismatch_fraction", 0.0) * count


# --- the kernel --------------------------------------------------------------------------------


def load(path):
    """A module of the user's, with its folder first on sys.path."""
    path = os.path.join(HERE, path)
    name = os.path.splitext(os.path.basename(path))[0]
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == path:
        return known
    folder = os.path.dirname(path)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    if importlib.util.find_spec("task") is None:
        stub = types.ModuleType("task")
        stub.input_t = stub.output_t = object
        sys.modules["task"] = stub
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except ModuleNotFoundError as error:
        raise Fault("load", f"`{os.path.basename(path)}` imports `{error.name}`, which this Python has not ({sys.executable})") from error
    return module


def function_of(module, name):
    function = getattr(module, name, None)
    if not callable(function):
        raise Fault("load", f"`{os.path.basename(module.__file__)}` has no function `{name}`")
    return function


def parameters(function):
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError) as error:
        raise Fault("bad_case", f"the parameters of `{function}` cannot be seen: {error}") from error


def bind(function, values):
    """The values that a function's parameters name."""
    chosen = {}
    for name, parameter in parameters(function).items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if name in values:
            chosen[name] = values[name]
        elif parameter.default is parameter.empty:
            known = "`, `".join(sorted(values))
            raise Fault("bad_case", f"`{function.__name__}` takes `{name}`, and nothing has that name; there are `{known}`")
    return chosen


def tensors(value):
    """Every tensor inside tuples, lists and dicts."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for inner in value for t in tensors(inner)] if isinstance(value, (tuple, list)) else []


def copied(value):
    """The same with every tensor in memory of its own; strides stay."""
    if isinstance(value, torch.Tensor):
        twin = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
        return twin.copy_(value)
    if isinstance(value, dict):
        return {key: copied(inner) for key, inner in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(copied(inner) for inner in value) if not hasattr(value, "_fields") else type(value)(*map(copied, value))
    return value


def sizes(data_set):
    """The size variables: numbers, or with several groups tuples over the groups."""
    rows = [group.get("sizes", []) for group in data_set["groups"]]
    grouped = ENTRY.get("grouped", False)
    names = data_set.get("vars", [])
    values = {n: tuple(row[i] for row in rows) if grouped else rows[0][i] for i, n in enumerate(names)}
    values["problem_sizes"] = [tuple(row) for row in rows]
    values["g"] = values["groups"] = len(rows)
    return values


class Kernel:
    """The entry and its reference, bound to one data set."""

    def __init__(self, data_set):
        self.data_set = data_set
        module = load(ENTRY["file"])
        self.function = function_of(module, ENTRY["function"])
        self.reference_module = load(REFERENCE["file"]) if REFERENCE else module
        self.reference = function_of(self.reference_module, REFERENCE["function"]) if REFERENCE else None
        self.popcorn = not data_set["groups"][0].get("args")
        self.extras = {**settings(), **sizes(data_set), "seed": SEED, "device": DEVICE}
        self.prepare(module)
        self.fill(SEED)

    def prepare(self, module):
        """What happens once: the model is built, kernels are compiled ahead."""
        start = time.perf_counter_ns()
        done = False
        if ENTRY.get("prepare"):
            build = function_of(module, ENTRY["prepare"])
            torch.manual_seed(SEED)
            self.extras["model"] = blamed(lambda: build(**bind(build, self.extras)), build.__name__)
            done = True
        if self.popcorn and callable(getattr(module, "compile_kernel", None)):
            blamed(lambda: module.compile_kernel(self.extras["problem_sizes"]), "compile_kernel")
            done = True
        if done:
            synchronize()
            JOURNAL.record(self.data_set, prepare_ns=float(time.perf_counter_ns() - start))
        model = self.extras.get("model")
        if isinstance(model, torch.nn.Module):
            counts = {}
            for parameter in model.parameters():
                counts[parameter.dtype] = counts.get(parameter.dtype, 0) + parameter.numel()
            most = max(counts, key=counts.get) if counts else None
            JOURNAL.report["model"] = {"parameters": sum(counts.values()), "dtype": str(most).replace("torch.", "") if most else None}

    def fill(self, seed):
        """The data, and what is expected of it. `fixed` are the contents that come back before
        each call, by tensor."""
        if self.popcorn:
            self.fill_popcorn(seed)
        else:
            self.fill_args(seed)

    def fill_args(self, seed):
        groups = self.data_set["groups"]
        values, self.outs, self.inouts, self.inputs = {}, [], [], []
        for position, arg in enumerate(groups[0]["args"]):
            made = [self.argument(group["args"][position], g, position, seed) for g, group in enumerate(groups)]
            values[arg["name"]] = made if len(groups) > 1 else made[0]
            for g, value in enumerate(made):
                kind = {"out": self.outs, "inout": self.inouts, "in": self.inputs}.get(arg["role"])
                if kind is not None:
                    kind.append((arg["name"], g, value))
        expected = None
        if self.reference:
            mine = {**self.extras, **copied(values), "seed": seed}
            expected = self.results(self.reference, mine)
        self.fixed = [(value, value.clone()) for _, _, value in self.inouts]
        self.kept = [(name, value, value.clone()) for name, _, value in self.inputs]
        self.values = {**self.extras, **values, "seed": seed}
        self.bound = bind(self.function, self.values)
        self.poisoned = [value for name, _, value in self.outs if name in self.bound]
        # A function that returns its outputs gets them from torch's allocator, which hands out
        # what was freed last: that is poisoned in their place.
        self.like = [value for name, _, value in self.outs if name not in self.bound]
        self.expected = expected

    def argument(self, arg, group, position, seed):
        if arg["role"] == "scalar":
            return arg["value"]
        if arg["role"] == "out":
            return torch.empty(shape(arg), dtype=getattr(torch, DTYPES[arg["dtype"]]), device=DEVICE)
        return contents(arg, group, position, seed)

    def fill_popcorn(self, seed):
        generate = function_of(self.reference_module, "generate_input")
        values = {**self.extras, "seed": seed}
        torch.manual_seed(seed)
        self.data = blamed(lambda: generate(**bind(generate, values)), "generate_input", "reference")
        mine = {**values, "data": copied(self.data)}
        self.expected = self.results(self.reference, mine) if self.reference else None
        self.values = {**values, "data": self.data}
        self.bound = bind(self.function, self.values) if "data" in parameters(self.function) else None
        self.poisoned, self.like, self.fixed = [], [], []
        self.kept = [(f"data[{i}]", t, t.clone()) for i, t in enumerate(tensors(self.data))]
        self.find_outputs()

    def find_outputs(self):
        """Outputs that lie in `data` are poisoned before each call, where the reference shows that
        nothing reads them; other tensors of `data` must stay as they are."""
        results = [value for _, _, value in self.call_once()]
        synchronize()
        places = {t.untyped_storage().data_ptr() for t in results}
        inside = [t for t in tensors(self.data) if t.untyped_storage().data_ptr() in places]
        self.kept = [entry for entry in self.kept if entry[1].untyped_storage().data_ptr() not in places]
        if inside and self.reference:
            twin = copied(self.data)
            for mine, theirs in zip(tensors(self.data), tensors(twin)):
                if any(mine is t for t in inside):
                    poison(theirs, 0)
            again = self.results(self.reference, {**self.values, "data": twin})
            same = all(torch.equal(raw(a), raw(b)) for (_, _, a), (_, _, b) in zip(again, self.expected))
            self.poisoned = inside if same else []
            if not same:
                self.fixed = [(t, t.clone()) for t in inside]
        if not inside:
            self.like = results

    def results(self, function, values):
        chosen = bind(function, values) if not self.popcorn or "data" in parameters(function) else None
        call = (lambda: function(**chosen)) if chosen is not None else (lambda: function(values["data"]))
        given = blamed(call, function.__name__, "reference")
        names = chosen or {}
        mine = [] if self.popcorn else [(n, g, values[n][g] if isinstance(values[n], list) else values[n]) for n, g, _ in self.inouts]
        return self.named(given, names, mine, {n: values.get(n) for n in names})

    def named(self, given, names, inouts, passed):
        """Outputs as (name, group, tensor): those passed in, those changed in place, and those
        that were returned, in the order of the arguments."""
        if self.popcorn:
            found = tensors(given)
            if not found:
                raise Fault("wrong_result", "no tensor was returned")
            return [("output" if len(found) == 1 else f"output{i}", 0, t) for i, t in enumerate(found)]
        pick = lambda name, g: passed[name][g] if isinstance(passed[name], list) else passed[name]
        outs = [(name, g, pick(name, g)) for name, g, _ in self.outs if name in names]
        returned = [(name, g) for name, g, _ in self.outs if name not in names]
        found = tensors(given) if returned else []
        if len(found) != len(returned):
            raise Fault("wrong_result", f"{len(found)} tensors were returned, but kernel.toml has {len(returned)} outputs that are no parameters")
        return outs + list(inouts) + [(name, g, t) for (name, g), t in zip(returned, found)]

    def call_once(self):
        given = self.function(**self.bound) if self.bound is not None else self.function(self.data)
        inouts = [] if self.popcorn else self.inouts
        return self.named(given, self.bound or {}, inouts, self.values)

    def restore(self, pattern=0):
        """Before a call: what it changes is as it was, what it writes is poisoned."""
        for tensor, before in self.fixed:
            tensor.copy_(before)
        for tensor in self.poisoned:
            poison(tensor, pattern)
        twins = [torch.empty_like(t) for t in self.like]
        for tensor in twins:
            poison(tensor, pattern)
        del twins

    def check_shapes(self, outputs):
        for (name, _, got), (_, _, wanted) in zip(outputs, self.expected or []):
            if tuple(got.shape) != tuple(wanted.shape):
                raise Fault("wrong_result", f"`{name}` has the shape {tuple(got.shape)}, expected {tuple(wanted.shape)}")
        declared = {(name, g): t for name, g, t in self.outs} if not self.popcorn else {}
        for name, g, got in outputs:
            wanted = declared.get((name, g))
            if wanted is not None and (got.shape != wanted.shape or got.dtype != wanted.dtype):
                raise Fault("wrong_result", f"`{name}` is {got.dtype} of shape {tuple(got.shape)}, but kernel.toml says {wanted.dtype} of shape {tuple(wanted.shape)}")

    def changed_inputs(self):
        return [name for name, now, before in self.kept if not torch.equal(raw(now), raw(before))]


def settings():
    """`[model]` as parameters; its dtype as torch's."""
    model = dict(ENTRY.get("model", {}))
    if isinstance(model.get("dtype"), str):
        dtype = getattr(torch, model["dtype"], None)
        if not isinstance(dtype, torch.dtype):
            raise Fault("bad_case", f"torch has no dtype `{model['dtype']}`")
        model["dtype"] = dtype
    return model


def blamed(call, name, kind="host_entry"):
    """Calls code of the user's; what it raises becomes a Fault that names it."""
    try:
        return call()
    except Fault:
        raise
    except Exception as error:
        raise fault_of(error, name, kind) from error


def fault_of(error, name, kind="host_entry"):
    text = str(error).strip().splitlines() or [""]
    if isinstance(error, torch.OutOfMemoryError):
        return Fault("out_of_memory", text[0])
    if isinstance(error, ModuleNotFoundError):
        return Fault("load", f"`{name}` needs `{error.name}`, which this Python has not ({sys.executable})")
    if "illegal memory access" in str(error):
        return Fault("illegal_access", text[0])
    if type(error).__module__.startswith("triton"):
        kind = "compile" if "ompil" in type(error).__name__ else kind
    frames = traceback.extract_tb(error.__traceback__)
    inside = [f for f in frames if f.filename.startswith(os.path.join(HERE, "src"))]
    place = f" at {os.path.relpath(inside[-1].filename, os.path.join(HERE, 'src'))}:{inside[-1].lineno}" if inside else ""
    return Fault(kind, f"`{name}` raised {type(error).__name__}: {text[0]}{place}")


def call(kernel):
    return blamed(kernel.call_once, ENTRY["function"])


def synchronize():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


# --- statistics --------------------------------------------------------------------------------


def median(values):
    ordered, middle = sorted(values), len(values) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def interval(values):
    """The order-statistic interval of the median at 95 % or more."""
    ordered, n = sorted(values), len(values)
    log_term, rank = -n * math.log(2), 1
    below = math.exp(log_term)
    for k in range(1, n // 2 + 1):
        if 2 * below > 0.05:
            break
        rank = k
        log_term += math.log(n - k + 1) - math.log(k)
        below += math.exp(log_term)
    return [ordered[rank - 1], ordered[n - rank]]


class Sampling:
    """When to stop, which samples count, and what they say."""

    def __init__(self, least, seconds):
        self.samples, self.clocks, self.least = [], [], least
        self.deadline = time.perf_counter() + seconds

    def converged(self, values):
        low, high = interval(values)
        return (high - low) / 2 <= TIMING.get("ci_target", 0.005) * median(values)

    def wanted(self):
        if TIMING.get("iters"):
            return TIMING["iters"] - len(self.samples)
        enough = len(self.samples) >= self.least and self.converged(self.kept())
        late = self.samples and time.perf_counter() >= self.deadline
        return 0 if enough or late else 10_000 - len(self.samples)

    def discarded(self):
        """Samples of batches on a slow clock or while throttled; none where that is the rule."""
        usual = median([c["sm_mhz"] for c in self.clocks if c.get("sm_mhz")] or [0])
        out = []
        for i, clock in enumerate(self.clocks):
            end = self.clocks[i + 1]["first_sample"] if i + 1 < len(self.clocks) else len(self.samples)
            if clock.get("throttle") or clock.get("sm_mhz", usual) < 0.95 * usual:
                out += range(clock["first_sample"], end)
        return [] if len(out) * 2 > len(self.samples) else out

    def kept(self):
        out = set(self.discarded())
        return [s for i, s in enumerate(self.samples) if i not in out]

    def finish(self, source, flushed, verified, overhead=None):
        kept = self.kept()
        middle = median(kept)
        return {
            "source": source, "median_ns": middle, "ci95_ns": interval(kept), "samples": len(kept),
            "min_ns": min(kept), "mad_ns": median([abs(s - middle) for s in kept]),
            "sample_ns": self.samples, "discarded": self.discarded(), "converged": self.converged(kept),
            "overhead_ns": overhead, "l2_flushed": flushed, "clocks": self.clocks,
            "verified": verified if REFERENCE else None,
        }


class Nvml:
    """Clocks, temperature, power and throttling, where the driver's library is."""

    REASONS = {0x4: "sw_power_cap", 0x8: "hw_slowdown", 0x10: "sync_boost", 0x20: "sw_thermal",
               0x40: "hw_thermal", 0x80: "hw_power_brake", 0x100: "display_clock"}

    def __init__(self, uuid):
        self.handle = None
        try:
            self.library = ctypes.CDLL("libnvidia-ml.so.1")
            handle = ctypes.c_void_p()
            if self.library.nvmlInit_v2() == 0 and self.library.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(handle)) == 0:
                self.handle = handle
        except (OSError, AttributeError):
            pass
        if self.handle is None:
            JOURNAL.gap("NVML does not tell the GPU's clocks")

    def number(self, function, *before):
        value = ctypes.c_ulonglong(0)
        try:
            ok = getattr(self.library, function)(self.handle, *before, ctypes.byref(value)) == 0
        except AttributeError:
            return None
        return value.value if ok else None

    def reading(self, first):
        if self.handle is None:
            return None
        reasons = self.number("nvmlDeviceGetCurrentClocksThrottleReasons") or 0
        return {"first_sample": first, "sm_mhz": self.number("nvmlDeviceGetClockInfo", 1),
                "mem_mhz": self.number("nvmlDeviceGetClockInfo", 2),
                "temperature_c": self.number("nvmlDeviceGetTemperature", 0),
                "power_mw": self.number("nvmlDeviceGetPowerUsage"),
                "throttle": [name for bit, name in self.REASONS.items() if reasons & bit]}


# --- jobs --------------------------------------------------------------------------------------


def prepared(data_set):
    with JOURNAL.enter("setup", data_set):
        return Kernel(data_set)


def warm_up(kernel, calls):
    with JOURNAL.enter("warmup", kernel.data_set):
        for _ in range(calls):
            kernel.restore()
            call(kernel)
        synchronize()


def verify(kernel):
    """Two calls on the same data, each into its own poison."""
    with JOURNAL.enter("verify", kernel.data_set):
        runs = []
        for pattern in (0, 1):
            kernel.restore(pattern)
            outputs = call(kernel)
            synchronize()
            kernel.check_shapes(outputs)
            runs.append([(name, g, copied(t)) for name, g, t in outputs])
        first, second = runs
        equal = all(torch.equal(raw(a), raw(b)) for (_, _, a), (_, _, b) in zip(first, second))
        checked, problem = [], checked_by_task(kernel, first)
        for i, (name, group, got) in enumerate(first):
            left = unwritten(got, second[i][2])
            if kernel.expected is None:
                continue
            wanted = kernel.expected[i][2]
            bad, most_abs, most_rel = (x.item() for x in difference(got, wanted))
            entry = {"name": name, "group": group, "elements": got.numel(), "mismatches": bad,
                     "unwritten": left, "max_abs_error": most_abs, "max_rel_error": most_rel}
            if bad:
                entry["first_mismatch"] = first_mismatch(got, wanted)
            checked.append(entry)
        changed = kernel.changed_inputs()
        passed = not problem and not changed and all(not c["unwritten"] and passes(c["mismatches"], c["elements"]) for c in checked)
        JOURNAL.record(kernel.data_set, correctness={"passed": passed, "outputs": checked, "bit_equal": equal, "changed_inputs": changed})
        if kernel.expected is None:
            JOURNAL.gap("the kernel has no reference: its values were not checked")
    verdict = "right" if passed else problem or (f"input `{changed[0]}` was changed" if changed else "wrong values")
    if kernel.expected is None and passed:
        verdict = "nothing to compare with"
    print(f"verify {kernel.data_set['name']}: {verdict}", flush=True)
    return None if passed else Fault("wrong_result", f"the kernel is wrong on `{kernel.data_set['name']}`: {verdict}")


def checked_by_task(kernel, outputs):
    """What the task's own check says: nothing when it is content."""
    check = getattr(kernel.reference_module, "check_implementation", None)
    if not kernel.popcorn or not callable(check):
        return ""
    given = [t for _, _, t in outputs]
    said = blamed(lambda: check(kernel.data, given[0] if len(given) == 1 else type(given)(given)), "check_implementation", "reference")
    if isinstance(said, tuple):
        good, text = said[0], str(said[1])
    else:
        good, text = (said, "") if isinstance(said, bool) else (not said, str(said or ""))
    return "" if good else f"`check_implementation` refuses it: {text.strip() or 'it does not say why'}"


class Watch:
    """Compares timed outputs on the device, without waiting for it."""

    def __init__(self):
        self.bad, self.calls, self.worst = None, 0, None

    def see(self, kernel, outputs):
        if kernel.expected is None:
            return
        for (name, _, got), (_, _, wanted) in zip(outputs, kernel.expected):
            bad, _, _ = difference(got, wanted)
            over = (bad - CASE.get("tolerance", {}).get("mismatch_fraction", 0.0) * got.numel()).clamp(min=0)
            self.bad = over if self.bad is None else self.bad + over
        self.calls += 1

    def judge(self, kernel):
        if self.bad is not None and self.bad.item() > 0:
            raise Fault("wrong_result", f"a timed call on `{kernel.data_set['name']}` gave wrong values, {int(self.bad.item())} over {self.calls} calls, where the check before was content")


def flush_buffer():
    if not TIMING.get("flush_l2", True) or DEVICE != "cuda":
        return None
    # Twice its size: a write of just its size need not replace every line.
    size = getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 0)
    return torch.empty(max(2 * size, 1 << 20), dtype=torch.uint8, device=DEVICE)


def reset_persisting_l2():
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libcuda.so.1").cuCtxResetPersistingL2Cache()


def works_elsewhere(kernel):
    """Whether the GPU is still busy after the events of a call: it works on a stream of its own."""
    late, took = [], []
    for _ in range(5):
        kernel.restore()
        torch.cuda.synchronize()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call(kernel)
        end.record()
        end.synchronize()
        begin = time.perf_counter_ns()
        torch.cuda.synchronize()
        late.append(time.perf_counter_ns() - begin)
        took.append(start.elapsed_time(end) * 1e6)
    return median(late) > max(50_000.0, 0.2 * median(took))


def timed(kernel, clock, flush, nvml):
    """Samples of one data set by CUDA events or the host's clock."""
    on_cpu = DEVICE == "cpu"
    least, seconds = TIMING.get("min_iters", 30), TIMING.get("max_seconds", 10.0)
    sampling, watch = Sampling(min(least, 5) if on_cpu else least, min(seconds, 2.0) if on_cpu else seconds), Watch()
    batch, number, overhead = 1, 0, None
    if clock == "events":
        pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(64)]
        for start, end in pairs[:25]:
            start.record()
            end.record()
        torch.cuda.synchronize()
        overhead = median([start.elapsed_time(end) * 1e6 for start, end in pairs[:25]])
    with JOURNAL.enter("timed", kernel.data_set):
        while (wanted := sampling.wanted()) > 0:
            # A batch keeps the GPU busy for about 50 ms, so that readings fall within it.
            if sampling.samples and clock == "events" and not ENTRY.get("fresh"):
                batch = max(1, min(64, int(50e6 / max(median(sampling.samples), 1.0))))
            batch = min(batch, wanted)
            taken = []
            for i in range(batch):
                number += 1
                if ENTRY.get("fresh"):
                    kernel.fill(SEED + SEED_STEP * number)
                kernel.restore()
                if flush is not None:
                    reset_persisting_l2()
                    flush.zero_()
                if clock == "events":
                    pairs[i][0].record()
                    outputs = call(kernel)
                    pairs[i][1].record()
                else:
                    synchronize()
                    begin = time.perf_counter_ns()
                    outputs = call(kernel)
                    synchronize()
                    taken.append(float(time.perf_counter_ns() - begin))
                watch.see(kernel, outputs)
                del outputs
            reading = nvml and nvml.reading(len(sampling.samples))
            synchronize()
            if clock == "events":
                taken = [start.elapsed_time(end) * 1e6 for start, end in pairs[:batch]]
            sampling.samples += taken
            if reading:
                sampling.clocks.append(reading)
            watch.judge(kernel)
    timing = sampling.finish("events" if clock == "events" else "host", flush is not None, watch.calls, overhead)
    JOURNAL.record(kernel.data_set, timing=timing)
    print(f"{JOURNAL.report['job']} {kernel.data_set['name']}: median {timing['median_ns'] / 1e3:.3f} us, "
          f"{timing['samples']} samples, {watch.calls} outputs compared", flush=True)


def job_verify(_):
    faults = [verify(prepared(data_set)) for data_set in CASE["data_sets"]]
    for fault in filter(None, faults):
        raise fault


def job_time(asked):
    nvml, flush = Nvml(JOURNAL.report["device"]["uuid"]), flush_buffer()
    for i, data_set in enumerate(CASE["data_sets"]):
        kernel = prepared(data_set)
        warm_up(kernel, asked.warmup)
        begin = time.perf_counter()
        while time.perf_counter() - begin < 0.2:
            warm_up(kernel, 1)
        reading = nvml.reading(0) if i == 0 else None
        for reason in (reading or {}).get("throttle", []):
            JOURNAL.warn("thermal_limit" if "thermal" in reason else "power_limit", f"the GPU is held back: {reason}")
        if asked.strict and JOURNAL.report["warnings"]:
            raise Fault("host_unfit", "the host is not fit to measure on: " + "; ".join(w["text"] for w in JOURNAL.report["warnings"]))
        clock = "host" if asked.host_clock else "events"
        if clock == "events" and works_elsewhere(kernel):
            JOURNAL.gap(f"`{data_set['name']}`: the GPU is busy after the events around a call: the kernel works on a stream of its own, so the host's clock timed it")
            clock = "host"
        timed(kernel, clock, flush, nvml)


def job_once(asked):
    for data_set in CASE["data_sets"]:
        kernel = prepared(data_set)
        warm_up(kernel, asked.warmup)
        kernel.restore()
        synchronize()
        with JOURNAL.enter("timed", data_set):
            call(kernel)
            synchronize()
        print(f"once {data_set['name']}: called", flush=True)


def job_torch(asked):
    kernels = []
    for data_set in CASE["data_sets"]:
        kernels.append(prepared(data_set))
        warm_up(kernels[-1], max(asked.warmup, 1))
    activities = [torch.profiler.ProfilerActivity.CPU]
    if DEVICE == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities, record_shapes=True) as profiler:
        RANGES.annotate = True
        for kernel in kernels:
            with JOURNAL.enter("timed", kernel.data_set):
                for _ in range(TRACED_CALLS):
                    call(kernel)
                    synchronize()
        RANGES.annotate = False
    profiler.export_chrome_trace(asked.trace or "torch.trace.json")
    print(f"torch: {TRACED_CALLS} calls of each data set traced", flush=True)


def job_cpu(asked):
    faults = []
    for data_set in CASE["data_sets"]:
        kernel = prepared(data_set)
        warm_up(kernel, min(asked.warmup, 1))
        faults.append(verify(kernel))
        if faults[-1] is None:
            timed(kernel, "host", None, None)
    for fault in filter(None, faults):
        raise fault


def open_device(job):
    """Where tensors lie. Without a GPU only `cpu` and `torch` have something to do."""
    if job == "cpu" or not torch.cuda.is_available():
        if job not in ("cpu", "torch"):
            raise Fault("no_driver", "torch sees no GPU: " + (f"it is built for CUDA {torch.version.cuda}" if torch.version.cuda else "it is built without CUDA"))
        # Triton compiles for GPUs alone, but can be interpreted.
        os.environ["TRITON_INTERPRET"] = "1"
        return "cpu"
    torch.cuda.init()
    facts = torch.cuda.get_device_properties(0)
    uuid = str(getattr(facts, "uuid", ""))
    JOURNAL.report["device"] = {
        "name": facts.name, "uuid": uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}",
        "compute_capability": [facts.major, facts.minor],
        "cuda_version": torch._C._cuda_getDriverVersion(), "memory_bytes": facts.total_memory,
        "l2_bytes": getattr(facts, "L2_cache_size", 0), "sms": facts.multi_processor_count,
    }
    return "cuda"


def work(asked):
    global torch, DEVICE
    try:
        import torch
    except ImportError as error:
        raise Fault("load", f"this Python has no torch that loads ({sys.executable}): {error}") from error
    with JOURNAL.enter("setup"):
        DEVICE = open_device(asked.job)
        print(f"harness.py: {asked.job} {CASE['kernel']} on {JOURNAL.report.get('device', {}).get('name', 'the CPU')}, torch {torch.__version__}", flush=True)
    if RANGES.nvtx is None:
        JOURNAL.gap("there is no NVTX library, so tools see no ranges: the package nvidia-nvtx has it")
    with torch.no_grad():
        {"verify": job_verify, "time": job_time, "once": job_once, "torch": job_torch, "cpu": job_cpu}[asked.job](asked)


def main():
    global RANGES, JOURNAL
    asked = options()
    sys.modules["rgpu_harness"] = sys.modules[__name__]
    RANGES, JOURNAL = Ranges(asked.ranges), Journal(asked.job, asked.out)
    fault = None
    try:
        work(asked)
    except Fault as error:
        fault = error
        if error.__cause__ is not None:
            traceback.print_exception(error.__cause__)
    except Exception as error:
        traceback.print_exc()
        # What is not the user's code is ours, unless torch itself gave up.
        fault = fault_of(error, ENTRY.get("function", "the kernel"), "internal") if "torch" in globals() else Fault("internal", str(error))
    JOURNAL.write(fault)
    if fault:
        print(f"error: {fault.text}", file=sys.stderr, flush=True)
        sys.stdout.flush()
        # A context that has faulted may not unwind.
        os._exit(STATUS.get(fault.kind, 70))


if __name__ == "__main__":
    main()
