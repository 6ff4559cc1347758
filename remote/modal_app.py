"""rgpu's agent on Modal: what a user deploys once, with `modal deploy remote/modal_app.py`.

It only starts the agent. A container without a GPU, the front, serves the agent's HTTP face; each
job is handed to a container with a GPU, where the same agent carries it out. Between the two lie
numbered pieces on a Volume: what is said to the agent there (`in`), and all that comes back
(`out`). Pieces are written once and read in order, so a conversation can be played again from its
beginning: that is how a front that was stopped takes its jobs up, and why nothing is lost with it.

What can be set, in the environment of `modal deploy`, stands in `DEFAULTS`.

| part | what for |
|---|---|
| `DEFAULTS`, `image` | what runs where |
| `Box`, `FolderBox`, `VolumeBox` | where pieces lie |
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
from typing import Any, Protocol

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

# Seconds that a job may take to end once its front let go of it.
GRACE = 15.0

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


def refused(code: str, text: str) -> bytes:
    """A frame that ends a job which no agent can end any more."""
    message = {"is": "refused", "request": "job", "code": code, "text": text}
    body = json.dumps(message).encode()
    return HEADER.pack(len(body), MESSAGE) + body


def carry(job: str, box: Box, agent: str, home: str) -> bool:
    """Carries a conversation out with an agent of this container, until its job has ended or the
    front has closed it. Whether nothing of it is left running."""
    base = f"calls/{job}"
    if box.get(f"{base}/begun") is not None:
        # Another container had it before, and is gone: what it did is done.
        box.put(f"{base}/died", b"its container was taken away; nothing was run a second time")
        return True
    box.put(f"{base}/begun", b"")
    os.makedirs(home, mode=0o700, exist_ok=True)
    child = subprocess.Popen(
        [agent, "stdio"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "RGPU_AGENT_HOME": home},
    )
    assert child.stdin and child.stdout
    out: queue.Queue[bytes] = queue.Queue()

    def read() -> None:
        fd = child.stdout.fileno() if child.stdout else -1
        while data := os.read(fd, 1 << 20):
            out.put(data)
        out.put(b"")

    def write() -> None:
        number = 1
        while child.poll() is None and child.stdin:
            data = box.get(f"{base}/in/{number:06}")
            if data is not None:
                with contextlib.suppress(BrokenPipeError):
                    child.stdin.write(data)
                    child.stdin.flush()
                number += 1
            elif box.get(f"{base}/closed") is not None:
                child.stdin.close()
                return
            else:
                time.sleep(BEAT)

    for task in (read, write):
        threading.Thread(target=task, daemon=True).start()
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
        if data:
            box.put(f"{base}/out/{number:06}", data)
            number += 1
    ended = ended or job.startswith("facts-")
    if ended:
        box.put(f"{base}/done", b"")
    else:
        box.put(f"{base}/died", b"the agent in its container ended before the job")
    child.terminate()
    return ended


def has_ended(log: Path) -> bool:
    """Whether a job's event log has its last line."""
    with contextlib.suppress(FileNotFoundError), log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 65536))
        return b'"event":"ended"' in file.read()
    return False


class Calls(Protocol):
    """Containers with a GPU."""

    def spawn(self, job: str) -> str:
        """Starts one for a job; its id."""

    def over(self, call: str) -> str | None:
        """Why it is over, or `None` while it is not."""

    def cancel(self, call: str) -> None:
        """Ends it."""


class FunctionCalls:
    """Those of Modal."""

    def spawn(self, job: str) -> str:
        return str(on_gpu.spawn(job).object_id)

    def over(self, call: str) -> str | None:
        try:
            modal.FunctionCall.from_id(call).get(timeout=0)
        except TimeoutError:
            return None
        except modal.exception.FunctionTimeoutError:
            return f"the container reached its time limit of {setting('RGPU_JOB_TIMEOUT')} s"
        except Exception as error:  # noqa: BLE001 - whatever it was, the job is over
            return f"the container failed: {error}"
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
        # The agent's folder.
        self.root = home / "agent"
        self.url = ""
        self.server: asyncio.subprocess.Process | None = None
        self.session: aiohttp.ClientSession | None = None
        self.starting = asyncio.Lock()
        # Sizes and times of files that the box has.
        self.mirrored: dict[str, tuple[int, int]] = {}
        # Jobs with pieces, and ended ones whose pieces are gone.
        self.known: set[str] = set()
        self.tidied: set[str] = set()
        self.tasks: set[asyncio.Future[None]] = set()
        self.stopping = False
        self.mirroring = threading.Lock()

    async def start(self) -> None:
        """Starts all that is needed, once."""
        async with self.starting:
            if self.session is not None:
                return
            self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self.token is not None:
                self.token_file.touch(mode=0o600)
                self.token_file.write_text(self.token)
            self.root.mkdir(mode=0o700, exist_ok=True)
            await asyncio.to_thread(self.restore, self.root)
            way = str(self.home / "way")
            Path(way).unlink(missing_ok=True)
            await asyncio.start_unix_server(self.converse, way, limit=PIECE)
            self.server = await asyncio.create_subprocess_exec(
                self.agent,
                *("serve", "--listen", "127.0.0.1:0", "--token-file", str(self.token_file)),
                *("--hand-over", way),
                stdout=asyncio.subprocess.PIPE,
                env={**os.environ, "RGPU_AGENT_HOME": str(self.root)},
            )
            assert self.server.stdout
            line = (await self.server.stdout.readline()).decode()
            if "http://" not in line:
                raise RuntimeError(f"the agent's server did not start: {line!r}")
            self.url = line[line.index("http://") :].strip()
            self.session = aiohttp.ClientSession(
                auto_decompress=False, timeout=aiohttp.ClientTimeout(total=None)
            )
            self.keep(self.mirror_for_ever())

    def keep(self, work: Awaitable[None]) -> None:
        """Lets something go on beside."""
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def restore(self, root: Path) -> None:
        """Brings back what an earlier front kept."""
        self.known |= {name.split("/")[1] for name in self.box.names("calls")}
        for name in self.box.names("front"):
            data = self.box.get(name)
            path = root / name.removeprefix("front/")
            if data is None or path.exists():
                continue
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.write_bytes(data)
            path.chmod(0o600)
            self.mirrored[name] = (len(data), path.stat().st_mtime_ns)

    def mirror(self) -> None:
        """Keeps blobs, plans and all of ended jobs. What a running job says is in its pieces."""
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
        """One conversation: `facts` or `job NAME`, and frames both ways."""
        words = (await reader.readline()).decode().split()
        job = words[1] if len(words) == 2 else f"facts-{secrets.token_hex(8)}"
        base = f"calls/{job}"
        self.known.add(job)
        known = await asyncio.to_thread(self.box.get, f"{base}/call")
        if known is None:
            # Whoever finds this and no id cannot know whether a container was started.
            await asyncio.to_thread(self.box.put, f"{base}/call", b"")
            try:
                # A job is kept before it is begun.
                await asyncio.to_thread(self.mirror)
                call = await asyncio.to_thread(self.calls.spawn, job)
            except Exception as error:  # noqa: BLE001 - none was started, whatever it was
                await asyncio.to_thread(self.box.remove, base)
                text = f"no container can be started: {error}"
                writer.write(MAGIC + refused("no_container", text))
                writer.close()
                return
            await asyncio.to_thread(self.box.put, f"{base}/call", call.encode())
        else:
            call = known.decode()
        pieces = asyncio.ensure_future(self.pass_out(base, call, writer))
        told = asyncio.ensure_future(self.pass_in(base, known is not None, reader))
        await asyncio.wait([pieces, told], return_when=asyncio.FIRST_COMPLETED)
        pieces.cancel()
        with contextlib.suppress(OSError):
            writer.close()
        # The agent's server closes when it has all, or wants no more.
        await asyncio.wait([told], timeout=GRACE)
        told.cancel()
        if self.stopping:
            # The server's end is not the job's.
            return
        await asyncio.to_thread(self.box.put, f"{base}/closed", b"")
        end = time.monotonic() + GRACE
        while call and await asyncio.to_thread(self.calls.over, call) is None:
            if time.monotonic() > end:
                await asyncio.to_thread(self.calls.cancel, call)
                break
            await asyncio.sleep(BEAT)
        await asyncio.to_thread(self.box.put, f"{base}/over", b"")

    async def pass_in(self, base: str, again: bool, reader: asyncio.StreamReader) -> None:
        """Keeps what is said to the agent there. What a conversation begins with is said once."""
        frames, number = Frames(preamble=False), 1
        if again:
            number += len(await asyncio.to_thread(self.box.names, f"{base}/in"))
        while data := await reader.read(PIECE):
            for kind, body, raw in frames.feed(data) if again else []:
                if kind == MESSAGE and json.loads(body).get("do") == "detach":
                    again = False
                    data = frames.buffer
            if again or not data:
                continue
            # What comes at once is one piece.
            with contextlib.suppress(asyncio.TimeoutError):
                while len(data) < PIECE:
                    more = await asyncio.wait_for(reader.read(PIECE), 0.05)
                    if not more:
                        break
                    data += more
            await asyncio.to_thread(self.box.put, f"{base}/in/{number:06}", data)
            number += 1

    async def pass_out(self, base: str, call: str, writer: asyncio.StreamWriter) -> None:
        """Tells what the agent there says, until the end."""
        number, looked = 1, time.monotonic()
        over: str | None = None
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
                over = await asyncio.to_thread(self.calls.over, call) if call else "the front died"

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
def on_gpu(job: str) -> None:
    """One job in a container with a GPU."""
    with tempfile.TemporaryDirectory(prefix="rgpu-") as home:
        if not carry(job, VolumeBox(volume), runnable(AGENT, home), f"{home}/agent"):
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
    return serve(lambda: Front(VolumeBox(volume), FunctionCalls(), agent, home, token))


# On any machine.


class Processes:
    """Containers played by processes of this machine."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def spawn(self, job: str) -> str:
        child = subprocess.Popen([sys.executable, __file__, "carry", job])
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
    box, calls = FolderBox(home / "volume"), Processes(home)
    return serve(lambda: Front(box, calls, agent, home / "front", None))


if __name__ == "__main__" and sys.argv[1:2] == ["carry"]:
    carry(
        sys.argv[2],
        FolderBox(local_home() / "volume"),
        setting("RGPU_AGENT"),
        str(local_home() / "gpu"),
    )
