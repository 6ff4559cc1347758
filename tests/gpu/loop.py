"""The part `loop`: a scripted worker proposes five changes of transpose-conflicts, the loop is killed twice on the way,
and exactly the two faster changes are kept. Then twenty changes of nothing but a comment, of which none is kept."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
REMOTE = "h200"

READ = "= tile[threadIdx.x][i];"
TILE = "__shared__ float tile[TILE][TILE];"
# What is replaced by what, for each iteration. Each is a change of the best so far.
PROPOSALS = [
    ("no transposition inside the tile: wrong", READ, "= tile[i][threadIdx.x];"),
    ("everything twice: slower", "    for (int i = threadIdx.y; i < TILE; i += ROWS_PER_PASS) {\n        int out_row",
     "    for (int j = threadIdx.y; j < 2 * TILE; j += ROWS_PER_PASS) {\n        int i = j % TILE;\n"
     "        asm volatile(\"\" ::: \"memory\");\n        int out_row"),
    ("a comment: equal", "// out = the transpose", "// the transpose"),
    ("half of the bank conflicts: faster", TILE, "__shared__ float tile[TILE][TILE + 16];"),
    ("no bank conflicts: faster", "TILE + 16", "TILE + 1"),
]
EQUAL = {"same", "ambiguous", "not_confirmed"}


def worker(prompt, iter_dir, kernel):
    """The worker itself, in mode `command`."""
    text = Path(prompt).read_text()
    answer = json.loads(next(line for line in text.splitlines() if line.startswith('{"iteration"')))
    number = answer["iteration"]
    source = Path(kernel) / "transpose_conflicts.cu"
    code = source.read_text()
    if os.environ.get("LOOP_NOTHING"):
        note, new = "nothing", code + f"// {number}\n"
    else:
        note, old, replacement = PROPOSALS[number - 1]
        new = code.replace(old, replacement)
        if new == code:
            sys.exit(f"`{old}` is not in the kernel")
    source.write_text(new)
    answer |= {"decision": "KEEP", "metric_name": "gmean_us", "metric_value": 1.0, "note": note}
    result = Path(iter_dir) / "new"
    result.write_text(json.dumps(answer))
    result.rename(Path(iter_dir) / "worker_result.json")


def settings(s, name, **keys):
    command = f"{sys.executable} {HERE / 'loop.py'} {{prompt}} {{iter_dir}} {{kernel}}"
    lines = {"kernel_path": "kernels/transpose-conflicts", "mode": "command", "remote": REMOTE, "worker_command": command,
             "max_no_progress": 100, **keys}
    file = s.project / name
    file.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in lines.items()))
    return file


def status(s):
    said = subprocess.run([str(s.rgpu_path), "loop", "status", "--json"], cwd=s.project, env=s.env, check=False,
                          stdin=subprocess.DEVNULL, capture_output=True, text=True).stdout
    try:
        return json.loads(said)
    except ValueError:
        return {}


def kill_in(s, running, phase, iteration):
    """Kills the loop once it is in a phase. Returns whether it got there."""
    child = running["child"]
    while child.poll() is None and s.time_left() > 0:
        now = status(s)
        if now.get("phase") == phase and now.get("iteration") == iteration:
            time.sleep(0.5)  # into the phase
            child.send_signal(signal.SIGKILL)
            child.wait()
            return True
        time.sleep(0.05)
    return False


def summary(report):
    return "; ".join(f"{it['iteration']} {it['outcome']}" + (f" {it['comparison']['speedup']:.3f}" if "comparison" in it else "")
                     for it in report.get("iterations", []))


def loop(s):
    source = s.project / "kernels/transpose-conflicts/transpose_conflicts.cu"
    before = source.read_text()
    settings(s, "loop.toml", max_iterations=5)
    running = s.start("loop", "start", "loop.toml")
    s.check("killed while it compares the second change", kill_in(s, running, "compare", 2), json.dumps(status(s))[:400])
    running = s.start("loop", "resume")
    s.check("killed while it verifies the fourth change", kill_in(s, running, "verify", 4), json.dumps(status(s))[:400])
    s.rgpu("loop", "resume", timeout=400)
    report = s.rgpu("loop", "report", "--json").json
    s.rgpu("loop", "report")
    s.rgpu("loop", "best")
    outcomes = [it["outcome"] for it in report.get("iterations", [])]
    held = len(outcomes) == 5 and outcomes[:2] == ["wrong", "slower"] and outcomes[2] in EQUAL and outcomes[3:] == ["kept", "kept"]
    s.check("exactly the two faster changes are kept", held, summary(report), note=summary(report))
    final = report.get("final_comparison") or {}
    s.check("the best is FASTER than the start, measured again", final.get("verdict") == "FASTER", str(final)[:400],
            note=final.get("summary", ""))
    best = report.get("best") or {}
    files = [best.get("profile"), *best.get("cubins", [])]
    s.check("the best has its interval, profile and code", (best.get("time") or {}).get("interval_us") and len(files) > 1
            and all(file and (s.project / file).is_file() for file in files), str(best)[:400])
    s.check("the project has the best", "TILE + 1]" in source.read_text(), source.read_text()[:600])

    source.write_text(before)
    settings(s, "nothing.toml", max_iterations=20, profile_mode="none")
    s.env["LOOP_NOTHING"] = "1"
    try:
        s.rgpu("loop", "start", "nothing.toml", timeout=400)
    finally:
        del s.env["LOOP_NOTHING"]
    report = s.rgpu("loop", "report", "--json").json
    s.check("of twenty changes of nothing none is kept", report.get("kept") == 0 and len(report.get("iterations", [])) == 20,
            summary(report), note=summary(report))
    s.check("and the kernel is as it was", source.read_text() == before)


if __name__ == "__main__":
    worker(*sys.argv[1:4])
