# The types of `aio.py`. Made by `cargo xtask schemas`; do not edit.
from typing import Literal, Sequence, overload

from typing_extensions import Unpack

from . import _commands as of
from ._documents import Records
from ._types import Build, Code, Comparison, Disasm, DisasmDiff, ExecResult, FanOut, Finding, HotSpots, Plan, Profile, Run, Suite
from ._words import Pairs, Path

@overload
async def profile(
    program: str | Sequence[str] = ...,
    *,
    detach: Literal[False] = ...,
    dry_run: Literal[True],
    remote: str | None = ...,
    sweep: None = ...,
    **options: Unpack[of.ProfileOptions],
) -> Plan: ...
@overload
async def profile(
    program: str | Sequence[str] = ...,
    *,
    detach: Literal[True],
    dry_run: Literal[False] = ...,
    remote: str | None = ...,
    sweep: None = ...,
    **options: Unpack[of.ProfileOptions],
) -> Run: ...
@overload
async def profile(
    program: str | Sequence[str] = ...,
    *,
    detach: Literal[False] = ...,
    dry_run: Literal[False] = ...,
    remote: str | None = ...,
    sweep: Pairs,
    **options: Unpack[of.ProfileOptions],
) -> Suite: ...
@overload
async def profile(
    program: str | Sequence[str] = ...,
    *,
    detach: Literal[False] = ...,
    dry_run: Literal[False] = ...,
    remote: list[str] | tuple[str, ...],
    sweep: None = ...,
    **options: Unpack[of.ProfileOptions],
) -> FanOut | Profile: ...
@overload
async def profile(
    program: str | Sequence[str] = ...,
    *,
    detach: Literal[False] = ...,
    dry_run: Literal[False] = ...,
    remote: str | None = ...,
    sweep: None = ...,
    **options: Unpack[of.ProfileOptions],
) -> Profile: ...
@overload
async def exec(
    file: Path | None = ...,
    command: str | Sequence[str] = ...,
    *,
    detach: Literal[False] = ...,
    dry_run: Literal[True],
    mode: None = ...,
    **options: Unpack[of.ExecOptions],
) -> Plan: ...
@overload
async def exec(
    file: Path | None = ...,
    command: str | Sequence[str] = ...,
    *,
    detach: Literal[True],
    dry_run: Literal[False] = ...,
    mode: None = ...,
    **options: Unpack[of.ExecOptions],
) -> Run: ...
@overload
async def exec(
    file: Path | None = ...,
    command: str | Sequence[str] = ...,
    *,
    detach: Literal[False] = ...,
    dry_run: Literal[False] = ...,
    mode: Literal["ncu", "nsys", "sanitizer", "bench", "nvtx", "verify", "deep", "torch"],
    **options: Unpack[of.ExecOptions],
) -> Profile: ...
@overload
async def exec(
    file: Path | None = ...,
    command: str | Sequence[str] = ...,
    *,
    detach: Literal[False] = ...,
    dry_run: Literal[False] = ...,
    mode: None = ...,
    **options: Unpack[of.ExecOptions],
) -> ExecResult: ...
@overload
async def build(
    file: Path | None = ...,
    *,
    detach: Literal[True],
    **options: Unpack[of.BuildOptions],
) -> Run: ...
@overload
async def build(
    file: Path | None = ...,
    *,
    detach: Literal[False] = ...,
    **options: Unpack[of.BuildOptions],
) -> Build: ...
@overload
async def report(
    *what: Path,
    format: None = ...,
    lint: Literal["nvtx"],
    **options: Unpack[of.ReportOptions],
) -> Records[Finding]: ...
@overload
async def report(
    *what: Path,
    format: Literal["table", "json", "markdown", "csv", "brief", "html", "perfetto"],
    lint: None = ...,
    **options: Unpack[of.ReportOptions],
) -> str: ...
@overload
async def report(
    *what: Path,
    format: None = ...,
    lint: None = ...,
    **options: Unpack[of.ReportOptions],
) -> Profile: ...
@overload
async def disasm(
    *what: Path,
    diff: Literal[True],
    hot: Literal[False] = ...,
    view: None = ...,
    **options: Unpack[of.DisasmOptions],
) -> DisasmDiff: ...
@overload
async def disasm(
    *what: Path,
    diff: Literal[False] = ...,
    hot: Literal[False] = ...,
    view: Literal["sass", "ptx", "source", "mix", "cfg", "live"],
    **options: Unpack[of.DisasmOptions],
) -> Code: ...
@overload
async def disasm(
    *what: Path,
    diff: Literal[False] = ...,
    hot: Literal[True],
    view: None = ...,
    **options: Unpack[of.DisasmOptions],
) -> HotSpots: ...
@overload
async def disasm(
    *what: Path,
    diff: Literal[False] = ...,
    hot: Literal[False] = ...,
    view: None = ...,
    **options: Unpack[of.DisasmOptions],
) -> Disasm: ...
@overload
async def compare(
    *what: Path,
    dry_run: Literal[True],
    **options: Unpack[of.CompareOptions],
) -> Plan: ...
@overload
async def compare(
    *what: Path,
    dry_run: Literal[False] = ...,
    **options: Unpack[of.CompareOptions],
) -> Comparison: ...
