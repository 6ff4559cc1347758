"""The part `model`: kernels (kernel_times.py) and the steps of a decoder (decoder_times.py) timed here, and how far the
predictions are from them. Needs 3 minutes, of which the decoder takes 90 s at most.

Writes rows.csv, steps.csv, calib.toml, calib-without-MODEL.toml, fit.json, and model.txt with what the programs and `reconcile` printed.
"""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Median error on rows that the fit has not seen, in percent: the goal for kernels.
GOAL = 10
# Median error of the steps of a decoder, in percent: the goal for TTFT and TPOT.
STEP_GOAL = 15


def timed(s, report, program, *args):
    """Runs a program that writes rows, and keeps what it printed."""
    try:
        done = subprocess.run([sys.executable, HERE / program, *args], check=False, capture_output=True, text=True,
                              timeout=max(1, s.time_left()))
        status, stdout, stderr = done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired as late:
        status, stdout, stderr = "none in time", (late.stdout or b"").decode(), (late.stderr or b"").decode()
    report.append(f"{program}\n{stdout}{stderr}")
    s.check(f"{program} writes rows", status == 0 and Path(args[0]).is_file(), f"status {status}: {stderr[-600:]}",
            note=" / ".join(stdout.splitlines())[-300:])


def model(s):
    report = []
    rows, calibration = (s.out / "rows.csv").resolve(), (s.out / "calib.toml").resolve()
    timed(s, report, "kernel_times.py", rows)
    report.append(s.rgpu("model", "reconcile", rows, "--gpu", "h200").stdout)
    fit = s.rgpu("model", "fit", rows, "--gpu", "h200", "--out", calibration, "--json")
    (s.out / "fit.json").write_text(fit.stdout)
    for group in fit.json.get("calibration", {}).get("kernel", []):
        unseen, name = group["test"], f"{group['op']} {group['dtype']}"
        s.check(f"{name}: the error on rows that the fit has not seen is at most {GOAL} % in the median",
                100 * unseen["median"] <= GOAL, note=f"{100 * unseen['median']:.1f} %, {unseen['n']} rows")
    steps_of_a_decoder(s, report, rows)
    (s.out / "model.txt").write_text("\n".join(report))


def steps_of_a_decoder(s, report, rows):
    """Prefill and decode in CUDA graphs: each model predicted from the kernels and from the steps of the other models."""
    steps, folder = (s.out / "steps.csv").resolve(), s.work / "configs"
    timed(s, report, "decoder_times.py", steps, folder)
    configs = sorted(folder.glob("*.json"))
    for config in configs:
        calibration = (s.out / f"calib-without-{config.stem}.toml").resolve()
        others = [word for other in configs if other != config for word in ("--config", other)]
        report.append(s.rgpu("model", "fit", rows, steps, "--gpu", "h200", *others, "--out", calibration).stdout)
        compared = ("model", "reconcile", steps, "--gpu", "h200", "--config", config, "--model", config.stem)
        report.append(s.rgpu(*compared).stdout)
        report.append(s.rgpu(*compared, "--calib", calibration).stdout)
        found = s.rgpu(*compared, "--calib", calibration, "--json").json
        pairs, errors = found.get("pairs", []), found.get("summary", {}).get("by_quantity", {})
        # Small kernels that move more bytes than any of the other models' have no calibration.
        uncalibrated = [pair["row"] for pair in pairs if not pair["is_calibrated"]]
        s.check(f"{config.stem}: nine of ten steps are calibrated", pairs and 10 * len(uncalibrated) <= len(pairs),
                str(uncalibrated)[:600])
        for quantity in ("prefill", "decode"):
            median = 100 * errors.get(quantity, {}).get("median", float("nan"))
            s.check(f"{config.stem}: the error of {quantity} is at most {STEP_GOAL} % in the median", median <= STEP_GOAL,
                    note=f"{median:.1f} %, {errors.get(quantity, {}).get('n')} steps")
        graphs = [pair for pair in pairs if pair["row"].get("launches") and pair["quantity"] in ("prefill", "decode")]
        worst = max((abs(pair["launches"] / pair["row"]["launches"] - 1) for pair in graphs), default=float("nan"))
        s.check(f"{config.stem}: the number of launches is predicted within {STEP_GOAL} %", 100 * worst <= STEP_GOAL, note=f"{100 * worst:.0f} % at most, {len(graphs)} steps")
