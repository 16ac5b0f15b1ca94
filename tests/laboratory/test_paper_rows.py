"""Rows of papers: their credit on trees worked out by hand, and the gold answer against a plain forward pass."""

import copy
import math
import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from arpo_env.protocols import make_protocol
from arpo_trainer import RolloutSettings, RolloutTree, token_advantages
from arpo_trainer.algorithms.advantages import group_advantages
from arpo_trainer.algorithms.branching import BRANCHES
from arpo_trainer.algorithms.credit import CREDITS, learned_trajectories, weight_scale
from arpo_trainer.tree import Decision, Trajectory
from benchmarks.laboratory import paper_rows
from benchmarks.laboratory.paper_rows import (
    KEPT,
    PAPER_CREDITS,
    AnswerFormat,
    answer_format,
    answer_rows,
    answer_states,
    plain_logps,
    score_answers,
    trainer_logps,
)
from tests.arpo_trainer.algorithms.test_credit import NESTED, OWN, by_path, nested, random_tree, result, turn
from tests.arpo_trainer.byte_policy import write_byte_policy
from tests.arpo_trainer.training.test_fold_training import random_tree as folded_tree
from tests.arpo_trainer.training.test_trl_options import made

BOX = AnswerFormat("<answer>\\boxed{", "}</answer>")
TEMPERATURE = 0.7


def measured(tree: RolloutTree, *probabilities: float) -> RolloutTree:
    """Set the gold answer's probability at the prompt, and after each result in the order of the spans."""
    states = ["prompt", *(str(span.index) for span in tree.spans if span.kind != "model")]
    tree.meta[KEPT] = dict(zip(states, map(math.log, probabilities), strict=True))
    return tree


# Leaves 8 (m4), 4 (m5), 0 (m6), 2 (m8). Means over leaves: m2 6, m0 4, all 3.5. Backed up: m2 6, m0 (6 + 0) / 2 = 3,
# prompt (3 + 2) / 2 = 2.5. The rows are those of m0, m2, m4, m5, m6, m8; r1 is as m0, r3 as m2.
SHARED = {
    "at2po": [3, 6, 8, 4, 0, 2],  # all entropies are 0: equal weights
    # (V - 3.5 + V - V before) / sqrt(leaves): m0 (0.5 + 0.5) / sqrt 3, m2 (2.5 + 2) / sqrt 2, m4 4.5 + 2, m5 0.5 - 2,
    # m6 -3.5 - 4, m8 -1.5 - 1.5
    "treerl": [1 / math.sqrt(3), 4.5 / math.sqrt(2), 6.5, -1.5, -7.5, -3],
    # backed-up V minus that before: 3 - 2.5, 6 - 3, 8 - 6, 4 - 6, 0 - 3, 2 - 2.5
    "spo": [0.5, 3, 2, -2, -3, -0.5],
    # Q of the step minus (N V + 2 * 3.5) / (N + 2) of the state. Nothing done: calling 12 / 3 = 4, answering 2, V 3.5,
    # V' 3.5. After r1: calling 6, answering 0, V 12 / 3 = 4, V' (12 + 7) / 5 = 3.8. After r3: 8 and 4, V' 19 / 4.
    "rtmc": [0.5, 2.2, 3.25, -0.75, -3.8, -1.5],
}
MEAN = 0.5 / 9
A, B, C = ((gain - MEAN) / math.sqrt(0.35 / 9 - MEAN**2) for gain in (0.3, -0.2, 0.0))
# per trajectory, on the spans of its path
PATHS = {
    # means of all 3.5, through m0 4, through m2 6: 8 - 4.5, 2 - 3.5, 0 - 3.75, 4 - 4.5
    "treepo": [[3.5] * 5, [-1.5], [-3.75] * 3, [-0.5] * 5],
    # value of the other root 2, after r1 of m6 alone 0, after r3 of m5 alone 4, at the end 8; the other root: 2 - 3
    "vineppo": [[-2, -2, 4, 4, 4], [-1], [0] * 3, [0] * 5],
    # Gains 0.4 - 0.1 up to r1, 0.2 - 0.4 up to r3. Rewards of the tree are 0, so 0.3 three times, -0.2 twice and 0 four
    # times: mean 0.5 / 9, variance (3 * 0.09 + 2 * 0.04) / 9 - (0.5 / 9) ** 2. Sums of what is still to come.
    "igpo": [[A + B + C, A + B + C, B + C, B + C, C], [C], [A + C, A + C, C], [A + B + C, A + B + C, B + C, B + C, C]],
    # of the first turn all three gains are equal, of the second both: nothing is left but the advantages
    "a2tgpo": [[8] * 5, [2], [0] * 3, [4] * 5],
}


def answered() -> RolloutTree:
    tree = nested()
    for number, answer in enumerate("aabb"):
        tree.trajectories[number].answer = answer
    return measured(tree, 0.1, 0.4, 0.2)


@pytest.mark.parametrize("name", PAPER_CREDITS)
def test_a_nested_fork_worked_out_by_hand(name: str) -> None:
    expected = PATHS[name] if name in PATHS else by_path(SHARED[name])
    tree = answered()
    assert CREDITS[name].values(tree, NESTED)[:4] == [pytest.approx(row, rel=1e-4) for row in expected]
    assert weight_scale([tree], name) == pytest.approx(12 / 7 if name == "spo" else 1.0)
    assert learned_trajectories(tree, name) == [True, True, name != "vineppo", name != "vineppo", False]


CENTRED = [value - sum(OWN) / 3 for value in OWN]
FLAT = {
    "vineppo": [value - (sum(OWN) - value) / 2 for value in OWN],
    "treerl": [2 * value for value in CENTRED],
    **dict.fromkeys(("treepo", "spo", "rtmc"), CENTRED),
    "igpo": group_advantages(OWN, "population"),  # it normalises the rewards itself, and no turn has a gain
}


@pytest.mark.parametrize("name", PAPER_CREDITS)
def test_on_flat_groups_and_random_trees(name: str) -> None:
    """What the method says of a flat group; elsewhere 0 for invalid ones, and the same in any order."""
    tree = measured(RolloutTree([1]), 0.5)
    tree.trajectories = [Trajectory(turn(tree, None, 2), reward=reward) for reward in OWN]
    assert token_advantages(tree, OWN, name) == [pytest.approx([value] * 2) for value in FLAT.get(name, OWN)]
    for seed in range(40):
        tree, own = random_tree(seed)
        rng = random.Random(seed)
        for trajectory in tree.trajectories:
            trajectory.answer = rng.choice(["a", "b", None])
        measured(tree, *(rng.uniform(0.1, 0.9) for span in [None, *tree.spans] if span is None or span.kind != "model"))
        rows = token_advantages(tree, own, name)
        for row, trajectory in zip(rows, tree.trajectories, strict=True):
            assert all(math.isfinite(value) for value in row)
            assert trajectory.valid or not any(row)
        if name in ("treerl", "treepo", "spo", "vineppo", "rtmc"):
            shifted = token_advantages(tree, [value + 5.0 for value in own], name)
            assert shifted == [pytest.approx(row, abs=1e-9) for row in rows]
        if CREDITS[name].prepare is None:  # measured by the numbers of spans, which are not moved
            order = random.Random(seed).sample(range(len(own)), len(own))
            other = copy.deepcopy(tree)
            other.reorder(order)
            reordered = token_advantages(other, [own[number] for number in order], name)
            assert reordered == [pytest.approx(rows[number], abs=1e-9) for number in order]


def test_uncertain_turns_weigh_more_in_at2po() -> None:
    tree = nested()
    for span, surprise in ((4, 0.5), (5, 1.5)):  # m4 and m5
        tree.spans[span].logprobs = [-surprise]
    second = (8 + math.e * 4) / (1 + math.e)
    assert paper_rows.at2po(tree, NESTED)[2:4] == [pytest.approx(second)] * 2


def test_equal_states_of_independent_trajectories_are_matched_by_what_was_asked_for() -> None:
    """Two roots make the same calls in another order; calls with equal results are told apart, thoughts ignored."""
    tree = RolloutTree([1])
    for results, answer in (((20, 21), "a"), ((21, 20), "b")):
        state = None
        for token in results:
            call = turn(tree, state)
            tree.spans[call].text = f"<search>{token}</search>"
            state = result(tree, call, token)
        tree.trajectories.append(Trajectory(turn(tree, state), reward=0.0, answer=answer))
    # the last state is visited by both: V' = (2 * 2 + 2 * 2) / 4; the middle ones by one: (3 + 2 * 2) / 3
    first, second = CREDITS["rtmc"].values(tree, [3.0, 1.0])
    assert first == pytest.approx([1, 1, 2 / 3, 2 / 3, 1])
    assert second == pytest.approx([-1, -1, -2 / 3, -2 / 3, -1])
    tree = RolloutTree([1])
    for text in ("<think>One.</think><go>a</go>", "<go>a</go>", "<think>Two.</think> <go>b</go>"):
        call = turn(tree, None)
        tree.spans[call].text = text
        tree.trajectories.append(Trajectory(turn(tree, result(tree, call, 20)), reward=0.0, answer="x"))
    # a is worth (6 + 3) / 2 and b 0; V' = (9 + 2 * 3) / 5 = 3; then both a are in one state: V' (9 + 6) / 4, answer 4.5
    found = CREDITS["rtmc"].values(tree, [6.0, 3.0, 0.0])
    assert found == [pytest.approx(row) for row in ([1.5, 1.5, 0.75], [1.5, 1.5, 0.75], [-3.0, -3.0, -2.0])]


def test_gains_of_turns_by_hand() -> None:
    """Three roots with 2, 1 and 0 calls: gains 0.2 and 0.3, then 0.4, and none."""
    tree = RolloutTree([1])
    for calls, reward in ((2, 1.0), (1, 0.0), (0, 0.5)):
        state: int | None = None
        for _ in range(calls):
            state = result(tree, turn(tree, state), 20)
        tree.trajectories.append(Trajectory(turn(tree, state), reward=reward))
    measured(tree, 0.1, 0.3, 0.6, 0.5)
    # igpo normalises gains and rewards together, whatever the advantages are
    mean = (0.2 + 0.3 + 1.0 + 0.4 + 0.0 + 0.5) / 6
    deviation = math.sqrt((0.04 + 0.09 + 1.0 + 0.16 + 0.0 + 0.25) / 6 - mean**2)
    z = [(value - mean) / deviation for value in (0.2, 0.3, 1.0, 0.4, 0.0, 0.5)]
    expected = [[z[0] + z[1] + z[2]] * 2 + [z[1] + z[2]] * 2 + [z[2]], [z[3] + z[4]] * 2 + [z[4]], [z[5]]]
    assert CREDITS["igpo"].values(tree, [5.0, 1.0, 2.0]) == [pytest.approx(row, rel=1e-4) for row in expected]
    # a2tgpo: first gains 0.2 and 0.4: z = -1 and 1; the second turn of the first root is compared with nothing: 0
    first = 0.3 * (-1 + 0) / math.sqrt(2)
    expected = [[7 + first] * 2 + [7, 7, 7], [3 + 0.3] * 2 + [3], [4]]
    assert CREDITS["a2tgpo"].values(tree, [7.0, 3.0, 4.0]) == [pytest.approx(row, rel=1e-4) for row in expected]
    measured(tree, 0.1, 0.1 + 1e-9, 0.1, 0.1 - 1e-9)  # gains that differ by rounding are no signal
    assert max(abs(value) for row in CREDITS["a2tgpo"].values(tree, [0.0] * 3) for value in row) < 1e-4
    del tree.meta[KEPT]["1"]
    with pytest.raises(ValueError, match="state 1 has no probability of the gold answer"):
        token_advantages(tree, [0.0] * 3, "igpo")


@pytest.mark.parametrize(
    ("name", "points", "scores"),
    [
        ("spread", [{"uniform": 0.9, "branches": 1}, {"uniform": 0.2}, {"uniform": 0.5}], [-0.1, 0.2, 0.5]),
        ("treerl", [{"later": ((-0.1, -2.3), (-9.0,))}, {}], [2.3, 0.0]),
        ("at2po", [{"later": ((-1.0, -3.0), (-9.0,)), "branches": 2}, {"later": ((-1.95,),)}], [1.9, 1.95]),
    ],
)
def test_ranking_with_what_is_known_later(name: str, points: list[dict[str, Any]], scores: list[float]) -> None:
    rank = BRANCHES[name].rank
    assert rank
    settings = RolloutSettings(branch_penalty=0.05)
    assert rank([Decision(1.0, 1.0, **point) for point in points], settings) == pytest.approx(scores)
    assert rank([], settings) == []


# the gold answer's probability


@pytest.fixture(scope="module", params=[False, True], ids=["flat", "packed"])
def trainer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    settings = {"packing": request.param, "per_device_train_batch_size": 4, "temperature": TEMPERATURE}
    policy = write_byte_policy(tmp_path_factory.mktemp("bytes"))
    made_one, _ = made(policy, tmp_path_factory.mktemp("run"), **settings)
    return made_one


def grown() -> list[RolloutTree]:
    """Trees with branches and folds; the second task has two answers."""
    found = [folded_tree(seed, kept=False) for seed in (1, 4)]
    for tree, answers in zip(found, (["42"], ["Paris", "a"]), strict=True):
        tree.task = {"id": "t", "answers": answers}
    assert any(tree.spans[state].kind == "fold" for tree in found for state in answer_states(tree)[1:] if state)
    return found


def expected(model: Any, tokenizer: Any, tree: RolloutTree, state: int | None) -> float:
    """One token after the other, one row at a time."""
    found = []
    for answer in tree.task["answers"]:
        ids, values = tree.context(state) + tokenizer(BOX.before)["input_ids"], []
        for token in tokenizer(answer)["input_ids"]:
            with torch.no_grad():
                logits = model(torch.tensor([ids])).logits[0, -1].float() / TEMPERATURE
            values.append(logits.log_softmax(-1)[token].item())
            ids = [*ids, token]
        found.append(sum(values) / len(values))
    return max(found)


def test_the_trainer_and_a_plain_model_score_as_a_forward_pass_of_each_row_does(trainer: Any) -> None:
    model, tokenizer = trainer.accelerator.unwrap_model(trainer.model).train(), trainer.processing_class
    modes = list[bool]()
    hook = model.register_forward_pre_hook(lambda module, _: modes.append(module.training))
    assert len(trainer_logps(trainer, answer_rows(0, grown()[0], tokenizer, BOX))) == len(answer_states(grown()[0]))
    hook.remove()
    assert modes
    assert not any(modes)  # dropout would pass for a gain
    assert model.training  # as it was
    for logps in (partial(trainer_logps, trainer), partial(plain_logps, model, temperature=TEMPERATURE, size=3)):
        found = grown()
        score_answers(found, tokenizer, BOX, logps)
        for tree in found:
            wanted = {paper_rows._key(state): expected(model, tokenizer, tree, state) for state in answer_states(tree)}
            assert tree.meta[KEPT] == pytest.approx(wanted, abs=1e-4)
            assert len(wanted) > 2
    assert trainer_logps(trainer, []) == []


def test_every_process_scores_as_many_rows(trainer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 5 rows 2 processes score 3 each: sharded weights take part in every forward pass."""
    rows = answer_rows(0, grown()[0], trainer.processing_class, BOX)[:1] * 5
    whole, counted = trainer_logps(trainer, rows), list[int]()

    def counting(rows: Any, *_: Any) -> list[float]:
        counted.append(len(rows))
        return whole[:1] * len(rows)

    for own in (range(3), range(3, 5)):
        monkeypatch.setattr(paper_rows, "share", lambda _, own=own: own)
        monkeypatch.setattr(paper_rows, "rank_count", lambda: 2)
        monkeypatch.setattr(paper_rows, "chunked", counting)
        assert trainer_logps(trainer, rows) == whole[own.start : own.stop]
    assert counted == [3, 3]


@pytest.mark.parametrize(
    ("name", "before"),
    [("arpo-tags", "<answer>\\boxed{"), ("hermes", "\\boxed{"), ("deepagent", "\\boxed{"), ("websailor", "<answer>")],
)
def test_answers_are_written_as_the_protocol_reads_them(name: str, before: str) -> None:
    assert answer_format(make_protocol(name), []).before.startswith(before)


def test_a_row_trains_from_a_clone(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The trainer has the answers measured before it gives credit, and logs the mean gain."""
    policy = write_byte_policy(tmp_path_factory.mktemp("bytes"))
    trainer, _ = made(
        policy, tmp_path, algorithm="benchmarks.laboratory.paper_rows:igpo", attribution=None, max_steps=1
    )
    trainer.train()
    assert all(len(tree.meta[KEPT]) == len(answer_states(tree)) for tree in trainer.trees)
    assert any("arpo/answer_gain" in log for log in trainer.state.log_history)
