"""Whole programs under every mode: how long it takes, on which rung it ends, what the first findings say."""

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
ALL = ["hf", "hf_train", "train", "slow_loader", "compiled", "graph", "decode", "gemm", "ddp", "jax_mlp", "cupy_heat", "triton_norm"]
PROGRAMS = os.environ.get("PROGRAMS", " ".join(ALL)).split()
MODES = os.environ.get("PROGRAM_MODES", "nsys ncu deep nvtx torch").split()
# Programs without torch; mode `torch` ends on a rung below its own.
WITHOUT_TORCH = ["jax_mlp", "cupy_heat"]
# Stages that mode `torch` finds by itself.
STAGES = {"hf": {"LLM@prefill", "LLM@decode_step"}, "hf_train": {"torch@step", "LLM@forward"}, "train": {"torch@step"},
          "slow_loader": {"torch@step"}, "ddp": {"torch@step"}}
SECONDS = 150  # of one program in one mode


def command(name, folder):
    file = folder / f"{name}.py"
    return ["torchrun", "--nproc-per-node", "1", file] if name == "ddp" else ["python3", file]


def sentence(finding):
    return " ".join(str(finding.get("text") or finding.get("title") or finding.get("id")).split())


def recorded(s, name, ended):
    """What mode `torch` recorded of a program."""
    profile = ended.json
    rungs = [f"{r['rung']} {r['code']} {r.get('message', '')}".strip() for r in profile.get("ladder", []) if not r.get("ok")]
    if name in WITHOUT_TORCH:
        s.check(f"{name} under torch ends below the rung torch, which says why", profile.get("rung") not in ("torch", None)
                and any(r.startswith("torch torch_") for r in rungs), f"rung {profile.get('rung')}: {rungs}")
        return
    operators, stages = profile.get("operators", []), {t["region"]: t for t in profile.get("stages", [])}
    told = (f"rung {profile.get('rung')}, {rungs}, {len(operators)} operators, stages {sorted(stages)}, "
            f"gaps {[g['text'] for g in profile.get('gaps', [])][:6]}, stderr {ended.stderr.strip().splitlines()[-3:]}")
    s.check(f"torch records {name}", profile.get("rung") == "torch" and any(o.get("gpu_self_ns") for o in operators)
            and any(o.get("kernels") for o in operators), told, note=f"{len(operators)} operators")
    s.check(f"{name} has its peak of memory", any(m["peak_allocated_bytes"] > 0 for m in profile.get("memory", [])), told)
    s.check(f"{name} has its stages", STAGES.get(name, set()) <= set(stages), told)
    if name == "hf":
        model, prefill = profile["kernel"].get("model") or {}, stages.get("LLM@prefill", {})
        mfu = (prefill.get("utilization") or {}).get("percent")
        s.check("a Hugging Face model is known with its MFU", model.get("parameters") and model.get("dtype") == "bfloat16"
                and mfu is not None and 0 < mfu < 100, f"{model}, {prefill}", note=f"MFU of prefill {mfu} %")
    if name != "compiled":
        s.check(f"operators of {name} know where they are called", any(o.get("places") for o in operators), told)


def geometry(launch):
    return tuple(launch["grid"]), tuple(launch["block"])


def chosen(s, name, profile):
    """The launches that mode `deep` chose are those that ncu profiled, and they stand for most of the time."""
    selection = profile.get("selection") or {}
    missed = [g["text"] for g in selection.get("left_out", []) if "were planned" in g["text"]]
    s.check(f"ncu profiles the launches of {name} that were chosen by number", not missed, str(missed)[:600])
    passes = [r for r in profile.get("ladder", []) if r["step"].startswith("profile")]
    s.check(f"one run of {name} under ncu is enough", len(passes) == 1 and passes[0].get("ok"), str([(r["step"], r.get("code")) for r in passes]))
    for kernel in selection.get("kernels", []):
        launches = [launch for launch in profile["launches"] if launch["kernel"] == kernel["kernel"] and launch["metrics"]]
        if not kernel["profiled"]:
            continue
        profiled = {geometry(launch) for launch in launches}
        times = {}
        for one in kernel.get("geometries", []):
            times[geometry(one)] = times.get(geometry(one), 0) + one["total_ns"]
        covered = sum(ns for key, ns in times.items() if key in profiled) / max(1, sum(times.values()))
        longest = max(times, key=times.get, default=None)
        s.check(f"the geometry of {name} that takes most time is profiled: {kernel['kernel'][:40]}", longest in profiled,
                f"{profiled} of {times}", note=f"{100 * covered:.0f} % of its time")


def measured(s, folder, mode, name, gpu):
    """Runs one program in one mode on one GPU, and returns its row of the table."""
    if s.time_left() < 20:
        return f"| {name} | {mode} | not run: the part's time is over | | | |"
    extra = {"deep": ["--top", "3"], "ncu": ["--launch-count", "40"]}.get(mode, [])
    began = s.start("profile", "--mode", mode, *extra, "--gpu", gpu, "--remote", "h200", "--json", "--", *command(name, folder))
    ended = s.finish(began, min(SECONDS, s.time_left()))
    profile = ended.json
    findings = [sentence(f) for f in profile.get("findings", [])[:3]]
    # A program without a fault has no finding of the sanitizer.
    checks = profile.get("sanitizer") or []
    clean = mode == "sanitizer" and checks and all(check["verdict"] == "clean" for check in checks)
    # XLA's program ends with a segmentation fault under the sanitizer and under ncu, and rgpu says so.
    failed_under_tool = name == "jax_mlp" and any(r.get("code") == "signal" for r in profile.get("ladder", []))
    s.check(f"{name} under {mode} ends with 0 and a finding", ended.status == 0 and (findings or clean or failed_under_tool),
            f"status {ended.status}: " + " / ".join(ended.stderr.strip().splitlines()[-4:]), note=f"{ended.seconds:.1f} s")
    if mode == "torch" and ended.status == 0:
        recorded(s, name, ended)
    if mode == "deep" and ended.status == 0 and name != "jax_mlp":
        chosen(s, name, profile)
    return f"| {name} | {mode} | {ended.status} | {ended.seconds:.1f} | {profile.get('rung', '')} | {'; '.join(findings)[:900]} |"


def programs(s):
    folder = s.work / "programs"
    shutil.copytree(HERE / "programs", folder, dirs_exist_ok=True)
    gpus = subprocess.run(["nvidia-smi", "-L"], check=True, capture_output=True, text=True).stdout.count("GPU ")
    rows = ["| program | mode | status | s | rung | first findings |", "|---|---|---|---|---|---|"]
    free = list(range(gpus))  # one program at a time on each GPU

    def one(cell):
        gpu = free.pop()
        try:
            return measured(s, folder, *cell, gpu)
        finally:
            free.append(gpu)

    with ThreadPoolExecutor(gpus) as pool:
        rows += pool.map(one, [(mode, name) for mode in MODES for name in PROGRAMS])
    (s.out / "programs.md").write_text("\n".join(rows) + "\n")


def endings(s):
    """How programs end: stopped by us, with nothing to measure, and by their own failure."""
    folder = HERE / "programs"
    endless = s.finish(s.start("profile", "--mode", "ncu", "--set", "basic", "-k", "regex:gemm|nvjet|cutlass|xmma", "--launch-count", "5",
                               "--for", "15s", "--remote", "h200", "--json", "--", "python3", folder / "serve.py"), 90)
    counted = [launch for launch in endless.json.get("launches", []) if launch.get("metrics")]
    s.check("a server that never ends is stopped under ncu, with its report", endless.status == 0 and counted,
            f"status {endless.status}, {len(counted)} launches: {endless.stderr[-400:]}", note=f"{len(counted)} launches, {endless.seconds:.1f} s")
    nothing = s.finish(s.start("exec", "--mode", "ncu", "-k", "no_kernel_has_this_name", "--remote", "h200", folder / "gemm.py"), 90)
    s.check("a filter without a kernel is rgpu's failure under exec", nothing.status == 125, f"status {nothing.status}: {nothing.stderr[-400:]}")
    failing = s.finish(s.start("profile", "--mode", "nsys", "--remote", "h200", "--", "python3", folder / "fails.py"), 60)
    s.check("a program that fails is said to fail", failing.status == 6, f"status {failing.status}")
