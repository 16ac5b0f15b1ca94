"""One process has one GPU, also where settings count two. The precision of FSDP2 is in `test_sharded`."""

from pathlib import Path
from typing import Any

import pytest
import trl
from transformers import AutoTokenizer, PreTrainedModel

from arpo_trainer import ARPOTrainer
from arpo_trainer.preference.dpo_run import make_pair_trainer
from arpo_trainer.preference.pairs import PreferencePair
from arpo_trainer.sft.sft_trainer import make_trainer
from tests.arpo_trainer.byte_policy import write_byte_policy
from tests.arpo_trainer.training.test_trainer import config


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_byte_policy(tmp_path_factory.mktemp("policy"))


def made(kind: str, policy: Path, folder: Path, settings: dict[str, Any]) -> Any:
    """A trainer whose settings count two GPUs, as TRL's do where two are visible to one process."""
    tokenizer, ids = AutoTokenizer.from_pretrained(policy, padding_side="left"), list(range(5, 15))
    plain = {"output_dir": str(folder), "use_cpu": True, "bf16": False, "report_to": []} | settings
    args: Any
    if kind == "grpo":
        args = config(folder, beta=0.04, **settings)
        args._n_gpu = 2
        return ARPOTrainer(str(policy), "arpo/Arithmetic-v0", args=args, processing_class=tokenizer)
    if kind == "sft":
        args = trl.SFTConfig(**plain)
        args._n_gpu = 2
        return make_trainer(str(policy), tokenizer, [{"input_ids": ids, "labels": ids}], args)
    args = trl.DPOConfig(**plain)
    args._n_gpu = 2
    return make_pair_trainer(
        str(policy), tokenizer, [PreferencePair("t", ids, 0, ids, [1] * 10, ids, [1] * 10, 1.0, 0.0)], args
    )


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Where models were loaded to."""
    found: list[Any] = []
    load = PreTrainedModel.from_pretrained.__func__

    def seen(cls: Any, *args: Any, **kwargs: Any) -> Any:
        found.append(kwargs["device_map"])
        return load(cls, *args, **kwargs)

    monkeypatch.setattr(PreTrainedModel, "from_pretrained", classmethod(seen))
    return found


@pytest.mark.parametrize(("kind", "models"), [("grpo", 2), ("sft", 1), ("dpo", 2)])
def test_one_process_takes_one_of_several_gpus(
    kind: str, models: int, policy: Path, tmp_path: Path, places: list[Any]
) -> None:
    trainer = made(kind, policy, tmp_path, {"model_init_kwargs": {"dtype": "float32"}})
    assert trainer.args.n_gpu == 1
    assert places == [{"": "cpu"}] * models  # with their references
    # what a checkpoint keeps of the settings does not depend on the machine
    assert trainer.args.model_init_kwargs == {"dtype": "float32"}


def test_who_names_a_place_gets_it(policy: Path, tmp_path: Path, places: list[Any]) -> None:
    made("sft", policy, tmp_path, {"model_init_kwargs": {"device_map": "cpu"}})
    assert places == ["cpu"]
