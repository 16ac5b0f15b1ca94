"""The steps of one run, one after the other; `train.train` checks the settings first.

Under several processes each has a session. What is downloaded or made once is left to the main one first; recording,
the report and the printing are its alone. Each process has a sandbox of its own.
"""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from transformers.trainer_callback import PrinterCallback, ProgressCallback

import arpo_env  # noqa: F401  (registers the environments)
from arpo_env import ToolEnv
from arpo_trainer.algorithms.published_code import as_published
from arpo_trainer.report.html_report import write_report
from arpo_trainer.rollout.concurrency import check_limits
from arpo_trainer.rollout.distributed import on_every_rank, share, this_rank
from arpo_trainer.run.cold_start import Example, check_solvable, cold_start, demonstrations
from arpo_trainer.run.dry_run import announce
from arpo_trainer.run.launch import shards
from arpo_trainer.run.lora import lora_config, save_adapters
from arpo_trainer.run.recorder import RunRecorder
from arpo_trainer.run.train import RunArguments, cold_start_folder, known_id, make_env, resolve_model
from arpo_trainer.training.checkpoints import find_checkpoint
from arpo_trainer.training.config import ARPOConfig
from arpo_trainer.training.config_checks import check_vllm_length
from arpo_trainer.training.evaluation import Evaluation
from arpo_trainer.training.trainer import ARPOTrainer, training_tasks
from envs_registry.contamination import Overlap, overlap, without
from envs_registry.sources import LimitedSource
from sandbox import default_sandbox

logger = logging.getLogger(__name__)


class StepPrinter(TrainerCallback):  # type: ignore[misc]  # transformers is untyped
    """One line and one tick of a progress bar a training step."""

    bar: Any

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Open the bar; only now it is known how many steps some epochs are."""
        self.bar = tqdm(desc="training", unit="step", total=state.max_steps, initial=state.global_step)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Show the step's numbers."""
        if logs and "arpo/reward" in logs:
            self.bar.write(
                f"step {state.global_step:>3}  reward {logs['arpo/reward']:+.2f}  "
                f"accuracy {logs['arpo/accuracy']:.2f}  tool calls {logs['arpo/tool_calls']:.2f}  "
                f"entropy {logs['arpo/entropy']:.2f}  branches {logs['arpo/branches']:.0f}"
            )

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Advance the bar."""
        self.bar.update()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Close the bar."""
        self.bar.close()


def own_tasks(env: ToolEnv, count: int) -> str:
    """Return the first tasks of an environment of your own, with their solutions: they may change; "" for ours."""
    if env.env_spec.source != env.env_spec.id:
        return ""
    tasks: Any = env.tasks
    return json.dumps([(tasks.task(number).as_dict(), tasks.solution(number)) for number in range(count)])


class Session:
    """One run: its parts, and the order they are used in."""

    def __init__(self, run: RunArguments, args: ARPOConfig, settings: dict[str, Any], reward_funcs: Any = None) -> None:
        self.run, self.args, self.settings, self.reward_funcs = run, args, settings, reward_funcs
        self.folder = Path(args.output_dir)
        self.checkpoint = find_checkpoint(args.resume_from_checkpoint, self.folder)

    def play(self) -> Path:
        """Do everything; whatever happens after the start, there is a report of it."""
        with self.args.main_process_first():
            env = self._make_env(self.run.env_kwargs)
            env.check()
            self.check_tasks(env)
            isolation = default_sandbox().isolation
        logger.info("sandbox: %s", isolation)
        recorder = None
        if this_rank() == 0:
            facts = {**self._facts(isolation), "estimate": announce(self.run, self.args, env)}
            recorder = RunRecorder(self.folder, facts, self.args.trace_every, self.checkpoint)
        status = "failed"
        try:
            self._learn(env, recorder)
            status = "finished"
        except KeyboardInterrupt:
            status = "interrupted"
            raise
        finally:
            if recorder:
                recorder.write_facts(status=status)
                logger.info("training used %s", recorder.spent)
                logger.info("report: %s", write_report(self.folder))
        return self.folder

    def check_tasks(self, env: ToolEnv) -> None:
        """Refuse, before anything is loaded, tasks that cannot serve.

        Raises:
            ValueError: a cold start without solutions, evaluation on tasks that are trained on without leave, or no
                judge model where one is asked.
            RuntimeError: no search where one is needed.
        """
        env.check()
        check_limits(self.args.rollout_limits(), list(env.tools))
        check_vllm_length(self.args, env.budget.tokens)
        if self.run.cold_start_examples:
            cold = self._make_env({**self.run.env_kwargs, **self.run.cold_start_env_kwargs})
            check_solvable(cold.tasks)
        if not self.run.eval_tasks:
            return
        held_out = self._evaluation_env()
        held_out.check()
        trained = training_tasks(env, self.args)
        found = overlap(trained, LimitedSource(held_out.tasks, self.run.eval_tasks))
        self._settle_overlap(found)
        if self.run.overlap == "drop" and (found.exact or found.near):
            env.tasks = without(trained, found)

    def _settle_overlap(self, found: Overlap) -> None:
        if found.exact and self.run.overlap == "refuse":
            raise ValueError(
                f"{found}. Give the evaluation tasks of its own, as in eval_env_kwargs: {{data: test.jsonl}}; leave "
                "the training rows out with overlap: drop; train on them with overlap: allow; or leave evaluation "
                "out with eval_tasks: 0"
            )
        if found.exact or found.near:
            logger.warning("overlap %s: %s; %d more are similar", self.run.overlap, found, found.near_count)

    def _learn(self, env: ToolEnv, recorder: RunRecorder | None) -> None:
        trainer = self._make_trainer(env, recorder)
        known = on_every_rank(lambda: recorder is not None and recorder.has_evaluation("before"))[0]
        before = None if known else self._evaluate(trainer, "before")
        trainer.train(resume_from_checkpoint=self.checkpoint)
        after = self._evaluate(trainer, "after")
        if before and after:
            logger.info("%s\n%s", before, after)
        if self.run.save_final_model and self.run.lora_rank:
            save_adapters(trainer, self.folder)
        elif self.run.save_final_model:
            trainer.save_model(str(self.folder / "model"))
            logger.info("model: %s", self.folder / "model")

    def _evaluation_env(self) -> ToolEnv:
        run = self.run
        if run.eval_env is None or known_id(run.eval_env) == known_id(run.env):
            return self._make_env({**run.env_kwargs, **run.eval_env_kwargs})
        return self._make_env(run.eval_env_kwargs, run.eval_env)

    def _make_env(self, kwargs: dict[str, Any], env_id: str | None = None) -> ToolEnv:
        return make_env(env_id or self.run.env, kwargs)

    def _make_trainer(self, env: ToolEnv, recorder: RunRecorder | None) -> ARPOTrainer:
        with self.args.main_process_first():
            path = resolve_model(self.run.model)
        revision = (self.args.model_init_kwargs or {}).get("revision", "main")
        tokenizer = AutoTokenizer.from_pretrained(
            path, padding_side="left", revision=revision, trust_remote_code=self.args.trust_remote_code
        )
        if self.run.cold_start_examples:
            path = str(self._cold_started(path, tokenizer))
        self.args.model_init_kwargs = {"dtype": self.run.dtype, **(self.args.model_init_kwargs or {})}
        trainer = ARPOTrainer(
            path,
            env,
            reward_funcs=self.reward_funcs,
            args=self.args,
            processing_class=tokenizer,
            peft_config=lora_config(self.run),
            eval_env=self._evaluation_env() if self.run.eval_tasks else None,
            eval_tasks=self.run.eval_tasks or None,
            on_rollout=recorder.on_rollout if recorder else None,
            on_evaluation=recorder.add_evaluation if recorder else None,
            callbacks=[recorder, StepPrinter()] if recorder else [],
        )
        trainer.remove_callback(ProgressCallback)
        trainer.remove_callback(PrinterCallback)
        return trainer

    def _cold_started(self, path: str, tokenizer: Any) -> Path:
        """Return the folder of the cold-started model; all processes make it, once for each set of settings."""
        run = self.run
        seed = self.args.seed if run.cold_start_seed is None else run.cold_start_seed
        env = self._make_env({**run.env_kwargs, **run.cold_start_env_kwargs})
        env = as_published(env, self.args.rollout_settings().parts)
        prompt = env.system_prompt + own_tasks(env, run.cold_start_examples)
        folder = cold_start_folder(run, path, prompt, seed, env.protocol.name)
        if all(on_every_rank((folder / "config.json").exists)):
            logger.info("cold start: taken from %s", folder)
            return folder
        if shards(self.args):
            raise ValueError(
                "a cold start needs whole weights: make it once with the same settings and max_steps=1, without FSDP "
                "or DeepSpeed (as with --accelerate_config ddp); it is kept, and found by the next run"
            )
        logger.info("cold start: %d demonstrations, %d epochs", run.cold_start_examples, run.cold_start_epochs)
        examples = on_every_rank(lambda: self._demonstrations(env, tokenizer, seed) if this_rank() == 0 else [])[0]
        model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
        scratch = folder.with_suffix(".unfinished")
        cold_start(
            model,
            tokenizer,
            examples,
            scratch,
            epochs=run.cold_start_epochs,
            learning_rate=run.cold_start_learning_rate,
            bf16=self.args.bf16,
            seed=seed,
        )

        def save() -> None:
            if self.args.local_process_index == 0:  # once on each machine
                model.save_pretrained(scratch)
                tokenizer.save_pretrained(scratch)
                shutil.rmtree(folder, ignore_errors=True)
                scratch.rename(folder)

        on_every_rank(save)
        return folder

    def _demonstrations(self, env: ToolEnv, tokenizer: Any, seed: int) -> list[Example]:
        run = self.run
        source: Any = env.tasks
        with contextlib.closing(env):
            return list(
                demonstrations(env, source, tokenizer, run.cold_start_examples, run.cold_start_tool_share, seed)
            )

    def _evaluate(self, trainer: ARPOTrainer, name: str) -> Evaluation | None:
        if not self.run.eval_tasks:
            return None
        last = trainer.evaluations[-1] if trainer.evaluations else None
        if last and last.step == trainer.state.global_step > 0 and not self.args.load_best_model_at_end:
            return last  # the last step was evaluated, and the policy is still that
        count, title = len(trainer.eval_tasks), f"evaluating {name} training"
        with tqdm(total=len(share(count)), desc=title, unit="task", disable=this_rank() > 0) as bar:
            return trainer.evaluate_tasks(name, bar.update)

    def _facts(self, isolation: str) -> dict[str, Any]:
        return {
            "name": self.args.run_name or self.folder.name,
            "algorithm": self.args.algorithm,
            "env": {"id": self.run.env, "kwargs": self.run.env_kwargs},
            "model": self.run.model,
            "seed": self.args.seed,
            "settings": self.settings,
            "isolation": isolation,
        }
