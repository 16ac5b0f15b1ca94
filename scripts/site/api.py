"""The public names of a package, described by their docstrings."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Sequence

PACKAGES = ("arpo_env", "arpo_trainer", "envs_registry", "sandbox")
# types that public names take or return, and that are imported from their own module
SUPPORTING = {
    "arpo_env": (
        "arpo_env.protocols.protocol.ToolCalls",
        "arpo_env.protocols.protocol.ToolCall",
        "arpo_env.protocols.protocol.Answer",
        "arpo_env.protocols.protocol.Malformed",
        "arpo_env.protocols.protocol.Nothing",
        "arpo_env.episode.Episode",
        "arpo_env.episode.Turn",
        "arpo_env.episode.Call",
        "arpo_env.search.local_search.Passage",
        "arpo_env.pages.page.Page",
        "arpo_env.adapters.play.ChatTurn",
    ),
    "arpo_trainer": (
        "arpo_trainer.tree.Span",
        "arpo_trainer.tree.Trajectory",
        "arpo_trainer.tree.Row",
        "arpo_trainer.tree.Decision",
        "arpo_trainer.algorithms.registry.Algorithm",
        "arpo_trainer.algorithms.registry.Budget",
        "arpo_trainer.algorithms.branching.BranchMethod",
        "arpo_trainer.algorithms.branching.BranchSettings",
        "arpo_trainer.algorithms.losses.Loss",
        "arpo_trainer.training.evaluation.Evaluation",
        "arpo_trainer.tree.Stopwatch",
        "arpo_trainer.run.arguments.RunArguments",
    ),
}


def api_reference(package: str) -> str:
    """Return what makes Sphinx describe every name of the package's `__all__`, and the types these use."""
    public = sorted(importlib.import_module(package).__all__, key=str.lower)
    text = _block([f"{package}.{name}" for name in public])
    if package in SUPPORTING:
        text += "\n## Supporting types\n\n" + _block(SUPPORTING[package])
    return text


def _block(names: Sequence[str]) -> str:
    return "```{eval-rst}\n" + "\n".join(map(_directive, names)) + "```\n"


def _directive(path: str) -> str:
    module, _, name = path.rpartition(".")
    value = getattr(importlib.import_module(module), name)
    if inspect.isclass(value):
        error = issubclass(value, BaseException)
        return f".. autoexception:: {path}\n" if error else f".. autoclass:: {path}\n   :members:\n"
    return f".. {'autofunction' if inspect.isfunction(value) else 'autodata'}:: {path}\n"
