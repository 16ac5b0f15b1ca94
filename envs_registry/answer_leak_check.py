"""`check_setup`: rejects a task whose setup code contains its gold answer, where the policy's code could find it.

The policy can inspect everything that a setup defines: variables and the constants of functions, even those of deleted
functions while their memory lasts. So a setup may compute a gold answer, but must not contain it.

The rule: a gold answer of at least four letters or digits must not occur in the setup, neither as a number of the same
value, nor as whole words of a string, nor as a name. Shorter answers ("5", "yes", "B") occur in any code by chance;
they are rejected only as the value of something that is named like an answer (`answer = 5`, `{"gold": "B"}`, `def
solution()`). Comments are ignored, since they never reach the interpreter.
"""

from __future__ import annotations

import ast
import re
import unicodedata
from collections.abc import Iterator

from envs_registry.task import Task

_LEAST = 4  # letters and digits; shorter answers occur by chance
# Long enough to be distinctive, but they occur in ordinary code as well.
_COMMON = frozenset({"true", "false", "none", "zero", "null"})
_TELLING = re.compile(
    r"(?:^|_)(?:answers?|golds?|golden|solutions?|expected|truth|correct|secret|hidden)(?:_|$)", re.IGNORECASE
)


def check_setup(task: Task) -> None:
    """Raise if the setup of a task contains one of its answers.

    Raises:
        ValueError: the setup contains an answer; the message names the answer, the line and the cure.
    """
    found = shown_answer(task.setup, task.answers) if task.setup else None
    if found is not None:
        answer, line = found
        raise ValueError(
            f"task {task.id!r}: line {line} of its setup holds the gold answer {answer!r}, where the policy's code can "
            "read it; compute it there from other values, or remove it"
        )


def shown_answer(setup: str, answers: tuple[str, ...]) -> tuple[str, int] | None:
    """Return an answer that the setup contains and its line; None if there is none or the setup is not valid Python."""
    try:
        tree = ast.parse(setup)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None  # the sandbox reports the syntax error
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
            # Python's syntax has no negative literals: -5 is a minus in front of 5.
            case ast.UnaryOp(ast.USub(), ast.Constant(int() | float() as number)):
                yield -number, line
            # Each half alone says nothing, so the sum is one more literal to look at.
            case ast.BinOp(ast.Constant(str() as left), ast.Add(), ast.Constant(str() as right)):
                yield left + right, line
            case ast.Name(name) | ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(name):
                yield name, line
            case ast.Attribute(attr=name) | ast.keyword(arg=str() as name):
                yield name, line


def _is_telling(node: ast.AST) -> bool:
    """Return whether a node assigns a value to something that is named like an answer."""
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
    # A subscript names its target by a string, as in facts["answer"] = 5.
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
        # An answer of signs alone, such as "+", has no words to compare.
        if not wanted:
            return answer.strip() in value
        return any(text[start : start + len(wanted)] == wanted for start in range(len(text) - len(wanted) + 1))
    # Before the numbers: bool is a subclass of int, and True would equal the answer 1.
    if isinstance(value, bool) or value is None:
        return str(value).casefold() == answer.strip().casefold()
    if isinstance(value, int | float):
        try:
            return float(answer.replace(",", "").strip(" $%")) == value
        except (ValueError, OverflowError):
            return False
    return False


def _words(text: str) -> list[str]:
    """Return the words of a text in lower case, without thousands separators in numbers."""
    text = unicodedata.normalize("NFKC", text).casefold()
    return re.findall(r"[^\W_]+", re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text))
