"""The shared vectors of learning: advantages, clipping, aggregation, ratios of segments, in the mode each names."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer

from arpo_trainer.algorithms.advantages import batch_advantages, group_advantages
from arpo_trainer.algorithms.credit import fold_preference, span_advantages, token_advantages, weight_scale
from arpo_trainer.algorithms.losses import Loss, level_log_ratio, segment_log_ratio
from arpo_trainer.preference.dpo_run import configure_dpo, make_pair_trainer
from arpo_trainer.preference.pairs import PairSettings, PreferencePair, pairs_of_task
from arpo_trainer.training.rollout_batch import Moments, entropy_factor
from arpo_trainer.tree import RolloutTree, Trajectory
from tests.arpo_trainer.algorithms.explicit_losses import aggregate, k3, per_token
from tests.arpo_trainer.byte_policy import write_byte_policy

Vector = dict[str, Any]


def double(values: Any) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def pick(vectors: list[Vector], start: str) -> list[Vector]:
    found = [vector for vector in vectors if vector["id"].startswith(start)]
    assert found, f"no vector {start}"
    return found


def test_group_advantages(vectors: list[Vector]) -> None:
    for vector in pick(vectors, "adv.grpo"):
        rewards, expected = vector["inputs"]["rewards"], vector["expected"]
        assert group_advantages(rewards) == pytest.approx(expected["advantages"], abs=vector["tol"])
        if expected["population_std_variant"]:
            got = group_advantages(rewards, "population")
            assert got == pytest.approx(expected["population_std_variant"], abs=vector["tol"])


def test_reinforce_plus_plus(vectors: list[Vector]) -> None:
    for vector in pick(vectors, "adv.reinforce_pp"):
        given = vector["inputs"]
        lengths = [sum(row) for row in given["mask"]]
        (got,) = batch_advantages("reinforce++", [given["rewards"]], [lengths])
        assert got == pytest.approx(vector["expected"]["adv_row"], abs=vector["tol"])


def tree_of(given: Vector) -> tuple[RolloutTree, dict[str, int]]:
    """A tree whose spans are the vector's segments, longest-shared first."""
    tree, names = RolloutTree([1, 2]), {}
    last: dict[int, int | None] = dict.fromkeys(range(len(given["rewards"])))
    for name, leaves in sorted(given["segments"].items(), key=lambda item: -len(item[1])):
        n = given["lengths"][name]
        span = tree.add_span(last[leaves[0]], "model", [7] * n, logprobs=[-1.0] * n, entropies=[0.5] * n)
        names[name] = span.index
        last.update(dict.fromkeys(leaves, span.index))
    tree.trajectories = [Trajectory(last[i] or 0, reward=reward) for i, reward in enumerate(given["rewards"])]
    return tree, names


def coefficients(tree: RolloutTree, attribution: Any, how: Any) -> list[float]:
    """For each span, what multiplies grad log pi of one of its tokens at ratio 1, summed over its copies."""
    own = group_advantages(tree.rewards)
    rows = token_advantages(tree, own, attribution)
    width = max(map(len, rows))
    pad = [width - len(row) for row in rows]
    advantages = double([row + [0.0] * n for row, n in zip(rows, pad, strict=True)])
    mask = double([[1.0] * len(row) + [0.0] * n for row, n in zip(rows, pad, strict=True)])
    spans = torch.tensor([tree.row(i).span + [-1] * n for i, n in enumerate(pad)])
    log_ratio = torch.zeros_like(advantages, requires_grad=True)
    aggregate(per_token(Loss(), log_ratio, advantages, mask), mask, how).backward()
    return [-float(log_ratio.grad[spans == span.index].sum()) / len(span.ids) for span in tree.spans]


def test_soft_hard_and_deduplicated_coefficients_on_a_tree(vectors: list[Vector]) -> None:
    for vector in pick(vectors, "adv.tree"):
        expected, tol = vector["expected"], vector["tol"]
        tree, names = tree_of(vector["inputs"])
        own = group_advantages(tree.rewards)
        assert own == pytest.approx(expected["leaf_advantages"], abs=tol)
        hard = span_advantages(tree, own)
        assert {name: hard[index] for name, index in names.items()} == pytest.approx(expected["hard"], abs=tol)
        scale = weight_scale([tree], "dedup")
        assert scale == pytest.approx(expected["copied_tokens"] / expected["unique_tokens"])
        for attribution, how, factor, key in (
            ("soft", "token-mean", 1.0, "soft_token_mean_coef"),
            ("hard", "token-mean", 1.0, "soft_token_mean_coef"),  # on a tree, unclipped, the two agree
            ("soft", "seq-mean-token-mean", 1.0, "soft_seq_mean_coef"),
            ("dedup", "token-mean", scale, "dedup_hard_coef"),
        ):
            got = coefficients(tree, attribution, how)
            named = {name: factor * got[index] for name, index in names.items()}
            assert named == pytest.approx(expected[key], abs=tol), (attribution, how)


def test_any_segmentation_has_the_same_gradient(vectors: list[Vector]) -> None:
    for vector in pick(vectors, "gpg.segmentation"):
        given, expected = vector["inputs"], vector["expected"]
        logps = double(given["token_logp"]).requires_grad_()
        segments = torch.stack([logps[part].sum() for part in given["segmentation"]])
        assert segments.tolist() == pytest.approx(expected["segment_logp"], abs=vector["tol"])
        assert segments.sum().item() == pytest.approx(expected["total"], abs=vector["tol"])
        (by_segment,) = torch.autograd.grad(segments.sum(), logps)
        log_ratio, mask = (logps - logps.detach())[None], torch.ones(1, len(logps))
        loss = aggregate(per_token(Loss(), log_ratio, torch.ones(1), mask), mask, "seq-mean-token-sum")
        (by_token,) = torch.autograd.grad(-loss, logps)
        assert torch.equal(by_segment, by_token)


def test_published_entropy_aware_advantages(vectors: list[Vector]) -> None:
    """Its statistics are those of the micro-batch; the factor is the same where z is within the limit."""
    for vector in [v for v in pick(vectors, "aepo.entropy_adv") if "entropy" in v["inputs"]]:
        given, expected = vector["inputs"], vector["expected"]
        entropies = double(given["entropy"])
        counted = entropies[double(given["mask"]).bool()]
        moments = Moments(len(counted), counted.sum().item(), counted.square().sum().item())
        factor = entropy_factor(entropies, moments, given["a"], 0.99 / given["a"])
        got = double(given["advantages_row"])[:, None] * factor
        assert torch.allclose(got, double(expected["advantages"]), atol=vector["tol"], rtol=0)
        if "mean" in expected:
            assert (moments.mean, moments.deviation) == pytest.approx((expected["mean"], expected["std_unbiased"]))


def test_the_published_factor_flips_signs_and_ours_does_not(vectors: list[Vector]) -> None:
    standard = Moments(2, 0.0, 1.0)  # mean 0, deviation 1: entropies are z themselves
    for vector in pick(vectors, "aepo.entropy_adv.signflip"):
        z, published = double(vector["inputs"]["z"]), double(vector["expected"]["factor"])
        ours = entropy_factor(z, standard, vector["inputs"]["a"])
        assert published.min() <= 0 < ours.min()
        assert torch.allclose(ours[z.abs() <= 3], published[z.abs() <= 3], atol=vector["tol"])


def slope(loss: Loss, ratio: float, advantage: float) -> float:
    """The derivative of the loss of one token with respect to its log pi."""
    log_ratio = double([[ratio]]).log().requires_grad_()
    per_token(loss, log_ratio, double([advantage]), double([[1]])).sum().backward()
    return log_ratio.grad.item()


def test_asymmetric_clip(vectors: list[Vector]) -> None:
    for vector in pick(vectors, "aepo.clip"):
        given = vector["inputs"]
        bounds = {"low": given["eps_low"], "high": given["eps_high"], "dual": given["c"]}
        for row in vector["expected"]["grid"]:
            for key, loss in (("ppo_dlogp", Loss(**bounds)), ("aepo_dlogp", Loss("aepo", **bounds))):
                assert slope(loss, row["ratio"], row["A"]) == pytest.approx(row[key], abs=vector["tol"]), (key, row)


def test_clip_family(vectors: list[Vector]) -> None:
    for vector in pick(vectors, "clip.family_factor"):
        eps = vector["inputs"]["eps"]
        bounds = {"low": eps, "high": eps}
        family = {
            "PPO": Loss(**bounds),
            "PPO_dual_c3": Loss(**bounds, dual=3.0),
            "GPPO": Loss("gppo", **bounds),
            "AEPO": Loss("aepo", **bounds),
            "CISPO_upper_only": Loss("cispo", low=1.0, high=eps),
        }
        for row in vector["expected"]["table"]:
            for name, loss in family.items():
                factor = -slope(loss, row["ratio"], row["A"]) / row["A"]
                assert factor == pytest.approx(row[name], abs=vector["tol"]), (name, row)


def test_aggregation(vectors: list[Vector]) -> None:
    for vector in [v for v in pick(vectors, "loss.agg") if isinstance(v["inputs"].get("loss"), list)]:
        losses, mask = double(vector["inputs"]["loss"]), double(vector["inputs"]["mask"])
        for how, expected in vector["expected"].items():
            assert aggregate(losses, mask, how).item() == pytest.approx(expected, abs=vector["tol"]), how


def test_kl_estimates(vectors: list[Vector]) -> None:
    for vector in pick(vectors, "kl.k3"):
        given, expected = (double(vector["inputs"][name]) for name in ("logp", "ref_logp")), vector["expected"]
        logp, ref = given
        assert k3(logp, ref).item() == pytest.approx(expected["k3"], abs=vector["tol"])


def test_turn_ratios(vectors: list[Vector]) -> None:
    for vector in pick(vectors, "gspo.turn_ratio"):
        given, expected = vector["inputs"], vector["expected"]["turn_ratio"]
        log_ratio = double([given["logp"]]) - double([given["old_logp"]])
        turns = torch.zeros_like(log_ratio, dtype=torch.long)
        for number, part in enumerate(given["turns"]):
            turns[0, part] = number
        got = segment_log_ratio(log_ratio, torch.ones_like(log_ratio), turns).exp()[0]
        assert [got[part[0]].item() for part in given["turns"]] == pytest.approx(expected, abs=vector["tol"])
        assert [got[part[-1]].item() for part in given["turns"]] == pytest.approx(expected, abs=vector["tol"])
        spread, mask = double([[log_ratio[0, 0], log_ratio[0, 1], 9.0, log_ratio[0, 2]]]), double([[1, 1, 0, 1]])
        by_mask = level_log_ratio(spread, mask, "turn").exp()[0]
        assert by_mask[[0, 1, 3]].tolist() == pytest.approx([expected[0], expected[0], expected[1]])


def test_fold_preference(vectors: list[Vector]) -> None:
    for vector in pick(vectors, "toolpo.spref"):
        given = vector["inputs"]
        got = fold_preference(given["L_direct"], given["L_fold"])
        assert got == pytest.approx(vector["expected"]["S_pref"], abs=vector["tol"])


def test_self_critic_pairs(vectors: list[Vector]) -> None:
    for vector in pick(vectors, "toolstar.pairs"):
        tree, rewards = RolloutTree([1, 2]), vector["inputs"]["rewards"]
        for number, reward in enumerate(rewards):
            span = tree.add_span(None, "model", [number], logprobs=[-1.0], entropies=[0.5])
            tree.trajectories.append(Trajectory(span.index, reward=reward))
        found = pairs_of_task("t", [tree], PairSettings(pairs_per_task=len(rewards)))
        chosen, rejected = ({getattr(one, f"{side}_reward") for one in found} for side in ("chosen", "rejected"))
        assert chosen == set(vector["expected"]["chosen"])
        assert rejected <= set(vector["expected"]["rejected"])
        assert len(found) == min(len(vector["expected"]["chosen"]), len(vector["expected"]["rejected"]))


def test_the_loss_of_self_critic_dpo(vectors: list[Vector], tmp_path: Path) -> None:
    """TRL's loss as `arpo dpo` sets it up, for log-probabilities that a stand-in for the model returns."""
    policy = write_byte_policy(tmp_path / "model")
    found = pick(vectors, "toolstar.dpo")
    args = configure_dpo({"output_dir": str(tmp_path), "beta": found[0]["inputs"]["beta"], "use_cpu": True})[1]
    pair = PreferencePair("t", [1], 0, [2], [1], [3], [1], 1.0, 0.0)
    trainer = make_pair_trainer(str(policy), AutoTokenizer.from_pretrained(policy), [pair], args)
    trainer.precompute_ref_logps = True
    batch = trainer.data_collator([trainer.train_dataset[0]])
    for vector in found:
        given, zeros = vector["inputs"], torch.zeros(2, 1)
        logps = torch.tensor([[given["pi_chosen"]], [given["pi_rejected"]]])
        scored = SimpleNamespace(log_probs=logps, entropy=zeros, mean_logits=zeros, is_top1=zeros.bool())
        reference = {f"ref_{side}_logps": torch.tensor([given[f"ref_{side}"]]) for side in ("chosen", "rejected")}
        loss = trainer.compute_loss(lambda _scored=scored, **_: _scored, {**batch, **reference})
        assert loss.item() == pytest.approx(vector["expected"]["loss"], abs=vector["tol"])
        (margins,) = (log["rewards/margins"] for log in trainer._metrics.values() if log)
        assert margins[-1] == pytest.approx(vector["expected"]["margin"], abs=vector["tol"])
