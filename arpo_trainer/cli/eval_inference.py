"""The options of `arpo eval` for tools at inference time: `--with`, `--with-...` for their model, `--refine-above`."""

from __future__ import annotations

import argparse
from typing import Any

_FIELDS = {"with_model": "model", "with_url": "url", "refine_above": "refine_above"}


def add_inference_options(parser: argparse.ArgumentParser) -> None:
    """Add the options to a parser."""
    parser.add_argument(
        "--with",
        dest="inference",
        metavar="TOOLS",
        help="tools at inference time: debugger, backtracer, refiner, with commas; debugger=2 allows two uses a sample",
    )
    model = "name of the model that helps them, at an OpenAI-compatible server (default: the policy itself)"
    parser.add_argument("--with-model", metavar="NAME", help=model)
    parser.add_argument("--with-url", metavar="URL", help="address of that server (default: OPENAI_BASE_URL)")
    price = "what it costs: US dollars for a million tokens of input and output, and of input from a cache"
    parser.add_argument("--with-price", nargs="+", type=float, metavar="USD", help=price)
    above = "shorten thoughts when a sample has so many tokens (default 8192)"
    parser.add_argument("--refine-above", type=int, metavar="TOKENS", help=above)


def read_inference(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return fields of `InferenceSettings` that were given.

    Raises:
        ValueError: a tool is unknown, with the nearest name; or a price is none.
    """
    from arpo_trainer.cli.model_options import read_price
    from arpo_trainer.inference_tools.inference_settings import PRICES, read_tools

    text = getattr(arguments, "inference", None)
    fields: dict[str, Any] = {} if text is None else dict(read_tools(text))
    for option, name in _FIELDS.items():
        if getattr(arguments, option, None) is not None:
            fields[name] = getattr(arguments, option)
    if price := read_price(getattr(arguments, "with_price", None)):
        fields["price"] = dict(zip(PRICES, price, strict=True))
    return fields
