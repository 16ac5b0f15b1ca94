"""`arpo doctor --model`: what a folder's configuration, tokenizer and template say, and what is wrong with others."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trl
from transformers import AutoTokenizer

from arpo_trainer.cli.arpo_command import main

TEMPLATES = Path(trl.__file__).parent / "chat_templates"
LLAMA: dict[str, Any] = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64}
LLAMA |= {"intermediate_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2}
LLAMA |= {"head_dim": 16, "vocab_size": 5000, "max_position_embeddings": 8192, "dtype": "bfloat16"}
HYBRID = {**LLAMA, "model_type": "qwen3_5_text", "linear_num_key_heads": 2, "linear_num_value_heads": 2}
EYES = {"depth": 1, "hidden_size": 32, "num_heads": 2, "out_hidden_size": 64}


@pytest.fixture(scope="module")
def written(tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("written")
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def model(written: Path, tmp_path: Path) -> Path:
    """A folder with the configuration and the tokenizer of a tiny Llama, and no weights."""
    folder = tmp_path / "m"
    shutil.copytree(written, folder)
    configure(folder, LLAMA)
    return folder


def configure(folder: Path, config: dict[str, Any]) -> None:
    (folder / "config.json").write_text(json.dumps(config))


def template(folder: Path, text: str) -> None:
    (folder / "chat_template.jinja").write_text(text, encoding="utf-8")


def setting(folder: Path, **values: Any) -> None:
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


def examined(folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The exit status and the report, with each finding in one line again."""
    status = main(["doctor", "--model", str(folder)])
    shown = capsys.readouterr()
    assert "Traceback" not in shown.out + shown.err
    assert not [line for line in shown.out.splitlines() if len(line) > 80 and "/" not in line]
    return status, re.sub(r"\n {18}", " ", shown.out)


@pytest.mark.parametrize(
    ("config", "lines"),
    [
        (
            LLAMA,
            (
                r"ok   model +LlamaForCausalLM \(llama\), [\d,]+ parameters, bfloat16",
                r"ok   attention +4 x full_attention \(sdpa\)",
                r"ok   packing +packed trees",
                r"ok   rollouts +continuous",
                r"ok   context +8,192 tokens$",
            ),
        ),
        (
            {"architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5"}
            | {"text_config": HYBRID, "vision_config": EYES},
            (
                r"ok   attention +3 x linear_attention, 1 x full_attention",
                r"--   packing +padded rows: it is no decoder of text alone \(qwen3_5\)",
                r"--   rollouts +padded batches .*recurrent.* fix: use_vllm: true",
            ),
        ),
    ],
    ids=["full attention", "a state, and eyes"],
)
def test_what_a_model_will_get(config: Any, lines: tuple[str, ...], model: Path, capsys: Any) -> None:
    configure(model, config)
    status, report = examined(model, capsys)
    assert status == 0, report
    for line in (*lines, r"ok   tokens +a turn ends at .*<\|im_end\|> \(2\)", r"ok   template"):
        assert re.search(line, report, re.MULTILINE), report
    assert re.search(r"--   weights +none in this folder", report)


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("qwen3_5_think", (r"ok   prefix ", r"ok   family +qwen3_5\n", r"native: .* which\s+<\|im_end\|> ends\n")),
        ("qwen3", (r"--   prefix +the template writes earlier turns again", r"ok   family +qwen3\n")),
        ("phi3", (r"ok   protocol +arpo-tags: not native, since the chat template of .* does not show calls",)),
        (  # its model gets tags, which need no calls of the template
            "{% for m in messages %}{% if m.role == 'tool' %}{{ 1 // 0 }}{% endif %}{{ m.content }}{% endfor %}",
            (r"--   prefix +not known: the template fails on a tool call", r"ok   protocol +arpo-tags: not native"),
        ),
    ],
)
def test_what_a_template_does(name: str, lines: tuple[str, ...], model: Path, capsys: Any) -> None:
    own = "{" in name
    template(model, name if own else (TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8"))
    status, report = examined(model, capsys)
    assert status == 0
    for line in ("ok   template +its own" if own else rf"ok   template +{name}, as TRL has it", *lines):
        assert re.search(line, report), report


def without(*names: str) -> Callable[[Path], Any]:
    return lambda folder: [(folder / name).unlink(missing_ok=True) for name in names]


def as_a_run(folder: Path) -> None:
    moved = folder.rename(folder.with_name("model"))
    folder.mkdir()
    moved.rename(folder / "model")


TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja")
HEADLESS, FEW = {**LLAMA, "architectures": ["LlamaModel"]}, {**LLAMA, "vocab_size": 100}
SPOILED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no folder": (shutil.rmtree, r"LACK model +model folder .* does not exist"),
    "no configuration": (without("config.json"), r"LACK model .* no config.json \(it holds: chat_template.jinja, "),
    "adapters": (lambda m: (m / "config.json").rename(m / "adapter_config.json"), r"LACK model .* these are adapters"),
    "the folder of a run": (as_a_run, r"LACK model .* to fix: give \S+/m/model"),
    "an unknown kind": (lambda m: configure(m, {"model_type": "wxyz"}), r"LACK model .*wxyz.* to fix: see whether"),
    "no head": (lambda m: configure(m, HEADLESS), r"LACK head +LlamaModel predicts no tokens"),
    "no tokenizer": (without(*TOKENIZER), r"LACK tokenizer +.* to fix: put tokenizer.json"),
    "no end token": (lambda m: setting(m, eos_token=None), r"LACK tokens .*no end token"),
    "ids without embeddings": (lambda m: configure(m, FEW), r"LACK tokens .* and the model embeds 100"),
    "no template": (without("chat_template.jinja"), r"LACK template .*has no chat template"),
    "a template that raises": (
        lambda m: template(m, "{{ raise_exception('roles must alternate') }}"),
        r"LACK template .*does not render a system prompt and a question \(roles must alternate\)",
    ),
    "an unknown protocol": (lambda m: setting(m, arpo_protocol="mine"), r"LACK protocol +mine, .* to fix: name the"),
}


@pytest.mark.parametrize("name", SPOILED)
def test_what_is_wrong_is_a_line_with_its_cure(name: str, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spoil, line = SPOILED[name]
    spoil(model)
    status, report = examined(model, capsys)
    assert status == 1, report
    assert re.search(line, report), report


def test_a_call_whose_end_ends_no_turn_is_a_fault(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    template(model, (TEMPLATES / "gptoss.jinja").read_text(encoding="utf-8"))
    words = ["<|start|>", "<|message|>", "<|channel|>", "<|end|>", "<|call|>", "<|return|>"]
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.add_special_tokens({"additional_special_tokens": words})
    tokenizer.save_pretrained(model)
    status, report = examined(model, capsys)
    fault = re.search(r"LACK protocol .* which <\|call\|> ends; but no turn ends there to fix: add (\d+) to", report)
    assert status == 1
    assert fault, report
    (model / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, int(fault[1])]}))
    assert examined(model, capsys)[0] == 0
