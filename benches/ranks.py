#!/usr/bin/env python3
"""Compares `rgpu report` of many reports of ranks with the same command on the largest of them alone: time and peak memory.
Prints medians of three runs each, taken in turn. Status 1 if joining takes more than 1.5 × max(1, reports ÷ cores) × the
largest alone.

    benches/ranks.py RGPU [SIZE [REPORTS]]        SIZE of each export that is made: 200M (default); REPORTS: 4
"""
import json
import os
import pathlib
import statistics
import sys
import tempfile

sys.dont_write_bytecode = True
from make_nsys_sqlite import make, size_of
from nsys_sums import timed

RUNS = 3


def main():
    rgpu, size = sys.argv[1], size_of(sys.argv[2] if len(sys.argv) > 2 else "200M")
    many = int(sys.argv[3]) if len(sys.argv) > 3 else 4
    with tempfile.TemporaryDirectory(prefix="rgpu-ranks-") as folder:
        folder = pathlib.Path(folder)
        paths = [str(folder / f"rank{rank}.sqlite") for rank in range(many)]
        for rank, path in enumerate(paths):
            make(path, size, rank)
        alone, joined = [], []
        for _ in range(RUNS):
            alone.append(timed([rgpu, "report", paths[0]], folder / "alone.txt"))
            joined.append(timed([rgpu, "report", *paths, "--json"], folder / "joined.json"))
        ranks = json.load(open(folder / "joined.json"))["ranks"]
        if len(ranks["ranks"]) != many or ranks["unmatched"] or not ranks["collectives"]:
            sys.exit("not every rank or collective is in the joined report")
    (one_s, one_mib), (all_s, all_mib) = ([statistics.median(column) for column in zip(*runs)] for runs in (alone, joined))
    limit = 1.5 * max(1, many / os.cpu_count())
    print(f"one report {one_s:.2f} s, {one_mib:.0f} MiB; {many} joined {all_s:.2f} s, {all_mib:.0f} MiB: "
          f"{all_s / one_s:.2f} times (goal ≤ {limit:.2f})")
    return all_s / one_s > limit


if __name__ == "__main__":
    sys.exit(main())
