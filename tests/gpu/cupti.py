"""Part `cupti`: compares our collector with nsys on the same programs, and their cost to the program."""

import glob
import os
import statistics
import subprocess
from pathlib import Path

from hide import hidden
from session import HERE, ROOT

REMOTE = "h200"


def collector():
    folders = [os.environ.get("RGPU_LIBEXEC", ""), *glob.glob(str(ROOT / "target/dist/*")), str(ROOT / "target/debug")]
    found = [path for folder in folders if folder for path in Path(folder).rglob("librgpu_collector.so")]
    return found[0] if found else None


def costs_program(s):
    folder = s.work / "bin"
    if not (folder / "costs").exists():
        subprocess.run([HERE / "drivers/build", folder], check=True)
    return folder / "costs"


def without_nsys(s, name):
    """A remote without a known nsys: facts are stored by the remote's definition."""
    from parts import add_remote
    add_remote(s, name)
    return name


def by_region(p):
    """Durations of each region's launches, in ns."""
    found = {}
    for launch in p.get("launches", []):
        if launch.get("region"):
            found.setdefault(launch["region"][-1], []).append(launch["duration_ns"])
    return found


def agreement(s, costs):
    runs = {"nsys": [], "cupti": []}
    for turn in range(3):
        p = s.profile("--remote", REMOTE, "--mode", "nsys", "--", costs, "lengths")
        if turn == 0:
            s.top_rung("nsys on the lengths", p)
        runs["nsys"].append(by_region(p))
        with hidden("nsys"):
            p = s.profile("--remote", "no-nsys", "--mode", "nsys", "--", costs, "lengths")
        s.check("without nsys the rung is cupti", p.get("rung") == "cupti", f"{p.get('rung')} {p.get('gaps')}"[:600])
        runs["cupti"].append(by_region(p))
    launch = next(iter(p.get("launches", [])), {})
    s.check("a launch has its shape and registers", launch.get("grid") == [1, 1, 1] and launch.get("block") == [32, 1, 1]
            and launch.get("registers"), str(launch)[:300])
    for name in ("us2", "us10", "us50", "us200", "us1000"):
        medians = {tool: [statistics.median(run.get(name) or [0]) for run in all_] for tool, all_ in runs.items()}
        counts = {len(run.get(name) or []) for all_ in runs.values() for run in all_}
        nsys, ours = statistics.median(medians["nsys"]), statistics.median(medians["cupti"])
        apart = max(medians["nsys"]) - min(medians["nsys"])
        s.check(f"{name}: 100 launches each, and times that agree within 1 % or 100 ns",
                counts == {100} and nsys and abs(ours - nsys) <= max(nsys * 0.01, 100),
                f"{medians} {counts}", note=f"nsys {nsys:.0f} ns, cupti {ours:.0f} ns, {(ours - nsys) / max(nsys, 1) * 100:+.2f} %; "
                f"nsys between runs {apart:.0f} ns")


def timelines(s):
    """Runs the same program under both, and compares kernels, copies and regions."""
    program = s.work / "bin/timeline"
    theirs = s.profile("--remote", REMOTE, "--mode", "nsys", "--nsys-args", "--cuda-graph-trace=node", "--", program)
    with hidden("nsys"):
        ours = s.profile("--remote", "no-nsys", "--mode", "nsys", "--", program)
    count = lambda p: {k["kernel"].split("(")[0]: k["launches"] for k in p.get("kernels", [])}
    s.check("timeline: the same kernels as often", count(theirs) == count(ours) and count(ours), f"{count(theirs)} {count(ours)}",
            note=str(count(ours)))
    copies = lambda p: {c["kind"]: (c["count"], c["bytes"]) for c in p.get("copies", [])}
    s.check("timeline: the same copies and fills", copies(theirs) == copies(ours) and copies(ours), f"{copies(theirs)} {copies(ours)}",
            note=str(copies(ours)))
    regions = lambda p: {"::".join(r["path"]): (r.get("instances"), {k["kernel"].split("(")[0]: k["launches"] for k in r.get("kernels", [])})
                         for r in p.get("regions", []) if "never_closed" not in r["path"]}
    differ = {name: (a, regions(ours).get(name)) for name, a in regions(theirs).items() if regions(ours).get(name) != a}
    s.check("timeline: each region has the same kernels", regions(ours) and not differ, str(differ)[:600], note=f"{len(regions(ours))} regions")
    for name, (gpu, a, b) in {"::".join(r["path"]): (r["path"], r, q) for r in theirs.get("regions", []) for q in ours.get("regions", [])
                              if r["path"] == q["path"] and (r.get("gpu_ns") or 0) > 1e6}.items():
        ratio = (b.get("gpu_ns") or 0) / a["gpu_ns"]
        s.check(f"timeline: GPU time of `{name}` within 3 %", abs(ratio - 1) < 0.03, f"{a['gpu_ns']} {b.get('gpu_ns')}", note=f"{ratio:.4f}")
    s.check("timeline: one trace with calls", any(a["path"].startswith("raw/nvtx.jsonl") for a in ours.get("artifacts", [])))


def costs_of(s, costs):
    library = collector()
    if not s.check("the collector is at hand", library):
        return
    folder = s.work / "costs"
    folder.mkdir(exist_ok=True)
    log = {"RGPU_NVTX_LOG": str(folder / "log"), "RGPU_NVTX_LIMIT": str(4 << 30)}
    nvtx = {"NVTX_INJECTION64_PATH": str(library), **log}
    ways = {"alone": {}, "nvtx": nvtx, "cupti": {**nvtx, "CUDA_INJECTION64_PATH": str(library)}, "nsys": None}
    seen = {}
    for turn in range(3):
        for way, env in ways.items():
            for what in ("ranges", "launches"):
                argv = [costs, what]
                if env is None:
                    argv = ["nsys", "profile", "--trace=cuda,nvtx", "--sample=none", "--cpuctxsw=none", "--force-overwrite=true",
                            "--output", folder / "report", *argv]
                done = subprocess.run(argv, check=False, capture_output=True, text=True, env={**os.environ, **(env or {})})
                if done.returncode or "rgpu-collector" in done.stderr:
                    s.check(f"costs {what} under {way} runs", False, done.stderr[-400:])
                for line in done.stdout.splitlines():
                    word, _, value = line.partition(" ")
                    if word.endswith("_ns"):
                        seen.setdefault(word, {}).setdefault(way, []).append(float(value))
        for file in folder.iterdir():
            file.unlink()
    for word, by_way in seen.items():
        medians = {way: statistics.median(values) for way, values in by_way.items()}
        told = ", ".join(f"{way} {value:.0f}" for way, value in medians.items())
        s.check(f"cost: {word} is known under all four", len(medians) == 4, told, note=told)
    if "range_ns" in seen:
        ranged = statistics.median(seen["range_ns"]["nvtx"])
        s.check("a push and pop under the collector costs less than 2 us", ranged < 2000, f"{ranged:.0f} ns")


PROCESSES = """
import multiprocessing, os, sys, time
import torch

def work(name):
    import torch
    torch.cuda.nvtx.range_push(name)
    x = torch.ones(1 << 20, device="cuda")
    for _ in range(10):
        x = x * 2
    torch.cuda.synchronize()
    torch.cuda.nvtx.range_pop()

if __name__ == "__main__":
    start = multiprocessing.get_context(sys.argv[1])
    children = [start.Process(target=work, args=(f"child{i}",)) for i in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert all(child.exitcode == 0 for child in children)
    if sys.argv[1] == "spawn":
        work("parent")
    print("done", torch.version.cuda)
"""


def torch_programs(s):
    if subprocess.run(["python3", "-c", "import torch"], check=False, capture_output=True).returncode:
        print("     torch is not here: its programs are left out", flush=True)
        return
    script = s.project / "processes.py"
    script.write_text(PROCESSES)
    for way, wanted in (("spawn", {"child0", "child1", "parent"}), ("fork", {"child0", "child1"})):
        with hidden("nsys"):
            p = s.profile("--remote", "no-nsys", "--mode", "nsys", "--", "python3", script, way)
        s.check(f"torch, {way}: the rung is cupti", p.get("rung") == "cupti", f"{p.get('rung')} {p.get('gaps')}"[:600])
        gpu = {r["path"][0]: sum(k["launches"] for k in r.get("kernels", [])) for r in p.get("regions", [])}
        s.check(f"torch, {way}: each process's range has its kernels", all(gpu.get(name, 0) >= 10 for name in wanted), f"{gpu} {p.get('gaps')}"[:600],
                note=str(gpu))
    with hidden("nsys"):
        p = s.profile("--remote", "no-nsys", "--kernel", "torch-softmax", "--mode", "ncu", "--at-least", "ncu.asked")
    s.check("torch: ncu is not touched by it", p.get("rung") == "ncu.asked", str(p.get("rung")))


def ends(s, costs):
    """A process that leaves without its exit handlers loses no record older than half a second."""
    library = collector()
    log = s.work / "ends"
    env = {**os.environ, "NVTX_INJECTION64_PATH": str(library), "CUDA_INJECTION64_PATH": str(library), "RGPU_NVTX_LOG": str(log)}
    subprocess.run([costs, "exit"], check=False, env=env)
    text = "".join(path.read_text() for path in s.work.glob("ends.*"))
    s.check("after `_exit` the kernels of a second before are in the log", text.count('"event":"kernel"') == 2, text[-600:])
    subprocess.run(["cp", *s.work.glob("ends.*"), s.out / "log"], check=False)


def cupti(s):
    without_nsys(s, "no-nsys")
    costs = costs_program(s)
    for case in (ends, agreement, timelines, costs_of, torch_programs):
        try:
            case(*((s,) if case in (timelines, torch_programs) else (s, costs)))
        except Exception as problem:  # an exception of one case must not hide the other cases
            s.check(f"`{case.__name__}` runs to its end", False, repr(problem))
