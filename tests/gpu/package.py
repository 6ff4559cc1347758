"""The part `package`: the examples of the Python package, each as a user runs it, and what they print."""

import subprocess
import sys

from session import ROOT


def package(s):
    env = {**s.env, "PYTHONPATH": str(ROOT / "python"), "PYTHONDONTWRITEBYTECODE": "1", "RGPU": str(s.rgpu_path)}
    def example(name, wanted):
        ended = subprocess.run([sys.executable, ROOT / f"python/examples/{name}.py"], cwd=s.project, env=env, check=False,
                               capture_output=True, text=True, timeout=max(1, s.time_left()))
        (s.out / f"log/package-{name}.txt").write_text(ended.stdout + "---\n" + ended.stderr)
        s.check(f"the example {name}.py prints what it should", ended.returncode == 0 and wanted(ended.stdout),
                f"status {ended.returncode}: {ended.stdout[-600:]} {ended.stderr[-600:]}", note=" / ".join(ended.stdout.splitlines())[-200:])

    example("vecadd", lambda out: "rung " in out and " ms" in out and " registers" in out)
    example("several", lambda out: "['9', '16']" in out and "stopped" in out)
    # A line for each point and annotation: the GPU took more time for the larger product.
    times = lambda out: [int(line.split()[-1]) for line in out.splitlines() if " product " in line and line.split()[-1].isdigit()]
    example("sweep", lambda out: len(times(out)) == 2 and times(out)[1] > times(out)[0] > 0)
