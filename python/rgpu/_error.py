"""Failures as exceptions. They have the fields of `rgpu.error/1`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._documents import Document

_LINE_BREAK = re.compile("\r\n|[\n\r\v\f\x85\u2028\u2029]")
_UNSEEN = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Characters that steer a terminal or reorder text."""


def _shown(text: str) -> str:
    """A text for a terminal. None of its lines but the first can look like one of ours."""
    lines = [_UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", line) for line in _LINE_BREAK.split(text)]
    return "\n    ".join(lines)


class Error(Exception):
    """A command failed: what happened, where, why, and what to do next."""

    def __init__(self, document: dict[str, Any]) -> None:
        super().__init__(document)
        error = document.get("error", {})
        self.document = document
        """The whole document."""
        self.code: str = error.get("code", "")
        """Stable code, e.g. `unknown_kernel`."""
        self.what: str = error.get("what", "")
        """The error in one line."""
        self.side: str = error.get("side", "local")
        """The side that failed: `local`, `transport`, `host`, `tool` or `kernel`."""
        self.place: dict[str, str] = error.get("place", {})
        """Where: `host`, `tool`, `step`, `file`, `log`, those that are known."""
        self.cause: str | None = error.get("cause")
        """Why: the underlying error, or the tool's message."""
        self.hints: list[str] = error.get("hints", [])
        """The next steps, each a sentence or a command."""
        self.exit_status: int = document.get("exit", 1)
        """The exit status of the command."""

    def __str__(self) -> str:
        lines = [_shown(self.what)]
        place = [f"{key} `{_shown(value)}`" for key, value in self.place.items()]
        if place:
            lines.append("  " + ", ".join(place))
        if self.cause:
            lines.append("  cause: " + _shown(self.cause.strip()))
        lines += ["  help: " + _shown(hint) for hint in self.hints]
        return "\n".join(lines)


class UsageError(Error):
    """The arguments are wrong."""


class ConfigError(Error):
    """The settings or kernel.toml are invalid, or a kernel, remote or source does not exist."""


class HostError(Error):
    """The host or the connection failed."""


class ToolError(Error):
    """A tool failed on every rung or below `at_least`, or nothing was measured on a GPU."""


class KernelError(Error):
    """The user's code does not compile, is wrong, crashes, or hits its time limit."""


class ArtifactError(Error):
    """A file cannot be read."""


class DiskError(Error):
    """A file cannot be written."""


class InternalError(Error):
    """A bug in rgpu."""


class Cancelled(Error):
    """The run was cancelled, but not by this program."""


class UnexpectedResult(Error):
    """The command did its work, and its result is of another kind than the function returns.
    `result` is that result, and `document` the same as a dict."""

    def __init__(self, message: str, hint: str, document: dict[str, Any]) -> None:
        super().__init__({"error": {"code": "unexpected_result", "what": message, "hints": [hint]}, "exit": 0})
        self.document = document

    @property
    def result(self) -> Document | None:
        """The result, such as a `Comparison`. None if this package does not know its schema."""
        from ._documents import class_of

        kind = class_of(self.document)
        return None if kind is None else kind(self.document)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.what, self.hints[0], self.document)


_KINDS = {
    "usage": UsageError,
    "config": ConfigError,
    "host": HostError,
    "tool": ToolError,
    "kernel": KernelError,
    "artifact": ArtifactError,
    "disk": DiskError,
    "bug": InternalError,
    "cancelled": Cancelled,
}
_STATUSES = {2: "usage", 3: "config", 4: "host", 5: "tool", 6: "kernel", 7: "artifact", 8: "disk", 70: "bug", 130: "cancelled"}


def of_document(document: dict[str, Any]) -> Error:
    """The exception of a document `rgpu.error/1`."""
    return _KINDS.get(document.get("error", {}).get("exit", ""), Error)(document)


def of_messages(status: int, messages: str) -> Error:
    """The exception of a command that printed its failure as text."""
    kind = _STATUSES.get(status, "")
    error = _printed_error(messages) or {"what": f"rgpu ended with status {status}"}
    return of_document({"error": {"code": kind, "exit": kind, **error}, "exit": status})


def of_program(status: int, what: str, messages: str) -> Error:
    """The exception of a program that failed, unless the messages of rgpu say more, such as a time limit."""
    error = {"code": "program_failed", "what": what, "side": "kernel", "exit": "kernel"}
    return of_document({"error": {**error, **_printed_error(messages)}, "exit": status})


def _printed_error(messages: str) -> dict[str, Any]:
    """The fields of the last error in messages. Empty if there is none."""
    from ._messages import ANSI

    error: dict[str, Any] = {}
    for line in ANSI.sub("", messages).splitlines():
        if line.startswith("error: "):
            error = {"what": line[7:], "cause": None, "hints": []}
        elif error and line.startswith("  cause: "):
            error["cause"] = line[9:]
        elif error and line.startswith("  help: "):
            error["hints"].append(line[8:])
    return error


def no_program() -> Error:
    """The exception of a machine without `rgpu`."""
    error = {
        "code": "no_program",
        "what": "the program `rgpu` is not installed",
        "hints": ["`uv tool install rgpu` or `pip install rgpu` installs both", "or name it in the variable RGPU"],
        "exit": "config",
    }
    return of_document({"error": error, "exit": 3})
