"""Opens the registry of an environment's `tool_search`, from its options or from the source of its tasks.

A task source with tools has `tool_documents` (rows that `read_documents` reads) and `call_tool(name, arguments)`,
which returns a text or raises `ValueError` for a mistake of the caller; or `tool_code(name)`, whose Python functions
run in the sandbox. Tools that nothing runs can be simulated by a model (`tool_model`), as DeepAgent does in training.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from arpo_env.chat_model import ChatModel
from arpo_env.search.search_backend import SearchBackend
from arpo_env.services import Services
from arpo_env.text import Fence, cut_middle
from arpo_env.tools.tool_search import Run, ToolDocument, ToolRegistry, passages_of, read_documents
from envs_registry import TaskSource
from envs_registry.sources import LimitedSource
from sandbox import Sandbox, default_sandbox

# Tools of a data set that are Python functions: each call runs in a sandbox session of its own.
#
# The code comes from elsewhere, so it never runs in this process. The policy does not see it, and the session is closed
# after the call.

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


# Tools that a model plays: it reads the document and the arguments of a call, and answers as the API would.
#
# DeepAgent trains with simulated APIs, since real ones cost money, change and break. A chat model with a cache records
# its answers, so that a run can be replayed without it; equal calls then get equal answers.

_LONGEST = 12_000  # characters of a document or of arguments that the model is shown
_PROMPT = """\
You stand in for an API. Read its document and the arguments of a call, and write what the API would return: one \
JSON value and nothing else. Make up plausible data where you do not know it, in the form that the document describes. \
If the arguments do not fit the document, return {{"error": "..."}} with what is wrong.

{rule}

Document of the API:
{document}

Arguments of the call:
{arguments}"""


class SimulatedTools:
    """Answers the calls of tools by a model.

    Args:
        chat: the model; with a cache its answers are recorded.
        documents: of the tools.
        max_tokens: limit of an answer.
    """

    def __init__(self, chat: ChatModel, documents: Sequence[ToolDocument], max_tokens: int = 1024) -> None:
        self._chat, self._max_tokens = chat, max_tokens
        self._documents = {document.name: document for document in documents}

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Return what the model answers for the tool.

        Raises:
            ServiceError: the model failed or refused; the sample is void then.
            ValueError: there is no such tool.
        """
        if name not in self._documents:
            raise ValueError(f"there is no tool {name!r}")
        document = json.dumps(self._documents[name].schema["function"], ensure_ascii=False, sort_keys=True)
        given = json.dumps(dict(arguments), ensure_ascii=False, sort_keys=True)
        fence = Fence([document, given])
        shown = [fence.around(cut_middle(text, _LONGEST)) for text in (document, given)]
        prompt = _PROMPT.format(rule=fence.rule, document=shown[0], arguments=shown[1])
        return await self._chat.complete([{"role": "user", "content": prompt}], max_tokens=self._max_tokens)


_NO_TOOLS = (
    "tool_search has nothing to find: give tool_documents=FILE, a file of tool documents, or a ToolRegistry; or take "
    "an environment whose tasks have tools, such as arpo/ToolWorld-v0"
)
_NO_RUN = (
    "nothing runs the tools of tool_documents: give tool_model=NAME, a model that answers their calls, or a "
    "ToolRegistry of functions"
)


def open_registry(
    services: Services,
    source: TaskSource,
    sandbox: Sandbox | Mapping[str, Any] | None = None,
    timeout: float = 10.0,
) -> ToolRegistry:
    """Return the tools of an environment.

    Args:
        services: options of the environment.
        source: of its tasks.
        sandbox: where tools run that are Python: a sandbox, or settings of the process-wide one.
        timeout: time limit of such a call in seconds.

    Raises:
        ValueError: there are none, or nothing runs them; the message says how to configure it.
        FileNotFoundError: the file of documents does not exist.
    """
    given, world = services.tool_documents, source.tasks if isinstance(source, LimitedSource) else source
    if isinstance(given, ToolRegistry):
        return given
    if given is None:
        rows = getattr(world, "tool_documents", None)
        if rows is None:
            raise ValueError(_NO_TOOLS)
    else:
        rows = given if not isinstance(given, str) else Path(given)
    documents, faults = read_documents(rows)
    run: Run | None = getattr(world, "call_tool", None) if given is None else None
    code = getattr(world, "tool_code", None) if given is None else None
    chat = services.tool_chat
    if chat is not None:
        run = SimulatedTools(chat, documents).call
    elif code is not None:
        run = SandboxedTools(code, sandbox, timeout).call
    if run is None:
        raise ValueError(_NO_RUN)
    # a simulation changes nothing outside; the tools of a source are worlds in memory
    registry = ToolRegistry(documents, run, _index(services, documents), repeatable=True)
    registry.faults = faults
    return registry


def _index(services: Services, documents: list[ToolDocument]) -> SearchBackend | None:
    if not services.embedding_model:
        return None
    from arpo_env.search.dense_search import DenseSearch, EmbeddingModel

    model: Any = EmbeddingModel(services.embedding_model, services.model_url, cache=services.record)
    return DenseSearch(passages_of(documents), model.embed, name=f"dense:{services.embedding_model}")
