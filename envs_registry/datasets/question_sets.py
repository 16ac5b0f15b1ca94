"""The sets of questions with a known answer: mathematics, Wikipedia, web search, and the ARPO paper's training sets.

A new set is one row of the table of its family.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import itertools

from envs_registry.datasets.data_files import Row
from envs_registry.datasets.data_set import DataSet, Play, Repairs, boxed

# Mathematics with a Python tool: AIME24, AIME25, MATH500, MATH, GSM8K.

# 5 Python calls and 32,768 tokens of context are the papers' at evaluation; they train with 3 calls.
MATH_PLAY = Play(tools=("python",), scorer="math", max_turns=8, max_tool_calls=5, max_tokens=32768)
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
        play=MATH_PLAY,
        size="test 30",
        licence="(c) MAA",
        kind="math",
    ),
    DataSet(
        name="AIME25",
        description="American Invitational Mathematics Examination 2025",
        hub="math-ai/aime25",
        splits=(("test", "test"),),
        play=MATH_PLAY,
        size="test 30",
        licence="(c) MAA",
        kind="math",
    ),
    DataSet(
        name="MATH500",
        description="500 of MATH's test problems (the levels are in the hub's rows)",
        hub="HuggingFaceH4/MATH-500",
        splits=(("test", "test"),),
        play=MATH_PLAY,
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
        play=MATH_PLAY,
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
        play=MATH_PLAY,
        size="train 7,473 / test 1,319",
        licence="MIT",
        row_id="idx",
        kind="math",
        steps=(rationale,),
    ),
)


# Questions over Wikipedia that take several look-ups: HotpotQA, 2Wiki, MuSiQue, Bamboogle.
#
# A new set is one row of `MULTIHOP_SETS`. Paragraphs are not loaded: the search tool finds them.

# 10 searches and 5 Python calls are the papers' at evaluation; they train with 3 calls in all.
MULTIHOP_PLAY = Play(
    tools=("search", "python"),
    scorer="qa",
    max_turns=18,
    max_tool_calls=15,
    tool_limits=(("search", 10), ("python", 5)),
    tool_timeout=30.0,
    max_tokens=32768,
)
FLASHRAG = "RUC-NLPIR/FlashRAG_datasets"


def answerable(row: Row, repairs: Repairs) -> Row | None:
    """Leave out MuSiQue's questions whose paragraphs were taken away."""
    if row.get("answerable") is False:
        repairs["left out: not answerable"] += 1
        return None
    return row


MULTIHOP_SETS = (
    DataSet(
        name="HotpotQA",
        description="two-hop questions and comparisons over Wikipedia",
        hub="hotpotqa/hotpot_qa",
        # The hub's configurations differ in their paragraphs, which are not loaded.
        configs=("distractor",),
        splits=(("train", "train"), ("validation", "validation")),
        play=MULTIHOP_PLAY,
        size="train 90,447 / validation 7,405",
        licence="CC BY-SA 4.0",
        level="level",
        levels=("easy", "medium", "hard"),
        category="type",
        known_as=("hotpot_qa",),
    ),
    DataSet(
        name="2Wiki",
        description="2WikiMultihopQA: two to four hops, with aliases of the answers",
        hub=FLASHRAG,
        configs=("2wikimultihopqa",),
        splits=(("train", "train"), ("validation", "dev")),
        play=MULTIHOP_PLAY,
        size="train 15,000 / validation 12,576",
        licence="Apache-2.0",
        known_as=("2wikimultihopqa",),
    ),
    DataSet(
        name="MuSiQue",
        description="questions composed of two to four others, with aliases of the answers",
        hub=FLASHRAG,
        configs=("musique",),
        splits=(("train", "train"), ("validation", "dev")),
        play=MULTIHOP_PLAY,
        size="train 19,938 / validation 2,417",
        licence="CC BY 4.0",
        steps=(answerable,),
        reads=("answerable",),
    ),
    DataSet(
        name="Bamboogle",
        description="two-hop questions that web search engines answered wrongly",
        hub=FLASHRAG,
        configs=("bamboogle",),
        splits=(("test", "test"),),
        play=MULTIHOP_PLAY,
        size="test 125",
        licence="MIT",
    ),
)


# Questions for agents that search the web: WebWalker, GAIA, HLE, SimpleQA, xBench.
#
# A new set is one row of `DEEP_SEARCH_SETS`. GAIA and HLE are gated, xbench is published encrypted: keep copies of them
# off the web, and do not train on them.

# 10 searches and 5 Python calls are the papers' at evaluation. A search may read ten pages: 120 s a call.
DEEP_SEARCH_PLAY = Play(
    tools=("search", "python"),
    scorer="judge",
    max_turns=18,
    max_tool_calls=15,
    tool_limits=(("search", 10), ("python", 5)),
    tool_timeout=120.0,
    max_tokens=32768,
)


def without_file(row: Row, repairs: Repairs) -> Row | None:
    """Leave out GAIA's questions about an attached file."""
    if str(row.get("file_name") or "").strip():
        repairs["left out: attached file"] += 1
        return None
    return row


def without_image(row: Row, repairs: Repairs) -> Row | None:
    """Leave out HLE's questions about a picture."""
    if row.get("image"):
        repairs["left out: image"] += 1
        return None
    return row


def decrypted(row: Row, repairs: Repairs) -> Row:
    """Undo xbench's encryption: base64, then XOR with the row's own canary, repeated. Plain rows pass."""
    canary, prompt = str(row.get("canary") or ""), str(row.get("prompt") or "")
    try:
        # A prompt that decodes and encodes back to itself is base64; a plain question is not.
        if not canary or not prompt or base64.b64encode(base64.b64decode(prompt, validate=True)).decode() != prompt:
            return row
    except (binascii.Error, ValueError):
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


DEEP_SEARCH_SETS = (
    DataSet(
        name="WebWalker",
        description="WebWalkerQA: pages deep in web sites, English and Chinese; train is its silver part",
        hub="callanwu/WebWalkerQA",
        splits=(("test", "main"), ("train", "silver")),
        play=DEEP_SEARCH_PLAY,
        size="test 680 / train ~14,000",
        licence="Apache-2.0",
        level="info.difficulty_level",
        levels=("easy", "medium", "hard"),
        category="info.type",
        start_url="root_url",
        known_as=("webwalkerqa",),
    ),
    DataSet(
        name="GAIA",
        description="questions for general assistants, the 103 text-only ones of 165 (files=True: all)",
        hub="gaia-benchmark/GAIA",
        configs=("2023_all",),
        splits=(("validation", "validation"),),
        play=dataclasses.replace(DEEP_SEARCH_PLAY, scorer="gaia"),
        size="validation 103",
        licence="no resharing",
        gated="https://huggingface.co/datasets/gaia-benchmark/GAIA",
        question=("Question", "question"),
        answers=("Final answer", "answer"),
        row_id="task_id",
        level="Level",
        levels=("1", "2", "3"),
        filters=(("files", without_file),),
        reads=("file_name",),
        # The first is relative to the repository, the second to the folder of the data file.
        files=("file_path", "file_name"),
    ),
    DataSet(
        name="HLE",
        description="Humanity's Last Exam, the text-only questions (images=True: all, without their pictures)",
        hub="cais/hle",
        splits=(("test", "test"),),
        play=DEEP_SEARCH_PLAY,
        size="test 2,500 with those about images",
        licence="MIT, no re-upload",
        gated="https://huggingface.co/datasets/cais/hle",
        category="category",
        kind_column="answer_type",
        kinds=(("exactMatch", "qa"), ("multipleChoice", "mcq")),
        # Pictures are never loaded, so a policy could only guess.
        filters=(("images", without_image),),
        reads=("image",),
    ),
    DataSet(
        name="SimpleQA",
        description="short questions of fact with one answer",
        hub="basicv8vc/SimpleQA",
        splits=(("test", "test"),),
        play=DEEP_SEARCH_PLAY,
        size="test 4,326",
        licence="MIT",
    ),
    DataSet(
        name="xBench",
        description="xbench-DeepSearch: Chinese questions that take several searches (published encrypted)",
        hub="xbench/DeepSearch",
        splits=(("test", "train"),),
        play=dataclasses.replace(DEEP_SEARCH_PLAY, language="zh"),
        size="test 100",
        licence="see the hub's page",
        question=("question", "prompt"),
        steps=(decrypted,),
        reads=("canary",),
        known_as=("xbench-deepsearch", "DeepSearch"),
    ),
)


# The training sets of the ARPO paper: Reasoning10K and DeepSearch1K. A new set is one row of `TRAINING_SETS`.
#
# Both share questions with evaluation sets (`arpo data overlap` counts them), and Reasoning10K's validation split
# consists of evaluation questions to a great part.

# Limits of training; the papers allow more calls at evaluation.
REASONING = Play(
    tools=("search", "python"), scorer="auto", max_turns=5, max_tool_calls=3, tool_timeout=30.0, max_tokens=4096
)
DEEP_SEARCH = dataclasses.replace(REASONING, max_turns=8, max_tool_calls=6, tool_timeout=120.0, max_tokens=8192)
DROPS = ("no answer", "cut-off answer", "duplicate question")


def user_turn(row: Row, repairs: Repairs) -> Row:
    """Take the question out of `prompt`, a list of messages whose first one is a system prompt."""
    prompt = row.get("prompt")
    if not isinstance(prompt, list):
        return row
    turns = [message["content"] for message in prompt if message.get("role") == "user"]
    return {**row, "question": turns[-1]} if turns else row


TRAINING_SETS = (
    DataSet(
        name="Reasoning10K",
        description="ARPO's training set for reasoning, half mathematics, half questions over Wikipedia",
        hub="dongguanting/ARPO-RL-Reasoning-10K",
        splits=(("train", "train"), ("validation", "validation|test")),  # its file may be named test.parquet there
        play=REASONING,
        size="train 10,000",
        licence="MIT; mixed upstream",
        question=("question", "extra_info.question"),
        answers=("reward_model.ground_truth", "answer"),
        row_id="extra_info.index",
        kind_column="ability",
        kinds=(("math", "math"), ("qa", "qa")),
        steps=(user_turn,),
        reads=("prompt",),
        known_as=("train_10k",),
        drops=DROPS,
    ),
    DataSet(
        name="DeepSearch1K",
        description="ARPO's training set for deep search",
        hub="dongguanting/ARPO-RL-DeepSearch-1K",
        splits=(("train", "train"),),
        play=DEEP_SEARCH,
        size="train 1,071",
        licence="MIT; mixed upstream",
        question=("question", "extra_info.question"),
        answers=("reward_model.ground_truth", "answer"),
        row_id="extra_info.index",
        kind_column="ability",
        kinds=(("math", "math"), ("qa", "qa")),
        steps=(user_turn,),
        reads=("prompt",),
        known_as=("hard_search_1k", "hard_search"),
        drops=DROPS,
    ),
)
