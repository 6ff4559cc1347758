#!/usr/bin/env python3
"""How long `rgpu report` and `nsys stats` take for the kernel and NVTX sums of one export, and
whether they agree. The least of three runs each, in one go, so that the ratio is of one machine.

    benches/nsys_sums.py EXPORT.sqlite [--rgpu PATH] [--nsys PATH]
"""
import argparse
import csv
import io
import json
import resource
import subprocess
import sys
import time


def timed(argv):
    best, out = None, ""
    for _ in range(3):
        begun = time.monotonic()
        out = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
        took = time.monotonic() - begun
        best = took if best is None else min(best, took)
    return best, out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("export")
    parser.add_argument("--rgpu", default="rgpu")
    parser.add_argument("--nsys", default="nsys")
    args = parser.parse_args()
    own, out = timed([args.rgpu, "report", args.export, "--json"])
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**10
    sums = {k["kernel"]: (k["launches"], k["total_ns"]) for k in json.loads(out)["kernels"]}
    print(f"rgpu        {own:8.2f} s, {peak:.0f} MiB at most")
    try:
        theirs, out = timed([args.nsys, "stats", "--report", "cuda_gpu_kern_sum", "--report", "nvtx_sum",
                             "--format", "csv", "-o", "-", args.export])
    except FileNotFoundError:
        sys.exit("nsys is not here: nothing to compare with")
    rows = csv.reader(io.StringIO(out[out.index("Time (%)"):]))
    next(rows)
    wrong = 0
    for row in rows:
        if len(row) != 9:
            break
        wrong += sums.get(row[8]) != (int(row[2]), int(row[1]))
    print(f"nsys stats  {theirs:8.2f} s: rgpu is {theirs / own:.1f} times as fast; {wrong} sums differ")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
