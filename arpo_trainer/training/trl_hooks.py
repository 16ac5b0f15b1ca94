"""All uses of the internals of TRL's trainer: `HookedGRPOTrainer` turns them into hooks with stable names.

    rollout_func (constructor argument)   play: rows become completions; it sees the rows, not the prompts alone
    _calculate_rewards                    rewards_seen: of all processes, before the mean of the group is subtracted
    _generate_and_score_completions       token_advantages: (B,) becomes (B, T), which TRL's loss takes; more_columns;
                                          learned_rows: the others leave the loss; batch_made
    _prepare_inputs, _buffered_inputs, _step   deal: which rows share a micro-batch
    _metrics, _logs, too                  amid_rollout, rollout_state, restore_rollout, forget_rollout: for checkpoints
    _step                                 micro_batch
    _get_train_sampler                    sampler_made, fresh_sampler
    use_vllm, _last_loaded_step           corrects_sampling: importance weights without vLLM
    _compute_loss, beta, _metrics         before_loss: a micro-batch, as the loss will see it
    _entropy_bonus_enabled                needs_all_rows
    _get_per_token_logps_and_entropies    own_logps may compute them; logps_seen, between them and the loss; in_segments
                                          and policy_logps
    _metrics                              add_metric, replace_metric
    log, ProfilingContext                 the table of completions and the times of parts may fail to be logged
    _tokenizer, eos_token_ids             tokenizer_of, end_ids
    _name, _paper, _tag_names             what the model card says

Those of its vLLM host are in `policy_backend`. `tests/arpo_trainer/training/test_trl_hooks.py` fails when one of them
changes; `scripts/trl_versions.sh` runs it on each release of `TESTED`. A TRL that cannot work is refused when this
module is imported; one that lacks an attribute is refused when the first trainer is made.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import trl
import trl.trainer.utils
from accelerate.utils import send_to_device
from packaging.requirements import Requirement
from packaging.version import Version
from transformers import AutoProcessor
from trl.extras.profiling import ProfilingContext

from arpo_trainer.training.cpu_head import speed_up_head
from arpo_trainer.training.devices import OneDevice, give_back_freed_memory


@dataclass(frozen=True)
class Forward:
    """TRL's request for log-probabilities of T completion tokens, with entropies or not.

    Attributes:
        model: as accelerate has wrapped it.
        input_ids: prompts and completions, (B, P + T).
        attention_mask: 1 for tokens, 0 for padding, (B, P + T).
        logits_to_keep: T.
        batch_size: rows that may go through the model together.
        aux_loss: whether the load-balancing loss of the routers is asked for.
    """

    model: Any
    input_ids: torch.Tensor
    attention_mask: torch.Tensor
    logits_to_keep: int
    batch_size: int
    entropy: bool
    aux_loss: bool


logger = logging.getLogger(__name__)

TESTED = ("1.10.0", "1.14.2", "1.16.0")
REQUIREMENT = "trl>=1.10,!=1.15.*,<2"  # 1.15 needs a GPU's compiler, also on a CPU
_METHODS: dict[str, tuple[str, ...]] = {
    "__init__": ("rollout_func",),
    "_calculate_rewards": (),
    "_compute_loss": ("model", "inputs"),
    "_generate_and_score_completions": ("inputs",),
    "_get_per_token_logps_and_entropies": ("model",),
    "_prepare_inputs": ("generation_batch",),
}
_ATTRIBUTES = ("_buffered_inputs", "_metrics", "_step", "_tokenizer", "beta", "use_vllm")
ANY_ROW = "any_row"  # of a micro-batch: whether any row of any process counts
_MEANS_OF_ROWS = ("grpo", "dr_grpo", "sapo")  # these losses divide by the number of rows, the others by that of tokens


def missing_methods(trainer: type) -> list[str]:
    """Return the methods and parameters that are needed and that this `GRPOTrainer` lacks."""
    missing = []
    for name, wanted in _METHODS.items():
        method = getattr(trainer, name, None)
        given = inspect.signature(method).parameters if method else {}
        missing += [f"{name}({parameter})" for parameter in wanted if parameter not in given]
        missing += [] if method else [name]
    return missing


def check_trl(version: str, missing: list[str]) -> None:
    """Refuse a TRL that does not work or lacks something; warn about one that is newer than the tested versions."""
    tried, cure = f"tested with {TESTED[0]} to {TESTED[-1]}", f"pip install '{REQUIREMENT}'"
    lacking = f"; it lacks {', '.join(missing)}" if missing else ""
    if missing or not Requirement(REQUIREMENT).specifier.contains(version, prereleases=True):
        raise ImportError(f"TRL {version} does not work with this package ({tried}){lacking}. Run: {cure}")
    if Version(version) > Version(TESTED[-1]):
        logger.warning("TRL %s is newer than what this package was %s; if it fails, run: %s", version, tried, cure)


check_trl(trl.__version__, missing_methods(trl.GRPOTrainer))
GRPOConfig = trl.GRPOConfig
HAS_FUSED_HEAD = hasattr(trl.trainer.utils, "add_fused_lm_head")  # since 1.16, on a CPU; packing asks it
speed_up_head()
_log_profile = ProfilingContext.__exit__


def _exit(context: ProfilingContext, *error: Any) -> None:
    # within a rollout, which no tracker shall end; one that fails does so in `on_log`, too, and is told of there
    with contextlib.suppress(Exception):
        _log_profile(context, *error)


ProfilingContext.__exit__ = _exit


class HookedGRPOTrainer(OneDevice, trl.GRPOTrainer):  # type: ignore[misc]  # trl is untyped
    """TRL's `GRPOTrainer` with the hooks `play`, ..., `logps_seen`. All but `play` change nothing by default.

    Attributes:
        rows: rows of the data set that this process rolls out or scores.
        corrects_sampling: whether TRL's importance weights, which it has for vLLM, are used in training whatever
            generates.

    Raises:
        ImportError: the trainer of this TRL lacks an attribute that is needed.
        ValueError: `use_liger_kernel` with a TRL that bypasses the hooks then.
    """

    _name = "ARPO"
    _tag_names: ClassVar[list[str]] = ["trl", "arpo"]
    _paper: ClassVar = {"title": "Agentic Reinforced Policy Optimization", "id": "2507.19849", "citation": ""}
    _loss_inputs: dict[str, Any] | None = None
    use_vllm: Any  # TRL's, for the type checker, since they are assigned here
    _buffered_inputs: Any
    beta: Any
    corrects_sampling = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.rows: list[dict[str, Any]] = []
        super().__init__(*args, rollout_func=_play, **kwargs)
        check_trl(trl.__version__, [name for name in _ATTRIBUTES if not hasattr(self, name)])
        if self.args.use_liger_kernel and hasattr(self, "compute_liger_loss"):
            raise ValueError(
                f"use_liger_kernel=True: TRL {trl.__version__} uses a separate loss then, which takes one advantage "
                "per row; leave it out, or pip install 'trl>=1.16'"
            )

    def play(self, rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
        """Roll out all rows of this process.

        Returns:
            For each row "prompt_ids", "completion_ids", "logprobs" and "env_mask"; other columns are passed to the
            reward functions under their names.
        """
        raise NotImplementedError

    def before_rollout(self) -> None:
        """Called before TRL hands weights over and asks for a rollout, in training and in evaluation."""

    def rewards_seen(self, rewards: torch.Tensor) -> None:
        """Called with the rewards of all processes, (rows, functions); NaN marks what could not be scored."""

    def token_advantages(self, centred: torch.Tensor, completion_ids: torch.Tensor) -> torch.Tensor:
        """Return the advantages of this process's tokens, (B, T), from TRL's `centred` ones of its rows, (B,)."""
        return centred

    def learned_rows(self) -> list[bool] | None:
        """Return for the rows of all processes whether anything is learned from them; None is all of them.

        The step is that of a rollout without the others, whatever the loss divides by: their tokens are masked, for KL
        and entropy bonus too, and a mean over rows is one over those that are left.
        """
        return None

    def more_columns(self, completion_ids: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return further tensors of the rollout, (B, T), that go to `before_loss` with their rows."""
        return {}

    def batch_made(self, seconds: float) -> None:
        """Called when rows have been rolled out and scored, with the seconds that this took."""

    def deal(self, micro_batches: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the rows of a rollout, dealt to the same number of micro-batches of the same sizes."""
        return micro_batches

    def sampler_made(self, sampler: Any) -> Any:
        """Return the sampler of the data set, which may be changed."""
        return sampler

    def before_loss(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Return the micro-batch that the loss is computed from."""
        return inputs

    def own_logps(self, forward: Forward) -> tuple[torch.Tensor, torch.Tensor | None] | None:
        """Return log-probabilities and entropies, each (B, T), or None to let TRL compute them."""
        return None

    def in_segments(
        self, compute: Callable[..., tuple[Any, ...]], ids: Any, mask: Any, width: int, batch_size: int | None
    ) -> tuple[Any, ...]:
        """Return `compute(ids, mask, width, batch_size)`: log-probabilities (B, T), entropies and the rest."""
        return compute(ids, mask, width, batch_size)

    def logps_seen(self, logps: torch.Tensor, inputs: dict[str, Any]) -> None:
        """Called with log pi of a micro-batch, (B, T), before the loss reads its other inputs, which may be changed."""

    @property
    def mode(self) -> str:
        """The name that TRL logs under now: "train" or "eval"."""
        return "train" if self.model.training else "eval"

    def tell(self, event: str, news: Any) -> None:
        """Call the method of this name of all callbacks that have it, on the main process."""
        for callback in self.callback_handler.callbacks if self.accelerator.is_main_process else ():
            if hear := getattr(callback, event, None):
                hear(news)

    def add_metric(self, name: str, value: float) -> None:
        """Add a measurement to TRL's log, which shows the mean of all measurements since the last log."""
        self._metrics[self.mode][name].append(value)

    def replace_metric(self, name: str, value: float) -> None:
        """Replace TRL's own measurement of the last rollout."""
        # a slice, which also works where TRL has measured nothing yet
        self._metrics[self.mode][name][-1:] = [value]

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log; TRL's table of completions may fail, since no tracker shall end a run."""
        try:
            super().log(logs, start_time)
        except Exception as error:  # trackers raise many types
            # the numbers and callbacks come first: they may stop a run, and TRL has forgotten the numbers after them
            told = any(frame.name == "call_event" for frame in traceback.extract_tb(error.__traceback__))
            if told or self._metrics[self.mode] or not self.log_completions:
                raise
            logger.warning("the table of completions was not logged (%s: %s)", type(error).__name__, error)

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        started = time.perf_counter()
        # TRL writes results back into its rows; rows that share one dict would overwrite each other
        self.rows = [dict(row) for row in inputs]
        on_cpu = self.accelerator.device.type == "cpu"
        if on_cpu:
            give_back_freed_memory()
        self.before_rollout()
        with self._weighted():
            output: dict[str, Any] = super()._generate_and_score_completions(self.rows)
        output["advantages"] = self.token_advantages(output["advantages"], output["completion_ids"])
        self._leave_out(output, self.learned_rows())
        output |= self.more_columns(output["completion_ids"])
        self.batch_made(time.perf_counter() - started)
        if on_cpu:
            give_back_freed_memory()
        return output

    def _leave_out(self, output: dict[str, Any], learned: list[bool] | None) -> None:
        """Take rows that nothing is learned from out of a rollout, in place."""
        if learned is None or all(learned):
            return
        count, rank = len(output["completion_ids"]), self.accelerator.process_index
        mask = output["completion_mask"]
        own = torch.tensor(learned[rank * count : (rank + 1) * count], device=mask.device)
        output["tool_mask"] = output.get("tool_mask", torch.ones_like(mask)) * own.unsqueeze(1)
        counted = (mask * output["tool_mask"]).sum()
        output["num_items_in_batch"] = self.accelerator.gather(counted).sum()
        if self.loss_type in _MEANS_OF_ROWS:
            output["row_scale"] = torch.tensor(len(learned) / max(1, sum(learned)))
            output["advantages"] = output["advantages"] * output["row_scale"].item()

    def _calculate_rewards(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        rewards: torch.Tensor = super()._calculate_rewards(*args, **kwargs)
        self.rewards_seen(rewards)
        return rewards

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        before = self._buffered_inputs
        inputs = super()._prepare_inputs(generation_batch)
        # a new buffer means a new rollout, and `inputs` is still a micro-batch as TRL has split it
        if self.model.training and self._buffered_inputs is not before:
            self._buffered_inputs = self.deal(self._buffered_inputs)
            inputs = self._buffered_inputs[self._step % self.args.steps_per_generation]
        return inputs

    def _get_train_sampler(self, *args: Any, **kwargs: Any) -> Any:
        return self.sampler_made(super()._get_train_sampler(*args, **kwargs))

    def fresh_sampler(self) -> Any:
        """Return a new sampler of the training data, in the order of the first epoch."""
        return super()._get_train_sampler()

    @contextlib.contextmanager
    def _weighted(self, possible: bool = True) -> Iterator[None]:
        """Let TRL compute and use its importance weights, which it does only where vLLM generates."""
        if self.use_vllm or not (possible and self.corrects_sampling and self.model.training):
            yield
            return
        # the step tells TRL that there is no vLLM to give weights to
        self.use_vllm, self._last_loaded_step = True, self.state.global_step
        try:
            yield
        finally:
            self.use_vllm = False

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        self._loss_inputs, beta, metrics = self.before_loss(inputs), self.beta, self._metrics[self.mode]
        before = {name: len(values) for name, values in metrics.items()}
        any_row = self._loss_inputs.get(ANY_ROW, True)
        if "row_scale" in inputs:  # advantages have it already; TRL reads the weight of the KL from here
            self.beta = beta * inputs["row_scale"].item()
        try:
            with self._weighted("importance_sampling_ratio" in self._loss_inputs):
                loss: torch.Tensor = super()._compute_loss(model, self._loss_inputs)
        finally:
            self.beta = beta
            # also after an error: it marks the pass of the loss, and the next pass may be another
            self._loss_inputs = None
        if not any_row:  # what TRL has added are zeros
            for name in list(metrics):
                del metrics[name][before.get(name, 0) :]
                if not metrics[name]:  # TRL divides by the length
                    del metrics[name]
        return loss

    @property
    def needs_all_rows(self) -> bool:
        """Whether rows without any advantage take part in TRL's loss: in a KL, an entropy, or a number of tokens."""
        args = self.args
        return bool(
            self.beta
            or self._entropy_bonus_enabled
            or args.top_entropy_quantile < 1
            or args.off_policy_mask_threshold is not None
            or self.loss_type == "bnpo"
        )

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: Any,
        attention_mask: Any,
        logits_to_keep: int,
        batch_size: int | None = None,
        **more: Any,
    ) -> tuple[Any, ...]:
        # `more` differs between TRL versions: what the hook needs is read from it, and all of it goes on to TRL
        wanted = more.get("compute_entropy", False), bool(more.get("compute_aux_loss"))
        theirs = super()._get_per_token_logps_and_entropies

        def compute(ids: Any, mask: Any, width: int, size: int | None) -> tuple[Any, ...]:
            own = self.own_logps(Forward(model, ids, mask, width, size or len(ids), *wanted))
            # the third value is the balancing loss of the routers, which packed rows do not have
            return (*own, None) if own else theirs(model, ids, mask, width, batch_size=size, **more)

        logps, *rest = self.in_segments(compute, input_ids, attention_mask, logits_to_keep, batch_size)
        if self._loss_inputs is not None:  # the pass of the loss, not that of the old or the reference policy
            self.logps_seen(logps, self._loss_inputs)
        return (logps, *rest)


def _play(prompts: list[Any], trainer: HookedGRPOTrainer) -> dict[str, list[Any]]:
    return trainer.play(trainer.rows)


def policy_logps(trainer: Any, ids: Any, mask: Any, width: int, batch_size: int) -> torch.Tensor:
    """Return the log-probabilities of the last `width` tokens of each row under the trainer's policy, (B, width)."""
    device = trainer.accelerator.device
    found = trainer._get_per_token_logps_and_entropies(
        trainer.model, ids.to(device), mask.to(device), width, batch_size=batch_size
    )
    logps: torch.Tensor = found[0]
    return logps


def micro_batch(trainer: Any) -> int:
    """Return the number of the micro-batch that is being used, over the whole run."""
    step: int = trainer._step
    return step


def amid_rollout(trainer: Any) -> bool:
    """Return whether the next step uses a rollout that has been used before."""
    return bool(trainer._step % (trainer.args.steps_per_generation * trainer.num_iterations))


def rollout_state(trainer: Any) -> dict[str, Any]:
    """Return the position of a trainer in its rollout, what is left of it, and what was measured since the last log."""
    amid = amid_rollout(trainer)
    return {
        "step": trainer._step,
        "rollout": trainer._buffered_inputs if amid else None,
        "metrics": _plain(trainer._metrics),
        "completions": _plain(trainer._logs) if amid and trainer.log_completions else {},
    }


def restore_rollout(trainer: Any, state: dict[str, Any]) -> None:
    """Restore what `rollout_state` returned."""
    trainer._step = state["step"]
    trainer._buffered_inputs = send_to_device(state["rollout"], trainer.accelerator.device)
    _refill(trainer._metrics, state["metrics"])
    _refill(trainer._logs, state["completions"])


def forget_rollout(trainer: Any) -> None:
    """Start the next step with a new rollout and the present weights: step 0 of an earlier call had others."""
    trainer._step, trainer._buffered_inputs, trainer._last_loaded_step = 0, None, -1


def _plain(value: Any) -> Any:
    """Return nested dictionaries and queues as `dict` and `list`, which `torch.load` reads with `weights_only`."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return list(value)


def _refill(kept: Any, saved: dict[str, Any]) -> None:
    """Put saved values back; TRL's lists and queues stay the same objects, since TRL holds references to them."""
    for key, value in saved.items():
        if isinstance(value, dict):
            _refill(kept[key], value)
        else:
            kept[key].clear()
            kept[key].extend(value)


def processing_class(model: Any, args: Any) -> Any:
    """Return the tokenizer or processor that TRL would load for a model or its folder."""
    path, revision = (model, (args.model_init_kwargs or {}).get("revision")) if isinstance(model, str) else ("", None)
    return AutoProcessor.from_pretrained(
        path or model.name_or_path,
        revision=revision,
        truncation_side="left",
        padding_side="left",
        trust_remote_code=args.trust_remote_code,
    )


def tokenizer_of(trainer: Any) -> Any:
    """Return the tokenizer of a trainer, or that of its processor."""
    return trainer._tokenizer


def end_ids(trainer: Any) -> set[int]:
    """Return the ids that end a turn: that of the tokenizer and those that the model declares."""
    if hasattr(trainer, "eos_token_ids"):  # since TRL 1.14
        return set(trainer.eos_token_ids)
    declared = trainer.accelerator.unwrap_model(trainer.model).generation_config.eos_token_id
    own = {declared} if isinstance(declared, int) else set(declared or ())
    return own | {trainer._tokenizer.eos_token_id}
