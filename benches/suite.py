#!/usr/bin/env python3
"""suite.py [RGPU [FAKE]]: what `rgpu bench` adds to its cases, and how fast its index answers.

RGPU is the program, built for speed; by default that of the variable RGPU, else target/dist, else target/release. The goals
are for a machine that does nothing else: beside each time stands the processor time, which others change less.

The overhead of a case is its wall time less that of the runner, over ssh on loopback with a round trip of 20 ms. The host is
played by FAKE (the program `rgpu-fake` of this workspace), whose tools take next to no time: so the whole time of a case
is overhead. The first suite compiles and sends; the second is measured, and it must send nothing.

`history` and `compare` run in a project with the folders of 10,000 runs, whose times are in the index: 250 suites of 40
cases."""

import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
from loopback import Delay, Host, seconds

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ["ncu", "nsys", "compute-sanitizer", "nvcc", "nvidia-smi"]
CASES = 8
SOURCE_BYTES = 1 << 20
SUITES, ROWS = 250, 40
TIMES = int(os.environ.get("TIMES", "15"))
HELD = []


def limit(name, ours, most, unit):
    HELD.append(ours <= most)
    print(f"{'ok  ' if ours <= most else 'MISS'} {name:52} {ours:8.1f} {unit:4} (goal ≤ {most} {unit})", flush=True)


def overhead(rgpu, fake):
    with tempfile.TemporaryDirectory(prefix="rgpu-bench-suite-") as folder:
        folder = Path(folder)
        host = Host(folder, rgpu)
        try:
            link = play(host, fake)
            run = lambda name: host.run([rgpu, "bench", "run", "--run-id", name, "--mode", "bench", "--json"])
            run("first")
            first, link.sent = link.sent, 0
            rows = json.loads(run("second").stdout)["rows"]
            failed = [row for row in rows if row["state"] != "ok"]
            assert len(rows) == CASES and not failed, f"the suite failed: {failed}"
            # The connection is opened in the first case, and what it compiles serves all.
            each = [row["seconds"] for row in rows[1:]]
            limit("overhead of a case at 20 ms", statistics.median(each) * 1e3, 500, "ms")
            limit("and of the slowest", max(each) * 1e3, 500, "ms")
            assert first > SOURCE_BYTES, f"the first suite sent {first} bytes, less than its source"
            # Plans and the keys of ssh are what is left.
            limit("bytes sent for a case of an unchanged suite", link.sent / CASES / 1024, SOURCE_BYTES / 1024 / CASES, "KiB")
        finally:
            host.server.terminate()


def play(host, fake):
    """Makes the host one with NVIDIA's tools, and the project one with a suite. Returns the proxy to the host."""
    tools, played, libexec = host.folder / "tools", host.folder / "played", host.folder / "libexec"
    for made in (tools, played, libexec):
        made.mkdir()
    for name in TOOLS:
        (tools / name).symlink_to(fake)
    beside = Path(os.environ.get("RGPU_LIBEXEC", host.rgpu.parent))
    for name in ("rgpu-agent", "rgpu-agent-http"):
        if (beside / name).exists():
            (libexec / name).symlink_to(beside / name)
    runner = libexec / "rgpu-runner"
    runner.write_text(f"#!/bin/sh\nexec '{fake}' rgpu-runner \"$@\"\n")
    runner.chmod(0o755)
    (libexec / "librgpu_collector.so").write_bytes(b"synthetic")
    host.env["RGPU_LIBEXEC"] = str(libexec)
    link = Delay(host.port, 0.010)
    host.use(link.port)
    config = host.folder / "config.toml"
    config.write_text(config.read_text() + f'path = ["{tools}"]\nenv = {{ RGPU_FAKE_HOST = "{played}" }}\n')
    project = host.folder / "project"
    shutil.copytree(ROOT / "kernels/vecadd", project / "kernels/vecadd")
    # A source that is large enough to be seen among the bytes of the link.
    source = project / "kernels/vecadd/vecadd.cu"
    source.write_text(f"// {random.randbytes(SOURCE_BYTES).hex()}\n" + source.read_text())
    sizes = ", ".join(str(1000 * n) for n in range(1, CASES + 1))
    (project / "bench.toml").write_text(
        f'[[target]]\nname = "memory:vecadd"\nkernel = "vecadd"\n[target.matrix]\nsizes.n = [{sizes}]\n')
    return link


def index(rgpu):
    with tempfile.TemporaryDirectory(prefix="rgpu-bench-index-") as folder:
        project = Path(folder) / "project"
        runs = project / "artifacts/runs"
        (project / "rgpu.toml").parent.mkdir(parents=True)
        (project / "rgpu.toml").touch()
        for n in range(SUITES):
            write_suite(runs / f"night-{n:03}", n)
        env = {**os.environ, "HOME": folder, "RGPU_CONFIG": f"{folder}/config.toml", "NO_COLOR": "1"}
        call = lambda *words: subprocess.run([rgpu, *words], cwd=project, env=env, check=True, capture_output=True)
        call("runs", "reindex")
        for name, words in (
            ("history of a case in 10,000 runs", ("history", "suite:case-7")),
            ("history of all cases", ("history", "suite:*", "--json")),
            ("compare of two of 250 suites", ("compare", "night-100", "night-101")),
        ):
            call("bench", *words)
            before = processor_seconds()
            wall = statistics.median(seconds(lambda: call("bench", *words)) for _ in range(TIMES))
            own = (processor_seconds() - before) / TIMES
            limit(f"{name} ({own * 1e3:.0f} ms of a core)", wall * 1e3, 100, "ms")


def processor_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def write_suite(folder, n):
    """A suite with a time for each case, as `rgpu bench run` leaves one."""
    started = f"2026-{1 + n // 28 % 12:02}-{1 + n % 28:02}T00:00:00Z"
    times = lambda case: [{
        "case": case, "side": "kernel", "sizes": "n=1000", "dtype": "f32", "gpu": "NVIDIA H200", "driver": "580", "toolkit": "nvcc 13.0",
        "clocks": "as_found", "method": "1 cuda_events l2_flush", "size": "large", "inputs": "abc", "device": "GPU-1",
        "median_ns": 20000.0 + n % 7, "ci95_ns": [19990.0, 20020.0], "samples": 60, "correctness": "right"}]
    rows = [{
        "case": f"suite:case-{at}", "target": f"suite:case-{at}", "kernel": "vecadd", "remote": "h200", "state": "ok", "attempts": 1,
        "seconds": 3.0, "exit": 0, "again": "rgpu bench run", "times": times(f"suite:case-{at}")} for at in range(ROWS)]
    suite = {"schema": "rgpu.suite/1", "id": folder.name, "started": started, "seconds": 120.0, "state": "done", "clean": True,
             "rgpu": "0.1.0", "commit": "0" * 40, "dirty": False, "options": {}, "rows": rows}
    folder.mkdir(parents=True)
    (folder / "suite.json").write_text(json.dumps(suite))
    write_run(folder, f"bench, {ROWS} cases", started)
    for at in range(ROWS):
        write_run(folder.with_name(f"{folder.name}-{at + 1:03}-suite-case-{at}"), f"bench suite:case-{at} (bench)", started)


def write_run(folder, title, started):
    folder.mkdir(exist_ok=True)
    run = {"schema": "rgpu.run/1", "id": folder.name, "command": "bench", "title": title, "started": started, "state": "done"}
    (folder / "run.json").write_text(json.dumps(run))


def program():
    named = sys.argv[1:2] or [os.environ[name] for name in ("RGPU",) if name in os.environ]
    built = [*ROOT.glob("target/*/dist/rgpu"), *ROOT.glob("target/dist/*/rgpu"), *ROOT.glob("target/release/rgpu")]
    found = [*map(Path, named), *built]
    if not found:
        sys.exit("no rgpu built for speed: `cargo xtask dist`, or name one with RGPU=PATH")
    return found[0].resolve()


def main():
    rgpu = program()
    fakes = [*map(Path, sys.argv[2:]), rgpu.parent / "rgpu-fake", ROOT / "target/release/rgpu-fake", ROOT / "target/debug/rgpu-fake"]
    fake = next((path.resolve() for path in fakes if path.exists()), None)
    if fake:
        overhead(rgpu, fake)
    else:
        print("left out: the overhead of a case: no rgpu-fake (`cargo build --release -p rgpu-fake`)")
    # Last: the next files are slower after so many are removed.
    index(rgpu)
    return 0 if all(HELD) else 1


if __name__ == "__main__":
    sys.exit(main())
