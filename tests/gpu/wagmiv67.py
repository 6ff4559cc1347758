"""Checks the claims of wagmiv67's README and docs/tuning.md: right, timed, profiled, clean, and each step faster."""

import json
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
REMOTE = "h200"
LARGE = [f"bench-{i}" for i in (1, 2, 3, 4)]
RAGGED = [f"ragged-{i}" for i in range(1, 11)]


def sizes(names):
    return [word for name in names for word in ("--problem-sizes", name)]


def times(p):
    """Median in us of each case."""
    return {c["name"]: (c.get("timing") or {}).get("median_ns", 0) / 1000 for c in p.get("cases", [])}


def told(p):
    return ", ".join(f"{name} {us:.1f} us" for name, us in times(p).items())


def on_new_data(s, what, p):
    """Checks that every timed call had new data, was compared with the reference for them, and ran after a flush."""
    bad = {}
    for c in p.get("cases", []):
        t = c.get("timing") or {}
        taken = t.get("samples", 0) + t.get("discarded", 0)
        fine = t.get("verified") == t.get("distinct_inputs") == taken > 0 and t.get("flushed_bytes", 0) > 1 << 20 and t.get("wall_ns", 0) > 0
        if not fine or t.get("clock") != "cuda_events":
            bad[c["name"]] = t
    check = p.get("correctness") or {}
    s.check(f"{what}: every timed call on new data, compared", p.get("cases") and not bad and check.get("timed_calls") == check.get("timed_inputs"),
            str(bad)[:400], note=f"{check.get('timed_calls')} calls, {p.get('run', {}).get('seconds', 0):.0f} s, exact: {check.get('max_abs') == 0}")
    s.check(f"{what}: a geometric mean and shares of both peaks", len(p.get("cases", [])) < 2 or (p.get("geometric_mean") or {}).get("median_ns", 0) > 0
            and all(x.get("flops", {}).get("label") and x.get("bytes", {}).get("label") for x in p.get("speed_of_light", [{}])),
            str(p.get("geometric_mean")), note=f"{((p.get('geometric_mean') or {}).get('median_ns') or 0) / 1000:.1f} us")


def torch_graph(s, ours):
    """torch's products on ready f16 operands, in a CUDA graph, beside `ours` (us per case)."""
    ended = subprocess.run(["python3", HERE / "torch_gemm.py", HERE.parents[1] / "kernels/wagmiv67/kernel.toml", *LARGE], check=False,
                           capture_output=True, text=True, env=s.env, timeout=max(1, s.time_left()))
    theirs = json.loads(ended.stdout) if ended.returncode == 0 else {}
    note = ", ".join(f"{name} {t['median_us']:.1f} us {t['ci95_us']}, ratio {t['median_us'] / ours.get(name, 1e9):.2f}" for name, t in theirs.items())
    s.check("torch's graph on dequantised operands is not faster", theirs and all(
        t["median_us"] >= ours.get(name, 1e9) for name, t in theirs.items()), note or ended.stderr[-600:], note=note)


def wagmi(s):
    for kernel in ("wagmiv67", "kernels/wagmiv67/full-range", "kernels/wagmiv67/mma"):
        p = s.profile("--kernel", kernel, "--mode", "verify", "--problem-sizes", "all", "--remote", REMOTE, timeout=400)
        cases = {c["name"]: (c.get("correctness") or {}) for c in p.get("cases", [])}
        wrong = {name: c for name, c in cases.items() if c.get("verdict") != "right"}
        s.check(f"{kernel} is right at all sizes", len(cases) == 15 and not wrong, str(wrong)[:400], note=f"{len(cases)} sizes")

    chain = [f"kernels/wagmiv67/steps/{i}" for i in range(3)] + ["wagmiv67"]
    seen = []
    for i, kernel in enumerate(chain):
        p = s.profile("--kernel", kernel, "--mode", "bench", *sizes(LARGE), "--remote", REMOTE, "--run-id", f"wagmi-{i}")
        seen.append(times(p))
        s.check(f"step {i} is timed on the four shapes", all(seen[-1].get(name, 0) > 1 for name in LARGE), str(p)[:300], note=told(p))
        on_new_data(s, f"step {i}", p)
    p = s.profile("--kernel", "wagmiv67", "--mode", "bench", "--iters", 40, *sizes(RAGGED), "--remote", REMOTE, timeout=400)
    exact = (p.get("correctness") or {}).get("verdict") == "right" and p["correctness"].get("max_abs") == 0
    s.check("the ten ragged sizes are exact", exact, str(p.get("correctness")), note=told(p))
    on_new_data(s, "ragged", p)
    p = s.profile("--kernel", "kernels/wagmiv67/full-range", "--mode", "bench", *sizes(LARGE[2:]), "--remote", REMOTE, timeout=400)
    on_new_data(s, "every code and scale", p)
    for i in range(1, len(chain)):
        s.rgpu("compare", f"wagmi-{i - 1}", f"wagmi-{i}")
        s.rgpu("compare", f"wagmi-{i - 1}", f"wagmi-{i}", "--json")
    s.check("the last step is the fastest everywhere", all(seen[-1].get(n, 1e9) < seen[0].get(n, 0) for n in LARGE), str(seen))
    # Calls of both interleaved, with counters of both, show what the first step changed.
    s.rgpu("compare", "--kernel", chain[0], "--kernel", chain[1], "--remote", REMOTE)

    torch_graph(s, seen[-1])
    for kernel in ("kernels/wagmiv67/popcorn", "wagmiv67-triton", "kernels/wagmiv67/mma"):
        p = s.profile("--kernel", kernel, "--mode", "bench", *sizes(LARGE), "--remote", REMOTE, timeout=400)
        s.check(f"{kernel} is right", (p.get("correctness") or {}).get("verdict") == "right", str(p.get("correctness")), note=told(p))
        on_new_data(s, kernel, p)
        if kernel.endswith("triton"):
            s.check("wagmiv67 is faster than it", all(seen[-1].get(n, 1e9) < times(p).get(n, 0) for n in LARGE), told(p))


def wagmi_tools(s):
    """ncu's speed of light of the largest and the smallest shape, and all sanitizers. A part of its own, so that both fit the time."""
    for name in ("bench-1", "bench-4"):
        p = s.profile("--kernel", "wagmiv67", "--mode", "ncu", "--set", "full", "--problem-sizes", name, "--remote", REMOTE,
                      "--run-id", f"wagmi-ncu-{name}")
        s.top_rung(f"ncu on {name}", p)
        s.rgpu("report", f"wagmi-ncu-{name}")
    p = s.profile("--kernel", "wagmiv67", "--mode", "sanitizer", "--tool", "all", "--problem-sizes", "ragged-7", "--remote", REMOTE,
                  timeout=400)
    verdicts = {r["tool"]: r["verdict"] for r in p.get("sanitizer", [])}
    s.check("it is clean under all four sanitizers", verdicts == dict.fromkeys(
        ("memcheck", "racecheck", "initcheck", "synccheck"), "clean"), str(verdicts), note=str(verdicts))
