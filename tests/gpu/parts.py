"""The work of a user in parts, each with checks of its result. After `remote` has run, each part can run alone."""

import math
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

from cupti import cupti
from dashboard import dashboard
from deep_program import deep_program
from large import large
from judge import judge
from layouts import layout
from loop import loop
from mcp import mcp
from model import model
from package import package
from programs import endings, programs
from proxy import Proxy
from python_kernels import python
from ranks import ranks
from rungs import rungs
from slurm import slurm
from suites import suite_expect, suite_kept, suite_levels, suite_sweep, verdicts
from values import values
from wagmiv67 import wagmi, wagmi_tools

CORRECT = ["vecadd", "tiled-matmul", "softmax", "reduce", "transpose-conflicts", "transpose-padded",
           "uncoalesced", "spill", "divergent", "nested-regions", "host-entry"]
# The faulty kernels: the tool that finds each, the kind of cause, and text of the lines that it may report.
FAULTY = {
    "oob": ("memcheck", "out_of_bounds", ["c[i] = a[i] + b[i]"]),
    "race": ("racecheck", "race", ["= x[start", "y[start"]),
    "uninit": ("initcheck", "uninitialized", ["atomicAdd", "out[threadIdx.x] ="]),
    "bad-barrier": ("synccheck", "barrier", ["__syncthreads();"]),
}
# Findings that rgpu's rules must have in a full ncu profile.
TRAITS = {"transpose-conflicts": "bank_conflicts", "uncoalesced": "uncoalesced", "spill": "spills",
          "divergent": "divergence"}
REMOTE = "h200"


def finite(x):
    return isinstance(x, (int, float)) and math.isfinite(x)


def add_remote(s, name, port=None):
    address = f"ssh://{s.ssh['GPU_SSH_USER']}@{s.ssh['GPU_SSH_HOST']}:{port or s.ssh['GPU_SSH_PORT']}"
    return s.rgpu("remote", "add", name, address, "--identity", s.ssh["GPU_SSH_KEY"], "--accept-new",
                  *(["--default"] if name == REMOTE else []))


def remote(s):
    listed = s.rgpu("remote", "list")
    s.check("the remote is listed", REMOTE in listed.stdout, listed.stdout)
    add_remote(s, "spare")
    s.rgpu("remote", "default", "spare")
    s.rgpu("remote", "default", REMOTE)
    s.rgpu("remote", "remove", "spare")
    s.check("a removed remote is gone", "spare" not in s.rgpu("remote", "list").stdout)
    s.rgpu("remote", "check", REMOTE)
    warm = s.rgpu("remote", "check", REMOTE)
    s.check("a second check takes less than 3 s", warm.seconds < 3, f"{warm.seconds:.2f} s")

    gpus = s.rgpu("exec", "--remote", REMOTE, "--", "nvidia-smi", "-L")
    s.check("a bare command's output comes through alone", gpus.stdout.startswith("GPU 0: "), gpus.stdout[:200])
    s.rgpu("exec", "--remote", REMOTE, "--", "sh", "-c", "exit 7", expect=7)
    both = s.rgpu("exec", "--remote", REMOTE, "--", "sh", "-c", "echo out; echo err >&2")
    s.check("stdout and stderr stay apart", both.stdout == "out\n" and "err" in both.stderr, both.stdout)

    names = s.rgpu("kernels", "list").stdout
    s.check("every worked kernel is listed", all(k in names for k in [*CORRECT, *FAULTY]), names)
    s.rgpu("kernels", "show", "vecadd")
    (s.project / "mine.cu").write_text((s.project / "kernels/vecadd/vecadd.cu").read_text())
    s.rgpu("kernels", "new", "mine.cu")
    unknown = s.rgpu("profile", "--kernel", "vecad", "--remote", REMOTE, expect=3)
    s.check("an unknown kernel names the nearest", "vecadd" in unknown.stderr, unknown.stderr)
    unknown = s.rgpu("profile", "--kernel", "vecadd", "--remote", "h20", expect=(2, 3))
    s.check("an unknown remote names the nearest", REMOTE in unknown.stderr, unknown.stderr)
    dry = s.rgpu("profile", "--kernel", "vecadd", "--mode", "ncu", "--remote", REMOTE, "--dry-run")
    s.check("a dry run prints the tool's command", "ncu" in dry.stdout + dry.stderr, dry.stdout[:300])


def doctor(s):
    text = s.rgpu("doctor", REMOTE, timeout=300)
    said = text.stdout + text.stderr
    for tool in ("ncu", "nsys", "compute-sanitizer"):
        s.check(f"doctor speaks of {tool}", tool in said, said[-400:])
    s.check("doctor's JSON is JSON", s.rgpu("doctor", REMOTE, "--json", timeout=300).json)


def bench(s):
    p = s.profile("--kernel", "vecadd", "--mode", "bench", "--problem-sizes", "n=16777216", "--remote", REMOTE)
    timing = p.get("timing") or {}
    s.top_rung("bench", p)
    s.check("vecadd is right", (p.get("correctness") or {}).get("verdict") == "right", str(p.get("correctness")))
    rate = timing.get("bytes_per_s") or 0
    s.check("vecadd moves 0.5 to 8 TB/s", 0.5e12 < rate < 8e12, str(timing), note=f"{rate / 1e12:.2f} TB/s")
    low, high = timing.get("ci95_ns") or (0, 0)
    s.check("the median lies in its interval", 0 < low <= timing.get("median_ns", 0) <= high, str(timing))
    s.check("CUDA events timed it", timing.get("clock") == "cuda_events", str(timing.get("clock")))
    for kernel in ("tiled-matmul", "softmax", "reduce", "host-entry"):
        p = s.profile("--kernel", kernel, "--mode", "bench", "--remote", REMOTE)
        timing = p.get("timing") or {}
        s.check(f"{kernel} has a time", (timing.get("median_ns") or 0) > 1000, str(timing),
                note=f"{(timing.get('median_ns') or 0) / 1000:.1f} us, {timing.get('samples')} samples")
    s.check("host-entry's set-up is timed apart", (timing.get("prepare_ns") or 0) > 0, str(timing))
    p = s.profile("--kernel", "vecadd", "--mode", "bench", "--problem-sizes", "n=65536", "--remote", REMOTE)
    timing = p.get("timing") or {}
    graph = timing.get("graph") or {}
    s.check("a short kernel is timed in a CUDA graph, too, and not slower there", 0 < graph.get("median_ns", 0) < 1.1 * timing.get("median_ns", 0),
            f"{timing} {p.get('gaps')}", note=f"{timing.get('median_ns', 0) / 1000:.2f} us by events, {graph.get('median_ns', 0) / 1000:.2f} us in a graph, "
            f"{graph.get('prepare_ns', 0) / 1000:.2f} us taken off")


def verify(s):
    for kernel in CORRECT:
        p = s.profile("--kernel", kernel, "--mode", "verify", "--remote", REMOTE)
        whole = p.get("correctness") or {}
        cases = {c["name"]: c.get("correctness") or {} for c in p.get("cases", [])}
        wrong = {name: c for name, c in cases.items() if c.get("verdict") != "right"}
        s.check(f"{kernel} is right at every named size", whole.get("verdict") == "right" and len(cases) >= 3 and not wrong,
                str(wrong or whole), note=", ".join(cases))
        s.check(f"{kernel} gives the same bits twice", whole.get("bit_equal") is True, str(whole))
    s.profile("--kernel", "race", "--mode", "verify", "--remote", REMOTE, expect=6)


def launches_of(p, kernel):
    return [launch for launch in p.get("launches", []) if launch.get("kernel", "").split("(")[0] == kernel]


def ncu(s):
    p = s.profile("--kernel", "tiled-matmul", "--mode", "ncu", "--set", "full", "--remote", REMOTE)
    s.top_rung("ncu --set full", p)
    launches = launches_of(p, "tiled_matmul")
    if s.check("tiled_matmul was profiled", launches, str(p)[:300]):
        launch = launches[0]
        numbers = [m["value"] for m in launch["metrics"].values() if not isinstance(m["value"], str)]
        s.check("over 500 finite metrics", len(numbers) > 500 and all(map(finite, numbers)), str(len(numbers)),
                note=str(len(numbers)))
        s.check("a duration of 50 us to 50 ms", 5e4 < (launch.get("duration_ns") or 0) < 5e7, str(launch.get("duration_ns")),
                note=f"{(launch.get('duration_ns') or 0) / 1000:.1f} us")
        sm = launch["metrics"].get("sm__throughput.avg.pct_of_peak_sustained_elapsed", {}).get("value")
        s.check("SM throughput in percent", finite(sm) and 0 < sm <= 100, str(sm), note=f"{sm} %")
        s.check("stalls and a class", launch.get("stalls") and launch.get("classification"), str(launch.get("stalls"))[:200])
    s.check("the compiled code is described", p.get("code"), str(p.get("code")))
    s.check("the report came back", any(a["path"].endswith((".ncu-rep", ".ncu-repz")) for a in p.get("artifacts", [])))

    for kernel, finding in TRAITS.items():
        p = s.profile("--kernel", kernel, "--mode", "ncu", "--remote", REMOTE)
        ids = [f["id"] for f in p.get("findings", [])]
        s.check(f"{kernel}: `{finding}` is found", finding in ids, str(ids))
    ids = [f["id"] for f in s.profile("--kernel", "transpose-padded", "--remote", REMOTE).get("findings", [])]
    s.check("transpose-padded has no bank conflicts", ids is not None and "bank_conflicts" not in ids, str(ids))

    p = s.profile("--kernel", "nested-regions", "--mode", "ncu", "--set", "minimal", "--nvtx-include", "A::A1", "--remote", REMOTE)
    names = {launch["kernel"].split("(")[0] for launch in p.get("launches", [])}
    s.check("A::A1 selects the matrix product alone", names == {"matrix_product"}, str(names))
    p = s.profile("--kernel", "vecadd", "--mode", "ncu", "--section", "LaunchStats", "--metrics",
                  "dram__bytes_read.sum,nosuch__metric.sum", "--remote", REMOTE)
    launches = launches_of(p, "vecadd")
    s.check("a metric that was asked for is there", launches and finite(
        launches[0]["metrics"].get("dram__bytes_read.sum", {}).get("value")))
    s.check("a metric that this GPU lacks is listed", any("nosuch__metric" in g["text"] for g in p.get("gaps", [])), str(p.get("gaps")))
    wrong = s.rgpu("profile", "--kernel", "vecadd", "--mode", "ncu", "--section", "SpeedOfLigth", "--remote", REMOTE, expect=(2, 3))
    s.check("an unknown section names the nearest", "SpeedOfLight" in wrong.stderr, wrong.stderr)

    (s.project / "mine.cu").write_text((s.project / "kernels/vecadd/vecadd.cu").read_text())
    p = s.profile("--kernel", "mine.cu", "--mode", "ncu", "--set", "minimal", "--remote", REMOTE)
    s.check("a bare .cu is profiled", launches_of(p, "vecadd"), str(p.get("launches"))[:200])
    p = s.profile("--remote", REMOTE, "--", drivers(s) / "showcase", "vecadd")
    s.check("a program is profiled as it is", launches_of(p, "vecadd"), str(p.get("launches"))[:200])
    s.rgpu("runs", "list")
    s.rgpu("runs", "show", "latest")


def drivers(s):
    folder = s.work / "bin"
    if not (folder / "faulty").exists():
        subprocess.run([Path(__file__).parent / "drivers/build", folder], check=True)
    return folder


def nsys(s):
    p = s.profile("--kernel", "softmax", "--mode", "nsys", "--remote", REMOTE)
    s.top_rung("nsys", p)
    sums = {k["kernel"].split("(")[0]: k for k in p.get("kernels", [])}
    s.check("softmax has GPU time", (sums.get("softmax") or {}).get("total_ns", 0) > 1000, str(sums),
            note=f"{(sums.get('softmax') or {}).get('total_ns', 0) / 1000:.1f} us")
    s.check("copies are counted", p.get("copies"), str(p.get("copies")))

    p = s.profile("--kernel", "nested-regions", "--mode", "nsys", "--remote", REMOTE)
    # The runner puts ranges of its own around ours.
    regions = {name: r for r in p.get("regions", [])
               for name in ["::".join(r["path"][i:]) for i in range(len(r["path"]))] if name in ("A", "A::A1", "B")}
    s.check("A, A::A1 and B are there", len(regions) == 3, str([r["path"] for r in p.get("regions", [])]))
    if len(regions) == 3:
        count = {name: {k["kernel"].split("(")[0]: k["launches"] for k in r["kernels"]} for name, r in regions.items()}
        n = regions["B"]["instances"]
        s.check("each region has its kernels", count == {"A": {"vector_add": n, "matrix_product": n},
                "A::A1": {"matrix_product": n}, "B": {"vector_add": 5 * n}}, str(count), note=f"{n} instances")
        s.check("each region has GPU time", all((r.get("gpu_ns") or 0) > 0 for r in regions.values()), str(regions)[:300])
    p = s.profile("--remote", REMOTE, "--mode", "nsys", "--", drivers(s) / "regions")
    s.check("a program's kernels are listed", {"vecadd", "tiled_matmul"} <= {k["kernel"].split("(")[0] for k in p.get("kernels", [])},
            str(p.get("kernels"))[:300])
    p = s.profile("--kernel", "nested-regions", "--mode", "nvtx", "--remote", REMOTE)
    s.check("the NVTX rung sees the regions", any(r["path"][-1] == "A1" for r in p.get("regions", [])), str(p.get("regions"))[:300])


def sanitizer(s):
    for kernel, (tool, kind, texts) in FAULTY.items():
        p = s.profile("--kernel", kernel, "--mode", "sanitizer", "--tool", tool, "--remote", REMOTE, expect=1)
        result = next((r for r in p.get("sanitizer", []) if r["tool"] == tool), {})
        causes = result.get("causes", [])
        s.check(f"{tool} finds {kernel}", result.get("verdict") == "found" and any(c["kind"] == kind for c in causes),
                str(result)[:300], note=f"{result.get('errors')} errors, {len(causes)} causes")
        source = next((s.project / "kernels" / kernel).glob("*.cu")).read_text().splitlines()
        lines = {i + 1 for i, text in enumerate(source) if any(t in text for t in texts)}
        places = {(Path(c.get("file") or "").name, c.get("line")) for c in causes}
        s.check(f"{kernel}: file and line", any(line in lines for _, line in places) or
                (kernel == "uninit" and any(name.endswith((".hpp", ".h", ".cu")) for name, _ in places)), f"{places} against {lines}")
    p = s.profile("--kernel", "vecadd", "--mode", "sanitizer", "--tool", "all", "--remote", REMOTE)
    s.top_rung("sanitizer", p)
    verdicts = {r["tool"]: r["verdict"] for r in p.get("sanitizer", [])}
    s.check("vecadd is clean under all four", verdicts == dict.fromkeys(
        ("memcheck", "racecheck", "initcheck", "synccheck"), "clean"), str(verdicts))


def selected(p):
    """Names of the regions that each pattern matched, and the arguments that ncu got."""
    selection = p.get("selection") or {}
    return [r["matched"] for r in selection.get("regions", [])], selection.get("replay_mode")


def kernels_in(p):
    """The profiled kernels by the user's own region path."""
    found = {}
    for launch in p.get("launches", []):
        path = "::".join(part for part in launch.get("region", []) if not part.startswith("rgpu@"))
        found.setdefault(path, []).append(launch["kernel"].split("(")[0])
    return found


def regions(s):
    base = ["--kernel", "nested-regions", "--mode", "ncu", "--set", "minimal", "--remote", REMOTE]
    p = s.profile(*base, "--regions", "A,A::A1,B")
    s.top_rung("ncu --regions", p)
    s.check("each name came to its region", selected(p) == ([["A"], ["A::A1"], ["B"]], "kernel"), str(p.get("selection"))[:400])
    s.check("every launch carries its region", kernels_in(p) == {"A": ["vector_add"], "A::A1": ["matrix_product"], "B": ["vector_add"] * 5},
            str(kernels_in(p)))
    s.check("a first pass saw the regions", (p.get("selection") or {}).get("regions_seen") == ["A", "A::A1", "B"],
            str((p.get("selection") or {}).get("regions_seen")), note=next((r["rung"] for r in p["ladder"] if r["step"] == "survey" and r["ok"]), "-"))

    p = s.profile(*base, "--regions", "A*")
    s.check("`A*` is A and A::A1", selected(p)[0] == [["A", "A::A1"]] and set(kernels_in(p)) == {"A", "A::A1"}, str(kernels_in(p)))
    p = s.profile(*base, "--regions", "A", "-k", "regex:^matrix")
    s.check("a kernel filter inside a region", kernels_in(p) == {"A::A1": ["matrix_product"]}, str(kernels_in(p)))
    p = s.profile(*base, "--regions", "A,B", "--kernel-exclude", "regex:vector")
    s.check("an exclude inside a region", kernels_in(p) == {"A::A1": ["matrix_product"]}, str(kernels_in(p)))
    p = s.profile(*base, "--regions", "regex:^B$", "--launch-skip", "1", "--launch-count", "2")
    s.check("launches are counted inside a region", kernels_in(p) == {"B": ["vector_add"] * 2}, str(kernels_in(p)))

    missing = s.rgpu("profile", *base, "--regions", "A,A2", expect=3)
    s.check("a region that does not exist names those that do", "no matching region for `A2`" in missing.stderr and "`A::A1`" in missing.stderr,
            missing.stderr[-400:])
    wrong = s.rgpu("profile", "--kernel", "vecadd", "--mode", "bench", "--set", "full", "--remote", REMOTE, expect=2)
    s.check("a flag of another mode names its mode", "`--set`" in wrong.stderr and "`ncu`" in wrong.stderr, wrong.stderr)

    for mode in ("range", "app-range"):
        p = s.profile(*base, "--regions", "A,A::A1,B", "--replay-mode", mode)
        s.check(f"{mode} replay measured the ranges", selected(p)[1] == mode, str([(r["rung"], r["code"], r["message"]) for r in p["ladder"]])[:600])
        measured = {"::".join(part for part in r["path"] if not part.startswith("rgpu@")): r["metrics"].get("gpu__time_duration.sum", {}).get("value")
                    for r in p.get("regions", []) if r.get("metrics")}
        s.check(f"{mode} replay: A, A::A1 and B have metrics of their own", set(measured) == {"A", "A::A1", "B"} and all(map(finite, measured.values())),
                str(measured), note=str(measured))
        s.check(f"{mode} replay: one result a range", len(p.get("launches", [])) == 3, str(kernels_in(p)))

    program = [drivers(s) / "regions"]
    p = s.profile("--mode", "ncu", "--regions", "A*", "--remote", REMOTE, "--", *program)
    s.check("a program's regions are found and selected", kernels_in(p) == {"A": ["vecadd"], "A::A1": ["tiled_matmul"]}, str(kernels_in(p)))
    p = s.profile("--mode", "ncu", "--regions", "A,B", "--replay-mode", "range", "--remote", REMOTE, "--", *program, "managed")
    s.check("a call that range replay cannot repeat leads to another replay, and is said",
            selected(p)[1] in ("app-range", "kernel") and any(g["code"] == "range_unsupported" for g in p["selection"]["left_out"]),
            str(p.get("selection"))[:400], note=str(selected(p)[1]))


def deep(s):
    program = drivers(s) / "ten_kernels"
    p = s.profile("--mode", "deep", "--top", "3", "--remote", REMOTE, "--", program)
    selection = p.get("selection") or {}
    chosen = [k["kernel"] for k in selection.get("kernels", [])]
    s.check("the three kernels that hold the time", chosen == ["heavy(float *, long long)", "void tile<float, (int)4>(T1 *, long long)",
            "void tile<double, (int)2>(T1 *, long long)"], str(chosen))
    covered = selection.get("covered_percent") or 0
    s.check("the share of GPU time is stated", 85 < covered < 96, str(covered), note=f"{covered:.1f} %")
    profiled = {}
    for launch in p.get("launches", []):
        profiled[launch["kernel"]] = profiled.get(launch["kernel"], 0) + 1
    counts = {k["kernel"]: k["profiled"] for k in selection.get("kernels", [])}
    s.check("up to three launches of each were looked at, and a late one", sorted(counts.values()) == [2, 3, 4] and profiled == counts,
            f"{profiled} instead of {counts}", note=str(profiled))
    argv = next((" ".join(r["argv"]) for r in p["ladder"] if r["step"] == "profile"), "")
    s.check("in one process, by their numbers", "--kernel-id ::regex:" in argv and ":^(1|2|3|7)$" in argv, argv)
    s.check("with counters", all(len(launch["metrics"]) > 100 for launch in p.get("launches", [])), str(len(p.get("launches", []))))
    s.check("the timeline has all ten kernels", len(p.get("kernels", [])) == 10, str([k["kernel"] for k in p.get("kernels", [])]))
    kinds = {a["kind"] for a in p.get("artifacts", [])}
    s.check("both reports are there", {"nsys_rep", "ncu_rep"} <= kinds, str(kinds))
    took = sum(r["seconds"] for r in p["ladder"] if r["step"].startswith("profile"))
    s.check("the price was right within a factor of three", selection.get("price", {}).get("seconds", 0) / 3 < took < 3 * selection.get("price", {}).get("seconds", 1),
            f"{took:.1f} s against {selection.get('price')}", note=f"{took:.1f} s, estimated {selection.get('price', {}).get('seconds', 0):.1f} s")

    p = s.profile("--mode", "deep", "--top", "2", "--set", "full", "--budget", "6MB", "--remote", REMOTE, "--", program)
    selection = p.get("selection") or {}
    taken = [(k["launches"], k["profiled"]) for k in selection.get("kernels", [])]
    s.check("a small budget takes fewer launches and says so", len(p.get("launches", [])) == sum(n for _, n in taken) < 11 and
            any(g["code"] == "budget_launches" for g in selection.get("left_out", [])), f"{taken} {selection.get('left_out')}", note=str(taken))
    p = s.profile("--mode", "deep", "--top", "1", "--light", "--regions", "decode*", "-k", "regex:add", "--remote", REMOTE, "--", program)
    names = {launch["kernel"] for launch in p.get("launches", [])}
    s.check("filters narrow the choice, and one overload is meant", names == {"add(float *, long long)"}, str(names))
    p = s.profile("--kernel", "nested-regions", "--mode", "deep", "--top", "1", "--remote", REMOTE)
    names = {launch["kernel"].split("(")[0] for launch in p.get("launches", [])}
    s.check("a kernel's own deepest", names == {"matrix_product"}, str(names))
    s.check("is measured without a tool too", (p.get("timing") or {}).get("median_ns", 0) > 1000, str(p.get("timing")))
    deep_program(s)


def wait_for(path, words, seconds):
    """Waits until a line of the event file contains every word."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if path.exists() and any(all(w in line for w in words) for line in path.read_text(errors="replace").splitlines()):
            return True
        time.sleep(0.05)
    return False


def running_ncu():
    """Command lines of running ncu processes. A cancelled job must not leave any."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            argv = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else [b""]
        except OSError:
            continue
        if argv[0].endswith(b"/ncu"):
            found.append(b" ".join(argv).decode(errors="replace"))
    return found


def cutlink(s):
    proxy = Proxy(2223, (s.ssh["GPU_SSH_HOST"], int(s.ssh["GPU_SSH_PORT"])))
    add_remote(s, "cut", 2223)
    s.rgpu("remote", "check", "cut")
    rung = ('"rung_started"', "ncu")

    for what, seconds in (("a second", 1), ("8 seconds", 8)):
        events = s.work / f"events-{seconds}.jsonl"
        before = proxy.connections
        going = s.start("profile", "--kernel", "vecadd", "--mode", "ncu", "--remote", "cut", "--json", "--events", events)
        s.check("ncu starts", wait_for(events, rung, 90))
        proxy.cut()
        time.sleep(seconds)
        proxy.restore()
        ended = s.finish(going)
        s.check(f"a link cut for {what} ends with a whole profile", ended.status == 0 and launches_of(ended.json, "vecadd"),
                f"status {ended.status}: {ended.stderr[-400:]}", note=f"{ended.seconds:.1f} s")
        s.check("the link was taken up again", proxy.connections > before + 1)

    events = s.work / "events-killed.jsonl"
    going = s.start("profile", "--kernel", "vecadd", "--mode", "ncu", "--remote", "cut", "--events", events)
    s.check("ncu starts", wait_for(events, rung, 90))
    going["child"].kill()
    s.finish(going)
    attached = s.rgpu("runs", "attach", "latest", "--json")
    s.check("a killed laptop attaches and gets the whole profile", launches_of(attached.json, "vecadd"), attached.stdout[:300])

    events = s.work / "events-cancelled.jsonl"
    going = s.start("profile", "--kernel", "tiled-matmul", "--mode", "ncu", "--remote", "cut", "--events", events)
    s.check("ncu starts", wait_for(events, rung, 90))
    going["child"].send_signal(signal.SIGINT)
    ended = s.finish(going, 60)
    s.check("Ctrl-C cancels", ended.status == 130, f"status {ended.status}: {ended.stderr[-300:]}", note=f"{ended.seconds:.1f} s")
    s.check("and leaves nothing running", not running_ncu(), str(running_ncu()))


def compare(s):
    pair = ("--kernel", "transpose-conflicts", "--kernel", "transpose-padded", "--remote", REMOTE)

    def verdict(c):
        time = c.get("time") or {}
        low, high = time.get("ci95") or (0, 0)
        return f"{c.get('verdict')} {time.get('speedup')} [{low:.4f}, {high:.4f}] {time.get('source')} {time.get('rounds')} rounds"

    c = s.rgpu("compare", *pair, "--json").json
    s.check("padding is FASTER", c.get("verdict") == "FASTER", verdict(c), note=verdict(c))
    s.check("and the bank conflicts are the reason", "bank conflicts" in c.get("summary", ""), c.get("summary", ""), note=c.get("summary", ""))
    s.check("calls were interleaved", (c.get("time") or {}).get("source") == "abba", verdict(c))
    s.check("both sides are right", c["a"].get("correctness") == c["b"].get("correctness") == "right", str(c["a"]))
    s.check("ncu looked at both", {p["part"]: p["there"] for p in c["parts"]} == {"speedup": True, "nsys": False, "ncu": True}, str(c["parts"]))
    folder = (s.project / "artifacts/runs/latest").resolve()
    s.check("compare.json, compare.md and both profiles are there", all((folder / f).is_file() for f in
            ("compare.json", "compare.md", "a/profile.json", "b/profile.json")), str(folder))
    back = s.rgpu("compare", "--kernel", "transpose-padded", "--kernel", "transpose-conflicts", "--mode", "bench", "--remote", REMOTE,
                  "--fail-on", "slower", "--json", expect=1).json
    s.check("the other way round is SLOWER, by the reciprocal", back.get("verdict") == "SLOWER" and
            abs(back["time"]["speedup"] * c["time"]["speedup"] - 1) < 0.05, verdict(back), note=verdict(back))
    deep = s.rgpu("compare", *pair, "--mode", "deep", "--json").json
    s.check("deep has times, nsys and ncu", all(p["there"] for p in deep["parts"]), str(deep["parts"]))
    for kernel in ("vecadd", "softmax", "host-entry"):
        same = s.rgpu("compare", "--kernel", kernel, "--kernel", kernel, "--mode", "bench", "--remote", REMOTE, "--json").json
        s.check(f"{kernel} against itself is SAME", same.get("verdict") == "SAME", verdict(same), note=verdict(same))
    for run in ("compare-one", "compare-two"):
        s.rgpu("profile", "--kernel", "vecadd", "--mode", "bench", "--iters", "400", "--remote", REMOTE, "--run-id", run)
    runs = s.rgpu("compare", "compare-one", "compare-two", "--json").json
    s.check("two runs of one binary are SAME", runs.get("verdict") == "SAME", verdict(runs), note=verdict(runs))
    s.rgpu("compare", "compare-one", "compare-two")


def exec_(s):
    snippets = Path(__file__).parent / "snippets"
    run = ["exec", "--remote", REMOTE, "--gpus", "1"]
    if built := os.environ.get("EXEC_BUILT"):
        shutil.copytree(built, s.home / ".cache/rgpu/exec/built", dirs_exist_ok=True)
    rust = s.rgpu(*run, snippets / "axpy.rs")
    s.check("a Rust snippet compiles a kernel by nvrtc, launches it and finds it right", ", 0 wrong" in rust.stdout,
            rust.stdout + rust.stderr[-400:], note=rust.stdout.strip())
    again = s.rgpu(*run, snippets / "axpy.rs")
    s.check("and again within a second", again.seconds < 1, f"{again.seconds:.2f} s", note=f"{again.seconds:.2f} s")
    cuda = s.rgpu(*run, snippets / "probe.cu", "--", "a", "b")
    s.check("a .cu with a main runs", ": 0 wrong, 2 arguments" in cuda.stdout, cuda.stdout + cuda.stderr[-400:], note=cuda.stdout.strip())
    again = s.rgpu(*run, snippets / "probe.cu")
    s.check("and is compiled once", again.seconds < cuda.seconds, f"{again.seconds:.2f} s", note=f"{cuda.seconds:.1f} s, then {again.seconds:.1f} s")
    for name, words in (("attend.py", "largest error"), ("triton_add.py", "equal")):
        done = s.rgpu(*run, snippets / name)
        s.check(f"{name} runs", words in done.stdout, done.stdout + done.stderr[-400:], note=done.stdout.strip())
    one = s.rgpu(*run, "--lang", "py", "--code", "import torch; print(torch.cuda.get_device_name(), torch.cuda.device_count())")
    s.check("a line of Python sees the one GPU", one.stdout.strip().endswith(" 1"), one.stdout, note=one.stdout.strip())
    none = s.rgpu("exec", "--remote", REMOTE, "--gpus", "0", "--lang", "py", "--code", "import torch; print(torch.cuda.is_available())")
    s.check("and none where none is asked for", none.stdout == "False\n", none.stdout)
    s.rgpu("exec", "--remote", REMOTE, "--lang", "py", "--code", "raise SystemExit(7)", expect=7)

    p = s.rgpu("exec", "--remote", REMOTE, snippets / "axpy.rs", "--mode", "nsys", "--json").json
    s.top_rung("exec --mode nsys", p)
    s.check("its kernel is in the timeline", any(k["kernel"].startswith("axpy") for k in p.get("kernels", [])), str(p.get("kernels"))[:300])
    s.check("its range is too, with GPU time", any(r["path"][-1] == "axpy" and (r.get("gpu_ns") or 0) > 0 for r in p.get("regions", [])),
            str(p.get("regions"))[:300])
    p = s.rgpu("exec", "--remote", REMOTE, snippets / "axpy.rs", "--mode", "ncu", "--set", "minimal", "--regions", "axpy", "--json").json
    s.top_rung("exec --mode ncu --regions", p)
    s.check("the region's kernel has counters", launches_of(p, "axpy"), str(p.get("launches"))[:300])
    p = s.rgpu("exec", "--remote", REMOTE, snippets / "triton_add.py", "--mode", "ncu", "--set", "minimal", "-k", "add", "--json").json
    s.check("a Triton kernel has counters", any(launch["metrics"] for launch in launches_of(p, "add")), str(p.get("launches"))[:300])
    p = s.rgpu("exec", "--remote", REMOTE, snippets / "probe.cu", "--mode", "sanitizer", "--json").json
    s.check("a .cu is clean under memcheck", [r["verdict"] for r in p.get("sanitizer", [])] == ["clean"], str(p.get("sanitizer"))[:300])


PARTS = {f.__name__.rstrip("_").replace("_", "-"): f for f in (remote, doctor, bench, verify, ncu, nsys, sanitizer, values, regions, deep, compare, loop, layout, wagmi, wagmi_tools, exec_, python, judge, cupti, rungs, cutlink, programs, endings, ranks, suite_levels, suite_expect, suite_kept, suite_sweep, verdicts, mcp, package, dashboard, large, model, slurm)}
