"""Register an environment id of your own, with generated tasks that have a split, a level and a seed.

Run it: python examples/07_your_own_environment.py
In a module of yours, say my_envs.py, the id is found from everywhere: gym.make("my_envs:mine/Dice-v0"),
arpo play my_envs:mine/Dice-v0, arpo train --set env=my_envs:mine/Dice-v0.
"""

import random

import gymnasium as gym

import arpo_env
from envs_registry import Task


def dice_tasks(split: str = "train", level: int = 1, seed: int = 0) -> list[Task]:
    """Return 50 tasks; the parameters are options of the environment."""
    draws = random.Random(f"{split}/{level}/{seed}")
    tasks = []
    for number in range(50):
        dice = [draws.randint(1, 6) for _ in range(3 * level)]
        setup = f"dice = {dice}"  # run in the interpreter before the first call
        question = "The list dice holds throws of a die. How many pairs of them (i < j) show the same number?"
        pairs = sum(dice[i] == dice[j] for j in range(len(dice)) for i in range(j))
        tasks.append(Task(f"dice-{split}-{level}-{seed}-{number}", question, (str(pairs),), kind="math", setup=setup))
    return tasks


arpo_env.register("mine/Dice-v0", dice_tasks, splits=("train", "test"), tools=["python"], scorer="math")

env = gym.make("mine/Dice-v0", split="test", level=4)
print(env.reset(seed=0)[0])
pairs = "sum(dice[i] == dice[j] for j in range(len(dice)) for i in range(j))"
*_, info = env.step(f"<think>I count them.</think><python>{pairs}</python>")
_, reward, *_ = env.step(f"<think>Done.</think><answer>\\boxed{{{info['results'][0]}}}</answer>")
print("answer", info["results"][0], "reward", reward)
env.close()
