"""The gold answer's probability in the states of a tree: against a plain forward pass, and in training."""

from __future__ import annotations

import json
import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from arpo_env.protocols import make_protocol
from arpo_trainer import RolloutTree
from arpo_trainer.algorithms.credit import answer_gains, answer_states, token_advantages
from arpo_trainer.backends.base import Generation, Request
from arpo_trainer.rollout.metrics import rollout_metrics
from arpo_trainer.training.answer_scores import (
    MOST_ANSWERS,
    AnswerFormat,
    answer_format,
    answer_ids,
    answer_rows,
    plain_logps,
    score_answers,
    trainer_logps,
)
from arpo_trainer.training.rollout_batch import ROLLOUTS_WITHOUT_SIGNAL
from arpo_trainer.training.task_data import task_rows
from arpo_trainer.tree import Stopwatch
from benchmarks.laboratory.lab_policy import world_env
from benchmarks.laboratory.tiny_model import tiny_model, tiny_tokenizer
from envs_registry.generated.bifurcation import DOORS, KEYS
from tests.arpo_trainer.algorithms.credit_trees import nested
from tests.arpo_trainer.byte_policy import write_byte_policy
from tests.arpo_trainer.rollout.test_engine import ScriptedPolicy
from tests.arpo_trainer.training.test_fold_training import random_tree
from tests.arpo_trainer.training.test_trainer import listener
from tests.arpo_trainer.training.test_trl_options import made

BOX = AnswerFormat("<answer>\\boxed{", "}</answer>")
TEMPERATURE = 0.7


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_byte_policy(tmp_path_factory.mktemp("bytes"))


@pytest.fixture(scope="module", params=[False, True], ids=["flat", "packed"])
def trainer(request: pytest.FixtureRequest, policy: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    settings = {"packing": request.param, "per_device_train_batch_size": 4, "temperature": TEMPERATURE}
    made_one, _ = made(policy, tmp_path_factory.mktemp("run"), **settings)
    assert made_one.packs == request.param
    return made_one


def grown() -> list[RolloutTree]:
    """Trees with branches and folds; the second task has two answers."""
    trees = [random_tree(seed, kept=False) for seed in (1, 4)]
    for tree, answers in zip(trees, (["42"], ["Paris", "a"]), strict=True):
        tree.task = {"id": "t", "answers": answers}
    assert any(tree.spans[state].kind == "fold" for tree in trees for state in answer_states(tree)[1:] if state)
    return trees


def expected(model: Any, tokenizer: Any, tree: RolloutTree, state: int | None) -> float:
    """One token after the other, one row at a time."""
    found = []
    for answer in tree.task["answers"]:
        ids = tree.context(state) + tokenizer(BOX.before)["input_ids"]
        values = []
        for token in tokenizer(answer)["input_ids"]:
            with torch.no_grad():
                logits = model(torch.tensor([ids])).logits[0, -1].float() / TEMPERATURE
            values.append(logits.log_softmax(-1)[token].item())
            ids = [*ids, token]
        found.append(sum(values) / len(values))
    best: float = max(found)
    return best


def test_the_trainer_and_a_plain_model_score_as_a_forward_pass_of_each_row_does(trainer: Any) -> None:
    model, tokenizer = trainer.accelerator.unwrap_model(trainer.model).train(), trainer.processing_class
    modes = list[bool]()
    model.register_forward_pre_hook(lambda module, _: modes.append(module.training))
    assert len(trainer_logps(trainer, answer_rows(0, grown()[0], tokenizer, BOX))) == len(answer_states(grown()[0]))
    assert modes
    assert not any(modes)  # dropout would pass for a gain
    assert model.training  # as it was
    for logps in (partial(trainer_logps, trainer), partial(plain_logps, model, temperature=TEMPERATURE, size=3)):
        trees = grown()
        score_answers(trees, tokenizer, BOX, logps)
        for tree in trees:
            states = answer_states(tree)
            assert len(states) > 2
            for state in states:
                found = tree.answer_logprob if state is None else tree.spans[state].answer_logprob
                assert found == pytest.approx(expected(model, tokenizer, tree, state), abs=1e-4)
            others = [span.answer_logprob for span in tree.spans if span.index not in states]
            assert set(others) <= {None}
    assert trainer_logps(trainer, []) == []


def test_every_process_scores_as_many_rows(trainer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 5 rows 2 processes score 3 each: sharded weights take part in every forward pass."""
    from arpo_trainer.training import answer_scores

    tree = grown()[0]
    rows = answer_rows(0, tree, trainer.processing_class, BOX)[:1] * 5
    whole, counted = trainer_logps(trainer, rows), list[int]()

    def counting(rows: Any, *_: Any) -> list[float]:
        counted.append(len(rows))
        return whole[:1] * len(rows)

    for own in (range(3), range(3, 5)):
        monkeypatch.setattr(answer_scores, "share", lambda _, own=own: own)
        monkeypatch.setattr(answer_scores, "rank_count", lambda: 2)
        monkeypatch.setattr(answer_scores, "chunked", counting)
        assert trainer_logps(trainer, rows) == whole[own.start : own.stop]
    assert counted == [3, 3]


@pytest.mark.parametrize(
    ("name", "before"),
    [("arpo-tags", "<answer>\\boxed{"), ("hermes", "\\boxed{"), ("deepagent", "\\boxed{"), ("websailor", "<answer>")],
)
def test_answers_are_written_as_the_protocol_reads_them(name: str, before: str) -> None:
    assert answer_format(make_protocol(name), []).before.startswith(before)


def test_a_protocol_that_reads_no_answer_is_refused_with_its_name() -> None:
    class Mute(type(make_protocol("hermes"))):  # type: ignore[misc]
        name = "mute"

        def parse(self, text: str, tools: Any) -> Any:
            return None

    with pytest.raises(ValueError, match=r"protocol 'mute' reads none of \\boxed\{...\}.*choose an attribution"):
        answer_format(Mute(), [])


def test_the_tokens_of_an_answer_are_those_of_the_whole_text(tokenizer: Any) -> None:
    for answer in ("42", "a", "Marie Curie", "\\frac{1}{2}"):
        before, gold = answer_ids(tokenizer, BOX.before, answer, BOX.after)
        whole = tokenizer(f"{BOX.before}{answer}{BOX.after}")["input_ids"]
        assert whole[: len(before) + len(gold)] == before + gold
        assert gold
        assert answer in tokenizer.decode(gold)


def test_an_opened_thought_is_closed_first(policy: Path, trainer: Any) -> None:
    tokenizer = trainer.processing_class
    tree = RolloutTree(tokenizer("<think>\n")["input_ids"], task={"answers": ["1"]})
    [row] = answer_rows(0, tree, tokenizer, BOX)
    assert tokenizer.decode(row.ids) == "<think>\n\n</think>\n\n" + BOX.before
    with pytest.raises(ValueError, match=r"task '\?' has no gold answer.*give it `answers`"):
        answer_rows(0, RolloutTree([1]), tokenizer, BOX)
    many = RolloutTree([1], task={"answers": list("abcde")})
    assert len(answer_rows(0, many, tokenizer, BOX)) == MOST_ANSWERS == 3


class Wanderer(ScriptedPolicy):
    """Opens a few doors drawn at random, and answers."""

    time = Stopwatch()

    async def generate(self, request: Request, on_window: Any = None) -> Generation:
        rng = random.Random(f"{request.seed} {request.ids}")
        door = self.tokenizer.decode(request.ids).count("<result>") < 1 or rng.random() < 0.5
        text = f"<go>{rng.choice(DOORS)}</go>" if door else f"<answer>\\boxed{{{rng.choice(KEYS)}}}</answer>"
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return Generation(ids, [-0.1] * len(ids), [0.1] * len(ids), "stop")


@pytest.mark.parametrize("algorithm", ["igpo", "a2tgpo"])
def test_a_step_of_training(tmp_path: Path, algorithm: str) -> None:
    """Scores are those of the weights before the step, and advantages those of the row with the user's rewards."""
    model, tokenizer = tiny_model(), tiny_tokenizer()
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "policy")
    settings = {"max_completion_length": 200, "algorithm": algorithm}
    trainer, watching = made(tmp_path / "policy", tmp_path, env=world_env("short"), **settings)
    trainer.backend = trainer.engine.backend = Wanderer(tokenizer, (), ())
    kept: list[str] = []
    trainer.add_callback(listener(on_rollout=lambda trees: kept.extend(tree.to_json() for tree in trees)))
    trainer.train()
    trees = trainer.kept[0]["trees"]
    assert [RolloutTree.from_json(line) for line in kept] == trees
    again = [RolloutTree.from_json(line) for line in kept]
    score_answers(again, tokenizer, BOX, partial(plain_logps, model.eval()))
    for tree, other in zip(trees, again, strict=True):
        found = [tree.answer_logprob, *(span.answer_logprob for span in tree.spans)]
        wanted = [other.answer_logprob, *(span.answer_logprob for span in other.spans)]
        assert [value is None for value in found] == [value is None for value in wanted]
        assert sum(value is not None for value in found) > 3
        assert [value or 0 for value in found] == pytest.approx([value or 0 for value in wanted], abs=1e-4)
    given = trainer._group_advantages(torch.zeros(8))
    for place, (tree, own) in enumerate(zip(trainer.rollout_batch.scored_trees(), given, strict=True)):
        assert tree.rewards == pytest.approx(trainer.rollout_batch.rewards[4 * place : 4 * place + 4])
        for number, row in enumerate(token_advantages(tree, own, algorithm)):
            batch = trainer.kept[0]["advantages"][4 * place + number]
            assert batch[: len(row)].tolist() == pytest.approx(row, abs=1e-5)
            assert len(set(row)) > 1
    assert any(value.abs().max() > 0 for value in watching.steps[0].values())
    logged = next(log for log in watching.logs if "arpo/answer_gain" in log)
    gains = [gain for tree in trees for number in range(4) for gain in answer_gains(tree, number)]
    assert logged["arpo/answer_gain"] == pytest.approx(sum(gains) / len(gains))
    assert not trainer._metrics["eval"]  # the model was in evaluation mode while it scored
    trainer.evaluate(task_rows(trainer.env, [trainer.env.tasks.task(0)] * 2))
    assert [tree.answer_logprob for tree in trainer.trees] == [None] * 2  # no update needs it there


@pytest.mark.parametrize(("algorithm", "warned"), [("grpo", True), ("igpo", False)])
def test_gains_are_a_signal_where_rewards_are_equal(
    tmp_path: Path, algorithm: str, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    model, tokenizer = tiny_model(), tiny_tokenizer()
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "policy")
    settings: dict[str, Any] = {
        "max_completion_length": 200,
        "algorithm": algorithm,
        "max_steps": ROLLOUTS_WITHOUT_SIGNAL,
    }
    settings["reward"] = lambda completions, **_: [0.5] * len(completions)
    trainer, _ = made(tmp_path / "policy", tmp_path, env=world_env("short"), **settings)
    trainer.backend = trainer.engine.backend = Wanderer(tokenizer, (), ())
    trainer.train()
    assert ("gave a training signal" in caplog.text) == warned


def test_what_broke_has_no_part_in_the_mean_gain() -> None:
    gains = (0.3, -0.2, 0.3, 0.3, -0.2)  # of the valid trajectories
    assert rollout_metrics([nested()])["answer_gain"] == pytest.approx(sum(gains) / len(gains))
    assert "answer_gain" not in rollout_metrics(grown())


def test_action_advantages_do_not_go_with_gains(policy: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"action_weight=1\.0 with attribution='igpo'.*Set action_weight=0"):
        made(policy, tmp_path, attribution="igpo", action_weight=1.0)


def test_scores_are_written_down_and_older_traces_have_none() -> None:
    tree = grown()[0]
    old = json.loads(tree.to_json())
    assert "answer_logprob" not in old
    assert all("answer_logprob" not in span for span in old["spans"])
    assert RolloutTree.from_json(json.dumps(old)) == tree
    tree.answer_logprob, tree.spans[1].answer_logprob = -1.5, -0.5
    again = RolloutTree.from_json(tree.to_json())
    assert again == tree
    assert (again.answer_logprob, again.spans[1].answer_logprob) == (-1.5, -0.5)
