#!/usr/bin/env python3
"""A stand-in for Wafer's service: its wire as the published clients (wafer-ai 0.0.13, 0.0.85) use
it, with workspaces that are folders of this machine.

    service.py FOLDER      prints its port; FOLDER/service.json says what it knows:
        token      the one that it takes
        env        of the commands that it runs
        ncu_env    of its own ncu, over that
        ssh        [host, port, user] of every workspace, or null
        pending    how often a login is answered 428 first
    FOLDER/faults.json: what goes wrong, read anew at each request, see `fault`
    FOLDER/requests: what was asked, a line each
"""

import base64
import email.parser
import email.policy
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tarfile
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

FOLDER = Path(sys.argv[1])
SETTINGS = json.loads((FOLDER / "service.json").read_text())
LOCK = threading.Lock()
WORKSPACES = {}
REPORTS = {}
LOGINS = {}
SEEN = {}


def workspace(name, gpu_type, environment, image=None, status="creating"):
    made = {
        "id": f"ws_{uuid.uuid4().hex[:12]}",
        "name": name,
        "status": status,
        "gpu_type": gpu_type,
        "image": image or "default",
        "created_at": "2026-11-01T00:00:00Z",
        "last_used_at": None,
        "ssh_host": None,
        "ssh_port": None,
        "ssh_user": None,
    }
    if SETTINGS.get("ssh") and environment == "baremetal":
        made["ssh_host"], made["ssh_port"], made["ssh_user"] = SETTINGS["ssh"]
    (FOLDER / "workspace").mkdir(exist_ok=True)
    return made


class Cut(Exception):
    """The connection ends here."""


class Stop(Exception):
    """The stream ends here, as if all had been said."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.serve()

    do_POST = do_DELETE = do_GET

    def serve(self):
        length = int(self.headers.get("Content-Length") or 0)
        self.body = self.rfile.read(length)
        self.streaming = False
        path = unquote(self.path.split("?")[0])
        self.fault = self.find_fault(f"{self.command} {path}")
        with LOCK, open(FOLDER / "requests", "a") as log:
            print(self.command, path, file=log)
        try:
            if self.fault and "status" in self.fault:
                return self.raw(self.fault["status"], self.fault.get("body", ""),
                                self.fault.get("type", "application/json"))
            for method, pattern, free, handle in ROUTES:
                match = re.fullmatch(pattern, path)
                if match and method == self.command:
                    token = self.headers.get("Authorization") == f"Bearer {SETTINGS['token']}"
                    if not free and not token:
                        return self.reply(401, {"detail": "Invalid or expired token"})
                    return handle(self, *match.groups())
            self.reply(404, {"detail": "Not Found"})
        except Stop:
            self.finish_stream()
        except (Cut, BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def find_fault(self, request):
        """A rule is {"on": PATTERN, "skip": N, "times": N, and one of: "status" with "body",
        "cut": LINES, "stop": LINES, "lines": [LINE, …] (said before any other), "lose": true (the
        command runs, and nothing of it is told), "die": true (the workspace's container dies while
        the command runs, with all that runs in it)}."""
        try:
            rules = json.loads((FOLDER / "faults.json").read_text())
        except FileNotFoundError:
            return None
        for rule in rules:
            if re.fullmatch(rule["on"], request):
                with LOCK:
                    key = json.dumps(rule)
                    SEEN[key] = SEEN.get(key, 0) + 1
                    nth = SEEN[key] - 1 - rule.get("skip", 0)
                if 0 <= nth < rule.get("times", 1 << 30):
                    return rule
        return None

    def json(self):
        return json.loads(self.body or b"{}")

    def raw(self, status, body, kind):
        body = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def reply(self, status, value):
        self.raw(status, json.dumps(value), "application/json")

    def stream(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.streaming, self.said = True, 0
        for line in (self.fault or {}).get("lines", []):
            self.data(line)

    def data(self, line):
        fault = self.fault or {}
        if self.said == fault.get("cut"):
            raise Cut
        if self.said == fault.get("stop"):
            raise Stop
        self.said += 1
        event = f"data: {line}\n\n".encode("utf-8", "replace")
        self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
        self.wfile.flush()

    def finish_stream(self):
        if self.streaming:
            self.wfile.write(b"0\r\n\r\n")
            self.wfile.flush()

    def find(self, name):
        with LOCK:
            for made in WORKSPACES.values():
                if name in (made["id"], made["name"]):
                    return made
        return None

    # -- the service --------------------------------------------------------------------------

    def health(self):
        self.reply(200, {"status": "ok"})

    def login_start(self):
        state = uuid.uuid4().hex
        LOGINS[state] = SETTINGS.get("pending", 0)
        url = f"https://app.wafer.example/cli?state={state}"
        self.reply(200, {"state": state, "auth_url": url, "expires_in": 600})

    def login_token(self):
        state = self.json().get("state")
        if state not in LOGINS:
            return self.reply(404, {"detail": "Unknown state"})
        if LOGINS[state] > 0:
            LOGINS[state] -= 1
            return self.reply(428, {"detail": "Authorization pending"})
        self.reply(200, {"access_token": SETTINGS["token"], "refresh_token": "refresh-1",
                         "provider_token": None})

    def verify(self):
        if self.json().get("token") != SETTINGS["token"]:
            return self.reply(401, {"detail": "Invalid token"})
        self.reply(200, {"user_id": "user_1", "email": "me@example.com"})

    def renew(self):
        if not self.headers.get("apikey"):
            return self.reply(401, {"message": "No API key found in request"})
        if self.json().get("refresh_token") != "refresh-1":
            return self.reply(400, {"detail": "Invalid Refresh Token"})
        self.reply(200, {"access_token": SETTINGS["token"], "refresh_token": "refresh-1"})

    def usage(self):
        self.reply(200, {"tier": "pro", "status": "active", "credits_used_cents": 250,
                         "credits_limit_cents": 2000, "credits_remaining_cents": 1750,
                         "topup_balance_cents": 0, "has_hardware_counters": True,
                         "period_ends_at": "2026-12-01T00:00:00Z"})

    def list(self):
        with LOCK:
            self.reply(200, [*WORKSPACES.values()])

    def create(self):
        wanted = self.json()
        for field in ("name", "gpu_type", "environment_type"):
            if not wanted.get(field):
                return self.reply(400, {"detail": f"{field} is required"})
        if self.find(wanted["name"]):
            return self.reply(400, {"detail": "Workspace name already exists"})
        made = workspace(wanted["name"], wanted["gpu_type"], wanted["environment_type"],
                         wanted.get("image"))
        with LOCK:
            WORKSPACES[made["id"]] = made
        self.reply(200, made)

    def show(self, name):
        made = self.find(name)
        self.reply(200, made) if made else self.reply(404, {"detail": "Workspace not found"})

    def delete(self, name):
        made = self.find(name)
        if not made:
            return self.reply(404, {"detail": "Workspace not found"})
        with LOCK:
            del WORKSPACES[made["id"]]
        self.reply(200, {"status": "deleted", "id": made["id"]})

    def provision(self, name):
        made = self.find(name)
        if not made:
            return self.reply(404, {"detail": "Workspace not found"})
        self.stream()
        self.data("[STATUS:CREATING]")
        time.sleep(0.05)
        made["status"] = "running"
        self.data("[STATUS:RUNNING]")
        if made["ssh_host"]:
            self.data("[SSH:{ssh_host}:{ssh_port}:{ssh_user}]".format(**made))
        self.finish_stream()

    def exec(self, name):
        made = self.find(name)
        if not made:
            return self.reply(404, {"detail": "Workspace not found"})
        if made["status"] != "running":
            return self.reply(400, {"detail": f"Workspace is not running: {made['status']}"})
        asked = self.json()
        command = base64.b64decode(asked["command_b64"], validate=True).decode()
        assert isinstance(asked["pull_image"], bool)
        # One argument of a shell, as an ssh or container runtime passes it on.
        assert len(command) < 128 << 10, len(command)
        limit = asked.get("timeout_seconds") or 300
        if (self.fault or {}).get("lose"):
            # It runs all the same, and nobody hears of it. What it prints is read, since it would not
            # end with a full pipe.
            self.start(command).communicate()
            raise Cut
        if (self.fault or {}).get("die"):
            self.start(command).communicate()
            self.kill_all()
            raise Cut
        self.stream()
        self.data("[STATUS:RUNNING]")
        self.run(self.start(command), limit)
        self.finish_stream()

    def kill_all(self):
        """Kills what runs in the workspace: all that has its home, or lies in the agent's folder."""
        home, folder = (SETTINGS["env"][name] for name in ("HOME", "RGPU_AGENT_HOME"))
        # Twice, for what they had just started.
        for process in [p for _ in range(2) for p in Path("/proc").glob("[0-9]*")]:
            try:
                inside = str((process / "cwd").readlink()).startswith(folder)
                inside |= folder.encode() in (process / "cmdline").read_bytes()
                inside |= f"HOME={home}\0".encode() in (process / "environ").read_bytes()
                if inside:
                    os.kill(int(process.name), signal.SIGKILL)
            except OSError:
                continue

    def start(self, command, cwd=None, env={}):
        return subprocess.Popen(
            ["bash", "-c", command], cwd=cwd or FOLDER / "workspace", env=SETTINGS["env"] | env,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def run(self, process, limit):
        timer = threading.Timer(limit, process.kill)
        timer.start()
        begun = time.monotonic()
        try:
            for line in process.stdout:
                self.data(line.decode("utf-8", "replace").rstrip("\n"))
        finally:
            timer.cancel()
            process.stdout.close()
        status = process.wait()
        if time.monotonic() - begun >= limit:
            self.data("[ERROR] Command timed out")
        else:
            self.data(f"[EXIT:{status}]")
        return status

    def sync_state(self, name):
        self.reply(200, {"status": "ok"})

    def ncu_run(self):
        head = f"Content-Type: {self.headers['Content-Type']}\r\n\r\n".encode()
        parts = {}
        form = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(head + self.body)
        for part in form.iter_parts():
            name = part.get_param("name", header="content-disposition")
            parts[name] = part.get_payload(decode=True)
        for name in ("command", "ncu_args", "timeout_seconds", "queue_timeout_seconds", "tarball"):
            assert name in parts, (name, [*parts])
        job = uuid.uuid4().hex[:12]
        folder = FOLDER / "ncu" / job
        folder.mkdir(parents=True)
        with tarfile.open(fileobj=io.BytesIO(parts["tarball"]), mode="r:gz") as tar:
            tar.extractall(folder)
        self.stream()
        self.data("[STATUS:ALLOCATING_GPU]")
        self.data("[STATUS:QUEUED]")
        self.data("[QUEUE_POSITION:1:30]")
        self.data("[STATUS:GPU_ALLOCATED:0]")
        self.data("[STATUS:UPLOADING]")
        self.data("[STATUS:RUNNING]")
        args = shlex.split(parts["ncu_args"].decode())
        program = shlex.split(parts["command"].decode())
        command = shlex.join(["ncu", *args, "-f", "-o", "report", *program])
        status = self.run(self.start(command, folder, SETTINGS["ncu_env"]), int(parts["timeout_seconds"]))
        if (folder / "report.ncu-rep").exists():
            REPORTS[job] = folder / "report.ncu-rep"
            self.data(f"[REPORT_READY:{job}]")
        self.data("[BILLING:$0.02 used]")
        self.data("[DONE]")
        self.finish_stream()
        return status

    def ncu_report(self, job):
        if job not in REPORTS:
            return self.reply(404, {"detail": "No report"})
        self.raw(200, REPORTS[job].read_bytes(), "application/octet-stream")


ONE = r"/v1/workspaces/([^/]+)"
ROUTES = [
    ("GET", "/health", True, Handler.health),
    ("POST", "/v1/auth/cli-auth/start", True, Handler.login_start),
    ("POST", "/v1/auth/cli-auth/token", True, Handler.login_token),
    ("POST", "/v1/auth/verify", True, Handler.verify),
    ("POST", "/auth/v1/token", True, Handler.renew),
    ("GET", "/v1/billing/usage", False, Handler.usage),
    ("GET", "/v1/workspaces", False, Handler.list),
    ("POST", "/v1/workspaces", False, Handler.create),
    ("GET", ONE, False, Handler.show),
    ("DELETE", ONE, False, Handler.delete),
    ("POST", ONE + "/provision-stream", False, Handler.provision),
    ("POST", ONE + "/exec", False, Handler.exec),
    ("POST", ONE + "/init-sync-state", False, Handler.sync_state),
    ("POST", "/v1/ncu/run", False, Handler.ncu_run),
    ("GET", "/v1/ncu/run/([^/]+)/report", False, Handler.ncu_report),
]

for known in SETTINGS.get("workspaces", []):
    made = workspace(**known)
    WORKSPACES[made["id"]] = made
server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
print(server.server_address[1], flush=True)
server.serve_forever()
