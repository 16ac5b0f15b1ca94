"""The gradient of each loss is that of its definition, written here a second time and differentiated by autograd."""

import math
from collections.abc import Callable

import pytest
import torch

from arpo_trainer.algorithms.losses import LOSSES, Loss, get_loss
from tests.arpo_trainer.algorithms.explicit_losses import aggregate, per_token

Objective = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
LOW, HIGH = 0.25, 0.5
DUAL = torch.tensor(1.1, dtype=torch.float64).exp().item()


def log_of(ratio: float) -> float:
    """Return x whose exponential is exactly this ratio, as torch rounds it."""
    near = torch.tensor(math.log(ratio), dtype=torch.float64)
    for step in (-math.inf, math.inf):
        x = near
        for _ in range(8):
            if x.exp().item() == ratio:
                return x.item()
            x = torch.nextafter(x, torch.tensor(step, dtype=torch.float64))
    raise AssertionError(f"no logarithm of {ratio}")


EXACT = {1 - LOW: log_of(1 - LOW), 1.0: 0.0, 1 + HIGH: log_of(1 + HIGH), DUAL: 1.1}
RATIOS = [1e-3, 0.5, 1 - LOW, 0.76, 0.9, 1.0, 1.1, 1 + HIGH, 1.51, 2.0, 2.99, 3.01, 8.0]
GRID = torch.tensor([[EXACT.get(ratio, math.log(ratio)) for ratio in RATIOS]] * 5, dtype=torch.float64)
ADVANTAGES = torch.tensor([[-2.0], [-0.3], [0.0], [0.3], [2.0]], dtype=torch.float64).expand_as(GRID)
MASK = torch.ones_like(GRID)


def clipped(low: torch.Tensor | float, high: torch.Tensor, r: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
    """min(r A, clip(r, low, high) A); at a tie torch's subgradient, which is half of each side."""
    below = torch.minimum(r, high)
    return torch.minimum(r * a, (below.clamp(min=low) if isinstance(low, float) else torch.maximum(below, low)) * a)


def ppo(r: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
    return torch.minimum(r * a, r.clamp(1 - LOW, 1 + HIGH) * a)


def aepo(r: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
    """As the paper writes it: min(r A, clip(r, 1 - l, (1 + h) / sg(r) r) A)."""
    return clipped(1 - LOW, (1 + HIGH) / r.detach() * r, r, a)


def gppo(r: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
    return clipped((1 - LOW) / r.detach() * r, (1 + HIGH) / r.detach() * r, r, a)


def cispo(r: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
    return r.clamp(max=1 + HIGH).detach() * a * r.log()


def dual(objective: Objective) -> Objective:
    def bounded(r: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
        inner = objective(r, a)
        return torch.where(a < 0, torch.maximum(inner, DUAL * a), inner)

    return bounded


FAMILY: list[tuple[Loss, Objective]] = [
    (Loss("ppo", low=LOW, high=HIGH), ppo),
    (Loss("ppo", low=LOW, high=HIGH, dual=DUAL), dual(ppo)),
    (Loss("aepo", low=LOW, high=HIGH), aepo),
    (Loss("aepo", low=LOW, high=HIGH, dual=DUAL), dual(aepo)),
    (Loss("gppo", low=LOW, high=HIGH), gppo),
    (Loss("cispo", low=1.0, high=HIGH), cispo),
]


def gradient(of: Callable[[torch.Tensor], torch.Tensor], at: torch.Tensor = GRID) -> torch.Tensor:
    x = at.clone().requires_grad_()
    (found,) = torch.autograd.grad(of(x).sum(), x)
    return found


@pytest.mark.parametrize(("loss", "objective"), FAMILY)
def test_gradients_are_those_of_the_definition(loss: Loss, objective: Objective) -> None:
    """At r = 1 and exactly at both bounds too, for advantages of both signs and 0."""
    got = gradient(lambda x: per_token(loss, x, ADVANTAGES, MASK))
    want = gradient(lambda x: -objective(x.exp(), ADVANTAGES))
    assert torch.allclose(got, want, rtol=1e-13, atol=0)


def rows() -> tuple[torch.Tensor, torch.Tensor]:
    """Log-ratios around the narrow bounds of GSPO, and a mask with three turns, two, and none."""
    x = torch.randn(3, 12, generator=torch.Generator().manual_seed(3), dtype=torch.float64) * 6e-3
    mask = torch.tensor([[1, 1, 0, 1, 1, 1, 0, 0, 1, 1, 1, 0], [0, 1, 1, 1, 0, 1, 1, 1, 1, 0, 0, 0], [0] * 12])
    return x, mask


@pytest.mark.parametrize("shift", [-2e-3, 0.0, 2e-3])
def test_sequence_level_is_gspo(shift: float) -> None:
    """The same gradient as through the mean itself, where a row has one advantage (GSPO, sec. 4.3)."""
    x, mask = rows()
    x, a, loss = x + shift, torch.tensor([1.0, -0.7, 1.0], dtype=torch.float64), LOSSES["gspo"]

    def gspo(x: torch.Tensor) -> torch.Tensor:
        s = torch.stack([x[i][mask[i].bool()].sum() / max(1, int(mask[i].sum())) for i in range(3)]).exp()
        return -torch.minimum(s * a, s.clamp(1 - loss.low, 1 + loss.high) * a).mean()

    got = gradient(lambda x: aggregate(per_token(loss, x, a, mask), mask, "seq-mean-token-mean"), x)
    assert torch.allclose(got, gradient(gspo, x), rtol=1e-12, atol=0)


def test_turn_level_takes_each_turn_s_own_ratio() -> None:
    x, mask = rows()
    a, loss = torch.linspace(-1, 1, 36, dtype=torch.float64).view(3, 12), LOSSES["gspo-turn"]
    turns = [(0, [0, 1]), (0, [3, 4, 5]), (0, [8, 9, 10]), (1, [1, 2, 3]), (1, [5, 6, 7, 8])]
    want = torch.zeros_like(x)
    for row, where in turns:
        s = x[row, where].mean().exp()
        for t in where:
            out = (a[row, t] > 0 and s > 1 + loss.high) or (a[row, t] < 0 and s < 1 - loss.low)
            want[row, t] = 0.0 if out else -s * a[row, t]
    got = gradient(lambda x: per_token(loss, x, a, mask) * mask, x)
    assert torch.allclose(got, want, rtol=1e-12, atol=0)
    assert (want[mask.bool()] == 0).any()
    assert (want != 0).any()


def test_ratios_beyond_all_bounds_stay_finite() -> None:
    far = torch.tensor([[-500.0, 500.0]])
    for name, loss in LOSSES.items():
        for a in (-1.0, 1.0):
            advantages = torch.full_like(far, a)
            got = gradient(lambda x, loss=loss, a=advantages: per_token(loss, x, a, torch.ones_like(x)), far)
            assert got.isfinite().all(), name
            assert per_token(loss, far, advantages, torch.ones_like(far)).isfinite().all(), name


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ValueError, match="did you mean 'aepo'"):
        get_loss("aeop")


def test_bounds_that_mean_nothing_are_refused() -> None:
    wrong: list[tuple[dict[str, object], str]] = [({"low": 0.0}, "0 < low <= 1"), ({"high": -0.1}, "high > 0")]
    wrong += [({"clip": "cispo"}, "upper bound only"), ({"dual": 1.1}, "above 1 \\+ high")]
    wrong += [({"clip": "apeo"}, "did you mean 'aepo'"), ({"level": "word"}, "level must be one of")]
    for fields, said in wrong:
        with pytest.raises(ValueError, match=said):
            Loss(**fields)  # type: ignore[arg-type]
