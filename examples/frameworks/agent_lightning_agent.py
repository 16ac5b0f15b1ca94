"""Agent Lightning: an agent.

In its config: `local.agent_class "agent_lightning_agent.ArpoAgent"`, `local.env_map {"ARPO_TASK":
"input.extra_info"}`.

It gives a rollout that failed the reward `reward_fillna_value`, which is 0.0. The last lines prevent that: the
rollout then points at an attempt without requests, which the trainer skips. (Means of the reward in its metrics still
count it.) While weights are updated its gateway answers 429, hence the many retries.
"""

import os

import httpx

import arpo_env
from arpo_env.adapters.task_rows import find_task


class ArpoAgent:
    async def run(self) -> None:
        key, events = os.environ["AGL_KEY"], os.environ["AGL_EVENT_URL"]
        factory, task = find_task(os.environ["ARPO_TASK"])
        at = {"base_url": os.environ["AGL_OPENAI_BASE_URL"], "api_key": key, "model": "auto"}
        played = await arpo_env.aplay(factory, task, **at, temperature=None, retries=100)
        async with httpx.AsyncClient(headers={"Authorization": f"Bearer {key}"}) as client:
            if played.error is None:
                reward = {"event_type": "reward", "data": {"value": played.reward}}
                (await client.post(events, json=reward)).raise_for_status()
                return
            void = {"status": {"last_attempt_id": "void"}}
            (await client.patch(events.partition("/attempt/")[0], json=void)).raise_for_status()
        raise played.error
