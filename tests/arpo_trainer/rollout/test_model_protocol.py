"""Which protocol a model gets where nobody chose one, and that it keeps it."""

import copy
import json
import logging
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import AutoTokenizer

from arpo_env import ArpoTags, ToolEnv
from arpo_trainer import ARPOConfig, ARPOTrainer
from arpo_trainer.evaluation.eval_session import run_evaluation
from arpo_trainer.evaluation.eval_settings import EvalModel, EvalSettings
from arpo_trainer.preference.dpo_run import _protocol, dpo
from arpo_trainer.rollout.model_protocol import marked, protocol_for, with_model_protocol
from arpo_trainer.rollout.settings import RolloutSettings
from arpo_trainer.run.arguments import configure
from arpo_trainer.run.recipes import read_settings
from arpo_trainer.run.sft_run import sft
from arpo_trainer.run.train import TrainingRun
from tests.arpo_trainer.preference.test_dpo_run import PAIR
from tests.arpo_trainer.rollout.test_native import tokenizer_of
from tests.arpo_trainer.rollout.test_rendering import small_tokenizer
from tests.conftest import tiny_llama

ENV, TRAINED = "arpo/Arithmetic-v0", "the model was trained with it"
NATIVE: dict[str, Any] = {"name": "Qwen/Qwen3-8B", "family": "qwen3"}
SNAPSHOT = "/hub/models--dongguanting--Qwen2.5-7B-ARPO/snapshots/0a1b"


@pytest.mark.parametrize(
    ("given", "protocol", "why"),
    [
        # what is given goes first, whatever follows
        ({"protocol": "llama3", "mark": "hermes"}, "llama3", None),
        ({"mark": "hermes", "name": "x/Qwen3-8B-ARPO"}, "hermes", "trained with it"),
        ({"record": {"protocol": "native"}, "name": "arpo"}, "native", "record"),
        ({"record": {"kind": "sft"}}, "arpo-tags", "record"),
        # of earlier releases, which named it among the settings alone
        ({"record": {"env": {"kwargs": {"protocol": "hermes"}}}}, "hermes", "record"),
        ({"record": {"kind": "sft", "traces": {"protocol": "hermes"}}}, "hermes", "record"),
        ({"record": {"settings": {"env_kwargs": {"protocol": "hermes"}}}, "here": True}, "hermes", "record"),
        # what is beside a model is not always the record of its training
        ({"record": {"kind": "eval"}}, "native", "family qwen3"),
        ({"record": [1]}, "native", "family qwen3"),
        ({"name": "dongguanting/Tool-Star-Qwen-3B"}, "arpo-tags", "papers"),
        ({"name": SNAPSHOT}, "arpo-tags", "papers"),
        ({"algorithm": "arpo-reference"}, "arpo-tags", "algorithm arpo-reference reads tags"),
        ({"reward": "reference"}, "arpo-tags", "reward reference reads tags"),
        ({}, "native", "family qwen3"),
        ({"name": "/home/me/.cache/arpo/Qwen3-8B"}, "native", "family qwen3"),
        ({"name": "sharpo/Qwen3-8B"}, "native", "family qwen3"),
        ({"endpoint": "qwen at http://h/v1"}, "arpo-tags", "for qwen at http://h/v1: an endpoint"),
        ({"endpoint": "m at http://a/v1", "mark": "native"}, "native", "trained with it"),
        ({"family": ""}, "arpo-tags", "does not show calls"),
    ],
)
def test_who_decides(
    given: dict[str, Any], protocol: str, why: str | None, tmp_path: Path, caplog: Any, monkeypatch: Any
) -> None:
    parts = NATIVE | given
    plain = small_tokenizer((["<|im_end|>"], []), "{% for m in messages %}{{ m.content }}{% endfor %}")
    tokenizer = copy.copy(tokenizer_of(parts["family"]) if parts["family"] else plain)
    # the folder of each test is another one: what was said once is not said again
    tokenizer.name_or_path = parts["name"] if "name" in given else str(tmp_path / "model")
    if "record" in parts:
        folder = tmp_path / parts["name"].replace("/", "-")
        (folder / "model").mkdir(parents=True)
        (folder / "run.json").write_text(json.dumps(parts["record"]))
        tokenizer.name_or_path = str(folder / "model")
        if "here" in parts:
            monkeypatch.chdir(folder / "model")
            tokenizer.name_or_path = "."
    if "mark" in parts:
        tokenizer = marked(tokenizer, parts["mark"])
    options = {name: parts[name] for name in ("protocol", "reward") if name in parts}
    settings = RolloutSettings(algorithm=parts.get("algorithm", "grpo"))
    with caplog.at_level(logging.INFO):
        env = with_model_protocol(ToolEnv(ENV, **options), settings, tokenizer, endpoint=parts.get("endpoint", ""))
    assert env.protocol.name == protocol
    assert env.protocol_given
    said = [record.message for record in caplog.records if record.message.startswith("protocol")]
    assert len(said) == (why is not None)
    assert not said or (why in said[0] and f"protocol {protocol}" in said[0])


@pytest.fixture(scope="module")
def native_model(tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model whose chat template takes tools."""
    folder = tmp_path_factory.mktemp("native")
    tiny_llama(len(tokenizer)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "chat_template.jinja").write_text(tokenizer_of("qwen3").chat_template, encoding="utf-8")
    return folder


ROWS = [{"question": "1 + 1?", "answer": "2"}, {"question": "1 + 2?", "answer": "3"}]


def trainer_of(model: Path, folder: Path, env: ToolEnv, **options: Any) -> ARPOTrainer:
    args = ARPOConfig(
        output_dir=str(folder), num_generations=2, initial_rollouts=2, per_device_train_batch_size=2, max_steps=2,
        max_completion_length=16, save_steps=1, use_cpu=True, bf16=False, gradient_checkpointing=False, report_to=[],
    )  # fmt: skip
    return ARPOTrainer(str(model), env, args=args, train_dataset=ROWS, **options)


def played(model: Path, folder: Path, tasks: int) -> str:
    """Evaluate a model with nothing said of a protocol, and return which one it got."""
    settings = EvalSettings((ENV,), tasks=tasks, rollout={"max_turn_length": 4, "max_completion_length": 8})
    run = run_evaluation(settings, [EvalModel("m", "transformers", str(model))], folder, resume=True)
    assert len(run.rows) == tasks
    return run.facts["protocols"]["m"]["Arithmetic-v0"]


@pytest.mark.parametrize("given", [None, "arpo-tags"])
def test_a_trained_model_keeps_its_protocol(
    given: str | None, native_model: Path, tmp_path: Path, isolation: str, caplog: pytest.LogCaptureFixture
) -> None:
    protocol, run = given or "native", tmp_path / "run"
    trainer = trainer_of(native_model, run, ToolEnv(ENV, limit=2, protocol=given))
    assert trainer.train_dataset[0]["prompt"][0]["content"] == trainer.engine.env.system_prompt
    trainer.train()
    trainer.save_model(run / "elsewhere")
    for folder in (run / "elsewhere", run / "checkpoint-1"):
        assert protocol_for(AutoTokenizer.from_pretrained(folder)) == (protocol, TRAINED)
    of_base = AutoTokenizer.from_pretrained(native_model, padding_side="left")
    assert protocol_for(of_base)[0] == "native"
    # with the tokenizer of the base, too
    further = trainer_of(run / "elsewhere", tmp_path / "further", ToolEnv(ENV, limit=2), processing_class=of_base)
    assert further.env.protocol.name == protocol
    assert "from now on" not in caplog.text
    trainer_of(run / "elsewhere", tmp_path / "other", ToolEnv(ENV, limit=2, protocol="hermes"))
    assert f"had protocol {protocol}, since {TRAINED}, and is trained with hermes from now on" in caplog.text
    assert played(run / "elsewhere", tmp_path / "eval", 1) == protocol
    # an evaluation that an earlier release began went on with tags
    facts = json.loads((tmp_path / "eval" / "run.json").read_text())
    del facts["protocols"]
    (tmp_path / "eval" / "run.json").write_text(json.dumps(facts))
    assert played(run / "elsewhere", tmp_path / "eval", 2) == "arpo-tags"
    other = trainer_of(native_model, run, ToolEnv(ENV, limit=2, protocol=None if given else "arpo-tags"))
    words = rf"was trained with protocol {protocol}, .*--env-set protocol={protocol}"
    with pytest.raises(ValueError, match=words):
        other.train("last")
    (run / "checkpoint-2" / "rollout_0.pt").unlink()  # as with save_only_model
    with pytest.raises(ValueError, match=words):
        other.train("last")


class Mine(ArpoTags):
    """The tags, under a name that is not registered."""

    name = "mine"


@pytest.mark.parametrize(("given", "protocol"), [(None, "native"), (Mine(), "mine")])
def test_an_evaluation_gets_the_protocol_of_the_training(
    given: Mine | None, protocol: str, native_model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    env, eval_env = ToolEnv(ENV, limit=2, protocol=given), ToolEnv(ENV, limit=2, seed=1)
    with caplog.at_level(logging.INFO):
        trainer = trainer_of(native_model, tmp_path, env, eval_env=eval_env, overlap="allow")
    assert trainer.eval_env.protocol.name == protocol
    assert TRAINED not in caplog.text  # a base model was not


def test_no_model_plays_before_one_that_cannot(native_model: Path, tmp_path: Path) -> None:
    shutil.copytree(native_model, tmp_path / "b")
    marked(AutoTokenizer.from_pretrained(native_model), "mine").save_pretrained(tmp_path / "b")
    models = [EvalModel("a", "transformers", str(native_model)), EvalModel("b", "transformers", str(tmp_path / "b"))]
    with pytest.raises(ValueError, match="b has protocol mine, since"):
        run_evaluation(EvalSettings((ENV,), tasks=1), models, tmp_path / "eval")
    assert not (tmp_path / "eval" / "episodes.jsonl").read_text()


@pytest.mark.usefixtures("isolation")
def test_what_teaches_a_protocol_leaves_it_in_the_model(native_model: Path, tmp_path: Path, monkeypatch: Any) -> None:
    """Supervised training and cold starts teach tags unless they are told otherwise; DPO goes on with the model's."""
    monkeypatch.setattr("arpo_trainer.run.sft_run.cache_directory", lambda: tmp_path)
    small = ["max_steps=1", "per_device_train_batch_size=2", "use_cpu=true", "bf16=false", "report_to=[]", "threads=1"]
    small += [f"model={native_model}", "save_strategy=no"]
    (tmp_path / "pairs.jsonl").write_text(json.dumps(PAIR) + "\n")
    given = [f"output_dir={tmp_path}/sft", "demonstrations={count: 2}"]
    taught = sft(read_settings(None, [*small, *given], command="sft"))
    given = [f"output_dir={tmp_path}/dpo", f"env={ENV}", f"pairs={tmp_path}/pairs.jsonl"]
    learnt = dpo(read_settings(None, [*small, *given], command="dpo"))
    for folder, protocol in ((taught, "arpo-tags"), (learnt, "native")):
        assert protocol_for(AutoTokenizer.from_pretrained(folder / "model")) == (protocol, TRAINED)
    # of pairs from files, that of the environment, which may be named with its module
    of_env: Any = SimpleNamespace(env="arpo_env:arpo/ToolWorld-v0", env_kwargs={}, pair_files=["pairs.jsonl"])
    assert _protocol(of_env, SimpleNamespace(folder=tmp_path)) == "deepagent"  # type: ignore[arg-type]
    own = ["cold_start_examples=2", "eval_tasks=1", "num_generations=2", "initial_rollouts=2"]
    settings = read_settings(None, [*small, f"output_dir={tmp_path}/train", *own])
    trainer = TrainingRun(*configure(settings), settings).make_trainer()
    names = [trainer.env.protocol.name, trainer.eval_env.protocol.name, protocol_for(trainer.processing_class)[0]]
    assert names == ["arpo-tags"] * 3
