"""A round of self-critic DPO from settings: sampling, pairs, `DPOTrainer`, and a folder with the model.

    dpo(read_settings("dpo-tool-star-qwen2.5-3b", ["model=runs/mine/model"], command="dpo"))

Trajectories are played and kept by the evaluation's runner, in OUTPUT/samples: a round that was killed goes on with
what is missing, and `arpo view` shows them. The pairs are a function of the samples and the settings alone. The output
folder also holds `pairs.jsonl`, checkpoints, the model (`model/`, with adapters also `adapter/`), and `dpo.json`: the
settings, the counts, and what came of it. The command is `arpo dpo`.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import math
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch
from datasets import Dataset
from trl import DPOConfig, DPOTrainer
from trl.trainer.dpo_trainer import DataCollatorForPreference

from arpo_env.protocols import make_protocol
from arpo_trainer.costs.compute_speed import PASS, PASS_AND_BACK, ComputeSpeed, Line
from arpo_trainer.evaluation.episode_store import FACTS, ROWS, EvalRun, broken_causes
from arpo_trainer.evaluation.eval_session import broken_share, run_evaluation
from arpo_trainer.evaluation.eval_settings import EvalModel, EvalSettings, load_tokenizer
from arpo_trainer.make_env import known_id
from arpo_trainer.models import check_model_folder, resolve_model
from arpo_trainer.preference.pairs import (
    PairData,
    PairSettings,
    PreferencePair,
    check_shared_losses,
    read_pairs,
    write_pairs,
)
from arpo_trainer.report.run_data import read_facts
from arpo_trainer.rollout.engine import this_rank
from arpo_trainer.rollout.model_protocol import marked, protocol_for
from arpo_trainer.run.arguments import WeightArguments, split_rows_settings
from arpo_trainer.run.sft_run import KeptRun, hours_of, planned_processes
from arpo_trainer.training.devices import OneDevice, check_devices, planning, process_count
from arpo_trainer.training.resume import ResumesOnRows
from arpo_trainer.training.trackers import check_trackers, missing_trackers
from arpo_trainer.validation import check_name
from envs_registry.sources import is_generated
from envs_registry.spec import get_spec, has_spec

logger = logging.getLogger(__name__)
GENERATORS = ("transformers", "vllm", "vllm-server")  # an endpoint does not return the ids that it sampled
NO_PAIRS = ("error", "skip")
SAMPLES, PAIRS = "samples", "pairs.jsonl"
_SAMPLING = {"top_p": 1.0, "repetition_penalty": 1.0}  # as in training: the pairs are of the policy itself
_LENGTH = 4096  # tokens of a trajectory in a dry run if the settings do not say
# curves of the record: the loss, the share of pairs that the policy has right, and their margins
_CURVES = {"loss": "loss", "accuracy": "rewards/accuracies", "margin": "rewards/margins"}


@dataclass
class DPOArguments(WeightArguments, PairSettings):
    """The settings of a round of self-critic DPO beside TRL's `DPOConfig`, with those of `WeightArguments`.

    `model` is the policy: it is sampled, trained, and the reference. How trajectories are paired is set by the fields
    of `PairSettings`.

    Attributes:
        env: environment whose tasks are sampled; its reward scores them.
        env_kwargs: its options. What is missing is the split "train", and for a finite set an order drawn with `seed`.
        tasks: number of tasks that are sampled.
        first_task: number of the first one; the next round of a pipeline begins after those of this one.
        samples: trajectories of each task.
        algorithm: "grpo" samples independently; one that branches, such as "arpo", plays a tree for each task.
        temperature: of sampling.
        max_turn_length: maximum number of tokens of one turn; None is 4096.
        max_completion_length: tokens after the prompt, with results; None is what the model takes.
        rollout: other settings of rollouts by name, such as {"initial_rollouts": 4}.
        generation: "transformers", "vllm" (an engine in this process) or "vllm-server".
        vllm_server: addresses of servers that serve `model`, for "vllm-server".
        concurrency: maximum number of trajectories at once.
        limits: maximum number of operations of one kind at once, such as {"python": 8}.
        max_broken: largest share of trajectories that may break before the round stops.
        pairs: files of pairs to learn from, in place of sampling.
        no_pairs: what happens if no pair is found: "error" stops, "skip" hands the policy on as it is.
        rows_per_update: pairs that an update sees, on any number of processes; None leaves TRL's settings.
    """

    lowest: ClassVar[dict[str, float]] = {
        **dict.fromkeys(("tasks", "pairs_per_task", "concurrency", "rows_per_update", "max_turn_length"), 1),
        **{"max_completion_length": 1, "first_task": 0, "samples": 2},
    }

    env: str = "arpo/Arithmetic-v0"
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    tasks: int = 64
    first_task: int = 0
    samples: int = 8
    algorithm: str = "grpo"
    temperature: float = 1.0
    max_turn_length: int | None = None
    max_completion_length: int | None = None
    rollout: dict[str, Any] = field(default_factory=dict)
    generation: str = "transformers"
    vllm_server: list[str] = field(default_factory=list)
    concurrency: int = 64
    limits: dict[str, int] = field(default_factory=dict)
    max_broken: float = 0.2
    pairs: str | list[str] = field(default_factory=list)
    no_pairs: str = "error"
    rows_per_update: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        PairSettings.__post_init__(self)
        check_name("generation", self.generation, GENERATORS)
        check_name("no_pairs", self.no_pairs, NO_PAIRS)
        if (self.generation == "vllm-server") != bool(self.vllm_server):
            raise ValueError("generation: vllm-server and vllm_server: [URL] go together: give both, or neither")

    @property
    def pair_files(self) -> list[str]:
        """The files of `pairs`."""
        return [self.pairs] if isinstance(self.pairs, str) else self.pairs

    def sampling(self, env_options: dict[str, Any], seed: int) -> EvalSettings:
        """Return what is played, in an environment with these options."""
        lengths = {name: getattr(self, name) for name in ("max_turn_length", "max_completion_length")}
        given = {name: value for name, value in lengths.items() if value is not None}
        rollout = {**_SAMPLING, "temperature": self.temperature, **given, **self.rollout}
        trees = self.algorithm != "grpo"
        same = ("tasks", "first_task", "algorithm", "concurrency", "limits", "max_broken")
        return EvalSettings(
            (self.env,),
            env_options,
            samples=1 if trees else self.samples,
            seed=seed,
            rollout={"num_generations": self.samples, **rollout} if trees else rollout,
            **{name: getattr(self, name) for name in same},
        )


def configure_dpo(settings: dict[str, Any]) -> tuple[DPOArguments, DPOConfig]:
    """Return the checked `DPOArguments` and `DPOConfig` for settings by name; no model and no task is loaded.

    Raises:
        ValueError: a setting is unknown or cannot work.
        UnknownEnvError: the environment is unknown; the error lists the nearest ids.
        FileNotFoundError: the model's folder is missing.
    """
    run, values = split_rows_settings(settings, DPOArguments, DPOConfig, "dpo")
    known_id(run.env)
    if values.get("remove_unused_columns"):
        raise ValueError("remove_unused_columns=true would remove the masks of tool results: leave it out")
    args = DPOConfig(**{**values, "remove_unused_columns": False})
    check_devices(args)
    check_trackers(args.report_to)
    if run.algorithm != "grpo" and not run.pairs:  # pairs that share turns are on their way
        check_shared_losses(args)
    if args.precompute_ref_log_probs and process_count() > 1:
        raise ValueError("precompute_ref_log_probs=true works in one process; leave it out with several")
    if Path(run.model).resolve() == Path(args.output_dir, "model").resolve():
        raise ValueError(
            f"the round would write its model over the one that it starts from, {run.model!r}, which a resumed round "
            "needs as the reference: give another output_dir"
        )
    run.sampling({}, args.seed).rollout_settings()  # checks the settings of rollouts
    check_model_folder(run.model)
    return run, args


# The trainer. TRL scores the tokens that its collator marks in `completion_mask`, and marks all after the prompt; the
# collator here leaves out what the model did not write. TRL would tokenise texts first; `_prepare_dataset`, which does
# that, is the one internal method that is replaced: ids of a rollout are never decoded and encoded again. Both sides of
# a pair see the results of tools as context; no probability of them is in the loss.
#
# The reference is the policy before the first step: with adapters the base without them, otherwise a second copy of the
# model, or its log-probabilities alone with `precompute_ref_log_probs` (one process).

_COLUMNS = ("prompt_ids", "chosen_ids", "chosen_mask", "rejected_ids", "rejected_mask")


@dataclass
class MaskedPreferenceCollator(DataCollatorForPreference):  # type: ignore[misc]  # TRL is untyped
    """Makes TRL's batches of pairs, in which the tokens of the model alone count.

    Rows are chosen sides first, then rejected ones, padded on the right.
    """

    def torch_call(self, examples: list[dict[str, Any]]) -> dict[str, Any]:
        """Return `input_ids`, `attention_mask` and `completion_mask`, each of shape (2 B, tokens)."""
        batch: dict[str, Any] = super().torch_call(examples)
        learnt = torch.zeros_like(batch["completion_mask"])
        sides = [(example, side) for side in ("chosen", "rejected") for example in examples]
        for row, (example, side) in enumerate(sides):
            mask, start = example[f"{side}_mask"], len(example["prompt_ids"])
            learnt[row, start : start + len(mask)] = torch.tensor(mask)
        batch["completion_mask"] = learnt
        return batch


class PairTrainer(ResumesOnRows, OneDevice, DPOTrainer):  # type: ignore[misc]  # TRL is untyped
    """`DPOTrainer` on rows of ids and masks, with exact resume."""

    state_name = "dpo"

    def _prepare_dataset(self, dataset: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the rows as they are: TRL's own method would tokenise texts."""
        return dataset


def make_pair_trainer(
    model: Any,
    tokenizer: Any,
    pairs: Sequence[PreferencePair],
    args: DPOConfig,
    *,
    peft_config: Any = None,
) -> PairTrainer:
    """Return a trainer for pairs.

    Args:
        model: a causal language model, or its folder or hub id; the reference is a copy of it.
        tokenizer: its tokenizer, of which only the padding is used.
        pairs: at least one.
        args: the settings; `max_length` and `truncation_mode` are not used, since a pair that is cut has no answer.
        peft_config: the configuration of the adapters, if only those are trained.
    """
    if not pairs:
        raise ValueError("no pairs to learn from")
    if any(pair.shared for pair in pairs):
        check_shared_losses(args)
    args.remove_unused_columns = False  # the masks are columns that TRL does not know
    rows = [{name: value for name, value in asdict(pair).items() if name in _COLUMNS} for pair in pairs]
    padding = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    trainer = PairTrainer(
        model,
        args=args,
        data_collator=MaskedPreferenceCollator(padding, pad_to_multiple_of=args.pad_to_multiple_of),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        peft_config=peft_config,
    )
    size = trainer.model.get_input_embeddings().num_embeddings
    for pair in pairs:
        if (largest := max(*pair.prompt_ids, *pair.chosen_ids, *pair.rejected_ids)) >= size:
            raise ValueError(
                f"a pair of task {pair.task!r} has the token id {largest}, and the model has {size} tokens: the pairs "
                "were sampled with another tokenizer. Sample them from this model"
            )
    _check_batch(trainer, rows[0])
    trainer.rows_digest = hashlib.sha256(json.dumps(list(map(asdict, pairs))).encode()).hexdigest()[:16]
    return trainer


def _check_batch(trainer: PairTrainer, row: dict[str, list[int]]) -> None:
    """Check that a batch has the ids and masks of its pair: results of tools must never be learnt silently."""
    batch = trainer.data_collator([trainer.train_dataset[0]])
    for number, side in enumerate(("chosen", "rejected")):
        ids, mask = batch["input_ids"][number], batch["completion_mask"][number]
        expected = [token for token, own in zip(row[f"{side}_ids"], row[f"{side}_mask"], strict=True) if own]
        if ids[mask.bool()].tolist() != expected:
            raise RuntimeError("this release of TRL changes pairs of token ids: pip install 'trl>=1.16'")


# A round.


def dpo(settings: dict[str, Any], resume: bool = False, sample_only: bool = False) -> Path:
    """Do a round, and return the output folder.

    Args:
        settings: fields of `DPOArguments` and TRL's `DPOConfig`, by name.
        resume: go on with what the folder holds.
        sample_only: end when the pairs are written.

    Raises:
        ValueError: the settings cannot work, or no pair was found and `no_pairs` is "error".
        FileExistsError: the folder holds another round, and `resume` is not set.
        RuntimeError: too many trajectories broke.
    """
    run, args = configure_dpo(settings)
    kept = KeptRun("dpo", run, args, settings)
    samples = kept.folder / SAMPLES / ROWS
    # the processes of a launcher find the samples of the process that started them
    sampled = not run.pair_files and process_count() == 1 and samples.is_file() and samples.stat().st_size
    with kept.held(resume, *([SAMPLES] if sampled else [])):
        if not sample_only:
            kept.check_memory()
        pairs, kept.facts["data"] = _pairs(run, args, kept)
        kept.facts["protocol"] = _protocol(run, kept)
        if not pairs:
            return _without_pairs(run, kept)
        if sample_only:
            kept.write(status="sampled")
            return kept.folder
        options = kept.model_options()
        tokenizer = marked(kept.tokenizer(), kept.facts["protocol"])
        trainer = make_pair_trainer(tokenizer=tokenizer, pairs=pairs, args=args, **options)
        if this_rank() == 0:  # that of a round that was skipped shares its files with the policy
            shutil.rmtree(kept.folder / "model", ignore_errors=True)
        return kept.train(trainer, _CURVES)


def _pairs(run: DPOArguments, args: Any, kept: KeptRun) -> tuple[list[PreferencePair], dict[str, Any]]:
    """Return the pairs and their counts: from files, from a process that has sampled already, or sampled now."""
    if files := run.pair_files:
        read = [pair for file in files for pair in read_pairs(file)]
        pairs = [pair for pair in read if args.max_length is None or pair.tokens <= args.max_length]
        return pairs, {"pairs": len(pairs), "too_long": len(read) - len(pairs)}
    file = kept.folder / PAIRS
    if process_count() > 1:
        if not file.is_file():
            raise FileNotFoundError(f"no {file}: sample in one process first, with arpo dpo --sample-only")
        found = json.loads(kept.record.read_text(encoding="utf-8")) if kept.record.is_file() else {}
        return read_pairs(file), found.get("data", {})
    # what was sampled before a kill is not sampled again
    played, data = _play(run, kept.folder / SAMPLES, args.seed), PairData()
    for task, rows in itertools.groupby(played.rows, key=lambda row: row.task):
        data.add(task, [played.tree(row) for row in rows], run, args.seed, args.max_length)
    write_pairs(file, data.pairs)
    (logger.info if data.pairs else logger.warning)("%s", data.words())
    return data.pairs, {**data.facts(), "words": data.words()}


def _protocol(run: DPOArguments, kept: KeptRun) -> str:
    """Return the protocol of the pairs: that of the samples, else of the environment, else of the model."""
    samples = kept.folder / SAMPLES / FACTS
    facts = read_facts(samples) if samples.is_file() and not run.pair_files else {}
    if played := list(facts.get("protocols", {}).get("policy", {}).values()):
        return str(played[0])
    env_id = known_id(run.env)
    spec = get_spec(env_id).protocol if has_spec(env_id) else None
    given = make_protocol(run.env_kwargs.get("protocol") or spec or protocol_for(kept.tokenizer())[0])
    return given.name


def _play(run: DPOArguments, folder: Path, seed: int) -> EvalRun:
    settings = run.sampling(task_options(run, seed), seed)
    kind: Any = run.generation
    models = [EvalModel("policy", kind, run.model, tuple(run.vllm_server))]
    load_tokenizer(models[0])  # a model that is none is refused before there is a folder
    finished = (folder / FACTS).is_file() and read_facts(folder / FACTS).get("status") == "finished"
    found = run_evaluation(settings, models, folder, resume=True)
    if finished and broken_share(found) > run.max_broken:  # the round stopped for them: they are played again
        found = run_evaluation(settings, models, folder, repeat_broken=True)
    if (share := broken_share(found)) > settings.max_broken:
        causes = ", ".join(f"{cause} {count}" for cause, count in broken_causes(found.rows).most_common())
        raise RuntimeError(
            f"{100 * share:.0f} % of the trajectories in {folder} broke ({causes}), more than max_broken "
            f"({settings.max_broken}). Mend the cause and run the same command with --resume: only those are played "
            "again"
        )
    return found


def task_options(run: DPOArguments, seed: int) -> dict[str, Any]:
    """Return the options of the environment: tasks for training in a random order, unless the settings say more."""
    env_id = known_id(run.env)
    if not has_spec(env_id):
        return dict(run.env_kwargs)
    spec = get_spec(env_id)
    split = {"split": "train"} if "train" in spec.splits else {}
    # of generated tasks the seed is their world, which training and evaluation share
    order = {} if is_generated(spec.source) else {"shuffle": True, "seed": seed}
    return {**split, **order, **run.env_kwargs}


def _without_pairs(run: DPOArguments, kept: KeptRun) -> Path:
    """End a round in which nothing can be learnt: the policy goes on as it is, or this is an error."""
    words = kept.facts["data"].get("words", f"no pair in {', '.join(run.pair_files)} that is short enough")
    kept.write(status="skipped" if run.no_pairs == "skip" else "failed")
    if run.no_pairs == "error":
        raise ValueError(
            f"nothing to learn from: {words}. A pair needs a right and a wrong trajectory of one task: take more "
            "tasks or samples, tasks that are solved sometimes, or a higher temperature; no_pairs=skip hands the "
            "policy on as it is"
        )
    if run.save_final_model and this_rank() == 0:
        _hand_on(run.model, kept.folder / "model")
    logger.warning("round skipped, and the policy is unchanged: %s", words)
    return kept.folder


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


def dpo_dry_run(
    settings: dict[str, Any], processes: int | None = None, speed: ComputeSpeed | None = None
) -> tuple[list[Line], list[str]]:
    """Return a table of the most that a round would sample and learn, and what is missing here, as `sft_dry_run`."""
    count = planned_processes(settings, processes)
    with planning(count):
        run, args = configure_dpo(settings)
    length = run.max_completion_length or _LENGTH
    files = run.pair_files
    sampled = 0 if files else run.tasks * run.samples
    # a trajectory is in one pair, so that half of them bound the pairs of a task
    pairs = run.tasks * min(run.pairs_per_task, run.samples // 2)
    pairs = sum(len(read_pairs(file)) for file in files) if files else pairs
    per_step = args.per_device_train_batch_size * args.gradient_accumulation_steps * count
    steps = args.max_steps if args.max_steps > 0 else math.ceil(pairs / per_step) * math.ceil(args.num_train_epochs)
    how = "independent samples" if run.algorithm == "grpo" else f"trees by {run.algorithm}"
    most = f"{run.pairs_per_task} of a task; tasks that are always or never solved have none"
    if sampled:
        rows = [
            ("TRAJECTORIES", f"{sampled:,}", f"{run.tasks:,} tasks of {run.env}, {run.samples} each; {how}"),
            ("tokens sampled, at most", f"{sampled * length:,}", f"{length:,} per trajectory"),
            ("pairs, at most", f"{pairs:,}", most),
        ]
    else:
        rows = [("pairs", f"{pairs:,}", "of the given files")]
    rows.append(("optimizer steps" + ", at most" * bool(sampled), f"{steps:,}", f"{per_step} pairs each"))
    seen = 2 * pairs * (min(length, args.max_length or length))
    reference = 1 if args.precompute_ref_log_probs else float(args.num_train_epochs)
    learning = (PASS_AND_BACK * args.num_train_epochs + PASS * reference) * seen
    hours, missing = hours_of(run, args, count, speed, PASS * sampled * length + learning)
    return [*rows, *hours], [*missing_trackers(args.report_to), *missing]
