"""`InferenceSettings`: which tools help at inference time, how often, and by which model.

    InferenceSettings(debugger=1, backtracer=1)
    InferenceSettings.of({"debugger": 2, "model": "gpt-4.1-mini", "url": "https://host/v1"})
    read_tools("debugger,backtracer=2")                          # {"debugger": 1, "backtracer": 2}

The tools are those of Tool-Star (arXiv 2505.16410, sec. 2.1): each is used at most once in a sample there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from arpo_trainer.validation import check_name, check_types

DEBUGGER, BACKTRACER, REFINER = TOOLS = ("debugger", "backtracer", "refiner")
PRICES = ("input", "output", "cached")
PUBLISHED_LENGTH = 8192  # tokens from which the published code refines a sequence


@dataclass(frozen=True)
class InferenceSettings:
    """What helps a policy while it is evaluated.

    Attributes:
        debugger: most times in a sample that failed code is corrected by a model; 0 is never.
        backtracer: most times in a sample that a turn whose code failed is taken back and generated again.
        refiner: most times in a sample that long thoughts are shortened by a model.
        model: name of the helping model at an OpenAI-compatible server; "" is the policy itself.
        url: of the server; None is OPENAI_BASE_URL.
        refine_above: tokens after the prompt from which the thoughts are shortened before the next turn.
        helper_tokens: most tokens of a reply of the helping model.
        price: of that model, in US dollars for a million tokens: {"input", "output", "cached"}; None if not known. The
            policy has its own.

    Raises:
        ValueError: a number is below its lowest value, or there is an address or a price without a model.
    """

    debugger: int = 0
    backtracer: int = 0
    refiner: int = 0
    model: str = ""
    url: str | None = None
    refine_above: int = PUBLISHED_LENGTH
    helper_tokens: int = 4096
    price: dict[str, float] | None = None

    def __post_init__(self) -> None:
        check_types(self, self.__annotations__)
        for name, low in {**dict.fromkeys(TOOLS, 0), "refine_above": 1, "helper_tokens": 1}.items():
            if getattr(self, name) < low:
                raise ValueError(f"{name} must be at least {low}, got {getattr(self, name)}")
        if self.url and not self.model:
            raise ValueError(f"the address {self.url!r} of the helping model needs its name there: --with-model NAME")
        if self.price is not None and (set(self.price) != set(PRICES) or not self.model):
            raise ValueError(f"the price {self.price} must have {', '.join(PRICES)}, and a helping model: --with-model")

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in TOOLS)

    def left(self, tool: str, used: tuple[str, ...]) -> bool:
        """Return whether a tool may be used once more in a sample that has used these."""
        most: int = getattr(self, tool)
        return used.count(tool) < most

    def check(self, temperature: float) -> None:
        """Refuse rollouts in which these tools cannot work.

        Args:
            temperature: of the policy.

        Raises:
            ValueError: names what to change.
        """
        if self.backtracer and temperature == 0:
            raise ValueError(
                "the backtracer generates a turn again, and at temperature 0 it would be the same turn: set a "
                "temperature above 0, or leave the backtracer out"
            )

    def as_dict(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults as plain data."""
        return {
            entry.name: getattr(self, entry.name)
            for entry in dataclasses.fields(self)
            if getattr(self, entry.name) != entry.default
        }

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> InferenceSettings:
        """Read what `as_dict` wrote.

        Raises:
            ValueError: a name is unknown; names the nearest one.
        """
        for name in data:
            check_name("inference_tools", name, [entry.name for entry in dataclasses.fields(cls)])
        return cls(**data)


def read_tools(text: str) -> dict[str, int]:
    """Return tool -> most uses in a sample, from "debugger,backtracer=2".

    Raises:
        ValueError: a tool is unknown, named twice, or has no whole number of at least 1.
    """
    found: dict[str, int] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, given, count = part.partition("=")
        check_name("a tool of --with", name.strip(), TOOLS)
        if name.strip() in found:
            raise ValueError(f"--with names {name.strip()!r} twice")
        if given and not (count.strip().isdecimal() and int(count) > 0):
            raise ValueError(f"--with {part}: write how often in a sample, such as {name.strip()}=2")
        found[name.strip()] = int(count) if given else 1
    return found
