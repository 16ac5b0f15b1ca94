"""`ToolEnv`: a true Gymnasium environment, with a live interpreter, that can be forked."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from hypothesis import given, settings
from hypothesis import strategies as st

import arpo_env
from arpo_env import ToolEnv
from arpo_env.adapters.play import play
from arpo_env.cache import Cache
from arpo_env.episode import NO_CALLS
from arpo_env.registration import without_checks
from arpo_env.search.search_backend import normalise_query
from arpo_env.text import normalise_unicode
from arpo_env.vector import ToolVectorEnv
from envs_registry import Task

DONE = "<think>d</think><answer>\\boxed{{{}}}</answer>"
LIST = Task("t", "How long is the list?", ("4",), kind="math", setup="items = [1, 2, 3]")


def call(code: str) -> str:
    return f"<think>c</think><python>{code}</python>"


def test_an_episode(env: ToolEnv) -> None:
    question, info = env.reset(options={"task": LIST})
    assert question == LIST.question
    assert info["messages"][-1] == {"role": "user", "content": question}
    result, reward, terminated, truncated, step = env.step(call("items.append(9)\nlen(items)"))
    assert (result, reward, terminated, truncated) == ("\n<result>\n4\n</result>\n", 0.0, False, False)
    assert step["tool"]["name"] == "python"
    result, reward, terminated, truncated, step = env.step(DONE.format(4))
    assert (result, reward, terminated, truncated) == ("", 1.0, True, False)
    assert step["reward_components"] == {"format": 1.0, "accuracy": 1.0, "math": 1.0, "multi_tool": 0.0}


def test_a_fork_continues_like_the_original_and_then_goes_its_own_way(env: ToolEnv) -> None:
    env.reset(seed=3, options={"task": LIST})
    env.step(call("import random; random.seed(3); g = (n * n for n in range(9)); next(g), random.random()"))
    twin = env.fork()
    assert twin.np_random.random() == env.np_random.random()
    same = call("(next(g), random.random(), items)")
    assert env.step(same)[0] == twin.step(same)[0]
    env.step(call("items.append('mine')"))
    result, *_, info = twin.step(call("items"))
    assert ("mine" in result, info["tool_calls"]) == (False, 3)
    assert env.step(DONE.format(1))[1:3] == (0.0, True)
    assert twin.step(DONE.format(4))[1:3] == (1.0, True)  # the twin is still there after the original ended
    twin.close()


def test_reset_gives_a_fresh_interpreter_and_a_closed_environment_opens_nothing_until_then(env: ToolEnv) -> None:
    env.reset(options={"task": LIST})
    env.step(call("x = 5"))
    env.reset(options={"task": LIST})
    assert "NameError" in env.step(call("x"))[0]
    env.close()
    env.close()
    with pytest.raises(ResetNeeded):
        env.step(call("x"))
    env.reset(options={"task": LIST})
    assert "[1, 2, 3]" in env.step(call("items"))[0]


def test_a_time_out_is_shown_and_a_killed_session_is_replaced(isolation: str) -> None:
    env = gym.make("arpo/Arithmetic-v0", level=3, tool_timeout=0.5)
    env.reset(options={"task": LIST})
    assert env.step(call("while True: pass"))[4]["tool"]["status"] == "timeout"
    assert "all variables are lost" in env.step(call("import os; items = 1; os._exit(3)"))[0]
    assert "[1, 2, 3]" in env.step(call("items"))[0]  # fresh, with the task's setup
    env.close()


def test_after_the_last_allowed_call_the_model_is_asked_to_answer(isolation: str) -> None:
    env = gym.make("arpo/Arithmetic-v0", level=3, max_tool_calls=1, max_turns=3)
    env.reset(options={"task": LIST})
    env.step(call("n = 1"))
    result, _, terminated, _, info = env.step(call("n = 2"))
    assert NO_CALLS in result
    assert (terminated, info["tool"]["status"], info["tool_calls"]) == (False, "refused", 1)
    _, reward, terminated, truncated, info = env.step(call("1"))  # the last turn
    assert (reward, terminated, truncated, info["outcome"]) == (-1.0, False, True, "truncated")
    env.close()


def test_a_malformed_turn_is_told_and_costs_the_format(env: ToolEnv) -> None:
    env.reset(options={"task": LIST})
    assert "Error: python was closed but not opened" in env.step("len(items)</python>")[0]
    _, reward, *_, info = env.step(DONE.format(4))
    assert reward == -1.0
    assert info["reward_components"] == {"format": 0.0, "accuracy": 1.0, "math": 1.0, "multi_tool": 0.0}
    assert info["format_fault"].startswith("turn 1: python was closed but not opened")


def test_the_last_step_says_what_was_wrong_with_the_format(env: ToolEnv) -> None:
    for turn, fault in (
        (DONE.format(4), None),
        ("<think>d</think><answer>4</answer>", "turn 1: the answer is not in \\boxed{}"),
        ("<answer>\\boxed{4}</answer>", "thoughts, results or the answer are not as the protocol arpo-tags has them"),
    ):
        env.reset(options={"task": LIST})
        _, reward, *_, info = env.step(turn)
        assert (reward, info.get("format_fault")) == (-1.0 if fault else 1.0, fault)


def test_calls_out_of_order_say_so(env: ToolEnv) -> None:
    with pytest.raises(ResetNeeded, match="call reset"):
        env.step("x")
    with pytest.raises(ResetNeeded, match="call reset"):
        env.fork()
    env.reset(seed=0)
    with pytest.raises(TypeError, match=r"one turn of text \(str\), got int: 3"):
        env.step(3)  # type: ignore[arg-type]
    env.step(DONE.format(1))
    with pytest.raises(ResetNeeded, match=r"has ended \(answered\)"):
        env.step("x")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"colour": "red"}, "has no option 'colour'; its options are .*level"),
        ({"serch": "tavily"}, "did you mean 'search' of ToolEnv"),
        ({"language": "de"}, "unknown language 'de'; available: en, zh"),
        ({"tool_timeout": "3"}, "tool_timeout must be a positive finite number, got '3'"),
        ({"protocol": "hermse"}, "unknown protocol 'hermse'; did you mean 'hermes'"),
        ({"scorer": 5}, "unknown grader 5"),
        ({"reward": "reference", "protocol": "hermes"}, "published reward reads tags"),
        ({"judge_model": "m"}, "scorer='judge' only; the scorer is 'math'"),
        ({"search": "corpus.jsonl"}, "there is no tool search"),
        ({"cache_mode": "replay"}, "cache_mode='replay' needs cache="),
        ({"cache": "x.sqlite", "cache_mode": "replai"}, "did you mean 'replay'"),
        ({"cache": Cache("x.sqlite"), "cache_mode": "replay"}, "the cache given is in mode 'record'"),
        ({"page_model": "m"}, "pages='summaries'"),
        ({"search_results": 0}, "search_results must be a whole number of at least 1, not 0"),
        ({"result_characters": "800"}, "result_characters must be a whole number of at least 1, not '800'"),
        ({"folds": -1}, "folds must be a whole number"),
        ({"max_turns": 0}, "must be a whole number of at least 1"),
        ({"max_tool_calls": 2.5}, "must be a whole number of at least 1"),
        ({"tool_limits": {"python": 0}}, r"tool_limits\['python'\] must be a whole number of at least 1"),
        ({"fold_model": "m"}, "allow some with folds=3"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ToolEnv("arpo/Arithmetic-v0", **options)


class Counts(gym.Wrapper[Any, Any, Any, Any]):
    """A wrapper with a state of its own and a reference to what it wraps."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.seen, self.base = [], env.unwrapped

    def step(self, action: Any) -> Any:
        self.seen.append(action)
        return self.base.step(action)


def test_a_fork_goes_through_wrappers_with_their_state(isolation: str) -> None:
    made = gym.make("arpo/Arithmetic-v0", max_episode_steps=3)
    env: Any = gym.wrappers.TimeLimit(Counts(made.unwrapped), max_episode_steps=2)
    env.reset(options={"task": LIST})
    env.step(call("items.append(9)"))
    twin = env.fork()
    assert (type(twin), type(twin.env), type(twin.unwrapped)) == (gym.wrappers.TimeLimit, Counts, ToolEnv)
    assert twin.env.base is twin.unwrapped is not env.unwrapped
    result, _, _, truncated, _ = twin.step(call("items.append(9); len(items)"))  # its second step, as of the original
    assert ("5" in result, truncated) == (True, True)
    assert (len(env.env.seen), len(twin.env.seen)) == (1, 2)
    assert "4" in env.step(call("len(items)"))[0]
    assert not hasattr(gym.make("CartPole-v1"), "fork")
    for one in (env, twin):
        one.close()


@pytest.mark.parametrize("make", [lambda env: play(env, model="m", base_url="http://127.0.0.1:9"), without_checks])
def test_a_wrapper_whose_effect_would_be_lost_is_refused(make: Any) -> None:
    with pytest.raises(ValueError, match=r"TimeLimit .* would be lost.*max_turns"):
        make(gym.make("arpo/Arithmetic-v0", max_episode_steps=3))
    checked = gym.wrappers.OrderEnforcing(ToolEnv("arpo/Arithmetic-v0"))
    assert without_checks(checked) is checked.unwrapped


@pytest.mark.parametrize("index", [5, -1])
def test_reset_takes_one_task_or_the_index_of_one(index: Any) -> None:
    env = ToolEnv("arpo/Arithmetic-v0", limit=5)
    question = env.reset(options={"index": np.int64(4)})[0]
    for one in (env, ToolVectorEnv("arpo/Arithmetic-v0", num_envs=2, limit=5)):
        with pytest.raises(ValueError, match="there are 5, from 0 to 4"):
            one.reset(options={"index": index})
        with pytest.raises(ValueError, match="either a Task as 'task' or an 'index'"):
            one.reset(options={"task": LIST, "index": 3})
        with pytest.raises(TypeError, match="'index' of reset is a whole number, not 'a'"):
            one.reset(options={"index": "a"})
    assert env.episode.task.question == question  # the running episode goes on
    endless = ToolEnv("arpo/Arithmetic-v0")
    assert endless.reset(options={"index": 99_999})[0]


@settings(deadline=None)
@given(st.text() | st.text(alphabet=st.sampled_from("aB \"'`“”search query:´\u0301ßＡ²")))
def test_normalising_again_changes_nothing(text: str) -> None:
    for normalise in (normalise_unicode, normalise_query):
        assert normalise(normalise(text)) == normalise(text)


LEAKY = Task("leaky", "What is the capital?", ("Paris",), setup="answer = 'Paris'\ndel answer")
CLEAN = Task("clean", "What is 6 * n?", ("4218",), kind="math", setup="# marker, it is 4218\nn = 700 + 3")


def test_a_task_whose_setup_holds_its_answer_is_refused_in_a_set_and_at_reset(own_names: None) -> None:
    arpo_env.register("own/Leaky-v0", [CLEAN, LEAKY])
    with pytest.raises(ValueError, match=r"task 'leaky'.*or remove it"):
        ToolEnv("own/Leaky-v0")
    arpo_env.register("own/Clean-v0", [CLEAN])
    env = ToolEnv("own/Clean-v0")
    with pytest.raises(ValueError, match=r"task 'leaky': line 1 of its setup holds the gold answer 'Paris'"):
        env.reset(options={"task": LEAKY})
    assert env.reset(options={"task": CLEAN})[0] == CLEAN.question
