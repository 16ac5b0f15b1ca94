"""Sets whose tools have to be found: invented rows with the columns of the real ones, played from search to reward."""

import json
from pathlib import Path
from typing import Any

import pytest

from arpo_env import ToolEnv
from arpo_env.episode import Call, Episode, Turn
from arpo_env.tools.tool import Status
from envs_registry import Task, load_source
from envs_registry.datasets.hub import HubError
from envs_registry.datasets.tool_sets import openapi_functions, right_path
from tests.arpo_env.chat_server import chat_server, saying
from tests.envs_registry.datasets.sample_rows import sample_file

TOWN = {"name": "town", "in": "query", "required": True, "schema": {"type": "string"}, "description": "Its name."}
BODY = {"properties": {"name": {"type": "string"}, "terms": {"type": "integer"}}, "required": ["name"]}
SPEC = {
    "components": {"parameters": {"Id": {"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}}},
    "paths": {
        "/search/town": {"get": {"summary": "Find", "description": "Finds a town by name.", "parameters": [TOWN]}},
        "/town/{id}/mayor": {
            "parameters": [{"$ref": "#/components/parameters/Id"}],
            "get": {"summary": "Mayor", "description": "Names the mayor of a town.", "responses": {}},
            "put": {"summary": "Elect", "requestBody": {"content": {"application/json": {"schema": BODY}}}},
        },
    },
}
QUERIES = [
    {"query": "Who is the mayor of Oberland?", "solution": ["GET /search/town", "GET /town/{id}/mayor"]},
    {"query": "Unknown call", "solution": ["GET /nowhere"]},
    {"query": "", "solution": ["GET /search/town"]},
]
API = {
    "category_name": "Towns",
    "tool_name": "Town Facts",
    "api_name": "Mayor of",
    "api_description": "Names the mayor of a town.",
    "required_parameters": [{"name": "town", "type": "STRING", "description": "", "default": ""}],
    "optional_parameters": [],
}
INSTRUCTION = {"query": "Who is mayor?", "api_list": [API], "relevant APIs": [["Town Facts", "Mayor of"]]}


def call(env: ToolEnv, name: str, /, **arguments: Any) -> str:
    return env.step(f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>")[0]


def test_operations_of_openapi_become_functions_with_all_their_arguments() -> None:
    functions = openapi_functions(SPEC)
    assert set(functions) == {"GET /search/town", "GET /town/{id}/mayor", "PUT /town/{id}/mayor"}
    put = functions["PUT /town/{id}/mayor"]
    kinds = {name: schema["type"] for name, schema in put["parameters"]["properties"].items()}
    assert (put["name"], put["parameters"]["required"]) == ("put_town_id_mayor", ["id", "name"])
    assert kinds == {"id": "integer", "name": "string", "terms": "integer"}


@pytest.mark.parametrize(("calls", "reward"), [((0, 1), 1.0), ((1, 0), 0.0), ((0,), 0.0), ((0, 2, 1), 1.0)])
def test_restbench_is_solved_by_the_gold_path_in_order(tmp_path: Path, calls: tuple[int, ...], reward: float) -> None:
    arguments: dict[str, Any] = {
        "get_search_town": {"town": "Oberland"},
        "get_town_id_mayor": {"id": 3},
        "put_town_id_mayor": {"id": 3, "name": "Ada"},
    }
    (tmp_path / "tmdb.json").write_text(json.dumps(QUERIES))
    (tmp_path / "tmdb_oas.json").write_text(json.dumps(SPEC))
    with chat_server(saying('{"id": 3}')) as server:
        env = ToolEnv("arpo/TMDB-v0", data=str(tmp_path), tool_model="sim", model_url=server.address)
        env.reset(options={"index": 0})
        env.step("<tool_search>mayor of a town, find a town, elect</tool_search>")
        for number in calls:
            name = list(arguments)[number]
            assert '{"id": 3}' in call(env, name, **arguments[name])
        _, earned, done, _, info = env.step("\\boxed{Ada Nowhere}")
    assert (earned, done, info["reward_components"]["accuracy"]) == (reward, True, reward)
    assert info["reward_components"]["right_calls"] == len({0, 1} & set(calls))
    env.close()


def test_toolbench_is_solved_by_its_relevant_apis(tmp_path: Path) -> None:
    broken = {**INSTRUCTION, "api_list": [{**API, "required_parameters": ["town"]}, 5]}
    lists = {"api_list": json.dumps([API]), "relevant_apis": json.dumps(INSTRUCTION["relevant APIs"])}
    rows = [INSTRUCTION, broken, {"query": "x", "api_list": None}, {"query": "As the hub has it?", **lists}]
    (tmp_path / "G1.json").write_text(json.dumps(rows))
    with chat_server(saying('{"name": "Ada"}')) as server:
        env = ToolEnv("arpo/ToolBench-v0", data=str(tmp_path / "G1.json"), tool_model="sim", model_url=server.address)
        env.reset(options={"index": 0})
        env.step("<tool_search>mayor</tool_search>")
        assert "Ada" in call(env, "mayor_of_for_town_facts", town="Oberland")
        assert env.step("\\boxed{Ada}")[1] == 1.0
    assert env.tasks.left_out == 1  # the second row's document stands in the first row as well
    assert [task.answers for task in env.tasks.tasks] == [("mayor_of_for_town_facts",)] * 3
    env.close()


def test_toolhop_runs_its_functions_in_the_sandbox(tmp_path: Path, isolation: str) -> None:
    env = ToolEnv("arpo/ToolHop-v0", data=str(sample_file("arpo/ToolHop-v0", tmp_path)))
    env.reset(options={"index": 1})
    shown = env.step("<tool_search>founder of a town, count letters</tool_search>")[0]
    assert '"name": "town_lookup_2"' in shown  # equal names of other rows are told apart
    looked_up = call(env, "town_lookup_2", town="Oberland 1")
    assert "AAAAAAAA\n" in looked_up
    assert "example" not in looked_up  # what a source prints when it is defined could be the answer
    assert '{"letters": 3}' in call(env, "count_letters_2", text="abc")
    assert "error: ZeroDivisionError: division by zero" in call(env, "town_lookup_2", town="elsewhere")
    env.step("<tool_search>counts words</tool_search>")
    assert "No module named 'nowhere_to_be_found'" in call(env, "count_words_2")
    assert env.step("\\boxed{8}")[1] == 1.0
    env.close()


@pytest.mark.parametrize(("status", "reward"), [("ok", 1.0), ("refused", 0.0)])
def test_a_call_of_api_bank_counts_if_it_ran(status: Status, reward: float) -> None:
    episode = Episode(Task("t", "q", (json.dumps({"name": "add", "arguments": {"a": 1}}),)))
    episode.turns.append(Turn("", calls=[Call("add", status, arguments={"a": "1"})]))
    assert right_path(episode) == reward


DESCRIBED = {
    "name": "AddReminder",
    "description": "Adds a reminder.",
    "input_parameters": {"content": {"type": "str", "description": "What."}, "hour": {"type": "int"}},
}
PROMPT = "Generate an API request.\n\nAPI descriptions:\n" + json.dumps(DESCRIBED)


def request_row(expected: str, dialogue: str = "User: Remind me.") -> dict[str, Any]:
    return {"instruction": PROMPT, "input": f"{dialogue}\nGenerate API Request:\n", "expected_output": expected}


ADD = "API-Request: [AddReminder(content='the team's ['tea', 'cake']', hour='5')]"  # quotes within quotes, as there are
STEPS = [
    {"api_name": "ToolSearcher", "input": {"keywords": "x"}, "output": {"output": DESCRIBED}},
    {"api_name": "AddReminder", "input": {"hour": 5}, "output": {"output": {"id": 1}, "exception": None}},
    {"api_name": "AddReminder", "input": {"hour": 6}, "output": {"output": {"id": 2}, "exception": None}},
]
HUB_ROWS = {
    "level-1-api.json": [
        request_row(ADD),
        request_row("API-Request: [Nowhere(a='1')]"),
        request_row("API-Request: [AddReminder(5)]"),
        request_row("API-Request: [AddReminder(content={5})]"),  # a set is no JSON
        request_row("API-Request: [ToolSearcher(keywords='reminder')]"),
    ],
    "level-1-response.json": [request_row("AI: Done.", f"User: Remind me.\n{ADD}->success")],
    "level-3.json": [{"requirement": "Remind me of tea twice.", "apis": STEPS}],
}


@pytest.fixture
def hub_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in the form of API-Bank's repository on the hub, in its place."""
    monkeypatch.delenv("ARPO_DATA", raising=False)
    monkeypatch.setattr("envs_registry.datasets.tool_sets.API_BANK", str(tmp_path))
    (tmp_path / "test-data").mkdir()
    for name, rows in HUB_ROWS.items():
        (tmp_path / "test-data" / name).write_text(json.dumps(rows))
    return tmp_path


def test_api_bank_of_the_hub_is_played_by_its_rows(hub_copy: Path) -> None:
    env = ToolEnv("arpo/APIBank-v0")
    assert (len(env.tasks.tasks), env.tasks.left_out) == (2, 3)
    for said, hour, reward in (("success", 5, 1.0), ("nothing for these arguments", "6", 0.0)):
        question, _ = env.reset(options={"index": 0})
        assert question.endswith("\n\nUser: Remind me.")
        env.step("<tool_search>add a reminder</tool_search>")
        assert said in call(env, "AddReminder", content="the team's ['tea', 'cake']", hour=hour)
        assert env.step("\\boxed{done}")[1] == reward
    env.close()


@pytest.mark.parametrize(("hours", "right", "made"), [((5, 6), 1.0, 2), ((6, 5), 0.0, 2), ((6,), 0.0, 1)])
def test_level_3_of_api_bank_takes_all_calls_in_order(hub_copy: Path, hours: Any, right: float, made: int) -> None:
    env = ToolEnv("arpo/APIBank-v0", level=3)
    env.reset()
    env.step("<tool_search>add a reminder</tool_search>")
    for hour in hours:
        call(env, "AddReminder", hour=hour)
    components = env.step("\\boxed{done}")[4]["reward_components"]
    assert (components["accuracy"], components["right_calls"]) == (right, made)
    env.close()


@pytest.mark.parametrize("name", ["toolhop", "apibank"])
def test_without_a_network_the_error_names_the_local_way(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **given: Any) -> None:
        assert len(given["revision"]) == 40  # a commit, so that the data does not change
        raise ConnectionError("no network")

    monkeypatch.delenv("ARPO_DATA", raising=False)
    monkeypatch.setattr("huggingface_hub.snapshot_download", refuse)
    with pytest.raises(HubError, match=f"no network.*data='{name}"):
        load_source(name)
