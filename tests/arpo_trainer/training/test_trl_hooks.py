"""What we use of TRL's inside is still there, and still does what we rely on."""

import contextlib
import dataclasses
import inspect
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM
from trl import GRPOTrainer, SFTConfig

from arpo_env import ToolEnv
from arpo_trainer import ARPOTrainer
from arpo_trainer.training.policy_backend import weights_are_old
from arpo_trainer.training.resume import MAY_CHANGE
from arpo_trainer.training.rollout_batch import trim_padding
from arpo_trainer.training.trl_hooks import (
    REQUIREMENT,
    TESTED,
    HookedGRPOTrainer,
    check_trl,
    end_ids,
    forget_rollout,
    missing_methods,
)
from tests.arpo_trainer.byte_policy import letter_reward
from tests.arpo_trainer.training.test_trainer import GROUP, config

ROOT = Path(__file__).resolve().parents[3]


def test_what_is_private_to_trl_is_named_in_two_modules() -> None:
    """Underscored attributes of its trainer and vLLM host; those of its other trainers are listed in `resume`."""
    import trl.generation.vllm_generation as host
    import trl.trainer.grpo_trainer as trainer

    theirs = set(re.findall(r"self\.(_[a-z]\w*)", inspect.getsource(trainer) + inspect.getsource(host)))
    theirs |= {name for name in vars(GRPOTrainer) if re.match("_[a-z]", name)}
    assert {"_metrics", "_compute_loss", "_last_loaded_step", "_llm_weights_sleeping", "_tag_names"} <= theirs
    for path in sorted((ROOT / "arpo_trainer").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if path.name in ("trl_hooks.py", "policy_backend.py") or not re.search("Trainer|trainer:", text):
            continue
        used = set(re.findall(r"(?:\.|def |\"|^    )(_[a-z]\w*)", text, re.MULTILINE))
        if path.name == "resume.py":
            used -= set(re.findall(r"`(_\w+)`", " ".join(re.findall("^# (.*)", text, re.MULTILINE))))
        assert not used & theirs, f"{path.relative_to(ROOT)}: {used & theirs}"


def test_a_trl_outside_the_range_is_refused_and_a_newer_one_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    assert f'"{REQUIREMENT}"' in (ROOT / "pyproject.toml").read_text()
    for version in ("1.9.2", "1.15.0", "1.15.2", "2.0.0", "2.1.0"):
        with pytest.raises(ImportError, match=rf"TRL {re.escape(version)} .*pip install '{REQUIREMENT[:8]}"):
            check_trl(version, [])
    for version in TESTED:
        check_trl(version, [])
    assert not caplog.records
    check_trl("1.99.0", [])
    assert "TRL 1.99.0 is newer" in caplog.text


def test_a_trl_that_lacks_a_seam_is_refused_by_its_name() -> None:
    class Changed(GRPOTrainer):  # type: ignore[misc]  # trl is untyped
        _calculate_rewards = None

        def _compute_loss(self, model: Any, batch: Any) -> Any: ...

    missing = missing_methods(Changed)
    assert missing == ["_calculate_rewards", "_compute_loss(inputs)"]
    with pytest.raises(ImportError, match=r"it lacks _calculate_rewards, _compute_loss\(inputs\)\. Run: pip install"):
        check_trl(TESTED[-1], missing)


def test_the_model_s_own_end_tokens_end_a_turn_where_trl_does_not_say_so() -> None:
    model = SimpleNamespace(generation_config=SimpleNamespace(eos_token_id=[7, 8]))
    accelerator, tokenizer = SimpleNamespace(unwrap_model=lambda given: given), SimpleNamespace(eos_token_id=2)
    host = SimpleNamespace(accelerator=accelerator, model=model, _tokenizer=tokenizer)
    assert end_ids(host) == {2, 7, 8}
    host.eos_token_ids = [2, 9]
    assert end_ids(host) == {2, 9}


def test_a_second_call_of_train_does_not_roll_out_with_the_weights_of_the_first() -> None:
    """After a first call of one step vLLM has the weights of step 0, and so the second call's first step seems done."""
    host, state = SimpleNamespace(mode="server"), SimpleNamespace(global_step=0)
    trainer: Any = SimpleNamespace(vllm_generation=host, is_in_train=True, state=state, _last_loaded_step=0)
    assert not weights_are_old(trainer)
    forget_rollout(trainer)
    assert weights_are_old(trainer)


class Probe(ARPOTrainer):
    """Looks at what TRL hands over and takes back."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.losses, self.logps = list[dict[str, Any]](), list[torch.Tensor]()
        super().__init__(*args, **kwargs)

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        self.given = inputs
        self.made = super()._generate_and_score_completions(inputs)
        return self.made

    def play(self, rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
        self.inputs = rows
        return super().play(rows)

    def deal(self, micro_batches: list[dict[str, Any]]) -> list[dict[str, Any]]:
        self.dealt = super().deal(micro_batches)[::-1]
        return self.dealt

    def before_loss(self, inputs: dict[str, Any]) -> dict[str, Any]:
        self.losses.append(inputs)
        return super().before_loss(inputs)

    def logps_seen(self, logps: torch.Tensor, inputs: dict[str, Any]) -> None:
        self.logps.append(logps)
        assert logps.shape == inputs["completion_ids"].shape


@pytest.fixture(scope="module")
def probe(tiny_policy: Path, tokenizer: Any, isolation: str, tmp_path_factory: pytest.TempPathFactory) -> Probe:
    """A trainer after one step."""
    env = ToolEnv("arpo/Arithmetic-v0", level=3)
    model = AutoModelForCausalLM.from_pretrained(tiny_policy, dtype=torch.float32)
    args = config(tmp_path_factory.mktemp("probe"), max_steps=1)
    trainer = Probe(model, env, letter_reward, args, processing_class=tokenizer)
    trainer.train()
    return trainer


def test_the_hooks_are_called_and_the_micro_batches_are_those_dealt(probe: Probe) -> None:
    assert len(probe.dealt) == len(probe.logps) == 2
    assert all(one is other for one, other in zip(probe.losses[:2], probe.dealt, strict=True))
    assert probe.logps[0].requires_grad


def test_rows_arrive_repeated_and_contiguous_and_results_are_written_into_copies(probe: Probe) -> None:
    assert "env_reward" in probe.inputs[0]
    assert "env_reward" not in probe.given[0]
    tasks = [row["task"] for row in probe.inputs]
    assert len(tasks) == 2 * GROUP
    assert all(len(set(tasks[start : start + GROUP])) == 1 for start in (0, GROUP))
    assert probe.inputs[0]["prompt"][-1]["role"] == "user"


def test_token_advantages_and_masks_reach_the_loss_row_by_row(probe: Probe) -> None:
    """They survive TRL's shuffle and split: each row still has the advantages of its own tokens."""
    rows = [tree.row(number) for tree in probe.trees for number in range(GROUP)]
    given = probe.made["advantages"]
    assert given.abs().max() > 0
    wanted = {tuple(row.ids): (row.mask, own[: len(row.ids)].tolist()) for row, own in zip(rows, given, strict=True)}
    assert len(probe.losses) == 2
    for inputs in probe.losses:
        columns = [inputs[name] for name in ("completion_ids", "tool_mask", "advantages", "completion_mask")]
        for ids, mask, own, real in zip(*columns, strict=True):
            n = int(real.sum())
            assert wanted[tuple(ids[:n].tolist())] == (mask[:n].tolist(), own[:n].tolist())


def test_cutting_padding_off_changes_neither_loss_nor_gradient(probe: Probe) -> None:
    inputs = dict(probe.losses[0])
    longer = {"completion_ids": 7, "completion_mask": 0, "tool_mask": 1, "advantages": 3.0}
    for name, filler in longer.items():
        extra = torch.full((len(inputs[name]), 9), filler, dtype=inputs[name].dtype)
        inputs[name] = torch.cat([inputs[name], extra], dim=1)
    for name, filler in {"prompt_ids": 7, "prompt_mask": 0}.items():
        extra = torch.full((len(inputs[name]), 5), filler, dtype=inputs[name].dtype)
        inputs[name] = torch.cat([extra, inputs[name]], dim=1)
    model = probe.model.train()
    results = []
    for compute in (GRPOTrainer._compute_loss, ARPOTrainer._compute_loss):
        model.zero_grad()
        loss = compute(probe, model, inputs)
        loss.backward()
        results.append((loss.item(), torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])))
    assert results[0][0] == pytest.approx(results[1][0], abs=1e-6)
    assert results[0][1].abs().max() > 1e-3
    assert torch.allclose(results[0][1], results[1][1], atol=1e-5)
    assert trim_padding(inputs)["completion_ids"].shape[1] <= inputs["completion_ids"].shape[1] - 9


def test_a_resumed_run_may_checkpoint_activations_by_each_of_the_names_that_this_transformers_has() -> None:
    names = {each.name for each in dataclasses.fields(SFTConfig) if "_checkpointing" in each.name}
    assert {"gradient_checkpointing", "gradient_checkpointing_kwargs"} <= names <= set(MAY_CHANGE)


@pytest.mark.parametrize("reached", [True, False])
def test_the_table_of_completions_may_fail_and_numbers_may_not(reached: bool, monkeypatch: Any, caplog: Any) -> None:
    def log(trainer: Any, logs: dict[str, float], start_time: float | None) -> None:
        if reached:
            trainer._metrics["train"].clear()
        raise OSError("full")

    monkeypatch.setattr(GRPOTrainer, "log", log)
    trainer = object.__new__(HookedGRPOTrainer)
    trainer.model, trainer.log_completions = SimpleNamespace(training=True), True
    trainer._metrics = {"train": {"reward": [1.0]}}
    with contextlib.nullcontext() if reached else pytest.raises(OSError, match="full"):
        trainer.log({"loss": 0.0})
    assert ("the table of completions was not logged" in caplog.text) == reached
