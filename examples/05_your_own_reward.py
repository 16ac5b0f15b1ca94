"""Reward what you want: weighted terms, each a built-in one or a function of the finished episode.

Run it: python examples/05_your_own_reward.py
"""

import gymnasium as gym

import arpo_env

gym.register_envs(arpo_env)


def brevity(episode):
    """Return 1 for an episode of one turn, less for longer ones."""
    return 1.0 / len(episode.turns)


env = gym.make("arpo/Arithmetic-v0", reward={"accuracy": 1.0, "format": 0.2, "brevity": (brevity, 0.1)})
_, info = env.reset(seed=0)
answer = f"<think>I know it.</think><answer>\\boxed{{{info['task'].answers[0]}}}</answer>"
_, reward, *_, info = env.step(answer)
print(f"at once:        reward {reward:.2f} from {info['reward_components']}")

env.reset(seed=0)
env.step("<think>I try something first.</think><python>1 + 1</python>")
_, reward, *_, info = env.step(answer)
print(f"after one call: reward {reward:.2f} from {info['reward_components']}")
env.close()
