"""Runs commands and code in a process in which packages cannot be imported, and says what became of each.

    python -m tests.hidden_packages '{"hidden": ["torch"], "cases": {"envs": ["envs"], "name": "import arpo_env"}}'

A case is the arguments of `arpo`, or code. Prints JSON: {case: [exit status, what was written]}. An exception of code
has status 1, one that gets out of the command status -1.
"""

import contextlib
import io
import json
import logging
import sys
from collections.abc import Iterator
from typing import Any

from arpo_trainer.optional_dependencies import EXTRAS


class Without:
    """A finder of modules and of installed distributions that does not find some of them."""

    def __init__(self, finder: Any, modules: set[str]) -> None:
        self._finder, self._modules = finder, modules
        self._names = {name for extra in EXTRAS.values() for name, module in extra.items() if module in modules}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._finder, name)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        return None if name.partition(".")[0] in self._modules else self._finder.find_spec(name, path, target)

    def find_distributions(self, *context: Any) -> Iterator[Any]:
        found = self._finder.find_distributions(*context) if hasattr(self._finder, "find_distributions") else ()
        return (one for one in found if (one.metadata["Name"] or "").lower() not in self._names)


def command(arguments: list[str]) -> int:
    from arpo_trainer.cli.arpo_command import main

    try:
        return main(arguments)
    except SystemExit as end:
        return int(end.code or 0)
    except BaseException as error:
        print(f"{type(error).__name__}: {error}")  # noqa: T201
        return -1


def code(text: str) -> int:
    try:
        exec(compile(text, "case", "exec"), {})
    except Exception as error:
        print(f"{type(error).__name__}: {error}")  # noqa: T201
        return 1
    return 0


def main(job: dict[str, Any]) -> dict[str, tuple[int, str]]:
    sys.meta_path[:] = [Without(finder, set(job["hidden"])) for finder in sys.meta_path]
    results = {}
    for name, case in job["cases"].items():
        sys.stdin, output = io.StringIO(), io.StringIO()
        logging.getLogger().handlers.clear()  # the command's, which write to the last case's output
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            status = code(case) if isinstance(case, str) else command(case)
        results[name] = (status, output.getvalue())
    return results


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))  # noqa: T201
