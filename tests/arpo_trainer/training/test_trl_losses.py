"""TRL's own `_compute_loss`, run on plain tensors, has the value and gradient of the explicit loss."""

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from trl import GRPOTrainer

from arpo_trainer.algorithms.losses import (
    LOSS_TYPES,
    LOSSES,
    Loss,
    check_loss_settings,
    no_op,
    ratio_moves,
    shift_old_logps,
    shifted_old_logps,
    trl_settings,
)
from tests.arpo_trainer.algorithms.explicit_losses import aggregate, k3, per_token

SHAPE = (4, 60)
WIDE = {
    "ppo": Loss(high=0.28),
    "ppo-dual": Loss(dual=3.0),
    "aepo": Loss("aepo", high=0.28),
    "aepo-dual": Loss("aepo", dual=3.0),
    "gppo": Loss("gppo", high=0.3),
    "gppo-dual": Loss("gppo", dual=2.0),
    "cispo": Loss("cispo", low=1.0, high=0.5),
    "aepo-turn": Loss("aepo", "turn", low=0.1, high=0.1),
    "gspo": Loss(level="sequence", low=0.02, high=0.02),
    "gspo-turn": Loss(level="turn", low=0.1, high=0.1, dual=1.5),
}


class HostTrainer:
    """What TRL's `_compute_loss` reads of its trainer; the policy is a tensor of log-probabilities."""

    def __init__(self, logps: torch.Tensor, loss: Loss, loss_type: str, anchors: bool = True, **settings: Any) -> None:
        self.logps, self.loss, self.anchors = logps, loss, anchors
        bounds = trl_settings(loss)
        self.epsilon_low, self.epsilon_high = bounds["epsilon"], bounds["epsilon_high"]
        self.importance_sampling_level = bounds["importance_sampling_level"]
        fields = {"delta": bounds["delta"], "use_bias_correction_kl": False, "steps_per_generation": 1}
        self.args = SimpleNamespace(**fields)
        self.loss_type, self.beta = loss_type, settings.get("beta", 0.0)
        self.off_policy_mask_threshold = settings.get("off_policy_mask_threshold")
        self.use_vllm = self.vllm_importance_sampling_correction = "importance_sampling_ratio" in settings
        self.top_entropy_quantile, self.aux_loss_enabled, self._entropy_bonus_enabled = 1.0, False, False
        self.current_gradient_accumulation_steps, self.max_completion_length = 1, 100
        self.model = SimpleNamespace(training=True)
        same = SimpleNamespace(num_processes=1, reduce=lambda x, reduction: x, gather=lambda x: x)
        self.accelerator, self._metrics = same, {"train": defaultdict(list)}
        self.get_off_policy_mask = GRPOTrainer.get_off_policy_mask
        self.moved: torch.Tensor | None = None

    def _get_per_token_logps_and_entropies(self, *_: Any, **__: Any) -> tuple[torch.Tensor, torch.Tensor, None]:
        if self.anchors:
            self.moved = shift_old_logps(self.inputs, self.logps, self.loss, self.inputs["tool_mask"])
        return self.logps, torch.zeros_like(self.logps), None

    def compute(self, inputs: dict[str, Any]) -> torch.Tensor:
        self.inputs = dict(inputs)
        return GRPOTrainer._compute_loss(self, None, self.inputs)


def batch(dtype: torch.dtype = torch.float64, scale: float = 0.5) -> tuple[torch.Tensor, dict[str, Any]]:
    """Log-probabilities, and what TRL would hand over with them; ratios on both sides of all bounds."""
    random = torch.Generator().manual_seed(5)
    old = -torch.empty(SHAPE, dtype=dtype).exponential_(0.2, generator=random)
    logps = old + torch.randn(SHAPE, generator=random, dtype=dtype) * scale
    mask = (torch.rand(SHAPE, generator=random) < 0.8).long()
    ids = torch.zeros(SHAPE, dtype=torch.long)
    one = torch.ones(SHAPE[0], 1, dtype=torch.long)
    return logps.requires_grad_(), {
        "prompt_ids": one,
        "prompt_mask": one,
        "completion_ids": ids,
        "completion_mask": torch.ones_like(ids),
        "tool_mask": mask,
        "advantages": torch.randn(SHAPE, generator=random, dtype=dtype),
        "old_per_token_logps": old,
        "ref_per_token_logps": old + 0.3,
        "num_items_in_batch": mask.sum(),
    }


def added_up(losses: torch.Tensor, mask: torch.Tensor, loss_type: str) -> torch.Tensor:
    if loss_type == "dr_grpo":
        return aggregate(losses, mask, "seq-mean-token-sum-norm", length=100 * len(mask))
    return aggregate(losses, mask, "seq-mean-token-mean" if loss_type == "grpo" else "token-mean")


def explicit(logps: torch.Tensor, inputs: dict[str, Any], loss: Loss) -> torch.Tensor:
    return per_token(loss, logps - inputs["old_per_token_logps"], inputs["advantages"], inputs["tool_mask"])


def same(got: torch.Tensor, want: torch.Tensor, logps: torch.Tensor, tolerance: float = 1e-12) -> bool:
    assert got.item() == pytest.approx(want.item(), rel=tolerance, abs=tolerance)
    first, second = (torch.autograd.grad(x, logps, retain_graph=True)[0] for x in (got, want))
    return torch.allclose(first, second, rtol=tolerance, atol=tolerance * second.abs().max().item())


@pytest.mark.parametrize("loss_type", LOSS_TYPES)
@pytest.mark.parametrize("name", WIDE)
def test_the_host_s_loss_is_the_explicit_one(name: str, loss_type: str) -> None:
    (logps, inputs), loss = batch(), WIDE[name]
    want = added_up(explicit(logps, inputs, loss), inputs["tool_mask"], loss_type)
    assert same(HostTrainer(logps, loss, loss_type).compute(inputs), want, logps)
    if loss.is_own:
        plain = HostTrainer(logps, loss, loss_type, anchors=False).compute(inputs)
        assert not same(plain, plain.detach() + want - want.detach(), logps)


@pytest.mark.parametrize("name", WIDE)
def test_in_float32_no_token_slips_over_its_bound(name: str) -> None:
    """Log-probabilities down to -60, where one unit of rounding is 4e-6: a gradient lost would be an error of 1."""
    loss = WIDE[name]
    logps, inputs = batch(torch.float32)
    low = logps.detach() - torch.linspace(0, 60, SHAPE[1])
    shift = (inputs["old_per_token_logps"] - logps).detach()
    inputs["old_per_token_logps"] = low + shift
    low.requires_grad_()
    want = added_up(explicit(low, inputs, loss), inputs["tool_mask"], "dapo")
    assert same(HostTrainer(low, loss, "dapo").compute(inputs), want, low, tolerance=5e-5)


def test_half_precision_anchors_are_float32() -> None:
    logps, inputs = batch(torch.float32)
    half = logps.detach().bfloat16()
    anchors, moved = shifted_old_logps(
        WIDE["aepo"], half, inputs["old_per_token_logps"], inputs["advantages"], inputs["tool_mask"]
    )
    assert anchors.dtype == torch.float32
    ratios = (half - anchors).exp()[moved].tolist()
    assert ratios == pytest.approx([1.28] * len(ratios), rel=1e-4)
    assert 0 < max(ratios) <= 1.28


@pytest.mark.parametrize("name", ["aepo", "gppo", "gspo-turn"])
def test_the_kl_term_and_importance_weights_of_vllm_are_untouched(name: str) -> None:
    (logps, inputs), loss = batch(), WIDE[name]
    inputs["importance_sampling_ratio"] = weights = torch.rand(SHAPE, dtype=torch.float64)
    losses = explicit(logps, inputs, loss) * weights + 0.1 * k3(logps, inputs["ref_per_token_logps"])
    want = added_up(losses, inputs["tool_mask"], "dapo")
    host = HostTrainer(logps, loss, "dapo", beta=0.1, importance_sampling_ratio=True)
    assert same(host.compute(inputs), want, logps)


@pytest.mark.parametrize("sampling", [False, True])
def test_the_off_policy_mask_is_untouched(sampling: bool) -> None:
    (logps, inputs), loss, threshold = batch(), WIDE["aepo"], -0.02
    compared = inputs["old_per_token_logps"] + (0.01 if sampling else 0.0)
    if sampling:
        inputs["sampling_per_token_logps"] = compared
    mask = inputs["tool_mask"]
    kept = GRPOTrainer.get_off_policy_mask(inputs["advantages"], logps, compared, mask, threshold)
    assert 0 < kept.sum() < kept.numel()
    want = added_up(explicit(logps, inputs, loss) * kept, mask, "dapo")
    host = HostTrainer(logps, loss, "dapo", off_policy_mask_threshold=threshold)
    assert same(host.compute(inputs), want, logps)


def test_what_is_reported_as_moved_is_what_the_clip_would_have_dropped() -> None:
    (logps, inputs), loss = batch(), WIDE["aepo"]
    host = HostTrainer(logps, loss, "dapo")
    host.compute(inputs)
    ratio = (logps - inputs["old_per_token_logps"]).exp()
    dropped = (ratio > 1.28) & (inputs["advantages"] > 0) & inputs["tool_mask"].bool()
    assert torch.equal(host.moved, dropped)
    assert dropped.any()
    del inputs["old_per_token_logps"]  # without anchors nothing is moved
    for loss in WIDE.values():
        host = HostTrainer(logps, loss, "dapo")
        host.compute(inputs)
        assert not host.moved.any()
        assert "old_per_token_logps" not in host.inputs


def settings(loss: Loss, **changed: Any) -> SimpleNamespace:
    usual = {"loss_type": "dapo", "beta": 0.0, "use_bias_correction_kl": False, **trl_settings(loss)}
    steps = {"gradient_accumulation_steps": 1, "steps_per_generation": 1, "num_iterations": 1}
    return SimpleNamespace(**{**usual, **steps, **changed})


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"loss_type": "cispo"}, "use one of 'grpo', 'bnpo', 'dr_grpo', 'dapo'"),
        ({"importance_sampling_level": "sequence"}, "set importance_sampling_level='token'"),
        ({"epsilon_high": 0.28}, r"set epsilon_high=0\.2"),
        ({"delta": None}, r"set delta=3\.0"),
        ({"use_bias_correction_kl": True, "beta": 0.1}, "set it to False, or beta to 0"),
    ],
)
def test_settings_that_would_make_it_another_loss_are_refused(changed: dict[str, Any], said: str) -> None:
    loss = LOSSES["aepo-reference"]
    check_loss_settings(loss, settings(loss))
    check_loss_settings(loss, settings(loss, epsilon_high=None))
    with pytest.raises(ValueError, match=said):
        check_loss_settings(loss, settings(loss, **changed))


def test_a_clip_that_cannot_act_is_said_to() -> None:
    loss = LOSSES["aepo"]
    assert "num_iterations=2" in (no_op(loss, settings(loss)) or "")
    assert no_op(LOSSES["dapo"], settings(loss)) is None
    for changed in ({"num_iterations": 2}, {"steps_per_generation": 8}):
        assert ratio_moves(settings(loss, **changed))
        assert no_op(loss, settings(loss, **changed)) is None
    assert not ratio_moves(settings(loss, gradient_accumulation_steps=8, steps_per_generation=4))
