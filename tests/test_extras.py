"""Without an extra everything that needs it names it, and everything else works; `arpo doctor` finds no fault in that.

Packages are hidden from a process of its own, one for each environment: all of its cases run there.
"""

import functools
import importlib
import importlib.metadata
import importlib.util
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from arpo_env.adapters import load_peer
from arpo_trainer.optional_dependencies import EXTRAS, naming_extras, require
from arpo_trainer.run.arguments import RunArguments
from envs_registry.install_line import install_line
from scripts.site.command_line import commands

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(tempfile.mkdtemp(prefix="arpo-extras-"))
BASE = {"rich"}  # the command line needs it
OF_FILES = {"openpyxl", "docx", "pptx"}
OF_ENVS = ("data", "search", "math", "mcp")
OF_TRAIN = {"safetensors", "tokenizers", "huggingface_hub", "packaging"} | {
    module for extra in ("train", "lora", "vllm", "demo") for module in EXTRAS[extra].values()
}
HIDDEN = {
    "base": (
        OF_TRAIN
        | {module for extra in OF_ENVS for module in EXTRAS[extra].values()}
        | {"lxml", "pyarrow"}
        | OF_FILES
        | {"pandas", "sympy", "math_verify", "latex2sympy2_extended", "uvicorn", "starlette", "ddgs", "matplotlib"}
    )
    - BASE,
    "envs": OF_TRAIN - {"datasets", "huggingface_hub", "packaging", "httpx2", "tqdm", "yaml"}
    | OF_FILES
    | {"ddgs", "matplotlib"},
}

PACKAGES = ("sandbox", "envs_registry", "arpo_env", "arpo_trainer", "arpo_trainer.backends", "arpo_trainer.evaluation")
NEED_TORCH = {
    "arpo_trainer": {"ARPOConfig", "ARPOTrainer", "RunRecorder", "TransformersBackend", "env_reward"},
    "arpo_trainer.backends": {"PaddedBackend", "TransformersBackend", "transformers_backend"},
    "arpo_trainer.evaluation": {"run_evaluation"},
}

CORPUS, ROWS, PARQUET = (str(DATA / name) for name in ("corpus.jsonl", "rows.jsonl", "rows.parquet"))
RUN, CACHE, NO_DOCKER = str(DATA / "run"), str(DATA / "cache.sqlite"), "unix:///nonexistent.sock"
EVALUATION, SHARDS = str(DATA / "evaluation"), str(DATA / "shards")
JSONL, EXPORTED = str(DATA / "exported.jsonl"), str(DATA / "exported.parquet")
MATH_GRADER = (
    "from arpo_env import make_grader; from arpo_env.event_loop import run\n"
    "assert run(make_grader('math').equal('2^{1/2}', r'\\sqrt{2}'))"
)
LINES: dict[str, tuple[str, dict[str, str]]] = {  # what is said where it fails, by environment ("*": any)
    "--version": ("--version", {}),
    "envs": ("envs", {}),
    "data show": ("data show arpo/MultiHop-v0", {}),
    "data show, a file": (f"data show arpo/HotpotQA-v0 --env-set data={ROWS}", {}),
    "data show, Parquet": (f"data show arpo/HotpotQA-v0 --env-set data={PARQUET}", {"base": "data"}),
    "data overlap": (f"data overlap arpo/HotpotQA-v0={ROWS} arpo/2Wiki-v0={ROWS}", {}),
    "data export": (f"data export arpo/MultiHop-v0 --format verl --limit 1 --overwrite --output {JSONL}", {}),
    "data export, Parquet": (
        f"data export arpo/MultiHop-v0 --format verl --limit 1 --overwrite --output {EXPORTED}",
        {"base": "data"},
    ),
    "data package": (f"data package arpo/MultiHop-v0 --format verifiers --output {DATA}", {"*": "is not empty"}),
    "play": ("play arpo/MultiHop-v0", {}),
    "play, pages": (f"play arpo/HotpotQA-v0 --env-set data={ROWS} search={CORPUS} pages=passages", {"base": "search"}),
    "play, a model": ("play arpo/MultiHop-v0 --model smollm2-135m", {"*": "train"}),
    "rollout": (f"rollout arpo/MultiHop-v0 --model x/y --output {RUN}2", {"*": "train"}),
    "train": ("train --recipe arithmetic-cpu", {"*": "train"}),
    "eval": ("eval", {}),
    "eval, models": (f"eval arpo/Arithmetic-v0 --model x/y --output {RUN}4", {"*": "train"}),
    "eval retry": (f"eval retry {EVALUATION}", {"*": "train"}),
    "eval compare": (f"eval compare {EVALUATION} {EVALUATION}2", {}),
    "eval score": (f"eval score {EVALUATION} --scorer em", {}),
    "eval merge": (f"eval merge {SHARDS}", {"*": "missing shards 1/2"}),
    "eval export": (f"eval export {EVALUATION} --format lm-eval --output {EVALUATION}3", {}),
    "synth": (f"synth arpo/Arithmetic-v0 --tasks 1 --model x/y --output {RUN}6", {"*": "train"}),
    "sft": ("sft --recipe sft-qwen2.5-3b", {"*": "train"}),
    "dpo": ("dpo --recipe dpo-tool-star-qwen2.5-3b", {"*": "train"}),
    "run": ("run --recipe arithmetic-cpu", {"*": "train"}),
    "recipes": ("recipes", {}),
    "export": (f"export {RUN} --output {RUN}3", {"*": "train"}),
    "report": (f"report {RUN}", {}),
    "doctor": ("doctor", {"*": "LACK Docker"}),
    "models list": ("models list", {}),
    "models get": ("models get mine", {"*": "must be one of"}),
    "view": ("view", {}),
    "view timeline": (f"view timeline {RUN}", {}),
    "view, text": (f"view {EVALUATION} --text --task t", {}),
    "plot": (f"plot {EVALUATION} --output {DATA}/plot.svg", {"*": "plot"}),
    "cache show": (f"cache show {CACHE}", {}),
    "cache export": (f"cache export {CACHE} {DATA}/cache.jsonl", {}),
    "cache import": (f"cache import {CACHE} {DATA}/cache.jsonl", {}),
    "search index": (f"search index {CORPUS} {DATA}/index --replace", {}),
    "search query": (f"search query {CORPUS} cat", {}),
    "search query, ddgs": ("search query ddgs cat", {"*": "pip install ddgs"}),
    "search serve": (f"search serve {CORPUS} --port -1", {"base": "serve", "*": "port"}),
    "serve openenv": ("serve openenv arpo/Arithmetic-v0", {"*": "pip install 'openenv"}),
    "serve mcp": ("serve mcp arpo/Arithmetic-v0 --http --port -1", {"*": "port"}),
    "sandbox check": ("sandbox check --backend bubblewrap", {"*": "bubblewrap|bwrap"}),
    "sandbox ps": (f"sandbox ps --docker-host {NO_DOCKER}", {"*": "nonexistent"}),
    "sandbox prune": (f"sandbox prune --docker-host {NO_DOCKER}", {"*": "nonexistent"}),
    "sandbox build": (f"sandbox build --docker-host {NO_DOCKER}", {"*": "nonexistent"}),
    "sandbox serve": ("sandbox serve --port -1", {"base": "serve", "*": "port"}),
}
COMMANDS = {name: (line.split(), said) for name, (line, said) in LINES.items()}
WHERE_NO_SANDBOX = ("doctor", "sandbox check")  # elsewhere there is no fault to name
GET_MODEL = """import dataclasses
from arpo_trainer.models import MODELS, get_model
get_model(dataclasses.replace(MODELS["smollm2-135m"], hub_id="nobody/not-in-the-cache"))"""
CODE: dict[str, tuple[str, dict[str, str]]] = {
    "the hub": (
        "from envs_registry import load_source; load_source('gsm8k')",
        {"base": "data", "envs": "Without the hub"},
    ),
    "algebra": (MATH_GRADER, {"base": "math"}),
    "MCP": ("import arpo_env; arpo_env.mcp_tools('false')", {"base": "mcp", "envs": "MCP server false"}),
    "files of tasks": (
        "import arpo_env, gymnasium as g; g.make('arpo/MultiHop-v0', tools=['read_file']).unwrapped.check()",
        {"*": "files"},
    ),
    "a model without the hub": (GET_MODEL, {"*": "train"}),
}


def public_names() -> dict[str, tuple[str, dict[str, str]]]:
    """Every public name, imported, and what it needs."""
    cases: dict[str, tuple[str, dict[str, str]]] = {}
    for package in PACKAGES:
        for name in importlib.import_module(package).__all__:
            needs = name in NEED_TORCH.get(package, ())
            cases[f"{package}.{name}"] = (f"from {package} import {name}", {"*": "train"} if needs else {})
    return cases


CASES = {**COMMANDS, **CODE, **public_names()}


@pytest.fixture(scope="module", autouse=True)
def files() -> None:
    import pyarrow
    import pyarrow.parquet

    from arpo_env import Cache
    from arpo_trainer.evaluation.episode_store import EpisodeStore, UnitKey
    from arpo_trainer.tree import write_traces
    from tests.arpo_trainer.sample_timeline import sample_tree

    Path(RUN).mkdir(exist_ok=True)
    write_traces(Path(RUN) / "traces.jsonl", [sample_tree()])
    for folder in (EVALUATION, f"{EVALUATION}2"):
        Path(folder).mkdir(exist_ok=True)
        (Path(folder) / "run.json").write_text('{"kind": "eval", "models": {"m": {}}, "environments": {"e": {}}}')
        with EpisodeStore(folder) as store:
            store.add(UnitKey("m", "e", "t"), 0, sample_tree())
    Path(SHARDS, "shard-0-of-2").mkdir(parents=True, exist_ok=True)
    about = {"kind": "eval", "status": "finished", "shard": {"index": 0, "count": 2}}
    about |= {"settings": {"models": {}, "rollout": {}, "samples": 1, "first_task": 0}}
    about |= {"models": {}, "samples": 1, "environments": {}}
    Path(SHARDS, "shard-0-of-2", "run.json").write_text(json.dumps(about))
    Path(CORPUS).write_text('{"title": "a cat", "text": "the cat sat"}\n')
    row = {"id": "1", "question": "Who?", "answer": "Ada"}
    Path(ROWS).write_text(json.dumps(row) + "\n")
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([row]), PARQUET)
    cache = Cache(CACHE)
    cache.store.stats()
    cache.close()


@functools.cache
def results(environment: str) -> dict[str, tuple[int, str]]:
    """Run all cases of an environment, in one process."""
    cases = {name: case for name, (case, _) in CASES.items()}
    job = json.dumps({"hidden": sorted(HIDDEN[environment]), "cases": cases})
    (DATA / "cache.jsonl").unlink(missing_ok=True)  # of another environment
    command = [sys.executable, "-m", "tests.hidden_packages", job]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(("environment", "name"), [(one, name) for one in HIDDEN for name in CASES])
def test_what_lacks_an_extra_names_it_and_the_rest_works(environment: str, name: str) -> None:
    status, words = results(environment)[name]
    expected = CASES[name][1]
    fault = expected.get(environment, expected.get("*"))
    assert "Traceback" not in words
    assert status in (0, 1)
    if fault is None or (name in WHERE_NO_SANDBOX and status == 0):
        assert status == 0, words
    else:
        assert status == 1, words
        cure = re.escape(install_line(fault)) if fault in EXTRAS else fault
        assert re.search(cure, words), words
        assert "No module named" not in words


@pytest.mark.parametrize(
    ("extra", "use"),
    [("lora", lambda: RunArguments(lora_rank=8)), ("demo", lambda: exec(GET_MODEL))],
)
def test_training_names_the_extra_that_it_lacks(extra: str, use: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    hidden, find = set(EXTRAS[extra].values()), importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *more: None if name in hidden else find(name, *more))
    with pytest.raises((ModuleNotFoundError, ValueError), match=re.escape(install_line(extra))):
        use()


def test_every_command_is_among_the_cases() -> None:
    every = {name for name, _ in commands()}
    leaves = {name for name in every if not any(other.startswith(f"{name} ") for other in every)}
    lines = [" ".join(arguments) + " " for arguments, _ in COMMANDS.values()]
    assert [name for name in leaves if not any(line.startswith(f"{name} ") for line in lines)] == []


def test_the_table_of_extras_is_that_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra, libraries in EXTRAS.items():
        wanted = [one for one in map(Requirement, project[extra]) if one.name != "arpo-gym"]
        declared = {name for one in wanted for name in one.extras or (one.name,)}
        assert set(libraries) == declared, extra


def import_what_is_not_there() -> None:
    with naming_extras():
        raise ImportError("No name AutoFuture", name="transformers")


@pytest.mark.parametrize(
    ("library", "version", "use", "words"),
    [
        ("transformers", "4.57.0", lambda: require("train"), r"transformers<6,>=5.16 \(4.57.0 is .*\[train\]"),
        ("transformers", "4.57.0", import_what_is_not_there, r"No.*AutoFuture.*\(4.57.0 is .*\[train"),
        ("ray", "3.0.1", lambda: require("ray"), r"ray<3,>=2.60 \(3.0.1 is installed\)"),
        ("mcp", "1.30.0", lambda: load_peer("mcp"), r"mcp 1.30.0 is installed.* for mcp 2 .*\[mcp\]"),
        ("trl", "2.0.0", lambda: load_peer("trl"), r"trl 2.0.0 is installed.* for trl 1.16 .*\[train\]"),
    ],
)
def test_another_version_is_named(library: str, version: str, use: Any, words: str, monkeypatch: Any) -> None:
    true_version = importlib.metadata.version
    monkeypatch.setattr("importlib.metadata.version", lambda name: version if name == library else true_version(name))
    with pytest.raises(ImportError, match=words):
        use()
