"""Runs two programs at once, and stops what takes too long."""

import asyncio

from rgpu import ExecResult, aio


async def main() -> None:
    fast: list[ExecResult] = await asyncio.gather(
        *(aio.exec(code=f"print({n} * {n})", lang="py") for n in (3, 4)),
    )
    print([result.stdout.strip() for result in fast])
    try:
        await asyncio.wait_for(aio.exec(code="import time; time.sleep(600)", lang="py"), timeout=5)
    except asyncio.TimeoutError:
        print("stopped, on the host too")


asyncio.run(main())
