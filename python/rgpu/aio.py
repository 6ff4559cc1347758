"""The functions of `rgpu` as coroutines. A cancelled one stops the job on the host, and waits for it."""

from __future__ import annotations

import asyncio
import functools
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable

from . import _commands
from ._call import prepare, result

__all__ = ["build", "compare", "disasm", "exec", "profile", "report"]


def _coroutine(function: Callable[..., Any]) -> Callable[..., Any]:
    from inspect import signature

    name, parameters = function.__name__, signature(function)

    @functools.wraps(function)
    async def run(*args: Any, **keywords: Any) -> Any:
        bound = parameters.bind(*args, **keywords)
        bound.apply_defaults()
        loop = asyncio.get_running_loop()
        call = prepare(name, bound.arguments)
        if callable(call.progress):
            call.progress = functools.partial(loop.call_soon_threadsafe, call.progress)
        # A thread of its own: a call may wait for hours.
        thread = ThreadPoolExecutor(1, "rgpu")
        ended = loop.run_in_executor(thread, call.run)
        thread.shutdown(wait=False)
        try:
            status, out = await asyncio.shield(ended)
        except asyncio.CancelledError:
            while not ended.done():
                call.interrupt()
                try:
                    await asyncio.wait([ended])
                except asyncio.CancelledError:
                    continue
            ended.exception()
            raise
        return result(name, bound.arguments, call, status, out)

    return run


build = _coroutine(_commands.build)
compare = _coroutine(_commands.compare)
disasm = _coroutine(_commands.disasm)
exec = _coroutine(_commands.exec)
profile = _coroutine(_commands.profile)
report = _coroutine(_commands.report)
