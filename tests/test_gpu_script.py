"""The GPU script on a CPU: its parts run in tiny form; one that cannot or that hangs does not stop the others."""

import json
from pathlib import Path

import torch

from benchmarks.gpu import __main__ as script


def test_parts_run_without_a_gpu_in_tiny_form(tmp_path: Path) -> None:
    """Packed rows equal flat ones; three training steps branch, learn and can be loaded again."""
    for name in ("packing-equal", "train-packed"):
        script.run_part(name, True, tmp_path / f"{name}.json")
    equal, trained = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("packing-equal", "train-packed"))
    assert equal["status"] == trained["status"] == "ok", (equal, trained)
    for numbers in equal["results"].values():
        assert max(value for name, value in numbers.items() if name.startswith("float32")) < 1e-5
    assert sum(trained["results"]["branches"]) > 0
    assert trained["results"]["logps, rollout - training"]["max"] < 1e-3
    assert trained["results"]["saved model"]["update's norm"] > 0
    if not torch.cuda.is_available():
        script.run_part("train-fsdp2", True, tmp_path / "skipped.json")
        skipped = json.loads((tmp_path / "skipped.json").read_text())
        assert (skipped["status"], "needs 1 GPU, found 0" in skipped["why"]) == ("skipped", True)


def test_a_part_that_hangs_is_ended_and_counted(tmp_path: Path) -> None:
    result = script.start_part("rollout-0.5b", tmp_path, tiny=True, seconds=0.5)
    assert (result["status"], result["why"].splitlines()[0]) == ("failed", "not done after 0 s")
