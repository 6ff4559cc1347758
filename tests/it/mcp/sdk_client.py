"""Calls every tool of `rgpu mcp` with the official SDK, which checks results against their schemas."""

import asyncio
import json
import os
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

RGPU, CALLS = sys.argv[1], json.load(open(sys.argv[2]))


async def main() -> None:
    server = StdioServerParameters(command=RGPU, args=["mcp"], env=dict(os.environ))
    async with stdio_client(server) as streams, ClientSession(*streams) as session:
        await session.initialize()
        tools = {tool.name for tool in (await session.list_tools()).tools}
        for name, arguments in CALLS["right"]:
            result = await session.call_tool(name, arguments)
            document = result.structuredContent
            while document.get("state") == "running":
                wait = {"action": "wait", "run": document["run"]}
                result = await session.call_tool("runs", wait)
                document = result.structuredContent
            assert not result.isError, f"{name}: {document}"
        for name, arguments in CALLS["wrong"]:
            result = await session.call_tool(name, arguments)
            assert result.isError and result.structuredContent["error"]["code"], result
        assert tools == {name for name, _ in CALLS["right"]}, tools
        print(f"{len(tools)} tools called")


asyncio.run(main())
