"""Settings of a run as people write them: a YAML file, or a recipe by its name, and `name=value` on top."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Any

from arpo_trainer.cli.recipes_command import RECIPES, recipe_names


def read_settings(config: str | Path, overrides: list[str]) -> dict[str, Any]:
    """Return the settings of a YAML file, or of a recipe by its name, with `key=value` overrides applied.

    `base: NAME` in it takes over the settings of another file (beside it, or where one is) or recipe, and replaces
    those it names itself. Options in a mapping, such as `env_kwargs`, are replaced one by one; an override reaches one
    with a dot: `env_kwargs.search=serper`.

    Raises:
        FileNotFoundError: neither a file nor a recipe; names the recipes.
        ValueError: the file is no mapping, is broken (line and column), is its own base, or an override has no "=".
    """
    import yaml

    settings = _read(str(config), ())
    for override in overrides:
        key, sign, value = override.partition("=")
        if not sign:
            raise ValueError(f"--set {override!r}: write name=value")
        name, dot, option = key.strip().partition(".")
        try:
            read = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise ValueError(f"--set {override!r}: what follows the '=' is no YAML; put it in quotes") from error
        settings = _onto(settings, {name: {option: read}}) if dot else {**settings, name: read}
    return {name: _number(value) for name, value in settings.items()}


def _read(config: str, above: tuple[Path, ...]) -> dict[str, Any]:
    """Return the settings of a file on top of those of its base."""
    import yaml

    path = Path(config) if Path(config).is_file() else RECIPES / f"{config}.yaml"
    if not path.is_file():
        names = recipe_names()
        near = difflib.get_close_matches(config, names, n=3)
        raise FileNotFoundError(
            f"no settings file {config!r}, and no recipe of that name. "
            + (f"Did you mean: {', '.join(near)}?" if near else f"Recipes: {', '.join(names)}")
        )
    if path in above:
        raise ValueError(f"{path} is its own base: {' -> '.join(one.stem for one in (*above, path))}")
    try:
        settings = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ValueError(f"{path}{where}: {error.problem}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(
            f"{path} is no YAML ({' '.join(str(error).split())}); give a file of `name: value` lines"
        ) from error
    if not isinstance(settings, dict):
        raise ValueError(f"{path}: expected `name: value` lines")
    base = settings.pop("base", None)
    if not base:
        return settings
    beside = path.parent / str(base)
    return _onto(_read(str(beside if beside.is_file() else base), (*above, path)), settings)


def _onto(base: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings on top of others; mappings are joined."""
    both = {name: value for name, value in base.items() if isinstance(value, dict)}
    joined = {name: {**both[name], **value} for name, value in settings.items() if name in both and value is not None}
    return {**base, **settings, **joined}


def _number(value: Any) -> Any:
    """Read 1e-5 as the number it is meant to be: YAML 1.1 takes it for text."""
    return float(value) if isinstance(value, str) and re.fullmatch(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+", value) else value
