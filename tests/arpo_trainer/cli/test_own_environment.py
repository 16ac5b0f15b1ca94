"""The docs' file with tasks, a tool and a protocol of one's own, used as a user does: by the commands, by its name."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import arpo_env
from arpo_env import ToolEnv
from arpo_trainer.cli.arpo_command import main
from arpo_trainer.run.sft_run import own_tasks
from envs_registry import Task
from envs_registry.datasets.rows import ChosenTasks

ROOT = Path(__file__).resolve().parents[3]
ID = "my_envs:mine/Capital-v0"
LINES = ["--env-set", "protocol=lines"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with my_envs.py, as the docs have it."""
    made = tmp_path_factory.mktemp("user")
    page = (ROOT / "docs" / "how-to" / "own-protocol.md").read_text(encoding="utf-8")
    [code] = [text for text in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if text.startswith("# my_envs.py")]
    (made / "my_envs.py").write_text(code, encoding="utf-8")
    return made


@pytest.fixture
def here(folder: Path, own_names: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    """That folder as the current one."""
    monkeypatch.chdir(folder)
    return folder


def arpo(folder: Path, *arguments: str, said: str = "") -> str:
    """Run the console script: its own folder is on Python's path, the current one is not."""
    script = folder / "bin" / "arpo.py"
    script.parent.mkdir(exist_ok=True)
    script.write_text("import sys\nfrom arpo_trainer.cli.arpo_command import main\nsys.exit(main())\n")
    command, environ = [sys.executable, str(script), *arguments], {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, input=said, cwd=folder, env=environ, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("options", "turns", "shown"),
    [
        ([], ["<think>I look.</think><capital>Peru</capital>", "<answer>\\boxed{Lima}</answer>"], "Lima\n</result>"),
        (LINES, ['CALL capital {"country": "Peru", "letters": 2}', "ANSWER Lima"], "RESULT Li"),
    ],
    ids=["tags", "own-protocol"],
)
def test_it_is_played_by_hand(folder: Path, options: list[str], turns: list[str], shown: str) -> None:
    out = arpo(folder, "play", ID, *options, said="\n".join([*turns, ""]))
    assert "What is the capital of Peru?" in out
    assert shown in out
    assert "answered, reward 1.0; the answer is Lima" in out


@pytest.mark.usefixtures("here", "isolation")
def test_it_is_trained_on_and_found_again_on_resume(byte_lm: Path, tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "my.yaml"
    path.write_text(
        f"model: {byte_lm}\nenv: {ID}\neval_env: mine/Capital-v0\neval_tasks: 1\nmax_steps: 1\nbf16: false\n"
        "num_generations: 2\ninitial_rollouts: 2\nper_device_train_batch_size: 2\nmax_completion_length: 300\n"
        "max_turn_length: 8\nlogging_steps: 1\nsave_strategy: steps\nsave_steps: 1\nsave_final_model: false\n"
        f"threads: 1\noutput_dir: {tmp_path / 'run'}\n"
    )
    train = ["train", "--config", str(path)]
    assert main([*train, "--dry-run"]) == 0
    assert "optimizer steps" in capsys.readouterr().out
    assert main(train) == 0
    shown, out = capsys.readouterr(), tmp_path / "run"
    assert "step   1  reward" in shown.out + shown.err
    assert "mine/Capital-v0" in (out / "report.html").read_text()
    evaluations = [json.loads(line)["name"] for line in (out / "eval.jsonl").read_text().splitlines()]
    assert evaluations == ["before", "after"]
    assert main([*train, "--set", "resume_from_checkpoint=last", "--set", "max_steps=2"]) == 0
    facts = json.loads((out / "run.json").read_text(encoding="utf-8"))
    assert (facts["env"]["id"], facts["status"]) == (ID, "finished")
    assert Path(facts["resumed_from"]).name == "checkpoint-1"


@pytest.mark.usefixtures("own_names")
def test_a_cold_start_is_made_anew_when_your_tasks_have_changed() -> None:
    class Sums:
        size, solution_tool = None, "python"

        def __init__(self, second: int = 1) -> None:
            self.second = second

        def task(self, index: int) -> Task:
            return Task(str(index), f"{index} + {self.second}?", (str(index + self.second),), kind="math")

        def solution(self, index: int) -> tuple[str, ...]:
            return (f"{index} + {self.second}",)

    arpo_env.register("mine/Sums-v0", Sums)
    before, same, now = (own_tasks(ToolEnv("mine/Sums-v0", second=second), 3) for second in (1, 1, 2))
    assert before == same != now
    ours = ToolEnv("arpo/Arithmetic-v0")
    assert not own_tasks(ours, 3)
    ours.tasks = ChosenTasks(ours.tasks, (7,))
    assert own_tasks(ours, 3)
