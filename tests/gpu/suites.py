"""Suites: `suite-levels` runs our own at every level (239 s on one H200), `suite-expect` keeps expectations, `suite-kept`
judges the suite by those of this repository, `suite-sweep` draws a sweep, `verdicts` counts right and wrong verdicts (a
comparison takes up to 1.9 s: 150 and 30 took 342 s, and 300 need PART_SECONDS=700)."""

import json
import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REMOTE = "h200"
# Comparisons of equal kernels and injected slowdowns; fewer for a quick look.
EQUAL = int(os.environ.get("EQUAL_COMPARISONS", "300"))
SLOWED = int(os.environ.get("SLOWED_COMPARISONS", "30"))
# Dependent multiplications that take about 5 us, 50 us and 1 ms.
SPINS = (2_000, 24_000, 1_170_000)

SPIN = """
extern "C" __global__ void spin(unsigned *out, int n) {
    unsigned x = threadIdx.x, y = threadIdx.x;
    for (int i = 0; i < n; ++i) x = x * 1664525u + 1013904223u;
    for (int i = 0; i < EXTRA; ++i) y = y * 22695477u + 1u;
    // The extra work must stay; it changes no result that can occur in a check.
    if (EXTRA > 0 && y == 0xdeadbeefu && n < 0) x ^= 1u;
    out[blockIdx.x * blockDim.x + threadIdx.x] = x;
}
"""
REFERENCE = """
#include "rgpu.h"
int rgpu_reference(const rgpu_case *c) {
    unsigned *out = c->args[0].data;
    int64_t n = c->sizes[0];
    for (unsigned t = 0; t < 128; ++t) {
        unsigned x = t;
        for (int64_t i = 0; i < n; ++i) x = x * 1664525u + 1013904223u;
        out[t] = x;
    }
    return 0;
}
"""
KERNEL = """
name = "{name}"
language = "cuda"
source = "spin.cu"
entry = {{ device = "spin" }}
flags = ["-DEXTRA={extra}"]
[[arg]]
name = "out"
dtype = "u32"
shape = [128]
role = "out"
[[arg]]
name = "n"
dtype = "i32"
role = "scalar"
value = "n"
[launch]
grid = [1]
block = [128]
[sizes]
vars = ["n"]
cases.short = {{ n = 2000 }}
default = "short"
[reference]
source = "reference.c"
function = "rgpu_reference"
tolerance = {{ abs = 0.0, rel = 0.0 }}
"""


# Cases of each level: few enough that both runs of all levels fit one part.
LEVELS = {
    "minimal": ["memory", "compute", "launch:host-entry"],
    "sol": ["memory:vecadd", "compute:tiled-matmul"],
    "deep": ["memory:transpose", "compute:tiled-matmul"],
}
# Short cases: their sessions are what counts.
EXPECTED = ["memory:vecadd", "memory:transpose", "compute:tiled-matmul"]


def suite_levels(s):
    """Every level twice: each run is clean, and the second is neither slower nor faster than the first."""
    last = {}
    for level, names in LEVELS.items():
        for n in (1, 2):
            last = s.rgpu("bench", "run", *targets(names), "--level", level, "--remote", REMOTE, "--run-id", f"{level}-{n}", "--json").json
            rows = last.get("rows", [])
            failed = [f"{row['case']}: {row.get('failure')}" for row in rows if row["state"] != "ok"]
            s.check(f"{level}-{n} is clean", last.get("clean") is True, "; ".join(failed) or str(last)[:300],
                    note=f"{len(rows)} cases, {last.get('seconds', 0):.0f} s")
        compared = s.rgpu("bench", "compare", f"{level}-1", f"{level}-2", "--json").json
        other = [row for row in compared.get("rows", []) if row["verdict"] in ("SLOWER", "FASTER")]
        s.check(f"{level} twice is neither slower nor faster", compared.get("rows") and not other, json.dumps(other)[:600],
                note=", ".join(sorted(row["verdict"] for row in compared.get("rows", []))))
    pairs = [row["pair"] for row in last.get("rows", []) if row.get("pair")]
    parts = [part for pair in pairs for part in pair["parts"]]
    s.check("deep has times, nsys and ncu of the pair", parts and all(part["there"] for part in parts), json.dumps(pairs)[:600])
    s.check("and its optimised side is FASTER", pairs and all(pair["verdict"] == "FASTER" for pair in pairs), json.dumps(pairs)[:600])


def suite_expect(s):
    """Three short sessions, expectations from them, a later session within them, and its history."""
    git(s)
    run = ["bench", "run", *targets(EXPECTED), "--mode", "bench", "--remote", REMOTE, "--json"]
    for n in (1, 2):
        s.rgpu(*run, "--run-id", f"session-{n}")
    done = s.rgpu(*run, "--run-id", "session-3", "--update-expectations")
    files = list((s.project / "expectations").glob("*.json"))
    entries = json.loads(files[0].read_text())["entries"] if files else []
    s.check("expectations are written", entries and all(entry["sessions"] >= 3 for entry in entries), done.stderr[-800:],
            note=f"{len(entries)} of {files[0].name if files else ''}")
    again = s.rgpu(*run, "--run-id", "session-4", "--fail-on", "slower").json
    verdicts = sorted((t.get("against") or {}).get("verdict", "none") for row in again.get("rows", []) for t in row.get("times", []))
    s.check("a later session is within them", verdicts and set(verdicts) <= {"SAME", "AMBIGUOUS"}, str(verdicts), note=", ".join(verdicts))
    history = s.rgpu("bench", "history", "memory:transpose", "--json").json
    points = [len(series["points"]) for series in history.get("series", [])]
    # An earlier part of the same project may have added sessions.
    s.check("the history has every session of both sides", len(points) == 2 and min(points) >= 4, str(points))
    page = s.rgpu("bench", "history", "memory:transpose", "--format", "html")
    s.check("and a page", page.stdout.strip().endswith("history.html"), page.stdout)


def suite_kept(s):
    """The cases with expectations in this repository, judged by them if they are of this GPU."""
    shutil.copytree(ROOT / "expectations", s.project / "expectations", dirs_exist_ok=True)
    entries = [entry for file in (ROOT / "expectations").glob("*.json") for entry in json.loads(file.read_text())["entries"]]
    names = sorted({entry["case"].split("[")[0] for entry in entries})
    done = s.rgpu("bench", "run", *targets(names), "--mode", "bench", "--remote", REMOTE, "--run-id", "kept", "--fail-on", "slower",
                  "--json", timeout=max(30, s.time_left() - 10)).json
    judged = [(row["case"], t["against"]["verdict"]) for row in done.get("rows", []) for t in row.get("times", []) if t.get("against")]
    verdicts = sorted(verdict for _, verdict in judged)
    s.check("every case ended", done.get("clean") is True, str([row for row in done.get("rows", []) if row["state"] != "ok"])[:400],
            note=f"{len(done.get('rows', []))} cases, {done.get('seconds', 0):.0f} s")
    s.check("no time is SLOWER or FASTER than expected", verdicts and not {"SLOWER", "FASTER"} & set(verdicts),
            str([case for case in judged if case[1] in ("SLOWER", "FASTER")]),
            note=", ".join(f"{verdicts.count(v)} {v}" for v in sorted(set(verdicts))))


def suite_sweep(s):
    """A sweep under ncu, drawn against its axis."""
    sweep = s.rgpu("profile", "--kernel", "tiled-matmul", "--sweep", "n=256..1024:x2", "--mode", "ncu", "--set", "minimal",
                   "--remote", REMOTE, "--plot", "sm__throughput", "--plot", "time", "--run-id", "sweep")
    folder = s.project / "artifacts/runs/sweep"
    page = (folder / "plot.html").read_text() if (folder / "plot.html").is_file() else ""
    s.check("a sweep is drawn on the terminal", "sm__throughput" in sweep.stdout, sweep.stdout[-600:], note=sweep.stdout[-400:].strip())
    s.check("and on a page, with a point for each size and plot", page.count("<circle") == 6, f"{page.count('<circle')} points")
    s.check("the suite has a page, too", (folder / "index.html").is_file())


def targets(names):
    return [word for name in names for word in ("-t", name)]


def verdicts(s):
    for name, extra in (("spin", "0"), ("spin-again", "0"), ("spin-slowed", "(n*3/100)")):
        folder = s.project / "kernels" / name
        folder.mkdir(exist_ok=True)
        (folder / "spin.cu").write_text(SPIN)
        (folder / "reference.c").write_text(REFERENCE)
        (folder / "kernel.toml").write_text(KERNEL.format(name=name, extra=extra))
    target = """
[[target]]
name = "spin:{name}"
baseline = "spin"
optimised = "{name}"
mode = "bench"
[target.matrix]
sizes.n = {sizes}
env.ROUND = "1..{rounds}"
"""
    sizes = list(SPINS)
    text = "[defaults]\nmax_cases = 1000\n"
    text += target.format(name="spin-again", sizes=sizes, rounds=max(1, EQUAL // len(sizes)))
    text += target.format(name="spin-slowed", sizes=sizes, rounds=max(1, SLOWED // len(sizes)))
    file = s.project / "verdicts.toml"
    file.write_text(text)
    counts = {}
    for name, budget in (("spin-slowed", "100s"), ("spin-again", None)):
        rest = ["--budget", budget] if budget else []
        run = s.rgpu("bench", "run", "-t", f"spin:{name}", "--file", file, "--remote", REMOTE, "--run-id", name, "--json", *rest,
                     timeout=max(30, s.time_left() - 10)).json
        rows = [row for row in run.get("rows", []) if row["state"] == "ok"]
        counts[name] = {}
        for row in rows:
            key = f"{row['axes']['n']} {row['pair']['verdict']}"
            counts[name][key] = counts[name].get(key, 0) + 1
        medians = {row["axes"]["n"]: row["times"][0]["median_ns"] for row in rows if row.get("times")}
        s.check(f"{name}: every case ended", len(rows) == len(run.get("rows", [])), str(run.get("rows", []))[:400],
                note=f"{len(rows)} cases, {run.get('seconds', 0):.0f} s, medians {medians}")
    equal, slowed = counts["spin-again"], counts["spin-slowed"]
    total = sum(equal.values())
    ambiguous = sum(n for key, n in equal.items() if key.endswith("AMBIGUOUS"))
    wrong = sum(n for key, n in equal.items() if key.endswith(("FASTER", "SLOWER")))
    s.check("equal kernels are never FASTER or SLOWER", total and not wrong, str(equal), note=str(equal))
    s.check("and at most 5 % are AMBIGUOUS", total and ambiguous <= 0.05 * total, str(equal), note=f"{ambiguous} of {total}")
    found = sum(n for key, n in slowed.items() if key.endswith("SLOWER"))
    s.check("28 of 30 slowdowns of 3 % are SLOWER", found >= sum(slowed.values()) * 28 / 30, str(slowed), note=str(slowed))


def git(s):
    """Makes the project a clean git work tree: expectations are not updated in a dirty one."""
    (s.project / ".gitignore").write_text("artifacts/\n.rgpu/\nexpectations/\n")
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=x", "-c", "user.email=x@x", "commit", "-qm", "kernels"]):
        subprocess.run(["git", *words], cwd=s.project, env=s.env, check=False, capture_output=True)
