r"""Environments in GEM: `ArpoGemEnv`, a `gem.Env` that can be copied in the middle of an episode.

    from arpo_env.adapters import gem as arpo_gem
    arpo_gem.register("arpo:Arithmetic-v0", "arpo/Arithmetic-v0", level=2)
    env = gem.make("arpo:Arithmetic-v0")
    prompt, info = env.reset(seed=0)
    result, *_ = env.step("<think>I draw.</think><python>import random; x = random.random(); x</python>")
    twin = env.spawn(same_state=True)  # has the same x: a fork of the running interpreter

A failure of the infrastructure is raised from `step`; it is never a reward. Interface: GEM 0.1 (package gem-llm).
"""

from __future__ import annotations

import random
from typing import Any

from arpo_env.adapters import load_peer
from arpo_env.adapters.chat_episode import check_one_conversation
from arpo_env.env import ToolEnv
from arpo_env.event_loop import run
from arpo_env.registration import EnvFactory

gem: Any = load_peer("gem")


def register(gem_id: str, env: EnvFactory | str, **options: Any) -> None:
    """Register an environment for `gem.make` and `gem.make_vec`.

    Args:
        gem_id: its name in GEM, as in "arpo:GSM8K-v0".
        env: the environment, or its id.
        options: options of `ToolEnv`, besides those of the factory.

    Raises:
        UnknownEnvError: the id is not registered here.
        ValueError: GEM has an environment of this name.
    """
    gem.register(gem_id, f"{__name__}:ArpoGemEnv", env=EnvFactory(env, **options))


class ArpoGemEnv(gem.Env):  # type: ignore[misc]  # gem is not checked
    """An environment of GEM; see the module.

    An observation is text: after `reset` the instructions and the question, since GEM's agents see nothing else.
    """

    def __init__(
        self,
        env: ToolEnv | EnvFactory | str,
        *,
        seed: int | None = None,
        system_prompt: bool = True,
        **options: Any,
    ) -> None:
        super().__init__()
        self.env: ToolEnv = env if isinstance(env, ToolEnv) else EnvFactory(env, **options)()
        check_one_conversation(self.env)
        self.system_prompt = system_prompt
        self._first_seed = seed

    def reset(self, seed: int | None = None) -> tuple[str, dict[str, Any]]:
        """Start an episode and return the prompt, and the infos of `ToolEnv.reset`."""
        given, self._first_seed = self._first_seed if seed is None else seed, None
        question, info = run(self.env.areset(seed=given))
        prompt = f"{self.env.system_prompt}\n\n{question}" if self.system_prompt else question
        return prompt, info

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Take one turn of the policy."""
        return run(self.env.astep(action))

    def sample_random_action(self) -> str:
        """Return an answer that is a random number, in the form of the protocol."""
        answer = f"\\boxed{{{random.randint(-100, 100)}}}"
        return answer if self.env.protocol.native else f"<think>I guess.</think><answer>{answer}</answer>"

    def spawn(self, same_state: bool = False, seed: int | None = None, **options: Any) -> Any:
        """Return a new environment with the same settings."""
        if options and same_state:
            raise ValueError(f"spawn(same_state=True) copies the episode and takes no options ({', '.join(options)})")
        if options:
            env = EnvFactory(self.env.factory, **options)()
        else:
            env = self.env.fork() if same_state and self.env._episode else self.env.spawn()
        return type(self)(env, seed=seed, system_prompt=self.system_prompt)

    def close(self) -> None:
        """End the episode and close its interpreter; GEM has no such method, so a program calls it itself."""
        self.env.close()
