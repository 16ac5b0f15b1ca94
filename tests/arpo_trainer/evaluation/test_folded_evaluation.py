"""An evaluation whose episodes fold: it is stored, counted, shown, exported and graded again."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import arpo_env
from arpo_env import EnvFactory, Rewards
from arpo_env.adapters.chat_episode import ChatEpisode
from arpo_env.adapters.mcp_server import HostedEpisodes
from arpo_env.adapters.task_rows import task_rows
from arpo_trainer import tree_svg
from arpo_trainer.cli.arpo_command import main
from arpo_trainer.evaluation.episode_store import EvalRun, load_eval_run
from arpo_trainer.evaluation.log_formats import _message
from arpo_trainer.evaluation.rescoring import reward_scorer, stored_episodes
from arpo_trainer.rollout.metrics import rollout_metrics
from arpo_trainer.views.run_page import view_tree
from arpo_trainer.views.terminal_view import conversation_lines
from tests.arpo_env.chat_server import chat_server, reply
from tests.arpo_trainer.folding_policy import fold_call, memory

MEMORY = memory(1, "it")
OPTIONS = {"folds": 2, "world_size": 200, "level": 2}


def searches_folds_and_answers(body: dict[str, Any]) -> tuple[int, Any]:
    """A model that searches, folds with a broken memory, folds, and answers."""
    shown, turns = body["messages"][1]["content"], len(body["messages"]) // 2
    if "were folded" in shown or "was folded" in shown:
        return 200, reply("<think>so</think><answer>\\boxed{x}</answer>")
    return 200, reply(["<search>it</search>", fold_call({**MEMORY, "working": {}}), fold_call(MEMORY)][turns - 1])


@pytest.fixture(scope="module")
def run(served_model: Path, tmp_path_factory: pytest.TempPathFactory) -> EvalRun:
    folder = tmp_path_factory.mktemp("folded")
    settings = [word for name, value in OPTIONS.items() for word in ("--env-set", f"{name}={value}")]
    with chat_server(searches_folds_and_answers) as server:
        model = ["--model", str(served_model), "--endpoint", server.address, "--endpoint-model", "stub"]
        command = ["eval", "arpo/MultiHop-v0", *settings, "--tasks", "2", "--output", str(folder), *model]
        assert main([*command, "--set", "max_completion_length=4000"]) == 0
    return load_eval_run(folder)


def test_folds_are_counted_and_are_no_calls(run: EvalRun) -> None:
    tree = run.tree(run.rows[0])
    kinds = [span.kind for span in tree.path(0)]
    assert kinds == ["model", "environment", "model", "environment", "model", "fold", "model"]
    assert run.rows[0].episodes[0].calls == {"search": 1}
    assert tree.trajectories[0].tool_calls == 1
    [score] = json.loads((run.folder / "results.json").read_text())["scores"]
    assert (score["calls"], score["metrics"]["folds"]["mean"]) == ({"search": 1.0}, 1.0)
    assert score["metrics"]["folds_failed"]["mean"] == 1.0


def test_views_and_exports_show_the_fold(run: EvalRun) -> None:
    tree = run.tree(run.rows[0])
    fold = tree.spans[-2]
    text = "\n".join(conversation_lines(run, run.rows[0], 0))
    assert "-- fold " in text
    assert '"immediate_goal": "next hop"' in text
    assert 'class="fold"' in tree_svg(tree)
    # the endpoint gave no entropies, and none are shown: 0 would be a number
    assert "entropy" not in text
    assert not any("entropies" in span for span in view_tree(tree)["spans"])
    assert not any(name.startswith("entropy") for name in rollout_metrics([tree]))
    assert view_tree(tree)["spans"][-2]["tool"]["memory"] == MEMORY
    assert _message(fold)["content"].startswith("Your earlier work")


def test_a_stored_episode_is_graded_again_with_its_memory(run: EvalRun) -> None:
    [stored, _] = stored_episodes(run)
    episode = stored.episode()
    assert (episode.folds, episode.memory, episode.tools_used) == (1, MEMORY, ["search"])
    score = asyncio.run(reward_scorer(Rewards.of("paper"))(stored))
    assert score.value == stored.entry.reward


def test_play_goes_on_from_the_memories() -> None:
    with chat_server(searches_folds_and_answers) as server:
        factory = EnvFactory("arpo/MultiHop-v0", **OPTIONS)
        [played] = arpo_env.play(factory, 1, base_url=server.address, model="m")
        with pytest.raises(ValueError, match="one conversation that only grows"):
            arpo_env.play(factory, 1, base_url=server.address, model="m", in_place=True)
    assert played.outcome == "answered"
    assert [len(each) for each in played.folded] == [7]
    assert [message["role"] for message in played.messages] == ["system", "user", "assistant"]
    assert played.info["reward_components"]["folds"] == 1.0


@pytest.mark.parametrize(
    "adapter",
    [lambda factory: ChatEpisode(factory()), HostedEpisodes, lambda factory: next(iter(task_rows(factory, "verl")))],
)
def test_adapters_that_hold_one_conversation_refuse_folds(adapter: Any) -> None:
    with pytest.raises(ValueError, match="one conversation that only grows"):
        adapter(EnvFactory("arpo/MultiHop-v0", **OPTIONS))
