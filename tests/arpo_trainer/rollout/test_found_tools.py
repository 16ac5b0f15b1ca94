"""Tools that are found on the way, in the rollout engine: branches know what was found before them."""

import asyncio
import json
from typing import Any

from arpo_env import ToolEnv
from arpo_trainer.backends.base import Generation, Request
from arpo_trainer.rollout.engine import Engine, RolloutSettings
from arpo_trainer.rollout.live_trajectory import LiveEpisode, PlayedTurn, replay
from tests.arpo_trainer.rollout.test_engine import ScriptedPolicy


class FindingPolicy(ScriptedPolicy):
    """Writes the turns of a solution, one after each result."""

    async def generate(self, request: Request, on_window: Any = None) -> Generation:
        turn = self.tokenizer.decode(request.ids).count("<tool_call_result>\n")
        ids = self.tokenizer(self.turns[turn], add_special_tokens=False)["input_ids"]
        if on_window:
            on_window([self.entropies[turn]] * min(len(ids), request.window))
        return Generation(ids, [-0.1] * len(ids), [self.entropies[turn]] * len(ids), "stop")


def solution(env: ToolEnv, index: int) -> list[str]:
    turns = []
    for step in env.tasks.steps(index):
        call = json.dumps({"name": step.tool, "arguments": step.arguments})
        turns += [f"<tool_search>{step.query}</tool_search>", f"<tool_call>{call}</tool_call>"]
    return [*turns, f"\\boxed{{{env.tasks.task(index).answers[0]}}}"]


def test_branches_after_a_search_call_what_it_found(tokenizer: Any) -> None:
    env = ToolEnv("arpo/ToolWorld-v0", level="2", search_results=3, tool_results=3)
    policy = FindingPolicy(tokenizer, solution(env, 0), [0.1, 2.0, 0.1, 0.1, 0.1])
    settings = RolloutSettings(num_generations=3, initial_rollouts=1, branch_alpha=0.5, branch_width=3)
    [tree] = asyncio.run(Engine(policy, tokenizer, env, settings).rollout([env.tasks.task(0)]))
    assert sorted(one.origin for one in tree.trajectories) == ["branch", "branch", "root"]
    assert [one.reward for one in tree.trajectories] == [1.0] * 3
    assert [one.components["right_calls"] for one in tree.trajectories] == [2.0] * 3
    first = next(span for span in tree.spans if span.decision and span.decision.branches)
    assert first.tool is not None
    assert first.tool["name"] == "tool_search"


def test_an_episode_that_is_played_again_has_found_the_same() -> None:
    env = ToolEnv("arpo/ToolWorld-v0", level="1", tool_results=2)
    env.reset(options={"index": 3})
    history = []
    for text in solution(env, 3)[:-1]:
        env.step(text)
        history.append(PlayedTurn(text, 10_000, env.episode.turns[-1].result))
    episode = LiveEpisode(env, retries=1, begun=True)
    assert episode.may_replay(OSError("lost"))  # found tools of a world in memory may be called twice
    fresh = env.spawn()
    asyncio.run(replay(fresh, env.tasks.task(3), history))
    assert set(fresh.tools["tool_search"].found) == set(env.tools["tool_search"].found)
