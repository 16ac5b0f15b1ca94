"""The setting `packing`: its values, what "auto" decides and says, which models are refused, and every loss."""

import json
import logging
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM, HfArgumentParser

from arpo_trainer import ARPOConfig
from arpo_trainer.algorithms.losses import LOSS_TYPES, LOSSES
from arpo_trainer.packing import packing_setting, why_not_packable, why_not_padding_free, why_not_proven
from tests.arpo_trainer.packing.batches import assert_equal_gradients, gradients, inputs, pad, tiny_model, weights
from tests.arpo_trainer.training.test_trl_options import made


def test_values(tmp_path: Path) -> None:
    """Also in the words of a command line: TRL's own parser is transformers'."""
    for given, meant in ((True, True), (False, False), ("true", True), ("False", False), ("AUTO", "auto")):
        assert repr(packing_setting(given)) == repr(meant)
    for given in ("trees", 1, None, 0.5):
        with pytest.raises(ValueError, match="packing must be True, False or 'auto'"):
            ARPOConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False, packing=given)
    line = ["--output_dir", str(tmp_path), "--use_cpu", "--bf16", "false"]
    for flags, meant in (([], "auto"), (["--packing", "false"], False)):
        assert HfArgumentParser(ARPOConfig).parse_args_into_dataclasses([*line, *flags])[0].packing == meant


def test_auto_says_why_it_does_not_pack_and_true_insists(byte_lm: Path, tmp_path: Path, caplog: Any) -> None:
    usual, _ = made(byte_lm, tmp_path)
    assert usual.packs
    other = shutil.copytree(byte_lm, tmp_path / "model")
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "attention_dropout": 0.1}))
    with caplog.at_level(logging.INFO, "arpo_trainer"):
        trainer, _ = made(other, tmp_path / "auto")
    assert not trainer.packs
    [line] = [record.message for record in caplog.records if "packing=" in record.message]
    assert re.match("packing='auto' trains on padded rows: it drops attention weights.*flash_attention_2", line)
    with pytest.raises(ValueError, match=r"packing=True: it drops attention weights.*Set packing='auto' or False"):
        made(other, tmp_path / "true", packing=True)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"device": "cuda"}, None),
        ({"device": "mps"}, "compared with flat ones on mps"),
        ({"fsdp": 1}, "under FSDP1"),
        ({"fsdp": 2}, None),
        ({"torch_compile": True}, "under torch_compile"),
    ],
)
def test_what_no_test_has_compared_is_not_packed_unasked(
    byte_lm: Path, tmp_path: Path, change: dict[str, Any], words: str | None
) -> None:
    """These devices and launchers are not here: the decision is asked about a trainer that says it has them."""
    trainer, _ = made(byte_lm, tmp_path)
    plugin = SimpleNamespace(fsdp_version=change["fsdp"]) if "fsdp" in change else None
    device, state = torch.device(change.get("device", "cpu")), SimpleNamespace(fsdp_plugin=plugin)
    args = SimpleNamespace(torch_compile=change.get("torch_compile", False), use_liger_kernel=False)
    machine = SimpleNamespace(device=device, state=state)
    like: Any = SimpleNamespace(args=args, accelerator=machine, _why_not=trainer._why_not)
    reason = type(trainer)._why_not_proven(like)
    assert words in reason if words else reason is None


def test_true_packs_what_is_not_proven_and_warns(byte_lm: Path, tmp_path: Path, monkeypatch: Any, caplog: Any) -> None:
    monkeypatch.setattr("arpo_trainer.packing.PROVEN", ())
    with caplog.at_level(logging.WARNING, "arpo_trainer"):
        trainer, _ = made(byte_lm, tmp_path, packing=True)
    assert trainer.packs
    assert "have not been compared with flat ones in tests. Compare a step" in caplog.text


def test_dropout_is_not_proven() -> None:
    peft = pytest.importorskip("peft")
    adapted = peft.get_peft_model(tiny_model("qwen2"), peft.LoraConfig(lora_dropout=0.1, target_modules="all-linear"))
    assert "drops activations at random" in str(why_not_proven(adapted))


def test_with_flash_attention_auto_leaves_out_the_padding(byte_lm: Path, tmp_path: Path, caplog: Any) -> None:
    trainer, _ = made(byte_lm, tmp_path)
    config = trainer.accelerator.unwrap_model(trainer.model).config
    config._attn_implementation = "flash_attention_2"
    with caplog.at_level(logging.INFO, "arpo_trainer"):
        trainer.choose_packing()
    assert (trainer.packs, trainer.padding_free) == (False, True)
    assert "packing='auto' trains on flat rows without padding: its attention ('flash_attention_2')" in caplog.text
    config._attn_implementation = "sdpa"  # which a CPU has; it tells the rows apart by their positions
    batch, found = pad([([1, 5, 6], [7, 8]), ([1, 5], [6])]), []
    for trainer.padding_free in (True, False):
        found.append(trainer._get_per_token_logps_and_entropies(trainer.model, *batch)[0])
    torch.testing.assert_close(found[0][batch[1][:, -batch[2] :] == 1], found[1][batch[1][:, -batch[2] :] == 1])


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_through_the_trainer(byte_lm: Path, tmp_path: Path, name: str) -> None:
    """Anchors are moved after a packed pass as after a flat one."""
    way = LOSS_TYPES[list(LOSSES).index(name) % len(LOSS_TYPES)]
    trainer, _ = made(byte_lm, tmp_path, policy_loss=name, packing=True, num_iterations=2, loss_type=way)
    trainer.current_gradient_accumulation_steps = 1
    model, batch, found, values = trainer.model.train(), inputs(6), [], []
    batch["old_per_token_logps"] = 1.5 * weights(batch["advantages"].shape, 3) - 7  # far off, mostly above the bounds
    for trainer.packs in (True, False):
        value = trainer._compute_loss(model, batch)
        value.backward()
        values.append(value.item())
        found.append(gradients(model))
    assert values[0] == pytest.approx(values[1], abs=1e-5, rel=1e-5)
    assert_equal_gradients(*found)
    moved = trainer._metrics["train"].get("arpo/kept_gradients", [0.0, 0.0])
    assert (moved[0] > 0) == (LOSSES[name].clip != "ppo")
    assert moved[0] == moved[1]


def of_kind(kind: str, **settings: Any) -> Any:
    config = AutoConfig.for_model(kind, vocab_size=61, **settings)
    return (AutoModelForSeq2SeqLM if kind == "t5" else AutoModelForCausalLM).from_config(config)


ROUTED = {"sliding_window": None, "output_router_logits": True, "num_local_experts": 2}
T5 = {"d_model": 16, "d_ff": 16, "d_kv": 8, "num_layers": 1, "num_heads": 2}


@pytest.mark.parametrize(
    ("make", "kind", "settings", "reason"),
    [
        (tiny_model, "mistral", {"sliding_window": 16}, "window.*sliding_window=None"),
        (tiny_model, "qwen2", {"use_sliding_window": True, "max_window_layers": 1}, "window"),
        (of_kind, "mamba", {"hidden_size": 32, "num_hidden_layers": 1, "state_size": 4}, "state from token to token"),
        (of_kind, "bloom", {"hidden_size": 32, "n_layer": 1, "n_head": 2}, "positions cannot be set"),
        (of_kind, "t5", T5, "no decoder of text alone"),
        (tiny_model, "llama", {"attention_dropout": 0.1}, "attention_dropout=0.0"),
        (of_kind, "gpt2", {"n_embd": 32, "n_layer": 1, "n_head": 2}, "attn_pdrop=0.0"),  # by another name
        (tiny_model, "doge", {}, "masks or positions of its own making"),
        (tiny_model, "mixtral", ROUTED, "balancing loss"),
    ],
)
def test_models_that_packing_cannot_serve_are_refused(make: Any, kind: str, settings: Any, reason: str) -> None:
    assert re.search(reason, why_not_packable(make(kind, **settings)))


def test_attention_without_masks_is_refused() -> None:
    for attention, cure in (("eager", "'sdpa'"), ("flex_attention", "CPU.*'sdpa'")):
        model = tiny_model()
        model.set_attn_implementation(attention)
        assert re.search(cure, why_not_packable(model))


@pytest.mark.parametrize(
    ("kind", "attention", "reason"),
    [
        ("llama", "flash_attention_2", None),
        ("llama", "sdpa", "need attn_implementation='flash_attention_2'"),
        ("gpt_neox", "flash_attention_2", "gpt_neox without padding have not been compared"),
        ("qwen3_next", "flash_attention_2", "carry a state from token to token"),
    ],
)
def test_rows_go_without_padding_where_attention_keeps_them_apart(
    kind: str, attention: str, reason: str | None
) -> None:
    """A layer with a state carries it on: transformers reads the rows' lengths only in kernels that are not here."""
    model = tiny_model(kind)
    model.config._attn_implementation = attention
    said = why_not_padding_free(model)
    assert said is None if reason is None else reason in str(said)
