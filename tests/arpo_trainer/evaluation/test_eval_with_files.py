"""`arpo eval` on tasks with attached files: text for every model, and pictures for endpoints whose model sees."""

import base64
import io
import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from arpo_trainer.cli.arpo_command import main
from arpo_trainer.evaluation.episode_store import load_eval_run
from arpo_trainer.evaluation.rescoring import stored_episodes
from arpo_trainer.sft.plain_trace import DroppedRow
from arpo_trainer.sft.trace_data import RejectionSampling, tree_traces
from arpo_trainer.views.terminal_view import conversation_lines
from tests.arpo_env.chat_server import chat_server, reply
from tests.arpo_env.task_files.sample_files import FILES


def model(body: dict[str, Any]) -> tuple[int, Any]:
    """Read the file if one is named, and answer with what it says."""
    said = json.dumps(body["messages"])
    if "Attached file: sales.xlsx" in said and "Rome | 25" not in said:
        return 200, reply('<think>r</think><read_file>{"file": "sales.xlsx", "part": "Sales"}</read_file>')
    number = 25 if "Rome | 25" in said else 3
    return 200, reply(f"<think>a</think><answer>\\boxed{{{number}}}</answer>")


def test_tasks_with_files_are_evaluated(isolation: str, served_model: Path, tmp_path: Path) -> None:
    rows = [
        {
            "task_id": "1",
            "Question": "How many in Rome?",
            "Final answer": "25",
            "Level": "1",
            "file_name": "sales.xlsx",
        },
        {"task_id": "2", "Question": "What is 1 + 1?", "Final answer": "2", "Level": "1", "file_name": ""},
    ]
    (tmp_path / "gaia.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "sales.xlsx").write_bytes(FILES["sales.xlsx"])
    options = [f"data={tmp_path / 'gaia.jsonl'}", "files=true", "tools=[python, read_file]"]
    with chat_server(model) as server:
        command = ["eval", "arpo/GAIA-v0", *(part for option in options for part in ("--env-set", option))]
        command += ["--model", str(served_model), "--endpoint", server.address, "--endpoint-model", "stub"]
        assert main([*command, "--output", str(tmp_path / "run")]) == 0
    run = load_eval_run(tmp_path / "run")
    rewards = {row.task: row.episodes[0].reward for row in run.rows}
    assert (rewards["gaia-validation-1"], rewards["gaia-validation-2"] == 1.0) == (1.0, False)
    assert not any(row.broken for row in run.rows)
    trees = [run.tree(row) for row in run.rows]
    assert [tree.task.get("files") for tree in trees] == [[str(tmp_path / "sales.xlsx")], None]


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
        return main([*command, "--model", str(served_model), *model, "--output", str(tmp_path / name)])

    with chat_server(seeing) as server:
        served = ("--endpoint", server.address, "--endpoint-model", "stub")
        recorded = ("--cache", str(tmp_path / "record.sqlite"))
        assert evaluate("seen", "true", *served, *recorded) == 0
        assert evaluate("blind", "false", *served) == 0
        asked = len(server.bodies)
        assert evaluate("local", "true") != 0
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
