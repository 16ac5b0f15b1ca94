"""DeepSpeed on the CPU: two real processes with ZeRO-2 and ZeRO-3 do what one does with whole weights.

They are started by our launcher with our configurations. One thing is pretended: that a CPU may train with `bf16`. The
runs and the tests are those of FSDP, `test_sharded`. `make test-deepspeed` runs them.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

from arpo_trainer.run.launch import LaunchFlags, launch_command
from tests.arpo_trainer.training import test_sharded as sharded
from tests.arpo_trainer.training.test_sharded import (  # noqa: F401  (collected here, with the fixture of this module)
    test_a_checkpoint_is_an_ordinary_folder,
    test_the_update_is_that_of_one_process,
    test_trees_are_those_of_one_process_also_after_an_update,
    test_what_the_loss_reads_is_not_rounded_to_bfloat16,
)

if importlib.util.find_spec("deepspeed") is None:
    pytest.skip("DeepSpeed is not installed: make test-deepspeed", allow_module_level=True)

# gloo: what DeepSpeed would choose for CPUs has to be compiled first
ON_CPU = {"use_cpu": False, "ddp_backend": "gloo"}


@pytest.fixture(scope="module", params=["zero2", "zero3"])
def ran(
    request: pytest.FixtureRequest, tiny_policy: Path, isolation: str, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Any, Any, Path]:
    folder = tmp_path_factory.mktemp(request.param)
    flags = LaunchFlags(request.param, 2)
    command = launch_command(flags, [str(tiny_policy), str(folder), request.param], __name__)
    environment = os.environ | {"DS_ACCELERATOR": "cpu"}
    done = subprocess.run(
        command, env=environment, cwd=sharded.ROOT, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    return sharded.compared(tiny_policy, folder)


def test_zero3_shards_the_weights_and_leaves_no_copy_between_rollouts(ran: Any) -> None:
    _, both, folder = ran
    for rank in both:
        assert [rank[name]["held"] for name in sharded.RUNS] == [0] * len(sharded.RUNS)
        assert rank["flat"]["shards"] == (["ZeRO-3"] if folder.name.startswith("zero3") else ["Parameter"])


def test_bf16_of_the_recipe_is_the_precision_of_the_weights(ran: Any) -> None:
    _, both, _ = ran
    assert [rank["bf16"]["weights"] for rank in both] == [["torch.bfloat16"]] * 2


def train(policy: Path, top: Path, name: str) -> dict[str, Any]:
    """Do all runs as one of two processes, and say what came of it."""
    from accelerate.state import AcceleratorState

    found: dict[str, Any] = {}
    whole = name == "zero2"
    for run in sharded.RUNS:
        own = top / run
        own.mkdir(exist_ok=True)
        torch.manual_seed(0)  # of the adapters
        found[run] = sharded.experiment(policy, own, run, sharded=not whole, **ON_CPU)
        AcceleratorState._reset_state()
    with mock.patch("transformers.training_args.is_torch_bf16_gpu_available", return_value=True):
        found["bf16"] = sharded.outputs_in_bf16(policy, top / "bf16", **ON_CPU)
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    policy, top = map(Path, sys.argv[1:3])
    result = train(policy, top, sys.argv[3])
    (top / f"rank{os.environ['RANK']}.json").write_text(json.dumps(result))
