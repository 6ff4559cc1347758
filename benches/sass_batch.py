#!/usr/bin/env python3
"""Measures how much faster `rgpu disasm` writes the SASS of many cubins, and of one large cubin, than nvdisasm
in a loop, and how much memory the largest process needs. Medians, taken in turn on one machine.

    benches/sass_batch.py RGPU NVDISASM CUBIN [LARGE]
        64 copies of CUBIN, each made a file of its own, and LARGE, a cubin of several megabytes
"""
import json
import os
import pathlib
import shutil
import statistics
import sys
import tempfile
import time

COPIES, RUNS = 64, int(os.environ.get("RUNS", "3"))


def timed(argv, out, env):
    """Seconds, and peak MiB of the largest process among it and its children."""
    begun = time.monotonic()
    with open(out, "wb") as stdout:
        files = [(os.POSIX_SPAWN_DUP2, stdout.fileno(), 1), (os.POSIX_SPAWN_DUP2, stdout.fileno(), 2)]
        pid = os.posix_spawn(argv[0], argv, env, file_actions=files)
        _, status, usage = os.wait4(pid, 0)
    assert status == 0, f"{argv} ended with {status}: see {out}"
    return time.monotonic() - begun, usage.ru_maxrss / 1024


def median(runs):
    """The median of (seconds, MiB) pairs."""
    return tuple(round(statistics.median(values), 2) for values in zip(*runs))


def main(rgpu, nvdisasm, cubin, large=None):
    """Prints one JSON document."""
    cores = len(os.sched_getaffinity(0))
    bin_folder = str(pathlib.Path(nvdisasm).resolve().parent)
    env = {**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}"}
    with tempfile.TemporaryDirectory(prefix="rgpu-bench-") as folder:
        folder = pathlib.Path(folder)
        (folder / "rgpu.toml").touch()
        files = [folder / f"k{number}.cubin" for number in range(COPIES)]
        for file in files:
            shutil.copy(cubin, file)
        os.chdir(folder)
        # A plain loop, as a user would write it.
        loop = ["/bin/sh", "-c", 'for f in k*.cubin; do nvdisasm -c "$f" >"$f.sass" || exit 1; done']
        ours = [rgpu, "disasm", *map(str, files), "--out", "sass", "--tool", "nvdisasm", "-q", "--json"]
        cases = {"batch": (loop, ours)}
        if large:
            whole = ["/bin/sh", "-c", f'nvdisasm -c "{large}" >large.sass']
            cases["large"] = (whole, [rgpu, "disasm", large, "--out", "one", "--tool", "nvdisasm", "-q", "--json"])
        result = {"cores": cores}
        for name, (theirs, mine) in cases.items():
            runs = [(timed(theirs, "theirs", env), timed(mine, "mine", env)) for _ in range(RUNS)]
            (their_s, their_mib), (my_s, my_mib) = (median(side) for side in zip(*runs))
            result[name] = {
                "nvdisasm_s": their_s, "rgpu_s": my_s, "ratio": round(their_s / my_s, 2),
                "ratio_per_core": round(their_s / my_s / cores, 2),
                "nvdisasm_mib": their_mib, "rgpu_and_its_largest_nvdisasm_mib": my_mib,
            }
        print(json.dumps(result, indent=2))


if __name__ == "__main__":
    absolute = [str(pathlib.Path(argument).resolve()) for argument in sys.argv[1:]]
    sys.exit(main(*absolute) if len(absolute) in (3, 4) else __doc__)
