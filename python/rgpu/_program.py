"""Finds the program `rgpu` and runs it."""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Optional

from . import _error
from ._messages import MessageWriter, describe_event

if TYPE_CHECKING:
    from ._words import Progress

_STOP_TIMEOUT_S = 300.0
"""How long a command may take to stop its job on the host."""

_SECOND_STOP_TIMEOUT_S = 10.0
"""How long it may take to end after that, without waiting for the host."""

_found: str | None = None


def find() -> str:
    """The path of `rgpu`: from this package's wheel, else from the variable RGPU, else from PATH."""
    global _found
    if _found is None or not os.access(_found, os.X_OK):
        _found = _installed() or os.environ.get("RGPU") or shutil.which("rgpu")
    if _found is None:
        raise _error.no_program()
    return _found


def _installed() -> str | None:
    """The program that was installed with this package, by the list of files of its wheel."""
    packages = Path(__file__).resolve().parent.parent
    for record in packages.glob("rgpu-*.dist-info/RECORD"):
        for line in record.read_text(encoding="utf-8").splitlines():
            name = line.split(",", 1)[0]
            if name.endswith("bin/rgpu"):
                program = Path(os.path.normpath(packages / name))
                return str(program) if program.is_file() else None
    return None


class Call:
    """A command line that runs once."""

    def __init__(
        self,
        argv: list[str],
        *,
        cwd: str | None = None,
        stdin: bytes | None = None,
        progress: Progress = None,
        has_events: bool = False,
    ) -> None:
        self.argv, self.cwd, self.stdin = argv, cwd, stdin
        self.progress, self.has_events = progress, has_events
        self.messages = bytearray()
        self._writer: MessageWriter | None = None
        self.process: Optional[subprocess.Popen[bytes]] = None
        self.cancelled = False

    def run(self) -> tuple[int, bytes]:
        """Runs it to its end; returns the exit status and what it printed.

        An exception on the way, such as KeyboardInterrupt, stops the command, and with it the job on the
        host, and waits for its end, for five minutes at most. A second one does not wait for the host.
        """
        inherits, shows_messages = self._messages_go_to()
        self._writer = MessageWriter() if shows_messages else None
        on_event = self.progress if callable(self.progress) else None
        program = find()
        events = os.pipe() if on_event and self.has_events else None
        flags = [] if inherits or shows_messages else ["--quiet"]
        if events:
            flags.append(f"--events=/dev/fd/{events[1]}")
        # The flags of rgpu itself come behind the command's name, before its `--`.
        argv = [program, *self.argv[:1], *flags, *self.argv[1:]]
        try:
            self.process = subprocess.Popen(
                argv,
                cwd=self.cwd,
                stdin=subprocess.DEVNULL if self.stdin is None else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=None if inherits else subprocess.PIPE,
                pass_fds=[events[1]] if events else [],
                # A session of its own: Ctrl-C at a terminal reaches it once, from us.
                start_new_session=True,
            )
        except BaseException as error:
            for end in events or ():
                os.close(end)
            has_folder = self.cwd is None or os.path.isdir(self.cwd)
            if isinstance(error, FileNotFoundError) and has_folder:
                raise _error.no_program() from error
            raise
        if events:
            os.close(events[1])
        try:
            out = self._read(on_event, events[0] if events else None)
            return self.process.wait(), out
        except BaseException:
            self._stop(events[0] if events else None)
            self.end_messages(has_exception=False)
            raise
        finally:
            if events:
                os.close(events[0])
            for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
                if stream is not None:
                    try:
                        stream.close()
                    except BrokenPipeError:
                        pass

    def _messages_go_to(self) -> tuple[bool, bool]:
        """Whether messages go to the terminal, and whether they are written to `sys.stderr`."""
        inherits = self.progress is None and _is_terminal()
        return inherits, self.progress is True or (self.progress is None and not inherits and _is_notebook())

    def is_silent(self) -> bool:
        """Whether nobody has asked for messages or refused them, and there is nobody to show them to."""
        return self.progress is None and not any(self._messages_go_to())

    def end_messages(self, *, has_exception: bool) -> None:
        """Writes the messages that wait: an error is shown once, and an exception shows it."""
        if self._writer is not None:
            self._writer.end(has_exception=has_exception)

    def interrupt(self) -> None:
        """Asks the command to stop, as Ctrl-C does."""
        self.cancelled = True
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)

    def _read(self, on_event: Callable[[dict[str, Any]], object] | None, events: int | None) -> bytes:
        """Reads all that the command writes until it closes its output; writes its standard input."""
        process = self.process
        assert process is not None and process.stdout is not None
        out = bytearray()
        rest = memoryview(self.stdin or b"")
        lines = bytearray()
        if self.cancelled:
            self.interrupt()
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            if process.stderr is not None:
                selector.register(process.stderr, selectors.EVENT_READ)
            if events is not None:
                selector.register(events, selectors.EVENT_READ)
            if process.stdin is not None:
                os.set_blocking(process.stdin.fileno(), False)
                selector.register(process.stdin, selectors.EVENT_WRITE)
            # What the command has started may hold the other pipes open after its end.
            while process.stdout in selector.get_map() or selector.select(0):
                for key, _ in selector.select():
                    if process.stdin is not None and key.fileobj is process.stdin:
                        rest = self._write(process, rest)
                        if not rest:
                            selector.unregister(process.stdin)
                            process.stdin.close()
                        continue
                    piece = os.read(key.fd, 1 << 16)
                    if not piece:
                        selector.unregister(key.fileobj)
                    elif key.fileobj is process.stdout:
                        out += piece
                    elif key.fileobj is process.stderr:
                        self.messages += piece
                        if self._writer is not None:
                            self._writer.write(piece)
                    elif on_event is not None:
                        *whole, last = (lines + piece).split(b"\n")
                        lines = bytearray(last)
                        for line in whole:
                            event = json.loads(line)
                            event.setdefault("text", describe_event(event))
                            on_event(event)
        if self._writer is not None:
            self._writer.flush()
        return bytes(out)

    @staticmethod
    def _write(process: subprocess.Popen[bytes], rest: memoryview) -> memoryview:
        """Writes a part of the standard input; returns what is left."""
        assert process.stdin is not None
        try:
            return rest[os.write(process.stdin.fileno(), rest[: 1 << 16]) :] if rest else rest
        except BrokenPipeError:
            return rest[:0]

    def _stop(self, events: int | None) -> None:
        """Stops the command and waits for its end. After another Ctrl-C, or after the time limit, it no
        longer waits for the host."""
        assert self.process is not None
        for stop, seconds in (
            (self.interrupt, _STOP_TIMEOUT_S),
            (self.interrupt, _SECOND_STOP_TIMEOUT_S),
            (self.process.kill, _SECOND_STOP_TIMEOUT_S),
        ):
            try:
                stop()
                if self._drain(events, seconds):
                    return
            except KeyboardInterrupt:
                continue

    def _drain(self, events: int | None, seconds: float) -> bool:
        """Discards the rest of the command's output, because a full pipe would block it. Returns whether
        the command ended in time."""
        process = self.process
        assert process is not None
        if process.stdin is not None:
            try:
                process.stdin.close()
            except BrokenPipeError:
                pass
        end = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            for pipe in (process.stdout, process.stderr, events):
                if pipe is not None:
                    selector.register(pipe, selectors.EVENT_READ)
            while process.poll() is None and time.monotonic() < end:
                for key, _ in selector.select(0.05):
                    if not os.read(key.fd, 1 << 16):
                        selector.unregister(key.fileobj)
        return process.poll() is not None


def _is_terminal() -> bool:
    """Whether messages reach a terminal: stderr may be closed, or replaced by an object."""
    stream = sys.__stderr__
    return stream is not None and sys.stderr is stream and not stream.closed and stream.isatty()


def _is_notebook() -> bool:
    """Whether this runs in a kernel of Jupyter."""
    return "ipykernel" in sys.modules
