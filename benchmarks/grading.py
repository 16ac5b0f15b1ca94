r"""Does the math grader accept right answers in other words, and no wrong ones? Beside math-verify and the papers' F1.

    python -m benchmarks.grading [--data ../shared/data] [--golds 680]

Golds: MATH500, AIME24, AIME25 and 120 of GSM8K. Each is rewritten in the ways models write (`reformulations`) and made
wrong (`wrong_answers`). Prints a table and writes benchmarks/results/grading.json, misses included.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

from arpo_env.errors import GradingError
from arpo_env.grading.answer_text import prepare
from arpo_env.grading.math_grader import MathGrader
from arpo_env.grading.math_values import as_value, split_unit
from arpo_env.grading.published_metrics import reward_f1

RESULTS = Path(__file__).parent / "results" / "grading.json"
SETS = {"math500": 500, "aime24": 30, "aime25": 30, "gsm8k": 120}


def read_golds(data: Path) -> list[str]:
    """Return the gold answers, in order."""
    golds = []
    for name, limit in SETS.items():
        lines = (data / "arpo" / "eval" / name / "test.jsonl").read_text(encoding="utf-8").splitlines()
        answers = [str(json.loads(line)["answer"]) for line in lines[:limit]]
        golds += [answer.split("####")[-1].strip() for answer in answers]
    return golds


def reformulations(gold: str) -> dict[str, str]:
    """Return right answers by the kind of rewriting."""
    plain = prepare(gold)
    bare, unit = split_unit(plain, letters=False)
    fraction = gold.replace("\\dfrac", "\\frac")
    right = {
        "boxed": f"\\boxed{{{gold}}}",
        "dollars": f"${gold}$",
        "final": f"The final answer is ${gold}$.",
        "final boxed": f"Final answer: \\boxed{{{gold}}}",
        "paren": f"\\({gold}\\)",
        "bold": f"**{gold}**",
        "stop": f"{gold}.",
        "spaces": f"  {gold} ",
        "display": f"\\[ {gold} \\]",
        "mathbf": f"\\mathbf{{{plain}}}",
        "dfrac": gold.replace("\\frac", "\\dfrac"),
        "tfrac": fraction.replace("\\frac", "\\tfrac"),
        "prepared": plain,
    }
    if "left" not in gold and "text" not in gold and gold.count("(") == gold.count(")"):
        right["left right"] = gold.replace("(", "\\left(").replace(")", "\\right)")
    if not re.search(r"text|mbox|=|\\in|,|begin|pm", gold):
        right["x ="] = f"x = {gold}" if "x" not in gold else gold
    value = as_value(bare)
    if value is not None and value.base is None:
        right |= _numbers(value.number, unit or ("%" if "%" in gold else ""))
    right |= _shapes(gold, bare)
    if value is None:
        right |= _formulas(gold, bare)
    return {kind: text for kind, text in right.items() if text != gold or kind == "prepared"}


def _numbers(number: Fraction, unit: str) -> dict[str, str]:
    top, bottom = number.numerator, number.denominator
    forms: dict[str, str] = {}
    if bottom == 1:
        forms = {
            "decimal": f"{top}.0",
            "thousands": f"{top:,}",
            "slash": f"{2 * top}/2",
            "unreduced": f"\\frac{{{3 * top}}}{{3}}",
            "text": f"\\text{{{top}}}",
            "zeros": f"{'-' if top < 0 else ''}00{abs(top)}",
            "textbf": f"\\textbf{{{top}}}",
            "sci": _scientific(number),
            "e": f"{top / 10:g}e1" if top < 10**5 else f"{top}",
            "latex thousands": f"{top:,}".replace(",", "{,}"),
        }
    else:
        forms = {"slash": f"{top}/{bottom}", "unreduced": f"\\frac{{{2 * top}}}{{{2 * bottom}}}"}
        forms["frac"] = f"{'-' if top < 0 else ''}\\frac{{{abs(top)}}}{{{bottom}}}"
        if abs(top) > bottom:
            whole, rest = divmod(abs(top), bottom)
            forms["mixed"] = f"{'-' if top < 0 else ''}{whole}\\frac{{{rest}}}{{{bottom}}}"
        while bottom % 10 == 0 or bottom % 2 == 0 or bottom % 5 == 0:
            bottom //= 2 if bottom % 2 == 0 else 5
        if bottom == 1:
            digits = f"{float(number):.12f}".rstrip("0")
            forms |= {"decimal": digits, "zero tail": digits + "0", "sci": _scientific(number)}
            if not unit:
                forms["percent"] = f"{float(number * 100):.10f}".rstrip("0").rstrip(".") + "\\%"
    if unit in ("", "dollar"):
        forms["dollars word"] = f"{forms.get('thousands', forms.get('decimal', forms.get('frac')))} dollars"
        forms["dollar sign"] = f"\\${forms.get('thousands', forms.get('decimal', forms.get('slash')))}"
    if unit in ("", "degree"):
        forms["degrees word"] = f"{forms.get('thousands', forms.get('slash'))} degrees"
    if unit == "degree":
        forms |= {"degree sign": f"{forms['slash'] if '/1' in forms['slash'] else forms.get('text', forms['slash'])}°"}
        forms |= {"circ braces": f"{forms.get('thousands', forms.get('frac'))}^{{\\circ}}"}
    if not unit:
        forms["cm"] = f"{forms.get('thousands', forms.get('slash'))}\\text{{ cm}}"
    return forms


def _scientific(number: Fraction) -> str:
    mantissa, power = f"{float(number):.11e}".split("e")
    return f"{mantissa.rstrip('0').rstrip('.')} \\times 10^{{{int(power)}}}"


def _shapes(gold: str, bare: str) -> dict[str, str]:
    """Lists in another order, intervals as inequalities, matrices by other environments, bases, words."""
    forms: dict[str, str] = {}
    if match := re.fullmatch(r"(?:x \\in )?([(\[])([^,]+),([^,]+)([)\]])", bare):
        low, high = match[2].strip(), match[3].strip()
        if "infty" in bare or "]" in bare or "[" in bare:
            less = {"(": "<", "[": "\\le", ")": "<", "]": "\\le"}
            sides = [
                "" if "infty" in low else f"{low} {less[match[1]]} ",
                "" if "infty" in high else f" {less[match[4]]} {high}",
            ]
            forms["inequality"] = f"{sides[0]}x{sides[1]}"
            forms["in"] = f"x \\in {match[1]}{low},{high}{match[4]}"
    if "cup" in bare:
        parts = [part.strip() for part in bare.split("\\cup")]
        forms["union swapped"] = " \\cup ".join(reversed(parts))
    if re.fullmatch(r"[^()\[\]{},]+(,[^()\[\]{},]+)+", bare) and not re.search(r"\d,\d{3}", bare):
        parts = [part.strip() for part in bare.split(",")]
        forms |= {
            "reversed": ", ".join(reversed(parts)),
            "set": f"\\{{{', '.join(parts)}\\}}",
            "and": " and ".join(parts),
        }
        forms["x or"] = " or ".join(f"x = {part}" for part in parts)
    if match := re.fullmatch(r"(\d+)_\{?(\d)\}?", bare):
        forms |= {"base braces": f"{match[1]}_{{{match[2]}}}", "base text": f"{match[1]}_{{\\text{{{match[2]}}}}}"}
    if "pmatrix" in gold:
        forms["bmatrix"] = gold.replace("pmatrix", "bmatrix")
        rows = [row.split("&") for row in re.sub(r"\\(?:begin|end)\{pmatrix\}", "", prepare(gold)).split("\\\\")]
        forms["python matrix"] = "Matrix([" + ", ".join(f"[{', '.join(c.strip() for c in row)}]" for row in rows) + "])"
    if re.fullmatch(r"\\text\{\(?\w+\)?\}", gold):
        word = prepare(gold)
        forms |= {"word": word, "lower": word.lower(), "textbf": f"\\textbf{{{word}}}", "unwrapped": word.strip("()")}
    if match := re.fullmatch(r"([a-z])\s*=\s*([^=]+)", bare):
        forms |= {"side": match[2], "swapped sides": f"{match[2]} = {match[1]}"}
    return forms


def _formulas(gold: str, bare: str) -> dict[str, str]:
    """Return the forms that sympy writes, for a gold answer that is a formula."""
    import sympy
    from math_verify import LatexExtractionConfig, parse

    if re.search(r"text|_|\\pm|=|\\in\b", gold):
        return {}
    found = parse(
        f"\\boxed{{{re.sub(r'(?<![A-Za-z])i(?![A-Za-z])', ' i ', bare)}}}",
        [LatexExtractionConfig(boxed_match_priority=0)],
    )
    if not found or isinstance(found[0], str):
        return {}
    meaning = found[0]
    if isinstance(meaning, sympy.Expr):
        meaning = meaning.doit()
        forms = {"sympy str": str(meaning), "sympy latex": sympy.latex(meaning)}
        forms |= {"expanded": sympy.latex(sympy.expand(meaning)), "factored": sympy.latex(sympy.factor(meaning))}
        return forms | {
            "expanded str": str(sympy.expand(meaning)),
            "spaced": re.sub(r"(?<=\d)(?=\\sqrt|\\pi)", " ", bare),
        }
    if type(meaning).__name__ in ("Interval", "Union", "Tuple", "MutableDenseMatrix", "ImmutableDenseMatrix"):
        return {"sympy str": str(meaning), "sympy latex": sympy.latex(meaning)}
    return {}


def wrong_answers(gold: str) -> dict[str, str]:
    """Return wrong answers by the kind of mistake."""
    bare, _unit = split_unit(prepare(gold), letters=False)
    value = as_value(bare)
    wrong: dict[str, str] = {}
    if value is not None and value.base is None:
        number = value.number
        wrong = {"off by one": _write(number + 1), "minus one": _write(number - 1)}
        if number:
            close = number * Fraction(10005, 10000)
            wrong |= {
                "sign": _write(-number),
                "times ten": _write(number * 10),
                "close": f"{float(close):.12f}".rstrip("0"),
            }
    elif value is not None:
        wrong = {"off by one": f"{value.number + 1}_{{{value.base}}}", "base": f"{value.number}_{{{value.base + 1}}}"}  # type: ignore[operator]
    elif not re.fullmatch(r"\(?[A-Za-z ]+\)?", bare):
        wrong = {"digit": _bump(bare)}
        if re.fullmatch(r"[^=,]*", bare) and "\\pm" not in bare and "begin" not in bare:
            wrong["sign"] = f"-({bare})"
    if match := re.fullmatch(r"\(([^,()]+),([^,()]+)\)", bare):
        wrong["swapped"] = f"({match[2].strip()}, {match[1].strip()})"
    return {kind: text for kind, text in wrong.items() if prepare(text) != prepare(gold)}


def _write(number: Fraction) -> str:
    sign = "-" if number < 0 else ""
    if number.denominator == 1:
        return str(number)
    return f"{sign}\\frac{{{abs(number.numerator)}}}{{{number.denominator}}}"


def _bump(text: str) -> str:
    """Raise the last number in a text by one."""
    match = list(re.finditer(r"\d+", text))
    if not match:
        return f"{text} + 1"
    return f"{text[: match[-1].start()]}{int(match[-1][0]) + 1}{text[match[-1].end() :]}"


def cases(golds: list[str]) -> Iterator[tuple[str, str, str, bool]]:
    """Yield (kind, answer, gold, right)."""
    for gold in golds:
        yield from ((kind, text, gold, True) for kind, text in reformulations(gold).items())
        yield from ((kind, text, gold, False) for kind, text in wrong_answers(gold).items())


async def ours(rows: list[tuple[str, str, str, bool]], width: int = 16) -> list[bool | None]:
    """Return our verdicts; None where the grader could not decide."""
    grader, gate = MathGrader(), asyncio.Semaphore(width)

    async def one(answer: str, gold: str) -> bool | None:
        async with gate:
            try:
                return await grader.equal(answer, gold)
            except GradingError:
                return None

    return await asyncio.gather(*(one(answer, gold) for _, answer, gold, _ in rows))


def math_verify_alone(answer: str, gold: str) -> bool:
    """Plain math-verify, both extraction targets."""
    from math_verify import parse, verify

    wrapped = answer if re.search(r"\$|\\boxed|\\\(|\\\[|^[\w .,%]+$", answer) else f"${answer}$"
    return bool(verify(parse(f"${gold}$"), parse(wrapped)))


def published_f1(answer: str, gold: str) -> bool:
    """The published training reward: right where its F1 is 1."""
    return reward_f1(answer, [gold]) == 1.0


def table(rows: list[tuple[str, str, str, bool]], verdicts: list[bool | None], seconds: float) -> dict[str, Any]:
    """Count verdicts."""
    per_kind: dict[str, Counter[str]] = defaultdict(Counter)
    failed = []
    for (kind, answer, gold, right), verdict in zip(rows, verdicts, strict=True):
        per_kind[f"{'right' if right else 'wrong'}: {kind}"]["accepted" if verdict else "rejected"] += 1
        if verdict is not right:
            failed.append({"kind": kind, "answer": answer, "gold": gold, "right": right, "verdict": verdict})
    rights = [bool(verdict) for row, verdict in zip(rows, verdicts, strict=True) if row[3]]
    wrongs = [bool(verdict) for row, verdict in zip(rows, verdicts, strict=True) if not row[3]]
    return {
        "right": len(rights),
        "accepted": sum(rights),
        "share": sum(rights) / len(rights),
        "wrong": len(wrongs),
        "wrong accepted": sum(wrongs),
        "undecided": sum(verdict is None for verdict in verdicts),
        "ms a check": 1000 * seconds / len(rows),
        "per kind": {k: dict(v) for k, v in sorted(per_kind.items())},
        "failed": failed[:100],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(__file__).resolve().parents[2] / "shared" / "data")
    parser.add_argument("--golds", type=int, default=680)
    parser.add_argument("--ours-only", action="store_true")
    arguments = parser.parse_args()
    rows = list(cases(read_golds(arguments.data)[: arguments.golds]))
    graders: dict[str, Callable[[], list[bool | None]]] = {"ours": lambda: asyncio.run(ours(rows))}
    if not arguments.ours_only:
        graders["math-verify"] = lambda: [math_verify_alone(answer, gold) for _, answer, gold, _ in rows]
        graders["published F1"] = lambda: [published_f1(answer, gold) for _, answer, gold, _ in rows]
    results = {}
    for name, judge in graders.items():
        start = time.perf_counter()
        results[name] = found = table(rows, judge(), time.perf_counter() - start)
        print(
            f"{name:14} right {found['accepted']}/{found['right']} = {found['share']:.1%}  "
            f"wrong accepted {found['wrong accepted']}/{found['wrong']}  undecided {found['undecided']}  "
            f"{found['ms a check']:.2f} ms a check"
        )
    RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
