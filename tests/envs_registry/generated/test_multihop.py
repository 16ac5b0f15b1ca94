"""MultiHop: the same everywhere, one answer to each question, and everything it needs is in the corpus."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import zlib
from pathlib import Path

import pytest

from envs_registry import load_source
from envs_registry.generated.multihop import KINDS, Chain, Compare, Form, Meet, MultiHopSource, World, _asked

ROOT = Path(__file__).resolve().parents[3]
SOME = range(300)


@pytest.fixture(scope="module")
def source() -> MultiHopSource:
    return MultiHopSource("test")


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
        found = {thing for thing in found if target in along(thing, path, world)}
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


def along(thing: str, path: tuple[str, ...], world: World) -> set[str]:
    at = {thing}
    for relation in path:
        at = {world.facts[one, relation].object for one in at if (one, relation) in world.facts}
    return at


def test_a_brute_force_solver_finds_exactly_the_answer(source: MultiHopSource) -> None:
    for index in SOME:
        (answer,) = solve(source.proof(index).form, source.world)
        entity = source.world.entities.get(answer)
        assert source.task(index).answers == (entity.names if entity else (answer,))


def test_answers_and_hop_facts_stand_in_the_gold_passages(source: MultiHopSource) -> None:
    texts = {passage.id: passage.text for passage in source.passages}
    for index in SOME:
        proof = source.proof(index)
        assert any(answer in texts[gold] for gold in proof.passages for answer in source.task(index).answers)
        assert all(fact.mention in texts[fact.subject] for fact in proof.facts)
        assert {fact.subject for fact in proof.facts} == set(proof.passages)


def test_a_level_is_the_number_of_hops_and_one_passage_never_suffices(source: MultiHopSource) -> None:
    for index in SOME:
        proof = source.proof(index)
        assert len(proof.facts) == len(source.solution(index)) == int(source.task(index).level)
        assert 2 <= len(proof.passages) <= len(proof.facts)


def test_all_three_forms_come_up(source: MultiHopSource) -> None:
    assert {type(source.proof(index).form) for index in SOME} == {Chain, Compare, Meet}


def test_each_condition_of_a_meeting_leaves_several_things(source: MultiHopSource) -> None:
    forms = [form for index in SOME if isinstance(form := source.proof(index).form, Meet)]
    assert len(forms) > 20
    for form in forms:
        assert all(len(solve(Meet(form.kind, (condition,)), source.world)) > 1 for condition in form.conditions)


def test_a_chain_does_not_name_its_answer(source: MultiHopSource) -> None:
    for index in SOME:
        if isinstance(source.proof(index).form, Chain):
            task = source.task(index)
            assert not any(re.search(rf"\b{answer}\b", task.question) for answer in task.answers)


def test_things_are_compared_with_their_own_kind(source: MultiHopSource) -> None:
    for index in SOME:
        if isinstance(form := source.proof(index).form, Compare):
            (first,), (second,) = follow(form.first, source.world), follow(form.second, source.world)
            assert source.world.entities[first].kind == source.world.entities[second].kind


def test_a_question_starts_from_something_it_names(source: MultiHopSource) -> None:
    for index in SOME:
        if isinstance(form := source.proof(index).form, Chain):
            assert any(name in source.task(index).question for name in source.world.entities[form.start].names)


def test_distractors_look_like_the_gold_passages_and_are_others(source: MultiHopSource) -> None:
    titles = {passage.id: set(passage.title.split()) for passage in source.passages}
    counts = []
    for index in SOME:
        proof = source.proof(index)
        counts.append(len(proof.distractors))
        words = set().union(*(titles[gold] for gold in proof.passages))
        assert not set(proof.distractors) & set(proof.passages)
        assert all(titles[other] & words for other in proof.distractors)
    assert sorted(counts)[len(counts) // 20] >= 3


def test_names_are_letters_and_spaces_and_given_once(source: MultiHopSource) -> None:
    names = [name for entity in source.world.entities.values() for name in entity.names]
    assert all(re.fullmatch(r"[A-Za-z]+( [A-Za-z]+)*", name) for name in names)
    assert len({name.casefold() for name in names}) == len(names)
    assert {len(entity.names) for entity in source.world.entities.values()} == {1, 2, 3}


def test_surnames_are_shared(source: MultiHopSource) -> None:
    people = source.world.by_kind["person"]
    assert len({person.name.split()[-1] for person in people}) < 0.6 * len(people)


def test_passages_have_ids_of_their_own_and_3_to_6_sentences(source: MultiHopSource) -> None:
    assert len(source.passages) == len({passage.id for passage in source.passages}) == 3000
    assert all(3 <= passage.text.count(". ") + 1 <= 6 for passage in source.passages)
    assert all(
        entity.name in passage.text for passage in source.passages if (entity := source.world.entities.get(passage.id))
    )


def test_a_chronicle_states_no_fact_of_the_world(source: MultiHopSource) -> None:
    told = [
        sentence for kind in KINDS.values() for relation in kind.relations.values() for sentence in relation.sentences
    ]
    verbs = {word for text in told for word in re.findall(r"[a-z]{5,}", text)}
    for passage in source.passages:
        if passage.id.startswith("chronicle-"):
            assert not verbs & set(passage.text.split()) - {"there", "where", "which", "after"}, passage


def test_a_world_is_the_same_in_every_process() -> None:
    code = (
        "from envs_registry.generated.multihop import MultiHopSource as S; import zlib; s = S('test');"
        "print(zlib.crc32(repr((s.passages, [(s.task(i), s.proof(i), s.solution(i)) for i in range(30)])).encode()))"
    )
    seen = set()
    for seed in ("0", "123"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, env=environment)
        seen.add(done.stdout.strip())
    here = MultiHopSource("test")
    mine = (here.passages, [(here.task(i), here.proof(i), here.solution(i)) for i in range(30)])
    assert seen == {str(zlib.crc32(repr(mine).encode()))}


def test_a_task_does_not_depend_on_what_was_asked_before() -> None:
    forwards = [MultiHopSource().task(index) for index in range(20)]
    source = MultiHopSource()
    assert [source.task(index) for index in reversed(range(20))][::-1] == forwards


def test_another_seed_is_another_world() -> None:
    worlds = [{passage.title for passage in MultiHopSource(seed=seed, world_size=400).passages} for seed in (0, 1)]
    assert len(worlds[0] & worlds[1]) < 5


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


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize(("level", "size"), [(2, 300), ("mixed", 3000)])
def test_no_question_is_repeated(level: int | str, size: int, split: str) -> None:
    source = MultiHopSource(split, level=level, world_size=size)
    forms = [_asked(source.proof(index).form) for index in range(500)]
    assert len(set(forms)) == len({source.task(index).question for index in range(500)}) == 500


def test_a_world_that_has_no_more_questions_repeats_some() -> None:
    source = MultiHopSource("test", level=2, world_size=200)
    questions = [source.task(index).question for index in range(700)]
    assert 250 < len(set(questions)) < 700
    assert MultiHopSource("test", level=2, world_size=200).task(20).question == questions[20]


def test_a_task_is_the_same_whatever_levels_are_asked_for() -> None:
    two, mixed, both = (MultiHopSource(level=level) for level in (2, "mixed", "4,2"))
    assert [two.task(index) for index in range(5)] == [mixed.task(3 * index) for index in range(5)]
    assert [two.task(index) for index in range(5)] == [both.task(2 * index + 1) for index in range(5)]


def test_train_and_test_share_the_world_and_no_question() -> None:
    train, test = MultiHopSource("train", world_size=300), MultiHopSource("test", world_size=300)
    assert train.passages is test.passages
    asked = [
        {frozenset(text.split()) for i in range(500) if (text := source.task(i).question)} for source in (train, test)
    ]
    assert not asked[0] & asked[1]
    forms = [{repr(source.proof(i).form) for i in range(500)} for source in (train, test)]
    assert not forms[0] & forms[1]


def test_turning_a_comparison_round_does_not_change_its_split() -> None:
    from envs_registry.generated.multihop import _belongs

    one, other = Chain("town-1", ()), Chain("town-2", ())
    forms = [
        Compare(first, second, earlier) for first, second in ((one, other), (other, one)) for earlier in (True, False)
    ]
    assert len({_belongs(form, "test") for form in forms}) == 1


def test_ten_thousand_tasks_are_quick_and_all_different() -> None:
    source = MultiHopSource("train")
    started = time.process_time()
    tasks = [source.task(index) for index in range(10_000)]
    assert time.process_time() - started < 8
    assert len({task.question for task in tasks}) == 10_000
    assert len({task.id for task in tasks}) == 10_000


@pytest.mark.parametrize(
    ("level", "levels"), [(2, {"2"}), ("3", {"3"}), ("2, 4", {"2", "4"}), ("mixed", {"2", "3", "4"})]
)
def test_levels_are_taken_in_turn(level: int | str, levels: set[str]) -> None:
    source = load_source("multihop", level=level)
    assert {source.task(index).level for index in range(6)} == levels


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"level": 5}, "2, 3, 4, 'mixed'"),
        ({"level": "2,x"}, "2, 3, 4, 'mixed'"),
        ({"split": "dev"}, "train and test"),
        ({"world_size": 10}, "200 to 50,000"),
        ({"world_size": 10**6}, "200 to 50,000"),
    ],
)
def test_an_option_it_does_not_have_is_refused(options: dict[str, object], told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        load_source("multihop", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [200, 5000])
def test_worlds_of_other_sizes_have_every_form(size: int) -> None:
    source = MultiHopSource(world_size=size)
    assert len(source.passages) == size
    assert {type(source.proof(index).form) for index in range(90)} == {Chain, Compare, Meet}


def test_phrases_can_be_nested_since_the_open_end_is_last() -> None:
    for kind in KINDS.values():
        for relation in kind.relations.values():
            assert relation.clause.endswith("{o}")
            assert all(noun.endswith("{s}") for noun in relation.nouns if relation.target)
            assert all("{s}" in text and "{o}" in text for text in relation.sentences)
