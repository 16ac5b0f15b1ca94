"""Samples trajectories of tasks from a policy and pairs them: the data of a round of self-critic DPO.

They are played and kept by the evaluation's runner, in OUTPUT/samples: each is appended when it has ended, a round that
was killed goes on with what is missing, and `arpo view` shows them. The pairs are made from all of them at the end, and
are a function of the samples and the settings alone.

    data = sample_pairs(run, "runs/mine-dpo", seed=0, max_length=8192)
"""

from __future__ import annotations

import itertools
import logging
from pathlib import Path
from typing import Any

from arpo_trainer.evaluation.episode_store import FACTS, EvalRun
from arpo_trainer.evaluation.eval_models import EvalModel, load_tokenizer
from arpo_trainer.evaluation.eval_session import broken_share, run_evaluation
from arpo_trainer.evaluation.eval_settings import EvalSettings
from arpo_trainer.evaluation.unit_row import broken_causes
from arpo_trainer.make_env import known_id
from arpo_trainer.preference.dpo_arguments import DPOArguments
from arpo_trainer.preference.pair_file import PairData
from arpo_trainer.report.run_data import read_facts
from envs_registry.sources import is_generated
from envs_registry.spec import get_spec, has_spec

logger = logging.getLogger(__name__)
SAMPLES = "samples"
_LABEL = "policy"


def sample_pairs(run: DPOArguments, folder: str | Path, seed: int, max_length: int | None) -> PairData:
    """Return the pairs of a round; what was sampled before a kill is not sampled again.

    Args:
        run: the settings of the round.
        folder: its output folder.
        seed: of tasks, samples and the choice of pairs.
        max_length: most tokens of a side with its prompt; longer pairs are dropped and counted.

    Raises:
        ValueError: the folder has samples that were made with other settings.
        RuntimeError: too many trajectories broke.
        GenerationError: the model failed again and again.
    """
    played = _play(run, Path(folder) / SAMPLES, seed)
    data = PairData()
    for task, rows in itertools.groupby(played.rows, key=lambda row: row.task):
        trees = [played.tree(row) for row in rows]
        data.add(task, trees, run.pair_settings(seed), max_length)
    return data


def _play(run: DPOArguments, folder: Path, seed: int) -> EvalRun:
    settings = run.sampling(task_options(run, seed), seed)
    kind: Any = run.generation
    models = [EvalModel(_LABEL, kind, run.model, tuple(run.vllm_server))]
    load_tokenizer(models[0])  # a model that is none is refused before there is a folder
    finished = (folder / FACTS).is_file() and read_facts(folder / FACTS).get("status") == "finished"
    found = run_evaluation(settings, models, folder, resume=True)
    if finished and broken_share(found) > run.max_broken:  # the round stopped for them: they are played again
        found = run_evaluation(settings, models, folder, repeat_broken=True)
    _refuse_broken(found, settings, folder)
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


def _refuse_broken(found: EvalRun, settings: EvalSettings, folder: Path) -> None:
    share = broken_share(found)
    if share <= settings.max_broken:
        return
    causes = ", ".join(f"{cause} {count}" for cause, count in broken_causes(found.rows).most_common())
    raise RuntimeError(
        f"{100 * share:.0f} % of the trajectories in {folder} broke ({causes}), more than max_broken "
        f"({settings.max_broken}). Mend the cause and run the same command with --resume: only those are played again"
    )
