#!/usr/bin/env python3
"""public.py CASES OUT [HALF]: runs `rgpu profile PATH` on public files of other people, on this machine's GPU.

`public.tsv` names them: CASES/FAMILY/NAME is a folder with the files of the commit; a coin gave each to the half
`tune` or `unseen`. Several run side by side and share the GPU, so only whether each is measured counts, not its time.

  RGPU     the binary; default: rgpu
  WORKERS  how many run side by side; default: 6
  SECONDS_EACH  the longest time of one; default: 75
"""

import csv
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
SECONDS = float(os.environ.get("SECONDS_EACH", "75"))


def ended(process):
    """The exit status; a process that runs too long is interrupted, then killed."""
    try:
        return process.wait(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
    try:
        process.wait(timeout=6)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
    return "too long"


def run(row, cases, out):
    """Profiles one case; a line with its exit status, its seconds and its first error."""
    path, folder = cases / row["path"], out / f"{row['family']}-{row['name']}"
    locks = folder / "locks"
    locks.mkdir(parents=True, exist_ok=True, mode=0o700)
    words = [os.environ.get("RGPU", "rgpu"), "profile", path.name, "--remote", "local", "--share-gpu"]
    words += ["--", *row["arguments"].split()] if row["arguments"] else []
    env = {**os.environ, "RGPU_RUNS_DIR": str(folder / "runs"), "RGPU_LOCK_DIR": str(locks)}
    begun = time.time()
    with open(folder / "stdout.txt", "w") as stdout, open(folder / "stderr.txt", "w") as stderr:
        process = subprocess.Popen(words, cwd=path.parent, env=env, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, start_new_session=True)
        status = ended(process)
    said = (folder / "stderr.txt").read_text(errors="replace").splitlines()
    error = next((line for line in said if line.startswith("error")), "")
    print(f"{row['family']:12} {row['name']:24} {status!s:>8} {time.time() - begun:5.1f} s  {error[:200]}", flush=True)
    return status == 0


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    cases, out = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    with open(HERE / "public.tsv", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    rows = [row for row in rows if len(sys.argv) == 3 or row["half"] == sys.argv[3]]
    with ThreadPoolExecutor(int(os.environ.get("WORKERS", "6"))) as pool:
        measured = list(pool.map(lambda row: run(row, cases, out), rows))
    print(f"{sum(measured)} of {len(measured)} were measured")


if __name__ == "__main__":
    main()
