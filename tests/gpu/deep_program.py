"""Mode deep on a whole program: how long it takes beside its parts, and whether each kernel gets a verdict.

The limit is the run under nsys and twice the program under ncu with a filter that matches nothing (the floor). All
three are commands of rgpu, so each contains the same work around its tool.
"""

import json
from pathlib import Path

HERE = Path(__file__).resolve().parent
REMOTE = "h200"


def rung_seconds(events):
    """The seconds of each rung that an event file lists."""
    if not events.exists():
        return []
    lines = [json.loads(line) for line in events.read_text(errors="replace").splitlines() if line.startswith("{")]
    return [f"{e['step']}/{e['rung']} {e['seconds']:.1f} s {e.get('code', '')}".strip()
            for e in lines if e.get("event") == "rung_ended"]


def timed(s, name, *flags, expect=0):
    events = s.work / f"deep-{name}.jsonl"
    events.unlink(missing_ok=True)
    ended = s.rgpu("exec", "--remote", REMOTE, HERE / "programs/hf.py", *flags, "--json", "--events", events, expect=expect)
    print(f"     {name}: {ended.seconds:.1f} s; " + "; ".join(rung_seconds(events)), flush=True)
    return ended


def deep_program(s):
    s.rgpu("exec", "--remote", REMOTE, HERE / "programs/hf.py")  # fills the caches of Python and the driver
    nsys = timed(s, "nsys", "--mode", "nsys")
    # Nothing is measured, which is rgpu's own failure under exec.
    floor = timed(s, "floor", "--mode", "ncu", "-k", "no_kernel_has_this_name", expect=125)
    deep = timed(s, "deep", "--mode", "deep", "--top", "3")
    limit = nsys.seconds + 2 * floor.seconds
    numbers = f"nsys {nsys.seconds:.1f} s, floor {floor.seconds:.1f} s, deep {deep.seconds:.1f} s, limit {limit:.1f} s"
    print(f"     {numbers}", flush=True)
    s.check("deep ends within the nsys run and twice the floor", deep.seconds <= limit, numbers, note=numbers)

    p = deep.json
    selection = p.get("selection") or {}
    chosen = selection.get("kernels", [])
    print(f"     set {selection.get('set')}, price {selection.get('price')}, left out {selection.get('left_out')}")
    verdicts = {v["kernel"]: v for v in p.get("kernel_verdicts", [])}
    launches = {}
    for launch in p.get("launches", []):
        launches.setdefault(launch["kernel"], []).append(launch)
    for kernel in chosen:
        own = launches.get(kernel["kernel"], [])
        said = verdicts.get(kernel["kernel"], {})
        geometries = sorted({(tuple(l.get("grid", ())), tuple(l.get("block", ()))) for l in own})
        print(f"     {kernel['percent']:.1f} % {kernel['kernel'][:90]}: {kernel['launches']} launches, {kernel['profiled']} to "
              f"profile, {len(own)} profiled of {len(geometries)} geometries; {said.get('verdict')}: {said.get('text', '')[:160]}")
    for record in p.get("ladder", []):
        if record["step"].startswith("profile"):
            print(f"     {record['step']} {record['rung']} {record['seconds']:.1f} s ok={record['ok']} {record['code']} "
                  f"{' '.join(record['argv'])[:700]}")
    s.check("three kernels are chosen", len(chosen) == 3, str(chosen)[:400])
    without = [k["kernel"] for k in chosen if not verdicts.get(k["kernel"], {}).get("verdict")]
    s.check("each of the three has a verdict", chosen and not without, str(without)[:600])
    missing = [k["kernel"] for k in chosen if not any(l["metrics"] for l in launches.get(k["kernel"], []))]
    s.check("each of the three has counters", chosen and not missing, str(missing)[:600])
    passes = [r for r in p.get("ladder", []) if r["step"].startswith("profile") and r["argv"]]
    s.check("one process of ncu was enough", len(passes) == 1, str([(r["step"], r["code"], r["message"]) for r in passes]))
    # ncu counts a kernel's launches by its shared memory too, so some numbers may not exist.
    counts = [len(launches.get(k["kernel"], [])) for k in chosen]
    s.check("at least three launches of each were profiled", chosen and min(counts) >= 3, str(counts), note=str(counts))
