"""`RolloutTree`: everything that was sampled for one prompt. There is no other trajectory type.

A tree's nodes are *spans* of token ids, written by the model or by the environment; a *trajectory* is the path from the
prompt to one leaf. A plain GRPO group is a tree whose branches all start at the prompt. The ids are what counts: `text`
is for people and is never tokenised again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal


@dataclass
class Event:
    """One interval of one trajectory; a trajectory's events do not overlap, except forks made while it generates.

    Attributes:
        trajectory: its number in the tree.
        kind: "start" (waiting for a place among the running trajectories), "reset", "generate", "tool", "answer"
            (grading), "fork", "settle" (a branch waiting for earlier requests), "retry", "helper" (of a tool at
            inference time).
        start: seconds since the rollout began, as `end`.
        waited: seconds of waiting from `start` on: for a limit, or in the queue of the backend.
        name: of the tool, or of the error that was retried.
        status: of a tool's result, or how a generation ended ("stop", "eos", "length").
        tokens: number of generated tokens.
        cached: number of context tokens the backend did not compute again, out of `context`.
        copies: number of environments that a fork made; they were held until the time `until`.
    """

    trajectory: int
    kind: str
    start: float
    end: float
    waited: float = 0.0
    name: str = ""
    status: str = ""
    tokens: int = 0
    cached: int = 0
    context: int = 0
    copies: int = 0
    until: float = 0.0


class Stopwatch:
    """Counts the seconds during which one or more `running` blocks are open; overlapping blocks count once.

    It takes no lock: use it from one event loop or one thread.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        # open blocks; only the first that opens and the last that closes read the clock
        self._open = 0
        self._since = 0.0

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Count while the block is open."""
        if self._open == 0:
            self._since = time.perf_counter()
        self._open += 1
        try:
            yield
        finally:
            # also when the block fails, or the stopwatch would run on for ever
            self._open -= 1
            if self._open == 0:
                self.seconds += time.perf_counter() - self._since


ABOVE, NOT_ABOVE = "score above threshold", "score not above threshold"
# reasons of points that would have branched otherwise; `Decision.passed` counts these points, too
SPENT, QUOTA, FORK_FAILED = REFUSALS = "budget spent", "quota of the root used", "fork failed"
# outcomes of what tools at inference time did to a turn, see `Span.interventions`
WORKED, FAILED, ABANDONED, REWRITTEN = "worked", "failed", "abandoned", "rewritten"
Kind = Literal["model", "environment", "fold"]
Origin = Literal["root", "branch", "top-up"]


@dataclass
class Decision:
    """What was measured at a point where an episode may branch, and what was decided there (ARPO, eq. 4-5).

    A branch function reads the measurement and returns it with a score (`scored`). The last three fields are known
    while the tree grows and are not stored.

    Attributes:
        entropy: H of the measured segment, on the scale of `branching.entropy_level`; in reference modes that of the
            published code.
        delta: dH, the rise of that entropy over the segment it is compared with.
        score: the branch score P; for a draw, the drawn number; for a rank, its score when the budget was given out.
        threshold: tau; for a draw, the number it was compared with.
        branches: number of branches that leave here.
        reason: a few words such as "entropy rose" or "budget spent".
        consecutive: l, the number of consecutive high-entropy steps just before.
        uniform: a random number in [0, 1) that belongs to this point.
        branch: whether the score asks for a branch.
        later: once all paths have ended, the log-probabilities of each later turn on the path.
    """

    entropy: float
    delta: float
    score: float = 0.0
    threshold: float = 0.0
    branches: int = 0
    reason: str = ""
    consecutive: int = 0
    uniform: float = field(default=0.0, compare=False)
    branch: bool = field(default=False, compare=False)
    later: tuple[tuple[float, ...], ...] = field(default=(), compare=False)

    def scored(self, score: float, threshold: float, branch: bool, reason: str = "") -> Decision:
        """Return the point with its score; without a reason, it says on which side of the threshold the score is."""
        reason = reason or (ABOVE if branch else NOT_ABOVE)
        return replace(self, score=score, threshold=threshold, branch=branch, reason=reason)

    def as_dict(self) -> dict[str, Any]:
        """Return what is stored of it."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.compare}

    @property
    def passed(self) -> bool:
        """Whether it branched, or would have with budget, quota and a working fork."""
        # only the beginning is compared: after a failed fork the error follows
        return self.branches > 0 or self.reason.startswith(REFUSALS)


@dataclass
class Span:
    """One node: consecutive tokens by one author.

    Attributes:
        index: position in `RolloutTree.spans`.
        parent: index of the span before it, or None if it follows the prompt.
        kind: "model", "environment" (a tool's result), or "fold": a new prompt, from which the episode goes on without
            what came before it.
        ids: token ids, shape (n,).
        logprobs: log-probability of each token when it was sampled, shape (n,); only the model's spans have them.
        entropies: entropy of the distribution of each token, in nats, shape (n,), likewise.
        finish: how a model span ended: "stop" (a stop string), "eos" or "length".
        tool: of an environment span: {"name", "status", "seconds"} of the call it answers; "withheld" if its result did
            not fit and the model was only told so; "images" (data URLs); "memory" of a fold.
        decision: of an environment span: the branching decision taken after it.
        interventions: what tools at inference time did here: {"tool", "outcome", "detail"}, with "outcome" "worked",
            "failed", "abandoned" (no trajectory passes any more) or "rewritten" (a turn of a chain that was shortened).
    """

    index: int
    parent: int | None
    kind: Kind
    ids: list[int]
    logprobs: list[float] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)
    text: str = ""
    finish: str = ""
    tool: dict[str, Any] | None = None
    decision: Decision | None = None
    interventions: list[dict[str, Any]] | None = None

    def mark(self, tool: str, outcome: str, detail: str = "") -> None:
        """Note what a tool at inference time did here."""
        self.interventions = [*(self.interventions or ()), {"tool": tool, "outcome": outcome, "detail": detail}]

    def has_outcome(self, outcome: str) -> bool:
        """Return whether a tool at inference time left this outcome here."""
        return any(mark["outcome"] == outcome for mark in self.interventions or ())

    @property
    def sampled(self) -> bool:
        """Whether the policy generated it; the turns of a chain that was shortened are written by another model."""
        return self.kind == "model" and not self.has_outcome(REWRITTEN)

    @property
    def measured(self) -> bool:
        """Whether the backend gave numbers of its tokens; where an endpoint gives none, all of them are 0."""
        return any(self.entropies) or any(self.logprobs)

    @property
    def is_result(self) -> bool:
        """Whether it is the result of a tool; a refused call has none."""
        return self.tool is not None and self.tool.get("status") != "refused"


@dataclass
class Trajectory:
    """One leaf: where it ends, how it began, and what it earned.

    Attributes:
        leaf: index of its last span.
        origin: "root" (planned start), "branch" (forked off `parent`), "top-up" (a start from unused budget).
        fork_span: index of the environment span it was forked after.
        reward: of the environment; None if the trajectory is not valid: it is masked, never scored 0.
        components: the reward's named parts.
        outcome: how the episode ended ("answered", "no answer", "truncated", "failed").
        error: what failed.
        tool_calls: number of calls along its path.
    """

    leaf: int
    origin: Origin = "root"
    parent: int | None = None
    fork_span: int | None = None
    reward: float | None = None
    components: dict[str, float] = field(default_factory=dict)
    outcome: str = ""
    error: str | None = None
    answer: str | None = None
    tool_calls: int = 0

    @property
    def valid(self) -> bool:
        """Whether it has a reward."""
        return self.reward is not None


@dataclass
class Row:
    """One trajectory as flat lists of the same length n: the completion of a training row.

    Attributes:
        mask: 1 for tokens of the model; log-probabilities and entropies (in nats) are 0.0 elsewhere.
        span: index of the span of each token; equal in all rows that share the token.
        fold: 1 for tokens of a new prompt: what follows was generated without anything before them.
    """

    ids: list[int]
    mask: list[int]
    logprobs: list[float]
    entropies: list[float]
    span: list[int]
    fold: list[int]


@dataclass
class RolloutTree:
    """One prompt and everything that was sampled for it.

    Attributes:
        spans: the nodes; a parent always comes before its children.
        trajectories: the leaves, in the order they were started.
        task: the task as plain data (id, question, answers, level, ...).
        meta: seed, step, group, algorithm and the like, as plain data.
        timeline: what each trajectory did and waited for, and when; it does not count for equality.
    """

    prompt_ids: list[int]
    spans: list[Span] = field(default_factory=list)
    trajectories: list[Trajectory] = field(default_factory=list)
    task: dict[str, Any] = field(default_factory=dict)
    prompt: str = ""
    meta: dict[str, Any] = field(default_factory=dict)
    # runs that play the same trees still differ in their times
    timeline: list[Event] = field(default_factory=list, compare=False)

    def add_span(self, parent: int | None, kind: Kind, ids: list[int], **fields: Any) -> Span:
        """Append a span after `parent` (None: after the prompt) and return it.

        Raises:
            ValueError: the span is empty, or a model span lacks a log-probability or entropy for some token.
        """
        span = Span(len(self.spans), parent, kind, list(ids), **fields)
        if not span.ids:
            raise ValueError(f"a {kind} span must hold at least one token")
        # the environment samples nothing: its spans, and folds, have no log-probabilities and entropies
        wanted = len(span.ids) if kind == "model" else 0
        if len(span.logprobs) != wanted or len(span.entropies) != wanted:
            raise ValueError(
                f"a {kind} span of {len(span.ids)} tokens needs {wanted} log-probabilities and entropies, "
                f"got {len(span.logprobs)} and {len(span.entropies)}"
            )
        self.spans.append(span)
        return span

    def path(self, trajectory: int) -> list[Span]:
        """Return the spans of a trajectory, from the prompt to its leaf."""
        return self.path_to(self.trajectories[trajectory].leaf)

    def path_to(self, span: int | None) -> list[Span]:
        """Return the spans from the prompt down to and including `span`."""
        steps: list[Span] = []
        while span is not None:
            steps.append(self.spans[span])
            span = self.spans[span].parent
        return steps[::-1]

    def context(self, span: int | None) -> list[int]:
        """Return the ids that the model goes on from after `span` (None: at the prompt).

        These are the prompt and all spans down to it; after a fold, the new prompt and the spans since.
        """
        ids = list(self.prompt_ids)
        for step in self.path_to(span):
            ids = list(step.ids) if step.kind == "fold" else ids + step.ids
        return ids

    def folds(self, trajectory: int) -> int:
        """Return how often a trajectory folded its history."""
        return sum(span.kind == "fold" for span in self.path(trajectory))

    def leaves_below(self) -> list[list[int]]:
        """Return for each span the trajectories that pass through it; their number is d in the papers."""
        below: list[list[int]] = [[] for _ in self.spans]
        for number in range(len(self.trajectories)):
            for span in self.path(number):
                below[span.index].append(number)
        return below

    def row(self, trajectory: int) -> Row:
        """Return one trajectory as flat lists (see `Row`)."""
        # environment tokens get zeros as placeholders, so that all lists have the length of the ids
        row = Row([], [], [], [], [], [])
        for span in self.path(trajectory):
            n, model = len(span.ids), span.kind == "model"
            row.ids += span.ids
            row.mask += [int(model)] * n
            row.logprobs += span.logprobs if model else [0.0] * n
            row.entropies += span.entropies if model else [0.0] * n
            row.span += [span.index] * n
            row.fold += [int(span.kind == "fold")] * n
        return row

    def starts(self) -> list[int]:
        """Return the first span of each trajectory, which is the same for all that branched off one start."""
        return [self.path(number)[0].index for number in range(len(self.trajectories))]

    def samples(self) -> list[int]:
        """Return the trajectories that are independent samples of the policy: a mean over them is the policy's.

        They are the planned roots: where a tree forks, and how many starts it adds, depends on what was played before.
        Where the first root decided how many there are (AEPO), it alone was planned.
        """
        roots = [number for number, trajectory in enumerate(self.trajectories) if trajectory.origin == "root"]
        return roots[:1] if "root_entropy" in self.meta else roots

    def reorder(self, order: Sequence[int]) -> None:
        """Reorder the trajectories, and the spans by the order in which the trajectories reach them.

        Args:
            order: the present numbers of all trajectories, in the new order.
        """
        # walking the reordered trajectories from the prompt puts parents before children, as the tree requires
        place = {old: new for new, old in enumerate(order)}
        self.trajectories = [self.trajectories[old] for old in order]
        walked = [span.index for number in range(len(order)) for span in self.path(number)]
        # a shared span is reached several times; `dict.fromkeys` keeps the place of the first time
        spans = {old: new for new, old in enumerate(dict.fromkeys(walked))}
        self._place_abandoned(spans)
        self.spans = [self.spans[old] for old in spans]
        for span in self.spans:
            span.index, span.parent = spans[span.index], None if span.parent is None else spans[span.parent]
        for trajectory in self.trajectories:
            trajectory.leaf = spans[trajectory.leaf]
            trajectory.parent = None if trajectory.parent is None else place[trajectory.parent]
            trajectory.fork_span = None if trajectory.fork_span is None else spans[trajectory.fork_span]
        for event in self.timeline:
            event.trajectory = place[event.trajectory]

    def _place_abandoned(self, places: dict[int, int]) -> None:
        """Add abandoned spans, which no trajectory reaches, to `places` (old index -> new index)."""
        # several trajectories left them in an order that depends on timing, so what is in and below them decides
        left = [span for span in self.spans if span.has_outcome(ABANDONED) and span.index not in places]
        contents = _contents(left) if len(self.trajectories) > 1 else {}
        while ready := [span for span in left if span.parent is None or span.parent in places]:
            parents = {span.index: -1 if span.parent is None else places[span.parent] for span in ready}
            for span in sorted(ready, key=lambda one: (parents[one.index], contents.get(one.index, ""))):
                places[span.index] = len(places)
            left = [span for span in left if span.index not in places]

    @property
    def rewards(self) -> list[float | None]:
        """The rewards of the trajectories, None where a trajectory is not valid."""
        return [trajectory.reward for trajectory in self.trajectories]

    def unique_tokens(self) -> int:
        """Return the number of tokens after the prompt, with each shared span counted once."""
        return sum(len(span.ids) for span in self.spans)

    def copied_tokens(self) -> int:
        """Return the number of tokens after the prompt, with every trajectory written out in full."""
        return sum(len(span.ids) for i in range(len(self.trajectories)) for span in self.path(i))

    def to_json(self) -> str:
        """Write the tree as one line of JSON."""
        # `asdict` would copy every list of tokens, which takes longer than writing them
        spans = [_entry(span) for span in self.spans]
        parts = {"spans": spans, "trajectories": list(map(vars, self.trajectories))}
        data = {**vars(self), **parts, "timeline": list(map(vars, self.timeline))}
        return json.dumps(data, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, line: str) -> RolloutTree:
        """Read what `to_json` wrote; the result equals the original."""
        data = json.loads(line)
        data["spans"] = [_span(entry) for entry in data["spans"]]
        data["trajectories"] = [Trajectory(**entry) for entry in data["trajectories"]]
        data["timeline"] = [Event(**entry) for entry in data["timeline"]]
        return cls(**data)


def _entry(span: Span) -> dict[str, Any]:
    entry = {**vars(span), "decision": span.decision and span.decision.as_dict()}
    if span.interventions is None:  # most runs have none
        del entry["interventions"]
    return entry


def _span(entry: dict[str, Any]) -> Span:
    decision = entry.pop("decision", None)
    return Span(**entry, decision=Decision(**decision) if decision else None)


def _contents(spans: Sequence[Span]) -> dict[int, str]:
    """Return index -> digest of what is in a span and in those below it; parents come first."""
    found: dict[int, str] = {}
    below: dict[int | None, list[str]] = {}
    for span in reversed(spans):
        own = [span.ids, span.logprobs, span.entropies, span.interventions, sorted(below.get(span.index, []))]
        found[span.index] = hashlib.sha256(json.dumps(own).encode()).hexdigest()
        below.setdefault(span.parent, []).append(found[span.index])
    return found


def write_traces(path: str | Path, trees: Iterable[RolloutTree]) -> None:
    """Append trees to a JSONL file, one per line."""
    # "replace": a model may write half of a surrogate pair, which UTF-8 cannot encode
    with open(path, "a", encoding="utf-8", errors="replace") as file:
        for tree in trees:
            file.write(tree.to_json() + "\n")


def read_traces(path: str | Path) -> Iterator[RolloutTree]:
    """Yield the trees of a JSONL file.

    Raises:
        ValueError: a line is not a tree; names the file and the line.
    """
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            try:
                yield RolloutTree.from_json(line)
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(f"{path}, line {number}: not a rollout tree ({error})") from error
