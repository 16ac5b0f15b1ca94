"""A training run from settings: environments, perhaps a cold start, evaluation, training, evaluation, report.

arpo train --recipe arithmetic-cpu            # a recipe of the package; `arpo recipes` lists them
arpo train --recipe arithmetic-cpu --dry-run  # the estimated costs only; see `dry_run`
arpo train --config my.yaml --set max_steps=3
arpo train --config my.yaml --accelerate-config ddp --num-processes 2      # two processes; see docs/how-to/gpus.md

With several processes each has a `TrainingRun` and a sandbox of its own. The main process downloads and caches first;
it alone records, reports and prints.
"""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm
from transformers import TrainerCallback
from transformers.trainer_callback import PrinterCallback, ProgressCallback

import arpo_env  # noqa: F401  (registers the environments)
from arpo_trainer.folder_lock import LOCK, lock_folder
from arpo_trainer.ray_rollouts.actor_group import check_address
from arpo_trainer.rollout.engine import on_every_rank, share, this_rank
from arpo_trainer.rollout.model_protocol import marked
from arpo_trainer.rollout.rendering import as_published
from arpo_trainer.run.arguments import (
    RunArguments,
    configure,
    idle_threads,
    lora_config,
    model_source,
    run_tokenizer,
    save_final,
)
from arpo_trainer.run.dry_run import RunEnvironments, log_estimate
from arpo_trainer.run.sft_run import cold_started_model
from arpo_trainer.training.config import ARPOConfig
from arpo_trainer.training.evaluation import Evaluation
from arpo_trainer.training.recorder import RunRecorder, check_output
from arpo_trainer.training.resume import find_checkpoint
from arpo_trainer.training.trainer import ARPOTrainer

logger = logging.getLogger(__name__)


def train(settings: dict[str, Any], reward_funcs: Any = None) -> Path:
    """Train, and return the folder with the model and the report.

    Args:
        settings: fields of `RunArguments` and `ARPOConfig`, by name. Folders and files are str or Path.
        reward_funcs: TRL reward functions that replace the environment's reward.

    Raises:
        ValueError: the settings cannot work; nothing has been loaded then.
        FileNotFoundError: the model's folder is missing.
    """
    run, args = configure(settings)
    torch.set_num_threads(run.threads or idle_threads())
    return TrainingRun(run, args, settings, reward_funcs).run()


class TrainingRun:
    """One run: its parts, and their order."""

    def __init__(
        self, arguments: RunArguments, args: ARPOConfig, settings: dict[str, Any], reward_funcs: Any = None
    ) -> None:
        self.arguments, self.args, self.settings, self.reward_funcs = arguments, args, settings, reward_funcs
        self.folder = Path(args.output_dir)
        self.checkpoint = find_checkpoint(args.resume_from_checkpoint, self.folder)
        self.environments = RunEnvironments(arguments)

    def run(self) -> Path:
        """Do everything; once training has started, a report is written even if it fails."""
        # what is downloaded or built once (data sets, the sandbox's image) is left to the main process
        with self.args.main_process_first():
            if this_rank() == 0:
                if (self.folder / LOCK).is_file():
                    lock_folder(self.folder).close()  # before anything is loaded: does another run write there?
                check_output(self.folder, self.checkpoint)
            self.environments.check(self.args)
            run_tokenizer(self.arguments, self.args)  # is downloaded; the estimate, too, reads the model
            if self.args.ray_address:
                check_address(self.args.ray_address)  # before a model is loaded
            # rollout workers have the sandboxes then, and say themselves what is missing
            isolation = "of the rollout workers"
            if not self.args.uses_workers:
                isolation = ", ".join(dict.fromkeys(env.sandbox.isolation for env in self.environments.played()))
        logger.info("sandbox: %s", isolation)
        recorder, facts = None, {}
        if this_rank() == 0:
            recorder = RunRecorder(self.folder, self.args.trace_every)
            facts = {
                "name": self.args.run_name or self.folder.name,
                "algorithm": self.args.algorithm,
                "env": {"id": self.arguments.env, "kwargs": self.arguments.env_kwargs},
                "model": self.arguments.model,
                "seed": self.args.seed,
                "settings": self.settings,
                "isolation": isolation,
                "estimate": log_estimate(self.arguments, self.args, self.environments),
            }
        with recorder.recording(facts, self.checkpoint) if recorder else contextlib.nullcontext():
            self._learn(recorder)
        return self.folder

    def _learn(self, recorder: RunRecorder | None) -> None:
        trainer = self.make_trainer(recorder)
        # a resumed run has its first evaluation already; only the main process can know
        known = on_every_rank(lambda: recorder is not None and recorder.has_evaluation("before"))[0]
        before = None if known else self._evaluate(trainer, "before")
        trainer.train(resume_from_checkpoint=self.checkpoint)
        after = self._evaluate(trainer, "after")
        if before and after:
            logger.info("%s\n%s", before, after)
        # every process takes part in saving: sharded weights are gathered
        save_final(trainer, self.arguments, self.folder)

    def make_trainer(self, recorder: RunRecorder | None = None) -> ARPOTrainer:
        """Return the trainer; a cold start is made if the settings ask for one."""
        run, args = self.arguments, self.args
        with args.main_process_first():
            path, tokenizer = model_source(run, args)[0], run_tokenizer(run, args)
        if self.environments.cold_start:
            # the demonstrations have to show results as the algorithm's rollouts will
            env = as_published(self.environments.cold_start, args.rollout_settings().parts)
            tokenizer = marked(tokenizer, env.protocol.name)
            path = str(cold_started_model(run, args, env, path, tokenizer))
        # a dtype in `model_init_kwargs` replaces that of the run
        args.model_init_kwargs = {"dtype": run.dtype, **(args.model_init_kwargs or {})}
        trainer = ARPOTrainer(
            path,
            self.environments.train,
            reward_funcs=self.reward_funcs,
            args=args,
            processing_class=tokenizer,
            peft_config=lora_config(run),
            eval_env=self.environments.held_out,
            eval_tasks=run.eval_tasks or None,
            overlap="allow",  # `environments.check` has compared the tasks
            callbacks=[recorder, StepPrinter()] if recorder else [],
        )
        # StepPrinter prints one line per step instead of transformers' dictionaries
        trainer.remove_callback(ProgressCallback)
        trainer.remove_callback(PrinterCallback)
        return trainer

    def _evaluate(self, trainer: ARPOTrainer, name: str) -> Evaluation | None:
        if not self.arguments.eval_tasks:
            return None
        last = trainer.evaluations[-1] if trainer.evaluations else None
        if last and last.step == trainer.state.global_step > 0 and not self.args.load_best_model_at_end:
            return last  # the last step was evaluated, and the policy has not changed since
        count, title = len(trainer.eval_tasks), f"evaluating {name} training"
        with tqdm(total=len(share(count)), desc=title, unit="task", disable=this_rank() > 0) as bar:
            return trainer.evaluate_tasks(name, bar.update)


class StepPrinter(TrainerCallback):  # type: ignore[misc]  # transformers is untyped
    """Prints one line per training step above a progress bar."""

    bar: Any

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Open the bar; the number of steps in an epoch is known only now."""
        self.bar = tqdm(desc="training", unit="step", total=state.max_steps, initial=state.global_step)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Print the step's numbers."""
        if logs and "arpo/reward" in logs:
            self.bar.write(
                f"step {state.global_step:>3}  reward {logs['arpo/reward']:+.2f}  "
                f"accuracy {logs['arpo/accuracy']:.2f}  tool calls {logs['arpo/tool_calls']:.2f}  "
                f"entropy {logs.get('arpo/entropy', 0):.2f}  branches {logs['arpo/branches']:.0f}"
            )

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Advance the bar."""
        self.bar.update()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Close the bar."""
        self.bar.close()
