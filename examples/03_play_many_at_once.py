"""Play eight episodes at once: `gym.make_vec` runs them on one event loop, in one sandbox.

Run it: python examples/03_play_many_at_once.py
"""

import gymnasium as gym

import arpo_env

gym.register_envs(arpo_env)

envs = gym.make_vec("arpo/Arithmetic-v0", num_envs=8, level=1)
questions, infos = envs.reset(seed=0)

expressions = [question.removeprefix("What is ").removesuffix("?") for question in questions]
*_, infos = envs.step([f"<think>I compute it.</think><python>{text}</python>" for text in expressions])

answers = [results[0] for results in infos["results"]]
_, rewards, *_ = envs.step([f"<think>Done.</think><answer>\\boxed{{{text}}}</answer>" for text in answers])
for question, answer, reward in zip(questions, answers, rewards, strict=True):
    print(f"{question} {answer} (reward {reward})")
envs.close()
