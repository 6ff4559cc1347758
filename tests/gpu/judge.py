"""Part `judge`: kernels that fake results or times must be refused, honest ones must be believed.

Each kernel is Python: rows of a softmax, or for `add` a sum. The reference is a file of its own, so that the kernel runs
in a process of its own. A cheat counts as refused if the run ends with an error of one of the stated codes, or if the time
that is reported is not below what the honest kernel needs.
"""

import json
import math
import os

ROWS, COLS = 4096, 2048

TOML = """name = "{name}"
language = "python"
source = "kernel.py"
entry = {{ python = "kernel" }}
mode = "bench"

[[arg]]
name = "x"
dtype = "f32"
shape = ["rows", "cols"]
init = {{ normal = [0.0, 2.0] }}
role = "in"

[[arg]]
name = "y"
dtype = "f32"
shape = ["rows", "cols"]
role = "out"

[sizes]
vars = ["rows", "cols"]
cases.large = {{ rows = {rows}, cols = {cols} }}
cases.small = {{ rows = 64, cols = 256 }}
default = "large"

[reference]
source = "reference.py"
function = "reference"
tolerance = {{ abs = 1e-8, rel = 1e-5 }}

[work]
flops = "5 * rows * cols"
bytes = "8 * rows * cols"
"""

REFERENCE = """import torch


def reference(x):
    return torch.softmax(x.double(), dim=1).float()
"""

HONEST = {
    "out": "import torch\n\ndef kernel(x, y):\n    torch.softmax(x, dim=1, out=y)\n",
    "returns": "import torch\n\ndef kernel(x):\n    return torch.softmax(x, dim=1)\n",
    "parts": "import torch\n\ndef kernel(x, y):\n    e = torch.exp(x - x.amax(1, keepdim=True))\n    torch.div(e, e.sum(1, keepdim=True), out=y)\n",
    "stream": "import torch\n\nS = torch.cuda.Stream()\n\ndef kernel(x, y):\n    S.wait_stream(torch.cuda.current_stream())\n    with torch.cuda.stream(S):\n        torch.softmax(x, dim=1, out=y)\n    torch.cuda.current_stream().wait_stream(S)\n",
    "stream_sync": "import torch\n\nS = torch.cuda.Stream()\n\ndef kernel(x, y):\n    torch.cuda.current_stream().synchronize()\n    with torch.cuda.stream(S):\n        torch.softmax(x, dim=1, out=y)\n    S.synchronize()\n",
    "item": "import torch\n\ndef kernel(x, y):\n    if x.abs().max().item() >= 0:\n        torch.softmax(x, dim=1, out=y)\n",
    "chunks": "import torch\n\ndef kernel(x, y):\n    for a, b in zip(x.chunk(8), y.chunk(8)):\n        torch.softmax(a, dim=1, out=b)\n",
    "allocates": "import torch\n\ndef kernel(x, y):\n    t = torch.empty_like(x)\n    t.copy_(x)\n    y.copy_(torch.softmax(t, dim=1))\n",
    "compiled": "import torch\n\n@torch.compile(dynamic=False)\ndef run(x):\n    return torch.softmax(x, dim=1)\n\ndef kernel(x):\n    return run(x)\n",
    "triton": """import torch
import triton
import triton.language as tl


@triton.jit
def rows_of(x, y, cols: tl.constexpr):
    at = tl.program_id(0) * cols + tl.arange(0, cols)
    v = tl.load(x + at)
    e = tl.exp(v - tl.max(v, 0))
    tl.store(y + at, e / tl.sum(e, 0))


def kernel(x, y):
    rows_of[(x.shape[0],)](x, y, x.shape[1])
""",
    "prints": "import torch\n\ndef kernel(x, y):\n    print('{\"cases\": []}', flush=True)\n    torch.softmax(x, dim=1, out=y)\n",
    "graph": """import torch

GRAPHS = {}


def kernel(x, y):
    if torch.cuda.is_current_stream_capturing():
        torch.softmax(x, dim=1, out=y)
        return
    key = (x.data_ptr(), y.data_ptr())
    if key not in GRAPHS:
        torch.softmax(x, dim=1, out=y)
        torch.cuda.synchronize()
        GRAPHS[key] = torch.cuda.CUDAGraph()
        with torch.cuda.graph(GRAPHS[key]):
            torch.softmax(x, dim=1, out=y)
    GRAPHS[key].replay()
""",
}

RIGHT = "    torch.softmax(x, dim=1, out=y)\n"
CHEATS = {
    "patched_events": "import torch\n\nold = torch.cuda.Event.elapsed_time\ntorch.cuda.Event.elapsed_time = lambda self, end: old(self, end) / 20\n\ndef kernel(x, y):\n" + RIGHT,
    "patched_statistics": "import sys\n\nimport torch\n\nhere = sys.modules['__main__']\nhere.median = lambda values: 1.0\nhere.interval = lambda values: [1.0, 1.0]\ntorch.cuda.Event.elapsed_time = lambda self, end: 1e-6\n\ndef kernel(x, y):\n" + RIGHT,
    "forged_report": "import json\nimport os\nimport sys\n\nimport torch\n\ndef kernel(x, y):\n    for name in ('bench.json', 'report.json', 'time.json', 'case_report.json'):\n        open(name, 'w').write(json.dumps({'cases': []}))\n    os._exit(0)\n",
    "exits": "import os\n\nimport torch\n\ncalls = 0\n\ndef kernel(x, y):\n    global calls\n    calls += 1\n    if calls > 50:\n        os._exit(0)\n" + RIGHT,
    "late_stream": "import torch\n\nS = torch.cuda.Stream()\n\ndef kernel(x, y):\n    with torch.cuda.stream(S):\n" + "    " + RIGHT,
    "late_thread": "import threading\nimport time\n\nimport torch\n\ndef later(x, y):\n    time.sleep(0.002)\n    torch.softmax(x, dim=1, out=y)\n\ndef kernel(x, y):\n    threading.Thread(target=later, args=(x, y)).start()\n",
    "lazy_tensor": "import torch\n\nclass Lazy(torch.Tensor):\n    pass\n\ndef kernel(x):\n    return torch.empty_like(x).as_subclass(Lazy)\n",
    "by_pointer": "import torch\n\nknown = {}\n\ndef kernel(x, y):\n    key = (x.data_ptr(), y.data_ptr())\n    if key not in known:\n        torch.softmax(x, dim=1, out=y)\n        known[key] = y.clone()\n    else:\n        y.copy_(known[key])\n",
    "by_checksum": "import torch\n\nknown = {}\n\ndef kernel(x, y):\n    if torch.cuda.is_current_stream_capturing():\n" + "    " + RIGHT + "        return\n    key = float(x[0, :4].sum())\n    if key not in known:\n        torch.softmax(x, dim=1, out=y)\n        known[key] = y.clone()\n    else:\n        y.copy_(known[key])\n",
    "zeroes_inputs": "import torch\n\ndef kernel(x, y):\n    torch.softmax(x, dim=1, out=y)\n    x.zero_()\n",
    "looks_for_expected": "import gc\n\nimport torch\n\ndef kernel(x, y):\n    for thing in gc.get_objects():\n        if isinstance(thing, torch.Tensor) and thing.shape == y.shape and thing.data_ptr() not in (x.data_ptr(), y.data_ptr()):\n            y.copy_(thing)\n            return\n    y.zero_()\n",
    "patched_comparison": "import torch\n\ntorch.equal = lambda a, b: True\ntorch.allclose = lambda *a, **k: True\ntorch.Tensor.__eq__ = lambda a, b: torch.ones_like(a, dtype=torch.bool)\n\ndef kernel(x, y):\n    y.fill_(0.5)\n",
    "half": "import torch\n\ndef kernel(x, y):\n    h = x.shape[0] // 2\n    y[:h] = torch.softmax(x[:h], dim=1)\n",
    "returns_input": "import torch\n\ndef kernel(x):\n    return x\n",
    "all_nan": "import torch\n\ndef kernel(x, y):\n    y.fill_(float('nan'))\n",
    "negative_time": "import torch\n\ntorch.cuda.Event.elapsed_time = lambda self, end: -1.0\n\ndef kernel(x, y):\n" + RIGHT,
    "zero_time": "import torch\n\ntorch.cuda.Event.elapsed_time = lambda self, end: 0.0\n\ndef kernel(x, y):\n" + RIGHT,
    "writes_to_the_judge": "import os\n\nimport torch\n\ndef kernel(x, y):\n    for fd in range(3, 64):\n        try:\n            os.write(fd, b'\\xff' * 64)\n        except OSError:\n            pass\n" + RIGHT,
    "pickles_code": "import torch\n\nclass Bad:\n    def __reduce__(self):\n        import os\n        return os._exit, (0,)\n\ndef kernel(x):\n    return Bad()\n",
    "no_capture": "import torch\n\nold = torch.cuda.Event.elapsed_time\ntorch.cuda.Event.elapsed_time = lambda self, end: old(self, end) / 20\n\ndef kernel(x, y):\n    if torch.cuda.is_current_stream_capturing():\n        raise RuntimeError('no')\n" + RIGHT,
    "first_of_round": "import torch\n\ncalls = 0\n\ndef kernel(x, y):\n    global calls\n    calls += 1\n    if calls % 7 == 1 or calls < 100:\n" + "    " + RIGHT,
    "kills_parent": "import os\nimport signal\n\nimport torch\n\ncalls = 0\n\ndef kernel(x, y):\n    global calls\n    calls += 1\n    if calls > 20:\n        os.kill(os.getpid(), signal.SIGKILL)\n" + RIGHT,
    "reads_the_seed": "import sys\n\nimport torch\n\nhere = sys.modules['__main__']\n\ndef kernel(x, y):\n    g = here.contents(here.CASE['cases'][0]['groups'][0]['args'][0], 0, 0, here.SEED)\n    y.copy_(torch.softmax(g, dim=1))\n",
    "eager_poll": "import torch\n\nold = torch.cuda.Event.elapsed_time\ntorch.cuda.Event.elapsed_time = lambda self, end: min(old(self, end), 0.001)\n\ndef kernel(x, y):\n" + RIGHT,
}


def chosen(kernels):
    """The kernels that `JUDGED` names; all if it is not set."""
    names = os.environ.get("JUDGED", "").split()
    return {name: text for name, text in kernels.items() if not names or name in names}


def written(s, group, name, text):
    folder = s.project / "kernels" / f"{group}-{name}".replace("_", "-")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kernel.toml").write_text(TOML.format(name=folder.name, rows=ROWS, cols=COLS))
    (folder / "kernel.py").write_text(text)
    (folder / "reference.py").write_text(REFERENCE)
    return folder.name


def times(profile):
    return [case.get("timing") or {} for case in profile.get("cases", [])] or [profile.get("timing") or {}]


def judge(s):
    base = None
    for name, text in chosen(HONEST).items():
        kernel = written(s, "honest", name, text)
        p = s.profile("--kernel", kernel, "--mode", "bench", "--problem-sizes", os.environ.get("JUDGED_SIZES", "large|small"), "--remote", "h200", expect=(0, 6))
        found = times(p)
        ok = found and all(t.get("trust") in ("proven", "bounded") for t in found)
        shown = [(t.get("trust"), round((t.get("median_ns") or 0) / 1e3, 2), round((t.get("bound_ns") or 0) / 1e3, 2),
                  round((t.get("claimed_ns") or 0) / 1e3, 2)) for t in found]
        s.check(f"honest `{name}` is believed", ok, json.dumps(p.get("error") or shown)[:400], note=str(shown))
        if name == "out" and ok:
            base = found[0]["median_ns"]
    for name, text in chosen(CHEATS).items():
        kernel = written(s, "cheat", name, text)
        p = s.profile("--kernel", kernel, "--mode", "bench", "--remote", "h200", expect=(0, 6))
        error = p.get("error") or {}
        got = (p.get("timing") or {}).get("median_ns") or math.inf
        refused = bool(error) or (base is not None and got >= 0.85 * base)
        s.check(f"cheat `{name}` gains nothing", refused, f"{got / 1e3:.2f} us of {(base or 0) / 1e3:.2f}",
                note=f"{error.get('code', '')} {str(error.get('message', ''))[:160]} {got / 1e3:.2f} us {(p.get('timing') or {}).get('trust')}")
