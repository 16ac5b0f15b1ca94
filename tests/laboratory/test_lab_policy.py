"""Policies to start from: their demonstrations, their place in the cache, and who makes them."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arpo_trainer.sft.plain_trace import ModelTurn
from benchmarks.laboratory.cold_policy import ColdPolicySettings
from benchmarks.laboratory.lab_policy import PolicySettings, lab_policy, walk, world_env
from benchmarks.laboratory.tiny_model import parameters, tiny_model, tiny_tokenizer
from envs_registry.generated.bifurcation import world_of

FEW: dict[str, Any] = {"demonstrations": 16, "batch_size": 8}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ARPO_CACHE", str(tmp_path))
    return tmp_path / "lab-policies"


@settings(max_examples=20, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from(["silent", "shown", "forgiving"]),
    st.integers(1, 6),
    st.integers(2, 4),
    st.integers(0, 5),
)
def test_walks_end_with_a_key_of_their_world(
    index: int, dead_ends: str, decisions: int, choices: int, uneven: int
) -> None:
    knobs = {"dead_ends": dead_ends, "decisions": decisions, "choices": choices, "uneven": uneven, "slip": 0.2}
    env = world_env("short", knobs, spare=2000)
    trace = walk(env, index, random.Random(index))
    world = world_of(env.tasks.task(index).setup)
    assert env.episode.outcome == ""  # it has not answered, and no call was refused
    last = trace.turns[-1]
    assert isinstance(last, ModelTurn)
    assert last.text.removeprefix("<answer>\\boxed{").removesuffix("}</answer>") in world.keys
    calls = [turn.text for turn in trace.turns[:-1] if isinstance(turn, ModelTurn)]
    assert len(calls) == decisions or dead_ends == "forgiving"


def test_a_policy_is_made_once_quietly_and_again_if_asked(cache: Path, capfd: Any) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    asked = PolicySettings("short", {"choices": 4}, **FEW)
    folder = lab_policy(asked)
    assert folder == asked.folder
    assert folder.parent == cache
    assert "".join(capfd.readouterr()).strip() == ""
    made = (folder / "model.safetensors").stat().st_mtime_ns
    assert lab_policy(asked) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == made
    weights = (folder / "model.safetensors").read_bytes()
    lab_policy(asked, again=True)
    assert (folder / "model.safetensors").stat().st_mtime_ns > made
    assert (folder / "model.safetensors").read_bytes() == weights  # the settings decide all of it
    assert json.loads((folder / "policy.json").read_text())["knobs"] == {"choices": 4}
    assert AutoModelForCausalLM.from_pretrained(folder).num_parameters() == parameters(tiny_model(asked.size))
    assert len(AutoTokenizer.from_pretrained(folder)) == len(tiny_tokenizer())


def test_each_setting_has_a_folder_of_its_own(cache: Path) -> None:
    others: list[dict[str, Any]] = [{"level": "long-many"}, {"knobs": {"choices": 4}}, {"size": "2M"}, {"seed": 1}]
    others += [{}, {"demonstrations": 7}, {"learning_rate": 1e-4}]
    assert len({PolicySettings(**other).folder for other in others}) == len(others)
    assert PolicySettings("stochastic", {"slip": 0.15}).folder == PolicySettings("stochastic").folder
    assert ColdPolicySettings("arithmetic", {"notes": 3}).folder == ColdPolicySettings("arithmetic").folder
