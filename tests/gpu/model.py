"""The part `model`: kernels timed here (kernel_times.py), and how far the predictions are from them."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Median error on rows that the fit has not seen, in percent: the goal for kernels.
GOAL = 10


def model(s):
    rows, calibration = s.out / "rows.csv", s.out / "calib.toml"
    done = subprocess.run([sys.executable, HERE / "kernel_times.py", rows], check=False, capture_output=True, text=True,
                          timeout=max(1, s.time_left()))
    (s.out / "kernel_times.txt").write_text(done.stdout + done.stderr)
    s.check("kernels are timed", done.returncode == 0 and rows.is_file(), done.stderr[-600:], note=" / ".join(done.stdout.splitlines())[-300:])
    plain = s.rgpu("model", "reconcile", rows.resolve(), "--gpu", "h200")
    (s.out / "reconcile.txt").write_text(plain.stdout)
    fit = s.rgpu("model", "fit", rows.resolve(), "--gpu", "h200", "--out", calibration.resolve(), "--json")
    (s.out / "fit.json").write_text(fit.stdout)
    for group in fit.json.get("calibration", {}).get("kernel", []):
        unseen, name = group["test"], f"{group['op']} {group['dtype']}"
        s.check(f"{name}: the error on rows that the fit has not seen is at most {GOAL} % in the median",
                100 * unseen["median"] <= GOAL, note=f"{100 * unseen['median']:.1f} %, {unseen['n']} rows")
