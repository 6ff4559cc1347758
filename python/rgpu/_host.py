"""The module `rgpu` of a function of `rgpu.kernel` on the GPU host. This file's text is sent to the
host, so it imports nothing of this package."""

from __future__ import annotations

import ctypes
import faulthandler
import functools
import glob
import os
import sys
from typing import Any, Callable, TypeVar, cast

_F = TypeVar("_F", bound=Callable[..., Any])


def _library() -> ctypes.CDLL | None:
    """NVTX's functions, from the wheels beside torch or from a toolkit; None if there are none."""
    places = [path for path in sys.path if os.path.isdir(path)]
    patterns = [os.path.join(place, "nvidia", "*", "lib", "libnv*[Tx]*.so*") for place in places]
    found = [path for pattern in patterns for path in glob.glob(pattern)]
    for name in [*found, "libnvToolsExt.so.1", "libnvtx3interop.so"]:
        try:
            library = ctypes.CDLL(name)
            library.nvtxRangePushA.argtypes = [ctypes.c_char_p]
            return library
        except (OSError, AttributeError):
            continue
    return None


@functools.lru_cache(maxsize=None)
def _nvtx() -> tuple[Callable[[str], object], Callable[[], object]] | None:
    """How a range is opened and closed. None if there is no NVTX."""
    try:
        import nvtx  # pyright: ignore[reportMissingImports]

        return nvtx.push_range, nvtx.pop_range
    except ImportError:
        pass
    library = _library()
    if library is not None:
        return (lambda name: library.nvtxRangePushA(name.encode())), library.nvtxRangePop
    try:
        import torch.cuda.nvtx  # pyright: ignore[reportMissingImports]

        torch.cuda.nvtx.range_push("rgpu")
        torch.cuda.nvtx.range_pop()
        return torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop
    except (ImportError, RuntimeError):
        return None


class annotate:
    """An NVTX range around a block (`with rgpu.annotate("matmul"):`) or a function
    (`@rgpu.annotate("matmul")`). Reports have it as a region."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> annotate:
        nvtx = _nvtx()
        if nvtx is not None:
            nvtx[0](self.name)
        return self

    def __exit__(self, *exception: object) -> None:
        nvtx = _nvtx()
        if nvtx is not None:
            nvtx[1]()

    def __call__(self, function: _F) -> _F:
        @functools.wraps(function)
        def wrapped(*args: Any, **keywords: Any) -> Any:
            with annotate(self.name):
                return function(*args, **keywords)

        return cast(_F, wrapped)


def _synchronize() -> None:
    """Waits until the GPU has done all work, so that it belongs to the range."""
    torch = sys.modules.get("torch")
    if torch is not None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return
    try:
        ctypes.CDLL("libcuda.so.1").cuCtxSynchronize()
    except OSError:
        pass


def _run(function: Callable[..., object], points: list[tuple[str, dict[str, Any]]], runs: int) -> None:
    """Calls the function at each point, each in a range of its name."""
    # A crash in a library shows its line.
    faulthandler.enable()
    for name, arguments in points:
        for _ in range(runs):
            try:
                with annotate(name):
                    function(**arguments)
                    _synchronize()
            except BaseException as error:
                _tell_caller(f"failed at {name}")
                if isinstance(error, SystemExit):
                    # Python prints no traceback of it.
                    print(f"SystemExit: {error}", file=sys.stderr)
                raise
    if _nvtx() is None:
        _tell_caller("no NVTX library")


def _tell_caller(text: str) -> None:
    """Writes a line that `_failure.py` reads on the machine of the caller."""
    sys.stdout.flush()
    print(f"rgpu.kernel: {text}", file=sys.stderr, flush=True)
