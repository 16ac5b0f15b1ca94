"""Questions over Wikipedia that take several look-ups: HotpotQA, 2Wiki, MuSiQue, Bamboogle.

A new set is one row of `MULTIHOP_SETS`. Paragraphs are not loaded: the search tool finds them.
"""

from __future__ import annotations

from envs_registry.datasets.data_files import Row
from envs_registry.datasets.data_set import DataSet, Play
from envs_registry.datasets.repairs import Repairs

# 10 searches and 5 Python calls are the papers' at evaluation; they train with 3 calls in all.
PLAY = Play(
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
        play=PLAY,
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
        play=PLAY,
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
        play=PLAY,
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
        play=PLAY,
        size="test 125",
        licence="MIT",
    ),
)
