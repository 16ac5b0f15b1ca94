"""`ToolVectorEnv`: many concurrent episodes in one process, on one event loop.

    import arpo_env, gymnasium as gym
    envs = gym.make_vec("arpo/Arithmetic-v0", num_envs=64)
    questions, infos = envs.reset(seed=0)
    results, rewards, terminated, truncated, infos = envs.step(turns)

Observations are tuples of texts. All episodes share the loaded tasks, the sandbox, the search backend and the graders.
An infrastructure failure affects only its own episode: the reward is NaN, the episode is truncated, and
`infos["error"]` describes the failure. An episode that cannot be started has the observation "" and the same entry. The
next `step` ignores its action and starts another task; in autoreset mode DISABLED you call `reset` yourself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.error import ClosedEnvironmentError, ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from arpo_env.env import ToolEnv, check_reset_options
from arpo_env.event_loop import run

Step = tuple[str, float, bool, bool, dict[str, Any]]
Texts = tuple[str, ...]
Flags = np.ndarray[Any, np.dtype[np.bool_]]
Batch = tuple[Texts, np.ndarray[Any, np.dtype[np.float64]], Flags, Flags, dict[str, Any]]
_FAILED = ("", float("nan"), False, True)  # observation, reward, terminated, truncated


class ToolVectorEnv(VectorEnv[Texts, Sequence[str], np.ndarray[Any, Any]]):
    """`num_envs` concurrent episodes of one environment.

    Args:
        env_id: a registered environment id.
        num_envs: number of concurrent episodes.
        autoreset_mode: Gymnasium's modes: NEXT_STEP (the step after the last one starts a new episode), SAME_STEP (the
            last step does, and the infos contain `final_obs` and `final_info`), or DISABLED (you call `reset` with a
            `reset_mask`).
        options: options of `ToolEnv`.
    """

    def __init__(
        self,
        env_id: str,
        num_envs: int = 1,
        *,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        **options: Any,
    ) -> None:
        if num_envs < 1:
            raise ValueError(f"num_envs must be at least 1, got {num_envs}")
        first = ToolEnv(env_id, **options)
        self.envs = [first, *(first.spawn() for _ in range(num_envs - 1))]
        self.num_envs = num_envs
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = {**first.metadata, "autoreset_mode": self.autoreset_mode}
        self.render_mode = first.render_mode
        self.single_observation_space = first.observation_space
        self.single_action_space = first.action_space
        self.observation_space = batch_space(first.observation_space, num_envs)
        self.action_space = batch_space(first.action_space, num_envs)
        self._texts: list[str] = [""] * num_envs
        self._waiting = np.ones(num_envs, dtype=np.bool_)  # episodes that must be reset before they can be stepped
        self._begun = False

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Texts, dict[str, Any]]:
        """Start all episodes, or those in `options["reset_mask"]`, and return the questions.

        An episode that cannot be started does not affect the others; see the module docstring. If none can be started,
        the exception is raised.

        Args:
            seed: seed of the first episode; each following episode uses the next number. Or one seed per episode.
            options: `reset_mask` (a Boolean array), `tasks` (one per episode), and the options of `ToolEnv.reset`.

        Raises:
            ValueError: a list does not have `num_envs` entries, or `ToolEnv.reset` does not accept an option.
            ClosedEnvironmentError: the environments are closed.
        """
        self._check_open()
        given = dict(options or {})
        mask = self._mask(given.pop("reset_mask", None))
        tasks = given.pop("tasks", None)
        seeds = self._seeds(seed)
        for name, values in (("seed", seeds), ("tasks", tasks)):
            if values is not None and len(values) != self.num_envs:
                raise ValueError(f"{name} must have one entry for each of {self.num_envs} episodes, got {len(values)}")
        each = [given if tasks is None else {**given, "task": task} for task in tasks or [None] * self.num_envs]
        # Before any episode begins, so that a mistake leaves the running ones untouched.
        for env, one in zip(self.envs, each, strict=True):
            check_reset_options(one, env.tasks)
        infos: dict[str, Any] = {}
        chosen = np.flatnonzero(mask).tolist()
        started = run(_all(_started(self.envs[i], seed=seeds[i], options=each[i]) for i in chosen))
        self._begun = True
        for i, (text, info, error) in zip(chosen, started, strict=True):
            self._texts[i], self._waiting[i] = text, error is not None
            infos = self._add_info(infos, info, i)
        if self._waiting.all() and started and started[0][2] is not None:
            raise started[0][2]
        return tuple(self._texts), infos

    def step(self, actions: Sequence[str]) -> Batch:
        """Take one turn in each episode, concurrently.

        Raises:
            ValueError: the number of actions is not `num_envs`.
            TypeError: an action is not a string.
            ResetNeeded: an episode has ended, in autoreset mode DISABLED.
            ClosedEnvironmentError: the environments are closed.
        """
        self._check_open()
        if len(actions) != self.num_envs:
            raise ValueError(f"step takes one action for each of {self.num_envs} episodes, got {len(actions)}")
        wrong = next((action for action in actions if not isinstance(action, str)), None)
        if wrong is not None:
            raise TypeError(f"an action is one turn of text (str), got {type(wrong).__name__}: {wrong!r:.80}")
        if not self._begun:
            raise ResetNeeded("call reset() before the first step()")
        if self.autoreset_mode is AutoresetMode.DISABLED and self._waiting.any():
            over = np.flatnonzero(self._waiting).tolist()
            raise ResetNeeded(f"episodes {over} have ended; call reset(options={{'reset_mask': ...}}) for them")
        steps = run(_all(self._one(i, action) for i, action in enumerate(actions)))
        infos: dict[str, Any] = {}
        for i, (text, _, _, _, info) in enumerate(steps):
            self._texts[i] = text
            infos = self._add_info(infos, info, i)
        terminated, truncated = (np.array([step[k] for step in steps], dtype=np.bool_) for k in (2, 3))
        return tuple(self._texts), np.array([step[1] for step in steps]), terminated, truncated, infos

    def render(self) -> Any:
        """Return the transcript of each episode in render mode "ansi"."""
        return None if self.render_mode is None else tuple(env.render() for env in self.envs)

    def close_extras(self, **kwargs: Any) -> None:
        """End all episodes and release their interpreters."""
        run(_all(env.aclose() for env in self.envs))

    async def _one(self, i: int, action: str) -> Step:
        if self._waiting[i]:
            return await self._anew(i)
        step = await _contained(self.envs[i], action)
        over = step[2] or step[3]
        if not over or self.autoreset_mode is not AutoresetMode.SAME_STEP:
            self._waiting[i] = over
            return step
        # Reward and flags belong to the episode that ended, text and info to the new one.
        text, _, _, _, info = await self._anew(i)
        return text, *step[1:4], {**info, "final_obs": step[0], "final_info": step[4]}

    async def _anew(self, i: int) -> Step:
        text, info, error = await _started(self.envs[i])
        self._waiting[i] = error is not None
        return (*_FAILED, info) if error else (text, 0.0, False, False, info)

    def _check_open(self) -> None:
        if self.closed:
            raise ClosedEnvironmentError("the environments are closed and cannot be reopened; create new ones")

    def _seeds(self, seed: int | Sequence[int | None] | None) -> list[int | None]:
        if seed is None:
            return [None] * self.num_envs
        return [seed + i for i in range(self.num_envs)] if isinstance(seed, int) else list(seed)

    def _mask(self, mask: Any) -> Flags:
        if mask is None:
            return np.ones(self.num_envs, dtype=np.bool_)
        if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_ or mask.shape != (self.num_envs,):
            raise ValueError(f"reset_mask must be a Boolean array of shape ({self.num_envs},), got {mask!r:.80}")
        return mask


async def _started(env: ToolEnv, **options: Any) -> tuple[str, dict[str, Any], Exception | None]:
    """Reset one episode; an infrastructure failure affects only this episode, and is returned."""
    try:
        return *await env.areset(**options), None
    except gymnasium.error.Error:
        raise  # the caller's mistake, such as a seed below 0
    except Exception as error:  # any failure of the infrastructure behind a tool
        return "", _failure(error), error


async def _contained(env: ToolEnv, action: str) -> Step:
    """Step one episode; an infrastructure failure ends only this episode."""
    try:
        return await env.astep(action)
    except ResetNeeded:
        raise  # the caller's mistake
    except Exception as error:  # any failure behind a tool or grader voids only this sample
        return *_FAILED, _failure(error)


def _failure(error: Exception) -> dict[str, Any]:
    return {"error": f"{type(error).__name__}: {error}", "outcome": "failed", "tool_calls": 0}


async def _all(coroutines: Any) -> list[Any]:
    """Await all coroutines, and only then raise the first exception, so that no episode is left half-way."""
    results = await asyncio.gather(*coroutines, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return list(results)
