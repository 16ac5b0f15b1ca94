"""Commands on environments and what they ask: `arpo data`, `play`, `search`, `cache` and `serve`.

arpo data show arpo/GAIA-v0 --env-set level=1
arpo data export arpo/GSM8K-v0 --format verl --output train.parquet --env-set split=train
arpo data package arpo/GSM8K-v0 --format verifiers --output arpo-gsm8k
arpo play arpo/Arithmetic-v0 --model smollm2-135m
arpo search index corpus.jsonl my-index
arpo cache import run.sqlite search_cache.json
arpo serve mcp arpo/Arithmetic-v0 --http --port 8001 --show-reward
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from cyclopts.types import ExistingFile

from arpo_trainer.cli.command_options import Env, EnvSet, Flag, TemplateSet, new_app, resolved, write_lines, write_table
from arpo_trainer.make_env import known_id, make_env
from arpo_trainer.optional_dependencies import require
from arpo_trainer.run.recipes import parse_assignments

if TYPE_CHECKING:
    from arpo_env import EnvFactory, ToolEnv
    from envs_registry import EnvSpec, Task, TaskSource

EXAMPLES = 3
Where = Annotated[str, Parameter(help="ENV, ENV:SPLIT or ENV:SPLIT=PATH of a local file; ENV may name its module")]
data = new_app("data", "show or export the tasks of environments, package one, or count what two share")


@data.command
def show(env: Env, /, *, env_set: EnvSet = ()) -> None:
    """Show the tasks of an environment: counts by kind, language and level, repairs and three examples."""
    from envs_registry import get_spec, load_source
    from envs_registry.sources import OF_ENDLESS

    options = parse_assignments(env_set, "--env-set")
    spec = get_spec(env)
    source = load_source(spec.source, **options)
    tasks = [source.task(number) for number in range(source.size or OF_ENDLESS)]
    split = _split(spec, getattr(source, "split", options.get("split")))
    facts = [("ENV", spec.id), ("SPLIT", split), *_origin(source)]
    facts.append(("TASKS", str(source.size) if source.size else f"endless; the first {OF_ENDLESS}:"))
    for title, value in (("KINDS", "kind"), ("LANGUAGES", "language"), ("LEVELS", "level")):
        facts.append((title, _counts(getattr(task, value) for task in tasks)))
    write_table(facts)
    write_lines(f"\n{task.id}\n{_short(task)}\n  answers: {'; '.join(task.answers)}" for task in tasks[:EXAMPLES])


def _split(spec: EnvSpec, split: str | None) -> str:
    if not spec.splits:
        return f"{split}, the only one" if split else "none"
    return f"{split or spec.splits[0]} (of {', '.join(spec.splits)})"


def _origin(source: TaskSource) -> list[tuple[str, str]]:
    from envs_registry import DataSetSource

    if not isinstance(source, DataSetSource):
        return []
    repairs = [(f"  {name}", str(count)) for name, count in source.repairs.items()]
    origin = f"{source.origin} at {source.revision}" if source.revision else source.origin
    return [("FROM", origin), ("ROWS READ", str(source.rows)), ("REPAIRS", "" if repairs else "none"), *repairs]


def _counts(values: Iterable[str]) -> str:
    return ", ".join(f"{value or 'none'} {count:,}" for value, count in sorted(Counter(values).items()))


def _short(task: Task, limit: int = 400) -> str:
    return task.question if len(task.question) <= limit else task.question[:limit] + " ..."


@data.command(name="export")
def export_tasks(
    env: Env, /, *, format: str, output: Path, limit: int | None = None, overwrite: Flag = False, env_set: EnvSet = ()
) -> None:
    """Write the tasks of an environment to a file of rows that another framework reads.

    Args:
        env: environment id
        format: verl, trl, ...; a wrong name lists all
        output: a .jsonl or .parquet file
        limit: maximum number of rows; required if tasks are generated without end
        overwrite: replace the file if it is there
        env_set: options of the environment
    """
    from arpo_env.adapters.task_rows import row_format, task_rows, write_rows
    from arpo_env.registration import EnvFactory

    suffixes = row_format(format).suffixes
    if output.suffix not in suffixes:
        raise ValueError(f"--output {output}: the format {format} is a file {' or '.join(suffixes)}")
    if output.exists() and not overwrite:
        raise FileExistsError(f"{output} is there already; add --overwrite to replace it")
    options = parse_assignments(env_set, "--env-set")
    if isinstance(options.get("data"), str):
        options["data"] = resolved(options["data"])
    count = write_rows(output, task_rows(EnvFactory(env, **options), format, limit), overwrite=True)
    sys.stdout.write(f"wrote {count} rows to {output}\n")


@data.command
def package(env: Env, /, *, format: str, output: Path, env_set: EnvSet = (), requirement: str = "") -> None:
    """Write an environment as a folder that users of another framework install or publish.

    Args:
        env: environment id
        format: verifiers (also of prime-rl), or openenv (a Hugging Face Space)
        output: a new folder
        env_set: options of the environment; files that `data` and `search` name are copied into the folder
        requirement: where users get arpo-gym, which is on no index: 'arpo-gym @ git+ADDRESS'
    """
    from arpo_env.adapters.package import write_package
    from arpo_env.registration import EnvFactory

    options = parse_assignments(env_set, "--env-set")
    write_lines(write_package(output, EnvFactory(env, **options), format, requirement))


@data.command(name="overlap")
def overlapping(train: Where, /, *evaluation: Where) -> None:
    """Count the evaluation questions that are in a training set."""
    from envs_registry.contamination import overlap
    from envs_registry.sources import named_source

    if not evaluation:
        raise ValueError("name the evaluation sets: arpo data overlap TRAIN EVALUATION ...")
    _, trained = named_source(train, "train")
    rows, examples = [("EVALUATION", "TASKS", "SAME", "SIMILAR")], []
    for text in evaluation:
        name, source = named_source(text, "held out")
        found = overlap(trained, source)
        rows.append((name, str(found.evaluated), str(found.count), str(found.near_count)))
        examples += [f"\n{name} {other.id} = {task.id}\n{_short(other)}" for task, other in found.exact[:EXAMPLES]]
    write_table(rows)
    write_lines(examples)


# `arpo play`: one episode in the terminal.


def play(
    env: Env,
    /,
    *,
    model: str | None = None,
    env_set: EnvSet = (),
    template_set: TemplateSet = (),
    seed: int = 0,
) -> int:
    """Play an episode in the terminal, by hand or with a model.

    Args:
        env: environment id
        model: the model that plays: a folder, a hub id, or a name of `arpo models`
        env_set: options of the environment
        template_set: arguments of the model's chat template
        seed: chooses the task
    """
    made = make_env(env, parse_assignments(env_set, "--env-set"))
    made.check()
    if model is None:
        return play_by_hand(made, seed)
    return play_with_model(made, seed, model, parse_assignments(template_set, "--template-set"))


def play_by_hand(env: ToolEnv, seed: int) -> int:
    """Show the task, read turns from standard input, and show the results."""
    with contextlib.closing(env):
        question, info = env.reset(seed=seed)
        # stops of white space are not named: they could not be read, and an empty line ends a turn anyway
        ends = " or ".join([*(stop for stop in info["stop"] if stop.strip()), "an empty line"])
        _write(f"{info['messages'][0]['content']}\n\n{question}\n\nWrite a turn; it ends with {ends}. Ctrl-D leaves.\n")
        done = False
        while not done:
            turn = _read_turn(info["stop"])
            if turn is None:
                _write("left before the end\n")
                return 0
            observation, reward, terminated, truncated, step_info = env.step(turn)
            done = terminated or truncated
            _write(observation)
        _write(_verdict(step_info["outcome"], reward, info["task"].answers))
        return 0


def play_with_model(env: ToolEnv, seed: int, model: str, template: dict[str, Any] | None = None) -> int:
    """Let a model play one episode greedily, and show it."""
    require("train")
    from arpo_env.event_loop import run
    from arpo_trainer.evaluation.eval_settings import EvalModel, load_tokenizer, open_backend
    from arpo_trainer.rollout.engine import Engine
    from arpo_trainer.rollout.settings import RolloutSettings

    played = EvalModel("model", "transformers", model)
    tokenizer = load_tokenizer(played)
    backend = open_backend(played, tokenizer)
    # one trajectory and no branches: the tree is a single path
    settings = RolloutSettings(algorithm="grpo", num_generations=1, temperature=0.0, seed=seed)
    _, info = env.reset(seed=seed)
    tree = run(Engine(backend, tokenizer, env, settings, template or {}).rollout([info["task"]]))[0]
    _write(tree.prompt + "".join(span.text for span in tree.path(0)))
    first = tree.trajectories[0]
    _write(_verdict(first.outcome, first.reward, info["task"].answers))
    return 0


def _read_turn(stops: list[str]) -> str | None:
    """Return the lines up to a stop string or an empty line; None at the end of the input."""
    lines: list[str] = []
    while True:
        if sys.stdin.isatty():
            _write("> " if not lines else ". ")
        line = sys.stdin.readline()
        if not line:
            # Ctrl-D after some lines ends the turn; only on the first line of a turn it leaves
            return "\n".join(lines) if lines else None
        lines.append(line.rstrip("\n"))
        if not lines[-1] or any(stop in line for stop in stops):
            return "\n".join(lines).rstrip("\n")


def _verdict(outcome: str, reward: float | None, answers: tuple[str, ...]) -> str:
    return f"\n{outcome}, reward {reward}; the answer is {' or '.join(answers)}\n"


def _write(text: str) -> None:
    sys.stdout.write(text)
    # the prompt of `_read_turn` has no line end, and would stay in the buffer while it waits for input
    sys.stdout.flush()


# `arpo search`: a corpus is indexed, searched and served.

Searched = Annotated[
    str, Parameter(help="the folder of an index, a corpus (.jsonl), or a backend such as serper or search-r1:URL")
]
SearchHost = Annotated[str, Parameter(help="address to listen on")]
Port = Annotated[int, Parameter(help="port to listen on; 0 takes a free one")]
search = new_app("search", "index a corpus, search it, or serve it over HTTP")


@search.command
def index(corpus: Path, folder: Path, /, *, replace: Flag = False) -> None:
    """Index a corpus of JSON Lines with title and text, or with contents.

    Args:
        corpus: a .jsonl or .jsonl.gz file
        folder: the folder of the index
        replace: replace an existing index
    """
    from arpo_env.search import build_index

    started = time.perf_counter()
    info = build_index(corpus, folder, replace=replace)
    seconds = time.perf_counter() - started
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6
    sys.stdout.write(f"{folder}: {info.passages:,} passages, {size:.1f} MB, {info.engine}, {seconds:.1f} s\n")


@search.command
def query(where: Searched, text: str, /, *, results: Annotated[int, Parameter(alias="-k")] = 5) -> None:
    """Search, and print the results.

    Args:
        where: an index, a corpus or a backend
        text: the query
        results: maximum number of results
    """
    from arpo_env.search import open_search
    from arpo_trainer.views.terminal_view import one_line

    if results < 1:
        raise ValueError(f"-k must be at least 1, got {results}")
    backend = open_search(where)
    # only the search is timed: opening a corpus indexes it at first use
    started = time.perf_counter()
    hits = asyncio.run(backend.search(text, results))
    milliseconds = 1000 * (time.perf_counter() - started)
    rows = [("", "SCORE", "TITLE", "WHERE", "TEXT")]
    for number, hit in enumerate(hits, 1):
        score = "-" if hit.score is None else f"{hit.score:.2f}"
        # titles and texts come from the web, and escape sequences in them would reach the terminal
        rows.append((str(number), score, one_line(hit.title, 40), one_line(hit.url), one_line(hit.snippet, 100)))
    if hits:
        write_table(rows)
    sys.stdout.write(f"{len(hits) or 'no'} results from {backend.name} in {milliseconds:.1f} ms\n")


@search.command(name="serve")
def serve_search(where: Searched, /, *, host: SearchHost = "127.0.0.1", port: Port = 8000) -> None:
    """Serve search over HTTP with the API of Search-R1's retrieval server (POST /retrieve)."""
    from arpo_env.search import open_search
    from arpo_env.search.search_server import serve

    serve(open_search(where), host, port)


# `arpo cache`: recorded searches, pages, summaries and verdicts.

CacheFile = Annotated[Path, Parameter(help="the cache")]
cache = new_app("cache", "show, import or export recorded searches, pages and verdicts")


@cache.command(name="show")
def show_cache(file: CacheFile, /) -> None:
    """List the records of a cache by kind and provider."""
    from arpo_env.cache import Cache

    rows: list[Sequence[str]] = [
        ("KIND", "PROVIDER", "VERSION", "RECORDS", "NOTHING", "EXPIRED", "MB", "OLDEST", "NEWEST")
    ]
    # a replay opens the file read-only: a mistyped path is an error and does not become an empty cache
    for row in Cache(file, mode="replay").store.stats():
        counts = (str(row[name]) for name in ("kind", "provider", "version", "records", "nothing", "expired"))
        rows.append((*counts, f"{row['bytes'] / 1e6:.1f}", _day(row["oldest"]), _day(row["newest"])))
    write_table(rows)


def _day(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).date().isoformat()


@cache.command(name="import")
def import_records(file: CacheFile, source: ExistingFile, /) -> None:
    """Add the records of an export, or of a {query: text} cache of ARPO.

    Args:
        file: the cache
        source: a .jsonl file of `arpo cache export`, or ARPO's search_cache.json
    """
    from arpo_env.cache import Cache, import_jsonl
    from arpo_env.search.search_backend import ARPO_PROVIDER, import_arpo_json

    records = Cache(file)
    if source.suffix == ".jsonl":
        sys.stdout.write(f"added {import_jsonl(records, source)} records\n")
    else:
        found = import_arpo_json(records, source)
        sys.stdout.write(
            f"{found.entries} searches, {found.records} records of {ARPO_PROVIDER}: {found.collisions} were equal to "
            "others once normalised\n"
        )
    records.close()


@cache.command(name="export")
def export_records(file: CacheFile, target: Path, /) -> None:
    """Write all records to a .jsonl file, one per line."""
    from arpo_env.cache import Cache, export_jsonl

    if target.exists():  # the cache itself, perhaps
        raise FileExistsError(f"{target} is there already: give another file, or remove it first")
    count = export_jsonl(Cache(file, mode="replay"), target)
    sys.stdout.write(f"{count} records in {target}\n")


# `arpo serve`: an environment for programs that speak OpenEnv or MCP.

_LOOPBACK, _MCP_PORT = "127.0.0.1", 8001
_PLURAL = "maximum number of clients or episodes at a time"
Host = Annotated[str, Parameter(help="address to listen on; any but this machine's own needs a token")]
Token = Annotated[str, Parameter(show_default=False, help="bearer token of requests (default: $ARPO_SERVE_TOKEN)")]
MaxSessions = Annotated[int, Parameter(help=_PLURAL)]
Idle = Annotated[float, Parameter(help="seconds without a call after which a session's tools are closed")]
serve = new_app("serve", "serve an environment to OpenEnv or MCP clients")


@serve.command
def openenv(
    env: Env,
    /,
    *,
    env_set: EnvSet = (),
    host: Host = _LOOPBACK,
    port: Port = 8000,
    token: Token = "",
    max_sessions: MaxSessions = 64,
    idle_seconds: Idle = 600.0,
) -> None:
    """Serve an environment to OpenEnv clients; `arpo data package` writes the folder of a Space."""
    from arpo_env.adapters.hosted_episodes import bind
    from arpo_env.adapters.openenv import make_app

    factory = _factory(env, env_set, max_sessions, idle_seconds)
    token = token or os.environ.get("ARPO_SERVE_TOKEN", "")
    with bind(host, port, token) as listener:
        app = make_app(factory, token=token, max_sessions=max_sessions, idle_seconds=idle_seconds)
        _serve(app, listener, f"{factory.id} for OpenEnv clients", "")


@serve.command
def mcp(
    env: Env,
    /,
    *,
    env_set: EnvSet = (),
    http: Annotated[Flag, Parameter(help="serve over HTTP instead of standard input and output")] = False,
    host: Host = _LOOPBACK,
    port: Port = _MCP_PORT,
    token: Token = "",
    max_sessions: MaxSessions = 64,
    idle_seconds: Idle = 600.0,
    show_reward: Annotated[Flag, Parameter(help="let clients read the reward of an episode")] = False,
) -> None:
    """Serve the tools of an environment to MCP clients."""
    from arpo_env.adapters.hosted_episodes import bind
    from arpo_env.adapters.mcp_server import HostedEpisodes, make_app, serve_stdio

    if not http and (token or (host, port) != (_LOOPBACK, _MCP_PORT)):
        raise ValueError("--host, --port and --token are for HTTP: add --http")
    factory = _factory(env, env_set, max_sessions, idle_seconds)
    episodes = HostedEpisodes(factory, max_sessions, idle_seconds, show_reward)
    if not http:
        sys.stderr.write(f"the tools of {factory.id} for one MCP client, over standard input and output\n")
        # the SDK's thread that reads the input cannot be interrupted; the sandbox ends with this process in any case
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        serve_stdio(episodes)
        return
    token = token or os.environ.get("ARPO_SERVE_TOKEN", "")
    with bind(host, port, token) as listener:
        _serve(make_app(episodes, token=token), listener, f"the tools of {factory.id} for MCP clients", "/mcp")


def _factory(env: str, env_set: Sequence[str], max_sessions: int, idle_seconds: float) -> EnvFactory:
    from arpo_env import EnvFactory

    for flag, value in (("--max-sessions", max_sessions), ("--idle-seconds", idle_seconds)):
        if value <= 0:
            raise ValueError(f"{flag} has to be above 0")
    factory = EnvFactory(known_id(env), **parse_assignments(env_set, "--env-set"))
    factory().check()
    return factory


def _serve(app: Any, listener: Any, what: str, path: str) -> None:
    from arpo_env.adapters.hosted_episodes import address, serve

    sys.stderr.write(f"{what}: {address(listener)}{path} (Ctrl-C ends it)\n")
    serve(app, listener)
