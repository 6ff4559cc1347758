#!/usr/bin/env python3
"""worker.py [RGPU]: compares a worker over HTTP with `curl`, on this machine.

Starts `rgpu worker` on loopback and times three things in turn, in one run. First, a warm `exec true` and one `curl`
of the health page plus the start of a process. Second, 64 MiB up, compared with `curl` that brings the same blobs to
the same agent, and 64 MiB down, compared with `curl` from a plain server of files; and, because rgpu checks its
transfers, with `curl` and `sha256sum`, for which there is no goal. Third, many clients at once for a while, each with
whole jobs, with the server's memory. RGPU is a release binary with rgpu-agent-http beside it (default:
target/dist/*/rgpu or target/release/rgpu).

    TIMES=11 CLIENTS=100 MINUTES=10 benches/worker.py

MINUTES=0 leaves out the last part. Status 1 if a goal is missed.
"""

import hashlib
import http.server
import json
import os
import pathlib
import secrets
import shutil
import statistics
import struct
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
SIZE, BLOB = 64 << 20, 2 << 20
HELLO = {"rgpu": 1}


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


def frame(kind, body):
    """One frame of the protocol (remote/protocol/src/frame.rs): kind 0 is a message, 1 a part of a blob."""
    return struct.pack("<IB", len(body), kind) + body


def frames(*messages):
    return b"".join(frame(0, json.dumps(message).encode()) for message in messages)


class Files(http.server.BaseHTTPRequestHandler):
    """A plain server of files."""

    def do_GET(self):
        with open(self.path, "rb") as file:
            self.send_response(200)
            self.send_header("Content-Length", str(os.fstat(file.fileno()).st_size))
            self.end_headers()
            self.wfile.flush()
            self.connection.sendfile(file)

    def log_message(self, *_):
        pass


class Mail:
    """A conversation with the worker's agent (remote/protocol/src/mail.rs)."""

    def __init__(self, ask):
        self.ask, self.name, self.sent, self.came = ask, secrets.token_hex(16), 0, b""
        self.answer(self.ask("POST", self.path("&begin=true&wait_ms=10000"), b""))
        self.send(frames(HELLO))

    def path(self, more=""):
        return f"/v1/mail/{self.name}?take={self.sent}&from={len(self.came)}{more}"

    def answer(self, reply):
        status, body = reply
        if status != 200:
            raise OSError(f"{status}: {body[:200]}")
        self.came += body

    def send(self, data, more=""):
        self.answer(self.ask("POST", self.path(more), data))
        self.sent += len(data)

    def wait(self):
        self.answer(self.ask("POST", self.path("&wait_ms=10000"), b""))


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
        return timed(["curl", "-q", "-sSf", "-K", f"{self.folder}/curlrc", *args])

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
            lambda: self.curl("-o", "/dev/null", f"{self.url}/v1/health"),
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
            mail, lines, pieces = Mail(self.ask), [], []
            for n in range(SIZE // BLOB):
                bytes_, piece = os.urandom(BLOB), self.folder / f"piece{n}"
                announced = {"do": "blob", "digest": hashlib.sha256(bytes_).hexdigest(), "size": BLOB, "stored": BLOB}
                parts = (frame(1, bytes_[at:at + (1 << 20)]) for at in range(0, BLOB, 1 << 20))
                piece.write_bytes(frames(announced) + b"".join(parts))
                lines.append(f'data-binary = "@{piece}"\nurl = "{self.url}{mail.path()}"\noutput = "/dev/null"\n'
                             f'header = "Authorization: Bearer {self.token}"\n')
                mail.sent += piece.stat().st_size
                pieces.append(piece)
            (self.folder / "pieces.rc").write_text("next\n".join(lines))
            bare.append(timed(["curl", "-q", "-sSf", "-K", f"{self.folder}/pieces.rc"]))
            mail.send(b"", "&eof=true")
            return timed(["sha256sum", *pieces]) + bare[-1]

        def down(new=True):
            if new:
                source.unlink(missing_ok=True)
            self.run("exec", "--remote", "box", "-q", "--detach", "--pull", "big", "--",
                     "/bin/sh", "-c", f"head -c {SIZE} /dev/urandom > big")
            newest = max((self.folder / "agent/jobs").iterdir(), key=lambda job: job.stat().st_ctime)
            while '"ended"' not in (newest / "events.jsonl").read_text():
                time.sleep(0.02)
            return self.run("runs", "attach", "latest", "-q")

        def curl_down(new=True):
            back = project / (f"back-{len(bare)}" if new else "back")
            bare.append(self.curl("-o", back, f"http://127.0.0.1:{files.server_port}{kept}"))
            return bare[-1] + timed(["sha256sum", back])

        ours, theirs = in_turn(up, curl_up)
        tell("up", ours, theirs)
        kept, files = self.folder / "kept", http.server.ThreadingHTTPServer(("127.0.0.1", 0), Files)
        threading.Thread(target=files.serve_forever, daemon=True).start()
        kept.write_bytes(os.urandom(SIZE))
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
            """The same, and records the slowest answer. Waits for the agent do not count, because they may last."""
            asked = time.monotonic()
            answer = self.ask(*request)
            took = time.monotonic() - asked
            if "wait_ms=" not in request[1] and took > slowest[0]:
                slowest[:] = took, f"{request[0]} {request[1].split('?')[0]}"
            return answer

        def client(number):
            count = 0
            while time.monotonic() < until and len(errors) < 10:
                count += 1
                job = f"crowd-{number}-{count}"
                step = {"id": "run", "title": "run", "timeout_s": 60, "rungs": [{"id": "host", "argv": ["/bin/echo", "hello"]}]}
                try:
                    mail = Mail(ask)
                    mail.send(frames({"do": "submit", "plan": {"job": job, "title": job, "steps": [step]}}))
                    while b'"event":"ended"' not in mail.came:
                        mail.wait()
                    if b'"how":"done"' not in mail.came:
                        raise OSError(mail.came[-300:])
                    mail.send(frames({"do": "forget", "job": job}), "&eof=true")
                except OSError as error:
                    errors.append((f"{time.monotonic() - begun:.0f} s", job, repr(error)))
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
