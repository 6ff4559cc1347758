#!/usr/bin/env python3
"""Compares the speed of `rgpu layout` with pycute and with its goals.

Compositions are timed in turns, on one core, in processor time, so that other programs count for neither.
Prints the median of the turns' ratios. A process is timed by the clock.

    cargo build --release -p rgpu; cargo build --release -p rgpu-layout --example compositions
    pip install --no-deps nvidia-cutlass==4.2.0.0
    benches/layout.py RGPU COMPOSITIONS

Goals: a composition with its proof takes a hundredth of pycute's time; `eval` as a process takes 5 ms.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

PAIRS = Path(__file__).resolve().parent.parent / "src/layout/tests/data/pycute.tsv"
RUNS = int(os.environ.get("RUNS", "5"))


def layout(text):
    """A layout of pycute."""
    from pycute.layout import Layout

    def read(part):
        return eval(part.replace(",)", ")"), {})  # digits, commas and brackets of our own file

    shape, stride = text.split(":")
    return Layout(read(shape), read(stride))


def pycute():
    """Nanoseconds of one composition."""
    from pycute.layout import composition

    lines = [line.split("\t") for line in PAIRS.read_text().splitlines() if line.startswith("compose\t")]
    pairs = [(layout(line[1]), layout(line[2])) for line in lines]
    began = time.process_time()
    for a, b in pairs:
        try:
            composition(a, b)
        except Exception:
            pass
    return (time.process_time() - began) / len(pairs) * 1e9


def rust(compositions):
    """Nanoseconds of one composition with its proof."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    count = json.loads(subprocess.check_output([compositions]))["count"]
    return (resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before) / count * 1e9


def process(rgpu):
    """Milliseconds of one `eval`."""
    argv = [rgpu, "layout", "eval", "((32,4),(16,4)):((16,4),(0,1))", "--at", "(5,3)", "--json"]
    began = time.perf_counter()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    return (time.perf_counter() - began) * 1e3


def main(rgpu, compositions):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    turns = [(rust(compositions), pycute()) for _ in range(3 * RUNS)]
    evals = [process(rgpu) for _ in range(20 * RUNS)]
    ours, theirs = (statistics.median(column) for column in zip(*turns))
    ratio = statistics.median(theirs / ours for ours, theirs in turns)
    print(json.dumps({
        "composition_ns": round(ours), "pycute_ns": round(theirs), "ratio": round(ratio, 1), "goal_ratio": 100,
        "eval_ms": round(statistics.median(evals), 2), "goal_eval_ms": 5,
    }, indent=2))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) if len(sys.argv) == 3 else __doc__)
