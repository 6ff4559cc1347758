#!/usr/bin/env python3
"""Compares `rgpu report` with `nsys stats` on the kernel and NVTX sums of one large export: their time, their
memory, and whether their sums agree. Prints medians of three runs each, taken in turn on one machine.
A slow tool runs fewer times.

    benches/nsys_sums.py RGPU [SIZE]        SIZE of the export that is made: 400M, 1G (default)
"""
import csv
import glob
import json
import os
import pathlib
import shutil
import statistics
import sys
import tempfile
import time

sys.dont_write_bytecode = True
from make_nsys_sqlite import make, size_of

REPORTS = "cuda_gpu_kern_sum,nvtx_sum"
NSYS = ["/opt/nvidia/nsight-systems/*/target-linux-x64/nsys", "/opt/nvidia/nsight-compute/*/host/target-linux-x64/nsys",
        "/usr/local/cuda*/bin/nsys"]
RUNS, ENOUGH_S = 3, 40


def find_nsys():
    """Path of nsys: `NSYS`, else found as in tests/gpu/record."""
    found = [path for pattern in NSYS for path in sorted(glob.glob(pattern))]
    return os.environ.get("NSYS") or shutil.which("nsys") or (found[-1] if found else None)


def timed(argv, out):
    """Seconds and peak MiB of one run; its stdout goes to the file `out`."""
    begun = time.monotonic()
    with open(out, "wb") as stdout, open(f"{out}.err", "wb") as stderr:
        files = [(os.POSIX_SPAWN_DUP2, stdout.fileno(), 1), (os.POSIX_SPAWN_DUP2, stderr.fileno(), 2)]
        pid = os.posix_spawn(argv[0], argv, os.environ, file_actions=files)
        _, status, usage = os.wait4(pid, 0)
    took = time.monotonic() - begun
    if status:
        sys.exit(f"{argv} failed:\n{pathlib.Path(f'{out}.err').read_text()[-2000:]}{pathlib.Path(out).read_text()[-500:]}")
    return took, usage.ru_maxrss / 2**10


def theirs(path):
    """Kernels and ranges in the output of `nsys stats`: times and instances by name."""
    kernels, ranges, table = {}, {}, None
    for row in csv.reader(open(path)):
        if row[:1] == ["Time (%)"]:
            table = (kernels if row[-1] == "Name" else ranges, row)
        elif table and len(row) == len(table[1]):
            cells = dict(zip(table[1], row))
            table[0][row[-1]] = (int(cells["Total Time (ns)"]), int(cells["Instances"]))
    return kernels, ranges


def ours(path):
    """The same from the profile. nsys sums ranges by name over all paths, and writes `domain:name`."""
    profile = json.load(open(path))
    kernels = {k["kernel"]: (k["total_ns"], k["launches"]) for k in profile["kernels"]}
    ranges = {}
    for region in profile["regions"]:
        domain, _, name = region["path"][-1].rpartition("@")
        name = f"{domain}:{name}"
        ns, count = ranges.get(name, (0, 0))
        ranges[name] = (ns + region["host_ns"], count + region["instances"])
    return kernels, ranges


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    rgpu, nsys = os.path.abspath(sys.argv[1]), find_nsys()
    with tempfile.TemporaryDirectory() as folder:
        export = f"{folder}/large.sqlite"
        begun = time.monotonic()
        make(export, size_of(sys.argv[2] if len(sys.argv) > 2 else "1G"))
        size = os.path.getsize(export) / 2**20
        print(f"an export of {size:.0f} MiB, made in {time.monotonic() - begun:.0f} s; nsys: {nsys}", flush=True)
        tools = {"rgpu report --json": ([rgpu, "report", export, "--json"], f"{folder}/ours")}
        if nsys:
            argv = [nsys, "stats", "--report", REPORTS, "--format", "csv", "--output", "-", export]
            tools["nsys stats"] = (argv, f"{folder}/theirs")
        runs = {name: [] for name in tools}
        for _ in range(RUNS):
            for name, (argv, out) in tools.items():
                if sum(took for took, _ in runs[name]) < ENOUGH_S:
                    runs[name].append(timed(argv, out))
        print(f"{'tool':<20}{'median s':>10}{'runs':>6}{'peak MiB':>10}{'of the file':>13}")
        for name, all_runs in runs.items():
            peak = max(mib for _, mib in all_runs)
            median = statistics.median(took for took, _ in all_runs)
            print(f"{name:<20}{median:>10.2f}{len(all_runs):>6}{peak:>10.0f}{peak / size:>12.2f}x")
        if not nsys:
            sys.exit("nsys is not here: nothing to compare with")
        own, other = (statistics.median(took for took, _ in all_runs) for all_runs in runs.values())
        wrong = 0
        for what, mine, nsyss in zip(("kernels", "ranges"), ours(f"{folder}/ours"), theirs(f"{folder}/theirs")):
            differ = [name for name in mine.keys() | nsyss.keys() if mine.get(name) != nsyss.get(name)]
            wrong += len(differ) or not nsyss
            print(f"{what}: {len(nsyss)} sums by nsys, {len(mine)} by rgpu, {len(differ)} differ")
            for name in differ[:3]:
                print(f"  {name}: nsys {nsyss.get(name)}, rgpu {mine.get(name)}")
        print(f"rgpu is {other / own:.1f} times as fast")
        sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
