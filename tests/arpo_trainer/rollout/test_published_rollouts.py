"""The engine in its reference modes makes the trees of the published engines: the shared traces, played for real."""

import asyncio
import json
import math
from pathlib import Path
from typing import Any

import pytest

from arpo_env import ToolEnv
from arpo_env.protocols import make_protocol
from arpo_trainer.algorithms.registry import ALGORITHMS
from arpo_trainer.backends.base import Generation
from arpo_trainer.rollout.branch_scheduler import PublishedScheduler
from arpo_trainer.rollout.engine import Engine, Group, RolloutSettings
from arpo_trainer.rollout.live_trajectory import LiveTrajectory
from arpo_trainer.rollout.rendering import as_published
from arpo_trainer.tree import Origin, RolloutTree, Stopwatch
from tests.arpo_trainer.text_policy import TextPolicy

TOOL = "<think>c</think><search>who</search>"
DONE = "<think>d</think><answer>\\boxed{3}</answer>"


class Backend(TextPolicy):
    """Never asked: the script writes the turns."""

    time = Stopwatch()


class Script:
    """What each trajectory does, by the number it has in the published engine, and when it did it."""

    def __init__(self, vector: dict[str, Any], tokenizer: Any) -> None:
        given = vector["inputs"]
        self.roots, self.fresh = given.get("script", []), given.get("fresh", [])
        self.entropies, self.draws = given.get("entropies", []), list(given.get("uniforms", []))
        self.initial, self.tokenizer = given["initial"], tokenizer
        self.births: dict[int, tuple[int, str, int | None]] = {}  # round before the first one played, origin, parent
        self.started: list[int] = []  # published numbers in the order in which they really started
        self.ends: dict[int, int] = {}

    def turns(self, name: str) -> tuple[list[str], list[float]]:
        root = int(name.split(".")[0])
        if root < self.initial:
            turns = self.roots[root] if self.roots else ["F"]
            return turns, self.entropies[root] if self.entropies else [0.0] * len(turns)
        turns = self.fresh[root - self.initial] if self.fresh else ["F"]
        return turns, [0.0] * len(turns)

    async def generate(self, group: Group, path: LiveTrajectory) -> Generation:
        await asyncio.sleep(0.001 * ((path.number * 7 + path.turn * 3) % 5))  # nobody comes in order
        turns, entropies = self.turns(path.name)
        ids = self.tokenizer({"T": TOOL, "F": DONE}[turns[path.turn]], add_special_tokens=False)["input_ids"]
        summed = entropies[path.turn] * math.log(len(self.tokenizer))  # all of it in the first token
        return Generation(ids, [-0.1] * len(ids), [summed, *[0.0] * (len(ids) - 1)], "stop")


def play(vector: dict[str, Any], algorithm: str, tokenizer: Any, monkeypatch: Any) -> tuple[RolloutTree, Script]:
    given, script = vector["inputs"], Script(vector, tokenizer)
    start, ended = Group._start, Group._ended

    def born(group: Group, path: Any, origin: Origin, parent: int | None = None, fork: Any = None, **more: Any) -> None:
        start(group, path, origin, parent, fork, **more)
        number, clock = group.scheduler._numbers[path.name], group.scheduler._states[path.name].clock
        script.births[number] = (clock - 1, origin, None if parent is None else script.started[parent])
        script.started.append(number)

    def over(group: Group, path: LiveTrajectory) -> None:
        script.ends[group.scheduler._numbers[path.name]] = group.scheduler._states[path.name].clock
        ended(group, path)

    monkeypatch.setattr(Group, "_start", born)
    monkeypatch.setattr(Group, "_ended", over)
    monkeypatch.setattr(Group, "_generate", lambda group, path: script.generate(group, path))
    monkeypatch.setattr(PublishedScheduler, "uniform", lambda *place: script.draws.pop(0))
    env = ToolEnv("arpo/MultiHop-v0", max_tool_calls=10, max_turns=12)
    sizes = {"num_generations": given["n"], "initial_rollouts": given["initial"], "branch_width": given.get("beam", 2)}
    odds = {"branch_alpha": given.get("p_b", 0.5), "branch_beta": given.get("w", 0.2)}
    settings = RolloutSettings(algorithm=algorithm, max_completion_length=20_000, **sizes, **odds)
    engine = Engine(Backend(), tokenizer, env, settings)  # type: ignore[arg-type]
    return asyncio.run(engine.rollout([env.tasks.task(0)]))[0], script


def rounds(script: Script) -> list[dict[str, Any]]:
    played = range(1, max(script.ends.values()) + 1)
    births = sorted(script.births.items())
    return [
        {
            "active": [n for n, (born, _, _) in births if born < clock <= script.ends[n]],
            "survivors": [n for n, (born, _, _) in births if born < clock < script.ends[n]],
            "branches": [[parent, n] for n, (born, origin, parent) in births if origin == "branch" and born == clock],
            "fresh": [n for n, (born, origin, _) in births if origin == "top-up" and born == clock],
        }
        for clock in played
    ]


def origin(script: Script, number: int) -> str:
    _, kind, parent = script.births[number]
    return {"root": f"init{number}", "branch": f"branch_of_{parent}", "top-up": "fresh"}[kind]


@pytest.fixture(scope="module")
def vectors(shared: Path) -> dict[str, Any]:
    listed = json.loads((shared / "spec" / "vectors.json").read_text(encoding="utf-8"))["vectors"]
    return {vector["id"]: vector for vector in listed}


@pytest.mark.parametrize("name", ["arpo", "aepo", "topup"])
def test_the_published_traces(vectors: dict[str, Any], name: str, tokenizer: Any, monkeypatch: Any) -> None:
    vector = vectors[f"rollout.trace.{name}"]
    tree, script = play(vector, "aepo-reference" if name == "aepo" else "arpo-reference", tokenizer, monkeypatch)
    assert [origin(script, number) for number in range(len(tree.trajectories))] == vector["expected"]["origins"]
    shown = [span.text for span in tree.spans if span.kind == "environment"]
    assert all(text.startswith(" <result>\n") and text.endswith("\n</result>") for text in shown)
    assert shown or name == "topup"
    # where trajectories are missing, one a round, only the number of rounds is given
    assert vector["expected"]["rounds"] in (rounds(script), len(rounds(script)))


def test_only_reference_algorithms_write_results_so() -> None:
    assert make_protocol("arpo-tags-reference").render_result(["42"]) == " <result>\n42\n</result>"
    assert make_protocol("arpo-tags").render_result(["42"]) == "\n<result>\n42\n</result>\n"
    env = ToolEnv("arpo/Arithmetic-v0")
    assert as_published(env, ALGORITHMS["arpo"]) is env
    assert as_published(env, ALGORITHMS["grpo"]) is env
    other = as_published(env, ALGORITHMS["arpo-reference"])
    assert (other.protocol.name, env.protocol.name) == ("arpo-tags-reference", "arpo-tags")
    assert other.system_prompt == env.system_prompt
    assert as_published(other, ALGORITHMS["arpo-reference"]) is other
    native = ToolEnv("arpo/Arithmetic-v0", protocol="hermes")
    assert as_published(native, ALGORITHMS["arpo-reference"]) is native
    with pytest.raises(ValueError, match="the published reward reads tags"):
        ToolEnv("arpo/Arithmetic-v0", reward="reference").with_protocol("hermes")
