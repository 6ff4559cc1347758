"""kernel_times.py OUT.csv: times products, attention, norms and elementwise kernels of torch on this GPU. Writes rows that
`rgpu model fit` and `reconcile` read.

Each kernel runs in a CUDA graph, on operands that take turns and together do not fit in the L2, so that they come from
memory as the model assumes. A row is the median of seven replays, divided by the calls in the graph.
"""

import csv
import statistics
import sys
import time

import torch

REPLAYS, MIN_GRAPH_NS, MAX_CALLS = 7, 2_000_000, 200
L2 = torch.cuda.get_device_properties(0).L2_cache_size
NAME = torch.cuda.get_device_name().lower()
GPU = next((name for name in ("h200", "h100", "b200", "a100") if name in NAME), NAME)
ROWS = []


def graph_ns(calls):
    """The time of one of `calls`, which are captured in turn."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for call in calls[:3]:
            call()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for call in calls:
                call()
        graph.replay()
        times = []
        for _ in range(REPLAYS):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) * 1e6)
    return statistics.median(times) / len(calls)


def timed(make, bytes_of_one):
    """The time of what `make()` returns. As many sets of operands as overflow the L2 twice take turns."""
    sets = int(min(64, max(1, 2 * L2 / bytes_of_one + 1)))
    calls = [make() for _ in range(sets)]
    once = graph_ns(calls)
    repeats = int(min(MAX_CALLS, max(len(calls), MIN_GRAPH_NS / once)))
    return graph_ns([calls[at % sets] for at in range(repeats)])


def row(op, dtype, ns, **fields):
    ROWS.append({"kind": "kernel", "source": "kernel_times.py", "gpu": GPU, "gpus": 1, "framework": "torch",
                 "version": torch.__version__, "date": time.strftime("%Y-%m-%d"), "op": op, "dtype": dtype, "time_ns": round(ns, 1), **fields})


def products():
    for dtype, name in ((torch.bfloat16, "bf16"), (torch.float8_e4m3fn, "fp8")):
        for m in (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192):
            for n, k in ((4096, 4096), (14336, 4096), (4096, 14336), (6144, 4096), (1024, 8192), (8192, 1024), (5120, 2048),
                         (512, 1024), (1024, 1024), (2816, 1024), (512, 2048), (32000, 2048), (32000, 4096)):
                if m > 64 and n == 32000:
                    continue
                if dtype is torch.float8_e4m3fn and m < 16:
                    continue

                def make():
                    a = torch.randn(m, k, device="cuda", dtype=torch.bfloat16).to(dtype)
                    b = torch.randn(n, k, device="cuda", dtype=torch.bfloat16).to(dtype)
                    if dtype is torch.bfloat16:
                        out = torch.empty(m, n, device="cuda", dtype=dtype)
                        return lambda: torch.mm(a, b.t(), out=out)
                    one = torch.ones((), device="cuda")
                    return lambda: torch._scaled_mm(a, b.t(), one, one, out_dtype=torch.bfloat16, use_fast_accum=True)

                bits = 2 if dtype is torch.bfloat16 else 1
                row("gemm", name, timed(make, bits * (m * k + n * k) + 2 * m * n), m=m, n=n, k=k)


def attention():
    attend = torch.nn.functional.scaled_dot_product_attention
    prompts = [(1, length) for length in (512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192)]
    prompts += [(2, 512), (4, 1024), (8, 512), (8, 2048), (2, 8192)]
    for heads, kv_heads, dim in ((32, 8, 128), (32, 32, 128), (64, 8, 128), (16, 16, 64), (16, 8, 64), (32, 8, 64)):
        shapes = [("attention_prefill", batch, length, length) for batch, length in prompts]
        shapes += [("attention_decode", batch, 1, keys) for batch in (1, 8, 32, 64, 128) for keys in (512, 2048, 4096, 8192) if batch * keys < 500_000]
        for op, batch, queries, keys in shapes:

            def make():
                q = torch.randn(batch, heads, queries, dim, device="cuda", dtype=torch.bfloat16)
                k, v = (torch.randn(batch, kv_heads, keys, dim, device="cuda", dtype=torch.bfloat16) for _ in range(2))
                return lambda: attend(q, k, v, is_causal=queries > 1, enable_gqa=heads != kv_heads)

            size = 2 * batch * dim * (2 * heads * queries + 2 * kv_heads * keys)
            row(op, "bf16", timed(make, size), batch=batch, queries=queries, keys=keys, heads=heads, kv_heads=kv_heads, head_dim=dim)


def memory_bound():
    for power in range(17):
        for width in (1024, 4096):

            def norm():
                x, weight = torch.randn(1 << power, width, device="cuda", dtype=torch.bfloat16), torch.ones(width, device="cuda", dtype=torch.bfloat16)
                return lambda: torch.nn.functional.rms_norm(x, (width,), weight)

            row("norm", "bf16", timed(norm, 4 * width << power), bytes=4 * width << power)
    for power in range(8, 29):

        def add():
            a, b, c = (torch.randn(1 << power, device="cuda", dtype=torch.bfloat16) for _ in range(3))
            return lambda: torch.add(a, b, out=c)

        row("elementwise", "bf16", timed(add, 6 << power), bytes=6 << power)


def main():
    torch.manual_seed(0)
    for part in (products, attention, memory_bound):
        begun = time.monotonic()
        try:
            part()
        except Exception as problem:  # the rows of the other parts are still of use
            print(f"{getattr(part, '__name__', part)}: {problem!r}", flush=True)
        print(f"{getattr(part, '__name__', part)}: {len(ROWS)} rows, {time.monotonic() - begun:.1f} s", flush=True)
        write(sys.argv[1])


def write(path):
    with open(path, "w", newline="", encoding="utf-8") as file:
        names = list(dict.fromkeys(name for one in ROWS for name in one))
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(ROWS)


main()
