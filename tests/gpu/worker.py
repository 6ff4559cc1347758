#!/usr/bin/env python3
"""worker.py FOLDER: runs every mode through `rgpu worker`, on the machine with the GPU itself.

FOLDER holds rgpu, rgpu-agent, rgpu-agent-http, rgpu-runner and librgpu_collector.so (target/dist/<triple>).
Starts a worker on loopback, profiles vecadd through it in each mode, kills and restarts the worker in the
middle of one, and cuts the link in the middle of another. Prints one line for each and ends with status 1
if one of them failed.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
from proxy import Proxy

KERNEL = str(pathlib.Path(__file__).resolve().parents[2] / "kernels/vecadd")
# The modes, and the rung that a host with all of Nsight reaches.
MODES = {"ncu": "ncu.asked", "nsys": "nsys.full", "sanitizer": "", "bench": "events", "nvtx": "nvtx"}
failed = []


def check(what, good, words=""):
    print(f"{'ok  ' if good else 'FAIL'} {what}  {words}", flush=True)
    if not good:
        failed.append(what)


class Host:
    def __init__(self, programs, folder):
        self.programs, self.folder, self.port = programs, pathlib.Path(folder), 0
        (self.folder / "agent").mkdir(mode=0o700)
        self.env = {**os.environ, "RGPU_LIBEXEC": str(programs), "RGPU_AGENT_HOME": f"{folder}/agent",
                    "RGPU_CONFIG": f"{folder}/config.toml"}
        self.up()
        self.rgpu("remote", "add", "box", f"http://127.0.0.1:{self.port}", "--token-file", f"{folder}/token")

    def up(self):
        self.server = subprocess.Popen(
            [self.programs / "rgpu", "worker", "-q", "--listen", f"127.0.0.1:{self.port}",
             "--token-file", f"{self.folder}/token"], stdout=subprocess.PIPE, env=self.env, text=True)
        self.port = int(self.server.stdout.readline().rsplit(":", 1)[1])

    def command(self, *args):
        return [self.programs / "rgpu", *args]

    def rgpu(self, *args):
        return subprocess.run(self.command(*args), cwd=self.folder, env=self.env, capture_output=True, text=True)

    def profile(self, mode, during=None, remote="box"):
        args = self.command("profile", "--kernel", KERNEL, "--mode", mode, "--remote", remote, "--json")
        begun = time.monotonic()
        child = subprocess.Popen(args, cwd=self.folder, env=self.env, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True)
        if during:
            during()
        out, err = child.communicate(timeout=300)
        return child.returncode, out, err, time.monotonic() - begun


def profiles(host):
    for mode, rung in MODES.items():
        status, out, err, seconds = host.profile(mode)
        try:
            profile = json.loads(out)
        except ValueError:
            profile = {}
        got = profile.get("rung", "")
        good = status == 0 and (got == rung or not rung) and profile.get("gpu") is not None
        check(f"{mode} through the worker", good,
              f"rung {got or 'none'}, {len(profile.get('launches', []))} launches, {seconds:.1f} s"
              + ("" if good else f", status {status}: {err[-600:]} {out[:600]}"))
        if mode == "ncu" and profile.get("launches"):
            finite = len(profile["launches"][0]["metrics"])
            check("ncu's metrics are there", finite > 100, f"{finite}")


def restart(host):
    def during():
        time.sleep(1.5)
        host.server.send_signal(signal.SIGKILL)
        host.server.wait()
        time.sleep(1)
        host.up()

    status, out, err, seconds = host.profile("ncu", during)
    whole = status == 0 and json.loads(out)["rung"] == MODES["ncu"]
    check("a worker killed and restarted in the middle costs nothing", whole, f"{seconds:.1f} s {err[-400:]}")
    check("the lost link was told", "link" in err, err[-300:])


def cut(host):
    """The same through a proxy whose link is cut for two seconds."""
    way = Proxy(0, ("127.0.0.1", host.port))
    port = way.listener.getsockname()[1]
    host.rgpu("remote", "add", "far", f"http://127.0.0.1:{port}", "--token-file", f"{host.folder}/token")

    def during():
        time.sleep(1.5)
        way.cut()
        time.sleep(2)
        way.restore()

    status, out, err, seconds = host.profile("ncu", during, "far")
    whole = status == 0 and json.loads(out)["rung"] == MODES["ncu"]
    check("a link cut for two seconds costs nothing", whole and way.connections > 1, f"{seconds:.1f} s {err[-400:]}")
    check("the cut link was told", "link" in err, err[-300:])


def main():
    programs = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory(prefix="rgpu-worker-") as folder:
        host = Host(programs, folder)
        try:
            seen = host.rgpu("remote", "check", "box")
            check("remote check", seen.returncode == 0, seen.stdout.splitlines()[1] if seen.stdout else seen.stderr)
            profiles(host)
            restart(host)
            cut(host)
            cubins = sorted(map(str, pathlib.Path(folder, "artifacts").glob("*.cubin")))
            seen = host.rgpu("disasm", *cubins[:1], "--remote", "box", "--json")
            check("disasm there", seen.returncode == 0, seen.stderr[-300:])
            seen = host.rgpu("doctor", "box")
            check("doctor", seen.returncode == 0, "\n" + seen.stdout)
        finally:
            host.server.terminate()
            host.server.wait()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
