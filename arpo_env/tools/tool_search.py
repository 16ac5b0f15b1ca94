"""The tool `tool_search`: finds tools by what they do; a tool can be called from the moment it is found.

The result shows the documents of the tools as JSON: name, description and parameters. Which tools an episode has found
is state of this tool, so that a fork knows them, and a reset forgets them. As in DeepAgent (arXiv 2510.21618), a
search or a call that was made before in the episode is refused with a notice, which costs no call. After a fold of the
history both may be repeated, since the model does not see their results any more. Results over a limit are shortened,
or condensed by another model. Protocols with calls by name ("deepagent", "hermes", "llama3", "websailor") can call a
found tool.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from arpo_env.cache import Cache
from arpo_env.chat_model import ChatModel, reply_to_what_fits
from arpo_env.episode import FOLD, Call
from arpo_env.event_loop import run_in_daemon_thread
from arpo_env.search.local_search import Passage, WorldSearch
from arpo_env.search.search_backend import SearchBackend
from arpo_env.services import Services
from arpo_env.text import cut_middle, fenced_prompt, plain_reply
from arpo_env.tools.tool import JsonSchema, SharedTool, Tool, ToolResult, as_result, function_schema, invoke, shorten
from envs_registry import TaskSource
from envs_registry.datasets.tool_sets import as_text, rapid_function
from envs_registry.sources import LimitedSource
from sandbox import Sandbox, default_sandbox

# `ToolDocument`, which describes a tool that can be found, and the reading of documents in the formats that exist.
#
#     documents, faults = read_documents("tools.jsonl")
#
# Read are OpenAI's function format, bare functions (`name`, `description`, `parameters`, as in ToolHop), MCP's tools
# (`inputSchema`) and RapidAPI's documents (ToolBench). A document that cannot be read is left out and named in the list
# of faults; it is never an error of the whole file.

logger = logging.getLogger(__name__)

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_TYPES = {"string", "integer", "number", "boolean", "array", "object", "null"}
_SHOWN = 3  # faults that a warning names


@dataclass(frozen=True)
class ToolDocument:
    """One tool that can be found."""

    name: str  # name for calls
    description: str  # what it does, for the search and for the model
    parameters: dict[str, Any]  # JSON schema of its arguments
    category: str = ""  # the collection that it belongs to, or ""

    @property
    def schema(self) -> JsonSchema:
        """The schema in OpenAI's function format."""
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}

    @property
    def title(self) -> str:
        """The words of its name."""
        return _spaced(self.name)

    @property
    def text(self) -> str:
        """What the search reads: words of the name, category, description and parameters."""
        properties: Mapping[str, Any] = self.parameters.get("properties") or {}
        parameters = [f"{_spaced(name)} {as_text(schema, 'description')}" for name, schema in properties.items()]
        return " ".join(filter(None, [self.title, self.category, self.description, *parameters]))


def read_documents(source: str | Path | Iterable[Any], warn: bool = True) -> tuple[list[ToolDocument], list[str]]:
    """Return the documents of a file (JSON, JSON Lines) or of rows, and the faults of those that cannot be read."""
    rows = _file_rows(Path(source)) if isinstance(source, str | Path) else source
    documents: dict[str, ToolDocument] = {}
    faults: list[str] = []
    for number, row in enumerate(rows, 1):
        try:
            document = as_document(json.loads(row) if isinstance(row, str) else row)
            if document.name in documents:
                raise ValueError("there is another tool of that name")
            documents[document.name] = document
        except (ValueError, RecursionError) as error:
            faults.append(f"document {number} ({_name_of(row)[:80]!r}): {error}")
    shown = "; ".join(faults[:_SHOWN])
    if not documents:
        raise ValueError(f"no tool document can be read: {shown or 'there is none'}")
    if faults and warn:
        logger.warning("%d of %d tool documents are left out: %s", len(faults), len(documents) + len(faults), shown)
    return list(documents.values()), faults


def as_document(row: Any) -> ToolDocument:
    """Return the document of a row in any of the formats."""
    if isinstance(row, ToolDocument):
        return row
    if not isinstance(row, Mapping):
        raise ValueError(f"a tool document is an object, not {type(row).__name__}")
    if "api_name" in row:
        row = rapid_function(row)
    function = row["function"] if isinstance(row.get("function"), Mapping) else row
    name = as_text(function, "name")
    if not _NAME.fullmatch(name):
        raise ValueError(f"its name {name[:80]!r} is not a name: letters, digits, '_', '-' and '.'")
    given: Any = next((function[key] for key in ("parameters", "inputSchema") if function.get(key) is not None), {})
    parameters = _checked_parameters(given)
    document = ToolDocument(name, as_text(function, "description"), parameters, as_text(row, "category"))
    # One document that cannot be shown as JSON would fail every search that finds it.
    try:
        json.dumps([parameters, document.text], ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"it cannot be written as JSON: {error}") from None
    return document


def _checked_parameters(given: Any) -> dict[str, Any]:
    """Return a schema of arguments that calls can be checked against."""
    if not isinstance(given, Mapping):
        raise ValueError(f"its parameters are a JSON schema, not {type(given).__name__}")
    properties, required = given.get("properties") or {}, given.get("required") or []
    if given.get("type", "object") != "object" or not isinstance(properties, Mapping):
        raise ValueError("its parameters are a JSON schema of type 'object' with 'properties'")
    if not isinstance(required, list | tuple) or not all(name in list(properties) for name in required):
        raise ValueError("'required' names parameters that are not in 'properties'")
    for name, schema in properties.items():
        kinds = schema.get("type", "string") if isinstance(schema, Mapping) else None
        listed = kinds if isinstance(kinds, list) else [kinds]
        if not all(isinstance(kind, str) and kind in _TYPES for kind in listed):
            raise ValueError(f"the parameter {str(name)[:80]!r} has no JSON type: {kinds!r:.80}")
    return {**given, "type": "object", "properties": dict(properties), "required": list(required)}


def _file_rows(path: Path) -> Iterable[Any]:
    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        return [line for line in text.splitlines() if line.strip()]
    return whole if isinstance(whole, list) else [whole]


def _name_of(row: Any) -> str:
    inner = row.get("function", row) if isinstance(row, Mapping) else row
    return as_text(inner, "name") or as_text(row, "api_name")


def _spaced(name: str) -> str:
    """Split snake case, camel case and dots into words."""
    return " ".join(re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[_.-]+", " ", name).split())


# `ToolRegistry`: thousands of tools that can be found by a search, and what runs them.
#
#     registry = ToolRegistry.from_functions([weather, timetable, ...])
#     registry = ToolRegistry(documents, run)          # `run(name, arguments)` answers every call
#
# A registry is shared by all episodes of an environment and keeps no state of an episode.

Run = Callable[[str, Mapping[str, Any]], Any]


class ToolRegistry:
    """Documents of tools, an index over them, and a function that runs them.

    Args:
        documents: what `read_documents` takes: a file, or documents in any of its formats; those that cannot be read
            are left out.
        run: called with a name and arguments, on a thread or awaited; returns a text or a value that is shown as JSON.
            It raises `ValueError` for a mistake of the caller, which the model is told.
        index: finds documents; the `url` of its hits is the name of a tool. None is BM25 over names, descriptions and
            parameters.
        repeatable: calling a tool twice does no harm outside the episode (see `Tool.repeatable`).

    Attributes:
        faults: rows that could not be read.

    Raises:
        ValueError: there is no document that can be read.
    """

    def __init__(
        self,
        documents: str | Path | Iterable[Any],
        run: Run,
        index: SearchBackend | None = None,
        repeatable: bool = False,
    ) -> None:
        every, self.faults = read_documents(documents)
        self._documents = {document.name: document for document in every}
        self._run, self.repeatable = run, repeatable
        self.index = WorldSearch(passages_of(every)) if index is None else index

    @classmethod
    def from_functions(cls, functions: Iterable[Callable[..., Any]]) -> ToolRegistry:
        """Return a registry of typed functions, whose documents come from their signatures and docstrings."""
        by_name: dict[str, Callable[..., Any]] = {}
        rows = []
        for function in functions:
            schema = function_schema(function)
            name = schema["function"]["name"]
            if name in by_name:
                raise ValueError(f"two functions are named {name!r}; rename one of them")
            by_name[name] = function
            rows.append(as_document(schema))

        async def run(name: str, arguments: Mapping[str, Any]) -> Any:
            return await invoke(by_name[name], arguments)

        return cls(rows, run)

    async def find(self, query: str, k: int) -> list[ToolDocument]:
        """Return at most k documents, best first.

        Raises:
            ServiceError: the index failed.
        """
        hits = await self.index.search(query, k)
        names = dict.fromkeys(hit.url for hit in hits if hit.url in self._documents)
        return [self._documents[name] for name in names][:k]

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """Run a tool.

        Raises:
            ValueError: a mistake of the caller.
            Exception: the tool failed.
        """
        # by position, since parameters may be named otherwise
        return await invoke(functools.partial(self._run, name, arguments), {})


def passages_of(documents: str | Path | Iterable[Any]) -> list[Passage]:
    """Return documents, as `ToolRegistry` takes them, in the form that indexes take: name, its words, whole text."""
    every, _ = read_documents(documents, warn=False)
    return [Passage(document.name, document.title, document.text) for document in every]


# `ResultCondenser`: another model condenses a long result of a tool to what the agent needs.
#
# The auxiliary model of DeepAgent (arXiv 2510.21618) first says what the agent is after, from its last ten steps, and
# then chooses from the result. Here one request does both. With a cache the replies are recorded, and equal requests,
# as those of branches that saw the same, get the same reply.

_STEPS, _STEP_CHARACTERS = 10, 2_000
_CONDENSED_TOKENS = 4096
_CHARACTERS = 100_000  # of the result; more is cut in the middle
_CONDENSE = """\
An agent called a tool. The result is too long for the agent, so you condense it. Work out from the agent's last steps \
what it needs the result for. Then write down what serves that, in at most {limit} characters. Copy names, numbers, \
identifiers, units and dates exactly as they stand. Add nothing that is not in the result, and do not go on in the \
agent's place. If nothing serves, say in one sentence what the result holds."""
_CONDENSED = "Write the condensed result and nothing else."


class ResultCondenser:
    """Condenses results with a chat model; a cache keeps the first sample. Many episodes may share it."""

    def __init__(self, chat: ChatModel, limit: int, cache: Cache | None = None) -> None:
        self.chat, self.limit, self.cache = chat, limit, cache

    async def condense(self, name: str, arguments: Mapping[str, object], steps: Sequence[str], text: str) -> str:
        """Return a result as the agent is shown it; one that is not too long stays as it is."""
        if len(text) <= self.limit:
            return text
        last = "\n\n".join(cut_middle(step.strip(), _STEP_CHARACTERS) for step in steps[-_STEPS:]) or "-"
        call = json.dumps({"name": name, "arguments": dict(arguments)}, ensure_ascii=False, sort_keys=True, default=str)

        def prompt(characters: int) -> str:
            quoted = {"The agent's last steps": last, "The call": call, "The result": cut_middle(text, characters)}
            return fenced_prompt(_CONDENSE.format(limit=self.limit), quoted, _CONDENSED)

        reply = await reply_to_what_fits(
            self.chat, prompt, _CHARACTERS, cache=self.cache, about={"tool": name}, max_tokens=_CONDENSED_TOKENS
        )
        note = f"(condensed by another model from {len(text):,} characters)"
        return f"{cut_middle(reply, self.limit)}\n{note}"


NAME = "tool_search"
TOP_TOOLS = 10  # DeepAgent's
LONGEST_LIST = 15_000  # characters of the documents that a search shows; DeepAgent's
LONGEST_RESULT = 5_000  # characters of the result of a found tool; DeepAgent's
LONGEST_QUERY = 2_000  # characters
NOTHING = "No tool was found. Describe in other words what the tool should do."
SEARCHED_BEFORE = "You have already searched for this. Use the tools that were found, or search for something else."
CALLED_BEFORE = "You have already called this tool with the same arguments. Use what it returned."


def tool_search(query: str) -> str:
    """Find further tools by what they do. A tool that was found can be called by its name from then on.

    Args:
        query: What the tool should do.
    """
    raise NotImplementedError(query)  # only the schema is used; `ToolSearchTool.call` searches


class ToolSearchTool(SharedTool):
    """Searches a registry of tools and remembers what it found.

    Args:
        registry: the tools, or a function that opens them at the first search.
        k: maximum number of tools that a search finds.
        timeout: time limit of a call of a found tool in seconds.
        condenser: condenses the results of found tools that are too long; None cuts out their middle.
    """

    name = NAME
    schema = function_schema(tool_search)
    repeatable = voids = True
    keeps_time = True  # the first search may have to embed thousands of documents; requests have limits of their own

    def __init__(
        self,
        registry: ToolRegistry | Callable[[], ToolRegistry],
        k: int = TOP_TOOLS,
        timeout: float = 60.0,
        condenser: ResultCondenser | None = None,
    ) -> None:
        self._condenser = condenser
        self._registry = registry
        self._k, self.min_timeout = k, timeout
        self._found: dict[str, Tool] = {}

    @property
    def found(self) -> Mapping[str, Tool]:
        """The tools that were found in this episode."""
        return self._found

    async def call(self, *, query: str = "", **arguments: Any) -> ToolResult:
        """Find tools, make them callable, and return their documents.

        Raises:
            ServiceError: the index failed.
        """
        words = _words(query)
        if not any(one.isalnum() for one in words):
            return ToolResult("error: the query is empty; write what the tool should do", "error")
        if words.casefold() in _queries(self.earlier_calls):
            return ToolResult(SEARCHED_BEFORE, "refused")
        registry = await self._opened()
        # a call by such a name would be one of the environment's own tool
        taken = self.reserved | {NAME}
        hits = await registry.find(words, self._k + len(taken))
        documents = [document for document in hits if document.name not in taken][: self._k]
        text, shown = shown_documents(documents, LONGEST_LIST)
        for document in shown:
            tool = FoundTool(registry, document, self.min_timeout, self._condenser)
            self._found.setdefault(document.name, tool)
        return ToolResult(text)

    async def reset(self, setup: str) -> None:
        """Forget the tools that were found; `setup` is only for interpreters."""
        self._found = {}

    async def fork(self, n: int) -> list[Tool]:
        """Return n tools that have found the same tools and search the same registry."""
        twins = [copy.copy(self) for _ in range(n)]
        for twin in twins:
            # copies, since the environment sets the context of a call on the tool
            twin._found = {name: copy.copy(tool) for name, tool in self._found.items()}
        return list(twins)

    async def _opened(self) -> ToolRegistry:
        if not isinstance(self._registry, ToolRegistry):
            # on a thread, since documents may have to be read and indexed first
            self._registry = await asyncio.wrap_future(run_in_daemon_thread(self._registry, "arpo-tools"))
        return self._registry


class FoundTool(SharedTool):
    """A tool of a registry. Its name, description and parameters are those of its document."""

    def __init__(
        self,
        registry: ToolRegistry,
        document: ToolDocument,
        timeout: float = 60.0,
        condenser: ResultCondenser | None = None,
    ) -> None:
        self.name, self.schema, self._condenser = document.name, document.schema, condenser
        self.min_timeout, self.repeatable = timeout, registry.repeatable
        self._registry = registry

    async def call(self, /, **arguments: Any) -> ToolResult:
        """Call the tool; a `ValueError` is a mistake of the caller, which is told."""
        if any(
            (call.name, call.arguments) == (self.name, arguments) and call.status != "timeout"
            for call in _still_seen(self.earlier_calls)
        ):
            return ToolResult(CALLED_BEFORE, "refused")
        try:
            result = as_result(await self._registry.call(self.name, arguments))
        except ValueError as error:
            return ToolResult(shorten(f"error: {error}", LONGEST_RESULT), "error")
        # a condenser has to see all of it
        return result if self._condenser else replace(result, text=shorten(result.text, LONGEST_RESULT))

    async def shown(self, result: ToolResult, arguments: Mapping[str, Any]) -> ToolResult:
        """Return the result, condensed if it is too long and there is a condenser."""
        if self._condenser is None:
            return result
        if result.status != "ok":
            return replace(result, text=shorten(result.text, LONGEST_RESULT))
        return replace(result, text=await self._condenser.condense(self.name, arguments, self.context, result.text))


def shown_documents(documents: Sequence[ToolDocument], limit: int) -> tuple[str, list[ToolDocument]]:
    """Return documents as JSON, and those that are in it, which are the first ones that fit.

    The first is shown in any case, with its descriptions cut short if it must be.
    """
    if not documents:
        return NOTHING, []
    lines: list[str] = []
    for document in documents:
        line = json.dumps(document.schema["function"], ensure_ascii=False)
        if lines and sum(map(len, lines)) + len(lines) + len(line) > limit:
            break
        lines.append(line if len(line) <= limit else shorten(line, limit))
    shown = list(documents[: len(lines)])
    left_out = len(documents) - len(shown)
    note = f"\n({left_out} more did not fit; search more precisely to see them)" if left_out else ""
    return "[" + ",\n".join(lines) + "]" + note, shown


def _queries(calls: Sequence[Call]) -> set[str]:
    """Return the queries of earlier searches, in the form in which they are compared."""
    seen = (call for call in _still_seen(calls) if call.name == NAME)
    return {_words(str(call.arguments.get("query", ""))).casefold() for call in seen}


def _words(query: str) -> str:
    return " ".join(query.split())[:LONGEST_QUERY]


def _still_seen(calls: Sequence[Call]) -> Sequence[Call]:
    """Return the calls since the last fold: the results of earlier ones are not in the context any more."""
    folds = [number for number, call in enumerate(calls) if (call.name, call.status) == (FOLD, "ok")]
    return calls[folds[-1] + 1 :] if folds else calls


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


def _sandboxed(code: Callable[[str], tuple[tuple[str, ...], str]], sandbox: Any, timeout: float) -> Run:
    async def run(name: str, arguments: Mapping[str, Any]) -> str:
        sources, function = code(name)
        program = _PROGRAM.format(sources=list(sources), function=function, arguments=json.dumps(dict(arguments)))
        done = await default_sandbox(sandbox).run(program, timeout)
        if done.status != "ok":
            raise ValueError((done.error or done.status).strip().splitlines()[-1])
        return done.stdout.strip() or "(no output)"

    return run


# Tools that a model plays: it reads the document and the arguments of a call, and answers as the API would.
#
# DeepAgent trains with simulated APIs, since real ones cost money, change and break. A chat model with a cache records
# its answers, so that a run can be replayed without it; equal calls then get equal answers.

_SIMULATION_TOKENS = 1024
_LONGEST_DOCUMENT = 12_000  # characters of a document or of arguments that the model is shown
_SIMULATE = """\
You stand in for an API. Read its document and the arguments of a call, and write what the API would return. Make up \
plausible data where you do not know it, in the form that the document describes. If the arguments do not fit the \
document, return {"error": "..."} with what is wrong."""
_SIMULATED = "Write one JSON value and nothing else."


def _simulated(chat: ChatModel, documents: Sequence[ToolDocument]) -> Run:
    schemas = {document.name: document.schema["function"] for document in documents}

    async def run(name: str, arguments: Mapping[str, Any]) -> str:
        given = {"Document of the API": schemas[name], "Arguments of the call": dict(arguments)}
        quoted = {
            heading: cut_middle(json.dumps(value, ensure_ascii=False, sort_keys=True), _LONGEST_DOCUMENT)
            for heading, value in given.items()
        }
        prompt = fenced_prompt(_SIMULATE, quoted, _SIMULATED)
        return plain_reply(await chat.complete([{"role": "user", "content": prompt}], max_tokens=_SIMULATION_TOKENS))

    return run


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
    """Return the tools of an environment, from its options or from the source of its tasks.

    A task source with tools has `tool_documents` (rows that `read_documents` reads) and `call_tool(name, arguments)`,
    which returns a text or raises `ValueError` for a mistake of the caller; or `tool_code(name)`, whose Python
    functions run in the sandbox. Tools that nothing runs can be simulated by a model (`tool_model`).

    Args:
        services: options of the environment.
        source: of its tasks.
        sandbox: where tools run that are Python: a sandbox, or settings of the process-wide one.
        timeout: time limit of such a call in seconds.
    """
    given, world = services.tool_documents, source.tasks if isinstance(source, LimitedSource) else source
    if isinstance(given, ToolRegistry):
        return given
    rows, run, code = given, None, None
    if given is None:
        rows, run, code = (getattr(world, name, None) for name in ("tool_documents", "call_tool", "tool_code"))
        if rows is None:
            raise ValueError(_NO_TOOLS)
    documents, faults = read_documents(rows)
    if chat := services.chat("tool_model"):
        run = _simulated(chat, documents)
    elif code is not None:
        run = _sandboxed(code, sandbox, timeout)
    if run is None:
        raise ValueError(_NO_RUN)
    # a simulation changes nothing outside; the tools of a source are worlds in memory
    registry = ToolRegistry(documents, run, _index(services, documents), repeatable=True)
    registry.faults = faults
    return registry


def _index(services: Services, documents: Sequence[ToolDocument]) -> SearchBackend | None:
    if not services.embedding_model:
        return None
    from arpo_env.search.dense_search import DenseSearch, EmbeddingModel

    model: Any = EmbeddingModel(services.embedding_model, services.model_url, cache=services.record)
    return DenseSearch(passages_of(documents), model.embed, name=f"dense:{services.embedding_model}")
