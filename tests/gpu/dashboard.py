"""The part `dashboard`: a run on the GPU is followed as the page follows it, while the link to the host is cut and
comes back, and while the page's own connection is cut and made again."""

import http.client
import json
import re
import subprocess
import threading
import time

from proxy import Proxy

PORT = 2224
RUN = "followed"


class Page:
    """A session of `rgpu dashboard`, as the page has it."""

    def __init__(self, s):
        self.server = subprocess.Popen([str(s.rgpu_path), "dashboard", "--listen", "127.0.0.1:0"], cwd=s.project, env=s.env,
                                       stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        link = self.server.stdout.readline().strip()
        self.port = int(re.match(r"http://127\.0\.0\.1:(\d+)/", link)[1])
        answer, body = self.get(link.split(str(self.port), 1)[1])
        self.cookie = answer.getheader("Set-Cookie").split(";")[0]
        self.key = re.search(r'setItem\("x-rgpu-key", "([^"]+)"', body)[1]

    def headers(self):
        return {"Cookie": self.cookie, "X-Rgpu-Key": self.key} if hasattr(self, "key") else {}

    def get(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("GET", path, headers=self.headers())
        answer = connection.getresponse()
        return answer, answer.read().decode()

    def api(self, path):
        answer, body = self.get(f"/api/v1{path}")
        return json.loads(body) if answer.status == 200 else {}

    def follow(self, run, news, cut):
        """Appends what the page is told of a run to `news`, until its stream ends. Goes on once after `cut`."""
        last, was_cut = None, False
        while True:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
            connection.request("GET", f"/api/v1/runs/{run}/live",
                               headers={**self.headers(), **({"Last-Event-ID": last} if last else {})})
            answer = connection.getresponse()
            for line in answer:
                text = line.decode().rstrip("\n")
                if text.startswith("id: "):
                    last = text[4:]
                elif text.startswith("data: "):
                    news.append({"at": time.monotonic(), **json.loads(text[6:])})
                if cut.is_set() and not was_cut:
                    was_cut = True
                    break
            else:
                return
            connection.close()


def wait_for(condition, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.1)
    return False


def dashboard(s):
    proxy = Proxy(PORT, (s.ssh["GPU_SSH_HOST"], int(s.ssh["GPU_SSH_PORT"])))
    s.rgpu("remote", "add", "followed", f"ssh://{s.ssh['GPU_SSH_USER']}@127.0.0.1:{PORT}", "--identity", s.ssh["GPU_SSH_KEY"], "--accept-new")
    page, news, cut = Page(s), [], threading.Event()
    going = s.start("profile", "--kernel", "tiled-matmul", "--mode", "ncu", "--remote", "followed", "--run-id", RUN)
    s.check("the run is on the page while it runs", wait_for(lambda: page.api(f"/runs/{RUN}"), 20))
    follower = threading.Thread(target=page.follow, args=(RUN, news, cut), daemon=True)
    follower.start()
    told = lambda kind: [e for n in news for e in n["events"] if e.get("event") == kind]
    s.check("the page is told that ncu starts", wait_for(lambda: any("ncu" in e["rung"] for e in told("rung_started")), 60))
    states = lambda: [r["state"] for r in page.api("/runs?limit=5").get("runs", []) if r["id"] == RUN]
    s.check("the list has it as running", wait_for(lambda: states() == ["running"], 5), str(page.api("/runs?limit=5"))[:600])
    proxy.cut()
    time.sleep(4)
    cut.set()
    during = [n.get("phase") for n in news if n.get("phase")]
    time.sleep(4)
    proxy.restore()
    ended = s.finish(going, 120)
    s.check("the run ends well after the cut", ended.status == 0, f"status {ended.status}: {ended.stderr[-400:]}", note=f"{ended.seconds:.1f} s")
    follower.join(20)
    s.check("the page's stream ends with the run", not follower.is_alive() and news and news[-1]["state"] == "done",
            str(news[-1:])[:400])
    lines = (s.project / "artifacts/runs" / RUN / "events.jsonl").read_text().splitlines()
    events = [e for n in news for e in n["events"]]
    s.check("the page has had every event once, in order", events == [json.loads(line) for line in lines],
            f"{len(events)} of {len(lines)}", note=f"{len(lines)} events in {len(news)} messages")
    kinds = [e.get("event") for e in events]
    phases = [p for n, p in enumerate(during) if n == 0 or during[n - 1] != p]
    (s.out / "followed.json").write_text(json.dumps({"phases": phases, "kinds": kinds, "news": news}, indent=1))
    s.check("the page says that the link is lost while it is, and then that it is back",
            any(str(p).startswith("the link is lost") for p in phases) and kinds.count("link_lost") == 1
            and kinds.index("link_lost") < kinds.index("link_back"), f"{phases} {kinds}", note=" → ".join(map(str, phases)))
    answer, report = page.get(f"/runs/{RUN}/report?key={page.key}")
    s.check("its report is on the page", answer.status == 200 and "tiled_matmul" in report, report[:200], note=f"{len(report)} bytes")
    page.server.terminate()
    page.server.wait(20)
