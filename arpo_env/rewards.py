"""Computes the reward of an episode: `Rewards`, a composition of named terms, applied by `grade_episode`.

`paper` is the papers' hierarchical reward (ARPO eq. 8), based on our graders and on tool calls that really ran;
`tool-star` is the same one by the name of the paper that it comes from. `deepagent` is ToolPO's: success and right
calls. `reference` is the text reward of the published code, including its bugs, applied to the transcript. A dict of
weights is a weighted sum of your own terms:

    Rewards.of({"accuracy": 1.0, "format": 0.2, "short": (lambda episode: len(episode.turns) < 5, 0.5)})

In a settings file a function is MODULE:NAME, and `deepagent` may have settings (`deepagent_reward`):

    reward: {accuracy: 1.0, short: [my_rewards:short, 0.5]}
    reward: {deepagent: {call_weight: 0.5, fold_weight: 0.5}}

A failing term voids the sample (`GradingError`); it is never scored as 0.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from arpo_env.episode import FOLD, Episode
from arpo_env.errors import GradingError
from arpo_env.grading.grader import Grader, Score
from arpo_env.grading.math_grader import decide
from arpo_env.grading.published_metrics import reward_f1
from arpo_env.grading.qa_grader import qa_scores
from envs_registry import Task
from envs_registry.nearest_name import nearest_hint
from envs_registry.spec import load_object

MULTI_TOOL_BONUS = 0.1


@dataclass(frozen=True)
class ReferenceReward:
    """The result of the published text reward."""

    score: float
    reason: str  # in one word; the names are ours
    answer: str = ""  # that was extracted
    f1: float = 0.0  # of its tokens


def reference_reward(text: str, golds: str | Sequence[str]) -> ReferenceReward:
    """Return the published reward of a whole response text including tool results, with the published bugs.

    ARPO, AEPO and Tool-Star share it.

    Args:
        text: everything after the prompt.
        golds: one gold answer, or several.
    """
    fault = _format_fault(text)
    if fault:
        return ReferenceReward(-1.0, fault)
    answer = _boxed_as_published(text[text.find("<answer>") + len("<answer>") : text.find("</answer>")])
    if answer is None:
        return ReferenceReward(-1.0, "no_boxed")
    f1 = reward_f1(answer, [golds] if isinstance(golds, str) else golds)
    if f1 <= 0:
        return ReferenceReward(0.0, "wrong", answer)
    # As published: the tags count wherever they are, even in the result of a tool.
    if "</search>" in text and "</python>" in text:
        return ReferenceReward(f1 + MULTI_TOOL_BONUS, "multi_tool", answer, f1)
    return ReferenceReward(f1, "correct", answer, f1)


def _format_fault(text: str) -> str:
    thoughts = text.count("<think>")
    if thoughts != text.count("</think>"):
        return "think_unpaired"
    if thoughts == 0:
        return "think_missing"
    if text.count("<answer>") != 1 or text.count("</answer>") != 1:
        return "answer_count"
    for tool in ("search", "python"):
        if fault := _call_fault(text, tool):
            return fault
    start, end = text.find("<answer>"), text.find("</answer>")
    if start > end:
        return "answer_order"
    return "" if "\\boxed{" in text[start:end] and "}" in text[start:end] else "no_boxed"


def _call_fault(text: str, tool: str) -> str:
    position = 0
    while (start := text.find(f"<{tool}>", position)) != -1:
        end, result = text.find(f"</{tool}>", start), text.find("<result>", start)
        close = text.find("</result>", result) if result != -1 else -1
        if -1 in (end, result, close):
            return f"{tool}_incomplete"
        if not start < end < result < close:
            return f"{tool}_order"
        # Behind the result, since the tags of this tool within it are no further calls.
        position = close
    return ""


def _boxed_as_published(text: str) -> str | None:
    r"""Return the last box; after "\boxed " with a space, everything up to a dollar sign. None where theirs raises."""
    if "\\boxed " in text:
        return text.split("\\boxed ")[-1].split("$")[0]
    start = text.rfind("\\boxed")
    depth = 0
    for position in range(start, len(text)) if start >= 0 else ():
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if text[position] == "}" and depth == 0:
            return text[start + len("\\boxed{") : position] if text.startswith("\\boxed{", start) else None
    return None


NAMES = ("paper", "tool-star", "deepagent", "reference")
BUILT_IN = ("accuracy", "format", "multi_tool", "reference", "em", "f1")

_WORD = re.compile(r"\w+")
CallCheck = Callable[[Episode], Sequence[float]]
RewardFunction = Callable[[Episode], float | Awaitable[float | None] | None]


@dataclass(frozen=True)
class Grade:
    """A reward and its parts; `components` contains the unweighted value of each term."""

    reward: float
    components: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class RewardTerm:
    """A named term of a reward."""

    name: str  # key in the components
    function: RewardFunction | None  # value of the finished episode, may be asynchronous; None is a built-in term
    weight: float = 1.0  # in the sum


def paper_reward(accuracy: float, format_ok: bool, multi_tool: bool) -> float:
    """Return ARPO's hierarchical reward (eq. 8).

    That is -1 for a bad format, 0 for a wrong answer, else the accuracy (0 to 1), plus 0.1 if both search and python
    ran without an error.
    """
    if not format_ok:
        return -1.0
    if accuracy <= 0:
        return 0.0
    return accuracy + (MULTI_TOOL_BONUS if multi_tool else 0.0)


class Rewards:
    """A weighted sum of terms with unique names; without any, the papers' hierarchical reward.

    `format`, `accuracy` and `multi_tool` are always among the components. `Rewards.of` creates the named compositions.
    """

    def __init__(self, terms: Sequence[RewardTerm]) -> None:
        for term in terms:
            # One NaN or infinite weight would make every reward useless for training.
            if not math.isfinite(term.weight):
                raise ValueError(f"the weight of reward term {term.name!r} must be a finite number, got {term.weight}")
        self.terms = tuple(terms)

    @property
    def weights(self) -> dict[str, float]:
        """The weights by name, which tell compositions apart; empty for the hierarchical one."""
        return {term.name: term.weight for term in self.terms}

    @property
    def counts_format(self) -> bool:
        """Whether the reward depends on the format: of weighted terms, only those named "format" and "reference" do."""
        return not self.terms or any(term.name in ("format", "reference") for term in self.terms)

    @classmethod
    def of(cls, what: str | Rewards | Mapping[str, Any] | None, own: Any = None) -> Rewards:
        """Return a composition: one of `NAMES` (None is "paper"), or weights by name.

        A weight is a number for a term of `BUILT_IN`, or a pair of a function, or MODULE:NAME of one, and its weight.
        {"deepagent": SETTINGS} is `DeepAgentRewards` with these settings.

        Args:
            what: the composition.
            own: what the environment's tasks are rewarded by where nothing is given; it may know which calls are right.

        Raises:
            ValueError: a name is unknown or a weight is invalid.
        """
        match what:
            case Rewards():
                return what
            case None | "paper" | "tool-star":
                return cls([])
            case "deepagent":
                return deepagent_reward(own)
            case {"deepagent": given, **others} if not others:
                known = ("correct", "call_weight", "fold_weight")
                settings: Any = given or {}
                if not isinstance(settings, dict) or not settings.keys() <= set(known):
                    raise ValueError(f"the settings of reward deepagent are {', '.join(known)}, not {given!r}")
                return deepagent_reward(own, **settings)
            case "reference":
                return cls([RewardTerm("reference", _reference_term)])
        # An empty dict is an error, since every reward would be 0.
        if isinstance(what, Mapping) and what:
            return cls([_term(name, weight) for name, weight in what.items()])
        names = ", ".join(map(repr, NAMES))
        raise ValueError(f"reward must be {names} or a dict of weights, not {what!r}{nearest_hint(what, NAMES)}")

    async def __call__(self, episode: Episode, score: Score, format_ok: bool = True) -> Grade:
        """Return the reward of a finished episode; `format_ok` says that it follows the format and has an answer.

        Raises:
            GradingError: a term did not return a finite number.
        """
        components = _base_components(episode, score, format_ok)
        if not self.terms:
            return Grade(paper_reward(score.value, format_ok, components["multi_tool"] > 0), components)
        total = 0.0
        for term in self.terms:
            if term.function is None:
                value = _component(term.name, components, episode)
            else:
                value = components[term.name] = await _value(term.name, term.function, episode)
            total += term.weight * value
        return Grade(total, components)


class DeepAgentRewards(Rewards):
    """ToolPO's two rewards as one sum, R_succ + R_action, with each among the components (DeepAgent, arXiv 2510.21618).

    R_succ, `success`, is the accuracy of the answer, or of the calls where the tasks have no gold answer; there is no
    reward for the format. R_action, `action`, is the sum of C(call) over the calls, times `call_weight`. Its other
    part, S_pref, the preference for folding, compares trajectories and is not known within one episode: `algorithm:
    toolpo` adds it, times `fold_weight` (`arpo_trainer.algorithms.credit`).

    Args:
        correct: C of each call of an episode, 1 if it is right and 0 if not. None is for tasks that do not say which
            calls are right: `executed_calls`, times R_succ, since calls that nobody checked earn nothing by themselves.
        call_weight: l1.
        fold_weight: l2.
        accuracy: R_succ of an episode; None is the score of the answer.
    """

    def __init__(
        self,
        correct: CallCheck | None = None,
        call_weight: float = 1.0,
        fold_weight: float = 1.0,
        accuracy: RewardFunction | None = None,
    ) -> None:
        super().__init__([])
        self.correct, self.call_weight, self.fold_weight = correct, call_weight, fold_weight
        self.accuracy = accuracy

    @property
    def weights(self) -> dict[str, float]:
        """The weights of the parts."""
        return {"success": 1.0, "action": self.call_weight, "fold": self.fold_weight}

    @property
    def counts_format(self) -> bool:
        """Whether the reward depends on the format: it does not."""
        return False

    async def __call__(self, episode: Episode, score: Score, format_ok: bool = True) -> Grade:
        """Return R_succ + R_action.

        Raises:
            GradingError: the check of the calls failed, or did not return finite numbers.
        """
        success = await _value("accuracy", self.accuracy, episode) if self.accuracy else score.value
        check, weight = self.correct or executed_calls, self.call_weight * (1.0 if self.correct else success)
        action = await _value("action", lambda one: weight * sum(check(one)), episode)
        base = _base_components(episode, score, format_ok)
        return Grade(success + action, {**base, "accuracy": success, "success": success, "action": action})


def executed_calls(episode: Episode) -> list[float]:
    """Return C of each call where nobody knows which are right: 1/n if it ran and told something new, else 0.

    n is the number of calls, so that more of them earn no more, and the best that calls can earn is 1. A call tells
    nothing new if an earlier one had its words, in any spelling and order, or its result. A fold earns S_pref alone.
    """
    asked: list[tuple[str, dict[str, Any]]] = []
    told: set[str] = set()
    found = []
    for turn in episode.turns:
        # of stored turns and those made by hand, the result of each call may not be known
        results: Sequence[str | None] = turn.results
        results = results if len(results) == len(turn.calls) else [None] * len(turn.calls)
        for call, result in zip(turn.calls, results, strict=True):
            words = {key: set(_WORD.findall(str(value).casefold())) for key, value in call.arguments.items()}
            # the words of code, in any order, are not yet what it does
            question = (call.name, words if "query" in words else call.arguments)
            fresh = call.status == "ok" and call.name != FOLD and question not in asked and result not in told
            found.append(float(fresh))
            if call.status == "ok":
                asked.append(question)
                told |= set() if result is None else {result}
    count = sum(call.name != FOLD for turn in episode.turns for call in turn.calls)
    return [fresh / count for fresh in found] if count else found


def deepagent_reward(
    own: Any, correct: Any = None, call_weight: float = 1.0, fold_weight: float = 1.0
) -> DeepAgentRewards:
    """Return DeepAgent's reward from settings, such as those of a settings file.

    Args:
        own: the reward of the environment; its term `right_calls` is "gold", and a function `accuracy` is R_succ.
        correct: which calls are right: "gold" (those that the environment's tasks name, the default where they do),
            "executed" (`executed_calls` of a right answer, the default elsewhere), MODULE:NAME of a function of the
            episode that returns C of each call, or such a function.
        call_weight: l1.
        fold_weight: l2.
    """
    for name, value in (("call_weight", call_weight), ("fold_weight", fold_weight)):
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(f"{name} of reward deepagent must be a finite number, got {value!r}")
    count = _own_function(own, "right_calls")
    check: CallCheck | None = None
    if correct == "gold" or (correct is None and count is not None):
        if count is None:
            raise ValueError(
                "correct: gold needs an environment whose tasks say which calls are right, such as arpo/ToolWorld-v0, "
                "arpo/TMDB-v0 or arpo/APIBank-v0, or stored episodes in which it counted them, with the component "
                "right_calls; elsewhere give correct: executed, or MODULE:NAME of a function"
            )
        check = lambda episode: [count(episode)]  # noqa: E731  (the number of right calls as the sum that it is)
    elif correct not in (None, "executed"):
        named = isinstance(correct, str)
        check = load_object(correct, "correct: executed, gold or MODULE:NAME, not") if named else correct
        if not callable(check):
            raise ValueError(f"correct of reward deepagent is executed, gold or a function, not {correct!r}")
    return DeepAgentRewards(check, call_weight, fold_weight, accuracy=_own_function(own, "accuracy"))


def _own_function(own: Any, name: str) -> Callable[[Episode], Any] | None:
    """Return the function of a term of the environment's reward; None if it has a weight alone, or no such term."""
    return _term(name, own[name]).function if isinstance(own, Mapping) and name in own else None


async def grade_episode(episode: Episode, well_formed: bool, grader: Grader, rewards: Rewards) -> Grade:
    """Grade a finished episode; a missing answer counts as wrong, in a bad format.

    Raises:
        GradingError: the answer could not be graded; the sample is void.
    """
    answer = episode.answer
    # Without an answer the grader, which may be another model, is not asked.
    score = Score(0.0) if answer is None else await grader.grade(answer, episode.task)
    if not all(map(math.isfinite, (score.value, *score.parts.values()))):
        raise GradingError(f"the grader returned {score}, whose numbers have to be finite")
    return await rewards(episode, score, answer is not None and well_formed)


def is_correct(answer: str, task: Task) -> bool:
    """Return whether an answer plainly equals a gold answer, by numbers and words, without algebra or processes."""
    if task.kind == "math":
        return any(decide(answer, gold, task.question) is True for gold in task.answers)
    return qa_scores(answer, task.answers, task.question)[0] == 1.0


def _base_components(episode: Episode, score: Score, format_ok: bool) -> dict[str, float]:
    # Only calls that ran without an error earn the bonus, and further tools do not lose it.
    worked = {call.name for turn in episode.turns for call in turn.calls if call.status == "ok"}
    multi = worked >= {"python", "search"}
    return {"format": float(format_ok), "accuracy": score.value, "multi_tool": float(multi), **score.parts}


def _reference_term(episode: Episode) -> float:
    return reference_reward(episode.transcript, episode.task.answers).score


def _term(name: str, weight: Any) -> RewardTerm:
    match weight:
        case [str() as path, int() | float() as factor] if callable(named := load_object(path, f"reward {name}:")):
            return RewardTerm(name, named, float(factor))
        case (function, int() | float() as factor) if callable(function):
            return RewardTerm(name, function, float(factor))
        case int() | float() if name in BUILT_IN:
            return RewardTerm(name, _reference_term if name == "reference" else None, float(weight))
    hint = nearest_hint(name, BUILT_IN)
    raise ValueError(
        f"reward term {name!r} takes (function, weight), or as one of {', '.join(BUILT_IN)} a weight, not {weight!r}"
        f"{hint}"
    )


def _component(name: str, components: Mapping[str, float], episode: Episode) -> float:
    if name not in components:
        if episode.answer is None:
            return 0.0  # nothing was graded
        raise ValueError(f"this grader has no component {name!r}; available: {', '.join(sorted(components))}")
    return components[name]


async def _value(name: str, function: RewardFunction, episode: Episode) -> float:
    try:
        value = function(episode)
        if inspect.isawaitable(value):
            value = await value
        number = float("nan") if value is None else float(value)  # None, as NaN, is refused below
    except Exception as error:
        raise GradingError(f"reward term {name!r} failed: {type(error).__name__}: {error}") from error
    if not math.isfinite(number):
        raise GradingError(f"reward term {name!r} returned {value!r}, not a finite number")
    return number
