"""The shared test vectors: numbers computed independently from the papers' formulas."""

from typing import Any

import pytest
import torch

from arpo_env import paper_reward
from arpo_env.grading import published_metrics as published
from arpo_env.rewards import reference_reward
from arpo_trainer import RolloutSettings, branch_score
from arpo_trainer.algorithms.branching import BRANCHES, chain_length, segment_entropy
from arpo_trainer.algorithms.registry import balanced_roots, generated_tokens, probed_roots
from arpo_trainer.backends.sampling import Chances, Sampler
from arpo_trainer.statistics import pass_at_k
from arpo_trainer.tree import Decision

Vector = dict[str, Any]


def pick(vectors: list[Vector], group: str, *, mode: str | None = None, start: str = "") -> list[Vector]:
    found = [v for v in vectors if v["group"] == group and mode in (None, v["mode"]) and v["id"].startswith(start)]
    assert found, f"no vector {group} {mode} {start}"
    return found


def test_entropy_of_logits(vectors: list[Vector]) -> None:
    for vector in pick(vectors, "entropy", start="entropy.logits"):
        given = vector["inputs"]
        logits, chances = torch.tensor([given["logits"]]), Chances.of([given["temperature"]], [0], [0])
        [drawn] = Sampler("exact", 1).draw(logits, chances)
        assert drawn.entropy == pytest.approx(vector["expected"]["entropy"], abs=max(vector["tol"], 1e-5))


def test_segment_entropy_as_published(vectors: list[Vector]) -> None:
    for vector in pick(vectors, "entropy", start="entropy.segment.length_bias"):
        given = vector["inputs"]
        got = segment_entropy([given["per_token_entropy"]] * given["tokens"], given["vocab"])
        assert got == pytest.approx(vector["expected"]["segment_entropy"], abs=vector["tol"])


def test_hierarchical_reward(vectors: list[Vector]) -> None:
    for vector in pick(vectors, "reward", mode="paper"):
        given = vector["inputs"]
        got = paper_reward(given["acc"], given["format_ok"], given["multi_tool"])
        assert got == pytest.approx(vector["expected"]["reward"], abs=vector["tol"])


def test_reference_reward(vectors: list[Vector]) -> None:
    for vector in pick(vectors, "reward", mode="reference"):
        given, want = vector["inputs"], vector["expected"]
        got = reference_reward(given["response"], given["ground_truth"])
        assert (got.score, got.answer) == (pytest.approx(want["score"], abs=vector["tol"]), want["answer"]), vector[
            "id"
        ]


def test_tool_productivity_and_pass_at_k(vectors: list[Vector]) -> None:
    for vector in pick(vectors, "evaluation", start="eval.tool_productivity"):
        got = published.tool_productivity(vector["inputs"]["acc"], vector["inputs"]["mean_tool_calls"])
        assert got == pytest.approx(vector["expected"]["value"], abs=vector["tol"])
    for vector in pick(vectors, "evaluation", start="eval.passk"):
        assert pass_at_k(*(vector["inputs"][name] for name in "nck")) == pytest.approx(
            vector["expected"]["pass_at_k"], abs=vector["tol"]
        )


@pytest.mark.parametrize("name", ["arpo", "aepo"])
def test_single_draws_as_published(vectors: list[Vector], name: str) -> None:
    for vector in pick(vectors, "branching", start=f"branch.{name}_code.draw"):
        given = vector["inputs"]
        settings = RolloutSettings(branch_alpha=given.get("p_b", 0.5), branch_beta=given.get("w", 0.2))
        point = Decision(given["delta_H"], given["delta_H"], consecutive=given.get("c", 0), uniform=given["U"])
        assert BRANCHES[f"{name}-reference"].score(point, settings).branch == vector["expected"]["branch"], vector["id"]


def test_branch_scores_of_the_papers_are_those_of_the_table(vectors: list[Vector]) -> None:
    for vector in pick(vectors, "branching", mode="paper"):
        given, rise = vector["inputs"], vector["inputs"]["delta_H"]
        slope, chain, penalty = given.get("beta", given.get("gamma")), given.get("l", 0), given.get("lam", 0.0)
        expected = pytest.approx(vector["expected"]["P"], abs=vector["tol"])
        assert branch_score(rise, given["alpha"], slope, chain, penalty) == expected
        settings = RolloutSettings(
            branch_alpha=given["alpha"], branch_beta=slope, branch_threshold=given["tau"], branch_penalty=penalty
        )
        point = Decision(rise, rise, consecutive=chain)
        scored = BRANCHES["aepo" if "lam" in given else "arpo"].score(point, settings)
        assert scored.score == expected
        assert scored.branch == vector["expected"]["branch"]


@pytest.mark.parametrize("name", ["arpo", "aepo"])
def test_the_frequency_of_published_branches_is_the_closed_form(vectors: list[Vector], name: str) -> None:
    draws = [(n + 0.5) / 2000 for n in range(2000)]
    for vector in pick(vectors, "branching", mode="reference", start=f"branch.{name}_code.pb"):
        given = vector["inputs"]
        settings = RolloutSettings(branch_alpha=given["p_b"], branch_beta=given["w"])
        rise = given["delta_H"]
        points = [Decision(rise, rise, consecutive=given.get("c", 0), uniform=draw) for draw in draws]
        made = sum(BRANCHES[f"{name}-reference"].score(point, settings).branch for point in points)
        assert made / 2000 == pytest.approx(vector["expected"]["p_branch"], abs=1e-3), vector["id"]


def test_balanced_budgets(vectors: list[Vector]) -> None:
    for vector in pick(vectors, "budget", start="budget.aepo"):
        given, expected = vector["inputs"], vector["expected"]
        numbers = (given["k"], given["H_root"], given["H_tool_avg"], given["beta"])
        assert balanced_roots(*numbers) == pytest.approx(expected["m_paper"], abs=vector["tol"])
        assert abs(probed_roots("aepo", *numbers) - min(given["k"], max(1, expected["m_paper"]))) <= 0.5
        if given["beta"] == 0.5:
            roots = probed_roots("aepo-reference", *numbers)
            assert (roots, given["k"] - roots) == (expected["m_code"], expected["branch_budget_code"])


def test_consecutive_branches_of_a_chain(vectors: list[Vector]) -> None:
    (chain,) = pick(vectors, "budget", start="aepo.consecutive_chain")
    assert [chain_length(path) for path in chain["inputs"]["paths"]] == chain["expected"]["l"]


def test_what_branches_cost(vectors: list[Vector]) -> None:
    for vector in pick(vectors, "budget", start="cost.branch"):
        given, expected = vector["inputs"], vector["expected"]
        m, n, tokens = given["M"], given["N"], given["tokens_per_traj"]
        assert generated_tokens(m, m, tokens, 0.0) == expected["full"]
        assert generated_tokens(m, n, tokens, given["shared_prefix_fraction"]) == expected["branched"]
