"""rgpu's agent on Modal. A user deploys it once, with `modal deploy remote/modal_app.py`.

It only starts the agent. A container without a GPU, the front, serves the agent's HTTP interface.
Each job is handed to a container with a GPU, where the same agent carries it out. The two exchange
numbered pieces on a Volume: the messages to the agent (`in`) and everything it sends back (`out`).
Pieces are written once and read in order, so a connection can be replayed from its beginning. A new
front takes up the jobs of a stopped one this way, and nothing is lost with a front.

| of a job, `calls/JOB/` | written by | when |
|---|---|---|
| `ticket` | front | before it requests a container; only the one with this ticket runs the job |
| `begun/TICKET` | container | when it takes the job; holds the id of its call |
| `call` | front | when the call has started; holds its id |
| `in/TRY/N`, `said` | front | messages to the agent; `said` names the try with the complete start |
| `out/N`, `done`, `died` | container | the agent's output; whether the job ended normally |
| `closed` | front | when no one waits for the job any more: it ends, or does not even start |
| `over` | front | when its container is gone |

`DEFAULTS` lists the settings, which are environment variables of `modal deploy`. Everything is in
one file because `modal deploy FILE` uploads no other.

| part | purpose |
|---|---|
| `DEFAULTS`, `image` | settings and the containers' image |
| `Box`, `FolderBox`, `VolumeBox`, `PatientBox` | the storage for pieces |
| `Frames`, `carry` | the side with the GPU |
| `Calls`, `Front` | the side without one |
| `serve`, `local` | the HTTP application: on Modal, and on any machine for tests |
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import queue
import secrets
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

import aiohttp
import modal
import modal.experimental

# Everything that a deployment may change.
DEFAULTS = {
    # The app's name. The URL begins with it.
    "RGPU_APP": "rgpu",
    # The GPU type, in Modal's spelling. `B200+` may give a B300; each profile names the actual
    # device.
    "RGPU_GPU": "B200",
    # Empty: any region. A particular one costs more.
    "RGPU_REGION": "",
    # CUDA 12.9.1 brings Nsight Compute 2025.2.1. Nsight Compute 2026.2 (CUDA 13.3) wrote counters
    # that are all NaN on Modal's B200; rgpu refuses such a report, but then has no counters.
    "RGPU_IMAGE": "nvidia/cuda:12.9.1-devel-ubuntu22.04",
    "RGPU_APT": "nsight-compute-2025.2.1 nsight-systems-2025.1.3",
    "RGPU_PIP": "torch==2.9.1 triton==3.5.1 nvidia-cutlass-dsl==4.4.0",
    "RGPU_PYTHON": "3.12",
    # The agent, as `cargo xtask dist` builds it.
    "RGPU_AGENT": "target/dist/x86_64-unknown-linux-gnu/rgpu-agent-http",
    # Time limits of a job and of a request to the front, in seconds. Modal's default of 300 would
    # cut every stream of the front.
    "RGPU_JOB_TIMEOUT": "3600",
    "RGPU_FRONT_TIMEOUT": "3600",
    # Seconds that an idle container stays, and is paid for.
    "RGPU_IDLE": "60",
}


def setting(name: str) -> str:
    """Returns the deployment's value of a setting, or the default."""
    return os.environ.get(name) or DEFAULTS[name]


# The agent's path in a container.
AGENT = "/opt/rgpu/rgpu-agent-http"

# Seconds between two polls for a piece, and between two pieces of continuous output.
BEAT = 1.0

# Most bytes of a piece, and of a request.
PIECE = 8 << 20

# Seconds that a job may take to end after its front closed it, and how often it is cancelled then.
GRACE = 15.0
TOLD = 20

# Seconds that the platform's API may be unreachable. After that, a front's connection is cut and
# replayed, and a container's job is lost.
FRONT_PATIENCE = 30.0
JOB_PATIENCE = 300.0

# Seconds that requests wait for jobs that a new front takes up.
CATCH_UP = 60.0

# Seconds that a container waits for its job's start, and that a facts request may run.
BEGIN = 300.0
FACTS = 300.0

# Kinds of frames (remote/protocol/src/frame.rs).
MESSAGE = 0
HEADER = struct.Struct("<IB")
# The agent's first line, before its frames.
MAGIC = b"\x01rgpu-agent-stream-1\n"


class Box(Protocol):
    """Storage for pieces. Writes are atomic, and only names under `front/` are ever rewritten."""

    def put(self, name: str, data: bytes) -> None:
        """Stores bytes under a name."""

    def put_all(self, files: dict[str, Path | bytes]) -> None:
        """Stores files, or bytes, under their names."""

    def get(self, name: str) -> bytes | None:
        """Returns the bytes, or `None` if the name does not exist."""

    def names(self, folder: str) -> list[str]:
        """Returns all names below a folder."""

    def remove(self, name: str) -> None:
        """Removes a name, or all names below it."""


class FolderBox:
    """A local folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def put(self, name: str, data: bytes) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        part.write_bytes(data)
        part.rename(path)

    def put_all(self, files: dict[str, Path | bytes]) -> None:
        for name, data in files.items():
            self.put(name, data if isinstance(data, bytes) else data.read_bytes())

    def get(self, name: str) -> bytes | None:
        try:
            return (self.root / name).read_bytes()
        except FileNotFoundError:
            return None

    def names(self, folder: str) -> list[str]:
        found = (p for p in (self.root / folder).rglob("*") if p.is_file())
        return sorted(str(p.relative_to(self.root)) for p in found if p.name[0] != ".")

    def remove(self, name: str) -> None:
        path = self.root / name
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


class VolumeBox:
    """A Modal Volume, used through its API: each upload is a commit, and no mount has to be
    reloaded."""

    def __init__(self, volume: modal.Volume) -> None:
        self.volume = volume

    def put(self, name: str, data: bytes) -> None:
        with self.volume.batch_upload(force=True) as batch:
            batch.put_file(io.BytesIO(data), f"/{name}")

    def put_all(self, files: dict[str, Path | bytes]) -> None:
        with self.volume.batch_upload(force=True) as batch:
            for name, data in files.items():
                file = io.BytesIO(data) if isinstance(data, bytes) else data
                batch.put_file(file, f"/{name}")

    def get(self, name: str) -> bytes | None:
        try:
            return b"".join(self.volume.read_file(name))
        except (FileNotFoundError, modal.exception.NotFoundError):
            return None

    def names(self, folder: str) -> list[str]:
        try:
            entries = self.volume.listdir(f"/{folder}", recursive=True)
        except (FileNotFoundError, modal.exception.NotFoundError):
            return []
        files = (entry.path for entry in entries if entry.type.name == "FILE")
        return sorted(path.lstrip("/") for path in files)

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError, modal.exception.NotFoundError):
            self.volume.remove_file(f"/{name}", recursive=True)


# The platform's API is unreachable or overloaded. A retry may succeed.
AWAY = (
    modal.exception.ConnectionError,
    modal.exception.InternalError,
    modal.exception.ResourceExhaustedError,
    modal.exception.ServiceError,
)

# Errors of storage after which a retry may succeed.
PASSING = (*AWAY, OSError, aiohttp.ClientError)

T = TypeVar("T")


class PatientBox:
    """Retries operations of a box for a while. Repeating one is harmless."""

    def __init__(self, box: Box, patience: float) -> None:
        self.box, self.patience = box, patience

    def again(self, work: Callable[[], T]) -> T:
        end, pause = time.monotonic() + self.patience, 0.2
        while True:
            try:
                return work()
            except FileNotFoundError:
                raise
            except PASSING:
                if time.monotonic() + pause > end:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, 5.0)

    def put(self, name: str, data: bytes) -> None:
        self.again(lambda: self.box.put(name, data))

    def put_all(self, files: dict[str, Path | bytes]) -> None:
        self.again(lambda: self.box.put_all(files))

    def get(self, name: str) -> bytes | None:
        return self.again(lambda: self.box.get(name))

    def names(self, folder: str) -> list[str]:
        return self.again(lambda: self.box.names(folder))

    def remove(self, name: str) -> None:
        self.again(lambda: self.box.remove(name))


class Frames:
    """Splits a stream into frames, only to detect the end of a job."""

    def __init__(self, preamble: bool) -> None:
        self.buffer = b""
        # Whether the agent's first line is still expected before the frames.
        self.preamble = preamble

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
        """Yields kind, body and all bytes of each complete frame."""
        self.buffer += data
        if self.preamble:
            if MAGIC not in self.buffer:
                return
            self.buffer = self.buffer.split(MAGIC, 1)[1]
            self.preamble = False
        while len(self.buffer) >= HEADER.size:
            length, kind = HEADER.unpack_from(self.buffer)
            end = HEADER.size + length
            if len(self.buffer) < end:
                return
            raw, self.buffer = self.buffer[:end], self.buffer[end:]
            yield kind, raw[HEADER.size :], raw


def is_end(kind: int, body: bytes) -> bool:
    """Returns whether a frame is a job's terminal event."""
    if kind != MESSAGE or b'"ended"' not in body:
        return False
    message = json.loads(body)
    return bool(message.get("is") == "event" and message["event"].get("event") == "ended")


def ends_beginning(kind: int, body: bytes) -> bool:
    """Returns whether a frame is the last that a relay sends at the start of a connection."""
    return kind == MESSAGE and json.loads(body).get("do") in ("detach", "facts")


def refused(code: str, text: str) -> bytes:
    """Returns a frame that ends a job whose agent cannot end it any more."""
    message = {"is": "refused", "request": "job", "code": code, "text": text}
    body = json.dumps(message).encode()
    return HEADER.pack(len(body), MESSAGE) + body


def carry(job: str, ticket: str, call: str, box: Box, agent: str, home: str) -> bool:
    """Runs a connection with an agent in this container, until its job has ended or the front has
    closed it. Returns whether nothing of it can still be running."""
    base = f"calls/{job}"
    if box.get(f"{base}/begun/{ticket}") is not None:
        # Another container ran it before and is gone. It must not run twice.
        box.put(f"{base}/died", b"its container was taken away; nothing was run a second time")
        return True
    # A front writes a new ticket and then looks for `begun`; we write `begun` and then read the
    # ticket. So one of the two always sees the other.
    box.put(f"{base}/begun/{ticket}", call.encode())
    if box.get(f"{base}/ticket") != ticket.encode() or box.get(f"{base}/closed") is not None:
        # Another container has the job, or no one waits for it any more.
        return True
    os.makedirs(home, mode=0o700, exist_ok=True)
    child = subprocess.Popen(
        [agent, "stdio"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "RGPU_AGENT_HOME": home},
    )
    out: queue.Queue[bytes] = queue.Queue()

    def read() -> None:
        fd = child.stdout.fileno() if child.stdout else -1
        while data := os.read(fd, 1 << 20):
            out.put(data)
        out.put(b"")

    def write() -> None:
        try:
            tell(job, box, child)
        except BaseException:
            # An agent that receives nothing more cannot be cancelled.
            child.terminate()
            raise

    for task in (read, write):
        threading.Thread(target=task, daemon=True).start()
    try:
        ended = hear(base, box, out)
        if job.startswith("facts-"):
            box.put(f"{base}/done", b"")
        elif not ended:
            box.put(f"{base}/died", b"the agent in its container ended before the job")
    finally:
        child.terminate()
    return ended or job.startswith("facts-")


def tell(job: str, box: Box, child: subprocess.Popen[bytes]) -> None:
    """Writes the front's messages to an agent, until the front has closed the job."""
    base, begun = f"calls/{job}", time.monotonic()
    folder, number = "", 1
    assert child.stdin
    while child.poll() is None:
        data = None
        if not folder:
            # Start only with a complete try: a front may have stopped halfway through one.
            said = box.get(f"{base}/said")
            folder = f"{base}/in/{said.decode()}" if said else ""
        if folder:
            data = box.get(f"{folder}/{number:06}")
        if data is not None:
            with contextlib.suppress(BrokenPipeError):
                child.stdin.write(data)
                child.stdin.flush()
            number += 1
            continue
        waited = time.monotonic() - begun
        in_vain = (waited > BEGIN and not folder) or (waited > FACTS and job.startswith("facts-"))
        if in_vain or box.get(f"{base}/closed") is not None:
            child.stdin.close()
            return
        time.sleep(BEAT)


def hear(base: str, box: Box, out: queue.Queue[bytes]) -> bool:
    """Stores an agent's output until its job or the output ends. Returns whether the job ended."""
    frames, number, over, ended = Frames(preamble=True), 1, False, False
    while not over:
        data, begun = b"", time.monotonic()
        # Collect output for a beat, because each piece is a commit.
        while len(data) < PIECE and not over and time.monotonic() - begun < BEAT:
            try:
                part = out.get(timeout=0.1)
            except queue.Empty:
                continue
            data += part
            ended = any(is_end(kind, body) for kind, body, _ in frames.feed(part))
            over = ended or not part
        files: dict[str, Path | bytes] = {f"{base}/out/{number:06}": data} if data else {}
        if ended:
            # In one commit with the end, so that readers of the end find the whole job.
            files[f"{base}/done"] = b""
        if files:
            box.put_all(files)
        number += len(data) > 0
    return ended


def has_ended(log: Path) -> bool:
    """Returns whether a job's event log has its terminal event."""
    with contextlib.suppress(FileNotFoundError), log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 65536))
        return b'"event":"ended"' in file.read()
    return False


def in_words(error: Exception) -> str:
    """Returns the error's message, or at least its type."""
    return str(error) or type(error).__name__


class Calls(Protocol):
    """Starts and ends containers with a GPU."""

    def spawn(self, job: str, ticket: str) -> str:
        """Starts a container for a job and returns its id."""

    def over(self, call: str) -> str | None:
        """Returns why the container has ended, or `None` while it runs."""

    def cancel(self, call: str) -> None:
        """Ends the container."""


class FunctionCalls:
    """Containers of Modal."""

    def spawn(self, job: str, ticket: str) -> str:
        return str(on_gpu.spawn(job, ticket).object_id)

    def over(self, call: str) -> str | None:
        try:
            modal.FunctionCall.from_id(call).get(timeout=0)
        except (TimeoutError, *AWAY):
            # It runs, or its state is unknown right now.
            return None
        except modal.exception.FunctionTimeoutError:
            return f"the container reached its time limit of {setting('RGPU_JOB_TIMEOUT')} s"
        except (modal.exception.NotFoundError, modal.exception.OutputExpiredError):
            return "the platform does not know the container any more"
        except modal.exception.InputCancellation:
            return "the container was cancelled"
        except Exception as error:  # noqa: BLE001 - whatever it was, the job is over
            return f"the container failed: {in_words(error)}"
        return "the container ended"

    def cancel(self, call: str) -> None:
        modal.FunctionCall.from_id(call).cancel(terminate_containers=True)


class Front:
    """The side that clients connect to: the agent's server, and the path of its jobs to containers.

    `token` is added to requests to that server; `None`: clients send it themselves."""

    def __init__(self, box: Box, calls: Calls, agent: str, home: Path, token: str | None) -> None:
        self.box, self.calls, self.agent = box, calls, agent
        self.home, self.token = home, token
        self.token_file = home / "token"
        # The agent's folder, and the socket on which its relays connect.
        self.root, self.way = home / "agent", home / "way"
        self.url = ""
        self.server: asyncio.subprocess.Process | None = None
        self.session: aiohttp.ClientSession | None = None
        self.starting = asyncio.Lock()
        # Size and time of each file that the box holds.
        self.mirrored: dict[str, tuple[int, int]] = {}
        # Jobs with entries in the box, and ended jobs whose pieces were removed.
        self.known: set[str] = set()
        self.tidied: set[str] = set()
        # Jobs that ended before this front started.
        self.finished: set[str] = set()
        self.tasks: set[asyncio.Future[None]] = set()
        self.stopping = False
        self.mirroring = threading.Lock()

    async def start(self) -> None:
        """Starts everything that requests need, once."""
        async with self.starting:
            if self.session is None:
                self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
                if self.token is not None:
                    self.token_file.touch(mode=0o600)
                    self.token_file.write_text(self.token)
                self.root.mkdir(mode=0o700, exist_ok=True)
                left = await asyncio.to_thread(self.restore)
                self.way.unlink(missing_ok=True)
                await asyncio.start_unix_server(self.converse, str(self.way), limit=PIECE)
                self.session = aiohttp.ClientSession(
                    auto_decompress=False, timeout=aiohttp.ClientTimeout(total=None)
                )
                self.keep(self.mirror_for_ever())
                for job in left:
                    self.keep(self.leave(f"calls/{job}"))
            if self.server is None or self.server.returncode is not None:
                await self.start_server()
                await self.catch_up()

    async def start_server(self) -> None:
        """Starts the agent's server, also again after it has ended."""
        self.server = await asyncio.create_subprocess_exec(
            self.agent,
            *("serve", "--listen", "127.0.0.1:0", "--token-file", str(self.token_file)),
            *("--hand-over", str(self.way)),
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "RGPU_AGENT_HOME": str(self.root)},
        )
        assert self.server.stdout
        line = (await self.server.stdout.readline()).decode()
        if "http://" not in line:
            raise RuntimeError(f"the agent's server did not start: {line!r}")
        self.url = line[line.index("http://") :].strip()

    async def catch_up(self) -> None:
        """Waits until ended jobs are replayed: their clients may know of the end already and ask
        for files."""
        end, waiting = time.monotonic() + CATCH_UP, self.finished
        while waiting and time.monotonic() < end:
            waiting = {job for job in waiting if not has_ended(self.root / job / "events.jsonl")}
            await asyncio.sleep(0.05)
        self.finished = set()

    def keep(self, work: Awaitable[None]) -> None:
        """Runs work in the background."""
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def restore(self) -> list[str]:
        """Restores an earlier front's files. Returns the jobs that no relay will resume."""
        calls: dict[str, set[str]] = {}
        for name in self.box.names("calls"):
            _, job, what = name.split("/", 2)
            calls.setdefault(job, set()).add(what)
        self.known |= set(calls)
        for name in self.box.names("front"):
            data = self.box.get(name)
            path = self.root / name.removeprefix("front/")
            if data is None or path.exists():
                continue
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.write_bytes(data)
            path.chmod(0o600)
            self.mirrored[name] = (len(data), path.stat().st_mtime_ns)
        jobs = {path.name for path in self.root.glob("jobs/*")}
        self.finished = {f"jobs/{job}" for job, has in calls.items() if job in jobs and "done" in has}
        left = ((job, has) for job, has in calls.items() if "over" not in has)
        return [job for job, has in left if "closed" in has or job not in jobs]

    def mirror(self) -> None:
        """Stores blobs, plans and all files of ended jobs. A running job's output is in pieces."""
        for again in range(3):
            try:
                return self.mirror_now()
            except FileNotFoundError:
                # A file was removed during the walk.
                if again == 2:
                    raise

    def mirror_now(self) -> None:
        with self.mirroring:
            root = self.root
            found = root.glob("blobs/[0-9a-f][0-9a-f]/*")
            kept = {f"front/{path.relative_to(root)}": path for path in found if path.is_file()}
            new = {name: path for name, path in kept.items() if self.is_news(name, path)}
            files: dict[str, Path | bytes] = dict(new)
            tidy, begun = [], []
            for job in root.glob("jobs/[!.]*"):
                closed = self.box.get(f"calls/{job.name}/closed") is not None
                ended = closed and has_ended(job / "events.jsonl")
                for path in job.rglob("*"):
                    name = f"front/{path.relative_to(root)}"
                    own = path.parent == job and path.name in ("lock", "stdin")
                    if own or not path.is_file():
                        continue
                    kept[name] = path
                    if ended and self.is_news(name, path):
                        files[name] = new[name] = path
                    elif not ended and name not in self.mirrored:
                        # The events are replayed from the pieces.
                        is_log = path == job / "events.jsonl"
                        files[name] = b"" if is_log else path
                        begun.append(name)
                if ended and job.name not in self.tidied:
                    tidy.append(job.name)
            states = {name: path.stat() for name, path in new.items()}
            if files:
                self.box.put_all(files)
            self.mirrored.update(dict.fromkeys(begun, (0, 0)))
            for name, state in states.items():
                self.mirrored[name] = (state.st_size, state.st_mtime_ns)
            for job_id in tidy:
                # All its files are stored now, so the pieces are not needed.
                self.box.remove(f"calls/{job_id}/in")
                self.box.remove(f"calls/{job_id}/out")
                self.tidied.add(job_id)
            for name in set(self.mirrored) - set(kept):
                self.box.remove(name)
                del self.mirrored[name]
            # Remove entries of jobs that their clients have removed.
            for job_id in [job for job in self.known if not (root / "jobs" / job).exists()]:
                if self.box.get(f"calls/{job_id}/over") is not None:
                    self.box.remove(f"calls/{job_id}")
                    self.known.discard(job_id)

    def is_news(self, name: str, path: Path) -> bool:
        """Returns whether a file differs from the stored one."""
        state = path.stat()
        return self.mirrored.get(name) != (state.st_size, state.st_mtime_ns)

    async def mirror_for_ever(self) -> None:
        while True:
            # Failed uploads are repeated in the next round.
            with contextlib.suppress(OSError, modal.exception.Error):
                await asyncio.to_thread(self.mirror)
            await asyncio.sleep(2 * BEAT)

    async def converse(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Handles one connection: `facts` or `job NAME`, then frames in both directions. The relay
        repeats a cut connection, also after failures of the box, which do not affect the job."""
        try:
            await self.conversation(reader, writer)
        except (*PASSING, modal.exception.Error) as error:
            print(f"a conversation is cut: {in_words(error)}", file=sys.stderr)
        finally:
            with contextlib.suppress(OSError):
                writer.close()

    async def conversation(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        words = (await reader.readline()).decode().split()
        job = words[1] if len(words) == 2 else f"facts-{secrets.token_hex(8)}"
        base = f"calls/{job}"
        self.known.add(job)
        if await asyncio.to_thread(self.box.get, f"{base}/call") is None:
            try:
                call = await asyncio.to_thread(self.begin, base, job)
            except Exception as error:  # noqa: BLE001 - there is none, or it finds itself unwanted
                await asyncio.to_thread(self.box.put, f"{base}/closed", b"")
                await asyncio.to_thread(self.box.put, f"{base}/over", b"")
                text = f"no container can be started: {in_words(error)}"
                writer.write(MAGIC + refused("no_container", text))
                return
            await asyncio.to_thread(self.box.put, f"{base}/call", call.encode())
        pieces = asyncio.ensure_future(self.pass_out(base, writer))
        told = asyncio.ensure_future(self.pass_in(base, reader))
        try:
            done, _ = await asyncio.wait([pieces, told], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            pieces.cancel()
            with contextlib.suppress(OSError):
                writer.close()
            # The agent's server closes after it has everything, or wants no more.
            await asyncio.wait([told], timeout=GRACE)
        finally:
            pieces.cancel()
            told.cancel()
        # The end of the server does not end the job.
        if not self.stopping:
            await self.leave(base)

    def begin(self, base: str, job: str) -> str:
        """Starts a container for a job, or finds one that an earlier front started without
        recording it. Returns its id."""
        # Store the job before it starts.
        self.mirror()
        before, ticket = self.box.get(f"{base}/ticket"), secrets.token_hex(4)
        self.box.put(f"{base}/ticket", ticket.encode())
        begun = self.box.get(f"{base}/begun/{before.decode()}") if before else None
        return begun.decode() if begun else self.calls.spawn(job, ticket)

    async def leave(self, base: str) -> None:
        """Closes a job that no one waits for, and cancels its container if it does not end."""
        await asyncio.to_thread(self.box.put, f"{base}/closed", b"")
        end, told = time.monotonic() + GRACE, 0
        call = (await asyncio.to_thread(self.box.get, f"{base}/call") or b"").decode()
        while call and told < TOLD and await asyncio.to_thread(self.calls.over, call) is None:
            if time.monotonic() > end:
                with contextlib.suppress(*PASSING, modal.exception.Error):
                    await asyncio.to_thread(self.calls.cancel, call)
                end, told = time.monotonic() + GRACE, told + 1
            await asyncio.sleep(BEAT)
        await asyncio.to_thread(self.box.put, f"{base}/over", b"")

    async def pass_in(self, base: str, reader: asyncio.StreamReader) -> None:
        """Stores the messages to the agent. The start of a connection is stored once, as soon as
        it is complete."""
        said = await asyncio.to_thread(self.box.get, f"{base}/said")
        folder = f"{base}/in/{said.decode() if said else secrets.token_hex(4)}"
        number = 1 + (len(await asyncio.to_thread(self.box.names, folder)) if said else 0)
        frames, begun = Frames(preamble=False), False
        while data := await reader.read(PIECE):
            # Bytes that arrive together form one piece.
            with contextlib.suppress(asyncio.TimeoutError):
                while len(data) < PIECE:
                    more = await asyncio.wait_for(reader.read(PIECE), 0.05)
                    if not more:
                        break
                    data += more
            if not begun:
                begun = any(ends_beginning(kind, body) for kind, body, _ in frames.feed(data))
                if said:
                    data = frames.buffer if begun else b""
            if data:
                await asyncio.to_thread(self.box.put, f"{folder}/{number:06}", data)
                number += 1
            if begun and not said:
                said = folder.rsplit("/", 1)[1].encode()
                await asyncio.to_thread(self.box.put, f"{base}/said", said)

    async def pass_out(self, base: str, writer: asyncio.StreamWriter) -> None:
        """Writes the agent's output to a relay, until the end."""
        number, looked, over = 1, time.monotonic(), None
        call = (await asyncio.to_thread(self.box.get, f"{base}/call") or b"").decode()
        while True:
            data = await asyncio.to_thread(self.box.get, f"{base}/out/{number:06}")
            if data is not None:
                writer.write(data)
                await writer.drain()
                number += 1
                continue
            if await asyncio.to_thread(self.box.get, f"{base}/done") is not None:
                # `done` is stored with the last piece or after it, so look once more.
                if await asyncio.to_thread(self.box.get, f"{base}/out/{number:06}") is not None:
                    continue
                if number == 1:
                    writer.write(MAGIC + refused("pieces_gone", "what it said is there no more"))
                    await writer.drain()
                return
            if over is not None:
                died = await asyncio.to_thread(self.box.get, f"{base}/died")
                text = died.decode() if died else over
                # If nothing has been written yet, the magic line is still missing.
                line = b"" if number > 1 else MAGIC
                writer.write(line + refused("container_died", text))
                await writer.drain()
                return
            await asyncio.sleep(BEAT)
            if time.monotonic() - looked > 3 * BEAT:
                looked = time.monotonic()
                over = await asyncio.to_thread(self.calls.over, call)

    def has_new_job(self) -> bool:
        """Returns whether there is a job that the box does not hold yet."""
        jobs = self.root.glob("jobs/[!.]*")
        return any(f"front/jobs/{job.name}/plan.json" not in self.mirrored for job in jobs)

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forwards a request to the agent's server and its answer back. Both are short, and an
        answer takes seconds at most."""
        await self.start()
        assert self.session
        dropped = {b"host", b"connection", b"transfer-encoding", b"content-length"}
        if self.token is not None:
            dropped |= {b"authorization", b"modal-key", b"modal-secret"}
        headers = [(n.decode(), v.decode()) for n, v in scope["headers"] if n not in dropped]
        if self.token is not None:
            headers.append(("authorization", f"Bearer {self.token}"))
        body, more = b"", True
        # The server refuses a longer one.
        while more and len(body) < PIECE:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            more = message.get("more_body", False)
        path = scope["raw_path"].decode()
        query = scope["query_string"].decode()
        url = self.url + path + (f"?{query}" if query else "")
        async with self.session.request(
            scope["method"],
            yarl_exact(url),
            headers=headers,
            data=body,
            allow_redirects=False,
            skip_auto_headers=["user-agent", "accept", "content-type", "accept-encoding"],
        ) as reply:
            data = await reply.read()
        if self.has_new_job():
            # Before its client hears of the job, so that the next front can take it up.
            await asyncio.to_thread(self.mirror)
        kept = {b"connection", b"transfer-encoding", b"keep-alive"}
        told = [(n.lower(), v) for n, v in reply.raw_headers if n.lower() not in kept]
        await send({"type": "http.response.start", "status": reply.status, "headers": told})
        await send({"type": "http.response.body", "body": data, "more_body": False})

    async def stop(self) -> None:
        """Ends the server. Its jobs go on."""
        self.stopping = True
        for task in list(self.tasks):
            task.cancel()
        if self.session is not None:
            await self.session.close()
        if self.server is not None and self.server.returncode is None:
            self.server.terminate()
            await self.server.wait()


def yarl_exact(url: str) -> Any:
    """Returns the URL with the client's own escapes."""
    from yarl import URL

    return URL(url, encoded=True)


Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]


def serve(make: Callable[[], Front]) -> Asgi:
    """Returns the front as an ASGI application."""
    made: list[Front] = []

    def front() -> Front:
        # Created inside the event loop that runs it.
        if not made:
            made.append(make())
        return made[0]

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await front().answer(scope, receive, send)
        elif scope["type"] == "lifespan":
            while True:
                message = await receive()
                if message["type"] == "lifespan.startup":
                    await send({"type": "lifespan.startup.complete"})
                else:
                    if made:
                        await made[0].stop()
                    await send({"type": "lifespan.shutdown.complete"})
                    return

    return application


# On Modal.


def runnable(agent: str, folder: str) -> str:
    """Copies the agent as an executable: a file added to an image may lack that permission."""
    copy = shutil.copy(agent, f"{folder}/rgpu-agent-http")
    os.chmod(copy, 0o700)
    return copy


image = (
    modal.Image.from_registry(setting("RGPU_IMAGE"), add_python=setting("RGPU_PYTHON"))
    .apt_install(*setting("RGPU_APT").split())
    .pip_install("aiohttp", *setting("RGPU_PIP").split())
    # Containers see the same settings as the deployment.
    .env({name: setting(name) for name in DEFAULTS})
)
if modal.is_local():
    # A missing file ends the deployment.
    image = image.add_local_file(setting("RGPU_AGENT"), AGENT)

app = modal.App(setting("RGPU_APP"), image=image)
volume = modal.Volume.from_name(f"{setting('RGPU_APP')}-jobs", create_if_missing=True)
region = setting("RGPU_REGION") or None


@app.function(
    gpu=setting("RGPU_GPU"),
    region=region,
    timeout=int(setting("RGPU_JOB_TIMEOUT")),
    scaledown_window=int(setting("RGPU_IDLE")),
    retries=0,
)
def on_gpu(job: str, ticket: str) -> None:
    """Runs one job in a container with a GPU."""
    whole, call = False, modal.current_function_call_id() or ""
    with tempfile.TemporaryDirectory(prefix="rgpu-") as home:
        try:
            box = PatientBox(VolumeBox(volume), JOB_PATIENCE)
            whole = carry(job, ticket, call, box, runnable(AGENT, home), f"{home}/agent")
        except Exception as error:
            # A plain text error: the front may not know the type of another.
            raise RuntimeError(in_words(error)) from None
        finally:
            if not whole:
                # Processes that may still run end with this container.
                modal.experimental.stop_fetching_inputs()


@app.function(
    region=region,
    timeout=int(setting("RGPU_FRONT_TIMEOUT")),
    scaledown_window=max(300, int(setting("RGPU_IDLE"))),
    # One front only, as the jobs' folders are local to it.
    max_containers=1,
)
@modal.concurrent(max_inputs=500)
@modal.asgi_app(requires_proxy_auth=True)
def front() -> Asgi:
    """The HTTP interface. Modal checks the proxy token before any request reaches it."""
    home = Path(tempfile.mkdtemp(prefix="rgpu-"))
    token, agent = secrets.token_urlsafe(32), runnable(AGENT, str(home))
    box = PatientBox(VolumeBox(volume), FRONT_PATIENCE)
    return serve(lambda: Front(box, FunctionCalls(), agent, home, token))


# On any machine.


class Processes:
    """Plays containers with processes of this machine."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def spawn(self, job: str, ticket: str) -> str:
        child = subprocess.Popen([sys.executable, __file__, "carry", job, ticket])
        self.running[str(child.pid)] = child
        return str(child.pid)

    def over(self, call: str) -> str | None:
        child = self.running.get(call)
        if child is not None and child.poll() is None:
            return None
        # An earlier front started it, and it may still run.
        if child is None and Path(f"/proc/{call}").exists():
            return None
        return "the container ended"

    def cancel(self, call: str) -> None:
        if call in self.running:
            self.running[call].kill()


def local_home() -> Path:
    """Returns the folder that replaces Modal's storage, with the token in `front/token`."""
    return Path(os.environ["RGPU_LOCAL"])


def local() -> Asgi:
    """The same front with a folder as the Volume and processes as containers, for tests: run it
    with `uvicorn --factory modal_app:local`."""
    home, agent = local_home(), setting("RGPU_AGENT")
    box, calls = PatientBox(FolderBox(home / "volume"), FRONT_PATIENCE), Processes(home)
    return serve(lambda: Front(box, calls, agent, home / "front", None))


if __name__ == "__main__" and sys.argv[1:2] == ["carry"]:
    carry(
        sys.argv[2],
        sys.argv[3],
        str(os.getpid()),
        PatientBox(FolderBox(local_home() / "volume"), JOB_PATIENCE),
        setting("RGPU_AGENT"),
        str(local_home() / "gpu"),
    )
