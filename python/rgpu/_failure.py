"""Functions of `rgpu.kernel` that failed on the host: at which point, and why."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Mapping

from ._documents import is_program_step, read_log
from ._error import KernelError

if TYPE_CHECKING:
    from ._types import Profile

    Points = Mapping[str, Mapping[str, Any]]

_MARK = "rgpu.kernel: "
"""How lines on stderr begin that `_host.py` writes for us."""

_MAX_CAUSE_LINES = 20


def of_error(error: KernelError, cwd: Any, function: str, points: Points) -> KernelError:
    """The error of a run, with the function and the point."""
    # Another step, such as that of the packages, has failed by itself.
    step = error.place.get("step", "")
    if not is_program_step(step):
        return error
    folder = os.path.join(cwd or "", error.place.get("log", ""))
    return _describe(error.document, read_log(folder, f"{step}.stderr"), function, points)


def check(profile: Profile, mode: str, function: str, points: Points) -> None:
    """Raises: the function failed, although there is a profile"""
    stderr = profile.stderr
    # In mode `sanitizer` the status tells of faults, which are results.
    codes = {warning["code"] for warning in profile.warnings.to_dicts() if mode != "sanitizer"}
    if "program_status" not in codes and not _failed_point(stderr)[0]:
        return
    hint = f'`rgpu.report("{profile.run.id}")` has what was measured before'
    error = {"code": "program_failed", "side": "kernel", "hints": [hint], "exit": "kernel"}
    document = {"schema": "rgpu.error/1", "exit": profile.exit_status or 1, "error": error}
    raise _describe(document, stderr, function, points)


def has_no_nvtx(profile: Profile) -> bool:
    """Whether the host had no NVTX, so that no range was opened."""
    return f"{_MARK}no NVTX library" in profile.stderr.splitlines()


def _describe(document: dict[str, Any], stderr: str, function: str, points: Points) -> KernelError:
    error = document["error"]
    point, lines = _failed_point(stderr)
    cause = _end(lines)
    if point:
        why = _exception_line(lines)
    else:
        # It was stopped or crashed, and could not say where.
        why, cause = error.get("what", ""), error.get("cause") or _end(stderr.splitlines())
        point = next(iter(points)) if len(points) == 1 else ""
    arguments = ", ".join(f"{name}={value!r}" for name, value in points.get(point, {}).items())
    fields = {
        "what": f"`{function}` failed" + (f" at {arguments}" if arguments else "") + (f": {why}" if why else ""),
        "place": {**error.get("place", {}), **({"point": point} if point else {})},
        "cause": cause or None,
    }
    return KernelError({**document, "error": {**error, **fields}})


def _end(lines: list[str]) -> str:
    return "\n".join(lines[-_MAX_CAUSE_LINES:])


def _failed_point(stderr: str) -> tuple[str, list[str]]:
    """The point where the function failed, and the lines that follow. Empty if it did not say."""
    lines = stderr.splitlines()
    for index in range(len(lines) - 1, -1, -1):
        mark, is_there, point = lines[index].partition(f"{_MARK}failed at ")
        if is_there and not mark:
            return point, lines[index + 1 :]
    return "", []


def _exception_line(lines: list[str]) -> str:
    """The line of a traceback that names the exception. Its message may have more lines."""
    starts = [index for index, line in enumerate(lines) if line.startswith("Traceback (most recent call last)")]
    named = (line for line in lines[(starts or [-1])[-1] + 1 :] if line.strip() and not line.startswith(" "))
    return next(named, "")
