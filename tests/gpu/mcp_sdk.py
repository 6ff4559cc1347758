"""Calls tools of `rgpu mcp` with the published Python SDK, which checks results against their schemas: a call for each
line `[TOOL, ARGUMENTS]` of standard input, its result as a line of standard output."""

import asyncio
import json
import os
import sys
from importlib.metadata import version

# The folder of this file has an `mcp` of its own.
sys.path.pop(0)

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


def answer(document):
    print(json.dumps(document), flush=True)


async def main():
    server = StdioServerParameters(command=sys.argv[1], args=["mcp"], env=dict(os.environ))
    async with stdio_client(server) as streams, ClientSession(*streams) as session:
        await session.initialize()
        tools = [tool.name for tool in (await session.list_tools()).tools]
        answer({"sdk": version("mcp"), "tools": tools})
        while line := await asyncio.to_thread(sys.stdin.readline):
            tool, arguments = json.loads(line)
            result = await session.call_tool(tool, arguments)
            answer(result.model_dump(mode="json", by_alias=True, exclude_none=True))


asyncio.run(main())
