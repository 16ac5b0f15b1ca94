"""The `arpo` command. A command's module is imported when it runs, so that `arpo envs` answers at once."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from cyclopts import CycloptsError
from cyclopts.exceptions import UnusedCliTokensError

from arpo_trainer.cli.command_options import new_app, write_table
from arpo_trainer.optional_dependencies import naming_extras
from arpo_trainer.run.launch import command_line

if TYPE_CHECKING:
    from envs_registry import EnvSpec

app = new_app(
    "arpo",
    "Tool-using language agents: environments and training. `arpo --traceback COMMAND` shows where an error came from.",
)
_COMMANDS = (
    ("doctor", "doctor:doctor", "show what this machine has and lacks, or what a model will get"),
    ("models", "model_commands:models", "list the models that need no hub, or download one"),
    ("data", "task_commands:data", "show or export the tasks of environments, or count what two share"),
    ("play", "task_commands:play", "play an episode in the terminal, by hand or with a model"),
    ("rollout", "play_commands:rollout", "play tasks as trees, record them, and print a summary"),
    ("eval", "play_commands:evaluate", "evaluate models on environments and suites; compare, re-score"),
    ("synth", "play_commands:synth", "make cold-start data from questions with a model"),
    ("sft", "train_commands:sft", "train a model on traces: the cold start"),
    ("dpo", "train_commands:dpo", "train a model on pairs of its own right and wrong trajectories"),
    ("train", "train_commands:train", "train a model, and write a report"),
    ("run", "train_commands:run", "run synth, sft, train, dpo and eval from one file"),
    ("recipes", "train_commands:recipes", "list the recipes, which `arpo COMMAND --recipe NAME` runs"),
    ("export", "train_commands:export", "write a checkpoint as a plain Hugging Face folder with a model card"),
    ("report", "view_commands:report", "write report.html for a run, also while it goes on"),
    ("view", "view_commands:view", "show what a run did; without RUN, list the views"),
    ("plot", "view_commands:plot", "draw a figure of evaluations or training runs as SVG, PDF or PNG"),
    ("cache", "task_commands:cache", "show, import or export recorded searches, pages and verdicts"),
    (
        "sandbox",
        "sandbox_commands:sandbox",
        "check the sandbox, list or remove containers, build its image, serve code",
    ),
    ("search", "task_commands:search", "index a corpus, search it, or serve it over HTTP"),
    ("serve", "task_commands:serve", "serve an environment to OpenEnv or MCP clients"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit status."""
    words = sys.argv[1:] if argv is None else list(argv)
    if words == ["--version"]:
        sys.stdout.write(f"{_version()}\n")
        return 0
    traceback = words[:1] == ["--traceback"]
    # the launcher of several processes runs this same command line again in each of them
    command_line[:] = words[traceback:]
    return reporting(lambda: _run(list(command_line)), traceback)


def _run(words: list[str]) -> int:
    command, bound, _ = app.parse_args(words, exit_on_error=False, print_error=False)
    return int(command(*bound.args, **bound.kwargs) or 0)


def reporting(run: Callable[[], int], traceback: bool) -> int:
    """Run a command; return its exit status. An error is one line, or with `traceback` all of it."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    # with several processes only the main one reports progress; warnings come from all of them. RANK is of the
    # launcher: torch.distributed would have to be imported, even for `arpo envs`
    main_process = os.environ.get("RANK", "0") == "0"
    for name in ("arpo_trainer", "arpo_env", "sandbox"):
        logging.getLogger(name).setLevel(logging.INFO if main_process else logging.WARNING)
    try:
        with naming_extras():
            return run()
    except UnusedCliTokensError as error:
        command = " ".join(["arpo", *(error.command_chain or ())])
        _say(f"error: no place for {' '.join(error.unused_tokens or ())}; `{command} --help` says what it takes")
        return 2
    except CycloptsError as error:
        _say(f"error: {error}")
        return 2
    except KeyboardInterrupt:
        _say("interrupted")
        return 130  # 128 + SIGINT, as shells report it
    except BrokenPipeError:
        # whoever read the output is gone; Python would complain again when it flushes at the end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if traceback:
            raise
        _say(f"error: {error}\n(run again with --traceback before the command to see where)")
        return 1


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


def _version() -> str:
    import importlib.metadata
    import platform

    try:
        version = importlib.metadata.version("arpo-gym")
    except importlib.metadata.PackageNotFoundError:
        version = "of a source tree, not installed"
    return f"arpo-gym {version} (Python {platform.python_version()})"


@app.command
def envs(*module: str) -> None:
    """List the environments.

    Args:
        module: a module of yours that registers environments, or ids; only these are listed then
    """
    from envs_registry import all_specs, get_spec
    from envs_registry.spec import import_module

    ids = [name for name in module if "/" in name and not name.endswith(".py")]
    specs = [get_spec(name) for name in ids]
    before = all_specs()
    for name in module:
        if name not in ids:
            import_module(name)
    # without a module, or with one that was imported already, all
    specs = [*specs, *(spec for spec in all_specs() if spec not in before)] or all_specs()
    rows = [("ID", "SIZE", "TOOLS", "SCORER", "LICENCE")]
    rows += [(s.id, s.size or _size(s), ",".join(s.tool_names), s.scorer, s.licence) for s in specs]
    notes = [f"{s.description} (gated)" if s.gated else s.description for s in specs]
    write_table(rows, notes=["", *notes])


def _size(spec: EnvSpec) -> str:
    """Return the number of tasks of an environment that does not state it, in the form of those that do."""
    from envs_registry import load_source

    sizes = []
    for split in spec.splits or ("",):
        try:
            size = load_source(spec.source, split=split or None).size
        except Exception:  # tasks of the user's own, which may be anything, or need options
            continue
        sizes.append(f"{split} {'endless' if size is None else f'{size:,}'}".strip())
    return " / ".join(sizes)


for _name, _place, _purpose in _COMMANDS:
    app.command(f"arpo_trainer.cli.{_place}", name=_name, help=_purpose)
