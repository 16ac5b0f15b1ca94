"""A packed forward gives the numbers of the flat one: log-probabilities, entropies and every gradient."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers.integrations.flex_attention as integration
from torch._dynamo.utils import counters
from torch.nn.attention import flex_attention as flex

import arpo_trainer.packing as forward
from arpo_trainer.packing import PROVEN, packed_logps, why_not_packable
from arpo_trainer.training.packed_trainer import PackedGRPOTrainer
from tests.arpo_trainer.packing.batches import (
    assert_equal_gradients,
    flat,
    gradients,
    pad,
    random_batch,
    tiny_model,
    weights,
)


def compare(model: Any, batch: tuple[torch.Tensor, torch.Tensor, int], tolerance: float = 1e-5, **how: Any) -> int:
    """Compares values, a loss and all gradients; returns how many positions were computed."""
    logps, entropies = flat(model, *batch)
    packed = packed_logps(model, *batch, compute_entropy=True, **how)
    assert packed.entropies is not None
    torch.testing.assert_close(packed.logps, logps, atol=tolerance, rtol=tolerance)
    torch.testing.assert_close(packed.entropies, entropies, atol=tolerance, rtol=tolerance)
    losses, found = [], []
    for a, b in ((logps, entropies), (packed.logps, packed.entropies)):
        loss = (weights(a.shape) * torch.exp(a - a.detach()) + weights(a.shape, 1) * b).mean()
        loss.backward()
        losses.append(loss.item())
        found.append(gradients(model))
    assert losses[0] == pytest.approx(losses[1], abs=tolerance)
    assert_equal_gradients(found[0], found[1], tolerance)
    return packed.computed


def whole(kind: str) -> dict[str, Any]:
    """What lets a kind attend to whole rows."""
    return {"sliding_window": None} if kind in ("mistral", "phi3") else {}


@pytest.mark.parametrize("kind", PROVEN)
def test_packed_is_flat_on_random_trees(kind: str) -> None:
    """Whoever adds a kind to PROVEN gets this test with it."""
    model = tiny_model(kind, **whole(kind))
    assert why_not_packable(model) is None
    for seed in range(8) if kind in ("llama", "qwen2", "qwen3") else range(3):
        batch = random_batch(seed)
        assert compare(model, batch) < int(batch[1].sum())


def test_packed_is_flat_at_another_temperature_and_under_gradient_checkpointing() -> None:
    model = tiny_model("qwen2", temperature=0.7)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    for seed in range(5):
        compare(model, random_batch(seed))


def test_packed_is_flat_when_cut_to_a_budget() -> None:
    model, batch = tiny_model(), random_batch(5)
    computed = [compare(model, batch, budget=budget) for budget in (None, 30, 1)]
    assert computed == sorted(set(computed))


def test_packed_is_flat_with_lora() -> None:
    peft = pytest.importorskip("peft")
    adapter = peft.LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False, task_type="CAUSAL_LM")
    model = peft.get_peft_model(tiny_model("qwen2"), adapter)
    for seed in range(3):
        compare(model, random_batch(seed))
    with model.disable_adapter():
        packed = packed_logps(model, *random_batch(0))
        torch.testing.assert_close(packed.logps, flat(model, *random_batch(0))[0], atol=1e-5, rtol=1e-5)


def test_bfloat16_is_off_by_no_more_than_flat_is() -> None:
    """Packed and flat both round; packed is no farther from float32 than flat, give or take a factor."""
    exact, rounded = tiny_model(), tiny_model().bfloat16()
    off = [0.0, 0.0]
    for batch in map(random_batch, range(8)):
        with torch.no_grad():
            wanted = flat(exact, *batch)[0]
            for way, got in enumerate((flat(rounded, *batch)[0], packed_logps(rounded, *batch).logps)):
                off[way] += (got - wanted).pow(2).mean().sqrt().item()
    assert off[1] < 1.3 * off[0]


def test_under_autocast_packed_is_near_flat() -> None:
    model, batch = tiny_model(), random_batch(1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        packed, wanted = packed_logps(model, *batch).logps, flat(model, *batch)[0]
    torch.testing.assert_close(packed, wanted, atol=0.1, rtol=0.05)


def test_a_branch_meets_the_keys_of_its_own_rows_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """So attention costs what the rows cost, and not the square of the tree."""
    met: list[tuple[int, int]] = []
    attention = torch.nn.functional.scaled_dot_product_attention

    def spy(query: torch.Tensor, key: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        met.append((query.shape[2], key.shape[2]))
        return attention(query, key, *args, **kwargs)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", spy)
    batch = pad([([1, 5], [6, 7] + [8 + row] * 90) for row in range(8)])
    packed = packed_logps(tiny_model(), *batch)
    assert sum(queries for queries, _ in met) == 2 * packed.computed
    assert max(keys for _, keys in met) == 93


def test_a_model_that_makes_its_own_masks_is_refused_and_not_trained_on_wrong_numbers() -> None:
    with pytest.raises(NotImplementedError, match=r"DogeForCausalLM makes attention masks of its own.*packing=False"):
        packed_logps(tiny_model("doge"), *random_batch(3))


def test_a_compiled_model_is_served() -> None:
    model, batch = tiny_model(), random_batch(3)
    wanted = flat(model, *batch)[0]
    model.model.forward = torch.compile(model.model.forward, backend="eager")
    torch.testing.assert_close(packed_logps(model, *batch).logps, wanted, atol=1e-5, rtol=1e-5)


def test_other_masks_of_whole_numbers_are_still_refused() -> None:
    model = tiny_model()
    packed_logps(model, *random_batch(0))
    with pytest.raises(RuntimeError, match="attn_mask dtype"):
        model(torch.ones(1, 6, dtype=torch.long), attention_mask=torch.ones(1, 1, 6, 6, dtype=torch.long))


@pytest.fixture
def as_on_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """Block masks and FlexAttention on the CPU; its eager form has the gradients that it refuses to give there."""
    monkeypatch.setattr(forward, "_in_blocks", lambda device: True)
    monkeypatch.setattr(flex, "_validate_device", lambda *_: None)


@pytest.mark.parametrize("kind", PROVEN)
def test_packed_is_flat_with_the_attention_of_cuda(kind: str, as_on_cuda: None, monkeypatch: Any) -> None:
    """This makes a kind of model proven on GPUs: all but the compiler of FlexAttention is what runs there."""
    monkeypatch.setattr(flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
    monkeypatch.setattr(
        integration, "compile_friendly_flex_attention", lambda *qkv, training, **how: flex.flex_attention(*qkv, **how)
    )
    model = tiny_model(kind, hidden_size=64, head_dim=16, **whole(kind))
    compare(model, random_batch(4), tolerance=3e-5)
    if kind in ("llama", "qwen2", "qwen3"):
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        for seed in range(3):
            compare(model, random_batch(seed), tolerance=3e-5, budget=200)


def test_flex_attention_gets_one_type_under_autocast(as_on_cuda: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel takes one; autocast leaves queries and keys in float32, and PyTorch casts them from 2.13 on."""

    def attend(*qkv: torch.Tensor, training: bool, **how: Any) -> Any:
        assert {one.dtype for one in qkv} == {torch.bfloat16}
        return flex.flex_attention(*qkv, **how)

    monkeypatch.setattr(integration, "compile_friendly_flex_attention", attend)
    model, batch = tiny_model("qwen2", hidden_size=64, head_dim=16), random_batch(4)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        packed = packed_logps(model, *batch, budget=200)
        torch.testing.assert_close(packed.logps, flat(model, *batch)[0], atol=0.1, rtol=0.1)


def test_flex_attention_is_compiled_for_a_few_shapes_only(as_on_cuda: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every micro-batch has another mask and another length: a graph for each would take minutes and then give up."""
    compiled = torch.compile
    monkeypatch.setattr(torch, "compile", lambda function, **_: compiled(function, backend="eager"))
    monkeypatch.setattr(integration.WrappedFlexAttention, "_instance", None)
    torch._dynamo.reset()
    counters["frames"].clear()
    model = tiny_model("qwen2", hidden_size=64, head_dim=16)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    for length in (70, 310, 640):
        batch = pad([([1, 5], [6, 7] + [8 + row] * (length // 4)) for row in range(4)])
        for training in (False, True):
            model.train(training)
            with torch.set_grad_enabled(training):
                logps = packed_logps(model, *batch).logps
        logps.sum().backward()
    assert 0 < counters["frames"]["ok"] <= 4


@pytest.mark.parametrize("kind", PROVEN)
def test_rows_without_padding_are_padded_rows(kind: str) -> None:
    """The rows are told apart by their positions here, by their lengths in FlashAttention; windows stay windows."""
    model = tiny_model(kind, **({"sliding_window": 6} if kind in ("mistral", "phi3") else {}))
    for seed in range(2):
        batch = random_batch(seed)
        rows = [row.sum() - 1 for row in batch[1] if row[-batch[2] :].any()]
        assert compare(model, batch, share=False) == sum(rows)


def test_flash_attention_is_told_where_rows_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, Any] = {}
    model, batch = tiny_model(), pad([([1, 5, 6], [7, 8]), ([1, 5], [6]), ([1, 5, 6], [7, 9, 3])])
    inner = model.model.forward
    monkeypatch.setattr(model.model, "forward", lambda *args, **how: told.update(how) or inner(*args, **how))
    packed_logps(model, *batch, share=False)
    assert told["cu_seq_lens_q"].tolist() == told["cu_seq_lens_k"].tolist() == [0, 2, 6, 11]
    assert told["cu_seq_lens_q"].dtype == torch.int32  # the kernel takes no other
    assert (told["max_length_q"], told["max_length_k"]) == (5, 5)
    assert told.get("attention_mask") is None


def test_special_rows() -> None:
    model = tiny_model()
    shared = [1, 5, 6, 7]
    compare(model, pad([([1, 5], [6, 7, 8]), ([1, 5, 6], [7, 8, 9])]))
    compare(model, pad([([4, 5, 6], [7]), ([9, 8], [7, 6, 5]), ([3], [3])]))
    compare(model, pad([(shared, []), (shared, [8, 9]), ([1], [])]))
    for copies in (1, 4):
        assert compare(model, pad([(shared, [8, 9, 10])] * copies)) == 6


def test_a_batch_without_completions_is_a_zero_with_a_gradient() -> None:
    """All rows truncated away: the other processes go backward, so this one must."""
    model = tiny_model()
    packed = packed_logps(model, *pad([([1, 5], []), ([1], [])]))
    assert not packed.logps.any()
    packed.logps.sum().backward()
    assert all(not gradient.any() for gradient in gradients(model).values())


def test_forwards_are_made_as_many_as_asked_for() -> None:
    model, batch, made, back = tiny_model(), random_batch(2), [], []

    def watch(module: Any, given: Any, output: Any) -> None:
        made.append(1)
        output.last_hidden_state.register_hook(lambda _: back.append(1))

    hook = model.model.register_forward_hook(watch)
    packed_logps(model, *batch, forwards=lambda own: own + 2).logps.sum().backward()
    # also of those whose numbers nobody reads: with sharded weights backward is collective
    assert len(made) == len(back) == 3
    hook.remove()
    found = gradients(model)
    flat(model, *batch)[0].sum().backward()
    assert_equal_gradients(gradients(model), found)


def test_processes_make_as_many_forwards_as_the_one_that_needs_most() -> None:
    """Also under DDP: a forward hands its buffers on, and waits for the others' for ever if they make fewer."""
    others = torch.tensor([3])
    machine = SimpleNamespace(num_processes=2, device="cpu", gather=lambda own: torch.cat([own, others]))
    trainer: Any = SimpleNamespace(accelerator=machine)
    assert PackedGRPOTrainer._forwards(trainer)(1) == 3
    machine.num_processes = 1
    assert PackedGRPOTrainer._forwards(trainer) is None


def test_a_completion_without_a_prompt_is_refused() -> None:
    with pytest.raises(ValueError, match=r"row 1 .* no prompt token"):
        packed_logps(tiny_model(), *pad([([1, 5], [6]), ([], [6, 7])]))
