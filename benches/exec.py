#!/usr/bin/env python3
"""exec.py [RGPU], exec.py --prebuild DIR [RGPU]: compares the time of `rgpu exec` with what a user would type instead, on this machine.

Starts an OpenSSH server on loopback and a proxy that adds a delay. Then it times the same work in turn with both
programs and prints the ratio of the medians beside its goal. Needs sshd, ssh, scp, cargo and python3. RGPU is a
release binary with its agent beside it (default: target/dist/*/rgpu or target/release/rgpu). Status 1 if a goal is
missed.

On a machine without cargo, EXEC_BUILT=DIR names the folder that `--prebuild DIR` filled elsewhere, and the line that
needs a compiler is left out. On a machine whose sshd came from tests/gpu/host/up, run that script first.
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True
from loopback import PATH, Delay, Host, compare as compared, tell

ROOT = Path(__file__).resolve().parent.parent
TIMES = int(os.environ.get("TIMES", "11"))
SNIPPET = """use std::io::Write;

fn main() {
    let n: u64 = (0..1000).sum();
    std::fs::write("result.txt", format!("{n}\\n")).unwrap();
    writeln!(std::io::stdout(), "sum {n}").unwrap();
}
"""


def compare(name, ours, theirs, goal, times=TIMES):
    return compared(name, ours, theirs, goal, times)


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
    """Compares the time in each printed line with the time at which it is read."""
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
