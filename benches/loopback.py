"""Shared parts of the transport benchmarks: an OpenSSH server on loopback with keys and homes of its own, a proxy
that adds a delay, and the line of a table."""

import getpass
import glob
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

# Where tests/gpu/host/up unpacks a server and its tools.
UNPACKED = "/opt/gpu-host/usr"
PATH = f"{os.environ['PATH']}:{UNPACKED}/bin:{UNPACKED}/sbin:/usr/sbin"


def prepare_machine(folder):
    """Prints the cost of a new file in `folder`, and makes the hypervisor provide this machine's memory.

    rgpu's jobs create files on both sides; `ssh` and `curl` create none. On one disk the cost of a new file varies by a
    factor of thirty (12 and 410 µs were seen, ext4). ext4 skips the inodes that were freed in the last minutes
    (`recently_deleted` in fs/ext4/ialloc.c), one by one. After 8,000 files are removed, each new one costs 100 µs for a
    while. So run a benchmark that removes many files last. TMPDIR names another folder.

    A virtual machine gets a page of memory when that page is first touched. A program that keeps what it fetched would
    pay for that. A program that runs later and reuses these pages would not (64 MiB in 105 ms and in 310 ms were
    seen)."""
    give_memory()
    took = []
    with tempfile.TemporaryDirectory(dir=folder) as inner:
        for n in range(200):
            begun = time.perf_counter()
            os.close(os.open(f"{inner}/{n}", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            took.append(time.perf_counter() - begun)
    print(f"a new file takes {1e6 * statistics.median(took):.0f} µs in {folder}", flush=True)


def give_memory():
    """Touches half of the available memory, at most 12 GiB, and frees it. A child process does this, because the peak
    memory of this process would also be reported for its later children."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    available = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")) << 10
    pieces, begun = min(available // 2, 12 << 30) >> 26, time.perf_counter()
    touch = f"kept = [bytearray(b'1') * (1 << 26) for _ in range({pieces})]"
    subprocess.run([sys.executable, "-c", touch], check=True)
    print(f"{pieces / 16:.0f} GiB of memory touched in {time.perf_counter() - begun:.1f} s", flush=True)


class Delay(threading.Thread):
    """Forwards bytes between a port of its own and another, each `seconds` late. `sent` counts those to the other."""

    def __init__(self, port, seconds):
        super().__init__(daemon=True)
        self.to, self.seconds, self.sent = port, seconds, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.start()

    def run(self):
        while True:
            near, _ = self.listener.accept()
            far = socket.create_connection(("127.0.0.1", self.to))
            for side in (near, far):
                side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for source, sink, counts in ((near, far, True), (far, near, False)):
                threading.Thread(target=self.carry, args=(source, sink, counts), daemon=True).start()

    def carry(self, source, sink, counts):
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
                piece = source.recv(1 << 18)
            except OSError:
                piece = b""
            if counts:
                self.sent += len(piece)
            with ready:
                queue.append((time.monotonic() + self.seconds, piece))
                ready.notify()
            if not piece:
                return


class Host:
    """An sshd with its keys, and the configuration with which rgpu and ssh reach it."""

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
            f"SetEnv HOME={folder}/home PATH={PATH}\nSubsystem sftp internal-sftp\n")
        self.server = subprocess.Popen([tool("sshd"), "-D", "-f", folder / "sshd_config", "-E", folder / "log"])
        self.env = {
            "PATH": PATH, "HOME": str(folder / "laptop"), "LANG": "C.UTF-8",
            "RGPU_CONFIG": str(folder / "config.toml"),
            "CARGO_HOME": os.environ.get("CARGO_HOME", os.path.expanduser("~/.cargo")),
            "RUSTUP_HOME": os.environ.get("RUSTUP_HOME", os.path.expanduser("~/.rustup")),
        }
        if libexec := os.environ.get("RGPU_LIBEXEC"):
            self.env["RGPU_LIBEXEC"] = os.path.abspath(libexec)
        for _ in range(100):
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                break
            except OSError:
                time.sleep(0.05)
        self.use(self.port)

    def use(self, port):
        """Makes rgpu and ssh connect to this port from now on."""
        self.url = f"ssh://{getpass.getuser()}@127.0.0.1:{port}"
        self.ssh_config = self.folder / "ssh_config"
        self.ssh_config.write_text(
            f"Host box\n  HostName 127.0.0.1\n  Port {port}\n  User {getpass.getuser()}\n"
            f"Host *\n  IdentityFile {self.folder}/id\n  IdentityAgent none\n  StrictHostKeyChecking no\n"
            f"  UserKnownHostsFile {self.folder}/known_hosts\n  LogLevel ERROR\n")
        config = self.folder / "config.toml"
        config.write_text(
            f'default_remote = "box"\n[remote.box]\nurl = "{self.url}"\nssh_config = "{self.ssh_config}"\n')
        config.chmod(0o600)
        self.exec("--accept-new", "--", "true")

    def run(self, argv, **more):
        return subprocess.run([tool(argv[0]), *(str(a) for a in argv[1:])], cwd=self.folder / "project", env=self.env, check=True,
                              stdin=subprocess.DEVNULL, capture_output=True, **more)

    def exec(self, *args):
        return self.run([self.rgpu, "exec", *args])

    def ssh(self, *command):
        return self.run(["ssh", "-F", self.ssh_config, "box", *command])

    def scp(self, *words):
        # scp has /usr/bin/ssh built in; both may be elsewhere.
        return self.run(["scp", "-q", "-S", tool("ssh"), "-F", self.ssh_config, *words])

    def has(self, program):
        return shutil.which(program, path=PATH) is not None


def tool(name):
    """The full path of a program: sshd must be started by its full path, and PATH here is longer than the process's."""
    return shutil.which(str(name), path=PATH) or sys.exit(f"there is no {name} here")


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def agent_of(rgpu):
    """The agent that `rgpu` would send; searches the same folders."""
    folders = [os.environ["RGPU_LIBEXEC"]] if os.environ.get("RGPU_LIBEXEC") else []
    here = os.path.dirname(os.path.realpath(rgpu))
    folders += [f"{here}/../libexec/rgpu", f"{here}/../dist", here]
    for folder in folders:
        for path in [*sorted(glob.glob(f"{folder}/x86_64-*/rgpu-agent")), f"{folder}/rgpu-agent"]:
            if os.path.exists(path):
                return os.path.realpath(path)
    return None


def seconds(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def medians(works, times):
    """Median seconds of each, taken in turn, so that changes of the machine's speed affect all alike."""
    for work in works:
        work()
    rounds = [[seconds(work) for work in works] for _ in range(times)]
    return [statistics.median(side) for side in zip(*rounds)]


def compare(name, ours, theirs, goal, times):
    """Prints one line: both medians, and whether their ratio meets `goal`."""
    a, b = medians([ours, theirs], times)
    return tell(name, f"{a * 1000:7.1f} ms against {b * 1000:7.1f} ms", a / b, goal, a / b <= goal)


def tell(name, numbers, ratio, goal, held):
    print(f"{'ok  ' if held else 'MISS'} {name:46} {numbers}  {ratio:6.2f}  (goal {goal})", flush=True)
    return held
