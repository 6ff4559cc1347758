"""rgpu: profile, check and run GPU kernels on a remote NVIDIA GPU.

    import rgpu

    p = rgpu.profile(kernel="vecadd", mode="ncu", remote="h200")
    p.launches.to_pandas()

The functions are the commands of `rgpu`, and their keywords its flags. A result is a document of the
command line with attributes; a failure is an `rgpu.Error`. `rgpu.aio` has the same functions as
coroutines, `rgpu.kernel` profiles a function over a sweep, and `%load_ext rgpu` adds `%%rgpu` to
notebooks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._commands import build, compare, disasm, exec, profile, report
from ._error import (
    ArtifactError,
    Cancelled,
    ConfigError,
    DiskError,
    Error,
    HostError,
    InternalError,
    KernelError,
    ToolError,
    UnexpectedResult,
    UsageError,
)

__version__ = "0.1.0"

if TYPE_CHECKING:
    from . import aio
    from ._documents import Document, Record, Records, load
    from ._host import annotate
    from ._kernel import KernelFunction, Sweep, kernel
    from ._magic import load_ipython_extension
    from ._types import (
        Build,
        Code,
        Comparison,
        Disasm,
        DisasmDiff,
        ExecResult,
        FanOut,
        HotSpots,
        Launch,
        Plan,
        Profile,
        Regions,
        Run,
        Suite,
        Trace,
    )

__all__ = [
    "ArtifactError",
    "Build",
    "Cancelled",
    "Code",
    "Comparison",
    "ConfigError",
    "Disasm",
    "DisasmDiff",
    "DiskError",
    "Document",
    "Error",
    "ExecResult",
    "FanOut",
    "HostError",
    "HotSpots",
    "InternalError",
    "KernelError",
    "KernelFunction",
    "Launch",
    "Plan",
    "Profile",
    "Record",
    "Records",
    "Regions",
    "Run",
    "Suite",
    "Sweep",
    "ToolError",
    "Trace",
    "UnexpectedResult",
    "UsageError",
    "aio",
    "annotate",
    "build",
    "compare",
    "disasm",
    "exec",
    "kernel",
    "load",
    "load_ipython_extension",
    "profile",
    "report",
]

_MODULES = {
    "aio": "",
    "Document": "_documents",
    "Record": "_documents",
    "Records": "_documents",
    "load": "_documents",
    "KernelFunction": "_kernel",
    "Sweep": "_kernel",
    "annotate": "_host",
    "kernel": "_kernel",
    "load_ipython_extension": "_magic",
}
"""Where the names are that are loaded at their first use, to keep `import rgpu` short. All others are
types of results."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module `rgpu` has no `{name}`")
    from importlib import import_module

    module = _MODULES.get(name, "_types")
    found = getattr(import_module(f"{__name__}.{module}"), name) if module else import_module(f"{__name__}.{name}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
