r"""True values of a fixed policy in a world of `arpo/Bifurcation-v0`, by enumeration of everything that may happen.

A state is the history of token ids that the policy has seen: a language model is not Markov in the rooms. The world's
own state is hidden where doors slip or dead ends are silent, so that each history carries the probabilities of the
states it may stand for. With pi the policy's probability of a turn, P that of a result, and R the reward of an answer,

    V(h) = sum_a pi(a | h) Q(h, a)
    Q(h, a) = R(a) for an answer, sum_o P(o | h, a) V(h a o) for a call
    A(h, a) = Q(h, a) - V(h)

and within a turn of the tokens t_1 ... t_n the advantage of a token is V(h t_1 ... t_i) - V(h t_1 ... t_{i-1}), whose
sum is A(h, a). The token of the door carries the decision.

Turns other than `turn_policy.world_turns`, and histories less likely than `smallest`, are not followed. `lost` is their
probability: the value lies between `low` (they earn 0) and `high` (they earn 1). `value` is that of the rest alone.

    values = exact_values(env, task, renderer, ModelTurns(model))
    values.start.value, values.advantages(history, turn)
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy

from arpo_env import ToolEnv
from arpo_env.episode import Call, Episode
from arpo_env.episode import Turn as EpisodeTurn
from arpo_trainer.rollout.rendering import Renderer
from benchmarks.laboratory.turn_policy import Floats, Ids, ScoresTurns, WorldTurn, world_turns
from envs_registry import Task
from envs_registry.generated.bifurcation import DoorWorld, State, world_of

SMALLEST = 1e-6
LIMIT = 1000  # tokens after the prompt; that of `training_run.SETTINGS`


@dataclass
class Outcome:
    """What may come of a turn.

    Attributes:
        reward: if the episode ends.
        following: otherwise, the histories that may follow and their probabilities; those that are not followed are
            left out.
    """

    reward: float | None = None
    following: list[tuple[float, Ids]] = field(default_factory=list)


@dataclass
class StateValue:
    """A history and what it is worth.

    Attributes:
        reach: probability that an episode comes here.
        belief: probabilities of the world's states, given the history.
        turns: number of turns played.
        calls: number of calls that were executed.
        probabilities: of each token of each turn, shape (turns, T).
        outcomes: of each turn; None where it is not followed.
        value: V; NaN if nothing that may follow was followed.
        low: lower bound of V.
        high: upper bound of V.
        turn_values: Q of each turn, NaN where it is not known, shape (turns,).
    """

    reach: float
    belief: dict[State, float]
    turns: int = 0
    calls: int = 0
    probabilities: Floats = field(default_factory=lambda: numpy.zeros((0, 0)))
    outcomes: list[Outcome | None] = field(default_factory=list)
    value: float = numpy.nan
    low: float = 0.0
    high: float = 1.0
    turn_values: Floats = field(default_factory=lambda: numpy.zeros(0))

    @property
    def lost(self) -> float:
        """Probability of what was not followed from here on."""
        return self.high - self.low


@dataclass
class ExactValues:
    """The values of a task under a policy.

    Attributes:
        prompt: ids of the prompt.
        turns: the turns that were followed.
        states: by history.
    """

    prompt: Ids
    turns: list[WorldTurn]
    states: dict[Ids, StateValue]

    def __post_init__(self) -> None:
        self.places = {turn.ids: place for place, turn in enumerate(self.turns)}
        self._prefixes: dict[Ids, dict[Ids, float]] = {}

    @property
    def start(self) -> StateValue:
        """The state at the prompt."""
        return self.states[self.prompt]

    def prefix_values(self, history: Ids) -> dict[Ids, float]:
        """Return the value of a history followed by the beginning of a turn, for every beginning that is known."""
        if history not in self._prefixes:
            self._prefixes[history] = self._values_within(self.states[history])
        return self._prefixes[history]

    def advantages(self, history: Ids, turn: Sequence[int]) -> list[float] | None:
        """Return the advantage of each token of a turn, shape (T,); None if it is not known."""
        if history not in self.states or tuple(turn) not in self.places:
            return None
        known = self.prefix_values(history)
        if tuple(turn) not in known:
            return None
        values = [known[tuple(turn[:length])] for length in range(len(turn) + 1)]
        return [after - before for before, after in itertools.pairwise(values)]

    def _values_within(self, state: StateValue) -> dict[Ids, float]:
        shares = state.probabilities.prod(axis=1)
        sums: dict[Ids, tuple[float, float]] = {}
        for turn, share, value in zip(self.turns, shares, state.turn_values, strict=True):
            for length in range(len(turn.ids) + 1) if not numpy.isnan(value) and share > 0 else ():
                # the probability of what comes before cancels in the quotient below
                mass, total = sums.get(turn.ids[:length], (0.0, 0.0))
                sums[turn.ids[:length]] = mass + share, total + share * float(value)
        return {prefix: total / mass for prefix, (mass, total) in sums.items()}


def exact_values(
    env: ToolEnv,
    task: Task,
    renderer: Renderer,
    policy: ScoresTurns,
    *,
    smallest: float = SMALLEST,
    limit: int = LIMIT,
) -> ExactValues:
    """Return the values of a task.

    Args:
        env: of `arpo/Bifurcation-v0`; its limits on turns and calls are those of the episodes.
        task: one of its tasks.
        renderer: of the policy's tokenizer and the environment's protocol.
        policy: whose values they are.
        smallest: histories less likely than this are not followed.
        limit: most tokens after the prompt (`max_completion_length` of a rollout).

    Raises:
        ValueError: the task is not one of `arpo/Bifurcation-v0`.
    """
    expansion = _Expansion(env, task, renderer, smallest, limit)
    values = ExactValues(expansion.prompt, expansion.turns, {expansion.prompt: expansion.start()})
    level = [expansion.prompt]
    every = list(level)
    while level:
        found = policy.token_probabilities(level, [turn.ids for turn in values.turns])
        following: dict[Ids, StateValue] = {}
        for history, probabilities in zip(level, found, strict=True):
            state = values.states[history]
            state.probabilities = probabilities
            following |= expansion.follow(history, state)
        values.states |= following
        level = list(following)
        every += level
    for history in reversed(every):  # what follows comes later
        _settle(values.states[history], values.states)
    return values


class _Expansion:
    """Follows every turn from every history, as the engine and the environment would."""

    def __init__(self, env: ToolEnv, task: Task, renderer: Renderer, smallest: float, limit: int) -> None:
        self.env, self.task, self.renderer, self.smallest, self.limit = env, task, renderer, smallest, limit
        self.world: DoorWorld = world_of(task.setup)
        self.turns = world_turns(renderer)
        self.prompt = tuple(renderer.prompt_ids(env.messages(task), env.schemas))
        self._encoded: dict[str, Ids] = {}

    def start(self) -> StateValue:
        return StateValue(1.0, {self.world.start: 1.0})

    def follow(self, history: Ids, state: StateValue) -> dict[Ids, StateValue]:
        """Fill in the outcomes of a state, and return the states that follow."""
        following: dict[Ids, StateValue] = {}
        for turn, share in zip(self.turns, state.probabilities.prod(axis=1), strict=True):
            reach = state.reach * float(share)
            if turn.key:
                state.outcomes.append(Outcome(self.world.reward(turn.key)))
            elif reach < self.smallest:
                state.outcomes.append(None)
            else:
                state.outcomes.append(self._call(history + turn.ids, turn.door, state, reach, following))
        return following

    def _call(
        self, ids: Ids, door: str, state: StateValue, reach: float, following: dict[Ids, StateValue]
    ) -> Outcome | None:
        room = self.limit - (len(ids) - len(self.prompt))
        episode = self._episode(state, room)
        if self.env.budget.spent(episode):
            return Outcome(0.0)  # cut off without an answer
        refusal = self.env.budget.refusal(episode, "go")
        notice = None if refusal else self.env.budget.notice(episode)
        outcome = Outcome()
        for text, belief in self._results(state, door, refusal).items():
            share = sum(belief.values())
            result = self._result_ids(f"{text}\n({notice})" if notice else text)
            if len(result) + self.env.budget.answer_tokens >= room:
                return None  # the engine would withhold the result
            if reach * share >= self.smallest:
                outcome.following.append((share, ids + result))
                likely = {each: weight / share for each, weight in belief.items()}
                following[ids + result] = StateValue(
                    reach * share, likely, state.turns + 1, state.calls + (refusal is None)
                )
        return outcome

    def _results(self, state: StateValue, door: str, refusal: str | None) -> dict[str, dict[State, float]]:
        """Return the texts that a call may show, each with the probability of the states that it leads to."""
        if refusal:
            return {refusal: dict(state.belief)}
        found: dict[str, dict[State, float]] = {}
        for hidden, weight in state.belief.items():
            for share, after, text in self.world.outcomes(hidden, door):
                states = found.setdefault(text, {})
                states[after] = states.get(after, 0.0) + weight * share
        return found

    def _episode(self, state: StateValue, room: int) -> Episode:
        """Return an episode that has come so far and is about to play a turn, as the limits see it."""
        played = [EpisodeTurn("", calls=[Call("go", "ok")])] * state.calls
        refused = [EpisodeTurn("", calls=[Call("go", "refused")])] * (state.turns - state.calls)
        return Episode(self.task, [*played, *refused, EpisodeTurn("")], tokens_left=room)

    def _result_ids(self, text: str) -> Ids:
        if text not in self._encoded:
            self._encoded[text] = tuple(self.renderer.result_ids([text], False, self.env.schemas))
        return self._encoded[text]


def _settle(state: StateValue, states: dict[Ids, StateValue]) -> None:
    """Compute the values of a state from those of the states that follow."""
    triples = numpy.array([_turn_value(outcome, states) for outcome in state.outcomes])
    shares = state.probabilities.prod(axis=1)
    state.turn_values = triples[:, 0]
    known = ~numpy.isnan(triples[:, 0])
    if mass := float(shares[known].sum()):
        state.value = float(shares[known] @ triples[known, 0]) / mass
    state.low = float(shares @ triples[:, 1])
    state.high = float(shares @ triples[:, 2]) + max(0.0, 1.0 - float(shares.sum()))


def _turn_value(outcome: Outcome | None, states: dict[Ids, StateValue]) -> tuple[float, float, float]:
    """Return Q of a turn, NaN if nothing of it was followed, and its bounds."""
    if outcome is None:
        return numpy.nan, 0.0, 1.0
    if outcome.reward is not None:
        return outcome.reward, outcome.reward, outcome.reward
    low = sum(share * states[after].low for share, after in outcome.following)
    high = 1.0 - sum(share * (1.0 - states[after].high) for share, after in outcome.following)
    known = [(share, states[after].value) for share, after in outcome.following if not numpy.isnan(states[after].value)]
    mass = sum(share for share, _ in known)
    return (sum(share * value for share, value in known) / mass if mass else numpy.nan), low, high
