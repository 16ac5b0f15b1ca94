"""Tools of a data set that are Python functions: each call runs in a sandbox session of its own.

The code comes from elsewhere, so it never runs in this process. The policy does not see it, and the session is closed
after the call.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from sandbox import Sandbox, default_sandbox

# Each source by itself, since one that is broken must not take the others with it. What a source does besides defining
# functions is no result: those of ToolHop end with an example of their use, whose output could be the answer.
_PROGRAM = """\
import contextlib as _contextlib, io as _io, json as _json
_fault, _names = None, {{"__name__": "tool"}}
with _contextlib.redirect_stdout(_io.StringIO()), _contextlib.redirect_stderr(_io.StringIO()):
    for _source in {sources!r}:
        try:
            exec(_source, _names)
        except BaseException as _error:
            _fault = _fault or _error
if {function!r} not in _names:
    raise _fault or NameError({function!r} + " is not defined in its source")
_value = _names[{function!r}](**_json.loads({arguments!r}))
print(_value if isinstance(_value, str) else _json.dumps(_value, ensure_ascii=False, default=str))
"""


class SandboxedTools:
    """Runs the functions of tools.

    Args:
        code: returns the sources that a tool needs, and the name of its function.
        sandbox: where they run: a sandbox, or settings of the process-wide one (see `default_sandbox`).
        timeout: time limit of a call in seconds.
    """

    def __init__(
        self,
        code: Callable[[str], tuple[tuple[str, ...], str]],
        sandbox: Sandbox | Mapping[str, Any] | None = None,
        timeout: float = 10.0,
    ) -> None:
        self._code, self._sandbox, self._timeout = code, sandbox, timeout

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Return what the function of a tool returns.

        Raises:
            ValueError: the function failed or took too long; the last line of its error is for the model.
            sandbox.SandboxError: the sandbox failed.
        """
        sources, function = self._code(name)
        program = _PROGRAM.format(sources=list(sources), function=function, arguments=json.dumps(dict(arguments)))
        done = await default_sandbox(self._sandbox).run(program, self._timeout)
        if done.status != "ok":
            raise ValueError((done.error or done.status).strip().splitlines()[-1])
        return done.stdout.strip() or "(no output)"
