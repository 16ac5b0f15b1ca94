"""Ratios of sequences and turns, and what no loss may be. The clips are compared with TRL in `test_trl_losses`."""

from collections.abc import Callable

import pytest
import torch

from arpo_trainer.algorithms.losses import LARGEST_MEAN_LOG_RATIO, LOSSES, Loss, get_loss, shifted_old_logps
from tests.arpo_trainer.algorithms.explicit_losses import aggregate, per_token


def gradient(of: Callable[[torch.Tensor], torch.Tensor], at: torch.Tensor) -> torch.Tensor:
    x = at.clone().requires_grad_()
    (found,) = torch.autograd.grad(of(x).sum(), x)
    return found


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


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("advantage", [-1.0, 1.0])
def test_ratios_beyond_all_bounds_stay_finite(name: str, advantage: float) -> None:
    logps = torch.tensor([[-500.0, 500.0, 500.0]])
    old, _ = shifted_old_logps(
        LOSSES[name], logps, torch.zeros(1, 3), torch.full((1, 3), advantage), torch.ones(1, 3, dtype=torch.long)
    )
    assert old.isfinite().all()
    assert LOSSES[name].level == "token" or (logps - old).max() <= LARGEST_MEAN_LOG_RATIO + 1e-3


def test_names_and_bounds_that_mean_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="did you mean 'aepo'"):
        get_loss("aeop")
    wrong: list[tuple[dict[str, object], str]] = [({"low": 0.0}, "0 < low <= 1"), ({"high": -0.1}, "high > 0")]
    wrong += [({"clip": "cispo"}, "upper bound only"), ({"dual": 1.1}, "above 1 \\+ high")]
    wrong += [({"clip": "apeo"}, "did you mean 'aepo'"), ({"level": "word"}, "level must be one of")]
    for fields, said in wrong:
        with pytest.raises(ValueError, match=said):
            Loss(**fields)  # type: ignore[arg-type]
