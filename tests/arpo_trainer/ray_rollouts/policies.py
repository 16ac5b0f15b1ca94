"""Policies that actors import: a module of their own, since what it imports costs each actor seconds."""

from arpo_trainer.backends.base import Generation, GenerationError, OnWindow, Request
from benchmarks.ray_world import SleepingPolicy


class FailingPolicy(SleepingPolicy):
    """A model that fails."""

    async def generate(self, request: Request, on_window: OnWindow | None = None) -> Generation:
        raise GenerationError("NaN everywhere")


class Caller(SleepingPolicy):
    """Calls Python at every turn."""

    async def generate(self, request: Request, on_window: OnWindow | None = None) -> Generation:
        made = await super().generate(request, on_window)
        ids = self.tokenizer("<think>c</think><python>print(1)</python>", add_special_tokens=False)["input_ids"]
        return Generation(ids, [-0.1] * len(ids), [1.0] * len(ids), made.finish)
