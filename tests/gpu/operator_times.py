"""operator_times.py OUT.csv [--seed N] [--seconds S]: times torch's operators on this GPU, at sizes drawn from the seed.

Writes rows that `rgpu model fit` and `reconcile` read. Each call starts with a cold L2: a buffer several times its
size is written before it, as `rgpu bench` does, and the row is the median of CALLS of them, by CUDA events. Large products are also called back to back
for SUSTAINED_NS, until the power limit acts; those rows have the clock and the power that NVML reads.
"""

import argparse
import csv
import ctypes
import math
import random
import statistics
import time

import torch
import torch.nn.functional as F

CALLS, SUSTAINED_NS, CHUNK_NS = 9, 330e6, 22e6
NAME = torch.cuda.get_device_name().lower()
KNOWN = ("gh200", "h200", "h100", "gb200", "b200", "a100", "l40s", "l4", "a10", "rtx 4090", "rtx 5090")
GPU = next((name for name in KNOWN if name in NAME), NAME).replace("rtx ", "rtx")
L2 = torch.cuda.get_device_properties(0).L2_cache_size
FLUSH = torch.empty(max(8 * L2, 1 << 28) // 4, device="cuda")
TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "tf32": torch.float32, "fp32": torch.float32, "fp8": torch.float8_e4m3fn}
SIZE = {"bf16": 2, "fp16": 2, "tf32": 4, "fp32": 4, "fp8": 1}
ROWS, PROBLEMS = [], []


class Nvml:
    """The clock and the power of GPU 0."""

    def __init__(self):
        try:
            self.library, self.device = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p()
            self.library.nvmlInit_v2()
            bus = torch.cuda.get_device_properties(0)
            found = 1
            if hasattr(bus, "pci_bus_id"):
                address = f"{bus.pci_domain_id:08x}:{bus.pci_bus_id:02x}:{bus.pci_device_id:02x}.0".encode()
                found = self.library.nvmlDeviceGetHandleByPciBusId_v2(address, ctypes.byref(self.device))
            if found != 0:
                self.library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.device))
        except OSError as problem:
            PROBLEMS.append(f"NVML: {problem}")
            self.library = None

    def read(self):
        """MHz and W; None each where they cannot be read."""
        if self.library is None:
            return None, None
        clock, power = ctypes.c_uint(), ctypes.c_uint()
        has_clock = self.library.nvmlDeviceGetClockInfo(self.device, 1, ctypes.byref(clock)) == 0
        has_power = self.library.nvmlDeviceGetPowerUsage(self.device, ctypes.byref(power)) == 0
        return clock.value if has_clock else None, power.value / 1000 if has_power else None


NVML = Nvml()


def event():
    return torch.cuda.Event(enable_timing=True)


def cold_ns(call):
    """The median time of one call after the L2 was emptied."""
    for _ in range(2):
        call()
    torch.cuda.synchronize()
    pairs = []
    for _ in range(CALLS):
        # The host must be ahead of the GPU, or its launches are timed too.
        torch.cuda._sleep(150_000)
        FLUSH.zero_()
        begin, end = event(), event()
        begin.record()
        call()
        end.record()
        pairs.append((begin, end))
    torch.cuda.synchronize()
    return statistics.median(begin.elapsed_time(end) * 1e6 for begin, end in pairs)


def sustained_ns(call, once_ns):
    """The time of a call among many in a row, with the clock and the power at the end of them."""
    count = max(1, int(CHUNK_NS / once_ns))
    chunks, begun = [], 0.0
    while begun < SUSTAINED_NS:
        begin, end = event(), event()
        begin.record()
        for _ in range(count):
            call()
        end.record()
        if begun > 0.7 * SUSTAINED_NS and not any(isinstance(one, tuple) for one in chunks):
            chunks.append(NVML.read())
        end.synchronize()
        took = begin.elapsed_time(end) * 1e6
        begun += took
        chunks.append(took / count)
    clock, power = next((one for one in chunks if isinstance(one, tuple)), (None, None))
    times = [one for one in chunks if not isinstance(one, tuple)]
    return statistics.median(times[len(times) // 2 :]), clock, power


def row(op, dtype, ns, **fields):
    ROWS.append({"kind": "kernel", "source": "operator_times.py", "gpu": GPU, "gpus": 1, "framework": "torch",
                 "version": torch.__version__, "date": time.strftime("%Y-%m-%d"), "op": op, "dtype": dtype,
                 "time_ns": round(ns, 1), "repeat": "cold", **fields})


def log_uniform(random, low, high):
    return round(math.exp(random.uniform(math.log(low), math.log(high))))


def rounded(random, size, least=8):
    """A size as programs have them: mostly multiples of a power of two, some odd."""
    step = random.choice((1, 2, 8, 16, 32, 64, 64, 128, 128, 256))
    return max(least if step > 2 else 1, step * max(1, round(size / step)))


def product_sizes(random, dtype):
    """Sizes of a product, and how many of them are done at once."""
    shape, most = random.choice(("any", "any", "any", "skinny", "skinny", "square", "batched")), 16384
    while True:
        batch = 1
        if shape == "square":
            m = n = k = rounded(random, log_uniform(random, 128, 12288))
        elif shape == "skinny":
            m = log_uniform(random, 1, 96)
            n, k = (rounded(random, log_uniform(random, 256, most)) for _ in range(2))
        elif shape == "batched" and dtype != "fp8":
            batch = log_uniform(random, 2, 256)
            m, n, k = (rounded(random, log_uniform(random, 16, 2048)) for _ in range(3))
        else:
            m = rounded(random, log_uniform(random, 16, most))
            n, k = (rounded(random, log_uniform(random, 64, most)) for _ in range(2))
        if dtype == "fp8":
            n, k = (16 * max(1, round(size / 16)) for size in (n, k))
        flops = 2 * batch * m * n * k
        most_flops = 6e10 if dtype == "fp32" else 6e11 if dtype == "tf32" else 1.7e12
        if flops < most_flops and SIZE[dtype] * batch * (m * k + n * k + m * n) < 3e9:
            return batch, m, n, k


def products(random, late):
    sustained = 0
    wanted = [dtype for dtype, count in (("bf16", 280), ("fp16", 90), ("tf32", 100), ("fp32", 100), ("fp8", 120)) for _ in range(count)]
    random.shuffle(wanted)
    for name in wanted:
        if late():
            break
        batch, m, n, k = product_sizes(random, name)
        is_sustained = random.random() < 0.5 and 2 * batch * m * n * k >= 2e10 and sustained < 150
        torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
        kind = TYPES[name]
        if name == "fp8":
            a, b = (torch.randn(rows, k, device="cuda", dtype=torch.bfloat16).to(kind) for rows in (m, n))
            one = torch.ones((), device="cuda")
            call = lambda: torch._scaled_mm(a, b.t(), one, one, out_dtype=torch.bfloat16, use_fast_accum=True)
        elif batch > 1:
            a, b = (torch.randn(batch, rows, k, device="cuda", dtype=kind) for rows in (m, n))
            out = torch.empty(batch, m, n, device="cuda", dtype=kind)
            call = lambda: torch.bmm(a, b.transpose(1, 2), out=out)
        else:
            a, b = (torch.randn(rows, k, device="cuda", dtype=kind) for rows in (m, n))
            out = torch.empty(m, n, device="cuda", dtype=kind)
            call = lambda: torch.mm(a, b.t(), out=out)
        sizes = {"m": m, "n": n, "k": k, "batch": batch if batch > 1 else None}
        try:
            ns = cold_ns(call)
        except Exception as problem:
            PROBLEMS.append(f"{name} {sizes}: {problem!r}"[:300])
            continue
        row("gemm", name, ns, **sizes)
        if is_sustained:
            sustained += 1
            ns, clock, power = sustained_ns(call, ns)
            row("gemm", name, ns, **sizes | {"repeat": "sustained", "clock_mhz": clock, "power_w": power})


def attention(random, late):
    attend, count = F.scaled_dot_product_attention, 0
    while count < 260 and not late():
        name = random.choice(("bf16", "bf16", "bf16", "fp16"))
        is_decode = random.random() < 0.4
        head_dim = random.choice((64, 64, 80, 96, 128, 128, 128, 256))
        kv_heads = random.choice((1, 2, 4, 8, 8, 8, 16, 32))
        heads = kv_heads * random.choice((1, 1, 2, 4, 8))
        causal = not is_decode and random.random() < 0.6
        if is_decode:
            batch, queries, keys = log_uniform(random, 1, 192), 1, log_uniform(random, 128, 65536)
        else:
            batch, queries = log_uniform(random, 1, 32), log_uniform(random, 64, 16384)
            keys = queries if causal or random.random() < 0.7 else log_uniform(random, 64, 16384)
            if random.random() < 0.6:
                queries, keys = (128 * max(1, round(length / 128)) for length in (queries, keys))
        flops = 4 * batch * heads * queries * keys * head_dim
        if heads > 128 or flops > 2.5e12 or 2 * batch * head_dim * (2 * heads * queries + 2 * kv_heads * keys) > 4e9:
            continue
        count += 1
        try:
            q = torch.randn(batch, heads, queries, head_dim, device="cuda", dtype=TYPES[name])
            k, v = (torch.randn(batch, kv_heads, keys, head_dim, device="cuda", dtype=TYPES[name]) for _ in range(2))
            call = lambda: attend(q, k, v, is_causal=causal, enable_gqa=heads != kv_heads)
            ns = cold_ns(call)
        except Exception as problem:
            PROBLEMS.append(f"attention {batch} {heads}/{kv_heads} {queries} {keys} {head_dim}: {problem!r}"[:300])
            continue
        row("attention_decode" if is_decode else "attention_prefill", name, ns, batch=batch, queries=queries, keys=keys,
            heads=heads, kv_heads=kv_heads, head_dim=head_dim, causal=str(causal).lower())


def memory_bound(random, late):
    """Norms, softmax, reductions, gathers and element-wise kernels: `m` rows of `n` elements, and the bytes they must move."""
    cuda = {"device": "cuda"}
    for at in range(620):
        if late():
            break
        variant = ("layer_norm", "rms_norm", "softmax", "add", "gelu", "cast", "copy", "sum_rows", "sum_columns", "sum_all", "gather")[at % 11]
        name = random.choice(("bf16", "bf16", "fp16", "fp32"))
        kind, size = TYPES[name], SIZE[name]
        total = log_uniform(random, 1 << 10, 1 << 28)
        n = rounded(random, log_uniform(random, 64, 32768))
        if variant in ("add", "gelu", "cast", "copy") and random.random() < 0.5:
            n = 1024
        m = max(1, total // n)
        x = torch.randn(m, n, dtype=kind, **cuda)
        op, moved = "elementwise", 2 * size * m * n
        if variant == "layer_norm":
            weight, bias = torch.ones(n, dtype=kind, **cuda), torch.zeros(n, dtype=kind, **cuda)
            op, call = "norm", lambda: F.layer_norm(x, (n,), weight, bias)
        elif variant == "rms_norm":
            weight = torch.ones(n, dtype=kind, **cuda)
            op, call = "norm", lambda: F.rms_norm(x, (n,), weight)
        elif variant == "softmax":
            op, call = "softmax", lambda: torch.softmax(x, -1)
        elif variant == "add":
            y, out = torch.randn_like(x), torch.empty_like(x)
            moved, call = 3 * size * m * n, lambda: torch.add(x, y, out=out)
        elif variant == "gelu":
            call = lambda: F.gelu(x)
        elif variant == "cast":
            other = torch.bfloat16 if name == "fp32" else torch.float32
            moved, call = 6 * m * n, lambda: x.to(other)
        elif variant == "copy":
            out = torch.empty_like(x)
            call = lambda: out.copy_(x)
        elif variant in ("sum_rows", "sum_columns"):
            along = 1 if variant == "sum_rows" else 0
            op, moved, call = "reduction", size * (m * n + (m, n)[1 - along]), lambda: x.sum(along)
        elif variant == "sum_all":
            op, moved, call = "reduction", size * m * n, lambda: x.sum()
        else:
            taken = log_uniform(random, 1, 65536)
            if taken * n > 1 << 28:
                continue
            index = torch.randint(0, m, (taken,), **cuda)
            moved = size * n * (taken + index.unique().numel()) + 8 * taken
            m, op, call = taken, "gather", lambda: F.embedding(index, x)
        row(op, name, cold_ns(call), m=m, n=n, bytes=moved, variant=variant)


def write(path):
    names = list(dict.fromkeys(name for one in ROWS for name in one))
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(ROWS)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=215)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    begun, share = time.monotonic(), 0.0
    print(NAME, torch.__version__, torch.version.cuda, "L2", L2, "clock, power:", NVML.read(), flush=True)
    for part, weight in ((memory_bound, 0.17), (attention, 0.28), (products, 0.55)):
        share += weight
        end = begun + share * args.seconds
        try:
            part(random.Random(f"{args.seed} {part.__name__}"), lambda: time.monotonic() > end)
        except Exception as problem:  # The rows of the other parts are still of use.
            PROBLEMS.append(f"{part.__name__}: {problem!r}")
        print(f"{part.__name__}: {len(ROWS)} rows, {time.monotonic() - begun:.1f} s", flush=True)
        write(args.out)
    print(f"{len(PROBLEMS)} problems", *PROBLEMS[:12], sep="\n", flush=True)


main()
