"""A small MCP server for the tests: `python mcp_server.py` over stdio, `python mcp_server.py PORT` over HTTP."""

import asyncio
import os
import sys
from pathlib import Path

from mcp.server.mcpserver import Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("small")
notes: list[str] = []


@server.tool()
def add(a: int, b: int) -> int:
    return a + b


@server.tool()
def write(text: str) -> str:
    notes.append(text)
    return f"{len(notes)} notes"


@server.tool()
def read() -> str:
    return ", ".join(notes) or "none"


@server.tool()
def clear() -> str:
    notes.clear()
    return "cleared"


@server.tool()
def fail(reason: str) -> str:
    notes.append("failed")
    raise ToolError(f"{reason} {len(notes)}")


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
