"""The GPU script on a CPU: its parts run in tiny form; one that is missing, hangs or dies does not stop the others."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.gpu import __main__ as script
from benchmarks.gpu.parts import PARTS, NotHereError, Part


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


def _lack(tiny: bool) -> dict[str, Any]:
    raise NotHereError("needs a spoon: pip install spoon")


def _break(tiny: bool) -> dict[str, Any]:
    raise RuntimeError("CUDA error: an illegal memory access was encountered")


@pytest.mark.parametrize(
    ("measure", "status", "why"), [(_lack, "skipped", "pip install spoon"), (_break, "failed", "illegal memory access")]
)
def test_a_result_says_why_there_are_no_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, measure: Any, status: str, why: str
) -> None:
    monkeypatch.setattr(Part, "load", lambda self: measure)
    script.run_part("packing-equal", True, tmp_path / "result.json")
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["status"] == status
    assert why in result["why"]


def test_a_part_that_hangs_is_ended_and_counted(tmp_path: Path) -> None:
    result = script.start_part("rollout-0.5b", tmp_path, tiny=True, seconds=0.5)
    assert (result["status"], result["why"].splitlines()[0]) == ("failed", "not done after 0 s")


def test_parts_for_gpus_are_skipped_with_the_reason() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with pytest.raises(NotHereError, match="needs 1 GPU, found 0"):
        PARTS["train-fsdp2"].check(tiny=True)
    with pytest.raises(NotHereError, match="pip install"):
        Part("", "training", packages=("no_such_package",)).check(tiny=True)
    with pytest.raises(NotHereError, match="needs 1 GPU, found 0"):
        PARTS["packing-equal"].check(tiny=False)
