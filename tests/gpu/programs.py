"""Whole programs under every mode: how long it takes, on which rung it ends, what the first findings say."""

import os
import shutil
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROGRAMS = ["hf", "hf_train", "train", "slow_loader", "compiled", "graph", "decode", "gemm", "ddp", "jax_mlp", "cupy_heat", "triton_norm"]
MODES = os.environ.get("PROGRAM_MODES", "nsys ncu deep nvtx").split()
SECONDS = 120  # of one program in one mode


def command(name, folder):
    file = folder / f"{name}.py"
    return ["torchrun", "--nproc-per-node", "1", file] if name == "ddp" else ["python3", file]


def sentence(finding):
    return " ".join(str(finding.get("text") or finding.get("title") or finding.get("id")).split())


def programs(s):
    folder = s.work / "programs"
    shutil.copytree(HERE / "programs", folder, dirs_exist_ok=True)
    rows = ["| program | mode | status | s | rung | first findings |", "|---|---|---|---|---|---|"]
    for mode in MODES:
        for name in PROGRAMS:
            if s.time_left() < 20:
                rows.append(f"| {name} | {mode} | not run: the part's time is over | | | |")
                continue
            extra = {"deep": ["--top", "3"], "ncu": ["--launch-count", "40"]}.get(mode, [])
            began = s.start("profile", "--mode", mode, *extra, "--remote", "h200", "--json", "--", *command(name, folder))
            ended = s.finish(began, min(SECONDS, s.time_left()))
            profile = ended.json
            findings = [sentence(f) for f in profile.get("findings", [])[:3]]
            s.check(f"{name} under {mode} ends with 0 and a finding", ended.status == 0 and findings,
                    f"status {ended.status}: " + " / ".join(ended.stderr.strip().splitlines()[-4:]), note=f"{ended.seconds:.1f} s")
            rows.append(f"| {name} | {mode} | {ended.status} | {ended.seconds:.1f} | {profile.get('rung', '')} | {'; '.join(findings)[:400]} |")
    (s.out / "programs.md").write_text("\n".join(rows) + "\n")
    failing = s.finish(s.start("profile", "--mode", "nsys", "--remote", "h200", "--", "python3", folder / "fails.py"), 60)
    s.check("a program that fails is said to fail", failing.status == 6, f"status {failing.status}")
