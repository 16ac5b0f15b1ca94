"""`check_setup`: refuse a task whose setup holds its gold answer, where the policy's code can find it.

What a setup defines is the policy's to look at: variables, and the constants of its functions, even those of a function
that was deleted, while its memory lasts. So a gold answer may be computed in a setup, but not be written there.

The rule. A gold answer of four letters or digits or more must not stand in the setup: not as a number of the same
value, not as whole words of a string, not as a name. Shorter ones ("5", "yes", "B") occur in any code by chance; they
are refused only as the value of something that is called an answer (`answer = 5`, `{"gold": "B"}`, `def solution()`).
Comments are ignored, since they never reach the interpreter.
"""

from __future__ import annotations

import ast
import re
import unicodedata
from collections.abc import Iterator

from envs_registry.task import Task

_LEAST = 4  # letters and digits that are no coincidence
_COMMON = frozenset({"true", "false", "none", "zero", "null"})
_TELLING = re.compile(
    r"(?:^|_)(?:answers?|golds?|golden|solutions?|expected|truth|correct|secret|hidden)(?:_|$)", re.IGNORECASE
)


def check_setup(task: Task) -> None:
    """Refuse a task whose setup shows one of its answers.

    Raises:
        ValueError: it does; names the answer, the line and the cure.
    """
    found = shown_answer(task.setup, task.answers) if task.setup else None
    if found is not None:
        answer, line = found
        raise ValueError(
            f"task {task.id!r}: line {line} of its setup holds the gold answer {answer!r}, where the policy's code can "
            "read it; compute it there from something else, or leave it out"
        )


def shown_answer(setup: str, answers: tuple[str, ...]) -> tuple[str, int] | None:
    """Return an answer that the text of a setup holds, and the line; None if it holds none, or is no Python."""
    try:
        tree = ast.parse(setup)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None  # the sandbox tells what is wrong with it
    literals = list(_literals(tree))
    named = [literal for node in ast.walk(tree) if _is_telling(node) for literal in _literals(node)]
    for answer in answers:
        for value, line in literals if _is_distinctive(answer) else named:
            if _holds(value, answer):
                return answer, line
    return None


def _literals(tree: ast.AST) -> Iterator[tuple[object, int]]:
    """Yield every constant and name within a piece of code, with its line."""
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 1)
        match node:
            case ast.Constant(value):
                yield value, line
            case ast.UnaryOp(ast.USub(), ast.Constant(int() | float() as number)):
                yield -number, line
            case ast.BinOp(ast.Constant(str() as left), ast.Add(), ast.Constant(str() as right)):
                yield left + right, line
            case ast.Name(name) | ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(name):
                yield name, line
            case ast.Attribute(attr=name) | ast.keyword(arg=str() as name):
                yield name, line


def _is_telling(node: ast.AST) -> bool:
    """Say whether a piece of code gives a value to something that is called an answer."""
    match node:
        case ast.Assign(targets=targets):
            return any(_called(target) for target in targets)
        case ast.AnnAssign(target=target) | ast.AugAssign(target=target) | ast.NamedExpr(target=target):
            return _called(target)
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.keyword(arg=str() as name):
            return bool(_TELLING.search(name))
        case ast.Dict(keys=keys):
            return any(isinstance(key, ast.Constant) and _TELLING.search(str(key.value)) for key in keys)
    return False


def _called(target: ast.AST) -> bool:
    names = [getattr(node, "id", getattr(node, "attr", "")) for node in ast.walk(target)]
    names += [str(node.value) for node in ast.walk(target) if isinstance(node, ast.Constant)]
    return any(_TELLING.search(name) for name in names)


def _is_distinctive(answer: str) -> bool:
    folded = _words(answer)
    return len("".join(folded)) >= _LEAST and "".join(folded) not in _COMMON


def _holds(value: object, answer: str) -> bool:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, str):
        wanted, text = _words(answer), _words(value)
        if not wanted:
            return answer.strip() in value
        return any(text[start : start + len(wanted)] == wanted for start in range(len(text) - len(wanted) + 1))
    if isinstance(value, bool) or value is None:
        return str(value).casefold() == answer.strip().casefold()
    if isinstance(value, int | float):
        try:
            return float(answer.replace(",", "").strip(" $%")) == value
        except (ValueError, OverflowError):
            return False
    return False


def _words(text: str) -> list[str]:
    """Return the words of a text in lower case, digits with their thousands joined."""
    text = unicodedata.normalize("NFKC", text).casefold()
    return re.findall(r"[^\W_]+", re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text))
