"""Environments in TRL's own `GRPOTrainer`: real steps of a tiny Qwen3 whose `generate` writes what a script says."""

import gc
import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest

pytest.importorskip("torch")
pytest.importorskip("trl")

import torch
import trl
from transformers import Qwen3Config, Qwen3ForCausalLM
from transformers.utils import get_json_schema
from trl import GRPOConfig, GRPOTrainer

from arpo_env import EnvFactory
from arpo_env.adapters import chat_episode
from arpo_env.adapters.trl import TRLSpec, environment_reward, trl_spec
from arpo_env.grading.grader import Grader, Score
from envs_registry import Task
from tests.waiting import wait_for

from .byte_level import byte_level
from .scripts import KINDS, Script, as_text, breaking_sandbox, native_rewards, own_sandbox, script_for, sets

TEMPLATE = Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja"
RESULT = re.compile(r"<tool_response>\n(.*?)\n</tool_response>", re.DOTALL)


class ScriptedQwen(Qwen3ForCausalLM):
    """A model of two layers that generates the turns of scripts; everything around `generate` is TRL's."""

    def prepare(self, tokenizer: Any, scripts: list[Script], before: Callable[[int], None]) -> None:
        self.tokenizer, self.scripts, self.before = tokenizer, scripts, before

    def generate(self, input_ids: Any, attention_mask: Any, **_: Any) -> Any:
        turns = [self.turn(ids[mask.bool()]) for ids, mask in zip(input_ids, attention_mask, strict=True)]
        ids = self.tokenizer(turns, add_special_tokens=False, padding_side="right", padding=True, return_tensors="pt")
        return torch.cat([input_ids, ids["input_ids"]], dim=1)

    def turn(self, ids: Any) -> str:
        prompt = self.tokenizer.decode(ids)
        turn = prompt.count("<|im_start|>assistant\n") - 1
        self.before(turn)
        script = next(one for one in self.scripts if any(question in prompt for question in one.numbers))
        message = script.turn(script.number_of(prompt), turn, (RESULT.findall(prompt) or [""])[-1])
        return f"{as_text(message)}<|im_end|>"


def small_tokenizer(scripts: Sequence[Script]) -> Any:
    """A tokenizer of 1200 tokens, with which a step takes a second: bytes, and pieces of the questions and schemas."""
    texts = [json.dumps(get_json_schema(lookup)), *(task.question for script in scripts for task in script.tasks)]
    return byte_level(TEMPLATE.read_text(encoding="utf-8"), texts * 2, 940)


def make_trainer(
    spec: TRLSpec, folder: Path, *scripts: Script, before: Callable[[int], None] = lambda turn: None, **settings: Any
) -> tuple[GRPOTrainer, dict[Any, list[float | None]]]:
    """A trainer that plays each row twice, and where it notes the rewards by the row's task."""
    tokenizer = small_tokenizer(scripts)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "head_dim": 8}
    config = Qwen3Config(vocab_size=len(tokenizer), num_attention_heads=2, num_key_value_heads=1, **sizes)
    model = ScriptedQwen(config)
    model.prepare(tokenizer, list(scripts), before)
    given = {
        "per_device_train_batch_size": 10,
        "num_generations": 2,
        "max_completion_length": 2000,
        "max_tool_calling_iterations": spec.max_tool_calling_iterations,
        "num_train_epochs": 1,
        "logging_steps": 1,
        "shuffle_dataset": False,
        "save_strategy": "no",
        "report_to": [],
        "use_cpu": True,
        "bf16": False,
        "disable_tqdm": True,
        **settings,
    }
    seen: dict[Any, list[float | None]] = defaultdict(list)

    def environment_and_note(**columns: Any) -> list[float | None]:
        rewards = environment_reward(**columns)
        for key, reward in zip(zip(columns["env_id"], columns["index"], strict=True), rewards, strict=True):
            seen[key].append(reward)
        return rewards

    arguments = {**spec.kwargs, "reward_funcs": [environment_and_note for _ in spec.reward_funcs]}
    return GRPOTrainer(model, args=GRPOConfig(str(folder), **given), processing_class=tokenizer, **arguments), seen


def logged(trainer: GRPOTrainer, name: str) -> list[float]:
    return [float(line[name]) for line in trainer.state.log_history if name in line]


def twice(script: Script) -> dict[Any, list[float]]:
    return {(script.factory.id, index): [each] * 2 for index, each in enumerate(native_rewards(script))}


def limited(script: Script) -> EnvFactory:
    return EnvFactory(script.factory.id, **{**script.factory.options, "limit": script.episodes})


@pytest.mark.parametrize("env_id", sets())
def test_rewards_are_those_of_the_environment_and_calls_happen(env_id: str, isolation: str, tmp_path: Path) -> None:
    """Ten trajectories a step, so that TRL uses its environments again and again."""
    script = script_for(env_id, "hermes")
    trainer, seen = make_trainer(trl_spec(limited(script)), tmp_path, script)
    trainer.train()
    assert trainer.state.global_step == 2 * script.episodes // 10
    assert seen == twice(script)
    assert {1.0, 0.0, -1.0} <= {reward for pair in seen.values() for reward in pair}
    if "python" in script.tools:  # variables stay alive
        assert seen[env_id, KINDS.index("state")] == [1.0, 1.0]
    assert min(logged(trainer, "tools/call_frequency")) > 0.5
    # TRL answers calls of unknown tools itself, and counts them
    assert 0 < max(logged(trainer, "tools/failure_frequency")) < 0.5
    assert logged(trainer, "void") == [0.0] * trainer.state.global_step


def test_environments_with_different_tools_share_a_run(isolation: str, tmp_path: Path) -> None:
    one, other = (Script(EnvFactory(f"arpo/{name}-v0", protocol="hermes"), 6) for name in ("Arithmetic", "MultiHop"))
    spec = trl_spec({"calculate": limited(one), "look up": limited(other)})
    trainer, seen = make_trainer(spec, tmp_path, one, other, per_device_train_batch_size=12, shuffle_dataset=True)
    trainer.train()
    assert seen == {**twice(one), **twice(other)}
    assert sorted(trainer._env_tools) == ["calculate", "look up"]
    assert {tool.__name__ for tool in trainer._env_tools["calculate"]} == {"python"}


def test_a_broken_sandbox_is_never_a_reward(tmp_path: Path) -> None:
    """It breaks after the first calls of the second step; at the third there is no reward at all."""
    with breaking_sandbox() as (factory, end):
        script = Script(EnvFactory(factory.id, protocol="hermes", **factory.options), 15)
        turns: list[int] = []

        def before(turn: int) -> None:
            turns.append(turn)
            if len([each for each in turns if each == 0]) == 20 and turn == 1:
                end()

        expected = twice(script)
        trainer, seen = make_trainer(trl_spec(limited(script)), tmp_path, script, before=before)
        trainer.train()
    assert trainer.state.global_step == 3
    by_step = [{key: seen[key] for key in list(expected)[start : start + 5]} for start in (0, 5, 10)]
    assert by_step[0] == {key: expected[key] for key in by_step[0]}
    # what had made its last call before has its reward; what called later has none
    kinds = [KINDS[index % len(KINDS)] for _, index in by_step[1]]
    assert kinds == ["endless", "right", "state", "wrong", "malformed"]
    assert [seen[key] == expected[key] for key in by_step[1]] == [False, True, False, True, True]
    assert [by_step[1][key] for key in by_step[1] if by_step[1][key] != expected[key]] == [[None, None]] * 2
    assert logged(trainer, "void") == pytest.approx([0.0, 0.4, 0.8])
    # a loss or a gradient that is not a number would spoil the model
    assert all(math.isfinite(loss) for loss in logged(trainer, "loss"))
    assert all(bool(each.isfinite().all()) for each in trainer.model.parameters())


def test_a_step_without_any_reward_changes_nothing(tmp_path: Path) -> None:
    with breaking_sandbox() as (factory, end):
        script = Script(EnvFactory(factory.id, protocol="hermes", tools=["python"], **factory.options), 2)
        end()
        settings = {"per_device_train_batch_size": 4, "learning_rate": 0.1, "weight_decay": 0.0}
        trainer, seen = make_trainer(trl_spec(limited(script)), tmp_path, script, **settings)
        before = [each.detach().clone() for each in trainer.model.parameters()]
        trainer.train()
    assert list(seen.values()) == [[None, None]] * 2
    assert logged(trainer, "void") == [1.0]
    assert all(torch.equal(old, new) for old, new in zip(before, trainer.model.parameters(), strict=True))


def answer(text: str, **more: Any) -> list[dict[str, Any]]:
    return [{"role": "assistant", "content": text, **more}]


def test_an_object_starts_anew_after_a_failure(tmp_path: Path) -> None:
    with breaking_sandbox() as (factory, end):
        spec = trl_spec(EnvFactory(factory.id, limit=1, **factory.options))
        [row] = spec.train_dataset
        played: Any = spec.environment_factory()
        end()
        played.reset(**row)
        with pytest.raises(RuntimeError, match="the tools are not available"):
            played.python(code="1")
        right = answer(f"\\boxed{{{factory().tasks.task(0).answers[0]}}}")
        assert environment_reward([right], [played]) == [None]
        assert played.episode.reward is None
        played.reset(**row)
        assert environment_reward([right, answer("")], [played, "of somebody else"]) == [1.0, None]
        assert environment_reward([answer("\\boxed{0}")], [played]) == [1.0], "the episode has ended"


def test_an_object_that_is_dropped_closes_its_session() -> None:
    with own_sandbox() as (sandbox, _):
        spec = trl_spec("arpo/Arithmetic-v0", limit=1, sandbox=sandbox)
        played: Any = spec.environment_factory()
        played.reset(**spec.train_dataset[0])
        played.python(code="1")
        assert sandbox.stats()["sessions"] == 1
        del played
        gc.collect()
        wait_for(lambda: sandbox.stats()["sessions"] == 0)


def test_limits_hold_and_the_model_is_told(isolation: str) -> None:
    spec = trl_spec("arpo/Arithmetic-v0", limit=1, max_tool_calls=2)
    played: Any = spec.environment_factory()
    played.reset(**spec.train_dataset[0])
    said = [played.python(code=f"{number}") for number in range(8)]
    assert said[:2] == ["0", "1"]
    assert {*said[2:]} == {"No tool calls are left. Answer now with what you have."}
    assert spec.max_tool_calling_iterations == 5
    few = trl_spec("arpo/Arithmetic-v0", limit=1, max_turns=2)
    assert few.max_tool_calling_iterations == 1
    played = few.environment_factory()
    played.reset(**few.train_dataset[0])
    said = [played.python(code="1") for _ in range(4)]
    assert {*said[1:]} == {"The episode has ended: no more calls are possible."}
    assert environment_reward([answer("")], [played]) == [-1.0], "calls after the end are no failure of ours"


def test_thoughts_and_cut_messages_are_graded_as_the_environment_would(isolation: str) -> None:
    spec = trl_spec("arpo/Arithmetic-v0", limit=1)
    env = spec.environment_factory.factory()
    gold = f"\\boxed{{{env.tasks.task(0).answers[0]}}}"
    call = {"type": "function", "function": {"name": "python", "arguments": {"code": "1"}}}
    tool = {"role": "tool", "name": "python", "content": "1"}
    cases = [
        (answer(gold, reasoning_content="I know."), 1.0),
        (answer("no", thinking=f"Is it {gold}?"), -1.0),
        ([*answer("", tool_calls=[call]), tool], -1.0),  # as the environment's own reward of a truncated episode
        ([*answer("", tool_calls=[call]), tool, *answer(gold)], 1.0),
        ([*answer("<tool_response>1</tool_response>", tool_calls=[call]), tool, *answer(gold)], -1.0),
        (answer(f'<tool_call>{{"name": "python", "arguments": {{"code": "x"}}}}</tool_call>{gold}'), -1.0),
        (answer(f"<tool_call>{{{gold}"), -1.0),
    ]
    for completion, expected in cases:
        played: Any = spec.environment_factory()
        played.reset(**spec.train_dataset[0])
        assert environment_reward([completion], [played]) == [expected], completion


def test_an_answer_that_is_handed_in_ends_the_episode(isolation: str) -> None:
    """Nothing after it is a failure of ours, or a second answer; and what it quotes is not executed."""
    spec = trl_spec("arpo/Arithmetic-v0", limit=1, answer_tool=True)
    [row] = spec.train_dataset
    gold = spec.environment_factory.factory().tasks.task(0).answers[0]
    call = '<tool_call>{"name": "python", "arguments": {"code": "1"}}</tool_call>'
    cases = [(gold, 1.0), (f"{call}\\boxed{{{gold}}}", 1.0), ("<think>" + call, -1.0), ("\ud800", 0.0)]
    played: Any = spec.environment_factory()
    for given, expected in cases:
        played.reset(**row)
        assert played.answer(text=gold) == "answer takes one argument, answer, a string"
        assert played.python(code="6 * 7") == "42"
        assert played.answer(answer=given) == "The answer was taken. The episode has ended."
        for again in (played.python(code="1"), played.answer(answer=gold)):
            assert again == "The episode has ended: no more calls are possible."
        assert played.get_reward() == expected, given
        assert played.episode.info["tool_calls"] == 1
    played.reset(**row)
    assert played.get_reward() == -1.0
    assert not hasattr(trl_spec("arpo/Arithmetic-v0", limit=1).environment_factory(), "get_reward")
    with pytest.raises(ValueError, match="adds a tool 'answer'"):
        trl_spec(EnvFactory("arpo/Arithmetic-v0", tools=["python", chat_episode.answer]), answer_tool=True)


def lookup(
    city: str,
    units: Literal["metric", "imperial"] = "metric",
    tags: list[str] | None = None,
    share: float = 0.5,
    more: dict[str, Any] | None = None,
) -> str:
    """Look up the weather.

    Args:
        city: the name: in English,
            without the country.
        units: of the numbers.
        tags: what else.
        share: of the day.
        more: for experts.
    """
    return f"{city} {units} {tags} {share} {more}"


def test_methods_have_the_schemas_of_the_tools() -> None:
    spec = trl_spec(EnvFactory("arpo/Arithmetic-v0", limit=1, tools=["python", "search", lookup], search="x"))
    played: Any = spec.environment_factory()
    played.reset(**spec.train_dataset[0])
    env = spec.environment_factory.factory()
    for schema in env.schemas:
        name = schema["function"]["name"]
        read = get_json_schema(getattr(played, name))
        for value in read["function"]["parameters"]["properties"].values():
            if value.pop("nullable", False):  # how transformers writes it
                value["type"] = [value["type"], "null"]
        read["function"]["parameters"].setdefault("required", [])
        assert read == schema
    assert played.lookup(city="Rome") == lookup("Rome")
    assert played.lookup(city="Rome", units="imperial", tags=["a"]) == lookup("Rome", "imperial", tags=["a"])


def test_what_a_signature_cannot_say_is_in_the_description() -> None:
    from arpo_env.adapters.trl import RESERVED, method_class

    class Base:
        def _call(self, name: str, arguments: Any) -> str:
            return f"{name} {arguments}"

    inner = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    parameters = {"type": "object", "properties": {"at": inner, "n": {"minimum": 1}, "e": {"enum": [1, 2]}}}
    schema = {"function": {"name": "get-point", "description": "Get.\n\nMore.", "parameters": parameters}}
    made: Any = method_class(Base, [schema])
    assert made is method_class(Base, [schema])
    read = get_json_schema(getattr(made(), "get-point"))["function"]
    properties = read["parameters"]["properties"]
    assert read["description"] == "Get. More."
    assert '"properties": {"x": {"type": "integer"}}' in properties["at"]["description"]
    assert properties["n"] == {"description": 'n JSON schema: {"minimum": 1}'}
    assert getattr(made(), "get-point")(at={"x": 1}) == "get-point {'at': {'x': 1}}"
    bad = {"parameters": {"properties": {"max-results": {}}}}
    for name, more, said in (("reset", {}, "named 'reset'"), ("_x", {}, "named '_x'"), ("get", bad, "'max-results'")):
        with pytest.raises(ValueError, match=said):
            method_class(Base, [{"function": {"name": name, **more}}], RESERVED)


def test_a_grader_that_raises_is_no_reward_and_ends_no_training() -> None:
    class Broken(Grader):
        async def grade(self, answer: str, task: Task) -> Score:
            raise KeyError(answer)

    spec = trl_spec("arpo/Arithmetic-v0", limit=1, scorer=Broken())
    played = spec.environment_factory()
    played.reset(**spec.train_dataset[0])
    assert environment_reward([answer("\\boxed{1}")], [played]) == [None]
    assert isinstance(played.fault, KeyError)


def test_bad_input_names_the_cure() -> None:
    with pytest.raises(ValueError, match="protocol='hermes'"):
        trl_spec("arpo/Arithmetic-v0", protocol="arpo-tags")
    with pytest.raises(ValueError, match=r"without end.*limit"):
        _ = trl_spec("arpo/Arithmetic-v0").train_dataset
    with pytest.raises(ValueError, match="give GRPOTrainer the environment_factory too"):
        environment_reward([[]])
