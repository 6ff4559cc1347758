#!/usr/bin/env python3
"""Times `rgpu report` on a .ncu-rep of 7 MB, as whole processes: the table and the brief summary, against JSON, which
shows everything. Prints medians of RUNS runs, one of each format in turn. Status 1 if a summary takes more than LIMIT_MS
of CPU time.

    benches/ncu_report.py RGPU [REPORT.ncu-rep]     without a report: one that repeats a recorded launch, made with zstd
"""
import os
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RECORDING = ROOT / "tests/fixtures/ncu/2025.3.1/full-tiled-matmul/report.ncu-repz"
SIZE, RUNS, LIMIT_MS = 7_000_000, 21, 30
# Fields of a block's header.
SESSION, STRINGS, PAYLOAD = 3, 4, 5


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at, value, shift = at + 1, value | (byte & 0x7F) << shift, shift + 7
        if byte < 0x80:
            return value, at


def fields(header):
    """Number, bytes and value of each field of a message."""
    at = 0
    while at < len(header):
        start = at
        key, at = varint(header, at)
        value, at = varint(header, at)
        at += value if key & 7 == 2 else 0
        yield key >> 3, header[start:at], value


def repeated(report, size):
    """The report, followed by copies of its blocks without their session and strings."""
    length = lambda at: struct.unpack_from("<I", report, at)[0]
    at, copy = 8 + length(4), b""
    while at < len(report):
        start = at + 4
        header = report[start:start + length(at)]
        known = list(fields(header))
        payload = next((value for number, _, value in known if number == PAYLOAD), 0)
        kept = b"".join(part for number, part, _ in known if number not in (SESSION, STRINGS))
        at = start + len(header) + payload
        copy += struct.pack("<I", len(kept)) + kept + report[start + len(header):at]
    return report + copy * -(-(size - len(report)) // len(copy))


def once(argv):
    """CPU time of the process in user and system mode, and its wall time, in milliseconds."""
    begun = time.monotonic()
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, argv)
    return 1e3 * (usage.ru_utime + usage.ru_stime), 1e3 * (time.monotonic() - begun)


def medians(commands):
    """The medians of each command's CPU time and wall time."""
    runs = [[once(argv) for argv in commands.values()] for _ in range(1 + RUNS)][1:]
    return {name: tuple(map(statistics.median, zip(*times))) for name, times in zip(commands, zip(*runs))}


def main():
    rgpu = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory(prefix="rgpu-bench-") as folder:
        os.chdir(folder)
        if len(sys.argv) > 2:
            shutil.copy(ROOT / sys.argv[2], "report.ncu-rep")
        else:
            one = subprocess.run(["zstd", "-dc", RECORDING], check=True, capture_output=True).stdout
            Path("report.ncu-rep").write_bytes(repeated(one, SIZE))
        print(f"{os.path.getsize('report.ncu-rep')} bytes")
        forms = ("json", "table", "brief")
        took = medians({form: [rgpu, "report", "report.ncu-rep", "--format", form] for form in forms})
    print("| format | CPU, ms | wall, ms | CPU of json's |\n|---|---|---|---|")
    for form, (cpu, wall) in took.items():
        print(f"| {form} | {cpu:.1f} | {wall:.1f} | {cpu / took['json'][0]:.2f} |")
    return 0 if max(took["table"][0], took["brief"][0]) <= LIMIT_MS else 1


if __name__ == "__main__":
    sys.exit(main())
