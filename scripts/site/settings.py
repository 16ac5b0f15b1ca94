"""Tables of settings: the own fields of `ARPOConfig`, and dataclasses whose docstring describes each attribute."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from typing import Any

from scripts.site.markdown import code, table

CLASSES = {
    "ARPOConfig": "arpo_trainer.config",
    "RunArguments": "arpo_trainer.train",
    "RolloutSettings": "arpo_trainer.settings",
    "EnvSpec": "envs_registry.spec",
    "Limits": "sandbox.limits",
    "Services": "arpo_env.services",
}


def settings_table(name: str) -> str:
    """Return the table of a class of settings: name, type, default, meaning.

    Raises:
        ValueError: a field without a description.
    """
    settings = getattr(importlib.import_module(CLASSES[name]), name)
    fields = own_fields(settings)
    rows = [(code(field.name), code(_type(field)), _default(field), _meaning(settings, field)) for field in fields]
    return table(("setting", "type", "default", "meaning"), rows)


def own_fields(settings: Any) -> list[dataclasses.Field[Any]]:
    """Return the fields that a dataclass itself declares, those of its bases left out, and none that are private."""
    public = (field for field in dataclasses.fields(settings) if field.init and not field.name.startswith("_"))
    return [field for field in public if field.name in settings.__annotations__]


def attribute_docs(settings: Any) -> dict[str, str]:
    """Return what the docstring's section "Attributes" (or "Args") says of each name."""
    text = inspect.getdoc(settings) or ""
    section = re.search(r"^(?:Attributes|Args):\n((?:[ ]{4}.*\n?|\n)+)", text, re.MULTILINE)
    if not section:
        return {}
    entries = re.findall(r"^ {4}(\w+): (.*(?:\n {5,}.*)*)", section[1], re.MULTILINE)
    return {name: " ".join(meaning.split()) for name, meaning in entries}


def _type(field: dataclasses.Field[Any]) -> str:
    return field.type if isinstance(field.type, str) else getattr(field.type, "__name__", str(field.type))


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return code(repr(field.default))
    if field.default_factory is not dataclasses.MISSING:
        return code(repr(field.default_factory()))
    return "required"


def _meaning(settings: Any, field: dataclasses.Field[Any]) -> str:
    said = field.metadata.get("help") or attribute_docs(settings).get(field.name)
    if not said:
        raise ValueError(f"{settings.__name__}.{field.name} has no description")
    return str(said)
