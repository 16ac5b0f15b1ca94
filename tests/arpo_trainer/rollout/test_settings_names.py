"""One vocabulary of settings: rollout settings have the names of `ARPOConfig`."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from arpo_trainer import ARPOConfig, RolloutSettings


def test_every_rollout_setting_is_a_setting_of_the_configuration(tmp_path: Path) -> None:
    names = {field.name for field in fields(RolloutSettings)}
    assert names <= {field.name for field in fields(ARPOConfig)}
    args = ARPOConfig(
        output_dir=str(tmp_path),
        num_generations=4,
        per_device_train_batch_size=4,
        branch_alpha=0.4,
        branch_beta=0.3,
        branch_threshold=0.45,
        branch_width=3,
        max_turn_length=77,
        max_completion_length=99,
        retries=2,
        seed=5,
        entropy_window=7,
        branch_quota=1,
        budget_beta=0.7,
        branch_penalty=0.1,
        turn_timeout=3.0,
        max_invalid=0.5,
        temperature=0.9,
        report_to="none",
        use_cpu=True,
        bf16=False,
    )
    settings = args.rollout_settings()
    assert {name: getattr(settings, name) for name in names} == {name: getattr(args, name) for name in names}
    assert args.rollout_settings(num_generations=2, initial_rollouts=1).num_generations == 2


def test_a_turn_may_be_as_long_as_the_completion() -> None:
    assert RolloutSettings(max_turn_length=None, max_completion_length=300).max_turn_length == 300


def test_a_turn_length_of_0_is_the_default(tmp_path: Path) -> None:
    args = ARPOConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False, max_turn_length=0)
    assert args.rollout_settings().max_turn_length == args.max_completion_length
