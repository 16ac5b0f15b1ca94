"""What a local search costs: tantivy beside bm25s and rank_bm25, where those are installed.

    python -m benchmarks.search --links 12500 50000 200000
    python -m benchmarks.search [--passages 14000 1000000] [--corpus FOLDER] [--packages FOLDER] [--seconds 20]

For each size and engine: building (CPU s, peak memory), disk, opening, memory after the queries, CPU ms a query, p50
and p95 in ms with one caller and with 64, queries a second with 64, and the share of gold passages in the first five.
The queries are the questions that come with the corpus (passages.jsonl, questions.jsonl). A larger corpus is the real
one and sentences of it put together anew, under invented names. Each engine has processes of its own. A part ends after
--seconds; "asked" says how many queries it had. --packages names a folder with bm25s and rank_bm25. Prints a table and
writes benchmarks/results/search.json.

With --links it measures instead what it costs to read a page: CPU s to parse one of so many links, and to find the
passage in a line of so many dots (as in a table of contents), within the default limits of `PageReader`.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import os
import pickle
import platform
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from arpo_env.search import LocalSearch, build_index, read_corpus

RESULTS = Path(__file__).parent / "results"
SHARED = Path(__file__).resolve().parents[2] / "shared/data/corpus"
ENGINES = ("tantivy", "bm25s", "rank_bm25")
K, CALLERS, NAMES = 5, 64, 300_000
COLUMNS = (
    "build_cpu_s",
    "build_peak_mb",
    "disk_mb",
    "open_s",
    "rss_mb",
    "cpu_ms",
    "p50_ms",
    "p95_ms",
    "p50_ms_64",
    "p95_ms_64",
    "rate_64",
    "recall_5",
    "asked",
)
Search = Callable[[str], list[str]]


def enlarged(folder: Path, passages: int) -> Iterator[dict[str, str]]:
    """Yield the real passages and, up to that many, ones made of their sentences with invented names."""
    rng = random.Random(0)
    sentences: list[str] = []
    for number, passage in enumerate(read_corpus(folder / "passages.jsonl")):
        sentences += re.findall(r"[A-Z][^.!?]{20,300}[.!?]", passage.text)
        if number < passages:
            yield {"id": passage.id, "title": passage.title, "text": passage.text}
    syllables = [a + b for a in "bcdfghklmnprstvz" for b in ("a", "e", "i", "o", "u", "an", "el", "or")]
    names = [
        " ".join("".join(rng.choices(syllables, k=rng.randint(2, 3))).capitalize() for _ in range(2))
        for _ in range(NAMES)
    ]
    for made in range(max(0, passages - number - 1)):
        title = rng.choice(names)
        text = " ".join(re.sub(r"\b[A-Z]\w+", rng.choice(names), s, count=1) for s in rng.choices(sentences, k=2))
        yield {"id": f"m{made}", "title": title, "text": f"{title}: {text}"}


def build(engine: str, corpus: Path, folder: Path) -> None:
    if engine == "tantivy":
        build_index(corpus, folder)
        return
    folder.mkdir()
    rows = [(passage.id, f"{passage.title} {passage.text}") for passage in read_corpus(corpus)]
    (folder / "ids.json").write_text(json.dumps([name for name, _ in rows]))
    if engine == "bm25s":
        import bm25s

        index = bm25s.BM25()
        index.index(
            bm25s.tokenize([text for _, text in rows], stopwords="en", show_progress=False), show_progress=False
        )
        index.save(str(folder / "bm25s"))
    else:
        from rank_bm25 import BM25Okapi

        (folder / "rank.pickle").write_bytes(pickle.dumps(BM25Okapi([_words(text) for _, text in rows])))


def opened(engine: str, folder: Path) -> Search:
    if engine == "tantivy":
        index = LocalSearch(folder)
        return lambda query: [hit.url for hit in index.search_sync(query, K)]
    ids = json.loads((folder / "ids.json").read_text())
    if engine == "bm25s":
        import bm25s

        sparse = bm25s.BM25.load(str(folder / "bm25s"), mmap=True)

        def ask(query: str) -> list[str]:
            tokens = bm25s.tokenize(query, stopwords="en", show_progress=False)
            return [ids[n] for n in sparse.retrieve(tokens, k=K, show_progress=False).documents[0]]

        return ask
    rank = pickle.loads((folder / "rank.pickle").read_bytes())

    def ask_rank(query: str) -> list[str]:
        scores = rank.get_scores(_words(query))
        return [ids[n] for n in scores.argsort()[::-1][:K]]

    return ask_rank


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def measure(engine: str, folder: Path, questions: list[dict[str, Any]], seconds: float) -> dict[str, float]:
    """Ask the questions one after the other, then from many callers; return the numbers."""
    started = time.perf_counter()
    search = opened(engine, folder)
    search("warm up")
    facts = {"open_s": time.perf_counter() - started}
    times, found, gold, cpu = [], 0, 0, time.process_time()
    end = time.perf_counter() + seconds
    for question in questions:
        if time.perf_counter() > end:
            break
        began = time.perf_counter()
        hits = search(question["question"])
        times.append(time.perf_counter() - began)
        found += len(set(question["gold"]) & set(hits))
        gold += len(question["gold"])
    facts |= {"cpu_ms": 1000 * (time.process_time() - cpu) / len(times), "recall_5": found / gold, "asked": len(times)}
    facts |= _spread(times, "")
    many = _asynchronous if engine == "tantivy" else _threaded
    began = time.perf_counter()
    times = many(engine, folder, search, [question["question"] for question in questions], seconds)
    facts |= {"rate_64": len(times) / (time.perf_counter() - began), **_spread(times, "_64")}
    status = Path("/proc/self/status").read_text()
    return facts | {"rss_mb": int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024}


def _asynchronous(engine: str, folder: Path, _: Search, queries: list[str], seconds: float) -> list[float]:
    index = LocalSearch(folder)
    waiting = iter(queries * 5)
    end = time.perf_counter() + seconds
    times: list[float] = []

    async def caller() -> None:
        for query in waiting:
            began = time.perf_counter()
            await index.search(query, K)
            times.append(time.perf_counter() - began)
            if time.perf_counter() > end:
                return

    async def callers() -> None:
        await asyncio.gather(*(caller() for _ in range(CALLERS)))

    asyncio.run(callers())
    return times


def _threaded(engine: str, folder: Path, search: Search, queries: list[str], seconds: float) -> list[float]:
    end = time.perf_counter() + seconds

    def one(query: str) -> float | None:
        began = time.perf_counter()
        if began > end:
            return None
        search(query)
        return time.perf_counter() - began

    with ThreadPoolExecutor(CALLERS) as pool:
        return [spent for spent in pool.map(one, queries * 5) if spent is not None]


def read_pages(numbers: list[int]) -> dict[str, dict[str, float]]:
    """Return the CPU seconds for pages of so many links, and for texts of so many dots."""
    from arpo_env.pages import parser_process as parsing
    from arpo_env.pages import passage

    costs = {}
    signal.signal(signal.SIGVTALRM, parsing._slow)
    for number in numbers:
        items = "".join(f'<li><a href="/p/{each}">L{each}</a>' for each in range(number))
        body = f"<html><head><title>Links</title></head><body><ul>{items}</ul></body></html>".encode()
        began = time.process_time()
        signal.setitimer(signal.ITIMER_VIRTUAL, 15.0 / 4, 1.0)  # as the reader's process has it
        parsing.parse("html", body, 20_000)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        parsed = time.process_time()
        passage(("." * number)[:20_000] + "x", "x")
        costs[f"{number} links"] = {"page_cpu_s": parsed - began, "passage_cpu_s": time.process_time() - parsed}
        print(f"{number:>9,} links {len(body) / 1e6:>6.1f} MB", costs[f"{number} links"], flush=True)
    return costs


def _spread(times: list[float], suffix: str) -> dict[str, float]:
    times = sorted(times)
    return {
        f"p50_ms{suffix}": 1000 * times[len(times) // 2],
        f"p95_ms{suffix}": 1000 * times[int(len(times) * 0.95)],
    }


def part(arguments: argparse.Namespace) -> dict[str, float]:
    """Do one part in this process: build, or measure."""
    engine, corpus, folder = arguments.part[0], Path(arguments.part[1]), Path(arguments.part[2])
    if arguments.part[3] == "build":
        cpu = time.process_time()
        build(engine, corpus, folder)
        used = resource.getrusage(resource.RUSAGE_SELF)
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        cpu = time.process_time() - cpu
        return {"build_cpu_s": cpu, "build_peak_mb": used.ru_maxrss / 1024, "disk_mb": size / 1e6}
    lines = (arguments.corpus / "questions.jsonl").read_text(encoding="utf-8").splitlines()
    questions = [json.loads(line) for line in lines]
    random.Random(0).shuffle(questions)  # a part that ends early has seen some of each set
    return measure(engine, folder, questions, arguments.seconds)


def compare(arguments: argparse.Namespace, passages: int, scratch: Path) -> dict[str, dict[str, Any]]:
    """Measure all engines on a corpus of that many passages."""
    corpus = scratch / "corpus.jsonl"
    with open(corpus, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in enlarged(arguments.corpus, passages))
    print(f"\n{passages:,} passages, {corpus.stat().st_size / 1e6:.0f} MB")
    print(f"{'':<10}" + "".join(f"{column:>14}" for column in COLUMNS))
    rows = {}
    for engine in ENGINES:
        rows[engine] = _skipped(engine, passages) or _run(arguments, engine, corpus, scratch / engine)
        _print(engine, rows[engine])
    return rows


def _skipped(engine: str, passages: int) -> dict[str, str]:
    if importlib.util.find_spec(engine) is None:
        return {"skipped": f"{engine} is not installed"}
    if engine == "rank_bm25" and passages > 100_000:
        return {"skipped": "its time grows with the corpus: seconds a query at this size"}
    return {}


def _run(arguments: argparse.Namespace, engine: str, corpus: Path, folder: Path) -> dict[str, float]:
    facts: dict[str, float] = {}
    for what in ("build", "measure"):
        command = [sys.executable, "-m", "benchmarks.search", "--corpus", str(arguments.corpus)]
        command += ["--seconds", str(arguments.seconds)]
        command += ["--packages", arguments.packages] if arguments.packages else []
        command += ["--part", engine, str(corpus), str(folder), what]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{what} with {engine} failed:\n{done.stderr}")
        facts |= json.loads(done.stdout.splitlines()[-1])
    return facts


def _print(engine: str, row: dict[str, Any]) -> None:
    shown = row.get("skipped") or "".join(f"{row[column]:>14.3g}" for column in COLUMNS)
    print(f"{engine:<10}{shown}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, nargs="+", default=[13_838])
    parser.add_argument("--corpus", type=Path, default=SHARED, help="a folder with passages.jsonl and questions.jsonl")
    parser.add_argument("--packages", help="a folder that has bm25s and rank_bm25 installed")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--part", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--links", type=int, nargs="+", help="measure pages of so many links instead")
    arguments = parser.parse_args()
    if arguments.packages:
        sys.path.append(arguments.packages)
    if arguments.part:
        print(json.dumps(part(arguments)))
        return
    if arguments.links:
        file = RESULTS / "search.json"
        kept = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        kept["pages"] = read_pages(arguments.links)
        file.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")
        return
    facts: dict[str, Any] = {"cores": os.cpu_count(), "load": os.getloadavg()[0], "kernel": platform.release()}
    for passages in arguments.passages:
        with tempfile.TemporaryDirectory() as scratch:
            facts[str(passages)] = compare(arguments, passages, Path(scratch))
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "search.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
