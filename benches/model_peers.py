#!/usr/bin/env python3
"""Compares predictions of `rgpu model` and of the crate aiconfigurator-core with measured rows of an H200.

    python3 -m venv env && env/bin/pip install aiconfigurator-core==0.12.0
    env/bin/python benches/model_peers.py RGPU [ROWS.csv …]

The Python package runs the crate of the same version: each row is one operation of `evaluate_ops_json`, looked up in its
tables for h200_sxm, vLLM 0.24.0 and NCCL 2.29.2. rgpu predicts each row twice: without a calibration, and with a fit of
nine tenths of the rows, which this row is not in. Errors are |predicted - measured| / measured. All three are compared on
the same rows: those for which the crate has a table and which lie between the sizes of a fit. The others are counted.

The crate has no fp8 product without quantization in its tables for vLLM; `fp8_static` takes the quantization away. Its
attention of prompts includes the rotation and the write to the cache; their time, by its own formula, is taken away.
"""

import csv
import json
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

sys.path.pop(0)  # this folder, whose queue.py would hide Python's own
from aiconfigurator_core.sdk.engine import EngineHandle
from aiconfigurator_core.sdk.perf_database import get_database

FIXTURES = Path(__file__).resolve().parent.parent / "tests/fixtures/model"
FOLDS = 10
OPS = {"gemm": "products", "attention_prefill": "attention, prompts", "attention_decode": "attention, decode"}
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
NCCL_NAMES = {"all_to_all": "alltoall"}
# What the crate's formula for a small kernel assumes on h200_sxm: systems/h200_sxm.yaml.
BANDWIDTH, SHARE, LATENCY_MS = 4.8e12, 0.8, 3e-3


class Crate:
    """Predictions of aiconfigurator-core in ns."""

    def __init__(self):
        self.engine = EngineHandle.for_database(get_database("h200_sxm", "vllm", "0.24.0"))

    def evaluate(self, op, is_context, batch, length, x=None):
        [(_, milliseconds, _, _)] = self.engine.evaluate_ops_json(json.dumps([op]), is_context=is_context, batch_size=batch, s=length, x=x)
        return milliseconds

    def predict(self, row):
        """The time of a row; raises what the crate raises if it has no table for it."""
        number = lambda name: int(float(row[name]))
        if row["kind"] == "collective":
            name = NCCL_NAMES.get(row["op"], row["op"])
            op = {"name": "op", "scale_factor": 1.0, "hidden_size": float(row["bytes"]) / 2, "num_gpus": number("gpus"), "dtype": "half", "operation": name}
            return 1e6 * self.evaluate({"Nccl": op}, True, 1, 1, 1)
        if row["op"] == "gemm":
            static = row["dtype"] == "fp8"
            op = {"name": "op", "scale_factor": 1.0, "n": number("n"), "k": number("k"), "quant_mode": "fp8_static" if static else "bfloat16",
                  "scale_num_tokens": 1, "low_precision_input": static}
            return 1e6 * self.evaluate({"Gemm": op}, True, 1, number("m"), number("m"))
        heads, kv_heads, dim = number("heads"), number("kv_heads"), number("head_dim")
        op = {"name": "op", "scale_factor": 1.0, "n": heads, "n_kv": kv_heads, "head_size": dim, "window_size": 0, "kv_cache_dtype": "bfloat16"}
        if row["op"] == "attention_decode":
            return 1e6 * self.evaluate({"GenerationAttention": op}, False, number("batch"), number("keys"))
        small = lambda elements: 2 * elements / (BANDWIDTH * SHARE) * 1e3 + LATENCY_MS
        rotation_and_write = 1.1 * (2 * small(dim * (heads + kv_heads)) + 2 * small(dim * kv_heads))
        op |= {"fmha_quant_mode": "bfloat16", "use_qk_norm": False}
        return 1e6 * (self.evaluate({"ContextAttention": op}, True, number("batch"), number("queries")) - rotation_and_write)


def rgpu(program, *args):
    return json.loads(subprocess.run([program, "model", *args, "--gpu", "h200", "--json"], check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE).stdout)


def write(path, rows):
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)


def own_predictions(program, rows, folder):
    """For each row its time without a calibration and with a fit that has not seen it, in ns. A size outside that fit has none."""
    plain = [pair["predicted_ns"] for pair in pairs_of(program, rows, folder / "all.csv")]
    fold = [zlib.crc32(json.dumps([row[name] for name in row if name != "time_ns"]).encode()) % FOLDS for row in rows]
    fitted = [None] * len(rows)
    for out in range(FOLDS):
        seen = [row for row, own in zip(rows, fold) if own != out]
        unseen = [at for at, own in enumerate(fold) if own == out]
        write(folder / "seen.csv", seen)
        rgpu(program, "fit", folder / "seen.csv", "--out", folder / "calib.toml")
        pairs = pairs_of(program, [rows[at] for at in unseen], folder / "unseen.csv", "--calib", folder / "calib.toml")
        for at, pair in zip(unseen, pairs):
            fitted[at] = pair["predicted_ns"] if pair["is_calibrated"] else None
    return plain, fitted


def pairs_of(program, rows, path, *args):
    write(path, rows)
    pairs = rgpu(program, "reconcile", path, *args)["pairs"]
    assert len(pairs) == len(rows), "every row has a prediction"
    return pairs


def quantile(values, share):
    values = sorted(values)
    at = share * (len(values) - 1)
    low = int(at)
    return values[low] + (values[min(low + 1, len(values) - 1)] - values[low]) * (at - low)


def errors(times, measured):
    sizes = [abs(ns - real) / real for ns, real in zip(times, measured)]
    return "  ".join(f"{100 * value:5.1f} %" for value in (quantile(sizes, 0.5), sum(sizes) / len(sizes), quantile(sizes, 0.9)))


def main():
    program, files = sys.argv[1], [Path(name) for name in sys.argv[2:]] or [FIXTURES / "h200-kernels.csv", FIXTURES / "h200x2-nccl.csv"]
    crate = Crate()
    print(f"{'':28}{'rows':>5}   {'median, mean, 90 % of rgpu':26}  {'rgpu, fitted to other rows':26}  {'aiconfigurator-core':26}  left out")
    for file in files:
        rows = [row for row in csv.DictReader(file.open(encoding="utf-8")) if row["op"] in OPS or row["op"] in COLLECTIVES]
        with tempfile.TemporaryDirectory() as folder:
            plain, fitted = own_predictions(program, rows, Path(folder))
        groups = {}
        for row, one, other in zip(rows, plain, fitted):
            try:
                theirs = crate.predict(row)
            except Exception:
                theirs = None
            name = f"{OPS[row['op']]} {row['dtype']}" if row["op"] in OPS else f"NCCL, {row['gpus']} GPUs: {row['op']}"
            groups.setdefault(name, []).append((float(row["time_ns"]), one, other, theirs))
        for name, group in groups.items():
            both = [one for one in group if one[2] is not None and one[3] is not None]
            missing = f"{sum(one[2] is None for one in group)} outside, {sum(one[3] is None for one in group)} without a table"
            if not both:
                print(f"{name:28}{0:5}   {missing}")
                continue
            measured, *predicted = zip(*both)
            cells = "  ".join(f"{errors(times, measured):26}" for times in predicted)
            print(f"{name:28}{len(both):5}   {cells}  {missing}")


if __name__ == "__main__":
    main()
