"""torch_gemm.py KERNEL_TOML CASE...: times torch's f16 product of each group of these cases of wagmiv67, on operands that are
already dequantised, in one CUDA graph per case. Prints JSON: {case: {"median_us", "ci95_us"}}.

Measured as rgpu measures: L2 flushed before each replay, events around it. The interval is that of the median by ranks.
"""

import json
import statistics
import sys
import tomllib

import torch

REPLAYS = 41


def captured(groups):
    """A CUDA graph of one product per group."""
    operands = [(torch.randn(g["m"], g["k"], device="cuda", dtype=torch.float16),
                 torch.randn(g["n"], g["k"], device="cuda", dtype=torch.float16),
                 torch.empty(g["m"], g["n"], device="cuda", dtype=torch.float16)) for g in groups]
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for a, b, out in operands:
            torch.mm(a, b.t(), out=out)
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for a, b, out in operands:
                torch.mm(a, b.t(), out=out)
    return graph, operands


def times_us(graph):
    flush = torch.empty(2 * torch.cuda.get_device_properties(0).L2_cache_size, dtype=torch.uint8, device="cuda")
    times = []
    for _ in range(REPLAYS + 3):
        flush.zero_()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3)
    return sorted(times[3:])


def main():
    with open(sys.argv[1], "rb") as file:
        cases = tomllib.load(file)["sizes"]["cases"]
    found = {}
    for name in sys.argv[2:]:
        graph, operands = captured(cases[name])
        times = times_us(graph)
        # 95 % of a binomial distribution of 41 samples lie between the ranks 14 and 28.
        found[name] = {"median_us": round(statistics.median(times), 2), "ci95_us": [round(times[13], 2), round(times[27], 2)]}
        del graph, operands
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
