# --- data -------------------------------------------------------------------------------------


DTYPES = {
    "f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2", "i64": "int64", "i32": "int32", "i16": "int16", "i8": "int8",
    "u64": "uint64", "u32": "uint32", "u16": "uint16", "u8": "uint8", "bool": "bool",
    "e2m1": "uint8",  # two per byte, low nibble first
}
BITS = {"f64": 64, "i64": 64, "u64": 64, "f32": 32, "i32": 32, "u32": 32, "f16": 16, "bf16": 16,
        "i16": 16, "u16": 16, "e2m1": 4}  # all others: 8
GAMMA, MIX1, MIX2, ALL = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, (1 << 64) - 1
CHUNK = 1 << 24


def signed(bits):
    return bits - (1 << 64) if bits >> 63 else bits


def right(z, n):
    """A right shift that fills with zeros."""
    return (z >> n) & ((1 << (64 - n)) - 1)


def mix(z):
    """SplitMix64's finaliser, for Python integers or int64 tensors, which wrap."""
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
    """Rounds float64 to a dtype, to nearest even; finite values beyond its range become its largest."""
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
    # Rounding to odd in between ensures that only the second rounding decides.
    up = single.to(torch.float64).abs() > values.abs()
    bits = single.view(torch.int32) - up.to(torch.int32)
    bits |= (single.to(torch.float64) != values).to(torch.int32)
    return bits.view(torch.float32).to(target)


def whole(values, dtype):
    """Converts int64 to a dtype; values beyond its range become the nearest limit."""
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
    """The bytes of a tensor in memory order."""
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    dense = tensor if tensor.is_contiguous() else tensor.contiguous()
    return dense.reshape(-1).view(torch.uint8)


def poison(tensor, pattern):
    """Poison bytes: for floats the first pattern is a NaN, the second an ordinary number."""
    if tensor.device.type == "cpu" and DEVICE != "cpu":
        return  # the host's own data, which a kernel does not write
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
    """Elements that still hold the first pattern after a call on it, and the second after a call on it."""
    is_float = first.dtype.is_floating_point
    patterns = (0xFF, 0x3F) if is_float else (0xA5, 0x5A)
    size = first.element_size()
    left = [(raw(t) == byte).reshape(-1, size).all(dim=1) for t, byte in zip((first, second), patterns)]
    return int((left[0] & left[1]).sum())
