"""The `arpo lab` command: small experiments that compare algorithms on a CPU. Each action has a module."""

from __future__ import annotations

from typing import Any

from arpo_trainer.cli.command_options import add_command_group
from arpo_trainer.cli.lab_compare import add_lab_compare_action
from arpo_trainer.cli.lab_estimators import add_lab_estimators_action
from arpo_trainer.cli.lab_policy_command import add_lab_policy_action


def add_lab_command(commands: Any) -> None:
    """Add the command to a parser."""
    actions = add_command_group(commands, "lab", "compare algorithms by many small experiments on a CPU")
    add_lab_compare_action(actions)
    add_lab_estimators_action(actions)
    add_lab_policy_action(actions)
