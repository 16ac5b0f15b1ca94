"""What the commands share: options made from dataclasses, those that name models, and tables on the terminal.

A command is a function: its parameters are the arguments, its docstring is the help. Cyclopts reads both. Every command
takes settings as `--set name=value` and options of an environment as `--env-set name=value`, with values in YAML.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import itertools
import sys
import textwrap
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import docstring_parser
from cyclopts import App, Parameter
from cyclopts.help import PlainFormatter

from arpo_env.net import strip_credentials
from arpo_trainer.run.recipes import parse_assignments

if TYPE_CHECKING:
    from arpo_trainer.evaluation.eval_settings import EvalModel, EvalSettings
    from arpo_trainer.ray_rollouts import RolloutWorkers

# types of parameters: each is one option, with the help that is the same everywhere
Flag = Annotated[bool, Parameter(show_default=False)]
Words = Annotated[tuple[str, ...], Parameter(show_default=False)]
Env = Annotated[str, Parameter(help="environment id, such as arpo/Arithmetic-v0, or MODULE:ID of your own")]
EnvSet = Annotated[Words, Parameter(help="options of the environment, values in YAML: level=2 tools=[python]")]
TemplateSet = Annotated[Words, Parameter(help="arguments of the chat template: enable_thinking=false")]
Limit = Annotated[Words, Parameter(help="maximum number of concurrent operations of a kind: python=8 search=16")]
Ray = Annotated[str | None, Parameter(help="play on a Ray cluster: HOST:PORT, or auto")]
RolloutWorkerCount = Annotated[int, Parameter(help="Ray actors that play; 0: one on each node")]
Price = Annotated[
    tuple[float, ...],
    Parameter(show_default=False, help="US dollars for a million tokens of input, of output, and of cached input"),
]
Recipe = Annotated[str | None, Parameter(help="a recipe of the package; `arpo recipes` lists them")]
Config = Annotated[str | None, Parameter(help="a YAML file with settings")]
AsJson = Annotated[bool, Parameter(name="--json", show_default=False, help="write JSON")]


def set_option(purpose: str) -> Any:
    """Return the type of a parameter for `--set`, whose help is `purpose`."""
    return Annotated[Words, Parameter(name="--set", help=f"{purpose}, values in YAML")]


class Help(PlainFormatter):
    """Plain help whose entries are wrapped to the terminal; cyclopts' own wraps them twice, each time at the margin."""

    def _print_plain(self, console: Any, text: str) -> None:
        if text.startswith(self.indent):  # an entry, and neither a title nor the description of the command
            text = textwrap.fill(
                " ".join(text.split()),
                console.width,
                initial_indent=self.indent,
                subsequent_indent=3 * self.indent,
                break_long_words=False,
                break_on_hyphens=False,
            )
        super()._print_plain(console, text)


def new_app(name: str, purpose: str) -> App:
    """Return a command that has actions, or the whole command line."""
    # lists take all words up to the next option; of a repeated option the last one counts; there is no --no-SWITCH
    every = Parameter(consume_multiple=True, allow_repeating=True, negative=())
    return App(
        name=name,
        help=purpose,
        help_format="plaintext",
        help_formatter=Help(),
        default_parameter=every,
        version_flags=(),
    )


def attribute_docs(settings: type) -> dict[str, str]:
    """Return what the "Attributes" in the docstrings of a class and its bases say of each name."""
    texts = [inspect.getdoc(kind) or "" for kind in reversed(settings.__mro__)]
    entries = [entry for text in texts for entry in docstring_parser.parse(text).params]
    return {entry.arg_name: " ".join((entry.description or "").split()) for entry in entries}


def options_of(settings: type, *names: str, usual: Mapping[str, Any] | None = None, **aliases: str) -> Any:
    """Return the type of a parameter for options that set fields of a dataclass.

    The parameter's value is a dictionary of the fields that were given, so that a file or a stored run keeps the rest.
    Types, help and defaults are those of the dataclass.

    Args:
        settings: the dataclass.
        names: fields that become options.
        usual: defaults where the command's are not those of the dataclass.
        aliases: further fields, each with a second spelling, such as samples="-n".
    """
    types, docs = typing.get_type_hints(settings), attribute_docs(settings)
    defaults = {entry.name: entry.default for entry in dataclasses.fields(settings)} | dict(usual or {})
    options: dict[str, Any] = {}
    for name in (*aliases, *names):
        value = defaults[name]
        text = " ".join(value) if isinstance(value, tuple) else value
        # 0 is a default to show, and equal to False
        known = type(value) is not bool and value not in (None, (), "", dataclasses.MISSING)
        said = docs[name].partition(". ")[0].rstrip(".") + (f" (default {text})" if known else "")
        options[name] = Annotated[types[name], Parameter(help=said, alias=aliases.get(name, ()))]
    given = TypedDict(f"Given{settings.__name__}", options, total=False)  # type: ignore[misc]
    return Annotated[given, Parameter(name="*")]


def read_counts(texts: Iterable[str], flag: str) -> dict[str, int]:
    """Return whole numbers that were given as NAME=NUMBER."""
    found = parse_assignments(texts, flag)
    for name, value in found.items():
        # not isinstance: True is an int in Python, and `python=true` is a mistake
        if type(value) is not int:
            raise ValueError(f"{flag} {name}={value}: write a whole number, such as {name}=8")
    return found


def chosen(given: Mapping[str, Any], needed: bool = False) -> Any:
    """Return the value of the only option that was given, or None."""
    there = {name: value for name, value in given.items() if value not in (None, False, ())}
    if len(there) > 1 or (needed and not there):
        raise ValueError(f"give {'only one' if there else 'one'} of {', '.join(given)}")
    return next(iter(there.values()), None)


def given_with_set(flags: Mapping[str, Any], texts: Sequence[str]) -> dict[str, Any]:
    """Return settings of options and of `--set`; what both say is refused."""
    more = parse_assignments(texts, "--set")
    if both := sorted(set(flags) & set(more)):
        raise ValueError(f"--set {both[0]} and --{both[0].replace('_', '-')} set the same: give only one of them")
    return {**flags, **more}


# The models that `arpo eval` and `arpo synth` sample from.

_TOGETHER = "--endpoint URL and --endpoint-model NAME go together: give both, or neither"


@Parameter(name="*")
@dataclasses.dataclass
class ModelOptions:
    """The options that name models.

    Attributes:
        model: folders, hub ids or names of `arpo models`; an output folder: its checkpoints; with
            --endpoint it is needed for its tokenizer, and any similar model will do
        vllm: generate with vLLM in this process
        vllm_server: generate on vLLM servers at these addresses
        endpoint: generate on an OpenAI-compatible endpoint at this address; with --env-set protocol=native its model
            calls tools as it learned to, not by ARPO's tags
        endpoint_model: names at the endpoint
    """

    model: Words = ()
    vllm: Flag = False
    vllm_server: Words = ()
    endpoint: str | None = None
    endpoint_model: Words = ()
    price: Annotated[tuple[float, ...], Parameter(parse=False)] = ()

    @property
    def named(self) -> bool:
        """Whether models are named, and not only where they run."""
        return bool(self.model or self.endpoint_model)

    def read(self) -> list[EvalModel]:
        """Return the models that the options name."""
        from arpo_trainer.evaluation.eval_settings import EvalModel, checkpoints, model_label

        chosen({"--vllm": self.vllm, "--vllm-server": self.vllm_server, "--endpoint": self.endpoint})
        if address := next((path for path in self.model if path.startswith(("http://", "https://"))), ""):
            address = strip_credentials(address)
            raise ValueError(
                f"--model {address} is an address: give it as --endpoint {address} --endpoint-model NAME, and with "
                "--model a folder or hub id for the tokenizer"
            )
        if bool(self.endpoint) != bool(self.endpoint_model):
            raise ValueError(_TOGETHER)
        price = read_price(self.price)
        if self.endpoint:
            if len(self.model) != 1:
                raise ValueError(
                    "an endpoint needs one --model whose tokenizer measures the texts; any similar one will do"
                )
            path, urls = self.model[0], (self.endpoint,)
            return [EvalModel(name, "endpoint", path, urls, name, price) for name in self.endpoint_model]
        if self.vllm_server and len(self.model) > 1:
            raise ValueError("vLLM servers serve one model: give one --model, the one that they serve")
        kind: Any = "vllm" if self.vllm else "vllm-server" if self.vllm_server else "transformers"
        paths = [one for path in self.model for one in ([path] if self.vllm_server else checkpoints(path))]
        return [EvalModel(model_label(path), kind, path, self.vllm_server, price=price) for path in paths]

    def again(self, stored: Mapping[str, dict[str, Any]]) -> list[EvalModel]:
        """Return those that --model names, or else those whose facts a folder keeps, with what the options say anew.

        Another name at the endpoint is another model, which is refused later if the folder has episodes.
        """
        from arpo_trainer.evaluation.eval_settings import EvalModel

        if self.model:
            return self.read()
        if self.endpoint_model and len(self.endpoint_model) != len(stored):
            raise ValueError(f"the run has the models {', '.join(stored)}: give --endpoint-model a name for each")
        if self.vllm_server and len(stored) > 1:
            raise ValueError("vLLM servers serve one model, and the run has several: name the one with --model")
        new_price, models = read_price(self.price), []
        for (label, facts), new in itertools.zip_longest(stored.items(), self.endpoint_model):
            kept = facts["price"] and tuple(facts["price"][name] for name in ("input", "output", "cached"))
            kind, urls, name = facts["kind"], tuple(facts["urls"]), facts["name"]
            if new and not (self.endpoint or kind == "endpoint"):
                raise ValueError(_TOGETHER)
            if new and new != name:
                label = name = new
            if self.endpoint:
                kind, urls = "endpoint", (self.endpoint,)
            elif self.vllm or self.vllm_server:
                # what an endpoint calls its model says nothing about these weights: then the settings differ
                name = "" if kind == "endpoint" else name
                kind, urls = "vllm" if self.vllm else "vllm-server", self.vllm_server
            models.append(EvalModel(label, kind, facts["path"], urls, name, new_price or kept))
        return models


def read_price(given: Sequence[float]) -> tuple[float, float, float] | None:
    """Return the prices of input, output and cached input from the amounts that were given."""
    if not given:
        return None
    if len(given) not in (2, 3) or any(not price >= 0 for price in given):
        raise ValueError("--price takes two or three amounts of at least 0: input, output, and input from a cache")
    return given[0], given[1], given[2] if len(given) == 3 else given[0]


@contextlib.contextmanager
def opened_workers(
    ray: str | None, count: int, settings: EvalSettings, models: Sequence[EvalModel]
) -> Iterator[RolloutWorkers | None]:
    """Start the Ray actors that `--ray` and `--rollout-workers` ask for, and end them afterwards."""
    if not (ray or count):
        yield None
        return
    from arpo_trainer.evaluation.eval_settings import check_for_workers
    from arpo_trainer.ray_rollouts import RolloutWorkers

    check_for_workers(models, settings.cache)
    with RolloutWorkers(count, ray) as workers:
        yield workers


# What the commands print.

_WIDTH = 100  # characters per line


def write_table(rows: Sequence[Sequence[str]], notes: Sequence[str] = ()) -> None:
    """Print rows of equal length with aligned columns, and a note below each row, indented and wrapped."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row, note in itertools.zip_longest(rows, notes[: len(rows)], fillvalue=""):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        sys.stdout.write("  ".join(cells).rstrip() + "\n")
        write_lines(textwrap.wrap(note, _WIDTH, initial_indent="  ", subsequent_indent="  "))


def write_lines(lines: Iterable[object], to: Callable[[str], object] | None = None) -> None:
    """Print lines, one for each object."""
    for line in lines:
        (to or sys.stdout.write)(f"{line}\n")


def resolved(path: str) -> str:
    """Return an existing path as an absolute one; workers that read it have working directories of their own."""
    there = Path(path).expanduser()
    return str(there.resolve()) if there.exists() else path
