#!/usr/bin/env python3
"""exec.py [RGPU], exec.py --prebuild DIR [RGPU]: how long `rgpu exec` takes beside what a user would type instead, on this machine.

Brings up an OpenSSH server on loopback and a proxy that makes the way longer, then times the same work
in turn by both ways and prints the ratio of the medians beside its goal. Needs sshd, ssh, scp, cargo and
python3; RGPU is a release binary with its agent beside it (default: target/dist/*/rgpu or target/release/rgpu).
Status 1 when a goal is missed.

On a machine without cargo: EXEC_BUILT=DIR names what `--prebuild DIR` compiled elsewhere, and the line that needs
a compiler is left out. On one whose sshd came from tests/gpu/host/up: run that first.
"""

import getpass
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Where tests/gpu/host/up unpacks a server and its tools.
UNPACKED = "/opt/gpu-host/usr"
PATH = f"{os.environ['PATH']}:{UNPACKED}/bin:{UNPACKED}/sbin:/usr/sbin"
TIMES = int(os.environ.get("TIMES", "11"))
SNIPPET = """use std::io::Write;

fn main() {
    let n: u64 = (0..1000).sum();
    std::fs::write("result.txt", format!("{n}\\n")).unwrap();
    writeln!(std::io::stdout(), "sum {n}").unwrap();
}
"""


class Delay(threading.Thread):
    """Carries bytes between a port of its own and another, each `seconds` late."""

    def __init__(self, port, seconds):
        super().__init__(daemon=True)
        self.to, self.seconds = port, seconds
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.start()

    def run(self):
        while True:
            near, _ = self.listener.accept()
            far = socket.create_connection(("127.0.0.1", self.to))
            for side in (near, far):
                side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self.carry, args=(source, sink), daemon=True).start()

    def carry(self, source, sink):
        queue, ready = [], threading.Condition()

        def write():
            while True:
                with ready:
                    while not queue:
                        ready.wait()
                    due, piece = queue.pop(0)
                time.sleep(max(0.0, due - time.monotonic()))
                try:
                    if not piece:
                        sink.shutdown(socket.SHUT_WR)
                        return
                    sink.sendall(piece)
                except OSError:
                    return

        threading.Thread(target=write, daemon=True).start()
        while True:
            try:
                piece = source.recv(1 << 16)
            except OSError:
                piece = b""
            with ready:
                queue.append((time.monotonic() + self.seconds, piece))
                ready.notify()
            if not piece:
                return


class Host:
    """An sshd with its keys, and how each side reaches it."""

    def __init__(self, folder, rgpu):
        self.folder, self.rgpu = folder, rgpu
        os.makedirs("/run/sshd", exist_ok=True)
        for key in ("host", "id"):
            subprocess.run([tool("ssh-keygen"), "-qt", "ed25519", "-N", "", "-f", folder / key], check=True)
        shutil.copy(folder / "id.pub", folder / "authorized_keys")
        for part in ("home", "laptop", "project"):
            (folder / part).mkdir()
        self.port = free_port()
        (folder / "sshd_config").write_text(
            f"ListenAddress 127.0.0.1\nPort {self.port}\nHostKey {folder}/host\nPidFile none\nUsePAM no\n"
            f"AuthorizedKeysFile {folder}/authorized_keys\nStrictModes no\nPermitRootLogin yes\n"
            f"SetEnv HOME={folder}/home\nSubsystem sftp internal-sftp\n")
        self.server = subprocess.Popen([tool("sshd"), "-D", "-f", folder / "sshd_config", "-E", folder / "log"])
        self.env = {
            "PATH": PATH, "HOME": str(folder / "laptop"), "LANG": "C.UTF-8",
            "RGPU_CONFIG": str(folder / "config.toml"),
            "CARGO_HOME": os.environ.get("CARGO_HOME", os.path.expanduser("~/.cargo")),
            "RUSTUP_HOME": os.environ.get("RUSTUP_HOME", os.path.expanduser("~/.rustup")),
        }
        if libexec := os.environ.get("RGPU_LIBEXEC"):
            self.env["RGPU_LIBEXEC"] = libexec
        for _ in range(100):
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                break
            except OSError:
                time.sleep(0.05)
        self.use(self.port)

    def use(self, port):
        """Both ways go by this port from now on."""
        (self.folder / "ssh_config").write_text(
            f"Host box\n  HostName 127.0.0.1\n  Port {port}\n  User {getpass.getuser()}\n"
            f"Host *\n  IdentityFile {self.folder}/id\n  IdentityAgent none\n  StrictHostKeyChecking no\n"
            f"  UserKnownHostsFile {self.folder}/known_hosts\n  LogLevel ERROR\n")
        config = self.folder / "config.toml"
        config.write_text(
            f'default_remote = "box"\n[remote.box]\nurl = "ssh://{getpass.getuser()}@127.0.0.1:{port}"\n'
            f'ssh_config = "{self.folder}/ssh_config"\n')
        config.chmod(0o600)
        self.exec("--accept-new", "--", "true")

    def run(self, argv, **more):
        return subprocess.run([tool(argv[0]), *(str(a) for a in argv[1:])], cwd=self.folder / "project", env=self.env, check=True,
                              stdin=subprocess.DEVNULL, capture_output=True, **more)

    def exec(self, *args):
        return self.run([self.rgpu, "exec", *args])

    def ssh(self, *command):
        return self.run(["ssh", "-F", self.folder / "ssh_config", "box", *command])

    def scp(self, source, target):
        return self.run(["scp", "-q", "-F", self.folder / "ssh_config", source, target])


def tool(name):
    """The whole path: sshd wants it of itself, and PATH is searched in this process's own."""
    return shutil.which(str(name), path=PATH) or sys.exit(f"there is no {name} here")


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def seconds(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def compare(name, ours, theirs, goal, times=TIMES):
    """Both in turn, so that the machine's moods hit both alike."""
    ours(), theirs()
    pairs = [(seconds(ours), seconds(theirs)) for _ in range(times)]
    a, b = (statistics.median(side) for side in zip(*pairs))
    return tell(name, f"{a * 1000:7.1f} ms against {b * 1000:7.1f} ms", a / b, goal, a / b <= goal)


def tell(name, numbers, ratio, goal, held):
    print(f"{'ok  ' if held else 'MISS'} {name:46} {numbers}  {ratio:6.2f}  (goal {goal})", flush=True)
    return held


def pipeline(host, binary):
    def theirs():
        host.scp(binary, "box:job")
        host.ssh("./job")
        host.scp("box:result.txt", "back.txt")

    return theirs


def throughput(host, total=1_000_000_000):
    start = time.perf_counter()
    child = subprocess.Popen([host.rgpu, "exec", "--log-limit", str(2 * total), "--", "head", "-c", str(total), "/dev/zero"],
                             cwd=host.folder / "project", env=host.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    got = 0
    while piece := os.read(child.stdout.fileno(), 1 << 20):
        got += len(piece)
    child.wait()
    rate = got / (time.perf_counter() - start) / 1e6
    return tell("output through the pipe", f"{got} of {total} bytes", rate, ">= 100 MB/s", got == total and rate >= 100)


def first_byte(host, round_trip):
    """Lines that carry the time they were printed at, against the time they are read at."""
    code = "import time\nfor _ in range(20):\n    print(time.time_ns(), flush=True)\n    time.sleep(0.1)\n"
    child = subprocess.Popen([host.rgpu, "exec", "--lang", "py", "--code", code], cwd=host.folder / "project", env=host.env,
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    late = [(time.time_ns() - int(line)) / 1e9 for line in child.stdout]
    child.wait()
    middle = statistics.median(late)
    return tell(f"a printed line arrives (round trip {round_trip * 1000:.0f} ms)", f"{middle * 1000:7.1f} ms late",
                middle / round_trip, "1 round trip", middle <= round_trip)


def edit_to_run(host):
    project = host.folder / "project"
    bare = host.folder / "bare"
    (bare / "src").mkdir(parents=True)
    (bare / "Cargo.toml").write_text('[package]\nname = "bare"\nversion = "0.0.0"\nedition = "2024"\n[workspace]\n')
    edits = iter(range(10_000))

    def text():
        return SNIPPET.replace("1000", str(1000 + next(edits)))

    def ours():
        (project / "edit.rs").write_text(text())
        host.exec("edit.rs")

    def theirs():
        (bare / "src/main.rs").write_text(text())
        host.run(["cargo", "build", "--quiet", "--manifest-path", bare / "Cargo.toml"])

    return compare("edit to run, against a bare cargo build", ours, theirs, 1.2)


def prebuild(rgpu, folder):
    """Compiles the snippet here, for a machine without cargo."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="rgpu-bench-") as scratch:
        scratch = Path(scratch)
        (scratch / "snippet.rs").write_text(SNIPPET)
        env = {**os.environ, "XDG_CACHE_HOME": str(scratch), "RGPU_AGENT_HOME": str(scratch / "agent")}
        subprocess.run([rgpu, "exec", "snippet.rs"], cwd=scratch, env=env, check=True)
        for built in (scratch / "rgpu/exec/built").iterdir():
            print(shutil.copy(built, folder))


def main():
    argv = sys.argv[1:]
    build_into = Path(argv.pop(1)).resolve() if argv[:1] == ["--prebuild"] else None
    argv = [arg for arg in argv if arg != "--prebuild"]
    found = [*ROOT.glob("target/dist/*/rgpu"), *ROOT.glob("target/release/rgpu")]
    rgpu = Path(argv[0]).resolve() if argv else next(iter(found), None)
    if rgpu is None:
        sys.exit("no release binary: cargo build --release -p rgpu -p rgpu-agent, or name one")
    if build_into:
        return prebuild(rgpu, build_into)
    with tempfile.TemporaryDirectory(prefix="rgpu-bench-") as folder:
        host = Host(Path(folder), rgpu)
        try:
            held = measure(host)
        finally:
            host.server.terminate()
    return 0 if all(held) else 1


def measure(host):
    project = host.folder / "project"
    (project / "snippet.rs").write_text(SNIPPET)
    programs = host.folder / "laptop/.cache/rgpu/exec/built"
    if built := os.environ.get("EXEC_BUILT"):
        shutil.copytree(built, programs)
    host.exec("snippet.rs")
    [binary] = programs.iterdir()
    host.scp(binary, "box:same")
    held = [
        compare("unchanged Rust snippet, against ssh", lambda: host.exec("snippet.rs"), lambda: host.ssh("./same"), 0.6),
        compare("Python one-liner, against ssh", lambda: host.exec("--lang", "py", "--code", "print(1)"),
                lambda: host.ssh("python3", "-c", "'print(1)'"), 0.8),
    ]
    ours = lambda: host.exec("snippet.rs", "--pull", "result.txt")
    held.append(compare("sent, run, brought back; against scp ssh scp", ours, pipeline(host, binary), 0.3))
    held += [throughput(host) for _ in range(3)]
    if shutil.which("cargo", path=PATH):
        held.append(edit_to_run(host))
    host.use(Delay(host.port, 0.025).port)
    held.append(compare("the same at 50 ms round trip", ours, pipeline(host, binary), 0.3, times=5))
    held.append(first_byte(host, 0.05))
    return held


if __name__ == "__main__":
    sys.exit(main())
