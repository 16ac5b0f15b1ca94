r"""Real data through whole environments: gold answers, the recorded search cache, and questions over their corpus.

Every gold answer, each alias of it, is given as a policy would give it, in `\boxed{}`. Judged sets are compared by EM
and F1 here.
"""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

from arpo_env import ToolEnv
from arpo_env.cache import Cache, CacheMiss
from arpo_env.event_loop import run
from arpo_env.grading.check_pool import CheckPool
from arpo_env.search.search_backend import import_arpo_json
from arpo_trainer.cli.arpo_command import main
from envs_registry import Task, get_spec

SETS = [
    ("AIME24", "eval/aime24", "test", 30),
    ("AIME25", "eval/aime25", "test", 30),
    ("MATH500", "eval/math500", "test", 500),
    ("GSM8K", "eval/gsm8k", "test", 1319),
    ("HotpotQA", "eval/hotpotqa", "validation", 200),
    ("2Wiki", "eval/2wiki", "validation", 641),
    ("MuSiQue", "eval/musique", "validation", 286),
    ("Bamboogle", "eval/bamboogle", "test", 125),
    ("WebWalker", "eval/webwalker", "test", 200),
    ("SimpleQA", "eval/SimpleQA", "test", 500),
    ("Reasoning10K", "rl/train_10k.parquet", "train", 9944),
    ("Reasoning10K", "rl/valid.parquet", "validation", 180),
    ("DeepSearch1K", "rl/hard_search_1k.parquet", "train", 1071),
]
TOGETHER = 64  # episodes at a time
TASKS = 20  # of the corpus
Outcome = tuple[Task, str, float, dict[str, Any]]


@pytest.fixture(scope="module", params=SETS, ids=[path.rpartition("/")[2] for _, path, *_ in SETS])
def gold_set(request: pytest.FixtureRequest, shared: Path) -> tuple[ToolEnv, int]:
    """The environment of a file, and the number of gold answers in it."""
    name, path, split, golds = request.param
    options = {"scorer": "qa"} if get_spec(f"arpo/{name}-v0").scorer == "judge" else {}
    return make(f"arpo/{name}-v0", data=shared / "data/arpo" / path, split=split, **options), golds


def make(env_id: str, **options: Any) -> ToolEnv:
    env = gym.make(env_id, **options).unwrapped
    assert isinstance(env, ToolEnv)
    return env


def answered(env: ToolEnv, answers: Sequence[tuple[Task, str]]) -> list[Outcome]:
    """Give each answer in an episode of its own."""
    seats = asyncio.Semaphore(TOGETHER)

    async def one(task: Task, answer: str) -> Outcome:
        async with seats:
            episode = env.spawn()
            await episode.areset(options={"task": task})
            text = f"<think>So it is.</think><answer>\\boxed{{{answer}}}</answer>"
            _, reward, _, _, info = await episode.astep(text)
            await episode.aclose()
            return task, answer, reward, info["reward_components"]

    async def every() -> list[Outcome]:
        return await asyncio.gather(*(one(*answer) for answer in answers))

    return run(every())


def all_tasks(env: ToolEnv) -> list[Task]:
    return [env.tasks.task(number) for number in range(env.tasks.size)]


def test_every_gold_answer_earns_exactly_one(gold_set: tuple[ToolEnv, int], monkeypatch: pytest.MonkeyPatch) -> None:
    def check(*_: object) -> None:
        raise AssertionError("an answer that equals its gold needs no algebra")

    monkeypatch.setattr(CheckPool, "check", check)
    env, golds = gold_set
    given = [(task, gold) for task in all_tasks(env) for gold in task.answers]
    assert len(given) == golds
    outcomes = answered(env, given[:: 1 + golds // 3000])
    bad = [(task.id, gold, reward) for task, gold, reward, parts in outcomes if reward != 1.0 or parts["format"] != 1.0]
    assert bad == []


def test_another_answer_earns_nothing(gold_set: tuple[ToolEnv, int]) -> None:
    env, _ = gold_set
    tasks = all_tasks(env)
    outcomes = answered(env, [(task, "zzyzx 987654321") for task in tasks[:: 1 + len(tasks) // 1000]])
    bad = [(task.id, task.answers, reward) for task, _, reward, parts in outcomes if reward or not parts["format"]]
    assert bad == []


@pytest.fixture(scope="module")
def recorded(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[ToolEnv, dict[str, str]]:
    """An environment that replays the published search cache, and what is in that."""
    published = shared / "data/arpo/search_cache/search_cache.json"
    file = tmp_path_factory.mktemp("cache") / "searches.sqlite"
    cache = Cache(file)
    import_arpo_json(cache, published)
    cache.close()
    data = shared / "data/arpo/eval/hotpotqa"
    env = make("arpo/HotpotQA-v0", data=data, search="recorded:bing-arpo", cache=file, cache_mode="replay")
    return env, json.loads(published.read_text(encoding="utf-8"))


def searched(env: ToolEnv, query: str, index: int = 0) -> tuple[str, dict[str, Any]]:
    """Search in a new episode; return what is shown, and the info."""
    env.reset(options={"index": index})
    shown, reward, ended, _, info = env.step(f"<think>I look it up.</think><search>{query}</search>")
    assert (reward, ended) == (0.0, False)
    return shown, info


def test_every_recorded_query_that_can_be_called_shows_its_snippets(recorded: tuple[ToolEnv, dict[str, str]]) -> None:
    env, entries = recorded
    queries = [query for query in entries if "</search>" not in query]  # two run on beyond their own end
    assert len(queries) == 998
    for query in queries:
        shown, info = searched(env, query)
        assert info["tool"]["status"] == "ok"
        first = entries[query].splitlines()[0].removeprefix("Page 1: ")
        assert env.protocol.defuse(" ".join(first.split())[:200]) in shown


def test_a_query_that_was_not_recorded_is_an_error_with_its_cure_and_no_reward(
    recorded: tuple[ToolEnv, dict[str, str]],
) -> None:
    env, entries = recorded
    with pytest.raises(CacheMiss, match=r"'nobody asked this'.*mode=\"record\".*arpo cache import"):
        searched(env, "nobody asked this")
    assert searched(env, next(iter(entries)))[1]["tool"]["status"] == "ok"


@pytest.fixture(scope="module")
def corpus(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, list[dict[str, Any]]]:
    """Questions of the evaluation set that the corpus answers: an index, their file, and their rows."""
    folder = tmp_path_factory.mktemp("corpus")
    assert main(["search", "index", str(shared / "data/corpus/passages.jsonl"), str(folder / "index")]) == 0
    rows = [json.loads(line) for line in (shared / "data/corpus/questions.jsonl").open(encoding="utf-8")]
    rows = [row for row in rows if row["in_arpo_eval"]][:TASKS]
    (folder / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return folder / "index", folder / "questions.jsonl", rows


def test_the_first_search_finds_the_gold_passages(corpus: Any, shared: Path) -> None:
    index, questions, rows = corpus
    passages = [json.loads(line) for line in (shared / "data/corpus/passages.jsonl").open(encoding="utf-8")]
    texts = {row["id"]: (row["title"], " ".join(row["text"].split())[:1000]) for row in passages}
    env = make("arpo/HotpotQA-v0", data=questions, search=index)
    found = []
    for number, row in enumerate(rows):
        shown, _ = searched(env, row["question"], number)
        assert env.episode.task.answers == tuple(row["answers"])
        for title, text in (texts[passage] for passage in row["gold"]):
            found.append(any(f"Page {rank}: {title}\n{text}" in shown for rank in range(1, 11)))
    assert len(found) == 2 * TASKS
    assert sum(found) >= 0.85 * len(found)  # 35 of 40; the others need a second search
