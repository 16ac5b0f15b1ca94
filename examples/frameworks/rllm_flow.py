"""rLLM: `AgentTrainer(agent_flow=arpo_flow, evaluator=arpo_evaluator, ...)`; its gateway fills in the steps.

A flow that raises is run again, three times in all; then training stops, or, with `raise_on_error=False`, the episode
has no trajectories.
"""

import rllm
from rllm.types import Episode, Trajectory

import arpo_env
from arpo_env.adapters.task_rows import find_task


@rllm.rollout(name="arpo")
async def arpo_flow(task, config):
    factory, found = find_task(task.metadata["extra_info"])
    at = {"base_url": config.base_url, "model": config.model, "api_key": "EMPTY"}
    played = await arpo_env.aplay(factory, found, **at, temperature=None, raise_faults=True)
    return Episode(trajectories=[Trajectory(name="arpo", steps=[])], artifacts={"reward": played.reward})


@rllm.evaluator
def arpo_evaluator(task, episode):
    return float(episode.artifacts["reward"])
