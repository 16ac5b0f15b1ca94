"""A round of self-critic DPO from settings: sampling, pairs, `DPOTrainer`, and a folder with the model.

    dpo(read_settings("dpo-tool-star-qwen2.5-3b", ["model=runs/mine/model"], command="dpo"))

The output folder holds `samples/` (an evaluation's folder), `pairs.jsonl`, checkpoints, the model (`model/`, with
adapters also `adapter/`), and `dpo.json`: the settings, the counts, and what came of it. The command is `arpo dpo`.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import time
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer

from arpo_trainer.demo_model import resolve_model
from arpo_trainer.evaluation.episode_store import ROWS
from arpo_trainer.folder_lock import only_writer
from arpo_trainer.preference.dpo_arguments import DPOArguments, configure_dpo
from arpo_trainer.preference.pair_file import read_pairs, write_pairs
from arpo_trainer.preference.pair_trainer import PairTrainer, make_pair_trainer
from arpo_trainer.preference.pairs import PreferencePair
from arpo_trainer.preference.sampled_pairs import SAMPLES, sample_pairs
from arpo_trainer.report.run_data import write_facts
from arpo_trainer.rollout.distributed import this_rank
from arpo_trainer.run.lora import lora_config, save_adapters
from arpo_trainer.run.train import idle_threads
from arpo_trainer.training.checkpoints import broken
from arpo_trainer.training.process_count import process_count
from arpo_trainer.training.recorder import versions

logger = logging.getLogger(__name__)
FACTS, PAIRS = "dpo.json", "pairs.jsonl"


def dpo(settings: dict[str, Any], resume: bool = False, sample_only: bool = False) -> Path:
    """Do a round, and return the output folder.

    Args:
        settings: fields of `DPOArguments` and TRL's `DPOConfig`, by name.
        resume: go on with what the folder holds.
        sample_only: end when the pairs are written.

    Raises:
        ValueError: the settings cannot work, or no pair was found and `no_pairs` is "error".
        FileNotFoundError: the model, a file of pairs or the checkpoint is missing.
        FileExistsError: the folder holds another round, and `resume` is not set.
        RuntimeError: too many trajectories broke.
        BlockingIOError: another process writes to the folder.
    """
    run, args = configure_dpo(settings)
    torch.set_num_threads(run.threads or idle_threads())
    folder = Path(args.output_dir)
    if not (resume or args.resume_from_checkpoint):
        _check_new(folder, sampling=not run.pair_files())
    with only_writer(folder, this_rank() == 0):
        return _round(run, args, settings, folder, sample_only)


def _round(run: DPOArguments, args: Any, settings: dict[str, Any], folder: Path, sample_only: bool) -> Path:
    facts = {"kind": "dpo", "settings": settings, "versions": versions()}
    pairs, counts = _pairs(run, args, folder)
    facts |= {"data": counts}
    if not pairs:
        return _without_pairs(run, folder, facts)
    if not sample_only:
        return _train(run, args, folder, pairs, facts)
    _write_facts(folder, {**facts, "status": "sampled"})
    return folder


def _check_new(folder: Path, sampling: bool) -> None:
    """Refuse to mix two rounds. The processes of a launcher find the samples of the process that started them."""
    kept = [path.name for path in folder.glob("checkpoint-*") if broken(path) is None]
    samples = folder / SAMPLES / ROWS
    if sampling and process_count() == 1 and samples.is_file() and samples.stat().st_size:
        kept.append(SAMPLES)
    if kept:
        raise FileExistsError(
            f"{str(folder)!r} holds an earlier round ({', '.join(sorted(kept)[:3])}): add --resume to go on with it, "
            "or give another folder with --set output_dir=FOLDER"
        )


def _pairs(run: DPOArguments, args: Any, folder: Path) -> tuple[list[PreferencePair], dict[str, Any]]:
    """Return the pairs and their counts: from files, from a process that has sampled already, or sampled now."""
    if files := run.pair_files():
        read = [pair for file in files for pair in read_pairs(file)]
        pairs = [pair for pair in read if args.max_length is None or pair.tokens <= args.max_length]
        return pairs, {"pairs": len(pairs), "too_long": len(read) - len(pairs)}
    if process_count() > 1:
        found = json.loads((folder / FACTS).read_text(encoding="utf-8")) if (folder / FACTS).is_file() else {}
        if not (folder / PAIRS).is_file():
            raise FileNotFoundError(f"no {folder / PAIRS}: sample in one process first, with arpo dpo --sample-only")
        return read_pairs(folder / PAIRS), found.get("data", {})
    data = sample_pairs(run, folder, args.seed, args.max_length)
    write_pairs(folder / PAIRS, data.pairs)
    (logger.info if data.pairs else logger.warning)("%s", data.words())
    return data.pairs, {**data.facts(), "words": data.words()}


def _without_pairs(run: DPOArguments, folder: Path, facts: dict[str, Any]) -> Path:
    """End a round in which nothing can be learnt: the policy goes on as it is, or this is an error."""
    words = facts["data"].get("words", f"no pair in {', '.join(run.pair_files())} that is short enough")
    _write_facts(folder, {**facts, "status": "skipped" if run.no_pairs == "skip" else "failed"})
    if run.no_pairs == "error":
        raise ValueError(
            f"nothing to learn from: {words}. A pair needs a right and a wrong trajectory of one task: take more "
            "tasks or samples, tasks that are solved sometimes, or a higher temperature; no_pairs=skip hands the "
            "policy on as it is"
        )
    if run.save_final_model and this_rank() == 0:
        _hand_on(run.model, folder / "model")
    logger.warning("round skipped, and the policy is unchanged: %s", words)
    return folder


def _hand_on(model: str, target: Path) -> None:
    """Put the policy where a trained one would be, without copying what the file system can share."""
    source = resolve_model(model)
    if not Path(source).is_dir():
        from huggingface_hub import snapshot_download

        source = snapshot_download(source)
    scratch = target.with_name(f"{target.name}.unfinished")
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(source, scratch, copy_function=_link)
    shutil.rmtree(target, ignore_errors=True)
    scratch.rename(target)


def _link(source: str, target: str) -> None:
    try:
        os.link(os.path.realpath(source), target)  # the hub's cache holds symbolic links
    except OSError:  # another file system
        shutil.copy2(source, target)


def _train(
    run: DPOArguments, args: Any, folder: Path, pairs: list[PreferencePair], facts: dict[str, Any]
) -> Path:  # fmt: skip
    trainer = _trainer(run, args, pairs)
    checkpoint = trainer.checked_checkpoint(args.resume_from_checkpoint)
    started, status = time.time(), "failed"
    _write_facts(folder, {**facts, "status": "training"})
    try:
        done = trainer.train(resume_from_checkpoint=checkpoint)
        status = "finished"
    except KeyboardInterrupt:
        status = "interrupted"
        raise
    finally:
        facts |= {"status": status, "seconds": round(time.time() - started, 1)}
        _write_facts(folder, facts)
    if this_rank() == 0:  # that of a round that was skipped shares its files with the policy
        shutil.rmtree(folder / "model", ignore_errors=True)
    if run.save_final_model and run.lora_rank:
        save_adapters(trainer, folder)
    elif run.save_final_model:
        trainer.save_model(str(folder / "model"))
        logger.info("model: %s", folder / "model")
    _write_facts(folder, {**facts, "steps": done.global_step, "log": _curves(trainer)})
    return folder


def _trainer(run: DPOArguments, args: Any, pairs: list[PreferencePair]) -> PairTrainer:
    revision = (args.model_init_kwargs or {}).get("revision", "main")
    args.model_init_kwargs = {"dtype": run.dtype, **(args.model_init_kwargs or {})}
    with args.main_process_first():  # the main process downloads
        path = resolve_model(run.model)
        tokenizer = AutoTokenizer.from_pretrained(
            path, padding_side="left", revision=revision, trust_remote_code=args.trust_remote_code
        )
    return make_pair_trainer(path, tokenizer, pairs, args, peft_config=lora_config(run))


def _curves(trainer: PairTrainer) -> dict[str, list[float]]:
    """Return the loss, the share of pairs that the policy has right, and their margins, at each log."""
    names = {"loss": "loss", "accuracy": "rewards/accuracies", "margin": "rewards/margins"}
    log = [entry for entry in trainer.state.log_history if "loss" in entry]
    return {name: [entry[key] for entry in log if key in entry] for name, key in names.items()}


def _write_facts(folder: Path, facts: dict[str, Any]) -> None:
    if this_rank() == 0:
        write_facts(folder / FACTS, facts)
