"""What do small real models do as policies with search, as judges and as helpers, and do frameworks agree about them?

    python examples/serve_gguf.py "$(arpo models get qwen2.5-coder-1.5b --gguf)" &
    python -m benchmarks.real_models search --corpus passages.jsonl --questions questions.jsonl
    python -m benchmarks.real_models judge
    python -m benchmarks.real_models helpers --corpus passages.jsonl --questions questions.jsonl --gsm8k test.jsonl
    python -m benchmarks.real_models frameworks --name qwen2.5-coder-0.5b --tasks 20

The model answers at `--url`. Every answer is kept in runs/real-models at once: a call goes on where the last one was
interrupted, and each writes its part of benchmarks/results/real_models.json; scripts/real_model_tables.py makes tables
of it. `--corpus` and `--questions` are passages and HotpotQA questions with the ids of their gold passages. `judge`
grades the answers that `search` collected, and `helpers` shortens their thoughts if there are any. The judge's verdicts
that a person read are in results/real_models_read.json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from arpo_env.chat_model import ChatModel
from arpo_env.errors import GradingError, ServiceError
from arpo_env.grading.llm_judge import Judge
from arpo_env.grading.qa_grader import qa_scores
from arpo_env.pages.page import Page
from arpo_env.pages.page_summary import PageSummariser
from arpo_env.protocols.protocol import last_boxed
from arpo_env.search import open_search
from arpo_env.services import Services
from arpo_env.tools.tool_search import ResultCondenser, open_registry
from arpo_trainer.evaluation.episode_store import EvalRun, UnitRow, load_eval_run
from arpo_trainer.evaluation.eval_metrics import interval_data, interval_of, values_of
from arpo_trainer.evaluation.eval_session import run_evaluation
from arpo_trainer.evaluation.eval_settings import EvalModel, EvalSettings
from arpo_trainer.inference_tools import ChatHelper, HelperFailed, Spent, corrected_code, shortened_turns
from arpo_trainer.statistics import agreement
from benchmarks.real_models_frameworks import compare_frameworks
from envs_registry import load_source
from sandbox import default_sandbox

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "real_models.json"
READ = ROOT / "benchmarks" / "results" / "real_models_read.json"
SHOWN = {"search_results": 3, "result_characters": 1500}  # of a search: the model's context is small
GREEDY = {"temperature": 0.0, "top_p": 1.0, "max_turn_length": 512, "max_completion_length": 4096}
WAYS = tuple((tools, protocol) for tools in ("search", "alone") for protocol in ("arpo-tags", "native"))
WAY = ("set", "tools", "protocol")
WORLD = {"split": "test", "level": 2, "seed": 1}
Row = dict[str, Any]


# search: with and without the tool, by tags and by native calls


def search(given: argparse.Namespace) -> Row:
    """Play MultiHop and HotpotQA in each way, and say where those with search went wrong."""
    questions = hotpot_questions(given.questions)[: given.hotpotqa]
    data = given.runs / "hotpotqa.jsonl"
    rows = [{"question": row["question"], "answer": row["answers"]} for row in questions]
    data.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    sets = {
        "MultiHop": (given.multihop, WORLD, {}),
        "HotpotQA": (given.hotpotqa, {"data": str(data), "split": "validation"}, {"search": str(given.corpus)}),
    }
    model = EvalModel(given.name, "endpoint", given.name, (given.url,), given.name)
    for count in range(given.slice, max(tasks for tasks, *_ in sets.values()) + given.slice, given.slice):
        for name, (most, options, corpus) in sets.items():
            for tools, protocol in WAYS if most else ():
                searching = {"tools": ["search"], **SHOWN, **corpus} if tools == "search" else {"tools": []}
                played = {**options, **searching, "protocol": protocol, "prompt": "paper", "max_turns": 6}
                settings = EvalSettings(
                    (f"arpo/{name}-v0",), played, tasks=min(count, most), rollout=GREEDY,
                    concurrency=given.rows, max_broken=1.0,
                )  # fmt: skip
                run_evaluation(settings, [model], search_folder(given, name, tools, protocol), resume=True)
        write("search", search_results(given, questions))
    return search_results(given, questions)


def search_folder(given: argparse.Namespace, name: str, tools: str, protocol: str) -> Path:
    """Return the folder of one way to play a set."""
    return Path(given.runs) / "search" / f"{name}-{protocol}-{tools}"


def search_results(given: argparse.Namespace, questions: Sequence[Row]) -> Row:
    """Return scores, calls and places of failure of each way that was played."""
    world = load_source("multihop", **WORLD)
    titles = {passage.id: passage.title for passage in world.passages}
    corpus = passage_titles(given.corpus)
    gold = {
        "MultiHop": lambda index: [titles[one] for one in world.proof(index).passages],
        "HotpotQA": lambda index: [corpus[one] for one in questions[index]["gold"]],
    }
    engines = {"MultiHop": Services().backend(world), "HotpotQA": open_search(str(given.corpus))}
    found = []
    for name, golds in gold.items():
        for tools, protocol in WAYS:
            folder = search_folder(given, name, tools, protocol)
            if not (folder / "run.json").is_file():
                continue
            run = load_eval_run(folder)
            if tools == "search":
                seen = [reached(run, row, golds(row.index), engines[name]) for row in run.rows]
                places = Counter(place for place, _ in seen)
                right = Counter(place for place, is_right in seen if is_right)
                more = {"places": dict(places), "right": dict(right)}
            else:
                more = {}
            said = {row.task: [float(said_right(run, row))] for row in run.rows}
            calls = [sum(entry.calls.values()) for row in run.rows for entry in row.scored]
            outcomes = Counter(entry.outcome for row in run.rows for entry in row.episodes)
            found.append({
                "set": name, "tools": tools, "protocol": protocol, "tasks": len(run.rows),
                "accuracy": interval_data(interval_of(values_of(run.rows))),
                "right in any format": interval_data(interval_of(said)),
                "calls": sum(calls) / max(1, len(calls)), "outcomes": dict(outcomes), **more,
            })  # fmt: skip
    seen = {tuple(way[key] for key in WAY) for way in found}
    kept = [way for way in stored().get("search", {}).get("ways", []) if tuple(way[key] for key in WAY) not in seen]
    return {"model": given.name, "ways": sorted(kept + found, key=lambda way: way["set"], reverse=True)}


def said_right(run: EvalRun, row: UnitRow) -> bool:
    """Return whether the last turn says the answer, wherever in it: in a box, else in its last line."""
    text = next((span.text for span in reversed(run.tree(row).path(0)) if span.kind == "model"), "")
    text = re.sub(r"<\|im_end\|>|</?answer>", " ", text).strip()
    said = last_boxed(text) or (text.splitlines() or [""])[-1]
    return qa_scores(said, row.answers, row.question)[0] >= 1


PLACES = (
    *("found", "worse query than the question", "not found by the question either"),
    *("a call that nobody can read", "no call"),
)


def reached(run: EvalRun, row: UnitRow, gold: Sequence[str], engine: Any) -> tuple[str, bool]:
    """Return how far an episode with search came (`PLACES`), and whether its answer was right in any format.

    "found": the titles of all gold passages stood in its results. Otherwise the question itself, as a query, would have
    found all of them among as many results ("worse query"), or not. Or nothing was searched: a turn names the tool in a
    form that is no call of the protocol, or there is none.
    """
    right, path = said_right(run, row), run.tree(row).path(0)
    spans = [span for span in path if span.is_result and span.tool["name"] == "search"]
    if not spans:
        named = any(re.search(r'<search>|"search"|\bsearch\(', span.text) for span in path if span.kind == "model")
        return PLACES[3] if named else PLACES[4], right
    shown = "\n".join(span.text for span in spans)
    if all(is_shown(title, shown) for title in gold):
        return "found", right
    hits = asyncio.run(engine.search(row.question, SHOWN["search_results"]))
    return PLACES[1] if set(gold) <= {hit.title for hit in hits} else PLACES[2], right


def is_shown(title: str, results: str) -> bool:
    """Return whether a result has this title: a line such as `Page 2: TITLE`."""
    return re.search(rf"^Page \d+: {re.escape(title)}$", results, re.MULTILINE) is not None


# judge: verdicts of the model on answers that rules have graded


def judge(given: argparse.Namespace) -> Row:
    """Grade answers to HotpotQA with the model, and compare its verdicts with exact match and with a reader's."""
    answers = answers_of(given)
    grader = Judge(ChatModel(given.name, given.url))

    async def verdict(row: Row) -> Row:
        return {"verdict": await grader.verdict(row["question"], row["answers"], row["answer"])}

    found = asked(given, "judge", answers, verdict)
    read = json.loads(READ.read_text(encoding="utf-8")) if READ.is_file() else {}
    return judge_results(found, read)


def answers_of(given: argparse.Namespace) -> list[Row]:
    """Return answers of the ways to play HotpotQA in turn, no two equal ones to a question."""
    columns = []
    for tools, protocol in WAYS:
        folder = search_folder(given, "HotpotQA", tools, protocol)
        columns.append(load_eval_run(folder).rows)
    found: dict[tuple[str, str], Row] = {}
    for rows in zip(*columns, strict=False):
        for way, row in enumerate(rows):
            text = (row.episodes[0].answer or "").strip()
            if text:
                about = {"id": f"{row.index}-{way}", "question": row.question, "answers": row.answers}
                found.setdefault((row.question, text), {**about, "answer": text})
    return list(found.values())[: given.answers]


def judge_results(rows: Sequence[Row], read: Mapping[str, Row]) -> Row:
    """Return agreement of verdicts with exact match, with F1 of at least a half, and with what a reader says."""
    scores = {row["id"]: qa_scores(row["answer"], row["answers"], row["question"]) for row in rows}
    verdicts = {row["id"]: row.get("verdict") == "CORRECT" for row in rows if "failed" not in row}
    references = {
        "exact match": {key: exact >= 1 for key, (exact, _) in scores.items()},
        "F1 of at least 0.5": {key: f1 >= 0.5 for key, (_, f1) in scores.items()},
        "reader": {key: bool(entry["right"]) for key, entry in read.items()},
    }
    found: Row = {"answers": len(rows), "failed": len(rows) - len(verdicts), "said right": sum(verdicts.values())}
    for name, reference in references.items():
        if common := [key for key in verdicts if key in reference]:
            found[name] = compared({key: verdicts[key] for key in common}, reference)
    if common := [key for key in references["reader"] if key in scores]:
        of_reader = {key: references["reader"][key] for key in common}
        found["exact match against the reader"] = compared(
            {key: references["exact match"][key] for key in common}, of_reader
        )
    return found


def compared(verdicts: Mapping[str, bool], reference: Mapping[str, bool]) -> Row:
    """Return how far verdicts agree with a reference, and the two kinds of mistake."""
    found = agreement(verdicts, reference)
    accepted = sum(verdicts[key] for key in found.disagreements)
    return {
        "answers": found.answers, "share": round(found.share, 4), "kappa": round(found.kappa, 4),
        "wrongly accepted": accepted, "wrongly rejected": len(found.disagreements) - accepted,
    }  # fmt: skip


# helpers: the debugger, the model that plays tools, the models that shorten pages, results and thoughts


def helpers(given: argparse.Namespace) -> Row:
    """Ask the model for each help, and check what came back by rules."""
    chat = ChatModel(given.name, given.url)
    found = {
        "debugger": debugger(given, chat),
        "tool_model": played_tools(given, chat),
        "summariser": summaries(given, chat),
        "condenser": condensed(given, chat),
    }
    if (search_folder(given, "HotpotQA", "search", "arpo-tags") / "run.json").is_file():
        found["refiner"] = refined(given, chat)
    return found


MUTATIONS: dict[str, Callable[[str], str]] = {
    "a bracket is missing": lambda code: code[:-1],
    "a name is misspelled": lambda code: code.replace("print(step_", "print(stp_"),
    "a number is a text": lambda code: re.sub(r"= \(?(\d+(?:\.\d+)?)", r'= "\1"', code, count=1),
}


def right_programs(data: Path) -> Iterator[tuple[str, str]]:
    """Yield programs made of the calculations in GSM8K's solutions, with the values that they print."""
    for line in data.read_text(encoding="utf-8").splitlines():
        steps = re.findall(r"<<([-+*/(). 0-9]+)=([-.0-9]+)>>", json.loads(line)["answer"])
        if len(steps) < 2:
            continue
        lines = []
        for number, (formula, _) in enumerate(steps, 1):
            for earlier in range(number - 1, 0, -1):  # a value of an earlier step is its name
                value = steps[earlier - 1][1]
                formula = re.sub(rf"(?<![\w.]){re.escape(value)}(?![\w.])", f"step_{earlier}", formula)
            lines.append(f"step_{number} = {formula}")
        yield "\n".join([*lines, f"print(step_{len(steps)})"]), steps[-1][1]


def debugger(given: argparse.Namespace, chat: ChatModel) -> Row:
    """Let the model repair right programs that were broken; count what runs, and what prints the right value."""
    sandbox = default_sandbox()
    rows: list[Row] = []
    programs = right_programs(given.gsm8k)
    while len(rows) < given.programs:
        code, value = next(programs)
        kind = list(MUTATIONS)[len(rows) % len(MUTATIONS)]
        broken = MUTATIONS[kind](code)
        done = sandbox.run_sync(broken, 10.0)
        if done.status == "ok" or sandbox.run_sync(code, 10.0).status != "ok":
            continue  # such as a text that is only repeated
        rows.append({"id": len(rows), "kind": kind, "code": broken, "error": done.error, "value": value})

    async def repair(row: Row) -> Row:
        fixed = await corrected_code(ChatHelper(chat), row["code"], row["error"], 0, Spent())
        done = await sandbox.run(fixed, 10.0)
        return {"fixed": fixed, "status": done.status, "printed": done.stdout.strip()}

    found = asked(given, "debugger", rows, repair)
    kinds = {}
    for kind in MUTATIONS:
        of_kind = [row for row in found if row["kind"] == kind]
        runs = [row for row in of_kind if row.get("status") == "ok"]
        kinds[kind] = {"programs": len(of_kind), "run": len(runs), "right": sum(map(prints_value, runs))}
    return {**counts(found), "kinds": kinds}


def prints_value(row: Row) -> bool:
    """Return whether the last line that a program printed is the value."""
    try:
        return abs(float(row["printed"].splitlines()[-1]) - float(row["value"])) < 1e-6
    except (ValueError, IndexError):
        return False


TOOLS: list[tuple[str, str, dict[str, str], list[dict[str, Any]]]] = [
    ("weather", "Current weather of a city: temperature in degrees Celsius and a word for the sky",
     {"city": "string"}, [{"city": "Oslo"}, {"city": "Lima"}, {"town": "Lima"}]),
    ("convert", "Convert an amount between two currencies at today's rate", {"amount": "number", "of": "string",
     "into": "string"}, [{"amount": 20, "of": "EUR", "into": "USD"}, {"amount": "many", "of": "EUR", "into": "USD"}]),
    ("trains", "Departures of trains between two stations: a list of time, platform and line",
     {"start": "string", "end": "string"}, [{"start": "Bern", "end": "Basel"}, {"start": "Rome", "end": "Bari"}, {}]),
    ("book", "Data of a book by its ISBN: title, authors, year and number of pages", {"isbn": "string"},
     [{"isbn": "9780140449136"}, {"isbn": "9780262035613"}, {"isbn": 12}]),
    ("elevation", "Height of a place above the sea in metres", {"latitude": "number", "longitude": "number"},
     [{"latitude": 46.5, "longitude": 7.9}, {"latitude": 0.0, "longitude": 37.3}, {"latitude": "north"}]),
    ("synonyms", "Synonyms of an English word, best first", {"word": "string"}, [{"word": "quick"}, {"word": "sad"}]),
    ("flight", "Status of a flight: departure, arrival, delay in minutes", {"number": "string"},
     [{"number": "LH400"}, {"number": "BA117"}, {"flight": "BA117"}]),
    ("team", "Players of a football team with number and position", {"name": "string"}, [{"name": "Ajax"}]),
]  # fmt: skip


def played_tools(given: argparse.Namespace, chat: ChatModel) -> Row:
    """Let the model answer calls of tools, some with wrong arguments; count JSON, and errors where they belong."""
    documents, rows = [], []
    for name, description, parameters, calls in TOOLS:
        properties = {key: {"type": kind} for key, kind in parameters.items()}
        schema = {"type": "object", "properties": properties, "required": list(parameters)}
        documents.append({"name": name, "description": description, "parameters": schema})
        for arguments in calls:
            fits = set(arguments) == set(parameters) and all(
                isinstance(value, str) == (parameters[key] == "string") for key, value in arguments.items()
            )
            rows.append({"id": len(rows), "name": name, "arguments": arguments, "fits": fits})
    services = Services(tool_documents=documents, tool_model=given.name, model_url=given.url)
    registry = open_registry(services, load_source("arithmetic"))

    async def call(row: Row) -> Row:
        return {"reply": await registry.call(row["name"], row["arguments"])}

    found = asked(given, "tools", rows, call)
    values = [(row, as_json(row.get("reply", ""))) for row in found]
    told = [(row["fits"], isinstance(value, dict) and "error" in value) for row, value in values if value is not None]
    return {
        **counts(found), "JSON": len(told), "calls that fit": sum(row["fits"] for row in found),
        "of them answered": sum(fits and not error for fits, error in told),
        "calls that do not fit": sum(not row["fits"] for row in found),
        "of them refused": sum(not fits and error for fits, error in told),
    }  # fmt: skip


def as_json(text: str) -> Any:
    """Return the JSON value of a text, None if it is none."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def pages_of(given: argparse.Namespace, count: int) -> list[Row]:
    """Return questions with five passages each: the gold ones, and what a search for the question finds besides."""
    passages = {row["id"]: row for row in read_lines(given.corpus)}
    engine = open_search(str(given.corpus))
    rows = []
    for question in hotpot_questions(given.questions):
        gold = [passages[one] for one in question["gold"]]
        found = {row["title"]: row["text"] for row in gold}
        answer = question["answers"][0]
        if answer.lower() not in " ".join(found.values()).lower():
            continue  # such as yes and no, which no summary has to keep
        for hit in asyncio.run(engine.search(question["question"], 8)):
            if len(found) < 5:
                found.setdefault(hit.title, hit.text or hit.snippet)
        pages = list(found.items())
        random.Random(question["id"]).shuffle(pages)
        rows.append({"id": question["id"], "question": question["question"], "answer": answer, "pages": pages})
        if len(rows) == count:
            break
    return rows


def summaries(given: argparse.Namespace, chat: ChatModel) -> Row:
    """Let the model summarise pages for a question; count whether the answer's words survive."""
    summariser = PageSummariser(chat)

    async def summarise(row: Row) -> Row:
        pages = [Page(url=f"https://example.org/{number}", title=title, text=text)
                 for number, (title, text) in enumerate(row["pages"])]  # fmt: skip
        return {"text": await summariser.summarise(row["question"], [], pages)}

    return shortened(asked(given, "summaries", pages_of(given, given.pages), summarise))


def condensed(given: argparse.Namespace, chat: ChatModel) -> Row:
    """Let the model condense long results of a tool; count whether the answer's words survive."""
    condenser = ResultCondenser(chat, 600)

    async def condense(row: Row) -> Row:
        result = json.dumps([{"title": title, "text": text} for title, text in row["pages"]])
        steps = [f"The question is: {row['question']} I look up what is known."]
        return {"text": await condenser.condense("lookup", {"topic": row["question"]}, steps, result)}

    return shortened(asked(given, "condensed", pages_of(given, given.pages // 2), condense))


def shortened(rows: Sequence[Row]) -> Row:
    """Return lengths before and after, and in how many texts the answer still stands."""
    done = [row for row in rows if "text" in row]
    before = [sum(len(text) for _, text in row["pages"]) for row in done]
    kept = [row["answer"].lower() in row["text"].lower() for row in done]
    size = max(1, len(done))
    lengths = {"before": sum(before) / size, "after": sum(len(row["text"]) for row in done) / size}
    return {**counts(rows), "characters": {name: round(value) for name, value in lengths.items()}, "kept": sum(kept)}


def refined(given: argparse.Namespace, chat: ChatModel) -> Row:
    """Let the model shorten the thoughts of episodes that `search` played with tags."""
    run = load_eval_run(search_folder(given, "HotpotQA", "search", "arpo-tags"))
    rows = []
    for row in run.rows:
        path = run.tree(row).path(0)
        turns = [
            (span.text, after.text if after and after.kind == "environment" else "")
            for span, after in zip(path, [*path[1:], None], strict=True)
            if span.kind == "model"
        ]
        if any("<think>" in text and "</think>" in text for text, _ in turns):
            rows.append({"id": row.task, "question": row.question, "turns": turns})

    async def refine(row: Row) -> Row:
        return {"new": await shortened_turns(ChatHelper(chat), row["question"], row["turns"], 0, Spent())}

    found = asked(given, "refined", rows[: given.pages // 2], refine)
    done = [row for row in found if "new" in row]
    before = sum(len(text) for row in done for text, _ in row["turns"])
    after = sum(len(text) for row in done for text in row["new"])
    return {**counts(found), "characters": {"before": before, "after": after}}


# what all of them share


def asked(given: argparse.Namespace, name: str, rows: Iterable[Row], ask: Callable[[Row], Awaitable[Row]]) -> list[Row]:
    """Return rows with what `ask` adds to each; what is kept in the folder is not asked again.

    A failure of the service or of the helper is kept with its words as "failed".
    """
    kept = Path(given.runs) / f"{name}-{given.name}.jsonl"
    found = {row["id"]: row for row in read_lines(kept)} if kept.is_file() else {}
    rows = list(rows)

    async def one(row: Row, slots: asyncio.Semaphore) -> None:
        async with slots:
            began = time.monotonic()
            try:
                added = await ask(row)
            except (HelperFailed, GradingError, ServiceError) as error:
                added = {"failed": f"{type(error).__name__}: {error}"}
            found[row["id"]] = {**row, **added, "seconds": round(time.monotonic() - began, 2)}
            with kept.open("a", encoding="utf-8") as file:
                file.write(json.dumps(found[row["id"]], ensure_ascii=False) + "\n")
            sys.stderr.write(f"{name}: {len(found)} of {len(rows)}\n")

    async def everything() -> None:
        slots = asyncio.Semaphore(given.rows)
        await asyncio.gather(*(one(row, slots) for row in rows if row["id"] not in found))

    asyncio.run(everything())
    return [found[row["id"]] for row in rows]


def counts(rows: Sequence[Row]) -> Row:
    """Return how many there are, and the reasons of those that failed."""
    failed = Counter(row["failed"].split(":")[0] for row in rows if "failed" in row)
    return {"asked": len(rows), "failed": dict(failed)}


def read_lines(file: Path) -> list[Row]:
    """Return the rows of a JSON Lines file."""
    return [json.loads(line) for line in Path(file).read_text(encoding="utf-8").splitlines()]


def hotpot_questions(file: Path) -> list[Row]:
    """Return the HotpotQA questions of ARPO's evaluation whose gold passages are known."""
    return [row for row in read_lines(file) if row["dataset"] == "hotpotqa" and row["in_arpo_eval"]]


def passage_titles(file: Path) -> dict[str, str]:
    """Return id -> title of a corpus."""
    return {row["id"]: row["title"] for row in read_lines(file)}


def stored() -> Row:
    """Return what is stored of all parts."""
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {}


def write(part: str, found: Row) -> None:
    """Replace one part of the stored results."""
    RESULTS.write_text(json.dumps({**stored(), part: found}, indent=1) + "\n", encoding="utf-8")


PARTS = {"search": search, "judge": judge, "helpers": helpers, "frameworks": compare_frameworks}


def main() -> None:
    """Play a part, and write its results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--url", default="http://127.0.0.1:8081/v1")
    parser.add_argument(
        "--name", default="qwen2.5-coder-1.5b", help="of the model at the address, and of its tokenizer"
    )
    parser.add_argument("--rows", type=int, default=4, help="requests at once")
    parser.add_argument(
        "--slice",
        type=int,
        default=10,
        help="tasks of each way to play before the next: an interrupted run compares equals",
    )
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "real-models")
    parser.add_argument("--corpus", type=Path, help="passages with id, title, text")
    parser.add_argument("--questions", type=Path, help="questions with answers and gold ids")
    parser.add_argument("--gsm8k", type=Path, help="test.jsonl of GSM8K with solutions")
    for name, count in {
        "multihop": 50,
        "hotpotqa": 100,
        "answers": 200,
        "programs": 30,
        "pages": 30,
        "tasks": 20,
    }.items():
        parser.add_argument(f"--{name}", type=int, default=count)
    given = parser.parse_args()
    given.runs.mkdir(parents=True, exist_ok=True)
    found = PARTS[given.part](given)
    write(given.part, found if given.part == "search" else {**stored().get(given.part, {}), given.name: found})
    sys.stdout.write(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
