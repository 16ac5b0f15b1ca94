"""Suites of environments, the papers' numbers for them, and presets of published checkpoints.

    for row in suite("deepsearch"):
        row.env, row.options, row.tasks, row.metric     # "arpo/GAIA-v0", {}, 103, "accuracy"
    published_for("arpo/GAIA-v0", "accuracy", {"tasks": 103})
    row = preset("arpo-qwen2.5-3b")
    options, rollout = apply(row, {"split": "test"}, {"seed": 1})   # what is given wins over the preset

`published.csv` has the papers' results: ARPO's tables 1 and 2, pass@k, AEPO and Tool-Star. Values are in percent, each
as if from a single run: all on AIME are multiples of 1/30. On GAIA's 103 questions one question is 0.97 points, and
differences of three points are noise. `reproductions.csv` has what users measured with the published weights, as they
say in issues of the authors' repository; nobody here has repeated it.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from typing import Any

import yaml

from arpo_trainer.make_env import known_id
from arpo_trainer.validation import check_name
from envs_registry import all_specs
from envs_registry.nearest_name import nearest_hint
from envs_registry.spec import get_spec, has_spec

_FILES = resources.files("arpo_trainer.evaluation")


@dataclass(frozen=True)
class Preset:
    """How a published checkpoint is evaluated; presets.yaml says where the values come from."""

    name: str
    model: str  # id on the Hugging Face hub
    template: str  # family of its chat template
    # options of every environment: protocol, prompt, tools and limits. The language is that of the environment, as in
    # the published code, which has a Chinese prompt for Chinese sets
    env_options: Mapping[str, Any]
    rollout: Mapping[str, Any]  # fields of `RolloutSettings`: sampling, and tokens of a turn
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)  # empty where the published code has defaults
    source: tuple[str, ...] = ()  # addresses that state the values
    ours: tuple[str, ...] = ()  # what the published code leaves open or does in another way here
    not_known: tuple[str, ...] = ()  # what could not be established


@functools.cache
def presets() -> dict[str, Preset]:
    """Return the presets by name."""
    found = yaml.safe_load((_FILES / "presets.yaml").read_text(encoding="utf-8"))
    families: dict[str, dict[str, Any]] = {
        family: {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
        for family, values in found["families"].items()
    }
    return {
        name: Preset(name, model, template, **families[family])
        for name, (family, model, template) in found["presets"].items()
    }


def preset(name: str) -> Preset:
    """Return a preset by its name, or by the hub id of its model.

    Raises:
        ValueError: there is no such preset; the error lists all, and the nearest one.
    """
    for row in presets().values():
        if name.lower() == row.model.lower():
            return row
    check_name("preset", name, presets())
    return presets()[name]


def apply(
    row: Preset, env_options: Mapping[str, Any], rollout: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return options of environments and settings of rollouts with a preset under those that are given.

    Limits of tools that are taken away with `tools` go with them.
    """
    options: dict[str, Any] = {**row.env_options, **env_options}
    limits = options.get("tool_limits")
    if limits and "tool_limits" not in env_options:
        options["tool_limits"] = {name: most for name, most in limits.items() if name in options["tools"]}
    return options, {**row.rollout, **rollout}


def preset_table() -> list[tuple[str, ...]]:
    """Return the presets as rows of text, the first of them the headings."""
    rows = [(row.name, row.model, str(row.env_options["protocol"]), row.source[0]) for row in presets().values()]
    return [("PRESET", "MODEL", "PROTOCOL", "SOURCE"), *rows]


@dataclass(frozen=True)
class SuiteRow:
    """One environment of a suite."""

    env: str
    options: dict[str, Any] = field(default_factory=dict)
    tasks: int | None = None  # how many are played, the first ones: those of the papers, at most 500 of a set
    metric: str = "accuracy"  # what is compared with the papers; judged by Qwen2.5-72B-Instruct there
    subset: str = ""  # which part of the set the papers play
    # whether the first `tasks` are the papers' own. For the other sets they are in the published code's
    # evaluation/data; give its files with `data=`
    same_tasks: bool = True


_TEST, _HELD_OUT = {"split": "test"}, {"split": "validation"}
_ROWS: dict[str, tuple[Any, ...]] = {
    "AIME24": ({}, 30, "accuracy", "all 30"),
    "AIME25": ({}, 30, "accuracy", "all 30"),
    "MATH500": ({}, 500, "accuracy", "all 500"),
    "GSM8K": (_TEST, 500, "accuracy", "the first 500 of 1,319 (test)"),
    "MATH": (_TEST, 500, "accuracy", "500 of 5,000 (test)", False),
    "WebWalker": (_TEST, 200, "accuracy", "200 of 680 (test)", False),
    "HotpotQA": (_HELD_OUT, 200, "f1", "200 of 7,405 (validation)", False),
    "2Wiki": (_HELD_OUT, 200, "f1", "200 of 12,576 (validation)", False),
    "MuSiQue": (_HELD_OUT, 200, "f1", "200 of 2,417 (validation)", False),
    "Bamboogle": ({}, 125, "f1", "all 125"),
    "GAIA": ({}, 103, "accuracy", "the 103 text-only of 165 (validation)"),
    "HLE": ({}, 500, "accuracy", "500 of about 2,150 text-only ones", False),
    "xBench": ({}, 100, "accuracy", "all 100"),
}
PAPER_SETS = {name: SuiteRow(f"arpo/{name}-v0", *row) for name, row in _ROWS.items()}
SUITES: dict[str, tuple[str, ...]] = {
    "reasoning": tuple(PAPER_SETS)[:10],  # ARPO's table 1
    "deepsearch": ("GAIA", "WebWalker", "HLE", "xBench"),  # its table 2
    "papers": tuple(PAPER_SETS),
}


def suite(name: str) -> tuple[SuiteRow, ...]:
    """Return the environments of a suite.

    Raises:
        ValueError: there is no such suite; the message names the suites, and the nearest one or a nearby environment.
    """
    if name not in SUITES:
        ids = {spec.id.split("/")[-1].rsplit("-v", 1)[0].lower(): spec.id for spec in all_specs()}
        near = ids.get(name.lower()) or nearest_hint(name, [*SUITES, *ids.values()], "{}")
        hint = f"; did you mean {near!r}?" if near else ""
        raise ValueError(f"no suite {name!r}; there is {', '.join(SUITES)}{hint} (`arpo envs` lists environments)")
    return tuple(PAPER_SETS[each] for each in SUITES[name])


def environment_rows(names: Iterable[str]) -> list[SuiteRow]:
    """Return the rows of suites and single environments, each environment once.

    Raises:
        ValueError: there is no suite of a name without a slash.
        UnknownEnvError: an environment is not known; the error lists the nearest ids.
    """
    rows: dict[str, SuiteRow] = {}
    for name in names:
        for row in suite(name) if name in SUITES or "/" not in name else (_single_row(name),):
            rows.setdefault(row.env, row)
    return list(rows.values())


def _single_row(name: str) -> SuiteRow:
    """Return the row of an environment that was named by itself: all tasks of the split for evaluation."""
    env_id = known_id(name)
    for known in suite("papers"):
        if known.env == env_id:
            return replace(known, tasks=None, subset="")
    splits = get_spec(env_id).splits if has_spec(env_id) else ()
    split = next((one for one in ("test", "validation") if one in splits), None)
    # the name as it was given, since it may begin with the module that registers it
    return SuiteRow(name, {"split": split} if split else {})


def suite_table() -> list[tuple[str, ...]]:
    """Return the suites as rows of a table, the first one with the columns' names."""
    rows: list[tuple[str, ...]] = [("SUITE", "ENVIRONMENT", "TASKS", "METRIC", "SUBSET")]
    for suite_name, row in ((each, row) for each in SUITES for row in suite(each)):
        own = "" if row.same_tasks else "; the same ones with data=FILE of the published code"
        few = "; few tasks: add -n 32 for avg@32" if (row.tasks or 0) < 50 else ""
        rows.append((suite_name, row.env, str(row.tasks), row.metric, row.subset + own + few))
    return rows


def set_name(env: str) -> str:
    """Return the name in `PAPER_SETS` that an environment id would have."""
    return env.rsplit("/", 1)[-1].rsplit("-v", 1)[0]


@functools.cache
def published(file: str = "published.csv") -> tuple[dict[str, Any], ...]:
    """Return the rows of published.csv: model, method, set, metric, value (in percent), source, part and note.

    `part` is a level or category of the set, or "" for the whole. HLE's NS, CE and SF are the paper's own groups.
    `file` may be reproductions.csv, which has the same columns.
    """
    lines = (_FILES / file).read_text(encoding="utf-8").splitlines()
    return tuple({**row, "value": float(row["value"])} for row in csv.DictReader(lines))


def published_for(env: str, metric: str, about: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the papers report for an environment, as plain data; {} if they do not use it.

    Args:
        env: id of the environment.
        metric: what was measured.
        about: facts of the environment in the run: `tasks`, and `options` with "data" for files of one's own.

    Returns:
        {"set", "metric", "subset", "tasks", "differs": [reasons], "rows": [...], "reproductions": [...]}. `differs`
        says why a number is not comparable with the papers'; it is empty if nothing is known to differ.
        `reproductions` are rows of others who measured the published weights.
    """
    name = set_name(env)
    known = PAPER_SETS.get(name)
    if known is None:
        return {}
    differs = []
    if metric != known.metric:
        differs.append(f"the papers report {known.metric}, this is {metric}")
    if (tasks := about.get("tasks")) != known.tasks:
        differs.append(f"the papers play {known.tasks:,} tasks, this run {'?' if tasks is None else f'{tasks:,}'}")
    if not known.same_tasks and not about.get("options", {}).get("data"):
        differs.append(f"the papers' {known.tasks:,} tasks are in their own file (data=FILE)")
    rows, again = (
        [{key: value for key, value in row.items() if key != "set"} for row in published(file) if row["set"] == name]
        for file in ("published.csv", "reproductions.csv")
    )
    about_set = {"set": name, "metric": known.metric, "subset": known.subset, "tasks": known.tasks}
    return {**about_set, "differs": differs, "rows": rows, "reproductions": again}
