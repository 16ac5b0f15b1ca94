"""MultiHop: the same everywhere, one answer to each question, and everything it needs is in the corpus."""

import re
import time

import pytest

from envs_registry.generated.multihop import Chain, Compare, Form, Meet, MultiHopSource, World


def solve(form: Form, world: World) -> set[str]:
    """Answer a question by looking through all facts, step by step."""
    if isinstance(form, Chain):
        return follow(form, world)
    if isinstance(form, Compare):
        (first,), (second,) = follow(form.first, world), follow(form.second, world)
        years = {thing: world.entities[thing].year for thing in (first, second)}
        best = min(years.values()) if form.earlier else max(years.values())
        return {thing for thing, year in years.items() if year == best}
    found = {thing.id for thing in world.entities.values() if thing.kind == form.kind}
    for path, target in form.conditions:
        reached = {thing: {thing} for thing in found}
        for relation in path:
            reached = {
                thing: {world.facts[one, relation].object for one in at if (one, relation) in world.facts}
                for thing, at in reached.items()
            }
        found = {thing for thing, at in reached.items() if target in at}
    return found


def follow(chain: Chain, world: World) -> set[str]:
    at = {chain.start}
    for step in chain.steps:
        if step.inverse:
            facts = [fact for fact in world.facts.values() if fact.relation == step.relation and fact.object in at]
            at = {fact.subject for fact in facts if world.entities[fact.subject].kind == step.inverse}
        else:
            at = {fact.object for fact in world.facts.values() if fact.relation == step.relation and fact.subject in at}
    return at


def test_a_question_has_one_answer_and_needs_as_many_passages_as_its_level_says() -> None:
    source = MultiHopSource("test")
    texts, forms = {passage.id: passage.text for passage in source.passages}, set()
    for index in range(300):
        task, proof = source.task(index), source.proof(index)
        (answer,) = solve(proof.form, source.world)  # by brute force
        forms.add(type(proof.form))
        entity = source.world.entities.get(answer)
        assert task.answers == (entity.names if entity else (answer,))
        assert any(answer in texts[gold] for gold in proof.passages for answer in task.answers)
        assert all(fact.mention in texts[fact.subject] for fact in proof.facts)
        assert {fact.subject for fact in proof.facts} == set(proof.passages)
        assert len(proof.facts) == len(source.solution(index)) == int(task.level)
        assert 2 <= len(proof.passages) <= len(proof.facts)
        if isinstance(proof.form, Chain):
            assert not any(re.search(rf"\b{answer}\b", task.question) for answer in task.answers)
    assert forms == {Chain, Compare, Meet}


@pytest.mark.parametrize("size", [300, 3000])
def test_worlds_of_an_even_and_an_odd_seed_share_no_name_and_no_question(size: int) -> None:
    even, odd = (MultiHopSource("test", seed=seed, world_size=size) for seed in (0, 1))
    names = [{name.casefold() for thing in one.world.things for name in thing.names} for one in (even, odd)]
    titles = [{passage.title.casefold() for passage in one.passages} for one in (even, odd)]
    assert not (names[0] | titles[0]) & (names[1] | titles[1])
    assert len(names[0]) > size
    train = MultiHopSource("train", seed=1, world_size=size)
    asked = [{one.task(index).question for index in range(300)} for one in (even, odd, train)]
    assert not asked[0] & (asked[1] | asked[2])


def test_a_task_is_the_same_whatever_levels_are_asked_for_and_train_and_test_share_the_world_but_no_question() -> None:
    two = [MultiHopSource(level=2).task(index) for index in range(5)]
    assert two == [MultiHopSource(level="mixed").task(3 * index) for index in range(5)]
    assert two == [MultiHopSource(level="4,2").task(2 * index + 1) for index in range(5)]
    train, test = (MultiHopSource(split, world_size=300) for split in ("train", "test"))
    assert train.passages is test.passages
    forms = [{repr(source.proof(i).form) for i in range(500)} for source in (train, test)]
    assert not forms[0] & forms[1]


def test_ten_thousand_tasks_are_quick_and_all_different() -> None:
    source = MultiHopSource("train")
    started = time.process_time()
    tasks = [source.task(index) for index in range(10_000)]
    assert time.process_time() - started < 8
    assert len({task.question for task in tasks}) == len({task.id for task in tasks}) == 10_000
    small, again = (MultiHopSource("test", level=2, world_size=200) for _ in range(2))
    questions = [small.task(index).question for index in range(700)]
    assert 250 < len(set(questions)) < 700  # a world that has no more questions repeats some
    assert again.task(20).question == questions[20]
