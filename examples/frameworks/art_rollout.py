"""ART: one rollout, whose failure is raised.

`art.TrajectoryGroup(rollout(model, row) for _ in range(8))` keeps failures under `exceptions`, apart from the
trajectories; give `gather_trajectory_groups` a `max_exceptions`.
"""

import art
from openai.types.chat.chat_completion import Choice

import arpo_env
from arpo_env.adapters.task_rows import find_task


async def rollout(model: art.Model, row: dict) -> art.Trajectory:
    factory, task = find_task(row["extra_info"])
    at = {"base_url": model.inference_base_url, "api_key": model.inference_api_key, "model": model.get_inference_name()}
    played = await arpo_env.aplay(factory, task, **at, extra={"logprobs": True}, raise_faults=True)
    turns = iter(played.turns)  # ART learns from the choices as they were received
    messages = [Choice(**next(turns).choice) if m["role"] == "assistant" else m for m in played.messages]
    metrics = {"tool_calls": played.info["tool_calls"]}
    return art.Trajectory(messages_and_choices=messages, tools=factory().schemas, reward=played.reward, metrics=metrics)
