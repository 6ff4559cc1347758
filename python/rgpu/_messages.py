"""What a command tells while it runs: its messages on stderr, and its events."""

from __future__ import annotations

import codecs
import re
import sys
from typing import Any

ANSI = re.compile(r"\x1b\[[0-9;]*m")
_ERROR = "error: "


class MessageWriter:
    """Writes the messages of a command to `sys.stderr`, line by line. A line that repeats the one before
    is left out. What begins with an error waits for `end`, because an exception may have it too."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._partial = self._last = ""
        self._held: list[str] = []

    def write(self, piece: bytes) -> None:
        *lines, self._partial = (self._partial + self._decoder.decode(piece)).split("\n")
        for line in lines:
            self._write_line(line + "\n")

    def flush(self) -> None:
        """Writes a last line without an end."""
        if self._partial:
            self._write_line(self._partial)
            self._partial = ""

    def end(self, *, has_exception: bool) -> None:
        """Writes what waits, without the error if an exception has it."""
        self.flush()
        rest = self._held
        errors = [index for index, line in enumerate(rest) if _is_error(line)]
        if has_exception and errors:
            del rest[errors[-1] :]
        self._held = []
        sys.stderr.write("".join(rest))
        sys.stderr.flush()

    def _write_line(self, line: str) -> None:
        if self._held or _is_error(line):
            self._held.append(line)
        elif line != self._last:
            self._last = line
            sys.stderr.write(line)
            sys.stderr.flush()


def _is_error(line: str) -> bool:
    return ANSI.sub("", line).startswith(_ERROR)


def describe_event(event: dict[str, Any]) -> str:
    """An event as text for users. Empty if it has nothing to tell them."""
    said = event.get("said")
    if said == "job":
        return _describe_job_event(event)
    texts = {
        "where": "on {remote}",
        "connecting": "connecting",
        "starting": "{what}",
        "asking": "asking the host for its GPUs and tools",
        "compiling": "compiling {what}",
        "disassembling": "disassemble with nvdisasm: {done} of {total}",
        "uploading": "uploading: {sent} of {total} bytes",
        "fetching": "fetching: {got} of {total} bytes",
        "link_lost": "connection lost: {why}; reconnecting in {retry_s} s. The job continues.",
        "link_back": "reconnected",
        "finished": "finished with exit status {exit}" if event.get("exit") else "finished",
    }
    return _filled(texts.get(said or "", ""), event)


def _describe_job_event(event: dict[str, Any]) -> str:
    kind = event.get("event")
    if kind == "rung_ended" and not event.get("ok"):
        return _filled("{rung} gave no usable result ({code}: {words})", event)
    if kind == "ended":
        outcome = event.get("outcome") or {}
        how = str(outcome.get("how", "")).replace("_", " ")
        return "" if how == "done" else f"the job ended: {outcome.get('text') or how}"
    texts = {
        "queued": "waiting for the GPU, position {place} in the queue",
        "gpu_locked": "using GPU {index}: {name}",
        "step_started": "{title}",
        "step_skipped": "left out `{step}`, which needs `{needs}`",
        "output_dropped": "{bytes} bytes of output were dropped",
    }
    return _filled(texts.get(kind or "", ""), event)


def _filled(text: str, event: dict[str, Any]) -> str:
    try:
        return text.format_map(event)
    except KeyError:
        return ""
