#!/usr/bin/env python3
"""dashboard.py [RGPU]: `rgpu dashboard` with ten thousand runs: when its page is drawn for the first time, what the
overview and a filtered list take from the server and on the page, how long the first reading of all runs takes, and
the server's memory. Each is held to its limit.

Needs chromium for the page. RGPU is a release binary (default: target/release/rgpu). RUNS=N changes the number of
runs. Status 1 if a limit is missed.
"""

import http.client
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RUNS = int(os.environ.get("RUNS", "10000"))
TIMES = int(os.environ.get("TIMES", "15"))
KERNELS = ["vecadd", "matmul", "attention_forward", "layer_norm", "transpose"]
GPUS = ["NVIDIA H200", "NVIDIA B200", "NVIDIA H100 80GB HBM3"]


def make_runs(folder):
    """Run folders with a record and a profile, as `rgpu profile` leaves them."""
    example = json.loads((ROOT / "schemas/profile.example.json").read_text())
    for at in range(RUNS):
        kernel, gpu = KERNELS[at % 5], GPUS[at % 3]
        run = f"20260101-{at:06d}-{kernel}-ncu-{at:06x}"
        path = folder / "artifacts/runs" / run
        path.mkdir(parents=True)
        record = {"schema": "rgpu.run/1", "id": run, "started": f"2026-01-{1 + at // 3000:02d}T{at % 24:02d}:{at % 60:02d}:00Z",
                  "title": f"profile {kernel} (ncu)", "command": "profile", "argv": ["rgpu", "profile", kernel],
                  "mode": "ncu", "kernel": kernel, "remote": ["h200", "b200", "h100"][at % 3],
                  "state": "failed" if at % 11 == 5 else "done", "exit": 0, "seconds": 12.5}
        example["device"], example["kernel"]["name"] = gpu, kernel
        example.setdefault("timing", {}).update({"median_ns": 20000.0 + at % 977, "ci95_ns": [19000.0, 22000.0]})
        (path / "profile.json").write_text(json.dumps(example))
        (path / "run.json").write_text(json.dumps(record))


class Server:
    """The dashboard of a project, and a session in it."""

    def __init__(self, rgpu, folder):
        (folder / "home").mkdir(exist_ok=True)
        env = {"PATH": os.environ["PATH"], "HOME": str(folder / "home"), "LANG": "C.UTF-8"}
        self.process = subprocess.Popen([rgpu, "dashboard", "--listen", "127.0.0.1:0"], cwd=folder, env=env,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.link = self.process.stdout.readline().strip()
        self.port = int(re.match(r"http://127.0.0.1:(\d+)/", self.link)[1])
        self.cookie = self.key = None

    def open(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request("GET", self.link.split(str(self.port), 1)[1])
        answer = connection.getresponse()
        self.cookie = answer.getheader("Set-Cookie").split(";")[0]
        self.key = re.search(r'setItem\("x-rgpu-key", "([^"]+)"', answer.read().decode())[1]
        self.connection = http.client.HTTPConnection("127.0.0.1", self.port)

    def get(self, path):
        self.connection.request("GET", "/api/v1" + path, headers={"Cookie": self.cookie, "X-Rgpu-Key": self.key})
        return json.loads(self.connection.getresponse().read())

    def wait_until_read(self):
        begun = time.monotonic()
        while True:
            page = self.get("/runs?limit=1")
            if page["total"] == RUNS and not page["reading"]:
                return time.monotonic() - begun
            time.sleep(0.02)

    def memory(self):
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+)", text)[1]) * 1024

    def end(self):
        self.process.terminate()
        self.process.wait()


class Browser:
    """A headless Chromium, driven over its DevTools pipe."""

    def __init__(self, program, home):
        (theirs, self.out), (self.inp, ours) = os.pipe(), os.pipe()
        script = f'exec "$0" "$@" 3<&{theirs} 4>&{ours}'
        self.process = subprocess.Popen(
            ["sh", "-c", script, program, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
             "--disable-dev-shm-usage", "--disable-background-networking", "--remote-debugging-pipe",
             f"--user-data-dir={home}", "about:blank"],
            pass_fds=(theirs, ours), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.number, self.session, self.rest = 0, None, b""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.enable")

    def call(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self.rest:
                self.rest += os.read(self.inp, 1 << 20)
            answer, self.rest = self.rest.split(b"\0", 1)
            answer = json.loads(answer)
            if answer.get("id") == self.number:
                # While the page changes, an expression has no answer but an error.
                return answer.get("result", {"result": {}})

    def value(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        return answer["result"].get("value")

    def wait_for(self, expression):
        while not (value := self.value(expression)):
            time.sleep(0.01)
        return value

    def end(self):
        self.process.terminate()
        self.process.wait()


def median(values):
    return sorted(values)[len(values) // 2]


def row(name, value, unit, limit):
    held = limit is None or value <= limit
    told = "" if limit is None else f"  (limit {limit:g} {unit})"
    print(f"{'ok  ' if held else 'MISS'} {name:44} {value:8.1f} {unit}{told}", flush=True)
    return held


def overview(server):
    times = []
    for _ in range(TIMES):
        begun = time.monotonic()
        server.get("/overview")
        times.append(time.monotonic() - begun)
    return row("the overview, from the server", median(times) * 1e3, "ms", 50)


def filters(server):
    held = True
    for name, query in (("a word", "q=matmul"), ("GPU and state", "gpu=NVIDIA+H200&state=failed"), ("the last page", f"offset={RUNS - 50}")):
        times = []
        for _ in range(TIMES):
            begun = time.monotonic()
            server.get("/runs?" + query)
            times.append(time.monotonic() - begun)
        held &= row(f"the list by {name}, from the server", median(times) * 1e3, "ms", 50)
    return held


def page(server, folder, program):
    browser = Browser(program, folder / "browser")
    ready = "Number(document.documentElement.dataset.ready || 0)"
    browser.call("Page.navigate", url=server.link)
    browser.wait_for("location.pathname === '/' && " + ready)
    drawn, painted = [], []
    for _ in range(TIMES):
        browser.call("Page.navigate", url="about:blank")
        browser.call("Page.navigate", url=f"http://127.0.0.1:{server.port}/")
        drawn.append(browser.wait_for("location.pathname === '/' && " + ready))
        paint = "(performance.getEntriesByName('first-contentful-paint')[0] || {}).startTime"
        painted.append(browser.wait_for(paint))
    held = row("first paint of the page", median(painted), "ms", 300)
    held &= row("the overview is drawn", median(drawn), "ms", 300)
    lists = []
    for at in range(TIMES):
        word = KERNELS[at % 5]
        lists.append(browser.value(
            "new Promise(done => { delete document.documentElement.dataset.ready; const began = performance.now();"
            f" location.hash = '#/runs?q={word}&at={at}'; const look = () => document.documentElement.dataset.ready"
            " ? done(performance.now() - began) : requestAnimationFrame(look); look(); })"))
    held &= row("the list filtered and drawn on the page", median(lists), "ms", None)
    browser.end()
    return held


def main():
    rgpu = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "target/release/rgpu").resolve()
    if not rgpu.exists():
        sys.exit(f"there is no {rgpu}: cargo build --release -p rgpu")
    with tempfile.TemporaryDirectory(prefix="rgpu-dashboard-", ignore_cleanup_errors=True) as folder:
        folder = Path(folder)
        make_runs(folder)
        server = Server(rgpu, folder)
        server.open()
        row(f"{RUNS} runs read for the first time", server.wait_until_read() * 1e3, "ms", None)
        held = row("memory of the server after that", server.memory() / 1e6, "MB", 100)
        server.end()
        # From here on the index is kept.
        server = Server(rgpu, folder)
        program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
        if program:
            held &= page(server, folder, program)
            server.end()
            server = Server(rgpu, folder)
        else:
            print("left out: no chromium, so no page was opened")
        server.open()
        row(f"{RUNS} runs read again", server.wait_until_read() * 1e3, "ms", None)
        held &= overview(server)
        held &= filters(server)
        held &= row("memory of the server", server.memory() / 1e6, "MB", 100)
        server.end()
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
