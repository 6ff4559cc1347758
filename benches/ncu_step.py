#!/usr/bin/env python3
"""ncu_step.py [RGPU] [KERNEL...]: compares the ncu step of `rgpu profile --mode ncu --set full` with the same
ncu command typed by hand, on the machine with the GPU itself.

Each round profiles the kernel, takes the step's time from the job's own events, and then runs that step's line of
`commands.sh` in the same job folder. Prints the ratio of the medians beside its goal. Needs ncu, python3, and a
release binary with agent, runner and collector beside it. Status 1 if a goal is missed.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TIMES = int(os.environ.get("TIMES", "5"))
GOAL = 1.1


def step_seconds(run):
    """The time of the step `profile`, by the host's clock."""
    at = {}
    for line in (run / "events.jsonl").read_text().splitlines():
        event = json.loads(line)
        if event.get("step") == "profile" and event["event"] in ("step_started", "step_ended"):
            at[event["event"]] = event["at_ms"]
    return (at["step_ended"] - at["step_started"]) / 1e3


def by_hand(run):
    """The command line of the rung that worked."""
    lines = iter((run / "commands.sh").read_text().splitlines())
    for line in lines:
        if line.startswith("# rung ncu.asked"):
            return next(lines)
    sys.exit(f"{run}: no rung ncu.asked: did ncu work here?")


def compare(rgpu, kernel, folder):
    env = {**os.environ, "RGPU_AGENT_HOME": str(folder / "agent")}
    ours, theirs = [], []
    for round in range(TIMES + 1):
        name = f"{kernel}-{round}"
        done = subprocess.run([rgpu, "profile", "--kernel", ROOT / "kernels" / kernel, "--mode", "ncu", "--set", "full", "--remote", "local",
                               "--run-id", name, "--at-least", "ncu.asked"], cwd=folder, env=env, capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr)
        run = folder / "artifacts/runs" / name
        [work] = (folder / "agent/jobs").glob(f"{name}.*/work")
        begun = time.perf_counter()
        subprocess.run(["sh", "-c", by_hand(run)], env={**env, "JOB": str(work)}, check=True, capture_output=True)
        hand = time.perf_counter() - begun
        # The first run warms the caches of driver and file system.
        if round:
            ours.append(step_seconds(run))
            theirs.append(hand)
    a, b = statistics.median(ours), statistics.median(theirs)
    held = a / b <= GOAL
    print(f"{'ok  ' if held else 'MISS'} the ncu step of {kernel}: {a:.3f} s against {b:.3f} s by hand  {a / b:.2f}  (goal {GOAL})", flush=True)
    return held


def main():
    rgpu = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "target/release/rgpu").resolve()
    with tempfile.TemporaryDirectory(prefix="rgpu-bench-") as folder:
        (Path(folder) / "agent").mkdir(mode=0o700)
        held = [compare(rgpu, kernel, Path(folder)) for kernel in sys.argv[2:] or ["vecadd", "tiled-matmul"]]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
