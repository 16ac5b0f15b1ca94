"""Three invented rows for each data set, with the columns that are read of the hub's. Nothing is from the sets."""

import base64
import itertools
import json
from pathlib import Path
from typing import Any

CANARY = "invented-canary-for-tests"


def encrypt(text: str, key: str = CANARY) -> str:
    """xbench's way: XOR with the repeated key, then base64."""
    mixed = (one ^ other for one, other in zip(text.encode(), itertools.cycle(key.encode()), strict=False))
    return base64.b64encode(bytes(mixed)).decode()


def _aime(number: int) -> dict[str, Any]:
    problem = f"Find the remainder when ${number}007$ is divided by $1000$."
    return {"id": 900 + number, "problem": problem, "solution": "It is \\boxed{7}.", "answer": "007"}


def _math(number: int) -> dict[str, Any]:
    return {
        "problem": f"What is $\\frac{{1}}{{{number + 2}}}$ of ${6 * (number + 2)}$?",
        **{"level": f"Level {number + 1}", "type": "Prealgebra"},
        "solution": "First \\boxed{5} is wrong, so it is $\\boxed{\\frac{12}{2}}$.",
    }


def _training(number: int, ability: str | None) -> dict[str, Any]:
    question = f"What is {number} + 40?" if ability == "math" else f"Who founded the invented town Ober{number}?"
    return {
        "prompt": [{"content": "You are helpful.", "role": "system"}, {"content": question, "role": "user"}],
        "ability": ability,
        "reward_model": {"ground_truth": str(number + 40) if ability == "math" else "Ada Nowhere", "style": "rule"},
        "extra_info": {"index": number, "need_tools_kwargs": True, "question": question, "split": "train"},
    }


def _hle(number: int) -> dict[str, Any]:
    choice = number == 2
    return {
        **{"id": f"hle{number}", "image": "", "category": "Other", "canary": CANARY},
        "question": f"Which invented thing is number {number}?" + ("\nA. one\nB. two" if choice else ""),
        **{"answer": "B" if choice else "the zorb", "answer_type": "multipleChoice" if choice else "exactMatch"},
    }


def _flashrag(name: str, number: int, answers: list[str]) -> dict[str, Any]:
    question = f"Who wrote the anthem of the country that {name} {number} lies in?"
    return {"id": f"dev_{number}", "question": question, "golden_answers": answers, "metadata": {"type": "bridge"}}


def _toolhop(number: int) -> dict[str, Any]:
    """A question of two hops; the names of its tools are those of all rows."""
    town, text = (
        {"type": "object", "properties": {name: {"type": "string"}}, "required": [name]} for name in ("town", "text")
    )
    found, letters = "Looks up who founded an invented town.", "Counts the letters of a text."
    tools = {
        "Who founded the town?": {"name": "town_lookup", "description": found, "parameters": town},
        "How long is the name?": {"name": "count_letters", "description": letters, "parameters": text},
        "How many words has the name?": {"name": "count_words", "description": "Counts words.", "parameters": {}},
    }
    return {
        "id": number,
        "question": f"How many letters has the name of the founder of Oberland {number}?",
        **{"answer": str(number + 7), "tools": tools, "domain": "Geography"},
        "functions": [
            f"def town_lookup(town):\n    return 'A' * {number + 7} if 'Oberland' in town else 1 / 0\n\n"
            f"# Example usage\nprint(town_lookup(town='Oberland {number}'), 'is the example')",
            "import nowhere_to_be_found\n\ndef count_words(text):\n    return 1",
            "def count_letters(text):\n    return {'letters': len(text)}",
        ],
    }


ROWS: dict[str, list[dict[str, Any]]] = {
    "arpo/ToolHop-v0": [_toolhop(number) for number in range(3)],
    "arpo/AIME24-v0": [_aime(number) for number in range(1, 4)],
    "arpo/AIME25-v0": [{"problem": f"Find $\\sqrt{{{n * n}}}$.", "answer": n, "id": str(n)} for n in (11, 12, 13)],
    "arpo/MATH500-v0": [
        {**_math(n), "answer": "6", "subject": "Prealgebra", "unique_id": f"test/prealgebra/{n}.json"} for n in range(3)
    ],
    "arpo/MATH-v0": [_math(number) for number in range(3)],
    "arpo/GSM8K-v0": [
        {"question": f"Pia has {n} boxes of 1,000 pins. How many pins?", "answer": f"{n} * 1000\n#### {n},000"}
        for n in (1, 2, 3)
    ],
    "arpo/HotpotQA-v0": [
        {
            "question": f"Are Lake {number} and Mount {number} in the same invented county?",
            **{"id": f"5ab{number}", "answer": "yes", "type": "comparison", "level": level},
        }
        for number, level in enumerate(("easy", "medium", "hard"))
    ],
    "arpo/2Wiki-v0": [_flashrag("Aville", number, ["New Ford", "N.F.", "New Ford"]) for number in range(3)],
    "arpo/MuSiQue-v0": [_flashrag("Beton", number, ["Li Ye", "Ye Li"]) for number in range(3)],
    "arpo/Bamboogle-v0": [_flashrag("Ceburg", number, ["a name\n"]) for number in range(3)],
    "arpo/WebWalker-v0": [
        {
            **{"question": question, "answer": "2031年5月4日", "root_url": "https://example.org"},
            "info": {"difficulty_level": level},
        }
        for question, level in (("虚构大学哪天开学？", "easy"), ("哪一年？", "medium"), ("When is it?", "hard"))
    ],
    "arpo/GAIA-v0": [
        {
            **{"task_id": f"gaia-{number}", "Level": str(number), "Final answer": "17"},
            **{"Question": f"How many invented moons has planet {number}?", "file_name": "", "file_path": ""},
        }
        for number in (1, 2, 3)
    ],
    "arpo/HLE-v0": [_hle(number) for number in range(3)],
    "arpo/SimpleQA-v0": [
        {"metadata": "{'topic': 'Other'}", "problem": f"Who won the invented prize in {year}?", "answer": "Bo Nobody"}
        for year in (2101, 2102, 2103)
    ],
    "arpo/xBench-v0": [
        {
            "prompt": encrypt(f"虚构城市第{number}座桥有多长？"),
            **{"id": str(number), "answer": encrypt(f"{number}00米"), "canary": CANARY},
        }
        for number in (1, 2, 3)
    ],
    "arpo/Reasoning10K-v0": [_training(0, "math"), _training(1, "qa"), _training(2, "qa")],
    "arpo/DeepSearch1K-v0": [_training(number, None) for number in range(3)],
}


def sample_file(spec_id: str, folder: Path) -> Path:
    """Write the rows of one id into a folder; the file's name suits every split."""
    path = folder / f"{spec_id.split('/')[-1].lower()}.jsonl"
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS[spec_id]), encoding="utf-8")
    return path
