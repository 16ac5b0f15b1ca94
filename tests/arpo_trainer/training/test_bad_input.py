"""What cannot be learned from is refused with its cure, or counted and said; what only looks odd just works."""

import asyncio
import contextlib
import copy
import functools
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

from arpo_env import ToolEnv
from arpo_trainer import ARPOTrainer
from arpo_trainer.backends.base import Generation, Request
from arpo_trainer.rollout.rendering import check_tokenizer
from arpo_trainer.training.rollout_batch import ROLLOUTS_WITHOUT_SIGNAL, NoSignalWarning, RewardCheck
from arpo_trainer.training.task_data import task_dataset
from arpo_trainer.tree import Stopwatch
from tests.arpo_trainer.rollout.test_engine import CALL, DONE, ScriptedPolicy, play
from tests.arpo_trainer.training.test_trainer import GROUP, config, listener
from tests.conftest import tiny_llama


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"beta": -1.0}, "push the policy away from its reference"),
        ({"epsilon": 0.0, "policy_loss": "aepo"}, "low is `epsilon`"),
        ({"loss_type": "grop"}, "loss_type must be one of .*did you mean 'grpo'"),
        ({"scale_rewards": "groups"}, "scale_rewards must be one of .*did you mean 'group'"),
        ({"num_iterations": 0}, "num_iterations must be at least 1"),
        ({"max_invalid": 1.5}, r"max_invalid is a share of the trajectories, from 0 to 1; got 1\.5"),
        ({"branch_width": 2.5}, "branch_width must be a whole number"),
        ({"branch_alpha": math.nan}, "branch_alpha must be a finite number, got nan"),
        ({"num_generations": True}, "num_generations must be a whole number"),
        ({"attribution": 3}, "attribution must be text, got 3"),
        ({"advantage": "tree-grpo", "scale_rewards": "none"}, "take advantage='grpo-no-std'"),
        ({"initial_rollouts": 5}, r"initial_rollouts must be between 1 and num_generations \(4\), got 5"),
        ({"num_generations": 1}, "num_generations must be at least 2"),
        ({"algorithm": "ppo"}, "algorithm must be one of 'grpo', 'arpo'"),
        ({"top_p": 0.9}, "only `temperature` can be set"),
        ({"temperature": 0.0}, "temperature must be above 0"),
        ({"loss_type": "luspo"}, "one advantage per row"),
        ({"mask_truncated_completions": True}, "nothing would be learned"),
        ({"branch_width": 0}, "branch_width must be at least 1"),
    ],
)
def test_settings_that_mean_nothing_are_refused(tmp_path: Path, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        config(tmp_path, **settings)


def test_settings_reach_the_rollout_and_a_turn_may_be_as_long_as_the_completion(tmp_path: Path) -> None:
    args = config(tmp_path, branch_alpha=0.4, branch_quota=1, seed=5, max_turn_length=0, max_completion_length=300)
    settings = args.rollout_settings()
    assert (settings.branch_alpha, settings.branch_quota, settings.seed, settings.max_turn_length) == (0.4, 1, 5, 300)
    assert args.rollout_settings(num_generations=2, initial_rollouts=1).num_generations == 2


@pytest.mark.parametrize(
    ("settings", "loss_type", "corrected"),
    [
        ({}, "dapo", True),
        ({"algorithm": "arpo"}, "dapo", True),
        ({"algorithm": "arpo-reference"}, "dapo", False),
        ({"vllm_importance_sampling_correction": False}, "dapo", False),
        ({"policy_loss": "gspo-turn", "beta": 0.01}, "grpo", True),
        ({"policy_loss": "gspo", "loss_type": "dapo"}, "dapo", True),
        ({"loss_type": "cispo", "epsilon_high": 5.0}, "cispo", True),
        ({"importance_sampling_level": "sequence", "epsilon": 3e-4, "epsilon_high": 4e-4}, "dapo", True),
        ({"delta": 3.0, "scale_rewards": False, "branch_alpha": 1, "max_turn_length": None}, "dapo", True),
    ],
)
def test_settings_that_mean_something_are_not(
    tmp_path: Path, settings: dict[str, Any], loss_type: str, corrected: bool
) -> None:
    """The mean of a loss is its own, and tokens are corrected one by one."""
    args = config(tmp_path, **settings)
    found = (args.loss_type, args.vllm_importance_sampling_correction, args.vllm_importance_sampling_mode)
    assert found == (loss_type, corrected, "token_truncate")


def test_a_model_without_a_chat_template_is_refused(env: Any, isolation: str, tokenizer: Any, tmp_path: Path) -> None:
    bare = copy.deepcopy(tokenizer)
    bare.chat_template = None
    refused = pytest.raises(ValueError, match=r"no chat template.*chat_template\.jinja.*processing_class")
    with refused:
        scripted(bare, tmp_path, [DONE])
    with refused:
        play(env, ScriptedPolicy(bare, [DONE], [1.0]), bare)


def test_a_tokenizer_that_begins_each_text_with_a_space_is_refused() -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = {letter: number for number, letter in enumerate(["<unk>", "▁", "a", "\n"])}
    for scheme, refused in (("always", True), ("never", False)):
        made = Tokenizer(models.BPE(vocab=letters, merges=[], unk_token="<unk>"))
        made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
        made.decoder = decoders.Metaspace(prepend_scheme=scheme)
        wrapped = PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>")
        wrapped.chat_template = "{{ messages }}"
        with pytest.raises(ValueError, match="add_prefix_space=False") if refused else contextlib.nullcontext():
            check_tokenizer(wrapped)


class Ending(ScriptedPolicy):
    """Writes the end token after each answer."""

    time = Stopwatch()

    async def generate(self, request: Request, on_window: Any = None) -> Generation:
        made = await super().generate(request, on_window)
        end = [self.tokenizer.eos_token_id] if "</answer>" in self.tokenizer.decode(made.ids) else []
        numbers = [*made.logprobs, *(-0.1 for _ in end)], [*made.entropies, *(0.1 for _ in end)]
        return Generation([*made.ids, *end], *numbers, made.finish)


def scripted(tokenizer: Any, folder: Path, answers: list[str], **parts: Any) -> tuple[ARPOTrainer, list[Any]]:
    """A trainer whose trajectories are written down, and the rows of one rollout."""
    env = ToolEnv("arpo/Arithmetic-v0", level=3)
    args = config(folder, max_steps=1, algorithm="grpo")
    trainer = ARPOTrainer(tiny_llama(len(tokenizer)), env, args=args, processing_class=tokenizer, **parts)
    trainer.backend = trainer.engine.backend = Ending(tokenizer, answers, [1.0] * len(answers))
    row = task_dataset(env, args)[0]
    return trainer, [row] * GROUP


@pytest.mark.parametrize("pad", ["the end token", "none"])
def test_the_end_is_trained_on_where_it_pads_too(isolation: str, tokenizer: Any, tmp_path: Path, pad: str) -> None:
    own = copy.deepcopy(tokenizer)
    own.pad_token = own.eos_token if pad == "the end token" else None
    trainer, rows = scripted(own, tmp_path, [CALL, DONE])
    batch = trainer._generate_and_score_completions(rows)
    assert own.pad_token_id == own.eos_token_id
    ids, real = batch["completion_ids"], batch["completion_mask"]
    assert (ids[:, -1] == own.eos_token_id).all()
    assert real.all()  # all are equally long: the end counts, nothing is padding
    longer = {"completion_ids": own.pad_token_id, "completion_mask": 0, "tool_mask": 1, "advantages": 0.0}
    for name, value in longer.items():
        batch[name] = torch.cat([batch[name], torch.full((GROUP, 2), value, dtype=batch[name].dtype)], dim=1)
    trainer.current_gradient_accumulation_steps = 1
    losses = []
    for place in (None, -3, -1):  # nothing, the end, padding
        advantages = torch.zeros_like(batch["advantages"])
        if place is not None:
            advantages[:, place] = 1.0
        with torch.no_grad():
            losses.append(trainer.compute_loss(trainer.model, {**batch, "advantages": advantages}).item())
    assert losses[1] != losses[0] == losses[2]


def test_a_reward_that_is_no_number_is_named_and_trees_are_kept(isolation: str, tokenizer: Any, tmp_path: Path) -> None:
    kept: list[Any] = []

    def politeness(completions: list[Any], **_: Any) -> list[float | None]:
        return [1.0, None, math.nan, 0.0]

    hears = [listener(on_rollout=kept.append)]
    trainer, rows = scripted(tokenizer, tmp_path, [DONE], reward_funcs=politeness, callbacks=hears)
    assert trainer.reward_func_names == ["politeness"]
    with pytest.raises(ValueError, match=r"'politeness' gave nan for row 2 .*Return None"):
        trainer._generate_and_score_completions(rows)
    assert [len(trees[0].trajectories) for trees in kept] == [GROUP]


def test_every_kind_of_reward_function_is_checked() -> None:
    class Polite:
        async def __call__(self, **_: Any) -> list[float]:
            return [-math.inf]

    check = RewardCheck()
    good, late, partly = check.wrap([lambda **_: [1, None], Polite(), functools.partial(lambda n, **_: [n], math.nan)])
    assert good() == [1.0, None]
    check.settle(torch.zeros(2, 1), [good])
    for call, said in ((lambda: asyncio.run(late()), "'Polite' gave -inf"), (partly, "'<lambda>' gave nan")):
        assert call() == [None]
        with pytest.raises(ValueError, match=said):
            check.settle(torch.zeros(1, 1), [good])
        check.settle(torch.zeros(1, 1), [good])
    model = torch.nn.Linear(1, 1)
    assert check.wrap(["some/model", model]) == ["some/model", model]
    with pytest.raises(ValueError, match="'Linear' gave nan for row 1"):
        check.settle(torch.tensor([[1.0, math.nan], [math.nan, math.nan]])[:, :1], [model])


def test_rollout_after_rollout_without_a_signal_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    warning = NoSignalWarning()
    silent, telling = [[0.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [1.0, -1.0]]
    few = [silent] * (ROLLOUTS_WITHOUT_SIGNAL - 1)
    for rollout in [*few, telling, *few]:
        warning.update(rollout)
    assert not caplog.records
    for _ in range(3):
        warning.update(silent)
    assert len(caplog.records) == 1
    assert "raise num_generations or temperature" in caplog.text


@pytest.mark.parametrize(("given", "place"), [({"dtype": "float32"}, {"": "cpu"}), ({"device_map": "cpu"}, "cpu")])
def test_one_process_loads_to_one_of_several_gpus_unless_told(
    given: dict[str, Any], place: Any, byte_lm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a reference; `tests/pretended/test_two_gpus.py` has all trainers on two GPUs."""
    places, load = [], PreTrainedModel.from_pretrained.__func__

    def seen(cls: Any, *args: Any, **kwargs: Any) -> Any:
        places.append(kwargs["device_map"])
        return load(cls, *args, **kwargs)

    monkeypatch.setattr(PreTrainedModel, "from_pretrained", classmethod(seen))
    args: Any = config(tmp_path, beta=0.04, model_init_kwargs=dict(given))
    args._n_gpu = 2  # as TRL's settings count them
    trainer = ARPOTrainer(str(byte_lm), "arpo/Arithmetic-v0", args=args)
    assert trainer.args.n_gpu == 1
    assert places == [place] * 2
    assert trainer.args.model_init_kwargs == given  # what a checkpoint keeps does not depend on the machine
