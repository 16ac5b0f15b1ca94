"""One vocabulary of settings: rollout settings have the names of `ARPOConfig`, and old names work for one version."""

from __future__ import annotations

import copy
import pickle
import warnings
from dataclasses import fields
from pathlib import Path

import pytest

from arpo_trainer import ARPOConfig, RolloutSettings
from arpo_trainer.rollout.settings import RENAMED


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


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_old_names_work_with_a_warning(old: str, new: str) -> None:
    with pytest.warns(DeprecationWarning, match=rf"RolloutSettings\.{old} is now {new}"):
        settings = RolloutSettings(**{old: 1})  # type: ignore[arg-type]
    assert getattr(settings, new) == 1
    with pytest.warns(DeprecationWarning, match=rf"RolloutSettings\.{old} is now {new}"):
        assert getattr(settings, old) == 1
    with pytest.raises(ValueError, match=f"{old} is the old name of {new}; give only {new}"):
        RolloutSettings(**{old: 1, new: 1})  # type: ignore[arg-type]


def test_new_names_give_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        settings = RolloutSettings(branch_alpha=0.3)
        assert pickle.loads(pickle.dumps(settings)) == copy.deepcopy(settings) == settings
    with pytest.raises(AttributeError, match="no attribute 'gamma'"):
        settings.gamma  # type: ignore[attr-defined]  # noqa: B018


def test_old_names_override_those_of_a_configuration(tmp_path: Path) -> None:
    args = ARPOConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False)
    with pytest.warns(DeprecationWarning, match="tau is now branch_threshold"):
        assert args.rollout_settings(tau=0.9).branch_threshold == 0.9


def test_settings_that_an_earlier_version_pickled_load() -> None:
    old = {new: name for name, new in RENAMED.items()}
    settings = RolloutSettings(branch_threshold=0.9, branch_alpha=0.1, max_turn_length=77)
    state = {old.get(name, name): value for name, value in vars(settings).items()}
    loaded = RolloutSettings.__new__(RolloutSettings)
    loaded.__setstate__(state)  # type: ignore[attr-defined]
    assert loaded == settings


def test_a_turn_length_of_0_is_the_default(tmp_path: Path) -> None:
    args = ARPOConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False, max_turn_length=0)
    assert args.rollout_settings().max_turn_length == args.max_completion_length
