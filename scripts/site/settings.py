"""Lists of settings: dataclasses whose docstring describes each attribute."""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

from arpo_trainer.cli.command_options import attribute_docs
from scripts.site.markdown import code

OURS = ("arpo_", "envs_registry", "sandbox")
CLASSES = {
    "ARPOConfig": "arpo_trainer",
    "RolloutWorkerSettings": "arpo_trainer.training.config",
    "WeightArguments": "arpo_trainer.run.arguments",
    "RunArguments": "arpo_trainer.run.arguments",
    "SFTArguments": "arpo_trainer.run.arguments",
    "TraceSettings": "arpo_trainer.sft.trace_data",
    "PairSettings": "arpo_trainer.preference.pairs",
    "EvalSettings": "arpo_trainer.evaluation",
    "SynthSettings": "arpo_trainer.synthesis.synth_settings",
    "DPOArguments": "arpo_trainer.preference.dpo_run",
    "TreeSettings": "arpo_trainer.rollout.settings",
    "RolloutSettings": "arpo_trainer",
    "EnvSpec": "envs_registry",
    "Limits": "sandbox",
    "Services": "arpo_env.services",
}


def settings_table(name: str) -> str:
    """Return a definition list of a class of settings: name, type and default, then the meaning.

    Raises:
        ValueError: a field without a description.
    """
    settings = getattr(importlib.import_module(CLASSES[name]), name)
    return "\n".join(
        f"**{code(field.name)}** {code(_type(field))}, {_default(field)}\n: {_meaning(settings, field)}\n"
        for field in own_fields(settings)
    )


def own_fields(settings: Any) -> list[dataclasses.Field[Any]]:
    """Return the public fields that a dataclass declares, and those of bases of ours that have no list of their own."""
    fields = {field.name: field for field in dataclasses.fields(settings) if field.init}
    listed = [base for base in settings.__mro__[1:] if base.__name__ in CLASSES]
    own = [base for base in settings.__mro__ if base.__module__.startswith(OURS)]
    own = [base for base in own if not any(issubclass(other, base) for other in listed)]
    names = [name for base in reversed(own) for name in base.__annotations__]
    return [fields[name] for name in names if name in fields and not name.startswith("_")]


def _type(field: dataclasses.Field[Any]) -> str:
    return field.type if isinstance(field.type, str) else getattr(field.type, "__name__", str(field.type))


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return f"default {code(repr(field.default))}"
    if field.default_factory is not dataclasses.MISSING:
        return f"default {code(repr(field.default_factory()))}"
    return "required"


def _meaning(settings: Any, field: dataclasses.Field[Any]) -> str:
    said = attribute_docs(settings).get(field.name)
    if not said:
        raise ValueError(f"{settings.__name__}.{field.name} has no description")
    return str(said)
