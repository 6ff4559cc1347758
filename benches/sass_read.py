#!/usr/bin/env python3
"""Compares how fast `rgpu disasm` reads, without writing listings, with the usual tools. Medians, taken in turn
on one machine.

    benches/sass_read.py RGPU CUOBJDUMP CUBIN LARGE LIBRARY
        CUBIN    summary of 100 copies, against `cuobjdump -res-usage` in a loop
        LARGE    a cubin of some 14 MB with 840 kernels: seconds for its summary
        LIBRARY  a shared library of some 300 MB: bytes a second of `--list`, and extraction on one core and on
                 all against `zstd -d` of the same frames
"""
import json
import os
import pathlib
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time

COPIES, RUNS = 100, int(os.environ.get("RUNS", "3"))
MAGIC = struct.pack("<IHH", 0xBA55ED50, 1, 16)
ZSTD = 0x8000


def seconds(argv):
    """Seconds of one call, which must succeed."""
    begun = time.monotonic()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.monotonic() - begun


def in_turns(cases, before=lambda: None):
    """{name: median seconds}."""
    taken = {name: [] for name in cases}
    for _ in range(RUNS):
        for name, argv in cases.items():
            before()
            taken[name].append(seconds(argv))
    return {name: statistics.median(runs) for name, runs in taken.items()}


def frames(library):
    """The zstd frames of every fatbin in a file, joined, and the size of their contents."""
    data, at, unpacked = library.read_bytes(), 0, 0
    found = []
    while (at := data.find(MAGIC, at)) >= 0:
        end = at + 16 + struct.unpack_from("<Q", data, at + 8)[0]
        at += 16
        while at + 64 <= end:
            head, size, compressed = struct.unpack_from("<IQI", data, at + 4)
            flags, _, whole = struct.unpack_from("<QQQ", data, at + 40)
            if flags & ZSTD:
                found.append(data[at + head : at + head + (compressed or size)])
                unpacked += whole
            at += head + size
    return found, unpacked


def main(rgpu, cuobjdump, cubin, large, library):
    """Prints one JSON document."""
    library = pathlib.Path(library)
    facts = ["--tool", "none", "-q", "--json", "--out"]
    result = {"cores": len(os.sched_getaffinity(0))}
    with tempfile.TemporaryDirectory(prefix="rgpu-bench-", dir=os.environ.get("TMPDIR")) as folder:
        os.chdir(folder)
        pathlib.Path("rgpu.toml").touch()
        copies = [f"k{number}.cubin" for number in range(COPIES)]
        for copy in copies:
            shutil.copy(cubin, copy)
        loop = f'for f in k*.cubin; do "{cuobjdump}" -res-usage "$f" >/dev/null || exit 1; done'
        took = in_turns({"theirs": ["/bin/sh", "-c", loop], "ours": [rgpu, "disasm", *copies, *facts, "many"]})
        result["summary_of_100"] = {
            "cuobjdump_s": round(took["theirs"], 3), "rgpu_s": round(took["ours"], 3),
            "ratio": round(took["theirs"] / took["ours"], 1),
        }
        took = in_turns({"ours": [rgpu, "disasm", large, *facts, "large"]})
        result["summary_of_large"] = {
            "bytes": os.path.getsize(large), "rgpu_ms": round(took["ours"] * 1000, 1),
        }
        took = in_turns({"ours": [rgpu, "disasm", str(library), "--list", "-q", "--json"]})
        result["list"] = {
            "bytes": library.stat().st_size, "rgpu_s": round(took["ours"], 3),
            "gb_per_s": round(library.stat().st_size / took["ours"] / 1e9, 2),
        }
        found, unpacked = frames(library)
        pathlib.Path("frames.zst").write_bytes(b"".join(found))
        one = ["taskset", "-c", "0"]
        extract = [rgpu, "disasm", str(library), "--extract", *facts, "files"]

        def before():
            shutil.rmtree("files", ignore_errors=True)
            pathlib.Path("frames.bin").unlink(missing_ok=True)

        took = in_turns({
            "zstd": [*one, "zstd", "-d", "-q", "-f", "frames.zst", "-o", "frames.bin"],
            "one_core": [*one, *extract],
            "all_cores": extract,
        }, before)
        result["extract"] = {
            "frames": len(found), "unpacked_bytes": unpacked, "zstd_s": round(took["zstd"], 2),
            "rgpu_one_core_s": round(took["one_core"], 2), "rgpu_all_cores_s": round(took["all_cores"], 2),
            "ratio_one_core": round(took["zstd"] / took["one_core"], 2),
            "ratio_all_cores": round(took["zstd"] / took["all_cores"], 2),
        }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    absolute = [str(pathlib.Path(argument).resolve()) for argument in sys.argv[1:]]
    sys.exit(main(*absolute) if len(absolute) == 5 else __doc__)
