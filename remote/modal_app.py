"""rgpu's agent on Modal: what a user deploys once, with `modal deploy remote/modal_app.py`.

It only starts the agent. A container without a GPU, the front, serves the agent's HTTP face; each
job is handed to a container with a GPU, where the same agent carries it out. Between the two lie
numbered pieces on a Volume: what is said to the agent there (`in`), and all that comes back
(`out`). Pieces are written once and read in order, so a conversation can be played again from its
beginning: that is how a front that was stopped takes its jobs up, and why nothing is lost with it.

| of a job, `calls/JOB/` | written by | when |
|---|---|---|
| `ticket` | front | before a container is asked for: the one that is given this may have the job |
| `begun/TICKET` | container | the one of that ticket has it, under this id |
| `call` | front | the id of its call |
| `in/TRY/N`, `said` | front | what is said; which try holds the whole beginning |
| `out/N`, `done`, `died` | container | what comes back; it ended well, or not |
| `closed` | front | nobody waits for it any more: it ends, or does not even begin |
| `over` | front | its container is gone |

What can be set, in the environment of `modal deploy`, stands in `DEFAULTS`. It is one file, since
that is all that `modal deploy FILE` takes along by itself.

| part | what for |
|---|---|
| `DEFAULTS`, `image` | what runs where |
| `Box`, `FolderBox`, `VolumeBox`, `PatientBox` | where pieces lie |
| `Frames`, `carry` | the side with the GPU |
| `Calls`, `Front` | the side without one |
| `serve`, `local` | its HTTP: on Modal, and on any machine for tests |
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
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

import aiohttp
import modal
import modal.experimental

# Everything that a deployment may change, in one place.
DEFAULTS = {
    # The app's name, and the beginning of its URL.
    "RGPU_APP": "rgpu",
    # As Modal spells it. `B200+` may give a B300: each profile says which device it really got.
    "RGPU_GPU": "B200",
    # Empty: anywhere. Naming one costs more.
    "RGPU_REGION": "",
    # CUDA 12.9.1 brings Nsight Compute 2025.2.1. Nsight Compute 2026.2 (CUDA 13.3) wrote counters
    # that are all NaN on Modal's B200; rgpu refuses such a report, but then has no counters.
    "RGPU_IMAGE": "nvidia/cuda:12.9.1-devel-ubuntu22.04",
    "RGPU_APT": "nsight-compute-2025.2.1 nsight-systems-2025.1.3",
    "RGPU_PIP": "torch==2.9.1 triton==3.5.1 nvidia-cutlass-dsl==4.4.0",
    "RGPU_PYTHON": "3.12",
    # The agent, as `cargo xtask dist` builds it.
    "RGPU_AGENT": "target/dist/x86_64-unknown-linux-gnu/rgpu-agent-http",
    # Seconds that a job may take, and a request to the front (Modal's default of 300 would end
    # every stream there).
    "RGPU_JOB_TIMEOUT": "3600",
    "RGPU_FRONT_TIMEOUT": "3600",
    # Seconds that a container waits for more to do, and is paid for.
    "RGPU_IDLE": "60",
}


def setting(name: str) -> str:
    """What a deployment says, or the default."""
    return os.environ.get(name) or DEFAULTS[name]


# In a container, beside the agent.
AGENT = "/opt/rgpu/rgpu-agent-http"

# Seconds between two looks for a piece, and between two pieces of a stream that flows.
BEAT = 1.0

# Bytes of a piece at most.
PIECE = 8 << 20

# Seconds that a job may take to end once its front let go of it, and how often it is told to.
GRACE = 15.0
TOLD = 20

# Seconds that the platform's API may be out of reach: a front's conversation is then cut and played
# again, a container's is lost with all that its job did.
FRONT_PATIENCE = 30.0
JOB_PATIENCE = 300.0

# Seconds that requests wait for jobs that a new front takes up.
CATCH_UP = 60.0

# Seconds that a container waits to be told what to do, and one that is asked for facts alone runs.
BEGIN = 300.0
FACTS = 300.0

# Kinds of frames (remote/protocol/src/frame.rs).
MESSAGE = 0
HEADER = struct.Struct("<IB")
# What an agent says before its frames.
MAGIC = b"\x01rgpu-agent-stream-1\n"


class Box(Protocol):
    """Where pieces lie. What is there is whole, and never changes but for `front/`."""

    def put(self, name: str, data: bytes) -> None:
        """Keeps bytes under a name."""

    def put_all(self, files: dict[str, Path | bytes]) -> None:
        """Keeps files, or bytes, under their names."""

    def get(self, name: str) -> bytes | None:
        """The bytes, or `None` where there are none."""

    def names(self, folder: str) -> list[str]:
        """All names below a folder."""

    def remove(self, name: str) -> None:
        """Removes a name, or all below it."""


class FolderBox:
    """A folder of this machine."""

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
    """A Modal Volume, through its API: each upload is a commit, and nothing is mounted that would
    have to be loaded anew."""

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


# The platform's API is out of reach, or has too much to do: that may pass by itself.
AWAY = (
    modal.exception.ConnectionError,
    modal.exception.InternalError,
    modal.exception.ResourceExhaustedError,
    modal.exception.ServiceError,
)

# So may this, of what files and blobs are kept with.
PASSING = (*AWAY, OSError, aiohttp.ClientError)

T = TypeVar("T")


class PatientBox:
    """A box that may be out of reach for a while. All that is done to one may be done again."""

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
    """Reads frames out of a stream: just enough to know when a job has ended."""

    def __init__(self, preamble: bool) -> None:
        self.buffer = b""
        # The agent's first line comes before its frames.
        self.preamble = preamble

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
        """Kind, body and all bytes of each frame that is whole by now."""
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
    """Whether a frame is a job's terminal event."""
    if kind != MESSAGE or b'"ended"' not in body:
        return False
    message = json.loads(body)
    return bool(message.get("is") == "event" and message["event"].get("event") == "ended")


def ends_beginning(kind: int, body: bytes) -> bool:
    """Whether a frame is the last of what a relay says at the beginning of each conversation."""
    return kind == MESSAGE and json.loads(body).get("do") in ("detach", "facts")


def refused(code: str, text: str) -> bytes:
    """A frame that ends a job which no agent can end any more."""
    message = {"is": "refused", "request": "job", "code": code, "text": text}
    body = json.dumps(message).encode()
    return HEADER.pack(len(body), MESSAGE) + body


def carry(job: str, ticket: str, call: str, box: Box, agent: str, home: str) -> bool:
    """Carries a conversation out with an agent of this container, until its job has ended or the
    front has closed it. Whether nothing of it is left running."""
    base = f"calls/{job}"
    if box.get(f"{base}/begun/{ticket}") is not None:
        # Another container had it before, and is gone: what it did is done.
        box.put(f"{base}/died", b"its container was taken away; nothing was run a second time")
        return True
    # A front gives another ticket first and then looks for this: one of both sees the other.
    box.put(f"{base}/begun/{ticket}", call.encode())
    if box.get(f"{base}/ticket") != ticket.encode() or box.get(f"{base}/closed") is not None:
        # Another has it, or nobody waits for it any more.
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
            # An agent that hears nothing any more cannot be cancelled.
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
    """Tells an agent what the front says, until it has closed."""
    base, begun = f"calls/{job}", time.monotonic()
    folder, number = "", 1
    assert child.stdin
    while child.poll() is None:
        data = None
        if not folder:
            # Of a beginning that a front did not finish nothing is told.
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
    """Keeps what an agent says until its job has ended, or it says no more. Whether it ended."""
    frames, number, over, ended = Frames(preamble=True), 1, False, False
    while not over:
        data, begun = b"", time.monotonic()
        # What flows is gathered for a beat: each piece is a commit.
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
            # With the end itself: whoever heard of it finds all of the job.
            files[f"{base}/done"] = b""
        if files:
            box.put_all(files)
        number += len(data) > 0
    return ended


def has_ended(log: Path) -> bool:
    """Whether a job's event log has its last line."""
    with contextlib.suppress(FileNotFoundError), log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 65536))
        return b'"event":"ended"' in file.read()
    return False


def in_words(error: Exception) -> str:
    """What it says, or at least its name."""
    return str(error) or type(error).__name__


class Calls(Protocol):
    """Containers with a GPU."""

    def spawn(self, job: str, ticket: str) -> str:
        """Starts one for a job; its id."""

    def over(self, call: str) -> str | None:
        """Why it is over, or `None` while it is not."""

    def cancel(self, call: str) -> None:
        """Ends it."""


class FunctionCalls:
    """Those of Modal."""

    def spawn(self, job: str, ticket: str) -> str:
        return str(on_gpu.spawn(job, ticket).object_id)

    def over(self, call: str) -> str | None:
        try:
            modal.FunctionCall.from_id(call).get(timeout=0)
        except (TimeoutError, *AWAY):
            # It is not over, or nobody can say now.
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
    """The side that clients speak to: the agent's server, and the way from its jobs to containers.

    `token` is what requests to that server are given; `None`: clients show it themselves."""

    def __init__(self, box: Box, calls: Calls, agent: str, home: Path, token: str | None) -> None:
        self.box, self.calls, self.agent = box, calls, agent
        self.home, self.token = home, token
        self.token_file = home / "token"
        # The agent's folder, and its way to containers.
        self.root, self.way = home / "agent", home / "way"
        self.url = ""
        self.server: asyncio.subprocess.Process | None = None
        self.session: aiohttp.ClientSession | None = None
        self.starting = asyncio.Lock()
        # Sizes and times of files that the box has.
        self.mirrored: dict[str, tuple[int, int]] = {}
        # Jobs with pieces, and ended ones whose pieces are gone.
        self.known: set[str] = set()
        self.tidied: set[str] = set()
        # Jobs that ended before this front began.
        self.finished: set[str] = set()
        self.tasks: set[asyncio.Future[None]] = set()
        self.stopping = False
        self.mirroring = threading.Lock()

    async def start(self) -> None:
        """Starts all that is needed, once."""
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
        """Starts the agent's server; again, when it is gone."""
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
        """Waits until jobs that have ended are whole again: their clients may know that already, and
        ask for their files."""
        end, waiting = time.monotonic() + CATCH_UP, self.finished
        while waiting and time.monotonic() < end:
            waiting = {job for job in waiting if not has_ended(self.root / job / "events.jsonl")}
            await asyncio.sleep(0.05)
        self.finished = set()

    def keep(self, work: Awaitable[None]) -> None:
        """Lets something go on beside."""
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def restore(self) -> list[str]:
        """Brings back what an earlier front kept; the conversations that nobody goes on with."""
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
        """Keeps blobs, plans and all of ended jobs. What a running job says is in its pieces."""
        for again in range(3):
            try:
                return self.mirror_now()
            except FileNotFoundError:
                # Something was removed while it was looked at.
                if again == 2:
                    raise

    def mirror_now(self) -> None:
        with self.mirroring:
            root = self.root
            found = root.glob("blobs/[0-9a-f][0-9a-f]/*")
            kept = {f"front/{path.relative_to(root)}": path for path in found if path.is_file()}
            new = {name: path for name, path in kept.items() if self.is_news(name, path)}
            files: dict[str, Path | bytes] = dict(new)
            tidy = []
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
                        # Its events come anew from the pieces.
                        is_log = path == job / "events.jsonl"
                        files[name] = b"" if is_log else path
                        self.mirrored[name] = (0, 0)
                if ended and job.name not in self.tidied:
                    tidy.append(job.name)
            states = {name: path.stat() for name, path in new.items()}
            if files:
                self.box.put_all(files)
            for name, state in states.items():
                self.mirrored[name] = (state.st_size, state.st_mtime_ns)
            for job_id in tidy:
                # All of it is kept in the form that clients ask for.
                self.box.remove(f"calls/{job_id}/in")
                self.box.remove(f"calls/{job_id}/out")
                self.tidied.add(job_id)
            for name in set(self.mirrored) - set(kept):
                self.box.remove(name)
                del self.mirrored[name]
            # What its client has brought home is forgotten.
            for job_id in [job for job in self.known if not (root / "jobs" / job).exists()]:
                if self.box.get(f"calls/{job_id}/over") is not None:
                    self.box.remove(f"calls/{job_id}")
                    self.known.discard(job_id)

    def is_news(self, name: str, path: Path) -> bool:
        """Whether the box has another state of a file."""
        state = path.stat()
        return self.mirrored.get(name) != (state.st_size, state.st_mtime_ns)

    async def mirror_for_ever(self) -> None:
        while True:
            # What cannot be kept now is kept later.
            with contextlib.suppress(OSError, modal.exception.Error):
                await asyncio.to_thread(self.mirror)
            await asyncio.sleep(2 * BEAT)

    async def converse(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """One conversation: `facts` or `job NAME`, and frames both ways. One that is cut, for the
        box's sake too, is begun again by whoever is at the other end, and says nothing of its job."""
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
            # The agent's server closes when it has all, or wants no more.
            await asyncio.wait([told], timeout=GRACE)
        finally:
            pieces.cancel()
            told.cancel()
        # The server's end is not the job's.
        if not self.stopping:
            await self.leave(base)

    def begin(self, base: str, job: str) -> str:
        """Starts a container for a job, or finds the one that an earlier front started and did not
        live to note; its id."""
        # A job is kept before it is begun.
        self.mirror()
        before, ticket = self.box.get(f"{base}/ticket"), secrets.token_hex(4)
        self.box.put(f"{base}/ticket", ticket.encode())
        begun = self.box.get(f"{base}/begun/{before.decode()}") if before else None
        return begun.decode() if begun else self.calls.spawn(job, ticket)

    async def leave(self, base: str) -> None:
        """Lets a container go that nobody waits for, and ends one that does not."""
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
        """Keeps what is said to the agent there. What a conversation begins with is said once, as
        soon as all of it is there."""
        said = await asyncio.to_thread(self.box.get, f"{base}/said")
        folder = f"{base}/in/{said.decode() if said else secrets.token_hex(4)}"
        number = 1 + (len(await asyncio.to_thread(self.box.names, folder)) if said else 0)
        frames, begun = Frames(preamble=False), False
        while data := await reader.read(PIECE):
            # What comes at once is one piece.
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
        """Tells what the agent there says, until the end."""
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
                # Kept after the last piece: look once more.
                if await asyncio.to_thread(self.box.get, f"{base}/out/{number:06}") is not None:
                    continue
                if number == 1:
                    writer.write(MAGIC + refused("pieces_gone", "what it said is there no more"))
                    await writer.drain()
                return
            if over is not None:
                died = await asyncio.to_thread(self.box.get, f"{base}/died")
                text = died.decode() if died else over
                # Before its first piece nothing was said that this could stand within.
                line = b"" if number > 1 else MAGIC
                writer.write(line + refused("container_died", text))
                await writer.drain()
                return
            await asyncio.sleep(BEAT)
            if time.monotonic() - looked > 3 * BEAT:
                looked = time.monotonic()
                over = await asyncio.to_thread(self.calls.over, call)

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hands a request to the agent's server, and its answer back, both as they flow."""
        await self.start()
        assert self.session
        dropped = {b"host", b"connection", b"transfer-encoding"}
        if self.token is not None:
            dropped |= {b"authorization", b"modal-key", b"modal-secret"}
        headers = [(n.decode(), v.decode()) for n, v in scope["headers"] if n not in dropped]
        if self.token is not None:
            headers.append(("authorization", f"Bearer {self.token}"))
        gone = asyncio.Event()

        async def body() -> AsyncIterator[bytes]:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    gone.set()
                    return
                if message.get("body"):
                    yield message["body"]
                if not message.get("more_body"):
                    return

        async def leave() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        path = scope["raw_path"].decode()
        query = scope["query_string"].decode()
        url = self.url + path + (f"?{query}" if query else "")
        has_body = scope["method"] in ("POST", "PUT", "PATCH")
        async with self.session.request(
            scope["method"],
            yarl_exact(url),
            headers=headers,
            data=body() if has_body else None,
            allow_redirects=False,
            skip_auto_headers=["user-agent", "accept", "content-type", "accept-encoding"],
        ) as reply:
            if (scope["method"], path) == ("POST", "/v1/jobs") and reply.status == 200:
                # What is answered for is kept: the next front takes it up.
                await asyncio.to_thread(self.mirror)
            kept = {b"connection", b"transfer-encoding", b"keep-alive"}
            told = [(n.lower(), v) for n, v in reply.raw_headers if n.lower() not in kept]
            await send({"type": "http.response.start", "status": reply.status, "headers": told})
            leaving = asyncio.ensure_future(leave())
            try:
                while True:
                    piece = asyncio.ensure_future(reply.content.readany())
                    await asyncio.wait([piece, leaving], return_when=asyncio.FIRST_COMPLETED)
                    if not piece.done():
                        piece.cancel()
                        return
                    data = piece.result()
                    if not data and reply.content.at_eof():
                        break
                    await send({"type": "http.response.body", "body": data, "more_body": True})
            finally:
                leaving.cancel()
            await send({"type": "http.response.body", "body": b"", "more_body": False})

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
    """The URL with its escapes as the client wrote them."""
    from yarl import URL

    return URL(url, encoded=True)


Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]


def serve(make: Callable[[], Front]) -> Asgi:
    """The front as an ASGI application."""
    made: list[Front] = []

    def front() -> Front:
        # Made where its event loop runs.
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
    """The agent as a program: a file that was added to an image need not be one."""
    copy = shutil.copy(agent, f"{folder}/rgpu-agent-http")
    os.chmod(copy, 0o700)
    return copy


image = (
    modal.Image.from_registry(setting("RGPU_IMAGE"), add_python=setting("RGPU_PYTHON"))
    .apt_install(*setting("RGPU_APT").split())
    .pip_install("aiohttp", *setting("RGPU_PIP").split())
    # What was set here is set there.
    .env({name: setting(name) for name in DEFAULTS})
)
if modal.is_local():
    # One that is not there ends the deployment.
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
    """One job in a container with a GPU."""
    whole, call = False, modal.current_function_call_id() or ""
    with tempfile.TemporaryDirectory(prefix="rgpu-") as home:
        try:
            box = PatientBox(VolumeBox(volume), JOB_PATIENCE)
            whole = carry(job, ticket, call, box, runnable(AGENT, home), f"{home}/agent")
        except Exception as error:
            # In words alone: the front cannot tell one of another kind from its own.
            raise RuntimeError(in_words(error)) from None
        finally:
            if not whole:
                # What may still run goes with its container.
                modal.experimental.stop_fetching_inputs()


@app.function(
    region=region,
    timeout=int(setting("RGPU_FRONT_TIMEOUT")),
    scaledown_window=max(300, int(setting("RGPU_IDLE"))),
    # Its jobs' folders are its own.
    max_containers=1,
)
@modal.concurrent(max_inputs=500)
@modal.asgi_app(requires_proxy_auth=True)
def front() -> Asgi:
    """What clients speak to. Modal asks for the proxy token before anything reaches it."""
    home = Path(tempfile.mkdtemp(prefix="rgpu-"))
    token, agent = secrets.token_urlsafe(32), runnable(AGENT, str(home))
    box = PatientBox(VolumeBox(volume), FRONT_PATIENCE)
    return serve(lambda: Front(box, FunctionCalls(), agent, home, token))


# On any machine.


class Processes:
    """Containers played by processes of this machine."""

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
        # Of an earlier front: it may live.
        if child is None and Path(f"/proc/{call}").exists():
            return None
        return "the container ended"

    def cancel(self, call: str) -> None:
        if call in self.running:
            self.running[call].kill()


def local_home() -> Path:
    """Where everything lies that Modal would keep, with the token's file `front/token`."""
    return Path(os.environ["RGPU_LOCAL"])


def local() -> Asgi:
    """The same front with a folder for the Volume and processes for containers: for tests, with
    `uvicorn --factory modal_app:local`."""
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
