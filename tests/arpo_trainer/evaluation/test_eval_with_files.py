"""`arpo eval` on tasks with attached files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from arpo_trainer.cli.arpo_command import main
from arpo_trainer.evaluation.episode_store import load_eval_run
from tests.arpo_env.chat_server import chat_server, reply
from tests.arpo_env.task_files.sample_files import FILES


def model(body: dict[str, Any]) -> tuple[int, Any]:
    """Read the file if one is named, and answer with what it says."""
    said = json.dumps(body["messages"])
    if "Attached file: sales.xlsx" in said and "Rome | 25" not in said:
        return 200, reply('<think>r</think><read_file>{"file": "sales.xlsx", "part": "Sales"}</read_file>')
    number = 25 if "Rome | 25" in said else 3
    return 200, reply(f"<think>a</think><answer>\\boxed{{{number}}}</answer>")


def test_tasks_with_files_are_evaluated(isolation: str, model_folder: Path, tmp_path: Path) -> None:
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
        command += ["--model", str(model_folder), "--endpoint", server.address, "--endpoint-model", "stub", "--plain"]
        assert main([*command, "--output", str(tmp_path / "run")]) == 0
    run = load_eval_run(tmp_path / "run")
    rewards = {row.task: row.episodes[0].reward for row in run.rows}
    assert (rewards["gaia-validation-1"], rewards["gaia-validation-2"] == 1.0) == (1.0, False)
    assert not any(row.broken for row in run.rows)
    trees = [run.tree(row) for row in run.rows]
    assert [tree.task.get("files") for tree in trees] == [[str(tmp_path / "sales.xlsx")], None]
