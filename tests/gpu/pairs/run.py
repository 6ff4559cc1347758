#!/usr/bin/env python3
"""run.py OUT: runs each pair without a profiler, then its fault under `rgpu profile --mode nsys`. README.md says more."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
NVCC = ["nvcc", "-O3", "-std=c++17", "-arch=sm_90a", "-lineinfo", "-lcublas", "-lcufft", "-lcurand"]


def command(pair, side, build):
    """The command of a side; a CUDA program is compiled first."""
    source = pair / f"{side}.cu"
    if not source.exists():
        return [sys.executable, f"{side}.py"]
    program = build / f"{pair.name}.{side}"
    subprocess.run([*NVCC, "-o", program, source], check=True)
    return [str(program)]


def timed(words, folder):
    """Runs a program; its step time, check and status."""
    begun = time.time()
    env = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    out = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, errors="replace", timeout=120, check=False)
    step, check = (re.findall(rf"{name}[\s=]+(\S+)", out.stdout) for name in ("step_ms", "check"))
    result = {"status": out.returncode, "seconds": round(time.time() - begun, 2)}
    if step and out.returncode == 0:
        return {**result, "step_ms": float(step[-1]), "check": check[-1] if check else None}
    return {**result, "problem": (out.stdout + out.stderr)[-1000:]}


def profile(words, pair, out):
    """Profiles a program with nsys; keeps its report and rgpu's words about it."""
    out.mkdir(parents=True, exist_ok=True)
    runs = out / "runs"
    rgpu = [os.environ.get("RGPU", "rgpu"), "profile", "--remote", "local", "--mode", "nsys", "--", *words]
    with open(out / "stdout.txt", "w") as stdout, open(out / "stderr.txt", "w") as stderr:
        env = {**os.environ, "RGPU_RUNS_DIR": str(runs)}
        status = subprocess.run(rgpu, cwd=pair, env=env, stdout=stdout, stderr=stderr, timeout=240, check=False).returncode
    for report in runs.rglob("*.nsys-rep"):
        shutil.copy(report, out / "trace.nsys-rep")
    shutil.rmtree(runs, ignore_errors=True)
    return status


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    out, results = Path(sys.argv[1]), {}
    out.mkdir(parents=True, exist_ok=True)
    only, half = os.environ.get("ONLY", "").split(), os.environ.get("HALF")
    with tempfile.TemporaryDirectory() as build:
        for truth in sorted(HERE.glob("*/truth.toml")):
            pair = truth.parent
            if (only and pair.name not in only) or (half and tomllib.loads(truth.read_text())["half"] != half):
                continue
            sides = {side: command(pair, side, Path(build)) for side in ("fault", "mended")}
            result = {side: timed(words, pair) for side, words in sides.items()}
            if all(side["status"] == 0 for side in result.values()):
                result["profile_status"] = profile(sides["fault"], pair, out / pair.name)
            results[pair.name] = result
            (out / "results.json").write_text(json.dumps(results, indent=1))
            print(pair.name, json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
