"""Evaluate a model behind an OpenAI-compatible endpoint: each task once, greedily, with 95 % intervals.

Run it: python examples/14_evaluate_an_endpoint.py --url http://127.0.0.1:8000/v1 --name MODEL [--tasks 20]
The key is read from OPENAI_API_KEY, where the endpoint wants one.
"""

import argparse

import gymnasium as gym
from transformers import AutoTokenizer

import arpo_env
from arpo_trainer import Engine, RolloutSettings, evaluate
from arpo_trainer.backends import EndpointBackend

gym.register_envs(arpo_env)
parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--url", help="default: OPENAI_BASE_URL, else OpenAI's")
parser.add_argument("--name", default="gpt-4.1-mini", help="of the model at the endpoint")
parser.add_argument("--tokenizer", default="Qwen/Qwen2.5-0.5B-Instruct", help="measures texts; any one will do")
parser.add_argument("--tasks", type=int, default=20)
options = parser.parse_args()

tokenizer = AutoTokenizer.from_pretrained(options.tokenizer)
backend = EndpointBackend(options.name, options.url, tokenizer=tokenizer)
env = gym.make("arpo/Arithmetic-v0", split="test", level="mixed")
settings = RolloutSettings(max_turn_length=512, max_completion_length=4096)
tasks = [env.unwrapped.tasks.task(number) for number in range(options.tasks)]

result = evaluate(Engine(backend, tokenizer, env, settings), tasks, options.name)
print(result)
for sample in result.samples[:3]:
    print(sample["task"]["question"], "->", sample["answer"], "(right)" if sample["correct"] else "(wrong)")
