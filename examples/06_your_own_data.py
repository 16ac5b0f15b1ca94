"""Make an environment of a data file: JSON Lines (or CSV, JSON, Parquet) with the columns question and answer.

Run it: python examples/06_your_own_data.py [--data FILE]
"""

import argparse
from pathlib import Path

import gymnasium as gym

import arpo_env

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--data", type=Path, default=Path(__file__).parent / "data" / "questions.jsonl")
data = parser.parse_args().data

arpo_env.register("mine/Puzzles-v0", data, tools=["python"], scorer="math", max_tool_calls=3)
env = gym.make("mine/Puzzles-v0")
tasks = env.unwrapped.tasks
for number in range(tasks.size):
    task = tasks.task(number)
    print(f"{task.question} -> {task.answers[0]}")

env.reset(options={"index": 0})
_, reward, *_ = env.step("<think>84 km in 3/4 of an hour.</think><answer>\\boxed{112 km/h}</answer>")
print("reward", reward)
env.close()
