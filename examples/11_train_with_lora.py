"""Train LoRA adapters instead of all weights: give the trainer PEFT's configuration, as in TRL.

Run it: MODEL=Qwen/Qwen2.5-0.5B-Instruct STEPS=20 python examples/11_train_with_lora.py
It needs PEFT: pip install '.[lora]'
"""

import os

import gymnasium as gym
import torch
from peft import LoraConfig

import arpo_env
from arpo_trainer import ARPOConfig, ARPOTrainer

gym.register_envs(arpo_env)

args = ARPOConfig(
    output_dir="runs/lora",
    max_steps=int(os.environ.get("STEPS", "20")),
    num_generations=8,
    per_device_train_batch_size=8,
    max_completion_length=512,
    learning_rate=1e-5,  # ten times that of all weights
    model_init_kwargs={"dtype": "bfloat16"},  # the base is frozen
    use_cpu=not torch.cuda.is_available(),
)
lora = LoraConfig(r=16, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM")
env = gym.make("arpo/Arithmetic-v0", level=3)
trainer = ARPOTrainer(os.environ.get("MODEL", "Qwen/Qwen2.5-0.5B-Instruct"), env, args=args, peft_config=lora)
trainer.model.print_trainable_parameters()
trainer.train()
trainer.save_model("runs/lora/adapter")
trainer.model.merge_and_unload().save_pretrained("runs/lora/model")  # loads like any other model
