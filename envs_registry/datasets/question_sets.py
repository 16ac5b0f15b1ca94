"""The sets of questions with a known answer: mathematics, Wikipedia, web search, and the ARPO paper's training sets.

A new set is one row of the table of its family.
"""

from __future__ import annotations

import base64
import functools
import itertools
from collections.abc import Callable

from envs_registry.datasets.loading import DataSet, Repairs, Step, boxed, register_data_sets
from envs_registry.datasets.rows import Row

FIVE, THREE = ("1", "2", "3", "4", "5"), ("easy", "medium", "hard")  # levels
TEST, TRAIN_TEST = (("test", "test"),), (("train", "train"), ("test", "test"))  # splits: our name, the hub's

# Limits at evaluation are the papers': 5 Python calls, 10 searches and 32,768 tokens of context; a search of the web
# may read ten pages. They train with 3 calls in all.
MATH_PLAY = {"tools": ("python",), "scorer": "math", "max_turns": 8, "max_tool_calls": 5, "max_tokens": 32768}
MULTIHOP_PLAY = {
    **{"tools": ("search", "python"), "scorer": "qa", "max_turns": 18, "max_tool_calls": 15},
    **{"tool_limits": (("search", 10), ("python", 5)), "tool_timeout": 30.0, "max_tokens": 32768},
}
DEEP_SEARCH_PLAY = MULTIHOP_PLAY | {"scorer": "judge", "tool_timeout": 120.0}
REASONING = {
    **{"tools": ("search", "python"), "scorer": "auto", "max_turns": 5, "max_tool_calls": 3},
    **{"tool_timeout": 30.0, "max_tokens": 4096},
}
DEEP_SEARCH = REASONING | {"max_turns": 8, "max_tool_calls": 6, "tool_timeout": 120.0, "max_tokens": 8192}


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


def leaving_out(why: str, concerns: Callable[[Row], object]) -> Step:
    """Return a step that leaves out the rows for which `concerns` is true."""

    def step(row: Row, repairs: Repairs) -> Row | None:
        if not concerns(row):
            return row
        repairs[f"left out: {why}"] += 1
        return None

    return step


def decrypted(row: Row, repairs: Repairs) -> Row:
    """Undo xbench's encryption: base64, then XOR with the row's own canary, repeated. Plain rows pass."""
    canary, prompt = str(row.get("canary") or ""), str(row.get("prompt") or "")
    try:
        # A prompt that decodes and encodes back to itself is base64; a plain question is not.
        if not canary or not prompt or base64.b64encode(base64.b64decode(prompt, validate=True)).decode() != prompt:
            return row
    except ValueError:
        return row
    repairs["decrypted"] += 1
    return {**row, **{name: _decrypt(str(row[name]), canary, name) for name in ("prompt", "answer")}}


def _decrypt(text: str, key: str, name: str) -> str:
    try:
        cipher = base64.b64decode(text, validate=True)
        # The key repeats without end, so the lengths always differ.
        return bytes(one ^ other for one, other in zip(cipher, itertools.cycle(key.encode()), strict=False)).decode()
    except ValueError as error:
        raise ValueError(f"column {name!r}: cannot be decrypted with the row's canary ({error})") from error


def user_turn(row: Row, repairs: Repairs) -> Row:
    """Take the question out of `prompt`, a list of messages whose first one is a system prompt."""
    prompt = row.get("prompt")
    if not isinstance(prompt, list):
        return row
    turns = [message["content"] for message in prompt if message.get("role") == "user"]
    return {**row, "question": turns[-1]} if turns else row


SUBJECTS = (
    *("algebra", "counting_and_probability", "geometry", "intermediate_algebra"),
    *("number_theory", "prealgebra", "precalculus"),
)
_AIME = "American Invitational Mathematics Examination {}"
_math = functools.partial(DataSet, play=MATH_PLAY, kind="math")
MATH_SETS = (
    # The hub calls its only split "train"; here these are questions for evaluation.
    _math("AIME24", _AIME.format(2024), "HuggingFaceH4/aime_2024", (("test", "train"),), "test 30", "(c) MAA"),
    _math("AIME25", _AIME.format(2025), "math-ai/aime25", TEST, "test 30", "(c) MAA"),
    _math(
        "MATH500",
        "500 of MATH's test problems (the levels are in the hub's rows)",
        "HuggingFaceH4/MATH-500",
        TEST,
        "test 500",
        "MIT",
        row_id="unique_id",
        level="level",
        levels=FIVE,
        category="subject",
    ),
    _math(
        "MATH",
        "competition mathematics in seven subjects and five levels",
        "EleutherAI/hendrycks_math",
        TRAIN_TEST,
        "train 7,500 / test 5,000",
        "MIT",
        configs=SUBJECTS,
        level="level",
        levels=FIVE,
        category="type",
        steps=(boxed_solution,),
        reads=("solution",),
        drops=("no answer",),
    ),
    _math(
        "GSM8K",
        "word problems of school mathematics",
        "openai/gsm8k",
        TRAIN_TEST,
        "train 7,473 / test 1,319",
        "MIT",
        configs=("main",),
        row_id="idx",
        steps=(rationale,),
    ),
)

# Questions over Wikipedia that take several look-ups. Paragraphs are not loaded: the search tool finds them.
FLASHRAG, _TRAIN_DEV = "RUC-NLPIR/FlashRAG_datasets", (("train", "train"), ("validation", "dev"))
_multihop = functools.partial(DataSet, play=MULTIHOP_PLAY)
MULTIHOP_SETS = (
    _multihop(
        "HotpotQA",
        "two-hop questions and comparisons over Wikipedia",
        "hotpotqa/hotpot_qa",
        (("train", "train"), ("validation", "validation")),
        "train 90,447 / validation 7,405",
        "CC BY-SA 4.0",
        configs=("distractor",),  # the configurations differ in their paragraphs
        level="level",
        levels=THREE,
        category="type",
    ),
    _multihop(
        "2Wiki",
        "2WikiMultihopQA: two to four hops, with aliases of the answers",
        FLASHRAG,
        _TRAIN_DEV,
        "train 15,000 / validation 12,576",
        "Apache-2.0",
        configs=("2wikimultihopqa",),
    ),
    _multihop(
        "MuSiQue",
        "questions composed of two to four others, with aliases of the answers",
        FLASHRAG,
        _TRAIN_DEV,
        "train 19,938 / validation 2,417",
        "CC BY 4.0",
        configs=("musique",),
        steps=(leaving_out("not answerable", lambda row: row.get("answerable") is False),),  # without their paragraphs
        reads=("answerable",),
    ),
    _multihop(
        "Bamboogle",
        "two-hop questions that web search engines answered wrongly",
        FLASHRAG,
        TEST,
        "test 125",
        "MIT",
        configs=("bamboogle",),
    ),
)

# GAIA and HLE are gated, xbench is published encrypted: keep copies of them off the web, and do not train on them.
_HUB = "https://huggingface.co/datasets/"
_deep = functools.partial(DataSet, play=DEEP_SEARCH_PLAY)
DEEP_SEARCH_SETS = (
    _deep(
        "WebWalker",
        "WebWalkerQA: pages deep in web sites, English and Chinese; train is its silver part",
        "callanwu/WebWalkerQA",
        (("test", "main"), ("train", "silver")),
        "test 680 / train ~14,000",
        "Apache-2.0",
        level="info.difficulty_level",
        levels=THREE,
        category="info.type",
        start_url="root_url",
    ),
    _deep(
        "GAIA",
        "questions for general assistants, the 103 text-only ones of 165 (files=True: all)",
        "gaia-benchmark/GAIA",
        (("validation", "validation"),),
        "validation 103",
        "no resharing",
        play=DEEP_SEARCH_PLAY | {"scorer": "gaia"},
        gated=f"{_HUB}gaia-benchmark/GAIA",
        configs=("2023_all",),
        question=("Question", "question"),
        answers=("Final answer", "answer"),
        row_id="task_id",
        level="Level",
        levels=("1", "2", "3"),
        without_files=leaving_out("attached file", lambda row: str(row.get("file_name") or "").strip()),
        reads=("file_name",),
        # The first is relative to the repository, the second to the folder of the data file.
        files=("file_path", "file_name"),
    ),
    _deep(
        "HLE",
        "Humanity's Last Exam, the text-only questions",
        "cais/hle",
        TEST,
        "test 2,500 with those about images",
        "MIT, no re-upload",
        gated=f"{_HUB}cais/hle",
        category="category",
        kind_column="answer_type",
        kinds=(("exactMatch", "qa"), ("multipleChoice", "mcq")),
        steps=(leaving_out("image", lambda row: row.get("image")),),  # pictures are not loaded, one could only guess
        reads=("image",),
    ),
    _deep("SimpleQA", "short questions of fact with one answer", "basicv8vc/SimpleQA", TEST, "test 4,326", "MIT"),
    _deep(
        "xBench",
        "xbench-DeepSearch: Chinese questions that take several searches (published encrypted)",
        "xbench/DeepSearch",
        (("test", "train"),),
        "test 100",
        "see the hub's page",
        play=DEEP_SEARCH_PLAY | {"language": "zh"},
        question=("question", "prompt"),
        steps=(decrypted,),
        reads=("canary",),
    ),
)

# Both training sets share questions with evaluation sets (`arpo data overlap` counts them), and Reasoning10K's
# validation split consists of evaluation questions to a great part.
_training = functools.partial(
    DataSet,
    licence="MIT; mixed upstream",
    question=("question", "extra_info.question"),
    answers=("reward_model.ground_truth", "answer"),
    row_id="extra_info.index",
    kind_column="ability",
    kinds=(("math", "math"), ("qa", "qa")),
    steps=(user_turn,),
    reads=("prompt",),
    drops=("no answer", "cut-off answer", "duplicate question"),
)
TRAINING_SETS = (
    _training(
        "Reasoning10K",
        "ARPO's training set for reasoning, half mathematics, half questions over Wikipedia",
        "dongguanting/ARPO-RL-Reasoning-10K",
        (("train", "train"), ("validation", "validation|test")),  # its file may be named test.parquet there
        "train 10,000",
        play=REASONING,
    ),
    _training(
        "DeepSearch1K",
        "ARPO's training set for deep search",
        "dongguanting/ARPO-RL-DeepSearch-1K",
        (("train", "train"),),
        "train 1,071",
        play=DEEP_SEARCH,
    ),
)
QUESTION_SETS = (*MATH_SETS, *MULTIHOP_SETS, *DEEP_SEARCH_SETS, *TRAINING_SETS)

register_data_sets(QUESTION_SETS)
