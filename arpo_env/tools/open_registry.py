"""Opens the registry of an environment's `tool_search`, from its options or from the source of its tasks.

A task source with tools has `tool_documents` (rows that `read_documents` reads) and `call_tool(name, arguments)`,
which returns a text or raises `ValueError` for a mistake of the caller; or `tool_code(name)`, whose Python functions
run in the sandbox. Tools that nothing runs can be simulated by a model (`tool_model`), as DeepAgent does in training.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from arpo_env.search.search_backend import SearchBackend
from arpo_env.services import Services
from arpo_env.tools.sandboxed_tools import SandboxedTools
from arpo_env.tools.simulated_tools import SimulatedTools
from arpo_env.tools.tool_document import ToolDocument, read_documents
from arpo_env.tools.tool_registry import Run, ToolRegistry, passages_of
from envs_registry import TaskSource
from envs_registry.sources import LimitedSource
from sandbox import Sandbox

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
    from arpo_env.search.dense_search import DenseSearch
    from arpo_env.search.embeddings import EmbeddingModel

    model: Any = EmbeddingModel(services.embedding_model, services.model_url, cache=services.record)
    return DenseSearch(passages_of(documents), model.embed, name=f"dense:{services.embedding_model}")
