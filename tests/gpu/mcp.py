"""The part `mcp`: what an agent does through `rgpu mcp`. It profiles a kernel, reads why it is slow, changes it, checks
the results of the change, and compares both. log/mcp-transcript.txt has every call with its arguments, its time, and
the size and text of its reply.

The client is the published Python SDK if `python3` has it (`pip install --target FOLDER mcp==1.30.0`, then
PYTHONPATH=FOLDER), else lines of JSON-RPC."""

import difflib
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

from session import HERE

REMOTE = "h200"
SLOW = "transpose-conflicts"
MAX_REPLY_BYTES = 8000
MAX_REPLY_SECONDS = 5  # until a call returns the id of a run that goes on


def start(s, argv, env, stderr):
    """A process that talks through pipes. One that hangs ends with the time of the part."""
    child = subprocess.Popen(argv, cwd=s.project, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True)
    watch = threading.Timer(max(1, s.time_left()), child.kill)
    watch.daemon = True
    watch.start()
    return child


class Lines:
    """A client that speaks the protocol as lines of JSON, and nothing else."""

    name = "JSON-RPC"

    def __init__(self, s, stderr):
        self.ids = itertools.count(1)
        self.child = start(s, [s.rgpu_path, "mcp"], s.env, stderr)
        self.request("initialize", {"protocolVersion": "2025-06-18", "capabilities": {},
                                    "clientInfo": {"name": "gpu-tests", "version": "1"}})
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def send(self, message):
        self.child.stdin.write(json.dumps(message) + "\n")
        self.child.stdin.flush()

    def request(self, method, params):
        number = next(self.ids)
        self.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        for line in self.child.stdout:
            message = json.loads(line)
            if message.get("id") == number:
                return message.get("result") or message
        return {}

    def list_tools(self):
        return [tool["name"] for tool in self.request("tools/list", {}).get("tools", [])]

    def call_tool(self, tool, arguments):
        return self.request("tools/call", {"name": tool, "arguments": arguments})


class Sdk:
    """The published SDK, in a process of its own: mcp_sdk.py."""

    name = "Python SDK"

    def __init__(self, s, stderr):
        env = {**s.env, "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
        self.child = start(s, [sys.executable, HERE / "mcp_sdk.py", s.rgpu_path], env, stderr)
        about = json.loads(self.child.stdout.readline() or "{}")
        self.name, self.tools = f"Python SDK {about.get('sdk')}", about.get("tools", [])

    def list_tools(self):
        return self.tools

    def call_tool(self, tool, arguments):
        self.child.stdin.write(json.dumps([tool, arguments]) + "\n")
        self.child.stdin.flush()
        return json.loads(self.child.stdout.readline() or "{}")


def has_sdk():
    probe = "import mcp.client.stdio"
    return subprocess.run([sys.executable, "-c", probe], cwd="/", check=False, capture_output=True).returncode == 0


class Agent:
    """Calls tools through a client, checks each reply, and writes the transcript."""

    def __init__(self, s):
        self.s = s
        self.transcript = open(s.out / "log/mcp-transcript.txt", "w")
        self.stderr = open(s.out / "log/mcp.stderr", "wb")
        began = time.monotonic()
        self.client = (Sdk if has_sdk() else Lines)(s, self.stderr)
        tools = self.client.list_tools()
        self.tell(f"client: {self.client.name}; {len(tools)} tools, listed after {time.monotonic() - began:.2f} s: {', '.join(tools)}")
        s.check("the client lists eleven tools", len(tools) == 11, repr(tools), note=self.client.name)

    def tell(self, text):
        self.transcript.write(text + "\n\n")
        self.transcript.flush()

    def call_once(self, tool, **arguments):
        """Calls a tool. Its document."""
        written = json.dumps(arguments, ensure_ascii=False)
        began = time.monotonic()
        reply = self.client.call_tool(tool, arguments)
        seconds = time.monotonic() - began
        document = reply.get("structuredContent") or {}
        # The text of the reply is what a language model gets.
        bytes_ = sum(len(part.get("text", "").encode()) for part in reply.get("content") or [])
        size = f"{seconds:.2f} s, {bytes_} bytes"
        self.tell(f"→ {tool} {written}\n← {size}{', an error' if reply.get('isError') else ''}\n"
                  + json.dumps(document or reply, indent=1, ensure_ascii=False))
        self.s.check(f"{tool} {written[:90]} is answered", document and not reply.get("isError") and 0 < bytes_ <= MAX_REPLY_BYTES,
                     json.dumps(reply)[:900], note=size)
        if "wait_s" not in arguments and tool != "runs":
            self.s.check(f"{tool} answers within {MAX_REPLY_SECONDS} s", seconds <= MAX_REPLY_SECONDS, size)
        return document

    def call(self, tool, **arguments):
        """Calls a tool, and waits for the run that it began."""
        document = self.call_once(tool, **arguments)
        while document.get("state") == "running" and self.s.time_left() > 0:
            document = self.call_once("runs", action="wait", run=document["run"])
        return document

    def close(self):
        self.client.child.stdin.close()
        status = self.client.child.wait(20)
        self.stderr.close()
        self.transcript.close()
        self.s.check("the server ends with its client", status == 0, f"status {status}")


def mcp(s):
    agent = Agent(s)
    try:
        chain(s, agent)
        cancel(s, agent)
        speed(s, agent)
    finally:
        agent.close()


def chain(s, agent):
    host = agent.call("hosts", action="list")
    s.check("the remote is listed", REMOTE in json.dumps(host), json.dumps(host)[:400])

    agent.tell("# Measure")
    first = agent.call("profile", kernel=SLOW, mode="ncu", set="full", remote=REMOTE)
    s.check("the profile has ncu's figures and says why nsys has none", (first.get("ncu") or {}).get("launches")
            and (first.get("nsys") or {}).get("absent"), json.dumps(first)[:1500], note=json.dumps(first.get("nsys"))[:200])

    agent.tell("# Find the cause")
    run = first.get("run", "latest")
    findings = agent.call("report", of=run, part="findings")
    s.check("the cause is told: bank conflicts", "bank conflict" in json.dumps(findings), json.dumps(findings)[:1500],
            note=json.dumps(findings.get("items"))[:300])
    hot = agent.call("report", of=run, part="hot_spots")
    s.check("and source lines have samples", hot.get("items"), json.dumps(hot)[:900])
    metric = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld"
    metrics = agent.call("report", of=run, part="metrics", names=[metric])
    s.check("and the counter is found by its name", metrics.get("items"), json.dumps(metrics)[:900])

    changed = s.project / "kernels/mine"
    shutil.copytree(s.project / "kernels" / SLOW, changed)
    toml = changed / "kernel.toml"
    toml.write_text(toml.read_text().replace(f'name = "{SLOW}"', 'name = "mine"'))
    source = changed / "transpose_conflicts.cu"
    before = source.read_text()
    after = before.replace("tile[TILE][TILE]", "tile[TILE][TILE + 1]")
    source.write_text(after)
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), SLOW, "mine", n=0, lineterm="")
    agent.tell("# Change\n\n" + "\n".join(lines))

    agent.tell("# Verify")
    verified = agent.call("profile", kernel="kernels/mine", mode="verify", remote=REMOTE)
    s.check("the change is right", verified.get("results") == "right", json.dumps(verified)[:900])

    agent.tell("# Compare")
    compared = agent.call("compare", kernels=[SLOW, "kernels/mine"], remote=REMOTE, mode="ncu")
    s.check("and FASTER", compared.get("verdict") == "FASTER", json.dumps(compared)[:1500], note=compared.get("summary", "")[:300])
    s.check("the comparison has ncu's figures and says why nsys has none", (compared.get("ncu") or {}).get("kernels")
            and (compared.get("nsys") or {}).get("absent"), json.dumps(compared)[:1500])


def cancel(s, agent):
    agent.tell("# Cancel")
    begun = agent.call_once("exec", argv=["sleep", "86399"], remote=REMOTE)
    s.check("a long program returns the id of its run", begun.get("state") == "running" and begun.get("run"), json.dumps(begun)[:900])
    ended = agent.call_once("runs", action="cancel", run=begun.get("run", "latest"))
    s.check("and is cancelled", ended.get("state") == "cancelled", json.dumps(ended)[:900])
    # The host is this machine.
    s.check("on the host, too", b"sleep\x0086399\0" not in command_lines(), "`sleep 86399` still runs")


def speed(s, agent):
    starts, calls = [], []
    for _ in range(5):
        began = time.monotonic()
        client = Lines(s, subprocess.DEVNULL)
        starts.append(time.monotonic() - began)
        for _ in range(5):
            began = time.monotonic()
            client.call_tool("runs", {"action": "list"})
            calls.append(time.monotonic() - began)
        client.child.stdin.close()
        client.child.wait(20)
    start_ms, call_ms = (1000 * statistics.median(times) for times in (starts, calls))
    agent.tell(f"# Speed\n\nstart {start_ms:.1f} ms, a call that only reads {call_ms:.1f} ms (medians)")
    s.check("the server starts within 50 ms", start_ms <= 50, f"{start_ms:.1f} ms", note=f"{start_ms:.1f} ms")
    s.check("a call that only reads takes 30 ms at most", call_ms <= 30, f"{call_ms:.1f} ms", note=f"{call_ms:.1f} ms")


def command_lines():
    """The command lines of all processes."""
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield file.read_bytes()
        except OSError:  # it has ended
            pass
