"""Calls every tool of `rgpu mcp` with the official SDK, which checks results against their schemas."""

import asyncio
import os
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

REPORT = "mine.ncu-repz"
CALLS = [
    ("hosts", {"action": "list"}),
    ("profile", {"kernel": "vecadd", "mode": "ncu", "remote": "h200"}),
    ("report", {"of": "latest", "part": "metrics", "names": ["gpu__"]}),
    ("report", {"of": REPORT}),
    ("exec", {"argv": ["echo", "hello"], "remote": "h200"}),
    ("build", {"kernel": "vecadd", "remote": "h200"}),
    ("disasm", {"of": REPORT, "last_line": 5}),
    ("compare", {"runs": [REPORT, REPORT]}),
    ("runs", {"action": "list"}),
    ("campaign", {"of": "queue", "action": "add", "arguments": ["--", "rgpu", "report", REPORT]}),
    ("layout", {"action": "eval", "arguments": ["(4,8):(8,1)"]}),
    ("model", {"action": "hw list"}),
]
WRONG = [("profile", {"kernel": "/etc/passwd"}), ("runs", {"action": "show", "run": "none"})]


async def main() -> None:
    server = StdioServerParameters(command=sys.argv[1], args=["mcp"], env=dict(os.environ))
    async with stdio_client(server) as streams, ClientSession(*streams) as session:
        await session.initialize()
        tools = {tool.name for tool in (await session.list_tools()).tools}
        for name, arguments in CALLS:
            result = await session.call_tool(name, arguments)
            document = result.structuredContent
            while document.get("state") == "running":
                wait = {"action": "wait", "run": document["run"]}
                result = await session.call_tool("runs", wait)
                document = result.structuredContent
            assert not result.isError, f"{name}: {document}"
        for name, arguments in WRONG:
            result = await session.call_tool(name, arguments)
            assert result.isError and result.structuredContent["error"]["code"], result
        assert tools == {name for name, _ in CALLS}, tools
        print(f"{len(tools)} tools called")


asyncio.run(main())
