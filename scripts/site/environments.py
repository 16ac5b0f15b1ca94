"""Tables of the registered environments, family by family."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import arpo_env  # noqa: F401  (registers the environments)
from envs_registry import DataSet, EnvSpec, all_specs, get_spec
from envs_registry.datasets.question_sets import DEEP_SEARCH_SETS, MATH_SETS, MULTIHOP_SETS, TRAINING_SETS
from envs_registry.datasets.tool_sets import TOOL_SETS
from envs_registry.generated import GENERATED
from scripts.site.markdown import anchor, code, table

DATA_SETS: dict[str, Sequence[DataSet]] = {
    "math": MATH_SETS,
    "multihop": MULTIHOP_SETS,
    "deep-search": DEEP_SEARCH_SETS,
    "training": TRAINING_SETS,
}
FAMILIES = ("generated", *DATA_SETS, "tool-sets")


def all_environments(_: str) -> str:
    """Return one table of every registered environment, each with a link to its family's page.

    Raises:
        LookupError: an environment that belongs to no family.
    """
    pages = {spec.id: name for name in FAMILIES for spec in specs_of(name)}
    rows = []
    for spec in all_specs():
        if spec.id not in pages:
            raise LookupError(f"{spec.id} belongs to no family: add its table to scripts/site/environments.py")
        link = f"[{code(spec.id)}](environments/{pages[spec.id]}.md)"
        rows.append((link, spec.description, spec.size, _names(spec.tool_names), str(spec.scorer), spec.licence))
    return table(("id", "tasks", "size", "tools", "scorer", "licence"), rows)


def family(name: str) -> str:
    """Return the tables of one family: what is played, and which columns of the data are read."""
    specs = specs_of(name)
    text = "".join(anchor(f"env-{spec.source}") for spec in specs) + "\n"
    text += table(
        ("id", "tasks", "splits (the first is the default)", "levels", "size", "licence"),
        [(code(s.id), _with_terms(s), _names(s.splits), _names(s.levels), s.size, s.licence) for s in specs],
    )
    text += "\n" + table(
        ("id", "tools", "scorer", "turns", "tool calls", "seconds per call", "tokens"),
        [
            (
                code(s.id),
                _names(s.tool_names),
                code(str(s.scorer)),
                str(s.max_turns),
                _calls(s),
                f"{s.tool_timeout:g}",
                str(s.max_tokens or "no limit"),
            )
            for s in specs
        ],
    )
    return text + (_columns(DATA_SETS[name]) if name in DATA_SETS else "")


def specs_of(name: str) -> list[EnvSpec]:
    """Return the specs of a family, in the order of its table."""
    if name == "generated":
        return list(GENERATED)
    if name == "tool-sets":
        return list(TOOL_SETS)
    return [get_spec(f"arpo/{row.name}-v0") for row in DATA_SETS[name]]


def _columns(rows: Iterable[DataSet]) -> str:
    text = "\n## Columns of the data\n\n"
    text += "The question is the first of its columns that a row has. Answers of all their columns are accepted.\n\n"
    return text + table(("id", "on the hub", "columns"), [_columns_of(row) for row in rows])


def _columns_of(row: DataSet) -> tuple[str, str, str]:
    config = f", {code(row.configs[0])}" if len(row.configs) == 1 and row.configs[0] else ""
    further = [*row.reads, *([row.kind_column] if row.kind_column else [])]
    parts = [
        f"question: {_names(row.question)}",
        f"answers: {_names(row.answers)}",
        f"id: {code(row.row_id)}",
        *([f"level: {code(row.level)}"] if row.level else []),
        *([f"also: {_names(further)}"] if further else []),
        *([f"options: {code('files=True')}"] if row.without_files else []),
    ]
    return code(f"arpo/{row.name}-v0"), code(row.hub) + config, "; ".join(parts)


def _with_terms(spec: EnvSpec) -> str:
    return f"{spec.description}; accept the [terms]({spec.gated}) first" if spec.gated else spec.description


def _calls(spec: EnvSpec) -> str:
    each = ", ".join(f"{name} {most}" for name, most in spec.tool_limits)
    return f"{spec.max_tool_calls} ({each})" if each else str(spec.max_tool_calls)


def _names(names: Iterable[str]) -> str:
    return ", ".join(code(name) for name in names)
