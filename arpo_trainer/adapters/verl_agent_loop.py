"""`ArpoAgentLoop`: episodes of an environment, or ARPO's trees of them, as an agent loop of verl.

The rows come from `arpo data export --format verl` (`agent_name` is "arpo_agent"), and verl finds the loop in the file
that `actor_rollout_ref.rollout.agent.agent_loop_config_path` names:

    - name: arpo_agent
      _target_: arpo_trainer.adapters.verl_agent_loop.ArpoAgentLoop
      rollout: {algorithm: arpo, initial_rollouts: 8}

Token ids go to verl's servers and come back from them; the text of the environment is tokenised once and appended, by
the same rollout engine that `ARPOTrainer` uses. The n rollouts of a prompt are one tree. `docs/adapters/verl.md` says
what becomes of failures.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import math
import statistics
import uuid
import weakref
import zlib
from collections.abc import Mapping
from typing import Any, Literal

from arpo_env.adapters import load_peer
from arpo_env.adapters.task_rows import find_task
from arpo_trainer.adapters.verl_backend import VerlBackend, together
from arpo_trainer.rollout.engine import Engine
from arpo_trainer.rollout.live_trajectory import DEFAULT_TRAJECTORIES, ConcurrencyLimits
from arpo_trainer.rollout.rendering import check_tokenizer
from arpo_trainer.rollout.settings import RolloutSettings
from arpo_trainer.tree import RolloutTree, Trajectory
from arpo_trainer.validation import check_name

verl: Any = load_peer("verl.experimental.agent_loop.agent_loop")

OnFault = Literal["raise", "mask"]
# what verl decides, or what has no meaning here
_SAMPLING = {"temperature", "top_p", "top_k", "min_p", "repetition_penalty"}
_OF_VERL = {"num_generations", "max_completion_length", "max_invalid", "seed", *_SAMPLING}
SETTINGS = tuple(each.name for each in dataclasses.fields(RolloutSettings) if each.name not in _OF_VERL)
# of rewards; verl wants the same keys from every sample, and none may be "acc": verl's validation counts a sample that
# was left out as one with an acc of 0
COMPONENTS = ("accuracy", "format", "multi_tool")
# one per event loop and size: all prompts of a worker share them
_limits: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[int, ConcurrencyLimits]] = (
    weakref.WeakKeyDictionary()
)


class EpisodeFailed(RuntimeError):
    """Raised when the sandbox, a service or the grader failed, so that the sample has no reward."""


@verl.register("arpo_agent")
class ArpoAgentLoop(verl.AgentLoopBase):  # type: ignore[misc]
    """Plays the task of a row.

    Args:
        *args: of verl.
        rollout: settings of `RolloutSettings` by name. The default algorithm is "grpo", which has no branches.
            `num_generations` is the number of rollouts that verl asks for; temperature and length are verl's.
        on_fault: what a failure of the sandbox, a service or the grader becomes. "raise": an error, for which verl's
            trainer leaves out the sample (`trainer.use_v1=True`, the default). "mask": a sample without a gradient,
            whose reward is the mean of its group, for trainers that an error would end.
        max_trajectories: most episodes at once in one worker of verl.
        **kwargs: of verl.

    Raises:
        ValueError: a setting is unknown or invalid.
    """

    def __init__(
        self,
        *args: Any,
        rollout: Mapping[str, Any] | None = None,
        on_fault: OnFault = "raise",
        max_trajectories: int = DEFAULT_TRAJECTORIES,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        check_name("on_fault", on_fault, ("raise", "mask"))
        self.settings, self.on_fault, self.max_trajectories = dict(rollout or {}), on_fault, max_trajectories
        for name in self.settings:
            check_name("a setting of `rollout`", name, SETTINGS)

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> Any:
        """Play one rollout of a prompt and return an `AgentLoopOutput`.

        Args:
            sampling_params: of verl.
            **kwargs: the columns of the row; `extra_info` names the task, `uid` the prompt.

        Raises:
            ValueError: the row does not name its task, or the prompt is longer than `rollout.prompt_length`.
            GenerationError: a server failed.
            EpisodeFailed: the episode failed, and `on_fault` is "raise" or all episodes of the prompt failed.
        """
        # rollouts of one prompt with different sampling (REMAX has a greedy one) are different trees
        key = (str(kwargs.get("uid") or id(kwargs)), json.dumps(sampling_params, sort_keys=True, default=str))

        async def play(count: int) -> tuple[RolloutTree, set[int]]:
            return await self._play(count, sampling_params, kwargs.get("extra_info") or {}, key[0])

        number, (tree, steps) = await together(key, play)
        return self._output(tree, number, steps, bool(sampling_params.get("logprobs")))

    async def _play(
        self, count: int, sampling_params: Mapping[str, Any], reference: Mapping[str, Any], uid: str
    ) -> tuple[RolloutTree, set[int]]:
        factory, task = find_task(reference)
        config = self.rollout_config
        backend = VerlBackend(
            self.server_manager,
            self.tokenizer,
            sampling_params,
            config.name,
            config.get("max_model_len"),
            bool(config.get("full_determinism")),
        )
        settings = self._settings(count, sampling_params.get("temperature", 1.0), uid)
        template = dict(self.apply_chat_template_kwargs or {})
        engine = Engine(backend, self.tokenizer, factory(), settings, template, limits={"trajectory": count})
        self._check(engine, len(engine.prompt_ids(task)))
        # a group takes its places at once: groups that each hold some sandboxes would wait for one another
        async with self._places(count).acquire("trajectory", count=count):
            [tree] = await engine.play([task])
        tree.meta |= {"uid": uid, "tree": uuid.uuid4().hex}  # a prompt has two trees where verl splits its rollouts
        return tree, backend.steps

    def _settings(self, count: int, temperature: float, uid: str) -> RolloutSettings:
        given = {"algorithm": "grpo", "max_turn_length": None, "branch_quota": None, **self.settings}
        # a validation, and a group that verl splits over workers, have fewer rollouts than a training group
        roots = min(count, given.pop("initial_rollouts", max(1, count // 2)))
        return RolloutSettings(
            num_generations=count,
            initial_rollouts=roots,
            temperature=float(temperature),
            max_completion_length=int(self.rollout_config.response_length),
            seed=zlib.crc32(uid.encode()),
            **given,
        )

    def _check(self, engine: Engine, length: int) -> None:
        check_tokenizer(self.tokenizer)
        config = self.rollout_config
        if length > config.prompt_length:
            raise ValueError(
                f"a prompt of {length} tokens is longer than rollout.prompt_length={config.prompt_length}: raise "
                "data.max_prompt_length. (verl would cut off its beginning, which holds the instructions)"
            )
        stops = engine.env.protocol.stop_strings(engine.env.schemas)
        if stops and config.name == "sglang" and config.get("skip_tokenizer_init"):
            raise ValueError(
                "the protocol of this environment needs stop strings, and SGLang finds none without a tokenizer: set "
                "actor_rollout_ref.rollout.skip_tokenizer_init=False, or export the rows with --env-set protocol=hermes"
            )

    def _places(self, count: int) -> ConcurrencyLimits:
        most = self.max_trajectories
        if count > most:
            raise ValueError(f"a prompt has {count} rollouts, but max_trajectories is {most}; raise it")
        return _limits.setdefault(asyncio.get_running_loop(), {}).setdefault(
            most, ConcurrencyLimits({"trajectory": most})
        )

    def _output(self, tree: RolloutTree, number: int, steps: set[int], with_logprobs: bool) -> Any:
        trajectory, row = tree.trajectories[number], tree.row(number)
        reward, mask = trajectory.reward, row.mask
        if reward is None:
            reward, mask = self._reward_of_failed(tree, trajectory), [0] * len(row.mask)
        return verl.AgentLoopOutput(
            prompt_ids=tree.prompt_ids,
            response_ids=row.ids,
            response_mask=mask,
            response_logprobs=row.logprobs if with_logprobs else None,
            reward_score=reward,
            num_turns=len(tree.path(number)) + 1,
            metrics=_loop_metrics(tree, number),
            extra_fields=_extra_fields(tree, number, steps),
        )

    def _reward_of_failed(self, tree: RolloutTree, trajectory: Trajectory) -> float:
        rewards = [reward for reward in tree.rewards if reward is not None]
        if self.on_fault == "raise" or not rewards:
            raise EpisodeFailed(f"an episode of {tree.task['id']} failed and has no reward: {trajectory.error}")
        # the mean leaves the baseline of the group as it is without this sample
        return statistics.fmean(rewards)


def _loop_metrics(tree: RolloutTree, number: int) -> Any:
    seconds = {"generate": 0.0, "tool": 0.0}
    for event in tree.timeline:
        if event.trajectory == number and event.kind in seconds:
            seconds[event.kind] += event.end - event.start
    return verl.AgentLoopMetrics(generate_sequences=seconds["generate"], tool_calls=seconds["tool"])


def _extra_fields(tree: RolloutTree, number: int, steps: set[int]) -> dict[str, Any]:
    trajectory = tree.trajectories[number]
    return {
        "reward_extra_info": {name: float(trajectory.components.get(name, math.nan)) for name in COMPONENTS},
        "turn_scores": [],
        "tool_rewards": [],
        "min_global_steps": min(steps, default=None),
        "max_global_steps": max(steps, default=None),
        "arpo": {
            "outcome": trajectory.outcome,
            "error": trajectory.error,
            "answer": trajectory.answer,
            "tool_calls": trajectory.tool_calls,
            "origin": trajectory.origin,
            "parent": trajectory.parent,
            "fork_span": trajectory.fork_span,
            # what `verl_credit` needs
            **{name: tree.meta[name] for name in ("uid", "tree", "algorithm")},
            "size": len(tree.trajectories),
            "valid": trajectory.valid,
            "path": [(span.index, span.kind, len(span.ids)) for span in tree.path(number)],
        },
    }
