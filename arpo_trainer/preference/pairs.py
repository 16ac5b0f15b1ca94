"""`PreferencePair`: two continuations of one prompt, of which one was right; and how trajectories become pairs.

A trajectory with a reward of at least `chosen_reward` is chosen, any other with a reward is rejected (Tool-Star, app.
B.1: r >= 1 and r < 1). Two trajectories of one tree share the spans before their fork: these belong to the prompt of
their pair. They add the same terms to both sides, which cancel in losses of the difference (`COMPARING`): the loss is
that of the whole trajectories, computed from fewer tokens. Other losses are refused. After a fold (`memory_folding`)
the model no longer sees what came before it: the prompt of a pair that parts later begins there, and trajectories that
fold after they part make no pair.

    found = pairs_of_task("t1", trees, PairSettings())
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arpo_trainer.report.run_data import json_line, write_whole
from arpo_trainer.tree import RolloutTree, Span
from arpo_trainer.validation import check_name

if TYPE_CHECKING:
    from trl import DPOConfig


KINDS = ("any", "fork")
# of TRL's losses those that read the two sides' summed log-ratios through their difference alone
COMPARING = ("sigmoid", "hinge", "exo_pair", "robust", "aot", "discopop")


@dataclass(frozen=True)
class PreferencePair:
    """One pair, with token ids as they were sampled."""

    task: str  # id of the task
    prompt_ids: list[int]  # the question, and what both trajectories share after it, shape (p,)
    # how many tokens at the end of the prompt are shared turns and results; 0 without a fork. After a fold the prompt
    # is that of the fold
    shared: int
    chosen_ids: list[int]  # the rest of the right trajectory, shape (c,)
    chosen_mask: list[int]  # 1 for its tokens of the model, 0 for those of tools, shape (c,)
    rejected_ids: list[int]  # the rest of the other one, shape (r,)
    rejected_mask: list[int]  # as `chosen_mask`, shape (r,)
    chosen_reward: float  # of the whole right trajectory
    rejected_reward: float  # of the whole other one

    def __post_init__(self) -> None:
        if not self.prompt_ids:
            raise ValueError(f"the pair of task {self.task!r} has no prompt")
        for name in ("chosen", "rejected"):
            ids, mask = getattr(self, f"{name}_ids"), getattr(self, f"{name}_mask")
            if not all(type(token) is int and token >= 0 for token in self.prompt_ids + ids):
                raise ValueError(f"prompt_ids and {name}_ids must be lists of whole numbers of at least 0")
            if len(ids) != len(mask) or not set(mask) <= {0, 1}:
                raise ValueError(f"{name}_mask must have a 0 or a 1 for each of the {len(ids)} {name}_ids")
            if not any(mask):
                raise ValueError(f"the {name} side of task {self.task!r} has no token of the model")

    @property
    def tokens(self) -> int:
        """The length of the longer side, with the prompt."""
        return len(self.prompt_ids) + max(len(self.chosen_ids), len(self.rejected_ids))


@dataclass
class PairSettings:
    """How trajectories become pairs.

    Attributes:
        chosen_reward: least reward of a chosen trajectory; what has less is rejected.
        pairs_per_task: maximum number of pairs of one task; no trajectory is in two.
        pair_kind: "any" takes pairs with the longest shared beginning first; "fork" only those that share a turn.
    """

    chosen_reward: float = 1.0
    pairs_per_task: int = 4
    pair_kind: str = "any"

    def __post_init__(self) -> None:
        check_name("pair_kind", self.pair_kind, KINDS)


@dataclass(frozen=True)
class _Leaf:
    """A scored trajectory: its tree and its path."""

    tree: int
    prompt_ids: list[int]
    path: list[Span]
    reward: float

    def shared(self, other: _Leaf) -> int:
        """Return the number of spans that it shares with another one."""
        if self.tree != other.tree:
            return 0
        both = zip(self.path, other.path, strict=False)
        return next((n for n, (one, two) in enumerate(both) if one is not two), min(len(self.path), len(other.path)))


def pairs_of_task(
    task: str, trees: Sequence[RolloutTree], settings: PairSettings, seed: int = 0
) -> list[PreferencePair]:
    """Return pairs of a task's scored trajectories; none is in two pairs, and equal trajectories count once.

    `seed` chooses among equals.
    """
    leaves: dict[tuple[int, ...], _Leaf] = {}
    for number, tree in enumerate(trees):
        for index, reward in enumerate(tree.rewards):
            if reward is not None:
                path = tree.path(index)
                ids = tuple(token for span in path for token in span.ids)
                leaves.setdefault(ids, _Leaf(number, tree.prompt_ids, path, reward))
    good = [leaf for leaf in leaves.values() if leaf.reward >= settings.chosen_reward]
    bad = [leaf for leaf in leaves.values() if leaf.reward < settings.chosen_reward]
    candidates = [(chosen, rejected, chosen.shared(rejected)) for chosen in good for rejected in bad]
    random.Random(f"{seed}/{task}").shuffle(candidates)
    # those that share most tokens first, in random order among equals
    candidates.sort(key=lambda one: -sum(len(span.ids) for span in one[0].path[: one[2]]))
    made: list[PreferencePair] = []
    used: set[int] = set()
    for chosen, rejected, shared in candidates:
        if len(made) == settings.pairs_per_task or (settings.pair_kind == "fork" and not shared):
            break
        if not used & {id(chosen), id(rejected)} and (pair := _pair(task, chosen, rejected, shared)):
            made.append(pair)
            used |= {id(chosen), id(rejected)}
    return made


def check_shared_losses(args: DPOConfig) -> None:
    """Refuse losses of the sides' lengths or of one side: what two trajectories share would not cancel in them."""
    wrong = [f"loss_type={name!r}" for name in args.loss_type if name not in COMPARING]
    wrong += ["use_weighting=True"] if args.use_weighting else []
    wrong += [f"f_divergence_type={args.f_divergence_type!r}"] if args.f_divergence_type != "reverse_kl" else []
    if wrong:
        raise ValueError(
            f"{wrong[0]} with pairs from trees: the turns that two trajectories share are left out of their pair, "
            f"which only losses of their difference allow ({', '.join(COMPARING)}). Take one of these, or pairs of "
            "independent samples (algorithm: grpo), which share nothing"
        )


def _pair(task: str, chosen: _Leaf, rejected: _Leaf, shared: int) -> PreferencePair | None:
    """Return the pair; None if a side ends where the other goes on, so that it has nothing of the model, or folds."""
    sides = [leaf.path[shared:] for leaf in (chosen, rejected)]
    if any(span.kind == "fold" for side in sides for span in side):  # of such a side no one prompt is seen by all turns
        return None
    ids = [[token for span in side for token in span.ids] for side in sides]
    masks = [[int(span.kind == "model") for span in side for _ in span.ids] for side in sides]
    if not all(any(mask) for mask in masks):
        return None
    # what the model sees where the two part: a prompt, perhaps that of a fold, and the rest
    prompt, common = chosen.prompt_ids, list[int]()
    for span in chosen.path[:shared]:
        prompt, common = (span.ids, []) if span.kind == "fold" else (prompt, common + span.ids)
    rewards = chosen.reward, rejected.reward
    return PreferencePair(task, prompt + common, len(common), ids[0], masks[0], ids[1], masks[1], *rewards)


# Pairs in a JSONL file, one per line, and the count of what became of the tasks.


@dataclass
class PairData:
    """The pairs of a round, and what became of its tasks."""

    pairs: list[PreferencePair] = field(default_factory=list)  # the pairs
    outcomes: Counter[str] = field(default_factory=Counter)  # number of tasks by outcome
    too_long: int = 0  # pairs that were dropped for their length
    trajectories: int = 0  # number of trajectories that have a reward
    right: int = 0  # number of those that could be chosen

    def add(
        self, task: str, trees: Sequence[RolloutTree], settings: PairSettings, seed: int, max_length: int | None
    ) -> None:
        """Add the pairs of a task; those longer than `max_length` are dropped, since a cut one has no answer."""
        rewards = [reward for tree in trees for reward in tree.rewards if reward is not None]
        right = sum(reward >= settings.chosen_reward for reward in rewards)
        self.trajectories += len(rewards)
        self.right += right
        found = pairs_of_task(task, trees, settings, seed)
        kept = [pair for pair in found if max_length is None or pair.tokens <= max_length]
        self.too_long += len(found) - len(kept)
        self.pairs += kept
        mixed = "with pairs" if kept else "right and wrong, but no pair that fits"
        one_kind = "nothing scored" if not rewards else "all wrong" if not right else "all right"
        self.outcomes[mixed if 0 < right < len(rewards) else one_kind] += 1

    def facts(self) -> dict[str, Any]:
        """Return the counts as plain data."""
        masks = [mask for pair in self.pairs for mask in (pair.chosen_mask, pair.rejected_mask)]
        return {
            "tasks": self.outcomes.total(),
            "outcomes": dict(self.outcomes),
            "trajectories": self.trajectories,
            "right": self.right,
            "pairs": len(self.pairs),
            "pairs_from_forks": sum(pair.shared > 0 for pair in self.pairs),
            "too_long": self.too_long,
            "learnt_tokens": sum(map(sum, masks)),
            "masked_tokens": sum(mask.count(0) for mask in masks),
        }

    def words(self) -> str:
        """Return in one line what there is."""
        outcomes = ", ".join(f"{count} {name}" for name, count in self.outcomes.items()) or "no task"
        dropped = f"; {self.too_long} pairs dropped as too long" if self.too_long else ""
        forked = sum(pair.shared > 0 for pair in self.pairs)
        forks = f" ({forked} from forks)" if forked else ""
        return f"{len(self.pairs)} pairs{forks} of {self.outcomes.total()} tasks: {outcomes}{dropped}"


def write_pairs(path: str | Path, pairs: Iterable[PreferencePair]) -> None:
    """Write pairs; the file appears when it is complete."""
    write_whole(Path(path), "".join(f"{json_line(asdict(pair))}\n" for pair in pairs))


def read_pairs(path: str | Path) -> list[PreferencePair]:
    """Read what `write_pairs` wrote."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no file of pairs {str(path)!r}; `arpo dpo` writes one as pairs.jsonl")
    pairs = []
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                pairs.append(PreferencePair(**json.loads(line)))
            except (ValueError, TypeError) as error:
                raise ValueError(f"{path}, line {number}: not a pair of token ids ({error})") from error
    return pairs
