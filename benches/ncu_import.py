#!/usr/bin/env python3
"""Compares the time to read a .ncu-rep: with rgpu, with `ncu --import`, and with NVIDIA's Python module.
Prints the minimum of five runs each. All run together, so that the ratios are of one machine.

    benches/ncu_import.py REPORT.ncu-rep [--ours MS] [--ncu PATH] [--module FOLDER]

`--ours` is the time that `RGPU_BENCH_NCU_REP=REPORT.ncu-rep cargo bench -p rgpu-format --bench ncu_rep`
prints for all metrics and instances, in milliseconds. The module is found on the Python path, in
`--module` (`extras/python` of an Nsight Compute), or comes from `pip install ncu-report`.
A missing peer is left out of the table and named.
"""
import argparse
import shutil
import subprocess
import sys
import time


def least(run, times=5):
    best = None
    for _ in range(times):
        begun = time.perf_counter()
        result = run()
        took = 1e3 * (time.perf_counter() - begun)
        best = took if best is None else min(best, took)
    return best, result


def scalars(module, path):
    count = 0
    report = module.load_report(path)
    for at in range(report.num_ranges()):
        part = report.range_by_idx(at)
        for number in range(part.num_actions()):
            action = part.action_by_idx(number)
            for name in action.metric_names():
                action.metric_by_name(name).value()
                count += 1
    return count


def instances(module, path):
    count = 0
    report = module.load_report(path)
    for at in range(report.num_ranges()):
        part = report.range_by_idx(at)
        for number in range(part.num_actions()):
            action = part.action_by_idx(number)
            for name in action.metric_names():
                metric = action.metric_by_name(name)
                metric.value()
                for instance in range(metric.num_instances()):
                    metric.value(instance)
                    count += 1
    return count


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("report")
    parser.add_argument("--ours", type=float)
    parser.add_argument("--ncu", default="ncu")
    parser.add_argument("--module")
    args = parser.parse_args()
    rows, absent = [], []
    if args.ours is not None:
        rows.append(("rgpu-format, all metrics and instances", args.ours, ""))
    if args.module:
        sys.path.insert(0, args.module)
    try:
        import ncu_report
    except ImportError as error:
        absent.append(f"ncu_report: {error}")
    else:
        took, count = least(lambda: scalars(ncu_report, args.report))
        rows.append(("ncu_report, all metrics", took, f"{count} metrics"))
        took, count = least(lambda: instances(ncu_report, args.report))
        rows.append(("ncu_report, all metrics and instances", took, f"{count} instances"))
    if shutil.which(args.ncu):
        line = [args.ncu, "--import", args.report, "--page", "raw", "--csv"]
        run = lambda: subprocess.run(line, check=True, capture_output=True).stdout
        took, out = least(run)
        rows.append(("ncu --import --page raw --csv", took, f"{len(out)} bytes"))
    else:
        absent.append(f"ncu: no `{args.ncu}` on the path")
    print(f"| reader | least of 5, ms |{' times ours |' if args.ours else ''} read |")
    print(f"|---|---|{'---|' if args.ours else ''}---|")
    for what, took, note in rows:
        ratio = f" {took / args.ours:.0f} |" if args.ours else ""
        print(f"| {what} | {took:.1f} |{ratio} {note} |")
    for text in absent:
        print(f"not there: {text}")


if __name__ == "__main__":
    main()
