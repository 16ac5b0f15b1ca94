"""The laboratory's command line: `python -m benchmarks.laboratory compare|estimators|policy`, from a clone."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence

from arpo_trainer.cli.arpo_command import reporting
from benchmarks.laboratory.compare_command import add_compare_action
from benchmarks.laboratory.estimators_command import add_estimators_action
from benchmarks.laboratory.policy_command import add_policy_action


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.laboratory", description="Compare algorithms by many small experiments on a CPU."
    )
    parser.add_argument("--traceback", action="store_true", help="show where an error came from")
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    add_compare_action(actions)
    add_estimators_action(actions)
    add_policy_action(actions)
    logging.getLogger("benchmarks").setLevel(logging.INFO)
    arguments = parser.parse_args(argv)
    return reporting(lambda: arguments.run(arguments), arguments.traceback)


if __name__ == "__main__":
    sys.exit(main())
