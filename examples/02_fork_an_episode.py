"""Fork a running episode: both copies go on from the same variables, files and random state, and stay independent.

Run it: python examples/02_fork_an_episode.py
"""

import gymnasium as gym

import arpo_env

gym.register_envs(arpo_env)

env = gym.make("arpo/Arithmetic-v0")
env.reset(seed=0)
env.step("<think>I draw a number.</think><python>import random; x = random.random()</python>")

twin = env.unwrapped.fork()
print("original:", env.step("<think>I change x.</think><python>x += 1; x</python>")[0])
print("copy:", twin.step("<think>What is x?</think><python>x</python>")[0])

first, second = (one.step("<think>I draw.</think><python>random.random()</python>")[0] for one in (env, twin))
print("the same next random number:", first == second)
twin.close()
env.close()
