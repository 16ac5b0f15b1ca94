"""AReaL: `trainer.train(workflow="areal_agent.ArpoAgent")`.

A trajectory whose agent raises is rejected, and another one takes its place.
"""

import arpo_env
from arpo_env.adapters.task_rows import find_task


class ArpoAgent:
    async def run(self, data, base_url=None, api_key=None, **_):
        factory, task = find_task(data["extra_info"])
        at = {"base_url": base_url, "api_key": api_key, "model": "default"}
        played = await arpo_env.aplay(factory, task, **at, temperature=None, raise_faults=True)
        return float(played.reward)
