"""`arpo eval --with`: what is stored, counted and replayed, and what is refused."""

import base64
import io
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from arpo_trainer.cli.arpo_command import main
from arpo_trainer.evaluation.episode_store import load_eval_run
from arpo_trainer.evaluation.eval_metrics import results
from arpo_trainer.evaluation.rescoring import stored_episodes
from arpo_trainer.report.html_report import tree_svg
from arpo_trainer.sft.plain_trace import DroppedRow
from arpo_trainer.sft.trace_data import RejectionSampling, tree_traces
from arpo_trainer.views.run_page import view_tree
from arpo_trainer.views.terminal_view import conversation_lines
from tests.arpo_env.chat_server import chat_server, reply
from tests.arpo_trainer.evaluation.test_run_evaluation import at, play

USAGE = {"prompt_tokens": 40, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 30}}


def fails_once(body: dict[str, Any]) -> tuple[int, Any]:
    """A policy whose cells fail, and which answers what it reads."""
    said = body["messages"][-1]["content"]
    if len(body["messages"]) == 2:
        return 200, reply("<think>I compute.</think><python>print(6 * sevn)</python>")
    return 200, reply(f"<think>so</think><answer>\\boxed{{{42 if '42' in said else 0}}}</answer>")


@pytest.mark.usefixtures("isolation")
def test_uses_and_failures_are_counted_drawn_and_replayed(served_model: Path, tmp_path: Path, capsys: Any) -> None:
    numbers = itertools.count()

    def mends_even(body: dict[str, Any]) -> tuple[int, Any]:
        mended = {**reply("```python\nprint(6 * 7)\n```"), "usage": USAGE}
        return (400, {"error": "no"}) if next(numbers) % 2 else (200, mended)

    with chat_server(fails_once) as policy, chat_server(mends_even) as helper:
        asked = [*at(policy.address, served_model), "--tasks", "4", "--cache", str(tmp_path / "record.sqlite")]
        asked += ["--with", "debugger", "--with-model", "fixer", "--with-url", helper.address, "--concurrency", "1"]
        asked += ["--with-price", "10", "20", "5"]
        assert main(play(tmp_path / "one", *asked)) == 0
    said = capsys.readouterr().out
    assert "debugger in 4 of 4 episodes, failed 2x" in said
    assert "helper: 4 requests, 80 tokens in, 14 out, 0.00078 USD" in said
    assert main(play(tmp_path / "two", *asked, "--cache-mode", "replay")) == 0
    assert (tmp_path / "one" / "results.json").read_bytes() == (tmp_path / "two" / "results.json").read_bytes()
    # with other tools it would be another evaluation
    assert main(["eval", "retry", str(tmp_path / "one"), "--with", "refiner"]) == 1
    run = load_eval_run(tmp_path / "one")
    assert run.facts["settings"]["inference"]["debugger"] == 1
    found = results(run.rows, run.facts)["scores"][0]
    assert found["inference_tools"] == {"debugger": {"used": 4, "failed": 2, "episodes": 4}}
    assert found["helper"] == {"requests": 4, "context": 80, "cached": 60, "tokens": 14, "cost": 0.00078}
    assert found["cost"] is None  # that of the policy, whose price is not known
    counted = [row.episodes[0].inference for row in run.rows]
    assert counted.count({"debugger": 1}) == counted.count({"debugger": 1, "debugger failed": 1}) == 2
    right = next(row for row in run.rows if row.episodes[0].inference == {"debugger": 1})
    assert right.episodes[0].answer == "42"
    lines = "\n".join(conversation_lines(run, right, 0))
    assert "-- debugger worked" in lines
    assert view_tree(run.tree(right))["spans"][0]["interventions"][0]["tool"] == "debugger"
    assert "debugger worked" in tree_svg(run.tree(right))


GREEN = (0, 200, 0)


def seeing(body: dict[str, Any]) -> tuple[int, Any]:
    """Read the picture, and name its colour if one is in the conversation: nothing else tells it."""
    content = body["messages"][-1]["content"]
    if len(body["messages"]) == 2:
        return 200, reply("<think>r</think><read_file>flag.png</read_file>")
    colour = "unknown"
    if isinstance(content, list):
        assert [part["type"] for part in content] == ["text", "image_url"]
        head, data = content[1]["image_url"]["url"].split(",")
        picture = Image.open(io.BytesIO(base64.b64decode(data)))
        colour = {GREEN: "green"}.get(picture.getpixel((3, 3)), "other")
        assert (head, picture.size) == ("data:image/png;base64", (2048, 1365))
    return 200, reply(f"<think>a</think><answer>\\boxed{{{colour}}}</answer>")


def test_a_question_about_a_picture_needs_a_model_that_sees(served_model: Path, tmp_path: Path, capsys: Any) -> None:
    row = {"task_id": "1", "Question": "Which colour?", "Final answer": "green", "Level": "1", "file_name": "flag.png"}
    (tmp_path / "gaia.jsonl").write_text(json.dumps(row) + "\n")
    Image.new("RGB", (3000, 2000), GREEN).save(tmp_path / "flag.png", compress_level=1)

    def evaluate(name: str, images: str, *model: str) -> int:
        options = [f"data={tmp_path / 'gaia.jsonl'}", "files=true", "tools=[read_file]", f"show_images={images}"]
        command = ["eval", "arpo/GAIA-v0", *(part for option in options for part in ("--env-set", option))]
        return main([*command, *model, "--output", str(tmp_path / name)])

    with chat_server(seeing) as server:
        served = at(server.address, served_model)
        recorded = ("--cache", str(tmp_path / "record.sqlite"))
        assert evaluate("seen", "true", *served, *recorded) == 0
        assert evaluate("blind", "false", *served) == 0
        asked = len(server.bodies)
        assert evaluate("local", "true", "--model", str(served_model)) != 0
        # a replay finds the answer by the picture, and not the one about another picture
        assert evaluate("replayed", "true", *served, *recorded, "--cache-mode", "replay") == 0
        Image.new("RGB", (3000, 2000), "red").save(tmp_path / "flag.png", compress_level=1)
        assert evaluate("other", "true", *served, *recorded, "--cache-mode", "replay") != 0
        assert len(server.bodies) == asked
    assert "Serve a model that sees, for instance with `vllm serve`" in capsys.readouterr().err
    runs = {name: load_eval_run(tmp_path / name) for name in ("seen", "blind", "replayed", "other")}
    assert [run.rows[0].episodes[0].reward for run in runs.values()] == [1.0, 0.0, 1.0, None]
    run = runs["seen"]
    [stored] = stored_episodes(run)
    [picture] = stored.episode().turns[0].images
    assert picture.startswith("data:image/png;base64,")
    assert any("read_file ok, pictures: 1" in line for line in conversation_lines(run, run.rows[0], 0))
    with pytest.raises(DroppedRow, match="pictures seen"):  # a row of `arpo sft` is text
        RejectionSampling().check(next(tree_traces(stored.tree)))
