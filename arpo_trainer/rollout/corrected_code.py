"""Runs other code in the place of the code of a turn: `running_instead`.

The turn itself stays as the policy wrote it; its result says what was run. A correction belongs to the history of an
episode, so that an episode that is replayed runs it again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from arpo_env import Tool, ToolEnv, ToolResult
from arpo_env.text import cut_middle
from arpo_env.tools.execute_tool_call import as_result, invoke

PYTHON, CODE = "python", "code"  # the tool whose calls can be corrected, and its argument
_SHOWN_CODE, _SHOWN_ERROR = 2000, 300  # characters
_NOTE = """\
(The code failed: {error})
(It was corrected, and this ran instead, from the state before it:)
{code}
(Result:)
"""


@dataclass(frozen=True)
class Correction:
    """Code that replaces the code of a call, and the error that it answers."""

    code: str
    error: str

    @property
    def note(self) -> str:
        """What the policy reads before the result."""
        lines = self.error.strip().splitlines() or ["no message"]
        said = cut_middle(lines[-1], _SHOWN_ERROR)
        return _NOTE.format(error=said, code=cut_middle(self.code, _SHOWN_CODE))


class CorrectedTool(Tool):
    """A tool that is called with the corrected code, whatever the call says.

    Args:
        tool: the tool itself.
        correction: the code, and the note that its result begins with.
    """

    def __init__(self, tool: Tool, correction: Correction) -> None:
        self._tool, self._correction = tool, correction
        for name in ("name", "schema", "repeatable", "voids", "min_timeout", "keeps_time", "shared_state"):
            setattr(self, name, getattr(tool, name))

    async def call(self, **arguments: Any) -> ToolResult:
        """Call the tool with the corrected code."""
        self._tool.context, self._tool.earlier_calls = self.context, self.earlier_calls
        result = as_result(await invoke(self._tool.call, {**arguments, CODE: self._correction.code}))
        return replace(result, text=self._correction.note + result.text)

    async def reset(self, setup: str) -> None:
        """Reset the tool."""
        await self._tool.reset(setup)

    async def fork(self, n: int) -> list[Tool]:
        """Return copies of the tool itself."""
        return await self._tool.fork(n)

    async def close(self) -> None:
        """Close the tool."""
        await self._tool.close()


@contextlib.contextmanager
def running_instead(env: ToolEnv, correction: Correction | None) -> Iterator[None]:
    """Run the correction at the next call of Python within the block; nothing changes without one."""
    tool = env.tools.get(PYTHON)
    if correction is None or tool is None:
        yield
        return
    env.tools[PYTHON] = CorrectedTool(tool, correction)
    try:
        yield
    finally:
        env.tools[PYTHON] = tool
