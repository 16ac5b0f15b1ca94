"""A rollout tree as a small SVG picture, for notebooks; the run report draws larger ones that can be explored.

Tokens run to the right, one row per trajectory. A box is a span: a turn of the model, the darker the higher its mean
entropy, the result of a tool, or a fold, which begins a new prompt. A span that several trajectories share is drawn
once; curves lead to its branches.

    from IPython.display import SVG
    SVG(tree_svg(tree))
"""

from __future__ import annotations

import re
import statistics
from xml.sax.saxutils import escape

from arpo_trainer.tree import ABANDONED, RolloutTree, Span

ROW, BOX, TOP, LEFT, RIGHT = 34, 22, 44, 34, 150
CHARACTER = 6.2  # mean width of a character of 11 px text, in pixels
HIGH_ENTROPY = 0.6  # nats per token, shown in the darkest colour
_CALM, _UNSURE = (232, 240, 254), (255, 153, 51)
_RESULT, _FOLD = "#d9dee4", "#cfe9d4"
_TAG = re.compile(r"</?[A-Za-z_]+>")
_TEXT = 'font-family="system-ui, sans-serif" font-size="11"'


def tree_svg(tree: RolloutTree, width: int = 800) -> str:
    """Return the picture as SVG text.

    Args:
        tree: any one with at least one trajectory.
        width: of the picture, in pixels.
    """
    rows = _rows(tree)
    ends = {span.index: sum(len(one.ids) for one in tree.path_to(span.index)) for span in tree.spans}
    scale = (width - LEFT - RIGHT) / max(ends.values(), default=1)
    height = TOP + ROW * (max(rows.values(), default=0) + 1) + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
        f'<rect width="{width}" height="{height}" rx="6" fill="#ffffff"/>',
        _text(12, 24, str(tree.task.get("question", ""))[: int((width - 24) / CHARACTER)], weight="600"),
    ]
    for span in tree.spans:
        x, y = LEFT + scale * (ends[span.index] - len(span.ids)), TOP + ROW * rows[span.index]
        if span.parent is not None and rows[span.parent] != rows[span.index]:
            parts.append(_curve(x, TOP + ROW * rows[span.parent] + BOX / 2, y + BOX / 2))
        parts.append(_box(span, x, y, scale * len(span.ids)))
    parts += [_label(tree, number, TOP + ROW * number, width - RIGHT + 10) for number in range(len(tree.trajectories))]
    folds = any(span.kind == "fold" for span in tree.spans)
    return "\n".join([*parts, *_key(height - 20, folds), "</svg>"])


def _rows(tree: RolloutTree) -> dict[int, int]:
    """Return the row of each span: that of the first trajectory which goes through it, then those of what was left."""
    rows: dict[int, int] = {}
    for number in range(len(tree.trajectories)):
        for span in tree.path(number):
            rows.setdefault(span.index, number)
    last = len(tree.trajectories) - 1
    for span in tree.spans:
        if span.index not in rows:
            begins = span.parent is None or rows[span.parent] < len(tree.trajectories)
            last += begins
            rows[span.index] = last if begins else rows[span.parent or 0]
    return rows


def _box(span: Span, x: float, y: float, wide: float) -> str:
    shown, room = _shown(span), int((wide - 8) / CHARACTER)
    # where at most two characters fit, a cut text would tell nothing
    label = shown if len(shown) <= room else f"{shown[: room - 1]}…" if room > 2 else ""
    plain = _FOLD if span.kind == "fold" else _RESULT
    # without entropies a turn has the colour of a calm one
    fill = _colour(statistics.fmean(span.entropies)) if span.kind == "model" else plain
    helped = "".join(f", {mark['tool']} {mark['outcome']}" for mark in span.interventions or ())
    title = f"{span.kind}, {len(span.ids)} tokens{helped}\n{span.text.strip()}"
    # at least 2 pixels, so that a span of few tokens stays visible
    box = f'x="{x:.1f}" y="{y}" width="{max(2, wide - 2):.1f}" height="{BOX}" rx="3" fill="{fill}"'
    if span.has_outcome(ABANDONED):
        box += ' stroke="#66707a" stroke-dasharray="2 3" fill-opacity="0.4"'
    return f'<g><title>{escape(title)}</title><rect class="{span.kind}" {box}/>{_text(x + 4, y + 15, label)}</g>'


def _shown(span: Span) -> str:
    """Return what a box says: the call or the answer of a turn, or a result, without tags; of a fold, the progress."""
    if span.kind == "fold" and span.tool:
        return f"fold: {span.tool['memory']['episodic']['current_progress']}"
    text = span.text.rpartition("</think>")[2] if span.kind == "model" else span.text
    # a turn that ends with its thought has nothing after it: the thought is shown then
    words = " ".join(_TAG.sub(" ", text or span.text).split())
    return f"{span.tool['name']}: {words}" if span.tool else words


def _colour(entropy: float) -> str:
    share = min(1.0, max(0.0, entropy / HIGH_ENTROPY))
    mixed = (round(calm + share * (unsure - calm)) for calm, unsure in zip(_CALM, _UNSURE, strict=True))
    return "#" + "".join(f"{value:02x}" for value in mixed)


def _curve(x: float, above: float, below: float) -> str:
    path = f"M {x - 2:.1f} {above} C {x - 12:.1f} {above}, {x - 12:.1f} {below}, {x:.1f} {below}"
    return f'<path class="branch" d="{path}" fill="none" stroke="#7b3fe4" stroke-width="1.5"/>'


def _label(tree: RolloutTree, number: int, y: float, x: float) -> str:
    one = tree.trajectories[number]
    earned = "no reward" if one.reward is None else f"reward {one.reward:g}"
    return _text(10, y + 15, str(number + 1), "#66707a") + _text(x, y + 15, f"{earned}, {one.origin}")


def _key(y: float, folds: bool) -> list[str]:
    colours = [(_colour(0.0), "turn, sure"), (_colour(HIGH_ENTROPY), "turn, unsure"), (_RESULT, "result of a tool")]
    colours += [(_FOLD, "fold")] if folds else []
    parts = []
    for number, (fill, name) in enumerate(colours):
        x = LEFT + 120 * number
        parts += [f'<rect x="{x}" y="{y}" width="16" height="11" rx="2" fill="{fill}"/>', _text(x + 22, y + 10, name)]
    return parts


def _text(x: float, y: float, words: str, fill: str = "#1f2328", weight: str = "400") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {_TEXT} fill="{fill}" font-weight="{weight}">{escape(words)}</text>'
