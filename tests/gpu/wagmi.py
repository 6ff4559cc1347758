"""wagmiv67 as its README and docs/tuning.md tell of it: right, timed, profiled, clean, and step by step faster."""

REMOTE = "h200"
LARGE = [f"bench-{i}" for i in (1, 2, 3, 4)]


def sizes(names):
    return [word for name in names for word in ("--problem-sizes", name)]


def times(p):
    """Median in us of each case."""
    return {c["name"]: (c.get("timing") or {}).get("median_ns", 0) / 1000 for c in p.get("cases", [])}


def told(p):
    return ", ".join(f"{name} {us:.1f} us" for name, us in times(p).items())


def wagmi(s):
    for kernel in ("wagmiv67", "kernels/wagmiv67/full-range"):
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
    for i in range(1, len(chain)):
        s.rgpu("compare", f"wagmi-{i - 1}", f"wagmi-{i}")
        s.rgpu("compare", f"wagmi-{i - 1}", f"wagmi-{i}", "--json")
    s.check("the last step is the fastest everywhere", all(seen[-1].get(n, 1e9) < seen[0].get(n, 0) for n in LARGE), str(seen))
    # Calls of both interleaved, counters of both: what the first step changed.
    s.rgpu("compare", "--kernel", chain[0], "--kernel", chain[1], "--remote", REMOTE)

    for kernel in ("kernels/wagmiv67/popcorn", "wagmiv67-triton"):
        p = s.profile("--kernel", kernel, "--mode", "bench", *sizes(LARGE), "--remote", REMOTE, timeout=400)
        s.check(f"{kernel} is right", (p.get("correctness") or {}).get("verdict") == "right", str(p.get("correctness")), note=told(p))
        if kernel.endswith("triton"):
            s.check("wagmiv67 is faster than it", all(seen[-1].get(n, 1e9) < times(p).get(n, 0) for n in LARGE), told(p))

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
