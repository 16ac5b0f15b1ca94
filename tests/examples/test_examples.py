"""Every script in examples/ runs as its docstring says, in a process of its own, and prints what it should show."""

import ast
import copy
import re
import statistics
from pathlib import Path
from typing import Any

import pytest

from tests import ready_processes
from tests.arpo_env.chat_server import chat_server, saying
from tests.conftest import tiny_llama

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


def run(name: str, folder: Path, *arguments: str, **variables: str) -> str:
    said = folder.parent / f"{folder.name}.out"
    return ready_processes.run(str(EXAMPLES / name), *arguments, folder=folder, said=said, **variables)


SHOWN = {
    "01_play_an_episode.py": r"<result>\n\d+\n</result>[\s\S]*^reward 1\.0",
    "03_play_many_at_once.py": r"(^What is .*\? \d+ \(reward 1\.0\)\n){8}",
    "04_your_own_tool.py": r"Call price in <price>[\s\S]*<result>\n3\.25\n</result>[\s\S]*<result>\n13\.0\n</result>",
    "05_your_own_reward.py": r"reward 1\.30.*'brevity': 1\.0.*\n.*reward 1\.25.*'brevity': 0\.5",
    "06_your_own_data.py": r"below 50\? -> 328\n[\s\S]*^reward 1\.0\n\Z",
    "07_your_own_environment.py": r"^answer \d+ reward 1\.0$",
    "08_search_your_own_files.py": r"Mount Orrin",
    "09_record_and_replay.py": r"(?s)replayed:.*Tessel is a harbour town\..*not recorded:.*crater on the moon",
}


@pytest.mark.parametrize("name", SHOWN)
def test_it_shows_what_it_says(name: str, isolation: str, tmp_path: Path) -> None:
    assert re.search(SHOWN[name], run(name, tmp_path), re.MULTILINE)


def test_a_fork_has_the_old_variables_and_the_same_random_numbers(isolation: str, tmp_path: Path) -> None:
    out = run("02_fork_an_episode.py", tmp_path)
    original, copy = map(float, re.findall(r"<result>\n([\d.]+)\n</result>", out))
    assert original == pytest.approx(copy + 1)
    assert "the same next random number: True" in out


def test_arpo_trains_in_a_few_lines(tiny_policy: Path, isolation: str, tmp_path: Path) -> None:
    out = run("10_train_with_arpo.py", tmp_path, MODEL=str(tiny_policy), STEPS="1")
    told = re.findall(r"^(root|branch|top-up) (\d+) tool calls, reward (-?[\d.]+)$", out, re.MULTILINE)
    assert len(told) == 8
    assert [origin for origin, *_ in told[:4]] == ["root"] * 4
    assert any(int(calls) for _, calls, _ in told)
    assert (tmp_path / "runs" / "arpo" / "model" / "config.json").is_file()


def test_lora_trains_adapters_and_merges_them(tiny_policy: Path, isolation: str, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    from transformers import AutoModelForCausalLM

    out = run("11_train_with_lora.py", tmp_path, MODEL=str(tiny_policy), STEPS="1")
    [trained, total] = re.findall(r"params: ([\d,]+)", out)
    assert int(trained.replace(",", "")) < int(total.replace(",", ""))
    folder = tmp_path / "runs" / "lora"
    assert (folder / "adapter" / "adapter_config.json").is_file()
    assert AutoModelForCausalLM.from_pretrained(folder / "model").config.num_hidden_layers == 2


def test_a_branching_rule_of_ones_own_decides(tiny_policy: Path, isolation: str, tmp_path: Path) -> None:
    out = run("12_your_own_branching_rule.py", tmp_path, MODEL=str(tiny_policy))
    decisions = re.findall(r"^score ([\d.]+): (\d) branches \((.*)\)$", out, re.MULTILINE)
    assert decisions
    assert all((float(score) > 0.1) == (why != "score not above threshold") for score, _, why in decisions)
    origins = ast.literal_eval(out.splitlines()[-1])
    assert len(origins) == 8
    assert origins.count("branch") == sum(int(branches) for _, branches, _ in decisions)


def test_an_advantage_of_ones_own_is_trained_with(tiny_policy: Path, isolation: str, tmp_path: Path) -> None:
    out = run("13_your_own_advantage.py", tmp_path, MODEL=str(tiny_policy), STEPS="1")
    [found] = re.findall(r"^rewards (\[.*\]) advantages (\[.*\])$", out, re.MULTILINE)
    rewards, advantages = map(ast.literal_eval, found)
    assert advantages == [reward - statistics.median(rewards) for reward in rewards]


def test_an_endpoint_is_evaluated(served_model: Path, isolation: str, tmp_path: Path) -> None:
    """Its model calls the tool, and then says that the answer is 42."""
    turns = ("<think>I compute.</think><python>6 * 7</python>", "<think>So.</think><answer>\\boxed{42}</answer>")

    def answer(body: dict[str, Any]) -> tuple[int, Any]:
        return saying(turns["<result>" in body["messages"][-1]["content"]])(body)

    with chat_server(answer) as server:
        words = ("--url", server.address, "--name", "m", "--tasks", "2")
        out = run("14_evaluate_an_endpoint.py", tmp_path, *words)
    assert re.search(r"^m: 0\.00 \[0\.00, 0\.\d+\] on 2 tasks$", out, re.MULTILINE)
    assert (tmp_path / "evals" / "endpoint" / "results.json").is_file()
    assert out.count("-> 42 (wrong)") == 2
    assert {body["model"] for body in server.bodies} == {"m"}


def test_plain_trl_plays_an_environment(tokenizer: Any, isolation: str, tmp_path: Path) -> None:
    """With a random model that has Qwen2.5's chat template; tests/adapters/test_trl.py makes calls."""
    from trl.chat_template_utils import qwen2_5_chat_template

    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.chat_template = qwen2_5_chat_template
    for part in (tokenizer, tiny_llama(len(tokenizer))):
        part.save_pretrained(tmp_path / "model")
    out = run("15_use_plain_trl.py", tmp_path, MODEL=str(tmp_path / "model"), STEPS="1")
    assert re.search(r"'rewards/environment_reward/mean': '?-?\d", out)
