"""A small MCP server for the tests: `python mcp_server.py` over stdio, `python mcp_server.py PORT` over HTTP."""

import asyncio
import os
import sys
from pathlib import Path

from mcp.server.mcpserver import Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("small")
counted = 0


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers.

    Both are whole.
    """
    return a + b


@server.tool()
def count() -> int:
    """Count the calls of this server."""
    global counted
    counted += 1
    return counted


@server.tool()
def fail(reason: str) -> str:
    """Fail."""
    raise ToolError(reason)


@server.tool()
async def slow(seconds: float) -> str:
    """Take a while."""
    await asyncio.sleep(seconds)
    return "done"


@server.tool()
def die() -> str:
    """End the process at once."""
    os._exit(3)


@server.tool()
def die_once(marker: str) -> str:
    """End the process unless a file is there."""
    if not Path(marker).exists():
        Path(marker).touch()
        os._exit(3)
    return "alive"


@server.tool()
def variable(name: str) -> str:
    """Read an environment variable."""
    return os.environ.get(name, "(unset)")


@server.tool()
def picture() -> Image:
    """Return an image."""
    return Image(data=b"not really", format="png")


@server.tool(name="process.id")
def process_id() -> int:
    """Say which process this is."""
    return os.getpid()


@server.tool()
def reset() -> str:
    """Have a name that no tool may have."""
    return "reset"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run()
