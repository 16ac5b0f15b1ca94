"""Tables of the algorithms, and of the rows that they are made of."""

from __future__ import annotations

from collections.abc import Callable

from arpo_trainer.algorithms.branching import BRANCHES
from arpo_trainer.algorithms.losses import LOSSES
from arpo_trainer.algorithms.registry import ALGORITHMS
from scripts.site.markdown import code, table

_YES = {True: "yes", False: ""}


def algorithm_table(which: str) -> str:
    """Return one of the tables: "algorithms", "branches" or "losses".

    Raises:
        KeyError: no such table.
    """
    return _TABLES[which]()


def _algorithms() -> str:
    header = (
        "`algorithm`",
        "`budget`",
        "`branch`",
        "`advantage`",
        "`attribution`",
        "`policy_loss`",
        "`entropy_weight`",
        "`action_weight`",
    )
    rows = [
        (
            code(name),
            code(row.budget),
            code(row.branch or "") or "never",
            code(row.advantage),
            code(row.attribution),
            code(row.loss),
            f"{row.entropy_weight:g}",
            f"{row.action_weight:g}",
        )
        for name, row in ALGORITHMS.items()
    ]
    return table(header, rows)


def _branches() -> str:
    header = ("`branch`", "points wait until all paths have ended", "default quota of a root", "published engine")
    rows = [(code(name), _YES[row.best], _YES[row.quota], _YES[row.published]) for name, row in BRANCHES.items()]
    return table(header, rows)


def _losses() -> str:
    header = ("`policy_loss`", "`clip`", "ratio over", "below 1 by", "above 1 by", "dual clip")
    rows = [
        (code(name), code(row.clip), row.level, f"{row.low:g}", f"{row.high:g}", f"{row.dual:g}" if row.dual else "")
        for name, row in LOSSES.items()
    ]
    return table(header, rows)


_TABLES: dict[str, Callable[[], str]] = {"algorithms": _algorithms, "branches": _branches, "losses": _losses}
