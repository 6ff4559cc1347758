#!/usr/bin/env python3
"""worker.py [RGPU]: compares a worker over HTTP with `curl` to the same server, on this machine.

Starts `rgpu worker` on loopback and times three things in turn, in one run. First, a warm `exec true` and one `curl`
of the health page plus the start of a process. Second, 64 MiB up and down, compared with `curl` and, because rgpu
checks its transfers, with `curl` and `sha256sum`, for which there is no goal. Third, many clients at once for a while,
each with whole jobs, with the server's memory. RGPU is a release binary with rgpu-agent-http beside it (default:
target/dist/*/rgpu or target/release/rgpu).

    TIMES=11 CLIENTS=100 MINUTES=10 benches/worker.py

MINUTES=0 leaves out the last part. Status 1 if a goal is missed.
"""

import hashlib
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

sys.dont_write_bytecode = True
from loopback import prepare_machine

ROOT = pathlib.Path(__file__).resolve().parent.parent
TIMES = int(os.environ.get("TIMES", "11"))
CLIENTS = int(os.environ.get("CLIENTS", "100"))
MINUTES = float(os.environ.get("MINUTES", "10"))
SIZE, BLOB = 64 << 20, 4 << 20


def program():
    if len(sys.argv) > 1:
        return pathlib.Path(sys.argv[1]).resolve()
    found = [*ROOT.glob("target/dist/*/rgpu"), ROOT / "target/release/rgpu"]
    return next((path for path in found if path.is_file()), None) or sys.exit("there is no rgpu: cargo xtask dist")


def timed(command, **how):
    begun = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **how)
    if done.returncode:
        sys.exit(f"{command} ended with {done.returncode}: {done.stderr.decode(errors='replace')}")
    return time.perf_counter() - begun


def in_turn(*works):
    """The medians of several works, done in turn, so that a busy moment affects all alike."""
    took = [[] for _ in works]
    for n in range(TIMES + 1):
        for work, list_ in zip(works, took):
            seconds = work()
            if n:
                list_.append(seconds)
    return [statistics.median(list_) for list_ in took]


class Bench:
    def __init__(self, folder):
        self.folder, self.missed = pathlib.Path(folder), False
        self.rgpu = program()
        (self.folder / "project").mkdir()
        (self.folder / "agent").mkdir(mode=0o700)
        self.env = {
            "PATH": "/usr/bin:/bin", "HOME": folder, "RGPU_CONFIG": f"{folder}/config.toml",
            "RGPU_AGENT_HOME": f"{folder}/agent", "RGPU_LOCK_DIR": f"{folder}/lock",
        }
        for name in ("RGPU_LIBEXEC",):
            if name in os.environ:
                self.env[name] = os.environ[name]
        self.server = subprocess.Popen(
            [self.rgpu, "worker", "--listen", "127.0.0.1:0", "--token-file", f"{folder}/token", "-q"],
            stdout=subprocess.PIPE, env=self.env, text=True)
        self.url = self.server.stdout.readline().split()[-1]
        self.token = (self.folder / "token").read_text().strip()
        self.run("remote", "add", "box", self.url, "--token-file", f"{folder}/token")
        (self.folder / "curlrc").write_text(f'header = "Authorization: Bearer {self.token}"\n')

    def run(self, *args, **how):
        return timed([self.rgpu, *args], env=self.env, cwd=self.folder / "project", **how)

    def curl(self, *args):
        return timed(["curl", "-q", "-sSf", "-K", f"{self.folder}/curlrc", "-o", "/dev/null", *args])

    def ask(self, method, path, body=None):
        request = urllib.request.Request(self.url + path, data=body, method=method)
        request.add_header("Authorization", f"Bearer {self.token}")
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def show(self, what, ours, theirs, goal, at_least=False):
        ratio = theirs / ours if at_least else ours / theirs
        good = ratio >= goal if at_least else ratio <= goal
        self.missed |= not good
        sign = ">=" if at_least else "<="
        print(f"{what:<34} {1e3 * ours:9.1f} ms {1e3 * theirs:9.1f} ms  {ratio:5.2f} {sign} {goal:<4} "
              f"{'' if good else 'MISSED'}", flush=True)

    def exec_true(self):
        self.run("exec", "--remote", "box", "-q", "--", "true")
        ours, curl, start = in_turn(
            lambda: self.run("exec", "--remote", "box", "-q", "--", "true"),
            lambda: self.curl(f"{self.url}/v1/health"),
            lambda: self.run("--version"))
        self.show("exec true, curl + process start", ours, curl + start, 1.5)

    def transfer(self):
        """Transfers new incompressible bytes into a new file each time. The goal is curl's time alone. Two more times
        are printed after it: with the bytes hashed, as rgpu does, and over an existing file, where some file systems
        wait for the disk."""
        source, project, bare = self.folder / "project/big", self.folder / "project", []

        def tell(way, ours, hashed):
            self.show(f"64 MiB {way}, curl", ours, statistics.median(bare[1:]), 0.8, at_least=True)
            print(f"{'  the same, curl + sha256sum':<34} {1e3 * ours:9.1f} ms {1e3 * hashed:9.1f} ms  "
                  f"{hashed / ours:5.2f}", flush=True)
            bare.clear()

        def up():
            source.write_bytes(os.urandom(SIZE))
            return self.run("exec", "--remote", "box", "-q", "--mount", "big", "--", "true")

        def curl_up():
            lines = []
            for n in range(SIZE // BLOB):
                piece = self.folder / f"piece{n}"
                piece.write_bytes(os.urandom(BLOB))
                name = hashlib.sha256(piece.read_bytes()).hexdigest()
                lines.append(f'upload-file = "{piece}"\nurl = "{self.url}/v1/blobs/{name}"\noutput = "/dev/null"\n'
                             f'header = "Authorization: Bearer {self.token}"\n')
            (self.folder / "pieces.rc").write_text("next\n".join(lines))
            pieces = [f"{self.folder}/piece{n}" for n in range(SIZE // BLOB)]
            bare.append(timed(["curl", "-q", "-sSf", "-K", f"{self.folder}/pieces.rc"]))
            return timed(["sha256sum", *pieces]) + bare[-1]

        def down(new=True):
            if new:
                source.unlink(missing_ok=True)
            self.run("exec", "--remote", "box", "-q", "--detach", "--pull", "big", "--",
                     "/bin/sh", "-c", f"head -c {SIZE} /dev/urandom > big")
            while True:
                newest = json.loads(self.ask("GET", "/v1/jobs")[1])["jobs"][0]
                if "ended" in newest:
                    break
                time.sleep(0.02)
            self.job = newest["job"]
            return self.run("runs", "attach", "latest", "-q")

        def curl_down(new=True):
            back = project / (f"back-{len(bare)}" if new else "back")
            bare.append(timed(["curl", "-q", "-sSf", "-K", f"{self.folder}/curlrc", "-o", back,
                               f"{self.url}/v1/jobs/{self.kept}/artifacts/{self.path}"]))
            return bare[-1] + timed(["sha256sum", back])

        ours, theirs = in_turn(up, curl_up)
        tell("up", ours, theirs)
        self.kept, self.path = "bench-down.1", "big"
        step = {"id": "run", "title": "run", "timeout_s": 60, "rungs": [{
            "id": "host", "argv": ["/bin/sh", "-c", f"head -c {SIZE} /dev/urandom > big"],
            "artifacts": [{"path": "big", "kind": "file"}]}]}
        plan = {"plan": {"job": self.kept, "title": self.kept, "steps": [step]}}
        self.ask("POST", "/v1/jobs", json.dumps(plan).encode())
        while b'"ended"' not in self.ask("GET", f"/v1/jobs/{self.kept}")[1]:
            time.sleep(0.05)
        ours, theirs = in_turn(down, curl_down)
        tell("down", ours, theirs)
        ours, _ = in_turn(lambda: down(new=False), lambda: curl_down(new=False))
        curl = statistics.median(bare[1:])
        print(f"{'  the same over an older file, curl':<34} {1e3 * ours:9.1f} ms {1e3 * curl:9.1f} ms  "
              f"{curl / ours:5.2f}", flush=True)

    def memory(self):
        status = pathlib.Path(f"/proc/{self.server.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024

    def crowd(self):
        before, begun, jobs, errors, slowest = self.memory(), time.monotonic(), [0], [], [0.0, ""]
        until = begun + 60 * MINUTES

        def ask(*request):
            """The same, and records the slowest answer. Waits for events do not count, because they may last."""
            asked = time.monotonic()
            try:
                answer = self.ask(*request)
            except OSError as error:
                answer = 0, repr(error).encode()
            took = time.monotonic() - asked
            if "wait=" not in request[1] and took > slowest[0]:
                slowest[:] = took, f"{request[0]} {request[1].split('/crowd')[0]}"
            return answer

        def client(number):
            count = 0
            while time.monotonic() < until and len(errors) < 10:
                count += 1
                job = f"crowd-{number}-{count}"
                step = {"id": "run", "title": "run", "timeout_s": 60, "rungs": [{"id": "host", "argv": ["/bin/echo", "hello"]}]}
                body = json.dumps({"plan": {"job": job, "title": job, "steps": [step]}}).encode()
                status, said = ask("POST", "/v1/jobs", body)
                after, ended = 0, False
                while status in (200, 201) and not ended:
                    status, said = ask("GET", f"/v1/jobs/{job}/events?after={after}&wait=60")
                    if status == 200:
                        told = json.loads(said)
                        after, ended = told["next"], told["ended"]
                        if ended and told["events"] and told["events"][-1]["outcome"]["how"] != "done":
                            status, said = 0, said
                if status == 200:
                    status, said = ask("DELETE", f"/v1/jobs/{job}")
                if status != 200:
                    errors.append((f"{time.monotonic() - begun:.0f} s", job, status, said[:200]))
                jobs[0] += 1

        threads = [threading.Thread(target=client, args=(n,)) for n in range(CLIENTS)]
        for thread in threads:
            thread.start()
        most, marks = before, [minute for minute in (1, 5) if minute < MINUTES]
        while any(thread.is_alive() for thread in threads):
            most = max(most, self.memory())
            if marks and time.monotonic() - begun > 60 * marks[0]:
                print(f"  after {marks.pop(0)} min: {jobs[0]} jobs, {len(errors)} errors, "
                      f"{self.memory():.1f} MiB", flush=True)
            time.sleep(0.5)
        for thread in threads:
            thread.join()
        good = not errors
        self.missed |= not good
        print(f"{CLIENTS} clients for {MINUTES:g} min: {jobs[0]} jobs, {len(errors)} errors, the server's memory "
              f"{before:.1f} MiB before, {most:.1f} at most, {self.memory():.1f} after; the slowest answer "
              f"{slowest[0]:.1f} s ({slowest[1]}) {'' if good else 'MISSED'}")
        for error in errors:
            print(" ", error)


def main():
    with tempfile.TemporaryDirectory(prefix="rgpu-bench-") as folder:
        prepare_machine(folder)
        bench = Bench(folder)
        try:
            print(f"{'':<34} {'ours':>12} {'curl':>12}  ratio")
            bench.exec_true()
            bench.transfer()
            if MINUTES:
                bench.crowd()
        finally:
            bench.server.terminate()
            bench.server.wait()
        sys.exit(1 if bench.missed else 0)


if __name__ == "__main__":
    main()
