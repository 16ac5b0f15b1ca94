"""Give the model a tool of your own: any function with type annotations and a docstring.

Run it: python examples/04_your_own_tool.py
"""

import gymnasium as gym

import arpo_env

gym.register_envs(arpo_env)

PRICES = {"apple": 0.5, "melon": 3.25}


def price(fruit: str, pieces: int = 1) -> float:
    """Look up what a fruit costs.

    Args:
        fruit: its name, in the singular.
        pieces: how many are bought.
    """
    return PRICES[fruit] * pieces


env = gym.make("arpo/Arithmetic-v0", tools=["python", price])
_, info = env.reset(seed=0)
print(info["messages"][0]["content"])  # the instructions now describe the tool

print(env.step("<think>One melon.</think><price>melon</price>")[0])  # text fills the first parameter
print(env.step('<think>Four.</think><price>{"fruit": "melon", "pieces": 4}</price>')[0])  # JSON names them all
env.close()
