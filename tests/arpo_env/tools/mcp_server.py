"""A small MCP server for the tests: `python mcp_server.py` over stdio, `python mcp_server.py PORT` over HTTP."""

import asyncio
import os
import sys
from pathlib import Path

from mcp.server.mcpserver import Image, MCPServer

server = MCPServer("small")
counted = 0


@server.tool()
def add(a: int, b: int) -> int:
    return a + b


@server.tool()
def count() -> int:
    global counted
    counted += 1
    return counted


@server.tool()
async def slow(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "done"


@server.tool()
def die_once(marker: str) -> str:
    if not Path(marker).exists():
        Path(marker).touch()
        os._exit(3)
    return "alive"


@server.tool()
def variable(name: str) -> str:
    return os.environ.get(name, "(unset)")


@server.tool()
def picture() -> Image:
    return Image(data=b"not really", format="png")


@server.tool(name="process.id")
def process_id() -> int:
    return os.getpid()


@server.tool()
def reset() -> str:
    return "reset"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run()
