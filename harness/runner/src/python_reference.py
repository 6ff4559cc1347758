"""Calls a reference in Python on the arguments of a kernel, which lie in files.

usage: python3 -c TEXT CALL, where CALL is a JSON file. Parameters of the reference are filled by
name. It returns the outputs that are not parameters, or writes into those that are. Arrays are
those of the library that it uses: torch's tensors, JAX's arrays, else NumPy's; Python's own
`memoryview` where NumPy is not installed.
"""
import array
import importlib.util
import inspect
import json
import os
import sys
import time
import traceback

FORMATS = {"f64": "float64", "f32": "float32", "f16": "float16", "i64": "int64", "i32": "int32",
           "i16": "int16", "i8": "int8", "u64": "uint64", "u32": "uint32", "u16": "uint16",
           "u8": "uint8", "bool": "bool"}
CODES = {"f64": "d", "f32": "f", "i64": "q", "i32": "i", "i16": "h", "i8": "b", "u64": "Q",
         "u32": "I", "u16": "H", "u8": "B", "bool": "?"}
TORCH_FORMATS = {"bf16": "bfloat16", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}


def load_module(path):
    sys.path.insert(0, os.path.dirname(path))
    name = os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def has_numpy():
    return "numpy" in sys.modules or importlib.util.find_spec("numpy") is not None


def numpy_array(arg):
    """The contents of an argument; bfloat16 as float32."""
    import numpy

    if arg["dtype"] == "bf16":
        bits = numpy.fromfile(arg["data"], "uint16").astype("uint32") << 16
        return bits.view("float32").reshape(arg["dims"])
    if arg["dtype"] not in FORMATS:
        sys.exit(f"`{arg['name']}` is {arg['dtype']}, which NumPy does not have: use torch")
    return numpy.fromfile(arg["data"], FORMATS[arg["dtype"]]).reshape(arg["dims"])


def torch_tensor(arg):
    import torch

    name = TORCH_FORMATS.get(arg["dtype"], FORMATS.get(arg["dtype"]))
    if not hasattr(torch, name or ""):
        sys.exit(f"`{arg['name']}` is {arg['dtype']}, which this torch does not have")
    with open(arg["data"], "rb") as file:
        data = bytearray(file.read())
    return torch.frombuffer(data, dtype=getattr(torch, name)).reshape(arg["dims"])


def plain_view(arg):
    if arg["dtype"] not in CODES:
        sys.exit(f"`{arg['name']}` is {arg['dtype']}: install NumPy or torch for the reference")
    with open(arg["data"], "rb") as file:
        data = memoryview(bytearray(file.read()))
    return data.cast(CODES[arg["dtype"]], arg["dims"])


def contents(arg):
    if "torch" in sys.modules:
        return torch_tensor(arg)
    if not has_numpy():
        return plain_view(arg)
    values = numpy_array(arg)
    if "jax" in sys.modules and arg["role"] == "in":
        import jax.numpy

        return jax.numpy.asarray(values)
    return values


def listed(arg, values):
    """A list as an array."""
    if "torch" in sys.modules:
        import torch

        return torch.as_tensor(values)
    if has_numpy():
        import numpy

        return numpy.asarray(values)
    return memoryview(array.array(CODES[arg["dtype"]], values))


def store(arg, value):
    """Writes an output in the kernel's format."""
    count = 1
    for extent in arg["dims"]:
        count *= extent
    if not hasattr(value, "shape"):
        value = listed(arg, value if isinstance(value, (list, tuple)) else [value])
    shape = tuple(getattr(value, "shape", ()))
    size = 1
    for extent in shape:
        size *= extent
    if size != count:
        sys.exit(f"`{arg['name']}` has {count} elements, and the reference gave {size} {shape}")
    if "torch" in sys.modules:
        import ctypes
        import torch

        name = TORCH_FORMATS.get(arg["dtype"], FORMATS.get(arg["dtype"]))
        value = torch.as_tensor(value).detach().cpu().to(getattr(torch, name)).contiguous()
        data = ctypes.string_at(value.data_ptr(), value.nbytes) if count else b""
    elif isinstance(value, memoryview):
        data = value.tobytes()
    else:
        import numpy

        value = numpy.ascontiguousarray(value)
        if arg["dtype"] == "bf16":
            bits = value.astype("float32").view("uint32").astype("uint64")
            data = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("uint16").tobytes()
        else:
            data = value.astype(FORMATS[arg["dtype"]]).tobytes()
    with open(arg["result"], "wb") as file:
        file.write(data)


def by_name(call):
    """What a parameter of each name gets: a tuple over the groups if there are several."""
    groups = call["groups"]
    values = {}
    for at, name in enumerate(call["vars"]):
        values[name] = tuple(group["sizes"][at] for group in groups)
    for at, first in enumerate(groups[0]["args"]):
        members = [group["args"][at] for group in groups]
        value = [arg["value"] if arg["role"] == "scalar" else contents(arg) for arg in members]
        values[first["name"].replace(".", "_")] = tuple(value)
    return values if len(groups) > 1 else {name: value[0] for name, value in values.items()}


def main():
    with open(sys.argv[1]) as file:
        call = json.load(file)
    module = load_module(call["file"])
    function = getattr(module, call["function"], None)
    if not callable(function):
        sys.exit(f"it has no function `{call['function']}`")
    values = by_name(call)
    kinds = inspect.Parameter
    chosen = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if name in values:
            chosen[name] = values[name]
        elif parameter.default is kinds.empty and parameter.kind not in (
            kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD,
        ):
            sys.exit(f"its parameter `{name}` is none of `{'`, `'.join(values)}`")
    start = time.perf_counter_ns()
    try:
        returned = function(**chosen)
    except Exception as error:
        traceback.print_exc()
        is_plain = "torch" not in sys.modules and not has_numpy()
        why = " (arrays are memoryviews, as NumPy is not installed)" if is_plain else ""
        sys.exit(f"{type(error).__name__}: {error}{why}")
    elapsed = time.perf_counter_ns() - start
    first_group = call["groups"][0]["args"]
    outputs = [at for at, arg in enumerate(first_group) if arg["role"] in ("out", "inout")]
    name_of = {at: first_group[at]["name"].replace(".", "_") for at in outputs}
    results = {name_of[at]: chosen.get(name_of[at]) for at in outputs}
    if returned is not None:
        every = [name_of[at] for at in outputs]
        wanted = [name for name in every if name not in chosen]
        is_list = isinstance(returned, (tuple, list)) and len(call["groups"]) == 1
        # Else a list is the values of one output, or over the groups.
        is_several = is_list and len(returned) in (len(wanted), len(every))
        returned = list(returned) if is_several else [returned]
        wanted = wanted if len(returned) == len(wanted) else every
        if len(returned) != len(wanted):
            sys.exit(f"it returned {len(returned)} values for the outputs `{'`, `'.join(wanted)}`")
        results.update(zip(wanted, returned))
    for at in outputs:
        value = results[name_of[at]]
        if value is None:
            sys.exit(f"it gave nothing for the output `{first_group[at]['name']}`: return it")
        several = value if len(call["groups"]) > 1 else [value]
        for group, part in zip(call["groups"], several):
            store(group["args"][at], part)
    with open(call["time"], "w") as file:
        file.write(str(elapsed))


main()
