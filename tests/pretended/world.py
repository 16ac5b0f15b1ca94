"""What is trained on the pretended GPU: a policy of two layers that walks through a world of doors, a word per token.

Neither a sandbox nor a download is needed, and a training step with its rollout takes half a second.
"""

import random
from pathlib import Path
from typing import Any

import torch

from arpo_env import ToolEnv
from arpo_trainer import ARPOConfig, ARPOTrainer, RolloutTree
from arpo_trainer.rollout.rendering import Renderer
from arpo_trainer.run.sft_run import cold_start
from arpo_trainer.sft.trace_data import Example, tokenised
from arpo_trainer.training.recorder import RunRecorder
from benchmarks.laboratory.lab_policy import walk, world_env
from benchmarks.laboratory.tiny_model import tiny_tokenizer
from tests.arpo_trainer.quick_settings import QUICK
from tests.arpo_trainer.training.test_trainer import listener
from tests.conftest import tiny_llama

GROUP = 4
KNOBS = {"decisions": 2, "routine": 1}


def world() -> ToolEnv:
    return world_env("short", KNOBS)


def walks(count: int) -> list[Example]:
    env, rng = world_env("short", KNOBS, spare=100), random.Random(0)
    renderer = Renderer(tiny_tokenizer(), env.protocol)
    return [tokenised(walk(env, task, rng), renderer, env.schemas, end_token=False) for task in range(count)]


def learn_to_walk(folder: Path, epochs: int = 6, packing: bool | str = False) -> Path:
    """Write a policy that has seen walks, by the cold start on the device that is there."""
    tokenizer = tiny_tokenizer()
    model = tiny_llama(len(tokenizer), seed=0)
    cold_start(model, tokenizer, walks(32), folder, epochs=epochs, learning_rate=2e-2, bf16=False, packing=packing)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def ids_reward(completion_ids: list[list[int]], **_: Any) -> list[float]:
    return [sum(ids) % 97 / 97 for ids in completion_ids]


class Run:
    """A training from beginning to end, and what it has seen.

    Attributes:
        trainer: as it was left.
        trees: of each rollout.
        logs: what was logged of each step.
    """

    def __init__(
        self,
        policy: Path,
        folder: Path,
        kind: type[ARPOTrainer] = ARPOTrainer,
        *,
        cpu: bool = False,
        lora: bool = False,
        dtype: str = "float32",
        resume: str | None = None,
        **settings: Any,
    ) -> None:
        values = QUICK | {"report_to": [], "use_cpu": cpu, "seed": 1, "model_init_kwargs": {"dtype": dtype}}
        values |= {"num_generations": GROUP, "initial_rollouts": 2}
        values |= {"branch_alpha": 1.0}  # every result branches while there is budget
        values |= {"per_device_train_batch_size": GROUP, "gradient_accumulation_steps": 2, "max_steps": 2}
        values |= {"learning_rate": 1e-2 if lora else 1e-3, "max_completion_length": 96, "max_turn_length": 12}
        args = ARPOConfig(str(folder), **values | settings)
        self.trees: list[list[RolloutTree]] = []
        peft = None
        if lora:
            from peft import LoraConfig

            peft = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")
        torch.manual_seed(0)
        tokenizer = tiny_tokenizer()
        self.trainer = kind(str(policy), world(), ids_reward, args, processing_class=tokenizer, peft_config=peft)
        self.trainer.remove_callback(RunRecorder)  # runs that are compared share a folder
        self.trainer.add_callback(listener(on_rollout=self.trees.append))
        self.trainer.train(resume_from_checkpoint=resume)

    @property
    def logs(self) -> list[dict[str, Any]]:
        return [entry for entry in self.trainer.state.log_history if "loss" in entry]

    def words(self) -> list[Any]:
        """What was sampled, and where it branched."""
        return [
            (tree.task["id"], [span.ids for span in tree.spans], [t.origin for t in tree.trajectories])
            for trees in self.trees
            for tree in trees
        ]

    def weights(self) -> torch.Tensor:
        return weights_of(self.trainer.model)


def weights_of(model: Any) -> torch.Tensor:
    return torch.cat([value.detach().float().cpu().flatten() for value in model.parameters()])
