"""Tools of an endpoint: `arpo eval` and `arpo rollout` ask it as `arpo_env.play` does, and read its answers so.

The endpoint writes the whole conversation by the chat template of a family of models, as vLLM does, and either parses
the calls of its model or leaves them in the text.
"""

import copy
import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest

import arpo_env
from arpo_env import EnvFactory
from arpo_env.adapters import play
from arpo_env.chat_messages import unparsed_call
from arpo_env.protocols import make_protocol
from arpo_trainer.cli.arpo_command import main
from arpo_trainer.tree import read_traces
from tests.adapters.chat_policy import scripted
from tests.adapters.scripts import Script, native_rewards
from tests.arpo_env.chat_server import Answer, ChatServer, chat_server, reply

TASKS = 6
TEMPLATES = Path(str(importlib.util.find_spec("trl").origin)).parent / "chat_templates"  # type: ignore[union-attr]
# vLLM's parser for each family of TRL's templates, by the beginning of a template's name
PARSERS = {
    "qwen2_5": "hermes",
    "qwen3": "hermes",
    **dict.fromkeys(("qwen3_5", "qwen3_6", "qwen3_8", "nemotron_3"), "qwen3_coder"),
    "glm4moe": "glm45",
    "gptoss": "openai",
    "llama3": "llama3_json",
    "lfm2": "lfm2",
    **dict.fromkeys(("gemma4", "diffusion_gemma"), "gemma4"),
    "muse_glimmer": "muse_glimmer",
    "deepseekv3": "deepseek_v3",
}
READ_HERE = {"hermes": "native", "llama3_json": "llama3"}  # the protocols that read the form of a parser


@pytest.fixture(autouse=True)
def unknown_endpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether an endpoint parses calls is known by its address, and addresses come again."""
    monkeypatch.setattr(play, "_parsing", set())


class Family:
    """How the models of one of TRL's chat templates are asked, and how they write."""

    def __init__(self, template: str, tokenizer: Any) -> None:
        from trl.chat_template_utils import supports_tool_calling

        self._tokenizer = copy.deepcopy(tokenizer)
        self._tokenizer.chat_template = (TEMPLATES / f"{template}.jinja").read_text(encoding="utf-8")
        self.calls_tools = supports_tool_calling(self._tokenizer)

    def prompt(self, messages: list[dict[str, Any]], tools: Any, to_go_on: bool = True) -> str:
        """Return a conversation as the model reads it, up to where it goes on."""
        given = [self._arguments_read(each) for each in messages]
        ask = self._tokenizer.apply_chat_template
        try:
            return str(ask(given, tools=tools, add_generation_prompt=to_go_on, tokenize=False))
        except TypeError:  # DeepSeek V3 takes arguments as text
            return str(ask(messages, tools=tools, add_generation_prompt=to_go_on, tokenize=False))

    def written(self, messages: list[dict[str, Any]], message: dict[str, Any], tools: Any) -> str:
        """Return the next message as the model writes it."""
        prompt, whole = self.prompt(messages, tools), self.prompt([*messages, message], tools, to_go_on=False)
        pairs = enumerate(zip(prompt, whole, strict=False))
        return whole[next((place for place, (one, other) in pairs if one != other), len(prompt)) :]

    def _arguments_read(self, message: dict[str, Any]) -> dict[str, Any]:
        read = copy.deepcopy(message)
        for call in read.get("tool_calls", ()):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
        return read


def unparsed(family: Family, script: Script) -> Answer:
    """Return answers of the script, of a model of this family at a server that leaves calls in the text."""

    def answer(body: dict[str, Any]) -> tuple[int, Any]:
        message = script.message(body["messages"])
        if not message.get("tool_calls") or message["tool_calls"][0]["id"] == "call_bad":  # which no template writes
            return 200, reply(message["content"] or "Hm.")
        return 200, reply(family.written(body["messages"], {**message, "content": ""}, body["tools"]))

    return answer


def parsed(script: Script, thoughts: str) -> Answer:
    """Return answers of the script, at a server that parses calls and gives thoughts apart, in this field."""

    def answer(body: dict[str, Any]) -> tuple[int, Any]:
        for each in body["messages"][1:]:
            assert each.get(thoughts) == ("I call a tool." if each.get("tool_calls") else None), each
        message = script.message(body["messages"])
        calls = message.get("tool_calls")
        if not calls or calls[0]["id"] == "call_bad":
            return 200, reply(message["content"] or "Hm.", **({"tool_calls": calls} if calls else {}))
        return 200, reply(None, tool_calls=calls, finish_reason="tool_calls", **{thoughts: message["content"]})

    return answer


def command(name: str, protocol: str, server: ChatServer, model: Path, output: Path) -> list[str]:
    options = f"--env-set level=2 split=test protocol={protocol} --tasks {TASKS} --output {output}".split()
    endpoint = ["--model", str(model), "--endpoint", server.address, "--endpoint-model", "m"]
    single = [] if name == "eval" else ["--num-generations", "1"]
    return [name, "arpo/Arithmetic-v0", *options, *endpoint, *single]


def asked(bodies: list[dict[str, Any]]) -> set[str]:
    """What the requests had of the conversation and its tools; each call has its result, by whatever id."""
    for body in bodies:
        calls = [call["id"] for message in body["messages"] for call in message.get("tool_calls", ())]
        assert calls == [message["tool_call_id"] for message in body["messages"] if message["role"] == "tool"]
    said = (json.dumps([body["messages"], body.get("tools"), body.get("stop")]) for body in bodies)
    return {re.sub(r"call_\d+_\d+", "ID", each) for each in said}


@pytest.mark.parametrize(
    ("name", "protocol"), [("eval", "native"), ("rollout", "hermes"), ("eval", "llama3"), ("eval", "arpo-tags")]
)
@pytest.mark.usefixtures("isolation")
def test_an_endpoint_is_asked_and_read_as_by_play(name: str, protocol: str, served_model: Path, tmp_path: Path) -> None:
    script = Script(EnvFactory("arpo/Arithmetic-v0", level=2, split="test", protocol=protocol), TASKS)
    with chat_server(scripted(script)) as server:
        played = arpo_env.play(script.factory, TASKS, base_url=server.address, model="m")
        theirs, server.bodies = server.bodies, []
        assert main(command(name, protocol, server, served_model, tmp_path)) == 0
    trees = {tree.task["id"]: tree.trajectories[0] for tree in read_traces(tmp_path / "traces.jsonl")}
    assert asked(server.bodies) == asked(theirs)
    ended = [(each.reward, each.outcome, each.info["tool_calls"]) for each in played]
    assert [(t.reward, t.outcome, t.tool_calls) for t in (trees[each.task.id] for each in played)] == ended
    assert {1.0, 0.0} <= {reward for reward, _, _ in ended}
    assert all(bool(body.get("tools")) == (protocol != "arpo-tags") for body in server.bodies)


@pytest.mark.parametrize("message", ['"auto" tool choice requires --enable-auto-tool-choice', "does not support tools"])
@pytest.mark.usefixtures("isolation")
def test_an_endpoint_that_refuses_tools_names_the_cure(
    message: str, served_model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def answer(body: dict[str, Any]) -> tuple[int, Any]:
        return (400, {"error": {"message": message}}) if body.get("tools") else (200, reply("7"))

    with chat_server(answer) as server:
        assert main(command("eval", "hermes", server, served_model, tmp_path)) == 1
        [played] = arpo_env.play(
            EnvFactory("arpo/Arithmetic-v0", protocol="hermes"), 1, base_url=server.address, model="m"
        )
    for said in (caplog.text, str(played.error)):
        assert "--enable-auto-tool-choice" in said
        assert "protocol=arpo-tags" in said


def rewards_in(folder: Path, script: Script) -> list[float | None]:
    rewards = {tree.task["id"]: tree.trajectories[0].reward for tree in read_traces(folder / "traces.jsonl")}
    return [rewards[task.id] for task in script.tasks]


# thoughts come in a field whose name depends on the version of the server
@pytest.mark.parametrize(("template", "thoughts"), [("qwen3_5_think", "reasoning_content"), ("gptoss", "reasoning")])
@pytest.mark.usefixtures("isolation")
def test_a_server_that_does_not_parse_stops_the_run(
    template: str, thoughts: str, tokenizer: Any, served_model: Path, tmp_path: Path, capsys: Any
) -> None:
    script = Script(EnvFactory("arpo/Arithmetic-v0", level=2, split="test", protocol="native"), TASKS)
    with chat_server(unparsed(Family(template, tokenizer), script)) as server:
        asked = command("eval", "native", server, served_model, tmp_path)
        assert main(asked) == 1
        assert len(server.bodies) <= TASKS + 1
        [played] = arpo_env.play(script.factory, 1, base_url=server.address, model="m")
    said = capsys.readouterr().err
    for text in (said, str(played.error)):
        assert f"--enable-auto-tool-choice --tool-call-parser {PARSERS[template[:7].rstrip('_')]}" in text
    assert isinstance(played.error, play.ToolsNotServed)
    assert played.reward is None
    # an episode that needed no call may have ended before the first failure
    assert "Nothing is stored" in said or "go on with --resume" in said
    # nothing of it was scored: the same folder goes on at a server that parses
    with chat_server(parsed(script, thoughts)) as server:
        again = ["--endpoint", server.address, "--endpoint-model", "m", "--model", str(served_model)]
        assert main(["eval", "--resume", "--output", str(tmp_path), *again]) == 0
    assert rewards_in(tmp_path, script) == native_rewards(script)


@pytest.mark.usefixtures("isolation")
def test_what_a_server_that_parses_leaves_is_the_models_own_fault(tokenizer: Any) -> None:
    factory = EnvFactory("arpo/Arithmetic-v0", protocol="native")
    foreign = "<function=python>\n<parameter=code>\n1\n</parameter>\n</function>"
    call = {"id": "a", "type": "function", "function": {"name": "python", "arguments": '{"code": "1"}'}}
    replies = iter([reply(None, tool_calls=[call]), *[reply(foreign)] * 3])
    with chat_server(lambda _: (200, next(replies))) as server:
        first = arpo_env.play(factory, base_url=server.address, model="m", seed=0, concurrency=1)
        second = arpo_env.play(factory, base_url=server.address, model="m", seed=0, concurrency=1)
    assert [each.error for each in (first, second)] == [None, None]
    assert [each.reward for each in (first, second)] == [-1.0, -1.0]


def tool_templates() -> list[str]:
    return sorted(file.stem for file in TEMPLATES.glob("*.jinja") if not file.stem.endswith("_training"))


@pytest.mark.parametrize("template", tool_templates())
def test_a_call_in_the_text_is_known_by_the_form_of_its_family(template: str, tokenizer: Any) -> None:
    family = Family(template, tokenizer)
    if not family.calls_tools:
        return
    tools = EnvFactory("arpo/Arithmetic-v0", protocol="native")().schemas
    function = {"name": "python", "arguments": json.dumps({"code": "print(f'{1}')"})}
    message = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "123456789", "type": "function", "function": function}],
    }
    text = family.written([{"role": "user", "content": "hi"}], message, tools).rpartition("</think>")[2]
    bare = re.sub(r"<\|[^<>]*>|<[^<>]*\|>", "", text)  # as of a server that leaves special tokens out

    def parsers(text: str) -> set[str]:
        found = [unparsed_call(text, tools, make_protocol(name)).partition(" ")[0] for name in READ_HERE.values()]
        # what a protocol reads itself needs no parser
        assert all(READ_HERE.get(other) != name for name, other in zip(READ_HERE.values(), found, strict=True))
        return {name for name in found if name}

    known = max((name for name in PARSERS if template.startswith(name)), key=len, default="")
    assert parsers(text) == {PARSERS[known]} if known else len(parsers(text)) == 1, text
    assert parsers(bare) == {PARSERS[known].replace("lfm2", "pythonic")} if known else len(parsers(bare)) == 1, bare
    quotations = [
        f"<think>I could write {text}</think>It is 7.",
        f"One writes\n```\n{text}\n```",
        text.replace("python", "pyhton"),
        text[: text.index("print")],
        "It begins with `<tool_call>`, <|tool_call>call: or <function=python>, and the answer is {7}.",
    ]
    assert [parsers(each) for each in quotations] == [set()] * len(quotations)
