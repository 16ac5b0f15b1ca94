"""Play one episode by hand: read the question, run Python in the sandbox, answer, get the reward.

Run it: python examples/01_play_an_episode.py
"""

import gymnasium as gym

import arpo_env

gym.register_envs(arpo_env)  # importing arpo_env registers the environments; this line only says so

env = gym.make("arpo/Arithmetic-v0", level=1)
question, info = env.reset(seed=0)
print(question)

expression = question.removeprefix("What is ").removesuffix("?")
result, *_ = env.step(f"<think>I compute it.</think><python>{expression}</python>")
print(result)

answer = info["task"].answers[0]  # a model would read it in the result
_, reward, terminated, truncated, info = env.step(f"<think>Done.</think><answer>\\boxed{{{answer}}}</answer>")
print(f"reward {reward}, components {info['reward_components']}")
env.close()
