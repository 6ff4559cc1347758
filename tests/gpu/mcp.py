"""The part `mcp`: what an agent does through `rgpu mcp`. It profiles a kernel, reads why it is slow, changes it, checks
the results of the change, and compares both."""

import itertools
import json
import shutil
import subprocess

REMOTE = "h200"
SLOW = "transpose-conflicts"


class Client:
    """A client over standard input and output."""

    def __init__(self, s):
        self.s, self.ids = s, itertools.count(1)
        self.stderr = open(s.out / "log/mcp.stderr", "wb")
        self.child = subprocess.Popen([str(s.rgpu_path), "mcp"], cwd=s.project, env=s.env, stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, stderr=self.stderr, text=True)
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
                return message
        return {}

    def call(self, tool, **arguments):
        """Calls a tool, and waits for the run that it began."""
        reply = self.request("tools/call", {"name": tool, "arguments": arguments})
        result = reply.get("result") or {}
        document, bytes_ = result.get("structuredContent") or {}, len(json.dumps(result.get("structuredContent")))
        while document.get("state") == "running" and self.s.time_left() > 0:
            return self.call("runs", action="wait", run=document["run"])
        self.s.check(f"{tool} {json.dumps(arguments)[:90]} ends well", not result.get("isError") and document, json.dumps(reply)[:900],
                     note=f"{bytes_} bytes")
        return document

    def close(self):
        self.child.stdin.close()
        self.child.wait(20)
        self.stderr.close()


def mcp(s):
    client = Client(s)
    try:
        host = client.call("hosts", action="list")
        s.check("the remote is listed", REMOTE in json.dumps(host), json.dumps(host)[:400])
        first = client.call("profile", kernel=SLOW, mode="ncu", set="full", remote=REMOTE)
        s.check("the profile has ncu's figures and says why nsys has none", (first.get("ncu") or {}).get("launches")
                and (first.get("nsys") or {}).get("absent"), json.dumps(first)[:1500], note=json.dumps(first.get("nsys"))[:200])
        findings = client.call("report", of="latest", part="findings")
        s.check("the cause is told: bank conflicts", "bank conflict" in json.dumps(findings), json.dumps(findings)[:1500],
                note=json.dumps(findings.get("items"))[:300])
        hot = client.call("report", of="latest", part="hot_spots")
        s.check("and source lines have samples", hot.get("items"), json.dumps(hot)[:900])
        changed = s.project / "kernels/mine"
        shutil.copytree(s.project / "kernels" / SLOW, changed)
        toml = changed / "kernel.toml"
        toml.write_text(toml.read_text().replace(f'name = "{SLOW}"', 'name = "mine"'))
        source = changed / "transpose_conflicts.cu"
        source.write_text(source.read_text().replace("tile[TILE][TILE]", "tile[TILE][TILE + 1]"))
        verified = client.call("profile", kernel="kernels/mine", mode="verify", remote=REMOTE)
        s.check("the change is right", '"right"' in json.dumps(verified), json.dumps(verified)[:900])
        compared = client.call("compare", kernels=[SLOW, "kernels/mine"], remote=REMOTE, mode="ncu")
        s.check("and FASTER", "FASTER" in json.dumps(compared).upper(), json.dumps(compared)[:1500], note=json.dumps(compared)[:400])
    finally:
        client.close()
