"""How often does a search find the right one of the 1,250 tools of arpo/ToolWorld-v0, and what does it cost?

    python -m benchmarks.tool_search [--worlds 5] [--tasks 200] [--embedding-model NAME --url http://.../v1]

For each world and each step of its questions, the query is the question's own phrase, with the kind of place in place
of its name ("the number of workers on the payroll of a bakery"). The phrases are written in other words than the
documents: a phrase shares words with the description and none with the name of the tool, whose first part is an
invented word, and half of the places are called by a second noun. Three harder queries are measured beside it: the
whole question, for each of its tools; the phrase without the kind of place; and the words of the tool's name alone.
Recall@k counts the steps whose tool is among the first k. Prints a table and writes
benchmarks/results/tool_search.json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from arpo_env.search.dense_search import DenseSearch, EmbeddingModel
from arpo_env.search.local_search import WorldSearch
from arpo_env.search.search_backend import SearchBackend
from arpo_env.tools.tool_search import passages_of, read_documents
from envs_registry.generated.toolworld import ToolWorldSource

RESULT = Path(__file__).parent / "results" / "tool_search.json"
RANKS = (1, 5, 10)


def queries(source: ToolWorldSource, tasks: int) -> Iterator[tuple[str, str, str]]:
    """Yield (form of the query, query, right tool)."""
    for index in range(tasks):
        for step in source.steps(index):
            yield "phrase", step.query, step.tool
            yield "whole question", source.task(index).question, step.tool
            yield "phrase without the kind", re.sub(r"\ban? \w+", "", step.query), step.tool
            yield "name of the tool", step.tool.replace("_", " "), step.tool


async def measure(search: SearchBackend, source: ToolWorldSource, tasks: int) -> dict[str, list[int]]:
    """Return for each form of the query the ranks of the right tools, from 1; 99 where it was not found."""
    await search.search("anything", 1)  # builds the index
    found: dict[str, list[int]] = {}
    for form, query, tool in queries(source, tasks):
        names = [hit.url for hit in await search.search(query, RANKS[-1])]
        found.setdefault(form, []).append(names.index(tool) + 1 if tool in names else 99)
    return found


def engines(source: ToolWorldSource, arguments: argparse.Namespace) -> dict[str, SearchBackend]:
    """Return the searches to compare."""
    passages = passages_of(read_documents(source.tool_documents)[0])
    made: dict[str, SearchBackend] = {"tantivy": WorldSearch(passages)}
    if arguments.embedding_model:
        model: Any = EmbeddingModel(arguments.embedding_model, arguments.url)
        made[arguments.embedding_model] = DenseSearch(passages, model.embed)
    return made


def main() -> None:
    """Measure, print and store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", type=int, default=5)
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--embedding-model", default="")
    parser.add_argument("--url")
    arguments = parser.parse_args()
    ranks: dict[tuple[str, str], list[int]] = {}
    seconds: dict[str, float] = {}
    for world in range(arguments.worlds):
        source = ToolWorldSource("test", "3", world)
        for name, search in engines(source, arguments).items():
            began = time.process_time()
            for form, found in asyncio.run(measure(search, source, arguments.tasks)).items():
                ranks.setdefault((name, form), []).extend(found)
            seconds[name] = seconds.get(name, 0.0) + time.process_time() - began
    rows = []
    for (name, form), found in ranks.items():
        recall = {f"recall_{k}": round(sum(rank <= k for rank in found) / len(found), 4) for k in RANKS}
        rows.append({"engine": name, "query": form, "queries": len(found), **recall})
        print(f"{name:10} {form:24} {len(found):6} " + " ".join(f"R@{k} {recall[f'recall_{k}']:.3f}" for k in RANKS))
    asked = {name: sum(len(found) for (engine, _), found in ranks.items() if engine == name) for name in seconds}
    cost = {name: round(1000 * spent / asked[name], 3) for name, spent in seconds.items()}
    print("CPU ms per query, the index included:", cost)
    result = {"tools": len(ToolWorldSource().tool_documents), "worlds": arguments.worlds, "rows": rows, "cpu_ms": cost}
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
