"""Writes the table of docs/reference/models.md from the chat templates that TRL ships and from what the tests run.

python -m scripts.models_table
"""

from __future__ import annotations

import importlib.resources
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trl.chat_template_utils import is_chat_template_prefix_preserving

from arpo_trainer.cli.doctor import chat_fault
from arpo_trainer.rollout.native import ModelCalls, NoNativeCalls
from tests.arpo_trainer.rollout import test_native
from tests.arpo_trainer.rollout.test_rendering import small_tokenizer
from tests.arpo_trainer.run import test_recipes

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "models.md"
START, END = "<!-- written by scripts/models_table.py -->\n", "<!-- end of table -->\n"
HEAD = ("family", "chat templates, by TRL's names", "protocol", "prefix kept", "run in the tests")
# a diffusion model has no log-probability of a token given those before it
LEFT_OUT = ("diffusion_gemma",)
CALLS, STEP = "calls and results, tiny tokenizer", "a training step, tiny weights"
# words of an error: what is said of it
WHY = {
    "show calls": "shows no calls",
    "show results": "shows no results",
    "show tools": "shows no tools",
    "cannot be rendered": "raises an error at a call",
    "unknown form": "calls in a form of its own, without a response template",
}
Row = tuple[str, str, str, str]  # family, protocol, prefix, run


def templates() -> list[str]:
    """Return the names of the chat templates of models; those that TRL patches for training are left out."""
    found = [file.name for file in (importlib.resources.files("trl") / "chat_templates").iterdir()]
    names = [name.removesuffix(".jinja") for name in found if name.endswith(".jinja")]
    return sorted(name for name in names if not name.endswith("_training") and name not in LEFT_OUT)


def row_of(template: str) -> Row:
    """Return what the model of a chat template gets, and what the tests run with the template."""
    known = template in test_native.FAMILIES
    text = (importlib.resources.files("trl") / "chat_templates" / f"{template}.jinja").read_text(encoding="utf-8")
    tokenizer: Any = test_native.tokenizer_of(template) if known else small_tokenizer((["<|im_end|>"], []), text)
    run = [CALLS] * known + [STEP] * (template in test_recipes.TINY.values())
    try:
        family = ModelCalls(tokenizer).family
    except NoNativeCalls as error:
        return _without_calls(tokenizer, str(error))
    kept = "yes" if is_chat_template_prefix_preserving(tokenizer) else "no"
    return f"`{family}`", "`native`", kept, "; ".join(run)


def _without_calls(tokenizer: Any, error: str) -> Row:
    if chat_fault(tokenizer):
        return "-", "none: takes no system prompt, or no plain text", "-", "-"
    why = next(said for words, said in WHY.items() if words in error)
    return "-", f"`arpo-tags`: {why}", "-", "-"


def table() -> Iterator[str]:
    """Yield the lines of the table: one for the templates of a family that get the same."""
    rows: dict[Row, list[str]] = {}
    for template in templates():
        rows.setdefault(row_of(template), []).append(f"`{template}`")
    yield f"| {' | '.join(HEAD)} |"
    yield "|" + "---|" * len(HEAD)
    for family, protocol, kept, run in sorted(rows, key=lambda row: (row[1] != "`native`", row)):
        named = ", ".join(rows[family, protocol, kept, run])
        yield f"| {family} | {named} | {protocol} | {kept} | {run} |"


def page_with_table(page: str) -> str:
    """Return the text of the page with its table written anew."""
    before, _, rest = page.partition(START)
    lines = "".join(f"{line}\n" for line in table())
    return f"{before}{START}\n{lines}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    logging.disable()
    PAGE.write_text(page_with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
