"""Questions for agents that search the web: WebWalker, GAIA, HLE, SimpleQA, xBench.

A new set is one row of `DEEP_SEARCH_SETS`. GAIA and HLE are gated, xbench is published encrypted: keep copies of them
off the web, and do not train on them.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import itertools

from envs_registry.datasets.data_files import Row
from envs_registry.datasets.data_set import DataSet, Play
from envs_registry.datasets.repairs import Repairs

# 10 searches and 5 Python calls are the papers' at evaluation. A search may read ten pages: 120 s a call.
PLAY = Play(
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
        play=PLAY,
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
        play=dataclasses.replace(PLAY, scorer="gaia"),
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
        play=PLAY,
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
        play=PLAY,
        size="test 4,326",
        licence="MIT",
    ),
    DataSet(
        name="xBench",
        description="xbench-DeepSearch: Chinese questions that take several searches (published encrypted)",
        hub="xbench/DeepSearch",
        splits=(("test", "train"),),
        play=dataclasses.replace(PLAY, language="zh"),
        size="test 100",
        licence="see the hub's page",
        question=("question", "prompt"),
        steps=(decrypted,),
        reads=("canary",),
        known_as=("xbench-deepsearch", "DeepSearch"),
    ),
)
