"""Calls: from keywords to the command line, and from its output to a result."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Mapping

from . import _error
from ._program import Call

if TYPE_CHECKING:
    from ._words import Progress

_HAVE_EVENTS = {"profile", "exec", "build", "compare"}


def run(command: str, given: Mapping[str, Any]) -> Any:
    """Runs a command with these keywords; returns its result."""
    call = prepare(command, given)
    status, out = call.run()
    return result(command, given, call, status, out)


def prepare(command: str, given: Mapping[str, Any]) -> Call:
    """The command line of these keywords."""
    from ._arguments import ARGUMENTS
    from ._words import to_argv

    given = dict(given)
    remote = given.get("remote")
    has_remotes = isinstance(remote, (list, tuple)) and len(remote) > 1
    if isinstance(remote, (list, tuple)):
        given["remote"] = ",".join(remote)
    elif isinstance(remote, str) and "," in remote:
        raise ValueError("give several remotes as a list")
    progress, cwd, stdin = given.get("progress"), given.get("cwd"), given.get("stdin")
    if callable(progress) and given.get("events") is not None:
        raise ValueError("`events` and a function as `progress` both take the events of the run")
    argv = [command, "--color=never"] if given.get("format") else [command, "--json"]
    return Call(
        argv + to_argv(ARGUMENTS[command], given),
        cwd=None if cwd is None else os.fspath(cwd),
        stdin=stdin.encode() if isinstance(stdin, str) else stdin,
        progress=progress,
        # Several runs at once have no events of their own.
        has_events=command in _HAVE_EVENTS and not given.get("sweep") and not has_remotes,
    )


def result(command: str, given: Mapping[str, Any], call: Call, status: int, out: bytes) -> Any:
    """The result of a command that has ended."""
    try:
        made = _result(command, given, call, status, out)
    except _error.Error as error:
        call.end_messages(has_exception=True)
        _add_hints(error, command, given, call)
        raise
    call.end_messages(has_exception=False)
    return made


def result_of_run(action: str, run: str, cwd: str | None, progress: Progress) -> Any:
    """The result of `rgpu runs attach` or `rgpu runs cancel`."""
    from ._documents import Document, class_of

    call = Call(["runs", "--json", action, run], cwd=cwd, progress=progress, has_events=action == "attach")
    status, out = call.run()
    try:
        document = _document(status, call, out)
    except _error.Error:
        call.end_messages(has_exception=True)
        raise
    call.end_messages(has_exception=False)
    made = (class_of(document) or Document)(document)
    made._set_origin(status, (), cwd)
    return made


def _document(status: int, call: Call, out: bytes) -> Any:
    """The document that a command printed.

    Raises: the error that it printed instead
    """
    try:
        document = json.loads(out)
    except ValueError:
        raise _error.of_messages(status, call.messages.decode("utf-8", "replace")) from None
    if isinstance(document, dict) and document.get("schema") == "rgpu.error/1":
        raise _error.of_document(document)
    return document


def _add_hints(error: _error.Error, command: str, given: Mapping[str, Any], call: Call) -> None:
    """Adds the next steps that only a caller from Python has."""
    if error.code == "start_failed" and command == "profile":
        name = _as_kernel(given.get("program"), call.cwd)
        if name:
            error.hints.insert(0, f'did you mean `kernel="{name}"`?')
    elif error.code == "no_profile" and "file" in error.place:
        record = os.path.join(os.path.dirname(error.place["file"]), "run.json")
        try:
            with open(record, encoding="utf-8") as file:
                state = json.load(file).get("state")
        except (OSError, ValueError):
            return
        if state in ("running", "detached"):
            error.hints.insert(0, f"the run is not fetched yet: `rgpu.load({record!r}).wait()` waits for its result")


def _as_kernel(program: Any, cwd: str | None) -> str | None:
    """The kernel that has the name of a program. None if there is none."""
    from ._words import as_list

    words = as_list(program)
    if len(words) != 1 or not isinstance(words[0], str):
        return None
    _, out = Call(["kernels", "--json", "list"], cwd=cwd, progress=False).run()
    try:
        names = [kernel["name"] for kernel in json.loads(out)["kernels"]]
    except (ValueError, KeyError):
        return None
    return words[0] if words[0] in names else None


def _result(command: str, given: Mapping[str, Any], call: Call, status: int, out: bytes) -> Any:
    if given.get("format"):
        if status != 0:
            raise _error.of_messages(status, call.messages.decode("utf-8", "replace"))
        return out.decode("utf-8", "replace")
    return _typed(command, given, call, status, _document(status, call, out))


def _typed(command: str, given: Mapping[str, Any], call: Call, status: int, document: Any) -> Any:
    from . import _types
    from ._documents import Records, class_of
    from ._words import as_list

    if given.get("lint"):
        return Records(_types.Finding, document)
    expected: type[Any] = {
        "profile": _types.Profile,
        "exec": _types.ExecResult,
        "build": _types.Build,
        "disasm": _types.Disasm,
        "report": _types.Profile,
        "compare": _types.Comparison,
    }[command]
    for keyword, kind in (
        ("diff", _types.DisasmDiff),
        ("view", _types.Code),
        ("hot", _types.HotSpots),
        ("mode", expected if command == "compare" else _types.Profile),
        ("sweep", _types.Suite),
        ("detach", _types.Run),
        ("dry_run", _types.Plan),
    ):
        if given.get(keyword):
            expected = kind
    found = class_of(document)
    # A list with one remote is a single run.
    if found is _types.FanOut and isinstance(given.get("remote"), (list, tuple)):
        expected = _types.FanOut
    if found is None or found is not expected:
        schema = document.get("schema") if isinstance(document, dict) else None
        result = found.__name__ if found else schema or "a document without a schema"
        raise _error.UnexpectedResult(
            f"`rgpu.{command}` returns `{expected.__name__}`, and the result is `{result}`",
            "`result` of this exception is it; `rgpu.load` reads such a document from a run folder",
            document,
        )
    made = found(document)
    origins = given.get("what") if command == "report" else given.get("out")
    made._set_origin(status, as_list(() if origins is None else origins), call.cwd)
    return made
