"""The settings of a run as users write them: a recipe, a YAML file, and `name=value` on the command line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

from arpo_trainer.validation import nearest_names

RECIPES = Path(__file__).parents[1] / "recipes"
# command: the folder of its recipes; a name may be in several, as a training run and the pipeline around it are
FOLDERS = {"train": RECIPES, **{name: RECIPES / name for name in ("sft", "dpo", "synth")}, "run": RECIPES / "pipelines"}


def recipe_names(command: str = "train") -> list[str]:
    """Return the names of the recipes of a command: train, sft, dpo or run."""
    return sorted(path.stem for path in FOLDERS[command].glob("*.yaml"))


def check_recipe(name: str, command: str = "train") -> None:
    """Check that a recipe exists."""
    if name in recipe_names(command):
        return
    if others := [other for other in FOLDERS if name in recipe_names(other)]:
        raise ValueError(f"{name!r} is a recipe of `arpo {others[0]}`: arpo {others[0]} --recipe {name}")
    file = f" (a file is given with --config {name})" if Path(name).is_file() else ""
    raise FileNotFoundError(f"no recipe {name!r}{file}. {_recipes_like(name, command)} `arpo recipes` lists them")


def _recipes_like(name: str, command: str) -> str:
    names = recipe_names(command)
    near = nearest_names(name, names, 3)
    return f"Did you mean: {near}?" if near else f"Recipes: {', '.join(names)}."


def recipe_summary(name: str, command: str = "train") -> str:
    """Return the first sentence of a recipe's opening comment, up to a parenthesis."""
    opening = []
    for line in (FOLDERS[command] / f"{name}.yaml").read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        opening.append(line.lstrip("# ").strip())
    return " ".join(opening).partition(". ")[0].partition(" (")[0].rstrip(".")


def read_settings(
    config: str | Path | None, overrides: Iterable[str] = (), env_options: Sequence[str] = (), command: str = "train"
) -> dict[str, Any]:
    """Return the settings of a YAML file or a recipe, with overrides applied.

    `base: NAME` in a file takes the settings of another file (beside it, or a path) or recipe; the file's own settings
    replace them. Mappings, such as `env_kwargs`, are merged key by key.

    Args:
        config: a file, or the name of a recipe; None is neither.
        overrides: `name=value` texts with values in YAML; a dot reaches into a mapping, as in
            `model_init_kwargs.revision=main`.
        env_options: `name=value` texts for single options of the environment, merged into `env_kwargs`.
        command: whose recipes are meant: train, sft, dpo or run.

    Raises:
        FileNotFoundError: there is neither such a file nor such a recipe; the error lists the nearest recipes.
        ValueError: the file is not a YAML mapping, is its own base, or an override is not `name=value`.
    """
    settings = _read_file(str(config), (), command) if config else {}
    given = parse_assignments(overrides, "--set")  # all are parsed before one is applied
    options = {f"env_kwargs.{name}": value for name, value in parse_assignments(env_options, "--env-set").items()}
    return _overridden(_overridden(settings, given, merge=False), options)


def read_section(section: dict[str, Any], command: str) -> dict[str, Any]:
    """Return the settings of a section of a pipeline: on top of those of its `base`, with dotted names resolved."""
    base = section.get("base")
    settings = _read_file(str(base), (), command) if base and command in FOLDERS else {}
    return _overridden(settings, {name: value for name, value in section.items() if name != "base"})


def _overridden(settings: dict[str, Any], given: dict[str, Any], merge: bool = True) -> dict[str, Any]:
    """Return settings with others on top; a dot reaches into a mapping, and whole mappings are merged if asked for."""
    for path, value in given.items():
        name, dot, option = path.partition(".")
        new = {name: {option: value} if dot else value}
        settings = _merge(settings, new) if dot or merge else {**settings, **new}
    # YAML reads `no` as False, and transformers' strategies have a "no"
    no = {name: "no" for name, value in settings.items() if name.endswith("_strategy") and value is False}
    return {name: _as_number(value) for name, value in (settings | no).items()}


def parse_assignments(texts: Iterable[str], flag: str) -> dict[str, Any]:
    """Read `name=value` texts with values in YAML."""
    return dict(_parse_assignment(text, flag) for text in texts)


def _parse_assignment(text: str, flag: str) -> tuple[str, Any]:
    name, sign, value = text.partition("=")
    if not sign or not name.strip():
        raise ValueError(f"{flag} {text!r}: write name=value, such as level=2")
    if value.strip() == "None":  # in YAML a text, which nobody means
        raise ValueError(f"{flag} {text!r}: write null, which is YAML for None")
    try:
        return name.strip(), _as_number(yaml.safe_load(value))
    except yaml.YAMLError as error:
        raise ValueError(f"{flag} {text!r}: the text after '=' is not valid YAML; put it in quotes") from error


def _read_file(config: str, above: tuple[Path, ...], command: str) -> dict[str, Any]:
    """Return the settings of a file, merged into those of its base."""
    path = Path(config) if Path(config).is_file() else FOLDERS[command] / f"{config}.yaml"
    if not path.is_file():
        hint = _recipes_like(config, command)
        raise FileNotFoundError(f"no settings file {config!r}, and no recipe of that name. {hint}")
    if path in above:
        raise ValueError(f"{path} is its own base: {' -> '.join(one.stem for one in (*above, path))}")
    settings = _load_yaml(path)
    base = settings.pop("base", None)
    if not base:
        return settings
    # a file beside this one comes first; else the base is a path or the name of a recipe
    beside = path.parent / str(base)
    return _merge(_read_file(str(beside if beside.is_file() else base), (*above, path), command), settings)


def _load_yaml(path: Path) -> dict[str, Any]:
    try:
        settings = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ValueError(f"{path}{where}: {error.problem}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(
            f"{path} is not a YAML file ({' '.join(str(error).split())}); give a file of `name: value` lines"
        ) from error
    if not isinstance(settings, dict):
        raise ValueError(f"{path}: expected `name: value` lines")
    return settings


def _merge(base: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings on top of others; mappings are merged."""
    both = {name: value for name, value in base.items() if isinstance(value, dict)}
    # an explicit null replaces a mapping as a whole
    joined = {name: {**both[name], **value} for name, value in settings.items() if name in both and value is not None}
    return {**base, **settings, **joined}


def _as_number(value: Any) -> Any:
    """Return 1e-5 as a number: YAML 1.1 reads it as text."""
    return float(value) if isinstance(value, str) and re.fullmatch(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+", value) else value
