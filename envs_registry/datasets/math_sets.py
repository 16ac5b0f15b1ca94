r"""Mathematics with a Python tool: AIME24, AIME25, MATH500, MATH, GSM8K. A new set is one row of `MATH_SETS`."""

from __future__ import annotations

from envs_registry.datasets.data_files import Row
from envs_registry.datasets.data_set import DataSet, Play
from envs_registry.datasets.repairs import Repairs, boxed

# 5 Python calls and 32,768 tokens of context are the papers' at evaluation; they train with 3 calls.
PLAY = Play(tools=("python",), scorer="math", max_turns=8, max_tool_calls=5, max_tokens=32768)
SUBJECTS = (
    *("algebra", "counting_and_probability", "geometry", "intermediate_algebra"),
    *("number_theory", "prealgebra", "precalculus"),
)
FIVE = ("1", "2", "3", "4", "5")


def rationale(row: Row, repairs: Repairs) -> Row:
    """Take the number after `####`, where GSM8K's answers end, unless the row has plain answers, too."""
    if row.get("golden_answers"):
        return row
    _, mark, answer = str(row.get("answer", "")).rpartition("####")
    if not mark or not answer.strip():
        raise ValueError("column 'answer': should end in '#### ' and the number")
    repairs["rationale before the answer"] += 1
    # The commas only separate thousands.
    return {**row, "answer": answer.strip().replace(",", "")}


def boxed_solution(row: Row, repairs: Repairs) -> Row:
    r"""Take the last `\boxed{}` of MATH's `solution`, unless the row has an answer of its own."""
    if row.get("answer") or not row.get("solution"):
        return row
    repairs["answer taken out of the solution"] += 1
    return {**row, "answer": boxed(str(row["solution"]))}


MATH_SETS = (
    DataSet(
        name="AIME24",
        description="American Invitational Mathematics Examination 2024",
        hub="HuggingFaceH4/aime_2024",
        # The hub calls its only split "train"; here these are questions for evaluation.
        splits=(("test", "train"),),
        play=PLAY,
        size="test 30",
        licence="(c) MAA",
        kind="math",
    ),
    DataSet(
        name="AIME25",
        description="American Invitational Mathematics Examination 2025",
        hub="math-ai/aime25",
        splits=(("test", "test"),),
        play=PLAY,
        size="test 30",
        licence="(c) MAA",
        kind="math",
    ),
    DataSet(
        name="MATH500",
        description="500 of MATH's test problems (the levels are in the hub's rows)",
        hub="HuggingFaceH4/MATH-500",
        splits=(("test", "test"),),
        play=PLAY,
        size="test 500",
        licence="MIT",
        row_id="unique_id",
        level="level",
        levels=FIVE,
        category="subject",
        kind="math",
    ),
    DataSet(
        name="MATH",
        description="competition mathematics in seven subjects and five levels",
        hub="EleutherAI/hendrycks_math",
        configs=SUBJECTS,
        splits=(("train", "train"), ("test", "test")),
        play=PLAY,
        size="train 7,500 / test 5,000",
        licence="MIT",
        level="level",
        levels=FIVE,
        category="type",
        kind="math",
        steps=(boxed_solution,),
        reads=("solution",),
        drops=("no answer",),
    ),
    DataSet(
        name="GSM8K",
        description="word problems of school mathematics",
        hub="openai/gsm8k",
        configs=("main",),
        splits=(("train", "train"), ("test", "test")),
        play=PLAY,
        size="train 7,473 / test 1,319",
        licence="MIT",
        row_id="idx",
        kind="math",
        steps=(rationale,),
    ),
)
