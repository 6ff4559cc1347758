"""The part `package`: the examples of the Python package, each as a user runs it, and what they print; and a notebook
with a cell of `%%rgpu`, if python3 has nbclient and ipykernel."""

import os
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

    if subprocess.run([sys.executable, "-c", "import nbclient, ipykernel"], check=False, capture_output=True).returncode != 0:
        print("left out: a notebook (python3 has no nbclient and ipykernel)", flush=True)
        return
    page = s.out / "log/package-notebook.html"
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [env["PYTHONPATH"], os.environ.get("PYTHONPATH")]))
    ended = subprocess.run([sys.executable, "-c", NOTEBOOK, page.resolve()], cwd=s.project, env=env, check=False,
                           capture_output=True, text=True, timeout=max(1, s.time_left()))
    s.check("a cell of a notebook runs on the GPU, and its page is shown", ended.returncode == 0 and "sum " in ended.stdout
            and "gemm" in page.read_text().lower(), f"status {ended.returncode}: {ended.stdout[-600:]} {ended.stderr[-600:]}",
            note=" / ".join(ended.stdout.splitlines())[-200:])


NOTEBOOK = """
import sys, nbclient, nbformat
cell = '''%%rgpu --remote h200 --mode nsys --timeout 5m
import torch
a = torch.randn(4096, 4096, device="cuda")
print("sum", (a @ a).sum().item())
'''
book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in ("%load_ext rgpu", cell)])
nbclient.NotebookClient(book, timeout=400).execute()
outputs = book.cells[1].outputs
print(*(output.text for output in outputs if output.output_type == "stream"))
open(sys.argv[1], "w").write(next(output.data["text/html"] for output in outputs if "data" in output))
"""
