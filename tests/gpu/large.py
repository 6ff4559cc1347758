"""The part `large`: a report of nsys with millions of launches, made here. `rgpu report` and its page are timed against
`nsys export`, which every reader of such a report needs first.

LAUNCHES: default 2,000,000, which were 48 MB on an H200.
"""

import os
import subprocess
import sys
import threading
import time

LAUNCHES = int(os.environ.get("LAUNCHES", "2000000"))
NODES = 2000  # kernels in a graph, each of which nsys traces

PROGRAM = """
import sys, torch
rounds, nodes = map(int, sys.argv[1:])
a = torch.zeros(256, device="cuda")
stream = torch.cuda.Stream()
with torch.cuda.stream(stream):
    a += 1
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(nodes // 2):
            a += 1
            a.mul_(0.5)
for at in range(rounds):
    with torch.cuda.nvtx.range(f"round {at % 10}"):
        graph.replay()
        torch.cuda.synchronize()
"""


def large(s):
    report, program = s.work / "large.nsys-rep", s.work / "large.py"
    program.write_text(PROGRAM)

    def timed(*argv):
        """Seconds and output of a command; its peak memory is in the note."""
        begun = time.monotonic()
        with open(s.work / "large.out", "w+") as out:
            child = subprocess.Popen(list(map(str, argv)), cwd=s.project, env={**os.environ, **s.env}, stdout=out, stderr=subprocess.STDOUT)
            end = threading.Timer(max(1, s.time_left()), child.kill)
            end.start()
            _, status, usage = os.wait4(child.pid, 0)
            end.cancel()
            child.returncode = os.waitstatus_to_exitcode(status)
            out.seek(0)
            said = out.read()
        seconds, memory = time.monotonic() - begun, usage.ru_maxrss / 1e3
        s.check(" ".join(str(a) for a in argv[:3]), child.returncode == 0, said[-600:], note=f"{seconds:.1f} s, {memory:.0f} MB of memory")
        return seconds, said

    timed("nsys", "profile", "--trace=cuda,nvtx", "--sample=none", "--cpuctxsw=none", "--cuda-graph-trace=node", "--force-overwrite=true",
          "--output", report, sys.executable, program, LAUNCHES // NODES, NODES)
    size = report.stat().st_size / 1e6
    export, _ = timed("nsys", "export", "--type", "sqlite", "--force-overwrite=true", "--output", s.work / "large.sqlite", report)
    table, said = timed(s.rgpu_path, "report", s.work / "large.sqlite")
    page, _ = timed(s.rgpu_path, "report", s.work / "large.sqlite", "--format", "html", "--out", s.work / "large.html")
    whole, _ = timed(s.rgpu_path, "report", report)
    s.check("the table counts every launch", str(LAUNCHES // 2) in said.replace(",", ""), said[:900])
    s.check("table and page take at most half of what nsys export takes", max(table, page) <= 0.5 * export,
            f"table {table:.1f}, page {page:.1f}, nsys export {export:.1f} s",
            note=f"{size:.0f} MB: table {table / export:.2f}, page {page / export:.2f} of nsys export; from the .nsys-rep {whole / export:.2f}")
    (s.out / "large.txt").write_text(said)
